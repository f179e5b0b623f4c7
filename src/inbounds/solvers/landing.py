"""From the end of a search to an answer: inside every inequality in the caller's dtype, with a status."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .complementarity import complementary
from .ends import Ends
from .jets import Constraints, lengths
from .linear import apply
from .noise import resolution
from .solution import FLAT, NOT_CONVERGED, OK

GOOD = 1e-9  # error of the conditions, relative to |x| + |y|, of a row that is called converged
LAND = 4  # units of rounding of the caller's dtype that the answer lies inside every inequality
WILD = 1e3  # landings that a first push may be long: longer ones come from normals that cancel, where sets only touch
MARGIN = 1  # units that must be left of them, so that another order of the same sums does not make an inequality positive
EQUAL = 4  # units that an equality may be off before it is mended
FEASIBLE = 64  # units that a converged row may be off: rounding of sums of a few dozen terms that are as large as the point
LEAST = 1e-46  # unit of rounding at the point 0: below the smallest number of float32, which every unit there rounds to
ZERO = 1e-300  # a gradient of this length is none; above the smallest number of float64, so that its inverse is finite
AT = 1e-3  # units of room of an inequality that counts as met: room that complementarity left is 0 to rounding of float64
REACHED = 8  # landings of room below which an inequality is kept in view, so that no push off another crosses it; by reasoning
TURNS = 5  # doublings of the depth: the last depth is 4 2^5 = 128 units, beyond the rounding of sums of a hundred terms
SOFT = 1e-12  # on the diagonal of the Gram matrix of unit normals: above its rounding, and a millionth of a landing off
POSITIVE, NARROW = 1e6, 1e3  # costs of a positive inequality and of too little room: each above all that rounding adds below it
NEARLY = 1e-6  # violation at which sets may touch: conditions met to e leave a point off by the root of e there; by reasoning
CLOSE = 1e-4  # room, of the point, of the constraints whose normals may cancel there: a hundred times NEARLY, by reasoning
CANCELLED, REGULAR = 1e-2, 1e-10  # length of what is left of unit normals that cancel; diagonal of their Gram matrix
NOISE = 4  # steps, of the shortest that the functions can tell, that it may be off where their terms are larger than that


@dataclass(frozen=True)
class Answer:
    """point, multipliers, active (R, k), error, violation, status, steps; gradients J and sum l_i Hess c_i at the point."""

    y: Tensor
    l: Tensor
    active: Tensor
    error: Tensor
    violation: Tensor
    status: Tensor
    steps: Tensor
    J: Tensor
    H: Tensor


@dataclass(frozen=True)
class Contact:
    """At the ends of the rows: one unit of rounding as a length (R,), and for every constraint (R, k) the length of its gradient,
    whether it pushes, and whether it is active, which is to say that the answer moves with it."""

    unit: Tensor
    slope: Tensor
    pushed: Tensor
    active: Tensor

    def of(self, rows: Tensor) -> Contact:
        """The same for some of the rows."""
        return Contact(self.unit[rows], self.slope[rows], self.pushed[rows], self.active[rows])


def contact(p: int, ends: Ends, eps: float) -> Contact:
    """What touches at the ends: the equalities, and the inequalities that push or are within rounding of 0."""
    slope = lengths(ends.J).clamp(min=ZERO)
    unit = eps * torch.linalg.vector_norm(ends.y, dim=1)  # 0 at 0, where nothing is rounded
    if p == ends.c.shape[1]:
        every = torch.ones_like(ends.c, dtype=torch.bool)
        return Contact(unit, slope, every, every)
    equal = torch.arange(ends.c.shape[1], device=slope.device) < p
    u = ends.c / slope
    # with complementarity, either the multiplier or the room is 0 to rounding: the larger one tells
    pushed = equal | ((ends.l * slope > -u) & (ends.l > 0))
    return Contact(unit, slope, pushed, pushed | (u > -AT * unit[:, None]))


def worst(u: Tensor, p: int) -> tuple[Tensor, Tensor]:
    """The largest inequality, -inf if there is none, and the largest |equality|, 0 if there is none: (R,)."""
    none = u.new_full((len(u),), -math.inf)
    over = none if p == u.shape[1] else u[:, p:].amax(1)
    return over, u[:, :p].abs().amax(1) if p else torch.zeros_like(none)


def inwards(y: Tensor, N: Tensor, gap: Tensor, p: int) -> Tensor:
    """The nearest point to y whose linearised constraints are lower by `gap` (R, k); the first p exactly, the others at least."""
    if N.shape[1] == 1:
        return y - (gap if p else gap.clamp(min=0)) * N[:, 0] / (N[:, 0].square().sum(1, keepdim=True) + SOFT)
    G = N @ N.mT + SOFT * torch.eye(N.shape[1], dtype=y.dtype, device=y.device)
    return y - apply(N.mT, complementary(G, gap, p, gap > 0))


def first_landing(p: int, ends: Ends, k: Contact) -> Tensor:
    """The ends `LAND` units inside the inequalities that push, by the gradients that are known."""
    inner = k.pushed[:, p:]
    at = inner[:, 0] if inner.shape[1] == 1 else inner.any(1)
    rows = at.nonzero()[:, 0]
    if not len(rows):
        return ends.y
    N = torch.where(k.pushed[rows, :, None], ends.J[rows] / k.slope[rows][:, :, None], 0.0)
    gap = torch.where(k.pushed[rows], LAND * k.unit[rows][:, None], 0.0)
    gap[:, :p] = 0
    y = ends.y[rows]
    moved = inwards(y, N, gap, p)
    wild = torch.linalg.vector_norm(moved - y, dim=1) > WILD * LAND * k.unit[rows]
    return ends.y.index_copy(0, rows, torch.where(wild[:, None], y, moved))


@dataclass
class Landing:
    """Points in the caller's dtype, their largest inequality and |equality| as lengths, and how bad that is: (R,)."""

    point: Tensor
    over: Tensor
    equal: Tensor

    def cost(self, unit: Tensor) -> Tensor:
        """A positive inequality is worse than anything, too little room the next."""
        one = unit.clamp(min=LEAST)
        cost = self.equal / one + torch.where(self.over > 0, POSITIVE + self.over / one, 0.0)
        cost = cost + torch.where(self.over > -MARGIN * unit, NARROW, 0.0)
        return torch.where(torch.isfinite(cost), cost, math.inf)

    def unsettled(self, unit: Tensor) -> Tensor:
        """Rows that should be moved, (R,)."""
        return (self.over > -MARGIN * unit) | (self.equal > EQUAL * unit)


