"""Newton's method on the conditions of a nearest point of {e(y) = 0, h(y) <= 0}, row by row, with safeguards.

A nearest point of x satisfies y - x + J^T l = 0 with l >= 0 for the inequalities and l = 0 for those that do not touch. A step
minimises d^T H d / 2 + (y - x) d with the constraints linearised, H = I + sum l_i Hess c_i. Its dual has the matrix J H^-1 J^T,
to which a small multiple of the distance to the last l is added, so that redundant constraints and singular points do no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from .complementarity import multipliers
from .ends import Ends
from .jets import Constraints, Jet, lengths
from .linear import apply, length

STEPS = 40  # at most; a row leaves when it has converged
ENOUGH = 1e-4  # part of the drop that the slope promises which a step must reach: Armijo's rule with its usual constant
HALVINGS = 8  # of a step that does not help, before it counts as failed
PROXIMAL = 1e-10  # weight of the distance to the last multipliers, raised a hundredfold where a step fails
LOWER = 0.9  # or the error of the conditions falls by this factor: near the end rounding hides the drop of the merit
STUCK = 6  # steps refused in a row before a row gives up: by then the proximal weight is a million, and steps are nothing
SOFTER = 100.0  # factor of the proximal weight where a step is refused
FIRMER = 0.1  # and where one is taken
REFUSED = 1e-6  # its least value after a refusal: below it the next step would be the same one
REACH = 4.0  # a step is believed up to so many distances to x and to the constraints
AROUND = 0.5  # and half the size of a set of ordinary size besides, so that rows that start near 0 can move
SLOW = 1e-3  # and this part of |x| + |y|
COST = 2.0  # price of violation over the largest multiplier: above 1 the merit is exact
DEAREST = 1e6  # the largest price: beyond it rounding of the violation outweighs the distance
BOUND = 10.0  # multipliers, as lengths, are at most so many distances to x: larger ones come from normals that nearly agree
TOUCH = 1e-6  # part of 1 + |y| within which a constraint touches a start
BLUR = 1e-8  # diagonal that makes normals that agree harmless: the root of rounding
FLATTEST = 1e-12  # gradients shorter than this are not divided by
PIVOT = 1e-5  # least pivot of a curvature that counts as positive definite
PIVOT_SHIFTED = 1e-4  # and, next to the root of its size, of one that was mended
MENDS = ((4.0, 0.0), (64.0, 0.0), (4.0, 0.3), (4.0, 1.1))  # weights, in sizes of H, of J^T J and of I; 1.1 of it is always enough
TINY = 1e-300  # keeps a quotient finite
DONE = 1e-12  # error of the conditions, relative to |x| + |y| + 1, at which a row leaves; the last step was quadratic


def definite(H: Tensor, J: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
    """The Cholesky factor of H + r J_A^T J_A with r >= 0 as small as it may be, then of H + r J_A^T J_A + t I; and r, (R,).

    On J_A d = const the first term changes nothing but a constant.
    """
    L, info = torch.linalg.cholesky_ex(H)
    weight = H.new_zeros(len(H))
    low = L.diagonal(dim1=1, dim2=2).amin(1)
    bad = ((info > 0) | ~(low > PIVOT)).nonzero()[:, 0]
    if not len(bad):
        return L, weight
    size = torch.linalg.matrix_norm(H[bad]).clamp(min=1.0)
    JA = J[bad] * held[bad].to(J.dtype)[:, :, None]
    outer, eye = JA.mT @ JA, torch.eye(H.shape[1], dtype=H.dtype, device=H.device)
    left = torch.arange(len(bad), device=H.device)
    for r, t in MENDS:
        M = H[bad[left]] + (r * size[left])[:, None, None] * outer[left] + (t * size[left])[:, None, None] * eye
        part, info = torch.linalg.cholesky_ex(M)
        good = (info == 0) & (part.diagonal(dim1=1, dim2=2).amin(1) > PIVOT_SHIFTED * size[left].sqrt())
        good = good | (t == MENDS[-1][1])
        at = left[good]
        L[bad[at]], weight[bad[at]] = part[good], r * size[at]
        left = left[~good]
        if not len(left):
            break
    return L, weight


def conditions(x, y, c, J, l, scale, p) -> tuple[Tensor, Tensor]:
    """How far the conditions are from holding, and the largest violation, both in units of length, (R,).

    For an inequality u <= 0 with multiplier m >= 0 and u m = 0, which is max(u, -m) = 0.
    """
    still = length(y - x + (l[:, None] @ J)[:, 0])
    u, m = c / scale, l * scale
    inner = torch.arange(u.shape[1], device=u.device) >= p
    gap = torch.where(inner, torch.maximum(u, -m), u).abs().amax(1)
    return torch.maximum(still, gap), torch.where(inner, u.clamp(min=0), u.abs()).amax(1)


def violated(u: Tensor, p: int) -> Tensor:
    """The sum of the violations, (R,)."""
    return u[:, :p].abs().sum(1) + u[:, p:].clamp(min=0).sum(1)


def first_multipliers(x: Tensor, y: Tensor, c: Tensor, J: Tensor, p: int) -> Tensor:
    """The multipliers of the constraints that touch at y which leave least of y - x + J^T l: without them, far from x, the
    curvature of the set would be missing from the first step."""
    scale = lengths(J).clamp(min=FLATTEST)
    N = torch.where(torch.isfinite(J), J, 0.0) / scale[:, :, None]
    near = TOUCH * (1 + y.norm(dim=1, keepdim=True))
    touch = (c / scale > -near) | (torch.arange(c.shape[1], device=c.device) < p)
    r = torch.where(touch, (N @ (x - y)[:, :, None])[:, :, 0], -1.0)
    l = multipliers(N, r, r.new_full((len(r),), BLUR), p, touch) / scale
    return torch.where(torch.isfinite(l) & touch, l, 0.0)


@dataclass
class Walk:
    """The rows under way: x, the point y, what the constraints say there, the multipliers l, and the state of the safeguards.

    scale (R, k): the largest gradient so far, by which every constraint is divided. soft: weight of the distance to the last
    multipliers. price: of violation in the merit function. stuck: steps refused in a row. error: of the conditions at y.
    """

    rows: Tensor
    x: Tensor
    y: Tensor
    c: Tensor
    J: Tensor
    H: Tensor
    l: Tensor
    scale: Tensor
    soft: Tensor
    price: Tensor
    stuck: Tensor
    error: Tensor

    def keep(self, left: Tensor) -> None:
        """Go on with these rows alone."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name).index_select(0, left))


