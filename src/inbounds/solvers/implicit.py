"""A nearest point of {e(y) = 0, h(y) <= 0}: Newton's method from x, feasible points where it fails, restarts, landing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..kernels.vectors import pulled_in
from .linear import apply
from .newton import STEPS, Constraints, Ends, complementary, newton, plain
from .pivoting import chosen
from .solution import FLAT, NOT_CONVERGED, OK

GOOD = 1e-9  # error of the conditions, relative to |x| + |y|, of a row that is called converged
RESCUES = 8  # random starts for the rows that have no answer yet, whatever the user asked for
FIRST = 25  # careful steps of the first attempt
FAR = 1e6  # an x with larger entries is moved nearer along its ray
NEAR = 1e2  # to this distance, in sizes of the answer
ROUNDS = 8  # of moving it nearer
DRIFT = 1e-13  # relative change of the answer at which these rounds end
MEMORY = 2e7  # numbers in the Hessians of the starts that are tried at once
LAND = 4  # units of rounding of the caller's dtype that the answer lies inside every inequality


@dataclass(frozen=True)
class Answer:
    """point, multipliers, active (R, k), error, violation, status, steps."""

    y: Tensor
    l: Tensor
    active: Tensor
    error: Tensor
    violation: Tensor
    status: Tensor
    steps: Tensor


def feasible(y: Tensor, constraints: Constraints, rows: Tensor, steps: int = 60) -> Tensor:
    """Points with little violation, from y: Gauss-Newton with damping, all inequalities linearised, worse steps refused."""
    p = constraints.equalities
    y, out = y.clone(), y.clone()
    c, J, _ = constraints.expand(y, rows, None)
    scale = J.norm(dim=2).clamp(min=1e-12)
    soft, here = y.new_full((len(y),), 1e-2), torch.arange(len(y), device=y.device)
    eye = torch.eye(c.shape[1], dtype=y.dtype, device=y.device)
    for _ in range(steps):
        u, N = c / scale, J / scale[:, :, None]
        cost = measure(u, p)
        done = ~(cost > 1e-18 * (1 + y.square().sum(1))) | (soft > 1e6)
        if bool(done.any()):
            out[here[done]] = y[done]
            left = (~done).nonzero()[:, 0]
            if not len(left):
                return out
            here, rows, y, c, J, scale, soft = chosen(left, here, rows, y, c, J, scale, soft)
            u, N, cost = u[left], N[left], cost[left]
        m = complementary(N @ N.mT + soft[:, None, None] * eye, u, p)
        d = -(m[:, None] @ N)[:, 0]
        cap = 0.5 * (1 + y.norm(dim=1))
        d = d * (cap / d.norm(dim=1).clamp(min=1e-300)).clamp(max=1.0)[:, None]
        z = y + d
        c1, J1, _ = constraints.expand(z, rows, None)
        good = (measure(c1 / scale, p) < cost) & torch.isfinite(J1).all((1, 2))
        y, c = torch.where(good[:, None], z, y), torch.where(good[:, None], c1, c)
        J = torch.where(good[:, None, None], J1, J)
        soft = torch.where(good, (0.2 * soft).clamp(min=1e-10), 8 * soft)
        scale = torch.maximum(scale, J.norm(dim=2))
    out[here] = y
    return out


def measure(u: Tensor, p: int) -> Tensor:
    """The sum of the squared violations, (R,); inf where it is not a number."""
    s = u[:, :p].square().sum(1) + u[:, p:].clamp(min=0).square().sum(1)
    return torch.where(torch.isfinite(s), s, math.inf)


def begin(x: Tensor, constraints: Constraints) -> Tensor:
    """x, kicked a little, always the same way, where a violated constraint has no gradient or is not a number."""
    rows = torch.arange(len(x), device=x.device)
    y = x.clone()
    n = x.shape[1]
    way = torch.cos(1.0 + 1.7 * torch.arange(n, dtype=x.dtype, device=x.device))
    for size in (0.0, 1e-2, 1e-1, 0.5, 2.0):
        z = x[rows] + size * (1 + x[rows].norm(dim=1, keepdim=True)) * way / math.sqrt(n) if size else x
        c, J, _ = constraints.expand(z, rows, None)
        p = constraints.equalities
        slope, off = J.norm(dim=2), torch.cat([c[:, :p].abs(), c[:, p:].clamp(min=0)], 1)
        bad = ((slope <= 1e-8) & (off > 1e-8)).any(1) | ~torch.isfinite(J).all((1, 2)) | ~torch.isfinite(c).all(1)
        y[rows] = z
        rows = rows[bad]
        if not len(rows):
            return y if size else x
    return y


def better(old: Ends, new: Ends, x: Tensor, rows: Tensor) -> None:
    """Put the new end of a row in the place of the old one where it is converged and nearer, or less infeasible."""
    was, now = old.error[rows] <= GOOD, new.error <= GOOD
    a, b = (old.y[rows] - x[rows]).norm(dim=1), (new.y - x[rows]).norm(dim=1)
    take = now & (~was | (b < a * (1 - 1e-9)))
    take = take | (~now & ~was & (new.violation < old.violation[rows]))
    at = rows[take]
    new.steps = old.steps[rows] + new.steps
    old.steps[rows] = new.steps
    old.put(at, new.of(take))


def restricted(constraints: Constraints, rows: Tensor) -> Constraints:
    """The constraints of some of the rows, which are then numbered from 0."""
    return Constraints(lambda y, index: constraints.values(y, rows[index]), constraints.equalities)


def nearest_implicit(x: Tensor, constraints: Constraints, restarts: int, eps: float) -> Answer:
    """x (R, n) in the dtype that the functions are computed in; eps: rounding of the caller's dtype."""
    finite = torch.isfinite(x).all(1)
    x = torch.where(finite[:, None], x, 0.0)
    far = x.abs().amax(1) > FAR
    if bool(far.any()):
        return landed(x, constraints, from_afar(x, far, constraints, restarts), eps, finite)
    ends = search(x, constraints, restarts)
    bad = ((ends.error > GOOD) & (x.abs().amax(1) > 2 * NEAR)).nonzero()[:, 0]
    if len(bad):
        all_of_them = torch.ones_like(bad, dtype=torch.bool)
        better(ends, from_afar(x[bad], all_of_them, restricted(constraints, bad), restarts), x, bad)
    return landed(x, constraints, ends, eps, finite)


