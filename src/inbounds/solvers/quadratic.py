"""Nearest points of {e(y) = 0, h(y) <= 0} without safeguards: every step solves the problem with quadratic constraints.

At a point y the constraints are replaced by c + J d + d^T C d / 2. The nearest point of that set is found by Newton's method on
its conditions, which needs no values of the functions, and is the next y. Where the functions are quadratic, the first step
arrives; elsewhere the error of a step is of third order in its length. With more than a few curved constraints, whose
Hessians would be dear, one step of Newton's method on the functions themselves takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .ends import Ends
from .jets import Constraints, Jet, lengths, mixed
from .linear import apply, length, stiff_step
from .newton import DONE, first_multipliers

STEPS = 10  # at most
INNER = 10  # steps of Newton's method on a quadratic model, at most
SOLVED = 1e-13  # error of the conditions of a model, relative to |x| + |y|, at which it counts as solved
STIFF = 1e6  # weight of the constraints in a step


@dataclass
class Course:
    """The rows under way: number, x, y, pushes m (R, k), whether m may still be chosen anew, derivatives at y."""

    rows: Tensor
    x: Tensor
    y: Tensor
    m: Tensor
    fresh: Tensor
    jet: Jet

    def of(self, at: Tensor) -> Course:
        """Some of the rows."""
        rows, x, y, m, fresh = (t.index_select(0, at) for t in (self.rows, self.x, self.y, self.m, self.fresh))
        return Course(rows, x, y, m, fresh, self.jet.of(at))


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


def model_of(w: Course, p: int) -> Model:
    """The model at the points of all rows."""
    jet, k = w.jet, w.m.shape[1]
    C = None if jet.C is None else jet.C / jet.scale[:, jet.bent, None, None]
    inner = torch.arange(k, device=w.x.device) >= p if p < k else None
    return Model(
        w.x - w.y, jet.c / jet.scale, jet.J / jet.scale[:, :, None], C, jet.bent, inner, length(w.x) + length(w.y) + 1e-30
    )


def newton_step(q: Model, d: Tensor | None, m: Tensor, H: Tensor) -> Step:
    """A step of Newton's method on the conditions of the model at y + d. An inequality is held if its push outweighs its room.

    H = sum m_i C_i. The move is that of d; off and error are those at d.
    """
    u, N, away = (q.u, q.N, q.away) if d is None else (*q.at(d), q.away - d)
    over, gap, held = u.abs(), u.abs(), None
    if q.inner is not None:
        over, gap = torch.where(q.inner, u.clamp(min=0), over), torch.where(q.inner, torch.maximum(u, -m).abs(), gap)
        held = ~q.inner | (m + u > 0)
    off = over[:, 0] if over.shape[1] == 1 else over.amax(1)
    wide = gap[:, 0] if gap.shape[1] == 1 else gap.amax(1)
    error = torch.maximum(length(apply(N.mT, m) - away), wide) / q.size
    if held is not None:
        N, u, m = N * held[:, :, None], u * held, m * held
    K = torch.eye(N.shape[2], dtype=N.dtype, device=N.device) + H
    move, m, sound = stiff_step(K, N, u, m, away, STIFF * (1 + length(m)))
    if q.inner is not None and held is not None:
        m = torch.where(q.inner, m.clamp(min=0), m) * held
    return Step(move, m, sound, error, off)


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
    m = torch.where(t == 0, 0.0, torch.where(rest < 0, u, -apply(N, d) / (N * N).sum(2).clamp(min=1e-30)))
    return d, m if q.inner is None else torch.where(q.inner, m.clamp(min=0), m)


def solved(q: Model, d: Tensor, m: Tensor, longest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The nearest point of a quadratic model by Newton's method from d, m: d, m, and which rows were solved.

    Solved rows leave. Whether such a point is a minimum is for the functions to say, and not for their model.
    """
    done = torch.zeros(len(d), dtype=torch.bool, device=d.device)
    at = torch.arange(len(d), device=d.device)
    move, push = d.clone(), m.clone()
    for _ in range(INNER):
        step = newton_step(q, d, m, q.curvature(m))
        ready = step.error <= SOLVED
        part = (longest / length(step.move).clamp(min=1e-300)).clamp(max=1.0)
        part = torch.where(step.sound, part, 0.0)[:, None]
        d, m = d + part * step.move, m + part * (step.m - m)
        stop = ready | ~step.sound
        if bool(stop.any()):
            end = stop.nonzero()[:, 0]
            grown = lengths(q.at(d)[1]).clamp(min=1.0)  # the scale of the next model is larger by as much
            move[at[end]], push[at[end]], done[at[end]] = d[end], (m * grown)[end], (ready & (length(d) <= longest))[end]
            left = (~stop).nonzero()[:, 0]
            if not len(left):
                break
            q, d, m, longest, at = q.of(left), d[left], m[left], longest[left], at[left]
    return move, push, done