def newton(x: Tensor, constraints: Constraints, start: Tensor, steps: int = STEPS) -> Ends:
    """From `start`, (R, n). Rows that are finished, or stuck, leave the batch."""
    w = set_out(x, constraints, start)
    out = Ends.nowhere(w.y, Jet(w.c, w.J, w.scale, w.H, None, slice(0, 0)))
    for turn in range(steps + 1):
        off = look(w, constraints.equalities)
        write_down(out, w, (w.error < out.error[w.rows]) & torch.isfinite(w.error), off)
        out.steps[w.rows] = turn
        leave = (w.error <= DONE) | (w.stuck > STUCK) | ~torch.isfinite(w.error)
        if turn == steps or bool(leave.all()):
            break
        if bool(leave.any()):
            w.keep((~leave).nonzero()[:, 0])
        go(w, constraints, *direction(w, constraints.equalities))
    return out


def set_out(x: Tensor, constraints: Constraints, start: Tensor) -> Walk:
    """The state of all rows at their start, with values, Jacobians, first multipliers and curvature there."""
    rows, y = torch.arange(len(x), device=x.device), start.clone()
    c, J, _ = constraints.expand(y, rows, None)
    l, H = torch.zeros_like(c), x.new_zeros(len(x), x.shape[1], x.shape[1])
    if start is not x:  # there the multipliers are 0
        l = first_multipliers(x, y, c, J, constraints.equalities)
        H = constraints.expand(y, rows, l)[2]
        assert H is not None
        H = torch.where(torch.isfinite(H).all((1, 2), keepdim=True), H, 0.0)
    soft, zero = x.new_full((len(x),), PROXIMAL), x.new_zeros(len(x))
    return Walk(rows, x, y, c, J, H, l, lengths(J).clamp(min=FLATTEST), soft, zero, torch.zeros_like(rows), zero)


def size_of(w: Walk) -> Tensor:
    """What the lengths of each row are relative to, (R,)."""
    return length(w.x) + length(w.y) + TINY


def look(w: Walk, p: int) -> Tensor:
    """The error of every row is put into w; the violation is returned, (R,)."""
    error, off = conditions(w.x, w.y, w.c, w.J, w.l, w.scale, p)
    w.error = error / size_of(w)
    return off


def write_down(out: Ends, w: Walk, pick: Tensor, off: Tensor) -> None:
    """The points of these rows become their ends."""
    at = w.rows[pick]
    new = Ends(w.y, w.l, w.error, off, out.steps[w.rows], w.c, w.J, w.H)
    out.put(at, new.of(pick))


def longest(w: Walk, u: Tensor, p: int) -> Tensor:
    """The longest step that is believed, (R,)."""
    return REACH * (length(w.y - w.x) + violated(u, p) + SLOW * size_of(w)) + AROUND


