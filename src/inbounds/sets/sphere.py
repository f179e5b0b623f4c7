"""Spheres."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import Manifold, Numbers, check_size, direction, shown, working_dtype
from ..kernels.derivative import looking
from ..kernels.stumpff import stumpff
from ..kernels.vectors import norm, unit


class Sphere(Manifold):
    """{x in R^n : |x| = radius}. P(x) = radius x/|x|; at 0, where every point is nearest, radius e_1."""

    radius: Tensor
    spreads_nan = True

    def __init__(self, n: int, radius: Numbers = 1.0):
        super().__init__()
        check_size("Sphere", n)
        if n < 2:
            raise ValueError(f"Sphere asked for an ambient size n >= 2, got {n}. The unit circle is Sphere(2).")
        self.shape, self.dim, self.plain = (n,), n - 1, isinstance(radius, int | float) and radius == 1
        self._constant("radius", radius, dims=0)
        self._validate()

    def _validate(self) -> None:
        r = self.radius
        self._require(r > 0, lambda: f"Sphere asked for radius > 0, got {r.tolist()}. A point is Affine(torch.eye(n), point).")

    @property
    def reach(self) -> float:
        """The smallest radius."""
        return float(self.radius.min())

    def _project(self, x: Tensor) -> Tensor:
        return unit(x) if self.plain else unit(x) * self._cast("radius", x)[..., None]

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(|x|^2 / radius - radius) / 2: zero on M, of slope 1 across it."""
        r = self._cast("radius", x)
        return 0.5 * ((x * x).sum(-1) / r - r)[..., None], x[..., :0]

    def _violation(self, x: Tensor) -> Tensor:
        return (norm(x) - self._cast("radius", x)).abs()

    def _scale(self, x: Tensor) -> Tensor | float:
        return self._cast("radius", x)

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        if self.plain:
            return v - x * (x * v).sum(-1, keepdim=True)
        u = x / self._cast("radius", x)[..., None]
        return v - u * (u * v).sum(-1, keepdim=True)

    def _retract(self, x: Tensor, v: Tensor) -> Tensor:
        """Where no derivative is asked for and no square over- or underflows, (x + v)/|x + v| as it stands."""
        y = x + v
        if not self.plain or not y.numel() or not looking(y) or not y.is_cpu or (torch.is_grad_enabled() and y.requires_grad):
            return self.project(y)
        length = torch.linalg.vector_norm(y, dim=-1, keepdim=True)
        low, high = length.aminmax()
        return y / length if 1e-15 < low.item() and high.item() < 1e15 else self.project(y)

    def _uniqueness_margin(self, x: Tensor) -> Tensor:
        return norm(x)

    def _exp(self, x: Tensor, v: Tensor) -> Tensor:
        r = self._cast("radius", x)[..., None]
        u, length = direction(v)
        turn = 2 * math.pi * r
        v = torch.where(length > turn, u * torch.remainder(length, turn), v)
        c0, c1 = stumpff(((v / r) ** 2).sum(-1, keepdim=True), 1)
        return c0 * x + c1 * v

    def _log(self, x: Tensor, y: Tensor) -> Tensor:
        r = self._cast("radius", x)[..., None]
        d = y - x
        w = self._tangent(x, d)
        h = ((d / r) ** 2).sum(-1, keepdim=True) / 4  # sin^2(angle / 2)
        far = h > 0.5
        near = w * _angle_over_sine(torch.where(far, 0.0, h))
        u, length = direction(w)
        lost = length <= 32 * torch.finfo(x.dtype).eps * r  # antipodes: every direction will do
        u = torch.where(lost, self._some_tangent(x), u)
        return torch.where(far, u * self._geodesic_distance(x, y)[..., None], near)

    def _some_tangent(self, x: Tensor) -> Tensor:
        axis = torch.zeros_like(x).scatter(-1, x.abs().argmin(-1, keepdim=True), 1.0)
        return unit(self._tangent(x, axis))

    def _geodesic_distance(self, x: Tensor, y: Tensor) -> Tensor:
        return 2 * self._cast("radius", x) * torch.atan2(norm(y - x), norm(y + x))

    def _transport(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """The part of v along the geodesic turns with it, the rest stays: v - <w, v> (c1 x/r + c2 w), w = log(x, y)/r."""
        r = self._cast("radius", x)[..., None]
        w = self._log(x, y) / r
        _, c1, c2 = stumpff((w * w).sum(-1, keepdim=True), 2)
        return v - (w * v).sum(-1, keepdim=True) * (c1 * x / r + c2 * w)

    def _log_volume(self, x: Tensor, v: Tensor) -> Tensor:
        """(dim - 1) log |sin t / t| at t = |v| / radius."""
        t2 = ((v / self._cast("radius", x)[..., None]) ** 2).sum(-1)
        return (self.dim - 1) * stumpff(t2, 1)[1].abs().clamp(min=torch.finfo(v.dtype).tiny).log()

    def origin(self, like: Tensor) -> Tensor:
        like = torch.zeros(self.shape, dtype=working_dtype(like), device=like.device)
        return self._project(like)

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return self._project(torch.randn(*batch, *self.shape, generator=generator, dtype=dtype, device=device))

    def extra_repr(self) -> str:
        return f"{self.shape[0]}" + shown("radius", self.radius, 1.0)


def _angle_over_sine(h: Tensor) -> Tensor:
    """t / sin t at h = sin^2(t/2) <= 1/2: asin(sqrt h) / sqrt(h (1 - h))."""
    small = h < 0.01
    z, series, term = torch.where(small, h, 0.0), 1.0, 1.0
    for k in range(1, 9):
        term = term * z * ((2 * k - 1) / (2 * k))
        series = series + term / (2 * k + 1)
    root = torch.where(small, 0.25, h).sqrt()
    return torch.where(small, series, torch.asin(root) / root) / (1 - h).sqrt()
