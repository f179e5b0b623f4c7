"""Balls, and how a point outside lands inside of them, rounding included."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import ACTIVE, LANDING, ConstraintSet, Numbers, check_size, direction, shown, sized, skin
from ..kernels.vectors import norm, unit


class Ball(ConstraintSet):
    """{x in R^n : |x - center| <= radius}."""

    reach = math.inf
    radius: Tensor
    center: Tensor

    def __init__(self, n: int, radius: Numbers = 1.0, center: Numbers = None):
        super().__init__()
        check_size("Ball", n)
        if n < 1:
            raise ValueError(f"Ball asked for an ambient size n >= 1, got {n}. The disk is Ball(2).")
        self.shape, self.centered = (n,), center is None
        self._constant("radius", radius, dims=0)
        self._validate()
        c = self._constant("center", torch.zeros(n, dtype=torch.float64) if center is None else center, dims=1)
        if c.shape[-1:] != (n,):
            raise ValueError(f"Ball({n}) asked for a center of shape (*batch, {n}), got {tuple(c.shape)}.")

    def _validate(self) -> None:
        r = self.radius
        self._require(r > 0, lambda: f"Ball asked for radius > 0, got {r.tolist()}. A point is Affine(torch.eye(n), point).")

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Center, radius (*batch, 1) and the rounding of |x - center| near the boundary."""
        c, r = self._cast("center", x), self._cast("radius", x, towards=-1)[..., None]
        return c, r, skin(x, self.shape[0]) * (r + c.abs().amax(-1, keepdim=True))

    def _project(self, x: Tensor) -> Tensor:
        c, r, tol = self._parts(x)
        d = x - c
        length = norm(d)[..., None]
        outside = length > r - tol
        shrink = (r - LANDING * tol).clamp(min=0) / torch.where(outside & (length > 0), length, 1.0)
        return torch.where(outside, c + shrink * d, x)

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        c, r = self._cast("center", x), self._cast("radius", x, towards=-1)
        return x[..., :0], (norm(x - c) - r)[..., None]

    def _scale(self, x: Tensor) -> Tensor | float:
        return self._cast("radius", x, towards=-1) + self._cast("center", x).abs().amax(-1)

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        c, r, tol = self._parts(x)
        u, length = direction(x - c)
        outward = (u * v).sum(-1, keepdim=True).clamp(min=0)
        return torch.where(length >= r - ACTIVE * tol, v - outward * u, v)

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        n = self.shape[0]
        u = unit(torch.randn(*batch, n, generator=generator, dtype=dtype, device=device))
        share = torch.rand(*batch, 1, generator=generator, dtype=dtype, device=device) ** (1 / n)
        c, r, _ = self._parts(u)
        return self._project(c + r * share * u)

    def extra_repr(self) -> str:
        center = "" if self.centered else f", center={sized(self.center)}"
        return f"{self.shape[0]}" + shown("radius", self.radius, 1.0) + center
