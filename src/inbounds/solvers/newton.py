"""Newton's method on the conditions of a nearest point of {e(y) = 0, h(y) <= 0}, row by row, with safeguards.

A nearest point of x satisfies y - x + J^T l = 0 with l >= 0 for the inequalities and l = 0 for those that do not touch. A step
minimises d^T H d / 2 + (y - x) d with the constraints linearised, H = I + sum l_i Hess c_i. Its dual has the matrix J H^-1 J^T,
to which a small multiple of the distance to the last l is added, so that redundant constraints and singular points do no harm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .pivoting import chosen

STEPS = 40
HALVINGS = 8
PROXIMAL = 1e-10  # weight of the distance to the last multipliers, raised a hundredfold where a step fails
DONE = 1e-12  # error of the conditions, relative to |x| + |y| + 1, at which a row leaves; the last step was quadratic


@dataclass(frozen=True)
class Constraints:
    """values(y, rows) -> (R, k): the first `equalities` are 0 on the set, the others <= 0; `rows` tells whose context it is."""

    values: Callable[[Tensor, Tensor], Tensor]
    equalities: int

    def expand(self, y: Tensor, rows: Tensor, l: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values (R, k), Jacobian (R, k, n), and sum l_i Hess c_i (R, n, n) unless l is None."""
        with torch.enable_grad():
            y = y.detach().requires_grad_()
            c = self.values(y, rows)
            if not c.requires_grad:
                return c.detach(), y.new_zeros(*c.shape, y.shape[1]), None if l is None else y.new_zeros(*y.shape, y.shape[1])
            J = derivatives(c, y, create=False)
            H = None
            if l is not None:
                (g,) = torch.autograd.grad((l.detach() * c).sum(), y, create_graph=True)
                H = derivatives(g, y, create=False) if g.requires_grad else y.new_zeros(*y.shape, y.shape[1])
                H = 0.5 * (H + H.mT)
        return c.detach(), J, H


def derivatives(c: Tensor, y: Tensor, create: bool) -> Tensor:
    """d c_i / d y for every row: (R, k), (R, n) -> (R, k, n). Functions that cannot be batched backwards are taken one by one."""
    k = c.shape[1]
    eye = torch.eye(k, dtype=c.dtype, device=c.device)[:, None].expand(k, *c.shape)
    how = {"retain_graph": True, "create_graph": create, "allow_unused": True}
    if k > 1:
        try:
            (J,) = torch.autograd.grad(c, y, eye, is_grads_batched=True, **how)
            return y.new_zeros(*c.shape, y.shape[1]) if J is None else J.movedim(0, 1)
        except RuntimeError:
            pass
    rows = [torch.autograd.grad(c, y, e, **how)[0] for e in eye]
    return torch.stack([torch.zeros_like(y) if r is None else r for r in rows], 1)


def complementary(G: Tensor, r: Tensor, p: int) -> Tensor:
    """l with s = r - G l: s = 0 for the first p; l >= 0, s <= 0 and l s = 0 for the others. G (R, k, k) positive definite.

    Block pivoting, then one index at a time, the last one first: finite for positive definite G.
    """
    k = r.shape[1]
    inner = torch.arange(k, device=r.device) >= p
    active = ~inner | (r > 0)
    l = torch.zeros_like(r)
    eye = torch.eye(k, dtype=r.dtype, device=r.device)
    for turn in range(12 + 4 * k):
        both = active[:, :, None] & active[:, None, :]
        L = torch.linalg.cholesky_ex(torch.where(both, G, 0.0) + eye * (~active)[:, :, None])[0]
        l = torch.cholesky_solve(torch.where(active, r, 0.0)[:, :, None], L)[:, :, 0]
        s = r - (G @ l[:, :, None])[:, :, 0]
        size = r.abs().amax(1, keepdim=True) if k else r
        wrong = inner & torch.where(active, l < 0, s > 1e-14 * size)
        if not bool(wrong.any()):
            break
        if turn >= 6:  # one at a time
            last = k - 1 - wrong.flip(1).to(torch.int8).argmax(1, keepdim=True)
            wrong = wrong & (torch.arange(k, device=r.device) == last)
        active = active ^ wrong
    return torch.where(inner, l.clamp(min=0), l)


