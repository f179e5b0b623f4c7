"""The nearest point of a set with quadratic constraints, {c + J d + d^T C d / 2}: Newton's method on its conditions.

It needs no values of the functions that the constraints are models of.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .jets import lengths, mixed
from .linear import apply, length, stiff_step
from .newton import TINY
from .pivoting import chosen

INNER = 14  # steps of Newton's method on a quadratic model, at most: one is a fifth of a look at the functions; 10 left rows over
SOLVED = 1e-13  # error of the conditions of a model, relative to |x| + |y|, at which it counts as solved
STIFF = 1e6  # weight of the constraints in a step


@dataclass(frozen=True)
class Model:
    """The constraints around the points y, divided by their scale: values u, normals N, second derivatives C of some."""

    away: Tensor
    u: Tensor
    N: Tensor
    C: Tensor | None
    bent: slice
    inner: Tensor | None  # which are inequalities, (k,); None if none
    size: Tensor  # what lengths are relative to, (R,)

    def of(self, at: Tensor) -> Model:
        """Some of the rows."""
        away, u, N, size = (t.index_select(0, at) for t in (self.away, self.u, self.N, self.size))
        return Model(away, u, N, None if self.C is None else self.C.index_select(0, at), self.bent, self.inner, size)

    def at(self, d: Tensor) -> tuple[Tensor, Tensor]:
        """Values and normals at y + d."""
        u, N = self.u + apply(self.N, d), self.N
        if self.C is None:
            return u, N
        if self.C.shape[1] == u.shape[1]:
            turn = (self.C @ d[:, None, :, None])[..., 0]
            return u + 0.5 * apply(turn, d), N + turn
        turn = torch.zeros_like(N)
        turn[:, self.bent] = (self.C @ d[:, None, :, None])[..., 0]
        return u + 0.5 * apply(turn, d), N + turn

    def curvature(self, m: Tensor) -> Tensor:
        """sum m_i C_i, (R, n, n)."""
        assert self.C is not None
        return mixed(self.C, m[:, self.bent])


@dataclass(frozen=True)
class Step:
    """move (R, n), new pushes m (R, k), whether the step can be believed, error and violation before it, (R,)."""

    move: Tensor
    m: Tensor
    sound: Tensor
    error: Tensor
    off: Tensor


@dataclass(frozen=True)
class Place:
    """Of a model at y + d: values u, normals N, the way to x, which constraints are held (None: all); error and violation."""

    u: Tensor
    N: Tensor
    away: Tensor
    held: Tensor | None
    error: Tensor
    off: Tensor


def look(q: Model, d: Tensor | None, m: Tensor) -> Place:
    """How well d and the pushes m satisfy the conditions of the model. An inequality is held if its push outweighs its room."""
    u, N, away = (q.u, q.N, q.away) if d is None else (*q.at(d), q.away - d)
    over = gap = u.abs()
    held = None
    if q.inner is not None:
        over, gap = torch.where(q.inner, u.clamp(min=0), over), torch.where(q.inner, torch.maximum(u, -m).abs(), gap)
        held = ~q.inner | (m + u > 0)
    off = over[:, 0] if over.shape[1] == 1 else over.amax(1)
    wide = gap[:, 0] if gap.shape[1] == 1 else gap.amax(1)
    return Place(u, N, away, held, torch.maximum(length(apply(N.mT, m) - away), wide) / q.size, off)


def newton_step(q: Model, d: Tensor | None, m: Tensor, H: Tensor | None) -> Step:
    """A step of Newton's method on the conditions of the model at y + d. H = sum m_i C_i, 0 if it is None.

    The move is that of d; off and error are those at d.
    """
    place = look(q, d, m)
    N, u = place.N, place.u
    if place.held is not None:
        N, u, m = N * place.held[:, :, None], u * place.held, m * place.held
    eye = torch.eye(N.shape[2], dtype=N.dtype, device=N.device)
    K = eye.expand(len(N), *eye.shape) if H is None else eye + H
    move, m, sound = stiff_step(K, N, u, m, place.away, STIFF * (1 + length(m)))
    if q.inner is not None and place.held is not None:
        m = torch.where(q.inner, m.clamp(min=0), m) * place.held
    return Step(move, m, sound, place.error, place.off)


def along_a_normal(q: Model) -> tuple[Tensor, Tensor]:
    """The first guess from y = x, where normals have length 1: the constraint that is farthest away, on the line of its gradient.

    Returns where its model is 0 on this line, and its push there; the other pushes are 0.
    """
    assert q.C is not None
    u = q.u if q.inner is None else torch.where(q.inner, q.u.clamp(min=0), q.u)
    bend = torch.zeros_like(u)
    bend[:, q.bent] = ((q.C @ q.N[:, q.bent, :, None])[..., 0] * q.N[:, q.bent]).sum(2)
    rest = 1 - 2 * u * bend  # the line misses the model where this is negative: then a step of Newton's method
    t = torch.where(rest < 0, -u, -2 * u / (1 + rest.clamp(min=0).sqrt()))
    if t.shape[1] > 1:
        t = torch.where(torch.arange(t.shape[1], device=t.device) == t.abs().argmax(1, keepdim=True), t, 0.0)
    d = apply(q.N.mT, t)
    N = q.at(d)[1]
    m = torch.where(t == 0, 0.0, torch.where(rest < 0, u, -apply(N, d) / (N * N).sum(2).clamp(min=TINY)))
    return d, m if q.inner is None else torch.where(q.inner, m.clamp(min=0), m)


def solved(q: Model, d: Tensor, m: Tensor, longest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The nearest point of a quadratic model by Newton's method from d, m: d, m, and which rows were solved.

    Solved rows stand still, and leave when they are more than half. Whether such a point is a minimum is for the functions to
    say, and not for their model.
    """
    whole, room, at = q, longest, None
    move, push, done = d, m, torch.zeros(len(d), dtype=torch.bool, device=d.device)
    live, ready = ~done, done
    for _ in range(INNER):
        step = newton_step(q, d, m, q.curvature(m))
        arrived = step.error <= SOLVED
        bent_away = (~step.sound & live & ~arrived).nonzero()[:, 0]
        if len(bent_away):
            step = straightened(q, d, m, step, bent_away)
        part = (room / length(step.move).clamp(min=TINY)).clamp(max=1.0)
        part = torch.where(step.sound & live, part, 0.0)[:, None]
        d, m = torch.where(part > 0, d + part * step.move, d), torch.where(part > 0, m + part * (step.m - m), m)
        ready, live = ready | (live & arrived), live & step.sound & ~arrived
        count = int(live.sum())
        if not count:
            break
        if 2 * count <= len(d):
            move, push, done = written((move, push, done), (d, m, ready), at)
            left = live.nonzero()[:, 0]
            at = left if at is None else at[left]
            q, (d, m, room, live, ready) = q.of(left), chosen(left, d, m, room, live, ready)
    move, push, done = written((move, push, done), (d, m, ready), at)
    grown = lengths(whole.at(move)[1]).clamp(min=1.0)  # the scale of the next model is larger by as much
    return move, push * grown, done & (length(move) <= longest)


def written(old: tuple[Tensor, ...], new: tuple[Tensor, ...], at: Tensor | None) -> tuple[Tensor, ...]:
    """The new tensors in the rows `at` of the old ones; None: in all of them."""
    return new if at is None else tuple(a.index_copy(0, at, b) for a, b in zip(old, new, strict=True))


def straightened(q: Model, d: Tensor, m: Tensor, step: Step, rows: Tensor) -> Step:
    """The step, in these rows without curvature: to the nearest point of the linearised constraints, which always exists.

    Pushes that are far off, where two normals are nearly parallel, make a model that curves away from x; these steps choose
    them anew.
    """
    part, some = q.of(rows), m.index_select(0, rows)
    flat = newton_step(part, d.index_select(0, rows), some, None)
    move, push = step.move.index_copy(0, rows, flat.move), step.m.index_copy(0, rows, flat.m)
    return Step(move, push, step.sound.index_copy(0, rows, flat.sound), step.error, step.off)


def over_sum(q: Model) -> Tensor:
    """The sum of the violations, (R,)."""
    over = q.u.abs() if q.inner is None else torch.where(q.inner, q.u.clamp(min=0), q.u.abs())
    return over[:, 0] if over.shape[1] == 1 else over.sum(1)
