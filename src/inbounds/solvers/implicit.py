"""A nearest point of {e(y) = 0, h(y) <= 0}: Newton's method from x, feasible points where it fails, restarts, landing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .newton import Constraints, Ends, complementary, newton
from .pivoting import chosen
from .solution import FLAT, NOT_CONVERGED, OK

GOOD = 1e-9  # error of the conditions, relative to |x| + |y|, of a row that is called converged
RESCUES = 8  # random starts for the rows that have no answer yet, whatever the user asked for
FIRST = 25  # steps of the first attempt
FAR = 1e6  # an x with larger entries is moved nearer along its ray
NEAR = 1e2  # to this distance, in sizes of the answer
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
        z = x[rows] + size * (1 + x[rows].norm(dim=1, keepdim=True)) * way / math.sqrt(n)
        c, J, _ = constraints.expand(z, rows, None)
        p = constraints.equalities
        slope, off = J.norm(dim=2), torch.cat([c[:, :p].abs(), c[:, p:].clamp(min=0)], 1)
        bad = ((slope <= 1e-8) & (off > 1e-8)).any(1) | ~torch.isfinite(J).all((1, 2)) | ~torch.isfinite(c).all(1)
        y[rows] = z
        rows = rows[bad]
        if not len(rows):
            break
    return y


def better(old: Ends, new: Ends, x: Tensor, rows: Tensor) -> None:
    """Put the new end of a row in the place of the old one where it is converged and nearer, or less infeasible."""
    was, now = old.error[rows] <= GOOD, new.error <= GOOD
    a, b = (old.y[rows] - x[rows]).norm(dim=1), (new.y - x[rows]).norm(dim=1)
    take = now & (~was | (b < a * (1 - 1e-9)))
    take = take | (~now & ~was & (new.violation < old.violation[rows]))
    at = rows[take]
    old.steps[rows] += new.steps
    for name in ("y", "l", "error", "violation"):
        getattr(old, name)[at] = getattr(new, name)[take]


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
    """P(y + s (x - y)) = P(x) for y = P(x): a far x is moved nearer along its ray, first to 0, then to what was found, thrice.

    Only the direction of such an x counts: the last y is stationary for x itself, with multipliers divided by s.
    """
    length = x.abs().amax(1, keepdim=True)
    moved = torch.where(far[:, None], x / length * NEAR, x)
    ends = search(moved, constraints, restarts)
    rows = (far & (ends.error <= GOOD)).nonzero()[:, 0]
    for _ in range(3):
        y, part = ends.y[rows], restricted(constraints, rows)
        away = x[rows] - y
        distance = away.abs().amax(1, keepdim=True)
        s = NEAR * (1 + y.norm(dim=1, keepdim=True)) / distance
        new = newton(y + s * away, part, y)
        ends.y[rows], ends.l[rows] = new.y, new.l / s
        ends.error[rows], ends.violation[rows] = new.error, new.violation
        ends.steps[rows] += new.steps
    return ends


def search(x: Tensor, constraints: Constraints, restarts: int) -> Ends:
    """Newton's method from x; where it fails, from a feasible point; then from random ones."""
    start = begin(x, constraints)
    ends = newton(x, constraints, start, FIRST)
    bad = (ends.error > GOOD).nonzero()[:, 0]
    if len(bad):
        attempt(ends, x, start[bad], constraints, bad)
    noise = torch.Generator().manual_seed(0)
    for turn in range(max(restarts, RESCUES)):
        rows = torch.arange(len(x), device=x.device) if turn < restarts else (ends.error > GOOD).nonzero()[:, 0]
        if not len(rows):
            continue
        # around x, and around 0, where the limits of joints and the like usually leave room
        size = (0.7, 0.5, 0.3, 1.0)[turn % 4] * (1 + x[rows].norm(dim=1, keepdim=True) / math.sqrt(x.shape[1]))
        middle = x[rows] if turn % 2 == 0 else 0.3 * x[rows]
        z = middle + size * torch.randn(x.shape[1], generator=noise, dtype=torch.float64).to(x)
        attempt(ends, x, begin(z, restricted(constraints, rows)), constraints, rows)
    return ends


def attempt(ends: Ends, x: Tensor, start: Tensor, constraints: Constraints, rows: Tensor) -> None:
    """Newton's method from feasible points near `start`, for the rows that have them; the better end of each row is kept."""
    z = feasible(start, constraints, rows)
    c, J, _ = constraints.expand(z, rows, None)
    off = measure(c / J.norm(dim=2).clamp(min=1e-12), constraints.equalities).sqrt()
    near = (off <= 1e-4 * (1 + z.norm(dim=1))).nonzero()[:, 0]
    worse = (off < ends.violation[rows]) & (ends.error[rows] > GOOD)
    ends.y[rows[worse]], ends.violation[rows[worse]] = z[worse], off[worse]
    if len(near):
        at = rows[near]
        better(ends, newton(x[at], restricted(constraints, at), z[near]), x, at)


