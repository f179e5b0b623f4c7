"""`SphereWorld`: the unit sphere minus caps."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from ...core import ConstraintSet
from ...kernels.vectors import norm, unit
from ...sets import Sphere, SphereMinusCaps
from .base import World, need_finite, obstacles
from .vectors import TURN, dot, unit_or_zero

OPPOSITE = 1e-9  # to points so near to -x the great circle from x is not determined


class SphereWorld(World):
    """The unit sphere of R^3 minus the caps angle(x, center) < angle."""

    def __init__(self, centers: Any = (), angles: Any = ()):
        self.centers, self.sizes = obstacles(self, centers, angles, 3, "angles")
        need_finite("SphereWorld", centers=self.centers, angles=self.sizes)
        length = norm(self.centers)[..., None]
        if bool(((length[..., 0] == 0) & (self.sizes > 0)).any()):
            raise ValueError("SphereWorld asked for nonzero centers, got (0, 0, 0). For an absent cap give it the angle 0.")
        near = (length - 1).abs() <= 4 * torch.finfo(torch.float64).eps  # a world read from a file is the one that was written
        self.centers = torch.where(near, self.centers, unit(self.centers))
        _ = self.M  # caps that leave nothing free are told where they are given

    @cached_property
    def M(self) -> ConstraintSet:
        return SphereMinusCaps(self.centers, self.sizes) if self.centers.shape[-2] else Sphere(3)

    def among(self, centers: Tensor, sizes: Tensor) -> Self:
        world = object.__new__(type(self))
        world.centers, world.sizes = centers, sizes
        return world

    @property
    def bounds(self) -> tuple[Tensor, Tensor]:
        return -torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)

    @property
    def wrapped(self) -> Tensor:
        return (self.sizes > 0) & (self.sizes < math.pi / 2)

    @property
    def scale(self) -> float:
        return 1.0

    @property
    def unit(self) -> float:
        return 1.0

    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        return 2 * torch.atan2(norm(y - x), norm(y + x))

    def direction(self, x: Tensor, y: Tensor) -> Tensor:
        s = y + x
        nearly = s.square().sum(-1, keepdim=True) < 1e-6
        if not bool(nearly.any()):
            return unit_or_zero(self.tangent(x, y - x))
        v = self.tangent(x, torch.where(nearly, s, y - x))  # y - x is nearly -2x there, and little of it is tangent
        return torch.where(self.opposite(x, y)[..., None], 0.0, unit_or_zero(v))

    def opposite(self, x: Tensor, y: Tensor) -> Tensor:
        s = y + x
        nearly = s.square().sum(-1) < 1e-6
        return nearly & (norm(self.tangent(x, s)) < OPPOSITE) if bool(nearly.any()) else nearly

    def halfway(self, x: Tensor) -> Tensor:
        c, r = (self.per_query(t, x) for t in (self.centers, self.sizes))
        p = x[..., None, :].expand(*x.shape[:-1], r.shape[-1], 3)
        half = torch.asin((r.sin() / self.distance(p, c.expand(p.shape)).sin().clamp(min=1e-300)).clamp(max=1))
        middle = self.angle(p, c.expand(p.shape))
        ends = (torch.cat([torch.zeros_like(x[..., :1]), middle - half, middle + half], -1) % TURN).sort(-1).values
        between = 0.5 * (ends + torch.cat([ends[..., 1:], ends[..., :1] + TURN], -1))
        p = x[..., None, :].expand(*between.shape, 3)
        mid = self.rim_point(p, torch.full_like(between, math.pi / 2), between)
        best = torch.minimum(self.segment_clearance(p, mid), self.segment_clearance(mid, -p)).argmax(-1)
        return mid.gather(-2, best[..., None, None].expand(*best.shape, 1, 3))[..., 0, :]

    def tangent(self, x: Tensor, v: Tensor) -> Tensor:
        return v - x * (x * v).sum(-1, keepdim=True)

    def left(self, x: Tensor, v: Tensor) -> Tensor:
        return torch.linalg.cross(x, v)

    def move(self, x: Tensor, v: Tensor) -> Tensor:
        a = norm(v)[..., None]
        return unit(a.cos() * x + torch.sinc(a / math.pi) * v)

    def reach_of_segment(self, a: Tensor, b: Tensor) -> Tensor:
        c = self.per_query(self.centers, a)
        d = self.direction(a, b)[..., None, :]
        a, far = a[..., None, :], self.distance(a, b)[..., None]
        along = torch.atan2((c * d).sum(-1), (c * a).sum(-1))  # where the great circle is nearest to c, from a
        along = torch.where(along < -0.5 * (TURN - far), along + TURN, along).clamp(min=0)
        along = torch.minimum(along, far)[..., None]
        foot = along.cos() * a + along.sin() * d
        return self.distance(foot, c.expand(foot.shape))

    def off(self, x: Tensor) -> Tensor:
        return (norm(x) - 1).abs()

    def to_walls(self, x: Tensor) -> Tensor:
        return x[..., :0]

    def walls(self, x: Tensor) -> Tensor:
        return torch.full_like(x[..., 0], math.inf)

    def for_chords(self, step: float | Tensor) -> Self:
        half = 0.5 * torch.as_tensor(step, dtype=torch.float64)
        half = half[..., None] if half.dim() else half
        larger = torch.acos((self.sizes.cos() * torch.cos(half)).clamp(-1, 1))  # beyond pi/2 chords bend away: nothing to add
        angles = torch.where((self.sizes > 0) & (self.sizes < math.pi / 2), larger, self.sizes)
        return self.among(self.centers, angles)

    def for_robot(self, radius: float) -> Self:
        return type(self)(self.centers, torch.where(self.sizes > 0, self.sizes + radius, 0.0))

    @property
    def corners(self) -> Tensor:
        return self.centers.new_zeros(0, 3)

    # --- rims: caps and great circles ----------------------------------------------------------------------
    @property
    def is_surface(self) -> bool:
        return True

    def tangents(self, ci: Tensor, ri: Tensor, si: Tensor, cj: Tensor, rj: Tensor, sj: Tensor) -> tuple[Tensor, ...]:
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

    def _axes(self, c: Tensor) -> tuple[Tensor, Tensor]:
        """e1, e2 with e1 x e2 = c."""
        smallest = torch.zeros_like(c).scatter(-1, c.abs().argmin(-1, keepdim=True), 1.0)
        e1 = unit(smallest - c * (c * smallest).sum(-1, keepdim=True))
        return e1, torch.linalg.cross(c, e1)

    def angle(self, c: Tensor, p: Tensor) -> Tensor:
        e1, e2 = self._axes(c)
        return torch.atan2((p * e2).sum(-1), (p * e1).sum(-1))

    def rim_point(self, c: Tensor, r: Tensor, angle: Tensor) -> Tensor:
        e1, e2 = self._axes(c)
        around = angle.cos()[..., None] * e1 + angle.sin()[..., None] * e2
        return r.cos()[..., None] * c + r.sin()[..., None] * around

    def rim_speed(self, r: Tensor) -> Tensor:
        return r.sin()

    def outer_corner(self, r: Tensor, half: Tensor) -> Tensor:
        return torch.atan(r.tan() / half.cos())

    def feet(self, c: Tensor, r: Tensor) -> Tensor:
        return c[..., None, :].expand(*c.shape[:-1], 0, 3)

    def beside(self, a: Tensor, p: Tensor, q: Tensor) -> Tensor:
        return dot(a, unit_or_zero(torch.linalg.cross(*torch.broadcast_tensors(p, q))))

    def between(self, a: Tensor, b: Tensor, sa: Tensor, sb: Tensor, p: Tensor, q: Tensor) -> Tensor:
        n = unit_or_zero(torch.linalg.cross(*torch.broadcast_tensors(p, q)))
        z, n = torch.broadcast_tensors(sb.abs()[..., None] * a + sa.abs()[..., None] * b, n)  # where a b meets the plane of p q
        p, q = p.expand(z.shape), q.expand(z.shape)
        return (dot(torch.linalg.cross(p, z), n) > 0) & (dot(torch.linalg.cross(z, q), n) > 0)

    def blocked(self, gap: float = 0.0) -> tuple[Tensor, Tensor]:
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

    def to_json(self) -> dict[str, Any]:
        return {"sphere": True, "caps": torch.cat([self.centers, self.sizes[..., None]], -1).tolist()}
