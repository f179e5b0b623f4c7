"""Sets known only by samples."""

from .algebraic import Algebraic
from .base import FitWarning, LearnedSet
from .fit import fit
from .flow import Flow, VelocityNet
from .flow_training import FlowTraining, denoising
from .heat import Heat
from .hull import Hull
from .local import Local
from .report import Report
from .storage import load

__all__ = [
    "Algebraic",
    "FitWarning",
    "Flow",
    "FlowTraining",
    "Heat",
    "Hull",
    "LearnedSet",
    "Local",
    "Report",
    "VelocityNet",
    "denoising",
    "fit",
    "load",
]