def landed(x: Tensor, constraints: Constraints, ends: Ends, eps: float, finite: Tensor) -> Answer:
    """The ends moved `LAND` units of rounding inside the inequalities they touch, rounded to the caller's dtype."""
    p, rows = constraints.equalities, torch.arange(len(x), device=x.device)
    y = ends.y.clone()
    c, J, _ = constraints.expand(y, rows, None)
    slope = J.norm(dim=2).clamp(min=1e-300)
    unit = eps * slope * (y.norm(dim=1, keepdim=True) + 1e-30)
    # with complementarity, either the multiplier or the room is 0 to rounding: the larger one tells
    pushed = (ends.l * slope > -c / slope) & (ends.l > 0)
    touch = torch.cat([torch.ones_like(c[:, :p], dtype=torch.bool), (pushed | (c > -8 * LAND * unit))[:, p:]], 1)
    active = torch.cat([touch[:, :p], (pushed | (c > -1e-3 * unit))[:, p:]], 1)
    inner = torch.arange(c.shape[1], device=x.device) >= p
    best, point = x.new_full((len(x),), math.inf), rounded(y, eps)
    depth = x.new_full((len(x),), float(LAND))
    at = rows
    for turn in range(6):
        there = rounded(y[at], eps)
        u = constraints.expand(there, at, None)[0] / slope[at]
        over = torch.cat([u[:, p:], u.new_full((len(at), 1), -math.inf)], 1).amax(1)
        off = torch.cat([u[:, :p].abs(), u.new_zeros(len(at), 1)], 1).amax(1) / (eps * (y[at].norm(dim=1) + 1e-30))
        cost = torch.where(over > 0, 1e6 + over / eps, 0.0) + off
        cost = torch.where(torch.isfinite(cost), cost, math.inf)
        nearer = (cost < 0.5 * best[at]) | (turn == 0)
        point[at[nearer]], best[at[nearer]] = there[nearer], cost[nearer]
        left = ((over > 0) | (off > 4)) & (ends.error[at] <= GOOD)
        at, over = at[left], over[left]
        if not len(at) or turn == 5:
            break
        c, J, _ = constraints.expand(y[at], at, None)
        N = torch.where(touch[at][:, :, None], J / slope[at][:, :, None], 0.0)
        gap = torch.where(touch[at], c / slope[at] + torch.where(inner, depth[at][:, None] * unit[at] / slope[at], 0.0), 0.0)
        # inequalities that touch are pushed inside, those that are there already stay
        G = N @ N.mT + 1e-12 * torch.eye(N.shape[1], dtype=x.dtype, device=x.device)
        m = complementary(G, gap, p)
        y[at] = y[at] - (m[:, None] @ N)[:, 0]
        depth[at] = torch.where(over > 0, 2 * depth[at], depth[at])
    u = constraints.expand(point, rows, None)[0] / slope
    over = torch.cat([u[:, p:], u.new_full((len(x), 1), -math.inf)], 1).amax(1)
    off = torch.cat([u[:, :p].abs(), over.clamp(min=0)[:, None]], 1).amax(1)
    room = 8 * eps * (point.norm(dim=1) + 1e-30)
    good = (ends.error <= GOOD) & (off <= 8 * room) & torch.isfinite(off)
    status = torch.where(good, torch.where(over > 0, FLAT, OK), NOT_CONVERGED)
    lost = (~good & finite & (off <= 1e-6 * (1 + point.norm(dim=1)))).nonzero()[:, 0]
    if len(lost):  # touching sets: feasible to the root of rounding, and the normals there cancel
        c, J, _ = constraints.expand(point[lost], lost, None)
        N = J / J.norm(dim=2, keepdim=True).clamp(min=1e-300)
        N = torch.where(((c / slope[lost]) > -1e-4 * (1 + point[lost].norm(dim=1, keepdim=True)))[:, :, None], N, 0.0)
        status[lost] = torch.where(cancel(N, p), FLAT, NOT_CONVERGED)
    status = torch.where(finite, status, NOT_CONVERGED)
    worst = torch.maximum(over, torch.cat([u[:, :p].abs(), u.new_full((len(x), 1), -math.inf)], 1).amax(1))
    return Answer(point, ends.l, active, ends.error, worst, status, ends.steps)


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
    return y.float().to(y.dtype) if eps > 1e-10 else y


def differential(H: Tensor, J: Tensor, active: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """v, m with H v + J_A^T m = g, J_A v = 0: the derivative of a nearest point, which is symmetric. J has unit rows.

    A small negative diagonal makes redundant constraints harmless, three refinements take its effect away.
    """
    n, k = H.shape[1], J.shape[1]
    N = J * active.to(J.dtype)[:, :, None]
    low = torch.diag_embed(torch.where(active, 1e-9, 1.0).to(J.dtype))
    K = torch.cat([torch.cat([H, N.mT], 2), torch.cat([N, -low], 2)], 1)
    exact = torch.cat([torch.cat([H, N.mT], 2), torch.cat([N, -torch.diag_embed((~active).to(J.dtype))], 2)], 1)
    rhs = torch.cat([g, g.new_zeros(len(g), k)], 1)[:, :, None]
    LU, pivots, _ = torch.linalg.lu_factor_ex(K)
    s = torch.linalg.lu_solve(LU, pivots, rhs)
    for _ in range(3):
        s = s + torch.linalg.lu_solve(LU, pivots, rhs - exact @ s)
    s = torch.where(torch.isfinite(s), s, 0.0)[:, :, 0]
    return s[:, :n], s[:, n:]
