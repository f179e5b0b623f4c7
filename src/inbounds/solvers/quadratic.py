"""Nearest points of {e(y) = 0, h(y) <= 0} without safeguards: every step solves the problem with quadratic constraints.

At a point y the constraints are replaced by c + J d + d^T C d / 2. The nearest point of that set is found by Newton's method on
its conditions, which needs no values of the functions, and is the next y. Where the functions are quadratic, the first step
arrives; elsewhere the error of a step is of third order in its length. With more than a few curved constraints, whose
Hessians would be dear, one step of Newton's method on the functions themselves takes its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .ends import Ends
from .jets import Constraints, Jet, mixed
from .linear import length
from .model import Model, Place, along_a_normal, look, newton_step, solved
from .newton import AROUND, DONE, REACH, SLOW, TINY, first_multipliers
from .pivoting import chosen

STEPS = 10  # at most


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
    if C is not None and C.shape[1] < k:  # those of straight constraints are 0
        C = torch.nn.functional.pad(C, (0, 0, 0, 0, jet.bent.start, k - jet.bent.stop))
    low = w.x.new_tensor([-math.inf] * p + [0.0] * (k - p))
    return Model(w.x - w.y, jet.c / jet.scale, jet.J / jet.scale[:, :, None], C, low, p < k, length(w.x) + length(w.y) + TINY)


def next_step(w: Course, q: Model, first: bool) -> Step:
    """The step to the nearest point of the model where that is found; a single step of Newton's method elsewhere."""
    over = q.over(q.u)
    off, total = (over[:, 0], over[:, 0]) if over.shape[1] == 1 else (over.amax(1), over.sum(1))
    far = REACH * (length(q.away) + total + SLOW * q.size) + AROUND  # the longest step that is believed
    place = look(q, None, w.m)
    if q.C is None:
        return plain_step(q, place, w.m, w.jet.H, far, off)
    if first and bool((w.x == w.y).all()):  # the usual beginning: a step of Newton's method is rarely needed there
        at, nothing = (place.error > DONE).nonzero()[:, 0], torch.zeros_like(place.error, dtype=torch.bool)
        plain = Step(torch.zeros_like(q.away), w.m, nothing, place.error, off)
        if len(at):
            plain = modelled(plain, q, at, far, *along_a_normal(q))
        rest = (~plain.sound).nonzero()[:, 0]
        if not len(rest):
            return plain
        part, m = q.of(rest), w.m[rest]
        return merged(plain, plain_step(part, look(part, None, m), m, w.jet.H[rest], far[rest], off[rest]), rest)
    plain = plain_step(q, place, w.m, w.jet.H, far, off)
    at = (plain.error > DONE).nonzero()[:, 0]
    if not len(at):
        return plain
    d, m = plain.move, plain.m
    if first:  # rows that start elsewhere than at x begin with a step of Newton's method, whoever is beside them
        here, (guess, push) = (q.away == 0).all(1, keepdim=True), along_a_normal(q)
        d, m = torch.where(here, guess, d), torch.where(here, push, m)
    return modelled(plain, q, at, far, d, m)


def plain_step(q: Model, place: Place, m: Tensor, H: Tensor, far: Tensor, off: Tensor) -> Step:
    """One step of Newton's method from y, where the violation is `off`, believed up to the length `far`."""
    move, m, sound = newton_step(q, place, m, H)
    return Step(move, m, sound & (length(move) <= far), place.error, off)


def modelled(plain: Step, q: Model, at: Tensor, far: Tensor, d: Tensor, m: Tensor) -> Step:
    """In the rows `at`, the step to the nearest point of the model, from d and m, where it is found; elsewhere the plain one."""
    some = len(at) < len(d)
    part, (d, m, reach) = (q.of(at), chosen(at, d, m, far)) if some else (q, (d, m, far))
    d, m, good = solved(part, d, m, reach)
    if not some and bool(good.all()):
        return Step(d, m, good, plain.error, plain.off)
    take = good.nonzero()[:, 0]
    return merged(plain, Step(d[take], m[take], good[take], plain.error[at[take]], plain.off[at[take]]), at[take])


def merged(old: Step, new: Step, rows: Tensor) -> Step:
    """The new step in these rows."""
    names = ("move", "m", "sound", "error", "off")
    return Step(*(getattr(old, name).index_copy(0, rows, getattr(new, name)) for name in names))


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
