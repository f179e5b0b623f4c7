"""Bounds on every coordinate, kept as they are given also in float32."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import ConstraintSet, Numbers, joint_shape, rounded, sized


class Box(ConstraintSet):
    """{x in R^n : low <= x <= high}, bounds of shape (*batch, n), infinite ones allowed. Clamping is exact: no skin.

    Bounds that x's dtype cannot hold are rounded inwards, so that float32 results keep the bounds as they were given, also
    when re-checked in float64. Where nothing of x's dtype lies between low and high, both are rounded to nearest.
    """

    reach = math.inf
    low: Tensor
    high: Tensor

    def __init__(self, low: Numbers, high: Numbers):
        super().__init__()
        a, b = self._constant("low", low, dims=1, finite=False), self._constant("high", high, dims=1, finite=False)
        if a.dim() and b.dim() and a.shape[-1] != b.shape[-1]:
            raise ValueError(f"Box asked for low and high of one length, got {tuple(a.shape)} and {tuple(b.shape)}.")
        n = joint_shape(a.shape, b.shape)
        if not n:
            raise ValueError("Box asked for bounds of shape (*batch, n), got two numbers. Write Box([0.0] * n, [1.0] * n).")
        self.shape = (n[-1],)
        self._validate()

    def _validate(self) -> None:
        a, b = self.low, self.high

        def got() -> str:
            return f"got low={a.tolist()}, high={b.tolist()}"

        self._require((a < math.inf) & (b > -math.inf), lambda: f"Box asked for low < inf and high > -inf, {got()}.")
        self._require(a <= b, lambda: f"Box asked for low <= high, {got()}. Swap the bounds where they cross.")

    def _bounds(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return bounds_inwards(self, x)

    def _project(self, x: Tensor) -> Tensor:
        low, high = self._bounds(x)
        return torch.clamp(x, low, high)

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        low, high = self._bounds(x)
        return x[..., :0], torch.cat([low - x, x - high], -1)

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        return not_outwards(x, v, *self._bounds(x))

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Uniform between finite bounds; exponential from a single one; normal where there is none."""
        like = torch.empty(0, dtype=dtype, device=device)
        low, high = self._bounds(like)
        shape = (*batch, *self.shape)
        u = torch.rand(shape, generator=generator, dtype=dtype, device=device)
        tail = torch.randn(shape, generator=generator, dtype=dtype, device=device)
        below, above = torch.isfinite(low), torch.isfinite(high)
        a, b = torch.where(below, low, 0.0), torch.where(above, high, 0.0)
        half = torch.where(below, a + tail.abs(), torch.where(above, b - tail.abs(), tail))
        return self._project(torch.where(below & above, a + u * (b - a), half))

    def extra_repr(self) -> str:
        return f"{sized(self.low)}, {sized(self.high)}"


def bounds_inwards(M: ConstraintSet, x: Tensor) -> tuple[Tensor, Tensor]:
    """The parameters low and high of M in x's dtype, rounded inwards; to nearest where that would make them cross."""

    # a Module's attribute is a Tensor or a Module to a type checker
    a, b = (getattr(M, name) for name in ("low", "high"))

    def compute() -> tuple[Tensor, Tensor]:
        low, high = rounded(a, x.dtype, 1), rounded(b, x.dtype, -1)
        crossed = low > high
        return torch.where(crossed, a.to(x.dtype), low), torch.where(crossed, b.to(x.dtype), high)

    return M._derived("bounds", x, ("low", "high"), compute)


def not_outwards(x: Tensor, v: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """v on the tangent cone of a box at x: without the parts that point out through a wall."""
    v = torch.where(x <= low, v.clamp(min=0), v)
    return torch.where(x >= high, v.clamp(max=0), v)
