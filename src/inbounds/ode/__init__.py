"""Differential equations whose solutions stay in M, at every time."""

from .projected import ProjectedODE
from .solution import ODESolution

__all__ = ["ODESolution", "ProjectedODE"]