def settled(constraints: Constraints, ends: Ends, k: Contact, eps: float) -> Landing:
    """The ends in the caller's dtype, `LAND` units of rounding, more where that is not enough, inside what they touch."""
    p = constraints.equalities
    y = first_landing(p, ends, k) if p < ends.c.shape[1] else ends.y
    point = rounded(y, eps)
    out = Landing(point, *worst(constraints.value(point, torch.arange(len(y), device=y.device)) / k.slope, p))
    at = (out.unsettled(k.unit) & (ends.error <= GOOD)).nonzero()[:, 0]
    depth = y.new_full((len(at),), float(LAND))
    y = y[at]
    for _ in range(TURNS):
        if not len(at):
            break
        here = k.of(at)
        y = pushed_inside(constraints, y, at, here, depth)
        point = rounded(y, eps)
        new = Landing(point, *worst(constraints.value(point, at) / here.slope, p))
        nearer = new.cost(here.unit) < 0.5 * Landing(out.point[at], out.over[at], out.equal[at]).cost(here.unit)
        to = at[nearer]
        out.point[to], out.over[to], out.equal[to] = point[nearer], new.over[nearer], new.equal[nearer]
        left = new.unsettled(here.unit)
        depth = torch.where(new.over > -MARGIN * here.unit, 2 * depth, depth)[left]
        at, y = at[left], y[left]
    return out


def pushed_inside(constraints: Constraints, y: Tensor, at: Tensor, k: Contact, depth: Tensor) -> Tensor:
    """y on the equalities, and `depth` units inside the inequalities that touch; those that are there already stay."""
    p = constraints.equalities
    c, J, _ = constraints.expand(y, at, None)
    inner = torch.arange(c.shape[1], device=c.device) >= p
    u = c / k.slope
    touch = k.pushed | (u > -REACHED * LAND * k.unit[:, None])
    N = torch.where(touch[:, :, None], J / k.slope[:, :, None], 0.0)
    gap = torch.where(touch, u + torch.where(inner, (depth * k.unit)[:, None], 0.0), 0.0)
    return inwards(y, N, gap, p)


