"""Sets known only by samples."""

from .flow import Flow, VelocityNet
from .flow_training import FlowTraining, denoising

__all__ = ["Flow", "FlowTraining", "VelocityNet", "denoising"]
