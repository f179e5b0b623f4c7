"""Manifolds without curvature."""

from __future__ import annotations

from torch import Tensor

from ..core import Manifold


class Flat(Manifold):
    """A manifold whose geodesics are straight lines: exp adds, log subtracts, and volumes stay as they are."""

    def _exp(self, x: Tensor, v: Tensor) -> Tensor:
        return x + v

    def _log(self, x: Tensor, y: Tensor) -> Tensor:
        return y - x

    def _log_volume(self, x: Tensor, v: Tensor) -> Tensor:
        return 0.0 * self._flat(v).sum(-1)
