"""Worlds to plan in: a box minus discs (balls), a sphere minus caps. Distances, directions, exact clearance, inflation."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path as File
from typing import Any

import torch
from torch import Tensor

from ..core import ConstraintSet
from ..kernels.vectors import norm, unit
from ..sets import Box, BoxMinusBalls, Sphere, SphereMinusCaps

TURN = 2 * math.pi
OPPOSITE = 1e-9  # so near to -x the great circle from x is not determined


class World(ABC):
    """A free space M with round obstacles: centers (*worlds, m, n), sizes (*worlds, m); size 0 = absent.

    One world or a batch of them: points have shape (*worlds, *queries, n), a world's own numbers broadcast over the queries.
    `wrapped` obstacles are geodesically convex: shortest paths may follow their rims.
    """

    centers: Tensor
    sizes: Tensor

    @cached_property
    @abstractmethod
    def M(self) -> ConstraintSet:
        """The free space."""

    @abstractmethod
    def __getitem__(self, rows) -> World:
        """Some of a batch of worlds."""

    @abstractmethod
    def among(self, centers: Tensor, sizes: Tensor) -> World:
        """The same bounds with other obstacles, which are not checked."""

    @property
    def dim(self) -> int:
        return self.centers.shape[-1]

    # --- geometry ----------------------------------------------------------------------------------------
    @abstractmethod
    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        """Length of the shortest way without obstacles: (*batch,)."""

    @abstractmethod
    def direction(self, x: Tensor, y: Tensor) -> Tensor:
        """The unit vector in which that way leaves x; 0 if x = y, or if y is opposite."""

    def opposite(self, x: Tensor, y: Tensor) -> Tensor:
        """Whether many ways are shortest, so that none is the straight one: (*batch,)."""
        return torch.zeros_like(x[..., 0], dtype=torch.bool)

    def halfway(self, x: Tensor) -> Tensor:
        """The middle of a way to the point opposite x, the clearest: (*batch, n)."""
        raise NotImplementedError(f"{type(self).__name__} has no opposite points.")

    def tangent(self, x: Tensor, v: Tensor) -> Tensor:
        """The part of v that is tangent at x."""
        return v

    @abstractmethod
    def left(self, x: Tensor, v: Tensor) -> Tensor:
        """v turned by a quarter to the left, tangent at x."""

    @abstractmethod
    def move(self, x: Tensor, v: Tensor) -> Tensor:
        """Where the straight way of velocity v ends after time 1; v is tangent at x."""

    @abstractmethod
    def reach_of_segment(self, a: Tensor, b: Tensor) -> Tensor:
        """Distance of each centre from the straight way from a to b: (*batch, m)."""

    def off(self, x: Tensor) -> Tensor:
        """How far points are from where obstacles are looked for: (*batch,)."""
        return torch.zeros_like(x[..., 0])

    @abstractmethod
    def to_walls(self, x: Tensor) -> Tensor:
        """Distance from each of the walls: (*batch, walls)."""

    @abstractmethod
    def walls(self, x: Tensor) -> Tensor:
        """Distance from what bounds the world: (*batch,), inf without bounds."""

    @property
    @abstractmethod
    def wrapped(self) -> Tensor:
        """(*worlds, m)"""

    @property
    @abstractmethod
    def scale(self) -> float: ...

    @property
    @abstractmethod
    def unit(self) -> float:
        """Default lengths are multiples of it: plans do not depend on whether one writes metres or millimetres."""

    @abstractmethod
    def inflate(self, step: float | Tensor) -> World:
        """Obstacles so much larger that a straight way of length <= step between two points outside of them misses the originals.

        A chord of length s of the circle of radius R comes as near as sqrt(R^2 - s^2/4) to its centre.
        """

    @abstractmethod
    def grown(self, margin: float) -> World:
        """Every obstacle and wall thicker by margin: where the centre of a robot of that radius may go."""

    def swollen(self, margin: float) -> World:
        """Every obstacle thicker by margin."""
        return self.among(self.centers, torch.where(self.sizes > 0, self.sizes + margin, 0.0))

    # --- rims, in the plane and on the sphere -------------------------------------------------------------
    @property
    @abstractmethod
    def is_surface(self) -> bool:
        """Whether obstacles have rims to follow."""

    def need_surface(self, what: str) -> None:
        if not self.is_surface:
            raise ValueError(f"{what} asked for the plane or the sphere, got a box of dimension {self.dim}. Use Roadmap(world).")

    @property
    def projects(self) -> bool:
        """Whether the nearest free point is known in closed form."""
        return True

    def need_projection(self, what: str) -> None:
        if not self.projects:
            raise ValueError(
                f"{what} asked for a world in which the nearest free point is known, got balls of dimension {self.dim} that "
                "touch, overlap or cut the box. Use Roadmap(world)."
            )

    def need_one(self, what: str) -> None:
        if self.centers.dim() > 2:
            worlds = "x".join(map(str, self.centers.shape[:-2]))
            raise ValueError(
                f"{what} asked for one world, got a batch of {worlds}. Take one of them, {what}(worlds[0], ...), or use Around."
            )

    @abstractmethod
    def tangents(self, ci: Tensor, ri: Tensor, si: Tensor, cj: Tensor, rj: Tensor, sj: Tensor) -> tuple[Tensor, ...]:
        """The straight way that leaves rim i, obstacle i on its left (s = 1) or right (-1), and meets rim j likewise.

        Both touching points, the direction at the first, the length, and whether there is one. A point is a rim of size 0.
        """

    @abstractmethod
    def angle(self, c: Tensor, p: Tensor) -> Tensor:
        """Of p around c, counterclockwise."""

    @abstractmethod
    def rim_point(self, c: Tensor, r: Tensor, angle: Tensor) -> Tensor: ...

    @abstractmethod
    def rim_speed(self, r: Tensor) -> Tensor:
        """Length of the rim per radian."""

    @abstractmethod
    def outer_corner(self, r: Tensor, half: Tensor) -> Tensor:
        """Distance from the centre at which the tangents to two points of the rim meet, which are 2 half apart."""

    @abstractmethod
    def blocked(self, gap: float = 0.0) -> tuple[Tensor, Tensor]:
        """Which part of rim i obstacle or wall k hides: middle and half width of the angle, (*worlds, m, k); -1: nothing.

        What is at most `gap` away from the rim touches it, and hides a point: half width 0.
        """

    @abstractmethod
    def feet(self, c: Tensor, r: Tensor) -> Tensor:
        """Points behind each wall, as far as r, on the shortest way from c to it: (*batch, walls, n)."""

    @abstractmethod
    def crosses(self, a: Tensor, b: Tensor, p: Tensor, q: Tensor) -> Tensor:
        """Whether the straight way from a to b goes from one side of the straight way p to q to the other, between p and q.

        An end that lies on p q, to 1e-12 of the world's size, is on neither side.
        """

    # --- everything else follows -------------------------------------------------------------------------
    def segment_clearance(self, a: Tensor, b: Tensor) -> Tensor:
        """Least distance of the straight way a to b from obstacles and walls, negative inside: (*batch,), in float64.

        -inf where there is no straight way.
        """
        a, b = a.double(), b.double()
        sizes = self._spread(self.sizes, a.dim() - self.centers.dim() + 1)
        to_rims = torch.where(sizes > 0, self.reach_of_segment(a, b) - sizes, math.inf)
        nearest = to_rims.amin(-1) if to_rims.shape[-1] else torch.full_like(a[..., 0], math.inf)
        clear = torch.minimum(nearest, torch.minimum(self.walls(a), self.walls(b)))
        return torch.where(self.opposite(a, b), -math.inf, clear)

    def clearance(self, path: Tensor) -> Tensor:
        """Of each segment of paths (*batch, k, n): (*batch, k - 1). Closed form, nothing is sampled."""
        return self.segment_clearance(path[..., :-1, :], path[..., 1:, :])

    def sees(self, a: Tensor, b: Tensor, tol: float = 0.0) -> Tensor:
        return self.segment_clearance(a, b) >= -tol

    def length(self, path: Tensor) -> Tensor:
        return self.distance(path[..., :-1, :], path[..., 1:, :]).sum(-1)

    def safe_steps(self, step: float, margin: float | None = None) -> Tensor:
        """(*worlds,): at most step, so small that inflation makes no obstacle larger by more than margin, 0.004 units.

        Passages wider than twice that stay open.
        """
        margin = 0.004 * self.unit if margin is None else margin
        smallest = torch.where(self.wrapped, self.sizes, math.inf)
        smallest = smallest.amin(-1) if smallest.shape[-1] else torch.full(self.sizes.shape[:-1], math.inf, dtype=torch.float64)
        return (2 * ((smallest + margin).square() - smallest.square()).sqrt()).nan_to_num(nan=step).clamp(max=step)

    def sample(self, *batch: int, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float64) -> Tensor:
        """Uniform points of the free space: (*worlds, *batch, n)."""
        worlds = self.centers.shape[:-2]
        x = self.M.sample(*batch, *worlds, generator=generator, dtype=dtype)
        return x.permute(*range(len(batch), len(batch) + len(worlds)), *range(len(batch)), x.dim() - 1)

    def _spread(self, t: Tensor, queries: int) -> Tensor:
        """(*worlds, m, ...) -> (*worlds, 1 per query dimension, m, ...)"""
        k = self.centers.dim() - 2
        return t.reshape(*t.shape[:k], *(1,) * max(queries, 0), *t.shape[k:])

    # --- files -------------------------------------------------------------------------------------------
    @abstractmethod
    def to_json(self) -> dict[str, Any]: ...

    def save(self, path: str | File) -> None:
        File(path).write_text(json.dumps(self.to_json(), indent=1) + "\n")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({json.dumps(self.to_json())})" if self.centers.dim() == 2 else f"{type(self).__name__}s"


class BoxWorld(World):
    """The box low <= x <= high minus the balls |x - center| < radius."""

    def __init__(self, low, high, centers=(), radii=(), *, eager_check: bool = True):
        low, high = (torch.as_tensor(t, dtype=torch.float64) for t in (low, high))
        if low.dim() != 1 or low.shape != high.shape or not len(low):
            raise ValueError(f"BoxWorld asked for corners of n numbers, got {tuple(low.shape)} and {tuple(high.shape)}.")
        self.low, self.high = low, high
        self.centers, self.sizes = _obstacles(self, centers, radii, len(low), "radii")
        if eager_check:
            _finite("BoxWorld", low=low, high=high, centers=self.centers, radii=self.sizes)
            if not bool((low < high).all()):
                raise ValueError(f"BoxWorld asked for low < high, got low={low.tolist()}, high={high.tolist()}.")
            if bool((self.sizes < 0).any()):
                raise ValueError(f"BoxWorld asked for radii >= 0 (0 = absent), got {self.sizes.tolist()}.")
            assert self.dim != 2 or self.M is not None  # bad numbers are told where they are given

    @cached_property
    def projects(self) -> bool:
        try:
            return self.M is not None
        except ValueError:  # in higher dimensions, where balls meet each other or the walls
            return False

    def sample(self, *batch, generator=None, dtype=torch.float64):
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
    def M(self):
        return (
            BoxMinusBalls(self.low, self.high, self.centers, self.sizes) if self.centers.shape[-2] else Box(self.low, self.high)
        )

    def __getitem__(self, rows):
        return self.among(self.centers[rows], self.sizes[rows])

    def among(self, centers, sizes):
        return BoxWorld(self.low, self.high, centers, sizes, eager_check=False)

    @property
    def wrapped(self) -> Tensor:
        return self.sizes > 0

    @property
    def scale(self) -> float:
        return float((self.high - self.low).max())

    @property
    def unit(self) -> float:
        return self.scale / 4  # the sides of random worlds are 4 and 3

    def distance(self, x, y):
        return norm(y - x)

    def direction(self, x, y):
        return unit_or_zero(y - x)

    def left(self, x, v):
        return turn(v)

    def move(self, x, v):
        return x + v

    def reach_of_segment(self, a, b):
        c = self._spread(self.centers, a.dim() - self.centers.dim() + 1)
        d, w = (b - a)[..., None, :], c - a[..., None, :]
        along = (dot(w, d) / dot(d, d).clamp(min=1e-300)).clamp(0, 1)
        off = [w[..., k] - along * d[..., k] for k in range(self.dim)]
        return torch.hypot(*off) if self.dim == 2 else norm(torch.stack(off, -1))

    def to_walls(self, x):
        return torch.cat([x - self.low, self.high - x], -1)

    def walls(self, x):
        return self.to_walls(x).amin(-1)

    def inflate(self, step):
        half = 0.5 * torch.as_tensor(step, dtype=torch.float64)
        half = half[..., None] if half.dim() else half
        radii = torch.where(self.sizes > 0, torch.hypot(self.sizes, half), 0.0)
        return self.among(self.centers, radii)

    def grown(self, margin):
        radii = torch.where(self.sizes > 0, self.sizes + margin, 0.0)
        return BoxWorld(self.low + margin, self.high - margin, self.centers, radii)

    # --- rims: circles in the plane ----------------------------------------------------------------------
    @property
    def is_surface(self) -> bool:
        return self.dim == 2

    def tangents(self, ci, ri, si, cj, rj, sj):
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

    def angle(self, c, p):
        d = p - c
        return torch.atan2(d[..., 1], d[..., 0])

    def rim_point(self, c, r, angle):
        return c + r[..., None] * torch.stack([angle.cos(), angle.sin()], -1)

    def rim_speed(self, r):
        return r

    def outer_corner(self, r, half):
        return r / half.cos()

    def feet(self, c, r):
        low, high = (torch.diag_embed(bound - c) for bound in (self.low, self.high))
        over = torch.cat([-torch.eye(2, dtype=c.dtype), torch.eye(2, dtype=c.dtype)])
        return c[..., None, :] + torch.cat([low, high], -2) + r[..., None, None] * over

    def crosses(self, a, b, p, q):
        d = unit_or_zero(q - p)
        sa, sb = cross(d, a - p), cross(d, b - p)
        least = 1e-12 * self.scale
        other = (torch.minimum(sa, sb) < -least) & (torch.maximum(sa, sb) > least)
        t = sa / torch.where(other, sa - sb, 1.0)
        along = dot(a + t[..., None] * (b - a) - p, d)
        return other & (along > 0) & (along < norm(q - p))

    def blocked(self, gap=0.0):
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

    def to_json(self):
        discs = torch.cat([self.centers, self.sizes[..., None]], -1)
        return {"box": [self.low.tolist(), self.high.tolist()], "discs": discs.tolist()}


class SphereWorld(World):
    """The unit sphere of R^3 minus the caps angle(x, center) < angle."""

    def __init__(self, centers=(), angles=(), *, eager_check: bool = True):
        self.centers, self.sizes = _obstacles(self, centers, angles, 3, "angles")
        if eager_check:
            _finite("SphereWorld", centers=self.centers, angles=self.sizes)
            if bool(((norm(self.centers) == 0) & (self.sizes > 0)).any()):
                raise ValueError("SphereWorld asked for nonzero centers, got (0, 0, 0). For an absent cap give it the angle 0.")
        near = (norm(self.centers)[..., None] - 1).abs() <= 4 * torch.finfo(self.centers.dtype).eps
        self.centers = torch.where(
            near, self.centers, unit(self.centers)
        )  # a world read from a file is the world that was written
        if eager_check:
            assert self.M is not None

    @cached_property
    def M(self):
        return SphereMinusCaps(self.centers, self.sizes) if self.centers.shape[-2] else Sphere(3)

    def __getitem__(self, rows):
        return self.among(self.centers[rows], self.sizes[rows])

    def among(self, centers, sizes):
        return SphereWorld(centers, sizes, eager_check=False)

    @property
    def wrapped(self) -> Tensor:
        return (self.sizes > 0) & (self.sizes < math.pi / 2)

    @property
    def scale(self) -> float:
        return 1.0

    @property
    def unit(self) -> float:
        return 1.0

    def distance(self, x, y):
        return 2 * torch.atan2(norm(y - x), norm(y + x))

    def direction(self, x, y):
        s = y + x
        nearly = s.square().sum(-1, keepdim=True) < 1e-6
        if not bool(nearly.any()):
            return unit_or_zero(self.tangent(x, y - x))
        v = self.tangent(x, torch.where(nearly, s, y - x))  # y - x is nearly -2x there, and little of it is tangent
        return torch.where(self.opposite(x, y)[..., None], 0.0, unit_or_zero(v))

    def opposite(self, x, y):
        s = y + x
        nearly = s.square().sum(-1) < 1e-6
        return nearly & (norm(self.tangent(x, s)) < OPPOSITE) if bool(nearly.any()) else nearly

    def halfway(self, x):
        c, r = (self._spread(t, x.dim() - self.centers.dim() + 1) for t in (self.centers, self.sizes))
        p = x[..., None, :].expand(*x.shape[:-1], r.shape[-1], 3)
        half = torch.asin((r.sin() / self.distance(p, c.expand(p.shape)).sin().clamp(min=1e-300)).clamp(max=1))
        middle = self.angle(p, c.expand(p.shape))
        ends = (torch.cat([torch.zeros_like(x[..., :1]), middle - half, middle + half], -1) % TURN).sort(-1).values
        between = 0.5 * (ends + torch.cat([ends[..., 1:], ends[..., :1] + TURN], -1))
        p = x[..., None, :].expand(*between.shape, 3)
        mid = self.rim_point(p, torch.full_like(between, math.pi / 2), between)
        best = torch.minimum(self.segment_clearance(p, mid), self.segment_clearance(mid, -p)).argmax(-1)
        return mid.gather(-2, best[..., None, None].expand(*best.shape, 1, 3))[..., 0, :]

    def tangent(self, x, v):
        return v - x * (x * v).sum(-1, keepdim=True)

    def left(self, x, v):
        return torch.linalg.cross(x, v)

    def move(self, x, v):
        a = norm(v)[..., None]
        return unit(a.cos() * x + torch.sinc(a / math.pi) * v)

    def reach_of_segment(self, a, b):
        c = self._spread(self.centers, a.dim() - self.centers.dim() + 1)
        d = self.direction(a, b)[..., None, :]
        a, far = a[..., None, :], self.distance(a, b)[..., None]
        along = torch.atan2((c * d).sum(-1), (c * a).sum(-1))  # where the great circle is nearest to c, from a
        along = torch.where(along < -0.5 * (TURN - far), along + TURN, along).clamp(min=0)
        along = torch.minimum(along, far)[..., None]
        foot = along.cos() * a + along.sin() * d
        return self.distance(foot, c.expand(foot.shape))

    def off(self, x):
        return (norm(x) - 1).abs()

    def to_walls(self, x):
        return x[..., :0]

    def walls(self, x):
        return torch.full_like(x[..., 0], math.inf)

    def inflate(self, step):
        half = 0.5 * torch.as_tensor(step, dtype=torch.float64)
        half = half[..., None] if half.dim() else half
        larger = torch.acos((self.sizes.cos() * torch.cos(half)).clamp(-1, 1))  # beyond pi/2 chords bend away: nothing to add
        angles = torch.where((self.sizes > 0) & (self.sizes < math.pi / 2), larger, self.sizes)
        return self.among(self.centers, angles)

    def grown(self, margin):
        return SphereWorld(self.centers, torch.where(self.sizes > 0, self.sizes + margin, 0.0))

    # --- rims: caps and great circles ----------------------------------------------------------------------
    @property
    def is_surface(self) -> bool:
        return True

    def tangents(self, ci, ri, si, cj, rj, sj):
        """The great circle with unit normal n to the left, n.c = s sin r for both."""
        g = (ci * cj).sum(-1)
        axis = torch.linalg.cross(ci, cj)
        sin2 = axis.square().sum(-1)
        safe = sin2.clamp(min=1e-300)
        hi, hj = si * ri.sin(), sj * rj.sin()
        base = ((hi - g * hj) / safe)[..., None] * ci + ((hj - g * hi) / safe)[..., None] * cj
        rest = 1 - base.square().sum(-1)
        side = (rest.clamp(min=0) / safe).sqrt()[..., None] * axis
        normal = unit(base + side)  # the one that goes the short way
        ti = unit(ci - hi[..., None] * normal)
        tj = unit(cj - hj[..., None] * normal)
        length = torch.atan2((normal * torch.linalg.cross(ti, tj)).sum(-1), (ti * tj).sum(-1))
        length = torch.where(length < -1e-9, length + TURN, length.clamp(min=0))
        return ti, tj, torch.linalg.cross(normal, ti), length, (rest >= -1e-12) & (sin2 > 1e-24) & (length <= math.pi)

    def _axes(self, c):
        """e1, e2 with e1 x e2 = c."""
        smallest = torch.zeros_like(c).scatter(-1, c.abs().argmin(-1, keepdim=True), 1.0)
        e1 = unit(smallest - c * (c * smallest).sum(-1, keepdim=True))
        return e1, torch.linalg.cross(c, e1)

    def angle(self, c, p):
        e1, e2 = self._axes(c)
        return torch.atan2((p * e2).sum(-1), (p * e1).sum(-1))

    def rim_point(self, c, r, angle):
        e1, e2 = self._axes(c)
        around = angle.cos()[..., None] * e1 + angle.sin()[..., None] * e2
        return r.cos()[..., None] * c + r.sin()[..., None] * around

    def rim_speed(self, r):
        return r.sin()

    def outer_corner(self, r, half):
        return torch.atan(r.tan() / half.cos())

    def feet(self, c, r):
        return c[..., None, :].expand(*c.shape[:-1], 0, 3)

    def crosses(self, a, b, p, q):
        n = unit_or_zero(torch.linalg.cross(*torch.broadcast_tensors(p, q)))
        sa, sb = dot(a, n), dot(b, n)
        other = (torch.minimum(sa, sb) < -1e-12) & (torch.maximum(sa, sb) > 1e-12)
        z, n = torch.broadcast_tensors(sb.abs()[..., None] * a + sa.abs()[..., None] * b, n)  # where a b meets the plane of p q
        p, q = p.expand(z.shape), q.expand(z.shape)
        return other & (dot(torch.linalg.cross(p, z), n) > 0) & (dot(torch.linalg.cross(z, q), n) > 0)

    def blocked(self, gap=0.0):
        c, r = self.centers, self.sizes
        m = r.shape[-1]
        ci, ck = c[..., :, None, :].expand(*c.shape[:-2], m, m, 3), c[..., None, :, :].expand(*c.shape[:-2], m, m, 3)
        L = self.distance(ci, ck)
        ri, rk = r[..., :, None], r[..., None, :]
        cosine = (rk.cos() - ri.cos() * L.cos()) / (ri.sin() * L.sin()).clamp(min=1e-300)
        width = torch.where((L < ri + rk + gap) & (rk > 0), torch.acos(cosine.clamp(-1, 1)), -1.0)
        width = torch.where((L <= rk - ri) & (rk > 0), math.pi, width)
        width = torch.where(L <= ri - rk, -1.0, width)
        width = torch.where(torch.eye(m, dtype=torch.bool), -1.0, width)
        return self.angle(ci, ck), width

    def to_json(self):
        return {"sphere": True, "caps": torch.cat([self.centers, self.sizes[..., None]], -1).tolist()}


def dot(u: Tensor, v: Tensor) -> Tensor:
    """u.v over the last axis, which is short: many times faster than a sum."""
    return sum((u[..., k] * v[..., k] for k in range(1, u.shape[-1])), u[..., 0] * v[..., 0])


def cross(u: Tensor, v: Tensor) -> Tensor:
    """Positive where v points to the left of u, in the plane."""
    return u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]


def turn(v: Tensor) -> Tensor:
    """By a quarter to the left, in the plane."""
    return torch.stack([-v[..., 1], v[..., 0]], -1)


def unit_or_zero(v: Tensor) -> Tensor:
    return v / norm(v)[..., None].clamp(min=1e-300)


def _obstacles(world: World, centers, sizes, n: int, name: str) -> tuple[Tensor, Tensor]:
    """(*worlds, m, n) and (*worlds, m)"""
    c, r = (torch.as_tensor(t, dtype=torch.float64) for t in (centers, sizes))
    c = c if c.shape != (0,) else c.new_zeros(0, n)
    if c.dim() < 2 or c.shape[-1] != n or r.shape != c.shape[:-1]:
        raise ValueError(
            f"{type(world).__name__} asked for centers (*worlds, m, {n}) and {name} (*worlds, m), "
            f"got {tuple(c.shape)} and {tuple(r.shape)}. One {name[:-1] if name == 'angles' else 'radius'} per centre."
        )
    return c, r


def _finite(what: str, **numbers: Tensor) -> None:
    for name, t in numbers.items():
        if not bool(torch.isfinite(t).all()):
            raise ValueError(f"{what} asked for finite numbers, got {name}={t.tolist()}.")


# --- files and names -----------------------------------------------------------------------------------------
NAMED: dict[str, dict[str, Any]] = {
    "rect": {"box": [[0, 0], [4, 3]], "discs": [[1, 1, 0.5], [2.2, 1.9, 0.55], [3.1, 0.9, 0.45]]},
    "rect-overlap": {"box": [[0, 0], [4, 3]], "discs": [[1.2, 1.9, 0.6], [1.7, 1.1, 0.55], [3, 0.45, 0.6]]},
    "sphere": {"sphere": True, "caps": [[1, 0, 0, 0.6]]},
}


def load_world(source: str | File | dict) -> World:
    """A named world (rect, rect-overlap, sphere), a JSON file, or what such a file holds.

    {"box": [[0, 0], [4, 3]], "discs": [[x, y, radius], ...]} or {"sphere": true, "caps": [[x, y, z, angle], ...]}.
    """
    if isinstance(source, dict):
        return _from_json(source, "the world")
    if str(source) in NAMED:
        return _from_json(NAMED[str(source)], str(source))
    file = File(source)
    if not file.is_file():
        raise FileNotFoundError(f"A world asked for {', '.join(NAMED)} or a JSON file, got {source}, which does not exist.")
    try:
        return _from_json(json.loads(file.read_text()), str(file))
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is not JSON: {error}.") from None


def _from_json(w: Any, name: str) -> World:
    example = '{"box": [[0, 0], [4, 3]], "discs": [[1, 1, 0.5]]} or {"sphere": true, "caps": [[1, 0, 0, 0.6]]}'
    if not isinstance(w, dict) or ("box" in w) == ("sphere" in w):
        raise ValueError(f"{name} asked for a world like {example}, got {json.dumps(w)[:80]}.")
    kind, key = ("box", "discs") if "box" in w else ("sphere", "caps")
    unknown = sorted(set(w) - {kind, key})
    if unknown:
        raise ValueError(f'{name}: a {kind} asked for "{kind}" and "{key}" only, got {", ".join(unknown)}. Write {example}.')
    if kind == "sphere" and w["sphere"] is not True:
        raise ValueError(f'{name}: asked for "sphere": true, got {json.dumps(w["sphere"])[:80]}. Write {example}.')
    try:
        rows = torch.tensor(w.get(key, []), dtype=torch.float64)
        box = torch.tensor(w["box"], dtype=torch.float64) if kind == "box" else torch.zeros(2, 3, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ValueError(f"{name}: {kind} and {key} asked for numbers within float64, as in {example}.") from None
    if box.dim() != 2 or len(box) != 2 or not box.numel():
        raise ValueError(f"{name}: box asked for [low, high], two corners like [[0, 0], [4, 3]], got {str(w['box'])[:80]}.")
    size = box.shape[1] + 1
    if rows.numel() and (rows.dim() != 2 or rows.shape[1] != size):
        raise ValueError(f"{name}: {key} asked for rows of {size} numbers, centre and size, got shape {tuple(rows.shape)}.")
    rows = rows.reshape(-1, size)
    try:
        parts = rows[:, :-1], rows[:, -1]
        return BoxWorld(box[0], box[1], *parts) if kind == "box" else SphereWorld(*parts)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
