"""Training: a stack of models in one loop, a run store, executors."""

from .executors import Here, Local, Ray, execute
from .layers import LayeredStack
from .logs import Log, tensorboard
from .stack import Stack
from .store import Store
from .training import Member, Problem, Protocol, StackTraining, mse

__all__ = [
    "Here",
    "LayeredStack",
    "Local",
    "Log",
    "Member",
    "Problem",
    "Protocol",
    "Ray",
    "Stack",
    "StackTraining",
    "Store",
    "execute",
    "mse",
    "tensorboard",
]
