"""The uniform distribution on sets whose volume is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core import ConstraintSet
from ..sets import SO, Ball, Box, Product, Simplex, Sphere, Stiefel
from .angles import log_sphere_area
from .on_set import OnSet


def _sphere(M: Sphere) -> Tensor:
    n = M.shape[0]
    return log_sphere_area(n) + (n - 1) * M.radius.double().log()


def _ball(M: Ball) -> Tensor:
    n = M.shape[0]
    return log_sphere_area(n) - math.log(n) + n * M.radius.double().log()


def _stiefel(n: int, k: int) -> Tensor:
    """Spheres in R^n, R^(n-1), ..; turning one column into another moves both of them, which counts sqrt(2)."""
    areas = sum(log_sphere_area(n - i) for i in range(k))
    return torch.tensor(areas + 0.25 * k * (k - 1) * math.log(2), dtype=torch.float64)


def _simplex(M: Simplex) -> Tensor:
    n = M.shape[0]
    return 0.5 * math.log(n) - math.lgamma(n) + (n - 1) * M.total.double().log()


def _product(M: Product) -> Tensor:
    return torch.stack(torch.broadcast_tensors(*(log_volume_of(s) for s in M.sets))).sum(0)


VOLUMES: dict[type, Callable[[Any], Tensor]] = {
    Sphere: _sphere,
    Ball: _ball,
    SO: lambda M: _stiefel(M.n, M.n) - math.log(2),  # one of the two halves of the orthogonal group
    Stiefel: lambda M: _stiefel(M.n, M.k),
    Box: lambda M: (M.high.double() - M.low.double()).log().flatten(M.high.dim() - len(M.shape)).sum(-1),
    Simplex: _simplex,
    Product: _product,
}


def log_volume_of(M: ConstraintSet) -> Tensor:
    """log of the volume of M in its metric, in float64, (*M.batch,); refused where it is infinite or has no formula."""
    formula = next((f for kind, f in VOLUMES.items() if isinstance(M, kind)), None)
    volume = None if formula is None else formula(M)
    if volume is None or not bool(torch.isfinite(volume.detach()).all()):
        raise TypeError(
            f"UniformOn asked for a set of known, finite volume (Sphere, SO, Stiefel, Ball, Simplex, Box with finite bounds, "
            f"products of them), got {M!r}. M.sample(...) draws from any set."
        )
    return volume


class UniformOn(OnSet):
    """The uniform distribution on M with respect to the volume of its metric; on a group, Haar measure."""

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012 (as in torch)

    def __init__(self, M: ConstraintSet, validate_args: Any = None):
        self._log_volume = log_volume_of(M)
        super().__init__(M, {}, tuple(self._log_volume.shape), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> UniformOn:
        """The same distribution, repeated over batch dims."""
        new = super().expand(batch_shape, _instance)
        new._log_volume = self._log_volume
        return new

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Points of M; a learnable size of M gets its gradient."""
        return self.M.sample(*sample_shape, *self.batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """-log of the volume, at every point of M."""
        self._checked(value)
        batch = value.shape[: value.dim() - len(self.event_shape)]
        return (-self._log_volume).to(value.dtype).expand(torch.broadcast_shapes(batch, self.batch_shape))

    def entropy(self) -> Tensor:
        """log of the volume."""
        return self._log_volume.to(torch.get_default_dtype()).expand(self.batch_shape)
