"""Sets known only by samples."""

from .flow import Flow, FlowTraining, VelocityNet, denoising

__all__ = ["Flow", "FlowTraining", "VelocityNet", "denoising"]