def direction(w: Walk, p: int) -> tuple[Tensor, Tensor]:
    """The step d (R, n), capped, and the new multipliers (R, k), in units of `scale`."""
    n = w.x.shape[1]
    u, N, m = w.c / w.scale, w.J / w.scale[:, :, None], w.l * w.scale
    held = torch.cat([torch.ones_like(u[:, :p], dtype=torch.bool), m[:, p:] > 0], 1)
    L, stiff = definite(torch.eye(n, dtype=u.dtype, device=u.device) + w.H, N, held)
    weight = stiff[:, None] * held
    g = w.y - w.x + apply(N.mT, weight * u)
    d = -torch.cholesky_solve(g[:, :, None], L)[:, :, 0]
    V = torch.linalg.solve_triangular(L, N.mT, upper=False)
    new = multipliers(V.mT, u + apply(N, d) + w.soft[:, None] * m, w.soft, p, held)
    d = d - torch.linalg.solve_triangular(L.mT, V @ new[:, :, None], upper=True)[:, :, 0]
    new = new + weight * (u + apply(N, d))
    new = torch.cat([new[:, :p], new[:, p:].clamp(min=0)], 1)
    return d * (longest(w, u, p) / d.norm(dim=1).clamp(min=TINY)).clamp(max=1.0)[:, None], new


def go(w: Walk, constraints: Constraints, d: Tensor, new: Tensor) -> None:
    """The whole step where it lowers the merit or the error; a part of it where that does; else none, and a softer next one."""
    p, off = constraints.equalities, violated(w.c / w.scale, constraints.equalities)
    if new.shape[1]:
        w.price = torch.maximum(w.price, COST * new.abs().amax(1).clamp(max=DEAREST))
    merit = 0.5 * (w.y - w.x).square().sum(1) + w.price * off
    drop = (((w.y - w.x) * d).sum(1) - w.price * off).clamp(max=0)
    bound = BOUND * ((w.x - w.y).norm(dim=1) + off)[:, None]
    z, l = w.y + d, torch.minimum(torch.maximum(new, -bound), bound) / w.scale
    c, J, H = constraints.expand(z, w.rows, l)
    assert H is not None
    value = 0.5 * (z - w.x).square().sum(1) + w.price * violated(c / w.scale, p)
    error = conditions(w.x, z, c, J, l, w.scale, p)[0] / size_of(w)
    good = ((value <= merit + ENOUGH * drop) | (error <= LOWER * w.error)) & torch.isfinite(value) & usable(J, H)
    lost = (~good).nonzero()[:, 0]
    if len(lost):
        found, share = halved(w, d, merit, drop, constraints, lost)
        at, s = lost[found], share[found][:, None]
        z[at], l[at] = w.y[at] + s * d[at], w.l[at] + s * (l[at] - w.l[at])
        if len(at):
            c[at], J[at], H[at] = constraints.expand(z[at], w.rows[at], l[at])  # pyright: ignore[reportArgumentType]
            good[at] = usable(J[at], H[at])
    accept(w, good, z, l, c, J, H)


def usable(J: Tensor, H: Tensor) -> Tensor:
    """Which rows have finite derivatives, (R,)."""
    return torch.isfinite(J).all((1, 2)) & torch.isfinite(H).all((1, 2))


def accept(w: Walk, good: Tensor, z: Tensor, l: Tensor, c: Tensor, J: Tensor, H: Tensor) -> None:
    """The new state where the step was good, the old one without curvature and with a larger proximal weight elsewhere."""
    w.y, w.l, w.c = (torch.where(good[:, None], a, b) for a, b in ((z, w.y), (l, w.l), (c, w.c)))
    w.J, w.H = torch.where(good[:, None, None], J, w.J), torch.where(good[:, None, None], H, 0.0)
    w.soft = torch.where(good, (FIRMER * w.soft).clamp(min=PROXIMAL), (SOFTER * w.soft).clamp(min=REFUSED))
    w.stuck = torch.where(good, 0, w.stuck + 1)
    w.scale = torch.maximum(w.scale, lengths(w.J))


def halved(w: Walk, d: Tensor, merit: Tensor, drop: Tensor, constraints: Constraints, lost: Tensor) -> tuple[Tensor, Tensor]:
    """Which of the rows `lost` lower the merit after halving their step, and the share of the step: (len(lost),).

    All shares are tried in one call: for the few rows that are lost, a call costs more than its rows.
    """
    share = 0.5 ** torch.arange(1, HALVINGS + 1, dtype=d.dtype, device=d.device)
    at = lost.repeat_interleave(HALVINGS)
    t = share.repeat(len(lost))
    z = w.y[at] + t[:, None] * d[at]
    u = constraints.value(z, w.rows[at]) / w.scale[at]
    value = 0.5 * (z - w.x[at]).square().sum(1) + w.price[at] * violated(u, constraints.equalities)
    good = (value <= merit[at] + ENOUGH * t * drop[at]) & (value < merit[at])
    good = good.view(len(lost), HALVINGS)
    return good.any(1), share[good.to(torch.int8).argmax(1)]
