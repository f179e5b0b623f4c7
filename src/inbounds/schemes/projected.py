"""The nearest point of the set: ours."""

from __future__ import annotations

from torch import Tensor, nn

from ..core import ConstraintSet
from ..steps import Projection
from .base import Objective, Scheme


class Projected(Scheme):
    """P_M(u), as FAA(net, Projection(M)). It takes every set, convex or not.

    The loss has no slope along the normals of the set, so raw outputs may drift away from it, which changes no output and makes
    projections dear where a solver has to find them. pull: weight of |u - P_M(u)|^2 in the loss, which brings them back.
    """

    def __init__(self, net: nn.Module, M: ConstraintSet, pull: float = 0.0):
        super().__init__(net, M)
        if not pull >= 0:
            raise ValueError(f"Projected asked for pull >= 0, got {pull}.")
        self.pull = pull

    def enforce(self, M: ConstraintSet, u: Tensor, x: Tensor) -> Tensor:
        return Projection(M)(None, u)

    def loss(self, x: Tensor, objective: Objective) -> Tensor:
        if not self.pull:
            return super().loss(x, objective)
        M, u = self.at(x), self.net(x)
        y = self.enforce(M, u, x)
        away = Projection(M).shaped(u, M.shape) - y.detach()  # the slope of |u - P(u)|^2 is 2 (u - P(u))
        return objective(x, y).mean() + self.pull * away.square().flatten(1).sum(1).mean()
