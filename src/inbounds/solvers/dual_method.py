"""The dual method of Goldfarb and Idnani for the rows that block pivoting leaves: finite, and it certifies an empty set.

It keeps a list J of faces with multipliers l >= 0 such that y is the nearest point of {A_J y = b_J} and of {A_J y <= b_J}. A step
takes the most violated face p and raises its multiplier: until p holds (p joins J), or until another multiplier is 0 (that face
leaves J). Where neither happens, the multipliers prove that the set is empty.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .pivoting import EPS, back, chosen, factor, independent, on_faces, pick, rows_of, take, times, tolerance

DEPENDENT = 1e-11  # distance of a unit normal from the span of others that is rounding: QR is exact to a few 1e-16
FAR = 1e4  # a certificate of emptiness must hold for all points within FAR (|x| + |y| + size)


def frame(A: Tensor, J: Tensor) -> tuple[Tensor, Tensor]:
    """Q (R, n, K) and upper triangular T (R, K, K) with A_J^T = Q T; padded slots (the last ones) are 0 in Q and 1 in T."""
    pad = J == A.shape[-2]
    Q, T = torch.linalg.qr(take(A, J).mT)
    Q = Q.masked_fill(pad[:, None, :], 0.0)
    both = pad[:, :, None] | pad[:, None, :]
    return Q, torch.where(both, torch.diag_embed(pad.to(T.dtype)), T)


def exact_on_faces(x: Tensor, A: Tensor, b: Tensor, J: Tensor) -> tuple[Tensor, Tensor]:
    """`on_faces` by QR: right also where the normals are nearly parallel."""
    Q, T = frame(A, J)
    d = pick(b, J)[:, :, None]
    foot = torch.linalg.solve_triangular(T.mT, d, upper=False)
    w = Q.mT @ x[:, :, None] - foot
    y = x - (Q @ w)[:, :, 0]
    y = y - (Q @ (Q.mT @ y[:, :, None] - foot))[:, :, 0]
    return y, torch.linalg.solve_triangular(T, w, upper=True)[:, :, 0]


def fast_dual_method(x: Tensor, A: Tensor, b: Tensor, J: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """`dual_method` with the inverse of A_J A_J^T kept up to date, and no certificate: J, whether it seems to be finished.

    Rounding adds up along the way: the caller solves on J anew, and gives the rows that fail to `dual_method`.
    """
    # declared, because a type checker would otherwise infer them around the loop without end
    rows: Tensor
    p: Tensor
    lp: Tensor
    l: Tensor
    y: Tensor
    C: Tensor
    H: Tensor
    size: Tensor
    floor: Tensor
    R, n = x.shape
    m, K = A.shape[-2], J.shape[1]
    out, finished = J.clone(), torch.zeros(R, dtype=torch.bool, device=x.device)
    rows, C = torch.arange(R, device=x.device), take(A, J)
    H = torch.cholesky_inverse(factor(C, J == m))
    l = times(H, times(C, x) - pick(b, J)).clamp(min=0).masked_fill(J == m, 0.0)
    y = x - back(C, l)
    p, lp = torch.full((R,), -1, device=x.device), x.new_zeros(R)
    size = x.norm(dim=1)
    floor = 16 * EPS * torch.where(torch.isfinite(b), b.abs(), 0.0)
    for _ in range(steps):
        over = times(A, y) - b
        worst, index = (over - floor).max(1)
        new = p < 0
        done = new & (worst <= 16 * EPS * torch.maximum(size, y.norm(dim=1)))
        p = torch.where(new, index, p)
        a = take(A, p[:, None])[:, 0]
        r = times(H, times(C, a))
        z = a - back(C, r)
        zz = (z * a).sum(1)
        free = J == m
        moves = (zz > 1e-10) & free.any(1)
        reach = torch.where(moves, over.gather(1, p[:, None])[:, 0].clamp(min=0) / torch.where(moves, zz, 1.0), math.inf)
        blocks = (r > 0) & ~free
        block, slot = torch.where(blocks, l / torch.where(blocks, r, 1.0), math.inf).min(1)
        t = torch.minimum(reach, block)
        stop = done | t.isinf()
        at = stop.nonzero()[:, 0]
        if len(at):
            out[rows[at]] = J[at]
            finished[rows[at]] = done[at]
            if len(at) == len(rows):
                break
        joins = reach <= block
        l = (l - t[:, None] * r).clamp(min=0).masked_fill(free, 0.0)
        lp = lp + t
        y = y - t[:, None] * z * moves[:, None]
        place = torch.where(joins, free.to(torch.int8).argmax(1), slot)[:, None]
        # one rank-one update of H: a border for the face that joins, its removal for the face that leaves
        column = H.gather(1, place[:, :, None].expand(-1, 1, K))[:, 0]
        w = torch.where(joins[:, None], (-r).scatter(1, place, 1.0), column)
        scale = torch.where(joins, 1 / torch.where(joins, zz, 1.0), -1 / torch.where(joins, 1.0, column.gather(1, place)[:, 0]))
        H = torch.baddbmm(H, (scale[:, None] * w)[:, :, None], w[:, None])
        one = torch.where(joins, -1.0, 1.0).to(H.dtype)[:, None]
        H.view(len(H), -1).scatter_add_(1, place * (K + 1), one)
        J = J.scatter(1, place, torch.where(joins, p, m)[:, None])
        l = l.scatter(1, place, torch.where(joins, lp, 0.0)[:, None])
        C = C.scatter(1, place[:, :, None].expand(-1, 1, n), torch.where(joins[:, None], a, 0.0)[:, None])
        p, lp = torch.where(joins, -1, p), torch.where(joins, 0.0, lp)
        if len(at):
            left = (~stop).nonzero()[:, 0]
            rows, p, J, l, lp = chosen(left, rows, p, J, l, lp)
            x, y, C, H, size = chosen(left, x, y, C, H, size)
            A, b, floor = rows_of(A, left, 2), rows_of(b, left, 1), rows_of(floor, left, 1)
    return out.sort(1).values, finished


def dual_feasible(x: Tensor, A: Tensor, b: Tensor, J: Tensor) -> Tensor:
    """A part of J whose multipliers are all >= 0."""
    m = A.shape[-2]
    J = independent(A, J)
    for _ in range(J.shape[1]):
        _, l = on_faces(x, A, b, J)
        push = (l < 0) & (J < m)
        if not bool(push.any()):
            break
        J = J.masked_fill(push, m).sort(1).values
    return J


def dual_method(x: Tensor, A: Tensor, b: Tensor, J: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """J for every row, padded with m; whether the row is finished; whether the set is certified empty; the steps it took."""
    # declared, because a type checker would otherwise infer them around the loop without end
    rows: Tensor
    p: Tensor
    lp: Tensor
    l: Tensor
    y: Tensor
    R = len(x)
    m, K = A.shape[-2], J.shape[1]
    J = dual_feasible(x, A, b, J)
    y, l = exact_on_faces(x, A, b, J)
    l = l.clamp(min=0).masked_fill(J == m, 0.0)
    p, lp = torch.full((R,), -1, device=x.device), x.new_zeros(R)
    out, finished = J.clone(), torch.zeros(R, dtype=torch.bool, device=x.device)
    empty, count = finished.clone(), torch.zeros(R, dtype=torch.long, device=x.device)
    rows = torch.arange(R, device=x.device)
    for _ in range(steps):
        over = times(A, y) - b
        spare = torch.cat([over - tolerance(x, y, b), over.new_full((len(J), 1), -math.inf)], 1).scatter(1, J, -math.inf)
        worst, index = spare.max(1)
        done = (p < 0) & (worst <= 0)
        p = torch.where(p < 0, index, p)
        a = take(A, p[:, None])[:, 0]
        Q, T = frame(A, J)
        c = Q.mT @ a[:, :, None]
        z = a - (Q @ c)[:, :, 0]
        z = z - (Q @ (Q.mT @ z[:, :, None]))[:, :, 0]
        r = torch.linalg.solve_triangular(T, c, upper=True)[:, :, 0]
        length = z.norm(dim=1)
        moves = (length > DEPENDENT) & ((J < m).sum(1) < K)
        size = over.gather(1, p[:, None])[:, 0]
        reach = torch.where(moves, size.clamp(min=0) / torch.where(moves, length, 1.0).square(), math.inf)
        blocks = (r > 0) & (J < m)
        ratio = torch.where(blocks, l / torch.where(blocks, r, 1.0), math.inf)
        block, slot = ratio.min(1)
        stuck = ~done & reach.isinf() & block.isinf()
        # sum of mu_i (A_i y - b_i) > |A^T mu| FAR size for mu = (-r, 1) >= 0: no y within FAR size satisfies all of them
        radius = FAR * (x.norm(dim=1) + y.norm(dim=1) + pick(b, J).abs().amax(1) + size)
        proof = size - (r * torch.where(J < m, pick(over, J), 0.0)).sum(1) > (length + 1e3 * EPS * (1 + r.abs().sum(1))) * radius
        count[rows] += 1
        out[rows], finished[rows], empty[rows] = J, done, stuck & proof
        stop = done | stuck
        t = torch.minimum(reach, block)
        t = torch.where(t.isinf(), 0.0, t)
        l = (l - t[:, None] * r).clamp(min=0).masked_fill(J == m, 0.0)
        lp = lp + t
        y = y - t[:, None] * torch.where(moves[:, None], z, 0.0)
        joins = reach <= block
        first = (J == m).to(torch.int8).argmax(1)
        place = torch.where(joins, first, slot)[:, None]
        J = J.scatter(1, place, torch.where(joins, p, m)[:, None])
        l = l.scatter(1, place, torch.where(joins, lp, 0.0)[:, None])
        J, order = J.sort(1)
        l = l.gather(1, order)
        p, lp = torch.where(joins, -1, p), torch.where(joins, 0.0, lp)
        if bool(stop.all()):
            break
        if bool(stop.any()):
            left = (~stop).nonzero()[:, 0]
            rows, x, y, J, l, p, lp = chosen(left, rows, x, y, J, l, p, lp)
            A, b = rows_of(A, left, 2), rows_of(b, left, 1)
        fresh = p < 0
        if bool(fresh.any()):  # y drifts by rounding: it is computed again from its faces
            again, m_again = exact_on_faces(x, A, b, J)
            y = torch.where(fresh[:, None], again, y)
            l = torch.where(fresh[:, None], m_again.clamp(min=0).masked_fill(J == m, 0.0), l)
    return out, finished, empty, count