def from_afar(x: Tensor, far: Tensor, constraints: Constraints, restarts: int) -> Ends:
    """P(y + s (x - y)) = P(x) for y = P(x): a far x is moved nearer along its ray, first to 0, then to what was found.

    Only the direction of such an x counts. Every round divides the error by about `NEAR` where the set is curved; what the last
    round still moved counts as error. The multipliers of x itself are those of the moved point divided by s.
    """
    moved = torch.where(far[:, None], pulled_in(x, NEAR), x)
    ends = search(moved, constraints, restarts)
    rows = (far & (ends.error <= GOOD)).nonzero()[:, 0]
    for _ in range(ROUNDS):
        if not len(rows):
            break
        y, part = ends.y[rows], restricted(constraints, rows)
        away, room = x[rows] - y, NEAR * (1 + y.norm(dim=1, keepdim=True))
        s = (room / away.abs().amax(1, keepdim=True)).clamp(max=1.0)
        new = descend(y + s * away, part, y)
        drift = (new.y - y).norm(dim=1) / room[:, 0]
        new.l, new.error = new.l / s, torch.maximum(new.error, drift)
        new.steps += ends.steps[rows]
        ends.put(rows, new)
        rows = rows[(drift > DRIFT) & (new.error < math.inf)]
    return ends


def descend(x: Tensor, constraints: Constraints, start: Tensor, steps: int = STEPS) -> Ends:
    """Plain steps of Newton's method, and careful ones for the rows that they do not bring to a minimum."""
    ends = plain(x, constraints, start)
    lost = ends.error.isinf().nonzero()[:, 0]
    if len(lost):
        ends.put(lost, newton(x[lost], restricted(constraints, lost), start[lost], steps))
    return ends


