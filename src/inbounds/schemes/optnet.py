"""A quadratic program as the last layer, with a quadratic term that is learned (Amos and Kolter, 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..core import ConstraintSet
from ..sets.intersection import polyhedral
from ..sets.polytope import Polytope
from .base import Scheme
from .linear import polytope_of


class OptNet(Scheme):
    """argmin {y^T W y / 2 + u^T y : y in M}, W = L L^T + 1e-4 I with a learnable triangle L: the nearest point to -W^-1 u in W.

    L starts as I, where the layer is P_M(-u) but for the 1e-4.
    """

    def __init__(self, net: nn.Module, M: ConstraintSet):
        super().__init__(net, M)
        if len(M.shape) != 1:
            raise TypeError(f"OptNet needs a set of vectors, got {M!r} of shape {M.shape}. Use Projected(net, M).")
        self.triangle = nn.Parameter(torch.eye(M.shape[0], dtype=torch.float64))

    def weight_matrix(self) -> Tensor:
        """W, (n, n), positive definite."""
        L = self.triangle.tril()
        return L @ L.mT + 1e-4 * torch.eye(len(L), dtype=L.dtype, device=L.device)

    def enforce(self, M: ConstraintSet, u: Tensor, x: Tensor) -> Tensor:
        faces = polyhedral(polytope_of(M, "OptNet")) or {}
        W = self.weight_matrix()
        goal = -torch.linalg.solve(W, u.to(W.dtype).mT).mT if u.dim() > 1 else -torch.linalg.solve(W, u.to(W.dtype))
        return Polytope(**faces, weight=W).project(goal).to(u.dtype)  # pyright: ignore[reportArgumentType]
