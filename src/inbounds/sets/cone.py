"""The second-order cone."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import ACTIVE, LANDING, ConstraintSet, check_size, direction, skin
from ..kernels.vectors import norm


class SecondOrderCone(ConstraintSet):
    """{(t, x) in R^n : |x| <= t}; the first entry is t."""

    reach = math.inf

    def __init__(self, n: int):
        super().__init__()
        check_size("SecondOrderCone", n)
        if n < 2:
            raise ValueError(f"SecondOrderCone asked for n >= 2 entries (t, x), got {n}. For t >= 0 write Box([0.0], [inf]).")
        self.shape = (n,)

    def _project(self, x: Tensor) -> Tensor:
        t, (u, length) = x[..., :1], direction(x[..., 1:])
        tol = skin(x, self.shape[0])
        side = 0.5 * (t + length)
        side = torch.where(side < torch.finfo(x.dtype).tiny / tol, 0.0, side)  # below, a skin would be denormal
        side = torch.where(length > -t, side, 0.0)
        edge = torch.cat([side, (side - LANDING * tol * side) * u], -1)  # (1 - skin) as a factor is optimised away by ONNX tools
        return torch.where(length > t * (1 - tol), edge, x)

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[..., :0], (norm(x[..., 1:]) - x[..., 0])[..., None]

    def _scale(self, x: Tensor) -> Tensor | float:
        return x.abs().amax(-1)

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        """At the apex the tangent cone is the cone itself."""
        t, (u, length) = x[..., :1], direction(x[..., 1:])
        outward = (0.5 * ((u * v[..., 1:]).sum(-1, keepdim=True) - v[..., :1])).clamp(min=0)
        slid = v - outward * torch.cat([-torch.ones_like(t), u], -1)
        active = length >= t * (1 - ACTIVE * skin(x, self.shape[0]))
        return torch.where(t <= 0, self._project(v), torch.where(active, slid, v))

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        x = torch.randn(*batch, *self.shape, generator=generator, dtype=dtype, device=device)
        return self._project(torch.cat([2 * x[..., :1].abs(), x[..., 1:]], -1))

    def extra_repr(self) -> str:
        return f"{self.shape[0]}"
