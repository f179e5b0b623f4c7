"""The nearest point of the set: ours."""

from __future__ import annotations

from torch import Tensor

from ..core import ConstraintSet
from ..steps import Projection
from .base import Scheme


class Projected(Scheme):
    """P_M(u), as FAA(net, Projection(M)). It takes every set, convex or not."""

    def enforce(self, M: ConstraintSet, u: Tensor, x: Tensor) -> Tensor:
        return Projection(M)(None, u)
