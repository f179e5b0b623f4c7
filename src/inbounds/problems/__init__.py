"""Constrained optimisation as a task for networks: input -> nearly optimal point of a set that depends on the input.

`open_task(name)` makes a task by name; optimal points come from real solvers, of the extra inbounds[problems].
"""

from .control import control
from .dispatch import dispatch
from .quadratic import quadratic
from .task import Task

__all__ = ["Task", "control", "dispatch", "quadratic"]