def search(x: Tensor, constraints: Constraints, restarts: int) -> Ends:
    """Newton's method from x; where it fails, from a feasible point; then from random ones."""
    start = begin(x, constraints)
    ends = descend(x, constraints, start, FIRST)
    bad = (ends.error > GOOD).nonzero()[:, 0]
    if len(bad):
        better(ends, attempt(x[bad], start[bad], restricted(constraints, bad)), x, bad)
    noise = torch.randn(max(restarts, RESCUES), x.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(x)
    scatter(ends, x, constraints, torch.arange(len(x), device=x.device), noise[:restarts])
    scatter(ends, x, constraints, (ends.error > GOOD).nonzero()[:, 0], noise[restarts:])
    return ends


def scatter(ends: Ends, x: Tensor, constraints: Constraints, rows: Tensor, noise: Tensor) -> None:
    """Attempts from starts around x, and around 0, where the limits of joints and the like usually leave room: (T, n) noise.

    Many starts of a row are rows of one batch, as far as memory allows.
    """
    if not len(rows) or not len(noise):
        return
    turns = torch.arange(len(noise), device=x.device)
    spread = x.new_tensor([0.7, 0.5, 0.3, 1.0])[turns % 4]
    middle = torch.where(turns % 2 == 0, 1.0, 0.3).to(x)
    for part in turns.split(max(1, int(MEMORY / (len(rows) * x.shape[1] ** 2)))):
        at = rows.repeat(len(part))
        each = part.repeat_interleave(len(rows))
        size = spread[each, None] * (1 + x[at].norm(dim=1, keepdim=True) / math.sqrt(x.shape[1]))
        own = restricted(constraints, at)
        found = attempt(x[at], begin(middle[each, None] * x[at] + size * noise[each], own), own)
        for turn in range(len(part)):
            better(ends, found.of(torch.arange(turn * len(rows), (turn + 1) * len(rows), device=x.device)), x, rows)


def attempt(x: Tensor, start: Tensor, constraints: Constraints) -> Ends:
    """Newton's method from feasible points near `start`, for the rows that have them; the others end where they violate least."""
    rows = torch.arange(len(x), device=x.device)
    z = feasible(start, constraints, rows)
    c, J, _ = constraints.expand(z, rows, None)
    off = measure(c / J.norm(dim=2).clamp(min=1e-12), constraints.equalities).sqrt()
    ends = Ends(z, torch.zeros_like(c), torch.full_like(off, math.inf), off, torch.zeros_like(rows))
    near = (off <= 1e-4 * (1 + z.norm(dim=1))).nonzero()[:, 0]
    if len(near):
        ends.put(near, descend(x[near], restricted(constraints, near), z[near]))
    return ends


@dataclass(frozen=True)
class Contact:
    """At the ends of the rows, for every constraint (R, k): the length of its gradient, one unit of rounding of its value,
    whether it touches, and whether it is active, which is to say that the answer moves with it."""

    slope: Tensor
    unit: Tensor
    touch: Tensor
    active: Tensor


def contact(constraints: Constraints, ends: Ends, eps: float) -> Contact:
    """What touches at the ends: the equalities, and the inequalities that push or are within rounding of 0."""
    c, J, _ = constraints.expand(ends.y, torch.arange(len(ends.y), device=ends.y.device), None)
    equal = torch.arange(c.shape[1], device=c.device) < constraints.equalities
    slope = J.norm(dim=2).clamp(min=1e-300)
    unit = eps * slope * (ends.y.norm(dim=1, keepdim=True) + 1e-30)
    # with complementarity, either the multiplier or the room is 0 to rounding: the larger one tells
    pushed = (ends.l * slope > -c / slope) & (ends.l > 0)
    return Contact(slope, unit, equal | pushed | (c > -8 * LAND * unit), equal | pushed | (c > -1e-3 * unit))


def worst(u: Tensor, p: int) -> tuple[Tensor, Tensor]:
    """The largest inequality, -inf if there is none, and the largest |equality|, 0 if there is none: (R,)."""
    least = u.new_full((len(u), 1), -math.inf)
    return torch.cat([u[:, p:], least], 1).amax(1), torch.cat([u[:, :p].abs(), 0 * least.exp()], 1).amax(1)


def settled(constraints: Constraints, ends: Ends, k: Contact, eps: float) -> Tensor:
    """The ends moved `LAND` units of rounding, more where that is not enough, inside the inequalities that they touch.

    Rounded to the caller's dtype.
    """
    p, y, at = constraints.equalities, ends.y.clone(), torch.arange(len(ends.y), device=ends.y.device)
    best, point = y.new_full((len(y),), math.inf), rounded(y, eps)
    depth = torch.full_like(best, float(LAND))
    for turn in range(6):
        there = rounded(y[at], eps)
        over, off = worst(constraints.value(there, at) / k.slope[at], p)
        off = off / (eps * (y[at].norm(dim=1) + 1e-30))
        cost = torch.where(over > 0, 1e6 + over / eps, 0.0) + off
        cost = torch.where(torch.isfinite(cost), cost, math.inf)
        nearer = (cost < 0.5 * best[at]) | (turn == 0)
        point[at[nearer]], best[at[nearer]] = there[nearer], cost[nearer]
        left = ((over > 0) | (off > 4)) & (ends.error[at] <= GOOD)
        at, over = at[left], over[left]
        if not len(at):
            break
        y[at] = pushed_inside(constraints, y[at], at, k, depth[at])
        depth[at] = torch.where(over > 0, 2 * depth[at], depth[at])
    return point


def pushed_inside(constraints: Constraints, y: Tensor, at: Tensor, k: Contact, depth: Tensor) -> Tensor:
    """y on the equalities, and `depth` units inside the inequalities that touch; those that are there already stay."""
    p = constraints.equalities
    c, J, _ = constraints.expand(y, at, None)
    inner = torch.arange(c.shape[1], device=c.device) >= p
    N = torch.where(k.touch[at][:, :, None], J / k.slope[at][:, :, None], 0.0)
    gap = torch.where(k.touch[at], c + torch.where(inner, depth[:, None] * k.unit[at], 0.0), 0.0) / k.slope[at]
    G = N @ N.mT + 1e-12 * torch.eye(N.shape[1], dtype=y.dtype, device=y.device)
    return y - apply(N.mT, complementary(G, gap, p))


def landed(x: Tensor, constraints: Constraints, ends: Ends, eps: float, finite: Tensor) -> Answer:
    """The ends inside the inequalities, in the caller's dtype, with their status."""
    p, rows = constraints.equalities, torch.arange(len(x), device=x.device)
    k = contact(constraints, ends, eps)
    point = settled(constraints, ends, k, eps)
    over, equal = worst(constraints.value(point, rows) / k.slope, p)
    off = torch.maximum(equal, over.clamp(min=0))
    good = (ends.error <= GOOD) & (off <= 64 * eps * (point.norm(dim=1) + 1e-30))
    status = torch.where(good, torch.where(over > 0, FLAT, OK), NOT_CONVERGED)
    lost = (~good & finite & (off <= 1e-6 * (1 + point.norm(dim=1)))).nonzero()[:, 0]
    if len(lost):
        status[lost] = torch.where(touching(constraints, point[lost], lost, k), FLAT, NOT_CONVERGED)
    status = torch.where(finite, status, NOT_CONVERGED)
    violation = torch.maximum(over, torch.where(equal > 0, equal, -math.inf) if p else over)
    return Answer(point, ends.l, k.active, ends.error, violation, status, ends.steps)


def touching(constraints: Constraints, point: Tensor, at: Tensor, k: Contact) -> Tensor:
    """Whether these points are on sets that touch: feasible to the root of rounding, and the normals there cancel. (R,)"""
    c, J, _ = constraints.expand(point, at, None)
    N = J / J.norm(dim=2, keepdim=True).clamp(min=1e-300)
    near = c / k.slope[at] > -1e-4 * (1 + point.norm(dim=1, keepdim=True))
    return cancel(torch.where(near[:, :, None], N, 0.0), constraints.equalities)


def cancel(N: Tensor, p: int) -> Tensor:
    """Whether a positive combination of the rows p, p + 1, ... of N (R, k, n), and any one of the others, is nearly 0, (R,).

    No constraint qualification holds there: two balls that touch, for example.
    """
    out = torch.zeros(len(N), dtype=torch.bool, device=N.device)
    for i in range(p, N.shape[1]):
        others = torch.cat([N[:, :i], N[:, i + 1 :]], 1)
        G = others @ others.mT + 1e-10 * torch.eye(others.shape[1], dtype=N.dtype, device=N.device)
        m = complementary(G, -(others @ N[:, i, :, None])[:, :, 0], p)
        rest = N[:, i] + (m[:, None] @ others)[:, 0]
        out = out | ((rest.norm(dim=1) <= 1e-2) & (N[:, i].norm(dim=1) > 0.5))
    return out


def rounded(y: Tensor, eps: float) -> Tensor:
    """y as it is in float32, if that is what the answer is wanted in."""
    return y.float().to(y.dtype) if eps > 1e-10 else y