def next_step(w: Course, q: Model, first: bool) -> Step:
    """The step to the nearest point of the model where that is found; a single step of Newton's method elsewhere."""
    plain = newton_step(q, None, w.m, w.jet.H)
    far = 4 * (length(q.away) + over_sum(q) + 1e-3 * q.size) + 0.5  # the longest step that is believed
    plain = Step(plain.move, plain.m, plain.sound & (length(plain.move) <= far), plain.error, plain.off)
    if q.C is None:
        return plain
    at = (plain.error > DONE).nonzero()[:, 0]
    if not len(at):
        return plain
    some = len(at) < len(w.x)
    part, reach = (q.of(at), far[at]) if some else (q, far)
    d, m = (plain.move[at], plain.m[at]) if some else (plain.move, plain.m)
    if first:  # rows that start elsewhere than at x begin with a step of Newton's method, whoever is beside them
        here, (guess, push) = (part.away == 0).all(1, keepdim=True), along_a_normal(part)
        d, m = torch.where(here, guess, d), torch.where(here, push, m)
    d, m, good = solved(part, d, m, reach)
    take = at[good]
    if len(take) == len(plain.move):
        return Step(d, m, good, plain.error, plain.off)
    move, push = plain.move.index_copy(0, take, d[good]), plain.m.index_copy(0, take, m[good])
    return Step(move, push, plain.sound.index_fill(0, take, True), plain.error, plain.off)


def over_sum(q: Model) -> Tensor:
    """The sum of the violations, (R,)."""
    over = q.u.abs() if q.inner is None else torch.where(q.inner, q.u.clamp(min=0), q.u.abs())
    return over[:, 0] if over.shape[1] == 1 else over.sum(1)


def steps_to_nearest(x: Tensor, constraints: Constraints, start: Tensor, jet: Jet | None = None) -> Ends:
    """From `start`, with the derivatives there if they are known. It is enough for most rows.

    A row whose step cannot be believed chooses its pushes anew, once: near a point where a gradient vanishes they are far off.
    Rows that do not arrive at a minimum have error inf, and end where that was noticed.
    """
    p = constraints.equalities
    w = set_out(x, constraints, start, jet)
    out = Ends.nowhere(w.y, w.jet)
    for turn in range(STEPS + 1):
        step = next_step(w, model_of(w, p), turn == 0)
        arrived = (step.error <= DONE) & step.sound
        out.steps[w.rows] = turn
        y, m = w.y + step.move, step.m
        write_down(out, w, step, y, arrived)
        if bool(arrived.all()) or turn == STEPS:
            out.y[w.rows] = torch.where(arrived[:, None], out.y[w.rows], w.y)
            break
        lost = (~step.sound).nonzero()[:, 0]
        if len(lost):
            out.y[w.rows[lost]] = w.y[lost]
            lost = lost[w.fresh[lost]]
            y[lost], m[lost] = w.y[lost], pushes(w.of(lost), p)
            w.fresh = w.fresh & step.sound
        left = (~arrived & step.sound).index_fill(0, lost, True).nonzero()[:, 0]
        if not len(left):
            break
        if not turn:
            w.fresh = torch.ones_like(w.fresh)
        w.y, w.m = y, m
        if len(left) < len(y):
            w = w.of(left)
        w.jet = constraints.jet(w.y, w.rows, w.m, w.jet.scale)
    return out


def set_out(x: Tensor, constraints: Constraints, start: Tensor, jet: Jet | None) -> Course:
    """All rows at their start, with the derivatives and first pushes there; at x itself these are 0."""
    rows = torch.arange(len(x), device=x.device)
    if jet is None:
        jet = constraints.jet(start, rows, None, None)
    w = Course(rows, x, start, torch.zeros_like(jet.c), torch.zeros_like(rows, dtype=torch.bool), jet)
    if start is x:
        return w
    w.m = pushes(w, constraints.equalities)
    bent = w.jet.bent
    H = constraints.expand(start, rows, w.m / jet.scale)[2] if jet.C is None else mixed(jet.C, (w.m / jet.scale)[:, bent])
    assert H is not None
    H = torch.where(torch.isfinite(H).all(2).all(1)[:, None, None], H, 0.0)
    w.jet = Jet(jet.c, jet.J, jet.scale, H, jet.C, bent)
    return w


def pushes(w: Course, p: int) -> Tensor:
    """First multipliers, as lengths."""
    return first_multipliers(w.x, w.y, w.jet.c, w.jet.J, p) * w.jet.scale


def write_down(out: Ends, w: Course, step: Step, y: Tensor, arrived: Tensor) -> None:
    """Rows that have arrived end one step further: it takes away what the last change of the pushes left in c."""
    done = arrived.nonzero()[:, 0]
    if not len(done):
        return
    new = Ends(y, step.m / w.jet.scale, step.error, step.off, out.steps[w.rows], w.jet.c, w.jet.J, w.jet.H)
    out.put(w.rows[done], new if len(done) == len(y) else new.of(done))
