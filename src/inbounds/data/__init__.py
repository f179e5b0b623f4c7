"""Datasets: pairs of points of a set, x -> y."""

from .backbone import protein
from .disk import disk
from .flocks import cs, flock
from .pairs import Pairs
from .so3 import so3
from .sphere import sphere

__all__ = ["Pairs", "cs", "disk", "flock", "protein", "so3", "sphere"]
