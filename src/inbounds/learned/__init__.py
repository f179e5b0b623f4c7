"""Sets known only by samples."""

from .algebraic import Algebraic
from .alpha import AlphaShape
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
    "AlphaShape",
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
