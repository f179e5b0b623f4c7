"""The ways that are open at a point: to the tangents of every obstacle, and on along its rim; and what a network sees of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .worlds import TURN, World

STEP = 0.2  # units: the longest chord along a rim; half and double change nothing in benchmarks/planning_constants.py
TINY = 1e-9  # units: a point so near to a rim is on it
SAME = 1e-6  # radians: rim points so near to each other are one, and rounding does not decide which comes first
CHORD = 0.995  # of the angle that the longest chord spans: it then clears the true rim by s^2 / (800 R), not by rounding
OWN, OTHER = 13, 7  # numbers that describe a way, and every obstacle as seen from it


@dataclass
class Ways:
    """What can be done at x to reach y: go straight to where a tangent touches obstacle i, or on along its rim, side 1 or -1.

    Everything (rows, m, 2, ...): one world per row.
    """

    next: Tensor  # the point that the move ends at
    there: Tensor  # x is on the rim already
    open: Tensor  # the move is free
    own: Tensor  # features of the way
    others: Tensor  # (rows, m, 2, m, features) of every obstacle as seen from it

    @classmethod
    def at(cls, true: World, inner: World, x: Tensor, y: Tensor, step: Tensor, exits: Tensor, gaps: Tensor) -> Ways:
        """`inner` is the world inflated for steps so long, (rows,); exits(inner): rims are not followed past one; gaps(true)."""
        w, n, unit = inner, x.shape[-1], inner.unit
        shape = (*w.sizes.shape, 2)
        c, r = w.centers[:, :, None].expand(*shape, n), w.sizes[:, :, None].expand(shape)
        side = torch.tensor([1.0, -1.0], dtype=x.dtype).expand(shape)
        a, b, zero = x[:, None, None].expand(*shape, n), y[:, None, None].expand(*shape, n), torch.zeros_like(r)
        angle, speed = w.angle(c, a), w.rim_speed(r).clamp(min=1e-12 * unit)
        _, touch, _, length, real = w.tangents(a, zero, side, c, r, side)
        at_rim = w.distance(a, c) <= r + TINY * unit
        touch = torch.where(at_rim[..., None], w.rim_point(c, r, angle), touch)
        length = torch.where(at_rim, w.distance(a, touch), length)
        there = length <= TINY * unit
        leave, _, _, back, _ = w.tangents(c, r, side, b, zero, side)
        half = unit * torch.sin(0.5 * step / unit)[:, None, None]
        chord = 2 * CHORD * torch.asin((half / speed).clamp(max=1))  # above 1 only for absent obstacles, which are not open
        ends = torch.cat([exits, w.angle(c, leave)[..., None]], -1)
        until = (side[..., None] * (ends - angle[..., None])) % TURN
        chord = torch.minimum(chord, torch.where(until > SAME, until, TURN).amin(-1))
        following = torch.where(there[..., None], w.rim_point(c, r, angle + side * chord), touch)
        opened = w.wrapped[:, :, None] & (real | at_rim) & true.sees(a, following)
        # alone in the world, obstacle i would make the way this long
        turn = (side * (w.angle(c, leave) - w.angle(c, touch))) % TURN
        turn = torch.where(turn > TURN - SAME, 0.0, turn)
        straight = w.distance(x, y)[:, None, None].expand(shape)
        frame = Frame(w, x, y)
        here = frame.of(touch)
        lengths = [here[..., 0], side * here[..., 1], length, r, back, length + turn * speed + back - straight, straight]
        own = [t / unit for t in [*lengths, w.distance(touch, b)]]
        own.insert(4, turn)
        onwards = [(p, true.reach_of_segment(p, b)) for p in (touch, leave)]
        own += [true.clearance_from(reach, p, b) >= 0 for p, reach in onwards] + [there, opened]
        seen = others(true, frame, side, [reach for _, reach in onwards], gaps)
        return cls(following, there, opened, torch.stack([t.float() for t in own], -1), seen)


def exits(inner: World) -> Tensor:
    """Angles at which tangents to others leave rim i with obstacle i on side s: (*worlds, m, 2, 2m), NaN where there is none."""
    c, r = inner.centers, inner.sizes
    m, n = c.shape[-2:]
    shape = (*c.shape[:-2], m, 2, m, 2)
    side = torch.tensor([1.0, -1.0], dtype=c.dtype)
    ci, cj = c[..., :, None, None, None, :].expand(*shape, n), c[..., None, None, :, None, :].expand(*shape, n)
    ri, rj = r[..., :, None, None, None].expand(shape), r[..., None, None, :, None].expand(shape)
    a, _, _, _, real = inner.tangents(ci, ri, side[:, None, None].expand(shape), cj, rj, side.expand(shape))
    present = inner.wrapped[..., :, None, None, None] & inner.wrapped[..., None, None, :, None]
    own = torch.eye(m, dtype=torch.bool)[:, None, :, None]
    return torch.where(real & present & ~own, inner.angle(ci, a), math.nan).flatten(-2)


class Frame:
    """Coordinates as seen from x: along the straight way to y, and to its left."""

    def __init__(self, world: World, x: Tensor, y: Tensor):
        self.world, self.x = world, x
        self.e1 = world.direction(x, y)
        self.e2 = world.left(x, self.e1)

    def of(self, p: Tensor) -> Tensor:
        """The coordinates of p: (rows, ..., n) -> (rows, ..., 2)."""
        extra = (slice(None), *(None,) * (p.dim() - 2))
        x = self.x[extra].expand(p.shape)
        v = self.world.direction(x, p) * self.world.distance(x, p)[..., None]
        return torch.stack([(v * self.e1[extra]).sum(-1), (v * self.e2[extra]).sum(-1)], -1)


def gaps(true: World) -> Tensor:
    """How far apart obstacles are, and in a last row how far from the walls: (rows, m + 1, m)."""
    c, m = true.centers, true.sizes.shape[-1]
    apart = true.distance(c[:, :, None].expand(-1, m, m, -1), c[:, None].expand(-1, m, m, -1))
    walls = (true.walls(c) - true.sizes).clamp(max=4 * true.unit)  # as far as a box is wide
    return torch.cat([apart - true.sizes[:, :, None] - true.sizes[:, None], walls[:, None]], 1)


def others(true: World, frame: Frame, side: Tensor, reach: list[Tensor], gaps: Tensor) -> Tensor:
    """Where every obstacle is, how large, how near to the straight ways on to y (their reach), to obstacle i and to the walls."""
    shape = (*side.shape, true.sizes.shape[-1])
    size = true.sizes[:, None, None]
    seen = frame.of(true.centers)[:, None, None]  # (rows, 1, 1, m, 2)
    gap, walls = gaps[:, :-1, None], gaps[:, -1:, None]
    columns = [seen[..., 0], side[..., None] * seen[..., 1], size, *(t - size for t in reach), gap, walls]
    return torch.stack([(t / true.unit).expand(shape).float() for t in columns], -1)
