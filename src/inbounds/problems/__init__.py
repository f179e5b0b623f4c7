"""Constrained optimisation as a task for networks: input -> nearly optimal point of a set that depends on the input.

Optimal points come from real solvers, of the extra inbounds[problems].
"""

from .arm import arm
from .control import control
from .curved import curved
from .dispatch import dispatch
from .powerflow import power_flow
from .quadratic import quadratic
from .task import Task

__all__ = ["Task", "arm", "control", "curved", "dispatch", "power_flow", "quadratic"]