def landed(x: Tensor, constraints: Constraints, ends: Ends, eps: float, finite: Tensor) -> Answer:
    """The ends inside the inequalities, in the caller's dtype, with their status."""
    p = constraints.equalities
    k = contact(p, ends, eps)
    s = settled(constraints, ends, k, eps)
    off = s.equal if p == ends.c.shape[1] else torch.maximum(s.equal, s.over.clamp(min=0))
    good = (ends.error <= GOOD) & (off <= FEASIBLE * k.unit.clamp(min=LEAST)) & finite
    doubt = (~good & (ends.error <= GOOD) & finite).nonzero()[:, 0]
    if len(doubt):
        good[doubt] = within_noise(x, constraints, ends, s, k, doubt)
    status = torch.where(good, torch.where(s.over > 0, FLAT, OK), NOT_CONVERGED)
    if not bool(good.all()):
        lost = (~good & finite & (off <= NEARLY * (1 + s.point.norm(dim=1)))).nonzero()[:, 0]
        if len(lost):
            status[lost] = torch.where(touching(constraints, s.point[lost], lost, k.slope[lost]), FLAT, NOT_CONVERGED)
    violation = torch.maximum(s.over, torch.where(s.equal > 0, s.equal, -math.inf) if p else s.over)
    return Answer(s.point, ends.l, k.active, ends.error, violation, status, ends.steps, ends.J, ends.H)


def within_noise(x: Tensor, constraints: Constraints, ends: Ends, s: Landing, k: Contact, rows: Tensor) -> Tensor:
    """Whether these rows are as feasible as their functions can tell, and at least as feasible as they are stationary. (R,)"""
    point, slope = s.point[rows], k.slope[rows]
    u = constraints.value(point, rows) / slope
    u[:, : constraints.equalities] = u[:, : constraints.equalities].abs()
    off, which = u.max(1)
    N = (ends.J[rows] / slope[:, :, None]).gather(1, which[:, None, None].expand(-1, 1, point.shape[1]))[:, 0]
    top = GOOD / NOISE * (x[rows].norm(dim=1) + point.norm(dim=1))
    step = resolution(constraints, point, rows, N, which, slope.gather(1, which[:, None])[:, 0], top)
    return (off <= NOISE * step) & torch.isfinite(step)


def touching(constraints: Constraints, point: Tensor, at: Tensor, slope: Tensor) -> Tensor:
    """Whether these points are on sets that touch: feasible to the root of rounding, and the normals there cancel. (R,)"""
    c, J, _ = constraints.expand(point, at, None)
    N = J / J.norm(dim=2, keepdim=True).clamp(min=ZERO)
    near = c / slope > -CLOSE * (1 + point.norm(dim=1, keepdim=True))
    some = near.any(0)
    some[: constraints.equalities] = True
    return cancel(torch.where(near[:, :, None], N, 0.0)[:, some], constraints.equalities)


def cancel(N: Tensor, p: int) -> Tensor:
    """Whether a positive combination of the rows p, p + 1, ... of N (R, k, n), and any one of the others, is nearly 0, (R,).

    No constraint qualification holds there: two balls that touch, for example.
    """
    out = torch.zeros(len(N), dtype=torch.bool, device=N.device)
    for i in range(p, N.shape[1]):
        long = N[:, i].norm(dim=1) > 0.5
        if not bool(long.any()):  # of many constraints few are near
            continue
        others = torch.cat([N[:, :i], N[:, i + 1 :]], 1)
        G = others @ others.mT + REGULAR * torch.eye(others.shape[1], dtype=N.dtype, device=N.device)
        m = complementary(G, -(others @ N[:, i, :, None])[:, :, 0], p)
        rest = N[:, i] + (m[:, None] @ others)[:, 0]
        out = out | ((rest.norm(dim=1) <= CANCELLED) & long)
    return out


def rounded(y: Tensor, eps: float) -> Tensor:
    """y as it is in float32, if that is what the answer is wanted in."""
    return y.float().to(y.dtype) if eps > 1e-10 else y
