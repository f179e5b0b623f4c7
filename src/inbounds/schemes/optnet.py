"""A quadratic program as the last layer, with a quadratic term that is learned (Amos and Kolter, 2017)."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from ..core import ConstraintSet
from ..sets.intersection import polyhedral
from ..sets.polytope import Polytope
from ..sets.solved import FirstOnly
from .base import Scheme
from .linear import polytope_of, product


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
        """The answer y moves by dy = -K (du + dW y), where K belongs to the faces that y touches and to W.

        So W is held constant in the program, and its change is put into the linear term: u + dW y. One gradient of one vector
        then takes the place of a gradient of every row's own matrix. The first derivative is exact, a second one is refused.
        """
        faces = polyhedral(polytope_of(M, "OptNet")) or {}
        W, u64 = self.weight_matrix(), u.double()
        fixed = W.detach()
        P = Polytope(**faces, weight=fixed)  # pyright: ignore[reportArgumentType]
        with torch.no_grad():
            y = P.project(product(-torch.linalg.inv(fixed), u64))
        if torch.is_grad_enabled():
            y = P.project(-product(torch.linalg.inv(fixed), u64 + product(W - fixed, y)))
            y = cast(Tensor, FirstOnly.apply(y))
        return y.to(u.dtype)