def definite(H: Tensor, J: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
    """The Cholesky factor of H + r J_A^T J_A with r >= 0 as small as it may be, then of H + r J_A^T J_A + t I; and r, (R,).

    On J_A d = const the first term changes nothing but a constant.
    """
    L, info = torch.linalg.cholesky_ex(H)
    weight = H.new_zeros(len(H))
    low = L.diagonal(dim1=1, dim2=2).amin(1)
    bad = ((info > 0) | ~(low > 1e-5)).nonzero()[:, 0]
    if not len(bad):
        return L, weight
    size = torch.linalg.matrix_norm(H[bad]).clamp(min=1.0)
    JA = J[bad] * held[bad].to(J.dtype)[:, :, None]
    outer, eye = JA.mT @ JA, torch.eye(H.shape[1], dtype=H.dtype, device=H.device)
    left = torch.arange(len(bad), device=H.device)
    for r, t in ((4.0, 0.0), (64.0, 0.0), (4.0, 0.3), (4.0, 1.1)):
        M = H[bad[left]] + (r * size[left])[:, None, None] * outer[left] + (t * size[left])[:, None, None] * eye
        part, info = torch.linalg.cholesky_ex(M)
        good = (info == 0) & (part.diagonal(dim1=1, dim2=2).amin(1) > 1e-4 * size[left].sqrt())
        good = good | (t > 1.0)
        at = left[good]
        L[bad[at]], weight[bad[at]] = part[good], r * size[at]
        left = left[~good]
        if not len(left):
            break
    return L, weight


@dataclass
class Ends:
    """Where every row ended: point (R, n), multipliers (R, k), errors of the conditions and of the constraints (R,), steps."""

    y: Tensor
    l: Tensor
    error: Tensor
    violation: Tensor
    steps: Tensor


def conditions(x, y, c, J, l, scale, p) -> tuple[Tensor, Tensor, Tensor]:
    """|y - x + J^T l|, the largest violation and the largest failure of complementarity, in units of length."""
    still = (y - x + (l[:, None] @ J)[:, 0]).norm(dim=1)
    u, m = c / scale, l * scale
    off = torch.cat([u[:, :p].abs(), u[:, p:].clamp(min=0), torch.zeros_like(still)[:, None]], 1).amax(1)
    loose = torch.cat([torch.minimum(m[:, p:], -u[:, p:]).abs(), torch.zeros_like(still)[:, None]], 1).amax(1)
    return still, off, torch.maximum(loose, torch.relu(-m[:, p:]).amax(1) if m.shape[1] > p else loose)


def violated(u: Tensor, p: int) -> Tensor:
    """The sum of the violations, (R,)."""
    return u[:, :p].abs().sum(1) + u[:, p:].clamp(min=0).sum(1)


def first_multipliers(x: Tensor, y: Tensor, c: Tensor, J: Tensor, p: int) -> Tensor:
    """The multipliers of the constraints that touch at y which leave least of y - x + J^T l: without them, far from x, the
    curvature of the set would be missing from the first step."""
    scale = J.norm(dim=2).clamp(min=1e-12)
    N = torch.where(torch.isfinite(J), J, 0.0) / scale[:, :, None]
    near = 1e-6 * (1 + y.norm(dim=1, keepdim=True))
    touch = (c / scale > -near) | (torch.arange(c.shape[1], device=c.device) < p)
    r = torch.where(touch, (N @ (x - y)[:, :, None])[:, :, 0], -1.0)
    G = N @ N.mT + 1e-8 * torch.eye(c.shape[1], dtype=c.dtype, device=c.device)
    l = complementary(G, r, p) / scale
    return torch.where(torch.isfinite(l) & touch, l, 0.0)


def newton(x: Tensor, constraints: Constraints, start: Tensor, steps: int = STEPS) -> Ends:
    """From `start`, (R, n). Rows that are finished, or stuck, leave the batch."""
    R, p = len(x), constraints.equalities
    rows = torch.arange(R, device=x.device)
    y = start.clone()
    c, J, _ = constraints.expand(y, rows, None)
    k = c.shape[1]
    l = first_multipliers(x, y, c, J, p)
    c, J, H = constraints.expand(y, rows, l)
    assert H is not None
    H = torch.where(torch.isfinite(H).all((1, 2), keepdim=True), H, 0.0)
    out = Ends(y.clone(), l.clone(), x.new_full((R,), math.inf), x.new_full((R,), math.inf), torch.zeros_like(rows))
    scale = J.norm(dim=2).clamp(min=1e-12)
    soft, stuck, price = x.new_full((R,), PROXIMAL), torch.zeros_like(rows), x.new_zeros(R)
    eye = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    for turn in range(steps + 1):
        still, off, loose = conditions(x, y, c, J, l, scale, p)
        size = x.norm(dim=1) + y.norm(dim=1) + 1e-30
        error = torch.maximum(torch.maximum(still, loose), off) / size
        better = error < out.error[rows]
        # a feasible point is better than one that is not, whatever its other errors
        finite = torch.isfinite(error)
        at = rows[better & finite]
        pick = better & finite
        out.y[at], out.l[at], out.error[at], out.violation[at] = y[pick], l[pick], error[pick], off[pick]
        out.steps[rows] = turn
        leave = (error <= DONE) | (stuck > 6) | ~finite
        if turn == steps or bool(leave.all()):
            break
        if bool(leave.any()):
            keep = (~leave).nonzero()[:, 0]
            rows, x, y, c, J, H, l, scale = chosen(keep, rows, x, y, c, J, H, l, scale)
            soft, stuck, price, size, error = chosen(keep, soft, stuck, price, size, error)
        u, N, m = c / scale, J / scale[:, :, None], l * scale
        held = torch.cat([torch.ones_like(u[:, :p], dtype=torch.bool), m[:, p:] > 0], 1)
        L, stiff = definite(eye + H, N, held)
        g = y - x + (N.mT @ (stiff[:, None] * held * u)[:, :, None])[:, :, 0]
        d = -torch.cholesky_solve(g[:, :, None], L)[:, :, 0]
        V = torch.linalg.solve_triangular(L, N.mT, upper=False)
        G = V.mT @ V + soft[:, None, None] * torch.eye(k, dtype=x.dtype, device=x.device)
        new = complementary(G, u + (N @ d[:, :, None])[:, :, 0] + soft[:, None] * m, p)
        d = d - torch.linalg.solve_triangular(L.mT, V @ new[:, :, None], upper=True)[:, :, 0]
        new = new + stiff[:, None] * held * (u + (N @ d[:, :, None])[:, :, 0])
        new = torch.cat([new[:, :p], new[:, p:].clamp(min=0)], 1)
        length = d.norm(dim=1)
        cap = 4 * ((y - x).norm(dim=1) + violated(u, p) + 1e-3 * size) + 0.5
        d = d * (cap / length.clamp(min=1e-300)).clamp(max=1.0)[:, None]
        bound = 10 * ((x - y).norm(dim=1) + violated(u, p))[:, None]
        price = torch.maximum(price, 2 * new.abs().amax(1).clamp(max=1e6) if k else price)
        merit = 0.5 * (y - x).square().sum(1) + price * violated(u, p)
        drop = ((y - x) * d).sum(1) - price * violated(u, p)
        # the whole step first, with everything the next turn needs
        mixed = torch.minimum(torch.maximum(new, -bound), bound) / scale
        z = y + d
        c1, J1, H1 = constraints.expand(z, rows, mixed)
        assert H1 is not None
        u1 = c1 / scale
        m1 = 0.5 * (z - x).square().sum(1) + price * violated(u1, p)
        e1 = torch.stack(conditions(x, z, c1, J1, mixed, scale, p)).amax(0) / size
        good = (m1 <= merit + 1e-4 * drop.clamp(max=0)) | (e1 <= 0.9 * error)
        good = good & torch.isfinite(m1) & torch.isfinite(J1).all((1, 2)) & torch.isfinite(H1).all((1, 2))
        lost = (~good).nonzero()[:, 0]
        if len(lost):
            found, t = halved(x, y, d, merit, drop, price, scale, constraints, rows, lost, p)
            at = lost[found]
            if len(at):
                s = t[found][:, None]
                z[at] = y[at] + s * d[at]
                mixed[at] = l[at] + s * (mixed[at] - l[at])
                c1[at], J1[at], more = constraints.expand(z[at], rows[at], mixed[at])  # pyright: ignore[reportArgumentType]
                assert more is not None
                H1[at] = more
                good[at] = torch.isfinite(J1[at]).all((1, 2)) & torch.isfinite(H1[at]).all((1, 2))
        y = torch.where(good[:, None], z, y)
        l = torch.where(good[:, None], mixed, l)
        c, J = torch.where(good[:, None], c1, c), torch.where(good[:, None, None], J1, J)
        H = torch.where(good[:, None, None], H1, 0.0)
        soft = torch.where(good, (0.1 * soft).clamp(min=PROXIMAL), (100 * soft).clamp(min=1e-6))
        stuck = torch.where(good, 0, stuck + 1)
        scale = torch.maximum(scale, J.norm(dim=2))
    return out


def halved(x, y, d, merit, drop, price, scale, constraints, rows, lost, p) -> tuple[Tensor, Tensor]:
    """Which of the rows `lost` lower the merit after halving their step, and the share of the step: (len(lost),)."""
    found, share = torch.zeros(len(lost), dtype=torch.bool, device=x.device), x.new_ones(len(lost))
    left = torch.arange(len(lost), device=x.device)
    t = 1.0
    for _ in range(HALVINGS):
        t *= 0.5
        at = lost[left]
        z = y[at] + t * d[at]
        with torch.no_grad():
            u = constraints.values(z, rows[at]).detach() / scale[at]
        value = 0.5 * (z - x[at]).square().sum(1) + price[at] * violated(u, p)
        good = value <= merit[at] + 1e-4 * t * drop[at].clamp(max=0)
        good = good & (value < merit[at])
        found[left[good]], share[left[good]] = True, t
        left = left[~good]
        if not len(left):
            break
    return found, share
