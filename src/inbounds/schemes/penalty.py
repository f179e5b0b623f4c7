"""No scheme at all: the violation is a term of the loss."""

from __future__ import annotations

from torch import Tensor, nn

from ..core import ConstraintSet
from ..steps import Projection
from .base import Scheme


class Penalty(Scheme):
    """y = u; the loss is the objective and `weight` times the violation. Nothing holds the output in M."""

    exact = False

    def __init__(self, net: nn.Module, M: ConstraintSet, weight: float = 100.0):
        super().__init__(net, M)
        if not weight > 0:
            raise ValueError(f"Penalty asked for weight > 0, got {weight}. Without a penalty nothing knows of the set.")
        self.weight = weight

    def enforce(self, M: ConstraintSet, u: Tensor, x: Tensor) -> Tensor:
        return Projection(M).shaped(u, M.shape)
