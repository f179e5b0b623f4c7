"""Solid ellipsoids."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..core import ACTIVE, LANDING, ConstraintSet, Numbers, sized, skin
from ..kernels.vectors import norm

STEPS = 12  # of Newton's method: axes in the ratio 1e4 need nine


class Ellipsoid(ConstraintSet):
    """{x in R^n : sum ((x - center)_i / semi_axes_i)^2 <= 1}, semi_axes (*batch, n) > 0.

    P(x) = center + a^2 d / (a^2 + t) with d = x - center and the one t >= 0 for which it lies on the boundary (Newton's method on
    1 / |.|, which is nearly straight). A turned ellipsoid is Implicit(n, ineq=lambda p: (A @ (p - c)).square().sum() - 1).
    """

    reach = math.inf
    semi_axes: Tensor
    center: Tensor

    def __init__(self, semi_axes: Any, center: Numbers = None):
        super().__init__()
        a = self._constant("semi_axes", semi_axes, dims=1)
        if a.dim() < 1:
            raise ValueError(
                f"Ellipsoid asked for semi_axes of shape (*batch, n), got a number. Write Ball(n, radius={semi_axes})."
            )
        self._require(a > 0, lambda: f"Ellipsoid asked for semi_axes > 0, got {a.tolist()}.")
        n = a.shape[-1]
        self.shape, self.centered = (n,), center is None
        c = self._constant("center", torch.zeros(n, dtype=torch.float64) if center is None else center, dims=1)
        if c.shape[-1:] != (n,):
            raise ValueError(f"Ellipsoid asked for a center of shape (*batch, {n}), got {tuple(c.shape)}.")

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Semi-axes and center in float64, and the rounding of the equation in x's dtype."""
        a, c = self._cast("semi_axes", x).double(), self._cast("center", x).double()
        return a, c, skin(x, self.shape[0]) * (1 + (c.abs() / a).amax(-1, keepdim=True))

    def _project(self, x: Tensor) -> Tensor:
        a, c, tol = self._parts(x)
        d = x.double() - c
        d = torch.where(torch.isfinite(d), d, 0.0)
        q = a * (1 - LANDING * tol)
        outside = norm(d.detach() / a.detach())[..., None] > 1 - tol
        away = torch.where(outside, d, 2 * q)  # rows inside take no part
        t = boundary_level(q.detach(), away.detach())
        for _ in range(2):  # two more steps, with derivatives: the first makes t exact to first order, the second to third
            r = q.square() + t
            w = q * away / r
            t = t + (w.square().sum(-1, keepdim=True) - 1) / (2 * w.square() / r).sum(-1, keepdim=True)
        y = c + q.square() * away / (q.square() + t)
        return torch.where(outside, y, x.double()).to(x.dtype)

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, c, _ = self._parts(x)
        return x[..., :0].expand(*torch.broadcast_shapes(x.shape, a.shape)[:-1], 0), (norm((x.double() - c) / a) - 1)[
            ..., None
        ].to(x.dtype)

    def _scale(self, x: Tensor) -> Tensor | float:
        a, c, _ = self._parts(x)
        return (1 + (c.abs() / a).amax(-1)).to(x.dtype)

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        a, c, tol = self._parts(x)
        w = (x.double() - c) / a
        size = norm(w)[..., None]
        n = w / a
        n = n / norm(n).clamp(min=1e-300)[..., None]
        outward = (n * v.double()).sum(-1, keepdim=True).clamp(min=0)
        return torch.where(size >= 1 - ACTIVE * tol, v.double() - outward * n, v.double()).to(x.dtype)

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Uniform."""
        n = self.shape[0]
        u = torch.randn(*batch, n, generator=generator, dtype=dtype, device=device)
        share = torch.rand(*batch, 1, generator=generator, dtype=dtype, device=device) ** (1 / n)
        a, c, _ = self._parts(u)
        return self._project((c + a * (share * u / norm(u).clamp(min=1e-30)[..., None]).double()).to(dtype))

    def extra_repr(self) -> str:
        return sized(self.semi_axes) + ("" if self.centered else f", center={sized(self.center)}")


def boundary_level(q: Tensor, d: Tensor) -> Tensor:
    """t >= 0 with |q d / (q^2 + t)| = 1, (*batch, 1), where |d / q| > 1; 0 elsewhere. Without derivative.

    1 / |q d / (q^2 + t)| increases and bends little: Newton's method from 0 takes about six steps, also for far d.
    """
    scale = d.abs().amax(-1, keepdim=True).clamp(min=1e-300)
    e = d / scale  # |q e / (q^2 + t)| = 1 / scale
    t = torch.zeros_like(scale)
    for _ in range(STEPS):
        w = q * e / (q.square() + t)
        f = norm(w)[..., None].clamp(min=1e-300)
        slope = (w.square() / (q.square() + t)).sum(-1, keepdim=True) / f.pow(3)  # of 1 / f
        step = (scale - 1 / f) / slope.clamp(min=1e-300)
        t = (t + torch.where(torch.isfinite(step), step, 0.0)).clamp(min=0)
    return t
