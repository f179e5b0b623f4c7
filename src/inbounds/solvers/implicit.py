"""A nearest point of {e(y) = 0, h(y) <= 0}: Newton's method from x, feasible points where it fails, restarts, landing."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..kernels.vectors import pulled_in
from .complementarity import multipliers
from .ends import Ends
from .jets import Constraints, Jet
from .landing import GOOD, Answer, landed
from .newton import FLATTEST, STEPS, newton
from .pivoting import chosen
from .quadratic import steps_to_nearest

RESCUES = 8  # random starts for the rows that have no answer, whatever the user asked for
USUAL = 4  # of them for the rows that have one, but a late one
FIRST = 25  # careful steps of the first attempt
LATE = 12  # careful steps after which a row has left the surroundings of x: two of 400 arms did, and ended farther than needed
TRIAL = 15  # careful steps from a random start: of 256 arms none got nearer by 40
FAR = 1e6  # an x with larger entries is moved nearer along its ray
NEAR = 1e2  # to this distance, in sizes of the answer
ROUNDS = 8  # of moving it nearer
DRIFT = 1e-13  # relative change of the answer at which these rounds end
TRIES = 60  # steps to a feasible point, at most; quadratic ones are done after ten, what needs more turns around something
DAMPING = 1e-2  # of the first of them, in units of the squared normals, which have length 1
DAMPED = (0.2, 8.0)  # its factors after a step that helps, and after one that does not: Levenberg's rule, faster up than down
UNDAMPED = 1e-10  # its least value: below it normals that agree make the system singular
HOPELESS = 1e6  # its largest: steps are then a millionth of what is needed
ON_SET = 1e-18  # squared violation, next to 1 + |y|^2, at which a point is feasible: that of the 1e-9 of GOOD
WINDOW = 10  # of these steps in which the squared violation must fall
FALL = 0.5  # by this factor; slower rows creep to where the set is empty; 0.9 saved next to nothing on 30 loads of 30 buses
STRIDE = 0.5  # the longest of these steps, in sizes of the point
KICKS = (
    1e-2,
    1e-1,
    0.5,
    2.0,
)  # in sizes of the point, the smallest that helps: it must leave a saddle, or a region without numbers
PHASE = (1.0, 1.7)  # of the cosines that make the direction of a kick: without zeros, equal entries or a pattern of signs
LEVEL = 1e-8  # gradients below it are 0, violations below it are none: the root of rounding
NEARER = 1e-9  # part of a distance by which another point must be nearer to replace one: below GOOD they are the same point
CLOSE = 1e-4  # part of 1 + |z| within which a point is feasible enough to start Newton's method
MIDDLES = (1.0, 0.3, 0.6, 0.0)  # of random starts, in x: from x itself to 0, around which limits usually leave room
SPREADS = (0.5, 0.1, 0.2, 0.2, 0.3, 0.3, 0.5, 0.5)  # and how far around, in sizes of x; both tuned on 200 arms from far
TINY = 1e-300  # keeps a quotient finite
MEMORY = 2e7  # numbers in the Hessians of the starts that are tried at once


def feasible(y: Tensor, constraints: Constraints, rows: Tensor, steps: int = TRIES) -> Tensor:
    """Points with little violation, from y: Gauss-Newton with damping, all inequalities linearised, worse steps refused."""
    p = constraints.equalities
    y, out = y.clone(), y.clone()
    c, J, _ = constraints.expand(y, rows, None)
    scale = J.norm(dim=2).clamp(min=FLATTEST)
    soft, here = y.new_full((len(y),), DAMPING), torch.arange(len(y), device=y.device)
    held = torch.zeros_like(c, dtype=torch.bool)
    before = y.new_full((len(y),), math.inf)
    for turn in range(steps):
        u, N = c / scale, J / scale[:, :, None]
        cost = measure(u, p)
        done = ~(cost > ON_SET * (1 + y.square().sum(1))) | (soft > HOPELESS)
        if turn % WINDOW == 0:
            done, before = done | (cost > FALL * before), cost
        if bool(done.any()):
            out[here[done]] = y[done]
            left = (~done).nonzero()[:, 0]
            if not len(left):
                return out
            here, rows, y, c, J, scale, soft = chosen(left, here, rows, y, c, J, scale, soft)
            u, N, cost, held, before = chosen(left, u, N, cost, held, before)
        m = multipliers(N, u, soft, p, held)
        held = m > 0
        d = -(m[:, None] @ N)[:, 0]
        cap = STRIDE * (1 + y.norm(dim=1))
        d = d * (cap / d.norm(dim=1).clamp(min=TINY)).clamp(max=1.0)[:, None]
        z = y + d
        c1, J1, _ = constraints.expand(z, rows, None)
        good = (measure(c1 / scale, p) < cost) & torch.isfinite(J1).all((1, 2))
        y, c = torch.where(good[:, None], z, y), torch.where(good[:, None], c1, c)
        J = torch.where(good[:, None, None], J1, J)
        soft = torch.where(good, (DAMPED[0] * soft).clamp(min=UNDAMPED), DAMPED[1] * soft)
        scale = torch.maximum(scale, J.norm(dim=2))
    out[here] = y
    return out


def measure(u: Tensor, p: int) -> Tensor:
    """The sum of the squared violations, (R,); inf where it is not a number."""
    s = u[:, :p].square().sum(1) + u[:, p:].clamp(min=0).square().sum(1)
    return torch.where(torch.isfinite(s), s, math.inf)


def begin(x: Tensor, constraints: Constraints) -> tuple[Tensor, Jet]:
    """x, kicked a little, always the same way, where a violated constraint has no gradient or is not a number; derivatives."""
    rows = torch.arange(len(x), device=x.device)
    jet = constraints.jet(x, rows, None, None)
    bad = singular(jet, constraints.equalities).nonzero()[:, 0]
    if not len(bad):
        return x, jet
    n, y, left = x.shape[1], x.clone(), bad
    way = torch.cos(PHASE[0] + PHASE[1] * torch.arange(n, dtype=x.dtype, device=x.device))
    for size in KICKS:
        y[left] = x[left] + size * (1 + x[left].norm(dim=1, keepdim=True)) * way / math.sqrt(n)
        left = left[singular(constraints.jet(y[left], left, None, None), constraints.equalities)]
        if not len(left):
            break
    return y, constraints.jet(y, rows, None, None)


def singular(jet: Jet, p: int) -> Tensor:
    """Whether a violated constraint has no gradient, or something is not a number, (R,)."""
    off = jet.c.abs() if p == jet.c.shape[1] else torch.cat([jet.c[:, :p].abs(), jet.c[:, p:].clamp(min=0)], 1)
    bad = (jet.scale <= LEVEL) & (off > LEVEL) | ~torch.isfinite(jet.scale + off)  # a gradient that is not finite has no length
    return bad[:, 0] if bad.shape[1] == 1 else bad.any(1)


def better(old: Ends, new: Ends, x: Tensor, rows: Tensor) -> None:
    """Put the new end of a row in the place of the old one where it is converged and nearer, or less infeasible."""
    was, now = old.error[rows] <= GOOD, new.error <= GOOD
    a, b = (old.y[rows] - x[rows]).norm(dim=1), (new.y - x[rows]).norm(dim=1)
    take = now & (~was | (b < a * (1 - NEARER)))
    take = take | (~now & ~was & (new.violation < old.violation[rows]))
    at = rows[take]
    new.steps = old.steps[rows] + new.steps
    old.steps[rows] = new.steps
    old.put(at, new.of(take))


def nearest_implicit(x: Tensor, constraints: Constraints, restarts: int | None, eps: float) -> Answer:
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
        better(ends, from_afar(x[bad], all_of_them, constraints.restricted(bad), restarts), x, bad)
    return landed(x, constraints, ends, eps, finite)


def from_afar(x: Tensor, far: Tensor, constraints: Constraints, restarts: int | None) -> Ends:
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
        y, part = ends.y[rows], constraints.restricted(rows)
        away, room = x[rows] - y, NEAR * (1 + y.norm(dim=1, keepdim=True))
        s = (room / away.abs().amax(1, keepdim=True)).clamp(max=1.0)
        new = descend(y + s * away, part, y)
        drift = (new.y - y).norm(dim=1) / room[:, 0]
        new.l, new.error = new.l / s, torch.maximum(new.error, drift)
        new.steps += ends.steps[rows]
        ends.put(rows, new)
        rows = rows[(drift > DRIFT) & (new.error < math.inf)]
    return ends


def descend(x: Tensor, constraints: Constraints, start: Tensor, steps: int = STEPS, jet: Jet | None = None) -> Ends:
    """Steps without safeguards, and careful ones for the rows that they do not bring to a minimum."""
    ends = steps_to_nearest(x, constraints, start, jet)
    lost = ends.error.isinf().nonzero()[:, 0]
    if len(lost):
        ends.put(lost, newton(x[lost], constraints.restricted(lost), start[lost], steps))
    return ends


def first_found(x: Tensor, constraints: Constraints) -> Ends:
    """The first answer of a row: from a feasible point near x, else by careful steps from x, else from random starts.

    Among many curved constraints this is the quick way: of 800 loads of 30 buses no step without safeguards arrived from x, and
    799 did from a feasible point, after three. `search` gives such rows random starts, which took most of its time.
    """
    start, _ = begin(x, constraints)
    ends = attempt(x, start, constraints)
    bad = (ends.error > GOOD).nonzero()[:, 0]
    if len(bad):
        better(ends, newton(x[bad], constraints.restricted(bad), start[bad], FIRST), x, bad)
    scatter(ends, x, constraints, (ends.error > GOOD).nonzero()[:, 0], starts(x, RESCUES))
    return ends


def starts(x: Tensor, count: int) -> Tensor:
    """Directions of random starts, always the same, (count, n)."""
    return torch.randn(count, x.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(x)


def search(x: Tensor, constraints: Constraints, restarts: int | None) -> Ends:
    """Newton's method from x; where it fails, from a feasible point; then from random ones.

    A row that takes many steps has left the surroundings of x: what it finds then is often not the nearest point. It gets half of
    the random starts of one that found nothing.
    """
    if restarts is None:
        return first_found(x, constraints)
    start, jet = begin(x, constraints)
    ends = descend(x, constraints, start, FIRST, jet)
    hard = (ends.error > GOOD) | (ends.steps >= LATE)
    bad = (ends.error > GOOD).nonzero()[:, 0]
    if len(bad):
        better(ends, attempt(x[bad], start[bad], constraints.restricted(bad)), x, bad)
    noise = starts(x, max(restarts, RESCUES))
    scatter(ends, x, constraints, torch.arange(len(x), device=x.device), noise[:restarts])
    scatter(ends, x, constraints, hard.nonzero()[:, 0], noise[restarts : restarts + USUAL], restarts)
    scatter(ends, x, constraints, (ends.error > GOOD).nonzero()[:, 0], noise[restarts + USUAL :], restarts + USUAL)
    return ends


def scatter(ends: Ends, x: Tensor, constraints: Constraints, rows: Tensor, noise: Tensor, before: int = 0) -> None:
    """Attempts from starts around x, around 0, and between: noise (T, n), after `before` others.

    Many starts of a row are rows of one batch, as far as memory allows.
    """
    if not len(rows) or not len(noise):
        return
    turns = torch.arange(len(noise), device=x.device)
    spread = x.new_tensor(SPREADS)[(before + turns) % len(SPREADS)]
    middle = x.new_tensor(MIDDLES)[(before + turns) % len(MIDDLES)]
    for part in turns.split(max(1, int(MEMORY / (len(rows) * x.shape[1] ** 2)))):
        at = rows.repeat(len(part))
        each = part.repeat_interleave(len(rows))
        size = spread[each, None] * (1 + x[at].norm(dim=1, keepdim=True) / math.sqrt(x.shape[1]))
        own = constraints.restricted(at)
        found = attempt(x[at], begin(middle[each, None] * x[at] + size * noise[each], own)[0], own, TRIAL)
        for turn in range(len(part)):
            better(ends, found.of(torch.arange(turn * len(rows), (turn + 1) * len(rows), device=x.device)), x, rows)


def attempt(x: Tensor, start: Tensor, constraints: Constraints, steps: int = STEPS) -> Ends:
    """Newton's method from feasible points near `start`, for the rows that have them; the others end where they violate least."""
    rows = torch.arange(len(x), device=x.device)
    z = feasible(start, constraints, rows)
    jet = constraints.jet(z, rows, None, None)
    off = measure(jet.c / jet.scale, constraints.equalities).sqrt()
    ends = Ends.nowhere(z, jet)
    ends.violation = off
    near = (off <= CLOSE * (1 + z.norm(dim=1))).nonzero()[:, 0]
    if len(near):
        ends.put(near, descend(x[near], constraints.restricted(near), z[near], steps, jet.of(near)))
    return ends
