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
SOLVED = 1e-8  # error of the conditions of a model, relative to |x| + |y|, whose next step arrives: convergence is quadratic
STIFF = 1e6  # weight of the constraints in a step


@dataclass(frozen=True)
class Model:
    """The constraints around the points y, divided by their scale: values u, normals N, second derivatives C (R, k, n, n).

    low (k,): the least push of every constraint, 0 for an inequality and -inf for an equation. size (R,): what lengths are
    relative to. C is None where second derivatives are not known.
    """

    away: Tensor
    u: Tensor
    N: Tensor
    C: Tensor | None
    low: Tensor
    one_sided: bool  # whether there are inequalities
    size: Tensor

    def of(self, at: Tensor) -> Model:
        """Some of the rows."""
        away, u, N, size = (t.index_select(0, at) for t in (self.away, self.u, self.N, self.size))
        return Model(away, u, N, None if self.C is None else self.C.index_select(0, at), self.low, self.one_sided, size)

    def at(self, d: Tensor) -> tuple[Tensor, Tensor]:
        """Values and normals at y + d."""
        if self.C is None:
            return self.u + apply(self.N, d), self.N
        N = self.N + (self.C @ d[:, None, :, None])[..., 0]
        return self.u + apply(0.5 * (self.N + N), d), N

    def curvature(self, m: Tensor) -> Tensor:
        """sum m_i C_i, (R, n, n)."""
        assert self.C is not None
        return mixed(self.C, m)

    def over(self, u: Tensor) -> Tensor:
        """How far the constraints with the values u are violated, (R, k)."""
        return torch.where(self.low == 0, u.clamp(min=0), u.abs()) if self.one_sided else u.abs()


@dataclass(frozen=True)
class Place:
    """Of a model at y + d: values u, normals N, the way to x, which constraints are held (None: all), error (R,)."""

    u: Tensor
    N: Tensor
    away: Tensor
    held: Tensor | None
    error: Tensor


def look(q: Model, d: Tensor | None, m: Tensor) -> Place:
    """How well d and the pushes m satisfy the conditions of the model. An inequality is held if its push outweighs its room."""
    u, N, away = (q.u, q.N, q.away) if d is None else (*q.at(d), q.away - d)
    gap = torch.maximum(u, q.low - m).abs() if q.one_sided else u.abs()
    held = (u + m > q.low).to(u.dtype) if q.one_sided else None
    wide = gap[:, 0] if gap.shape[1] == 1 else gap.amax(1)
    return Place(u, N, away, held, torch.maximum(length(apply(N.mT, m) - away), wide) / q.size)


def newton_step(q: Model, place: Place, m: Tensor, H: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """A step of Newton's method on the conditions of the model at this place: the move of d, the new pushes, whether it is sound.

    H = sum m_i C_i, 0 if it is None.
    """
    eye = torch.eye(q.N.shape[2], dtype=m.dtype, device=m.device)
    K = eye.expand(len(m), *eye.shape) if H is None else H + eye
    if place.held is None:
        return stiff_step(K, place.N, place.u, m, place.away, STIFF * (1 + length(m)[:, None]))
    m = m * place.held
    weight = (STIFF * (1 + length(m)))[:, None] * place.held
    move, m, sound = stiff_step(K, place.N, place.u, m, place.away, weight)
    return move, torch.maximum(m, q.low), sound


def along_a_normal(q: Model) -> tuple[Tensor, Tensor]:
    """The first guess from y = x, where normals have length 1: the constraint that is farthest away, on the line of its gradient.

    Returns where its model is 0 on this line, and its push there; the other pushes are 0.
    """
    assert q.C is not None
    u = torch.where(q.low == 0, q.u.clamp(min=0), q.u) if q.one_sided else q.u
    bend = ((q.C @ q.N[..., None])[..., 0] * q.N).sum(2)
    rest = 1 - 2 * u * bend  # the line misses the model where this is negative: then a step of Newton's method
    t = torch.where(rest < 0, -u, -2 * u / (1 + rest.clamp(min=0).sqrt()))
    if t.shape[1] > 1:
        t = torch.where(torch.arange(t.shape[1], device=t.device) == t.abs().argmax(1, keepdim=True), t, 0.0)
    d = apply(q.N.mT, t)
    N = q.at(d)[1]
    m = torch.where(t == 0, 0.0, torch.where(rest < 0, u, -apply(N, d) / (N * N).sum(2).clamp(min=TINY)))
    return d, torch.maximum(m, q.low)


def solved(q: Model, d: Tensor, m: Tensor, longest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The nearest point of a quadratic model by Newton's method from d, m: d, m, and which rows were solved.

    Solved rows stand still, and leave when they are more than half. Whether such a point is a minimum is for the functions to
    say, and not for their model.
    """
    whole, room, at = q, longest, None
    move, push, done = d, m, torch.zeros(len(d), dtype=torch.bool, device=d.device)
    live, ready = ~done, done
    for _ in range(INNER):
        place = look(q, d, m)
        step, push_on, sound = newton_step(q, place, m, q.curvature(m))
        arrived = place.error <= SOLVED
        bent_away = (~sound & live & ~arrived).nonzero()[:, 0]
        if len(bent_away):
            step, push_on, sound = straightened(q, d, m, (step, push_on, sound), bent_away)
        part = (room / length(step).clamp(min=TINY)).clamp(max=1.0)
        part = torch.where(sound & live, part, 0.0)[:, None]
        d, m = torch.where(part > 0, d + part * step, d), torch.where(part > 0, m + part * (push_on - m), m)
        ready, live = ready | (live & arrived), live & sound & ~arrived
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


def straightened(q: Model, d: Tensor, m: Tensor, step: tuple[Tensor, ...], rows: Tensor) -> tuple[Tensor, ...]:
    """The step, in these rows without curvature: to the nearest point of the linearised constraints, which always exists.

    Pushes that are far off, where two normals are nearly parallel, make a model that curves away from x; these steps choose
    them anew.
    """
    part, (d, m) = q.of(rows), chosen(rows, d, m)
    return written(step, newton_step(part, look(part, d, m), m, None), rows)
