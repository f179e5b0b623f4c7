"""`BoxWorld`: a box minus discs, or minus balls in any dimension."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import product
from typing import Any, Self

import torch
from torch import Tensor

from ...core import ConstraintSet
from ...kernels.vectors import norm
from ...sets import Box, BoxMinusBalls
from .base import World, need_finite, obstacles
from .vectors import cross, dot, turn, unit_or_zero


class BoxWorld(World):
    """The box low <= x <= high minus the balls |x - center| < radius."""

    def __init__(self, low: Any, high: Any, centers: Any = (), radii: Any = ()):
        low, high = (torch.as_tensor(t, dtype=torch.float64) for t in (low, high))
        if low.dim() != 1 or low.shape != high.shape or not len(low):
            raise ValueError(f"BoxWorld asked for corners of n numbers, got {tuple(low.shape)} and {tuple(high.shape)}.")
        self.low, self.high = low, high
        self.centers, self.sizes = obstacles(self, centers, radii, len(low), "radii")
        need_finite("BoxWorld", low=low, high=high, centers=self.centers, radii=self.sizes)
        if not bool((low < high).all()):
            raise ValueError(f"BoxWorld asked for low < high, got low={low.tolist()}, high={high.tolist()}.")
        if bool((self.sizes < 0).any()):
            raise ValueError(f"BoxWorld asked for radii >= 0 (0 = absent), got {self.sizes.tolist()}.")
        if self.dim == 2:
            _ = self.M  # discs that leave nothing free are told where they are given

    @cached_property
    def projects(self) -> bool:
        try:
            return self.M is not None
        except ValueError:  # in higher dimensions, where balls meet each other or the walls
            return False

    def sample(self, *batch: int, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float64) -> Tensor:
        """Uniform points of the free space, by rejection where the nearest free point is not known: (*worlds, *batch, n)."""
        if self.projects:
            return super().sample(*batch, generator=generator, dtype=dtype)
        shape = (*self.centers.shape[:-2], *batch, self.dim)
        x = torch.full(shape, math.nan, dtype=dtype)
        for _ in range(1000):
            bad = ~(self.segment_clearance(x, x) >= 0)
            if not bool(bad.any()):
                return x
            drawn = self.low + (self.high - self.low) * torch.rand(shape, generator=generator, dtype=torch.float64)
            x = torch.where(bad[..., None], drawn.to(dtype), x)
        raise ValueError(
            "BoxWorld asked for a free space that a thousand random points find, the balls cover the box. Shrink them."
        )

    @cached_property
    def M(self) -> ConstraintSet:
        if not self.centers.shape[-2]:
            return Box(self.low, self.high)
        return BoxMinusBalls(self.low, self.high, self.centers, self.sizes)

    def among(self, centers: Tensor, sizes: Tensor) -> Self:
        world = object.__new__(type(self))
        world.low, world.high, world.centers, world.sizes = self.low, self.high, centers, sizes
        return world

    @property
    def bounds(self) -> tuple[Tensor, Tensor]:
        return self.low, self.high

    @property
    def wrapped(self) -> Tensor:
        return self.sizes > 0

    @property
    def scale(self) -> float:
        return float((self.high - self.low).max())

    @property
    def unit(self) -> float:
        return self.scale / 4  # the sides of random worlds are 4 and 3

    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        return norm(y - x)

    def direction(self, x: Tensor, y: Tensor) -> Tensor:
        return unit_or_zero(y - x)

    def left(self, x: Tensor, v: Tensor) -> Tensor:
        return turn(v)

    def move(self, x: Tensor, v: Tensor) -> Tensor:
        return x + v

    def reach_of_segment(self, a: Tensor, b: Tensor) -> Tensor:
        c = self.per_query(self.centers, a)
        d, w = (b - a)[..., None, :], c - a[..., None, :]
        along = (dot(w, d) / dot(d, d).clamp(min=1e-300)).clamp(0, 1)
        off = [w[..., k] - along * d[..., k] for k in range(self.dim)]
        return torch.hypot(*off) if self.dim == 2 else norm(torch.stack(off, -1))

    def to_walls(self, x: Tensor) -> Tensor:
        return torch.cat([x - self.low, self.high - x], -1)

    def walls(self, x: Tensor) -> Tensor:
        return self.to_walls(x).amin(-1)

    def for_chords(self, step: float | Tensor) -> Self:
        half = 0.5 * torch.as_tensor(step, dtype=torch.float64)
        half = half[..., None] if half.dim() else half
        radii = torch.where(self.sizes > 0, torch.hypot(self.sizes, half), 0.0)
        return self.among(self.centers, radii)

    def for_robot(self, radius: float) -> Self:
        radii = torch.where(self.sizes > 0, self.sizes + radius, 0.0)
        return type(self)(self.low + radius, self.high - radius, self.centers, radii)

    @property
    def corners(self) -> Tensor:
        return torch.stack([torch.stack(c) for c in product(*zip(self.low, self.high, strict=True))])

    # --- rims: circles in the plane ----------------------------------------------------------------------
    @property
    def is_surface(self) -> bool:
        return self.dim == 2

    def tangents(self, ci: Tensor, ri: Tensor, si: Tensor, cj: Tensor, rj: Tensor, sj: Tensor) -> tuple[Tensor, ...]:
        D = cj - ci
        k = sj * rj - si * ri
        L2 = D.square().sum(-1)
        root = (L2 - k.square()).clamp(min=0).sqrt()
        safe = L2.clamp(min=1e-300)[..., None]
        normal = (k[..., None] * D + root[..., None] * turn(D)) / safe  # to the left of the direction
        direction = -turn(normal)
        return (
            ci - (si * ri)[..., None] * normal,
            cj - (sj * rj)[..., None] * normal,
            direction,
            root,
            L2 >= k.square() - 1e-12 * safe[..., 0],
        )

    def angle(self, c: Tensor, p: Tensor) -> Tensor:
        d = p - c
        return torch.atan2(d[..., 1], d[..., 0])

    def rim_point(self, c: Tensor, r: Tensor, angle: Tensor) -> Tensor:
        return c + r[..., None] * torch.stack([angle.cos(), angle.sin()], -1)

    def rim_speed(self, r: Tensor) -> Tensor:
        return r

    def outer_corner(self, r: Tensor, half: Tensor) -> Tensor:
        return r / half.cos()

    def feet(self, c: Tensor, r: Tensor) -> Tensor:
        low, high = (torch.diag_embed(bound - c) for bound in (self.low, self.high))
        over = torch.cat([-torch.eye(2, dtype=c.dtype), torch.eye(2, dtype=c.dtype)])
        return c[..., None, :] + torch.cat([low, high], -2) + r[..., None, None] * over

    def beside(self, a: Tensor, p: Tensor, q: Tensor) -> Tensor:
        return cross(unit_or_zero(q - p), a - p)

    def between(self, a: Tensor, b: Tensor, sa: Tensor, sb: Tensor, p: Tensor, q: Tensor) -> Tensor:
        t = sa / torch.where(sa == sb, 1.0, sa - sb)
        along = dot(a + t[..., None] * (b - a) - p, unit_or_zero(q - p))
        return (along > 0) & (along < norm(q - p))

    def blocked(self, gap: float = 0.0) -> tuple[Tensor, Tensor]:
        c, r = self.centers, self.sizes
        D = c[..., None, :, :] - c[..., :, None, :]
        L = norm(D)
        ri, rk = r[..., :, None], r[..., None, :]
        width = torch.acos(((ri.square() + L.square() - rk.square()) / (2 * ri * L).clamp(min=1e-300)).clamp(-1, 1))
        width = torch.where((L < ri + rk + gap) & (rk > 0), width, -1.0)
        width = torch.where((L <= rk - ri) & (rk > 0), math.pi, width)
        width = torch.where(L <= ri - rk, -1.0, width)
        own = torch.eye(r.shape[-1], dtype=torch.bool)
        width = torch.where(own, -1.0, width)
        gaps = self.to_walls(c)  # x low, y low, x high, y high
        walls = torch.where(gaps < r[..., None] + gap, torch.acos((gaps / r[..., None].clamp(min=1e-300)).clamp(-1, 1)), -1.0)
        towards = torch.tensor([math.pi, -math.pi / 2, 0.0, math.pi / 2], dtype=c.dtype).expand(walls.shape)
        return torch.cat([torch.atan2(D[..., 1], D[..., 0]), towards], -1), torch.cat([width, walls], -1)

    def to_json(self) -> dict[str, Any]:
        discs = torch.cat([self.centers, self.sizes[..., None]], -1)
        return {"box": [self.low.tolist(), self.high.tolist()], "discs": discs.tolist()}
