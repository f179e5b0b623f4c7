"""Small linear systems of nearest points, one per row: what Newton's method on equations needs, whoever writes the equations."""

from __future__ import annotations

import torch
from torch import Tensor

SMALL = 3  # unknowns up to which batched factorisations of torch, some 0.4 us a row, cost more than formulas on whole columns
LOW = 1e-9  # diagonal in the place of 0 for active constraints, so that redundant ones do no harm; refined away afterwards
MANY = 16  # constraints of which the active ones are gathered before a system is solved
REFINEMENTS = 3  # of a system with the diagonal LOW: each takes a factor of 1e-9, or less where constraints nearly agree


def apply(A: Tensor, v: Tensor) -> Tensor:
    """A v for every row: (R, k, n), (R, n) -> (R, k)."""
    return (A @ v[:, :, None])[:, :, 0]


def length(v: Tensor) -> Tensor:
    """(R, n) -> (R,)"""
    return torch.linalg.vector_norm(v, dim=1)


def definite_solve(K: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """K^{-1} b for symmetric K (R, n, n), and whether K is positive definite, (R,). What comes out elsewhere is not to be used.

    Up to `SMALL` unknowns it is written out, L D L^T, over the rows of the batch.
    """
    n = b.shape[1]
    if n > SMALL:
        L, info = torch.linalg.cholesky_ex(K)
        return torch.cholesky_solve(b[:, :, None], L)[:, :, 0], info == 0
    entries, pivots, below = K.flatten(1).unbind(1), [], {}
    y = list(b.unbind(1))
    sound = entries[0] > 0
    for j in range(n):
        column = [entries[n * i + j] for i in range(j, n)]
        for k in range(j):
            share = below[j, k] * pivots[k]
            column = [torch.addcmul(c, below[i, k], share, value=-1) for i, c in zip(range(j, n), column, strict=True)]
            y[j] = torch.addcmul(y[j], below[j, k], y[k], value=-1)
        pivots.append(column[0])
        below |= {(j + i, j): c if i == 0 else c / column[0] for i, c in enumerate(column)}
        sound = sound & (column[0] > 0) if j else sound
    y = [a / pivot for a, pivot in zip(y, pivots, strict=True)]
    for j in reversed(range(n)):
        for i in range(j + 1, n):
            y[j] = torch.addcmul(y[j], below[i, j], y[i], value=-1)
    return torch.stack(y, 1), sound


class Gram:
    """A (R, k, n) with the factor of A A^T. A row of A that is 0 (an inactive inequality) drops out."""

    def __init__(self, A: Tensor):
        self.A = A
        G = A @ A.mT
        off = (G.diagonal(dim1=1, dim2=2) == 0).to(A.dtype)
        self.G = G + torch.diag_embed(off)
        self.L = torch.linalg.cholesky_ex(self.G)[0] if A.shape[1] > 1 else None

    def steepness(self) -> Tensor:
        """The least distance of a gradient from the span of those before it, (R,)."""
        if not self.A.shape[1]:
            return self.A.new_ones(len(self.A))
        d = self.G[:, 0].sqrt() if self.L is None else self.L.diagonal(dim1=1, dim2=2)
        return d[:, : self.A.shape[1]].detach().amin(1)

    def solve(self, b: Tensor) -> Tensor:
        """(A A^T)^{-1} b for b (R, k, *)."""
        return b / self.G if self.L is None and self.A.shape[1] else torch.cholesky_solve(b, self.L) if self.L is not None else b

    def least(self, e: Tensor) -> Tensor:
        """The least v with A v = e: (R, n)."""
        return apply(self.A.mT, self.solve(e[:, :, None])[:, :, 0])

    def split(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """v - A^T l and l, such that A (v - A^T l) = 0."""
        multiplier = self.solve(self.A @ v[:, :, None])[:, :, 0]
        return v - apply(self.A.mT, multiplier), multiplier


def stiff_step(H: Tensor, A: Tensor, e: Tensor, l: Tensor, away: Tensor, stiff: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A step of Newton's method on y - x + A^T l = 0, e(y) = 0: the move of y, the new l, whether this is near a minimum.

    H is the Hessian of the Lagrangian, away = x - y. With K = H + c A^T A, c = `stiff`, positive definite at a minimum for large
    c, K dy = x - y - A^T (l + c e) and dl = c (e + A dy) solve Newton's equations but for dl / c, which vanishes with dl: one
    factorisation of n x n, no frames, and redundant equations do no harm. c (R, 1), or (R, k) with 0 for absent equations.
    """
    K = torch.baddbmm(H, A.mT * stiff[:, None], A)
    push = torch.addcmul(l, stiff, e)
    move, sound = definite_solve(K, away - apply(A.mT, push))
    return move, torch.addcmul(push, stiff, apply(A, move)), sound


def reduced(H: Tensor, T: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """T (T^T H T)^{-1} T^T a, the v in the span of T with T^T (H v - a) = 0, and whether T^T H T is positive definite."""
    S = T.mT @ H @ T
    _, info = torch.linalg.cholesky_ex(S)
    v = apply(T, torch.linalg.solve_ex(S, T.mT @ a[:, :, None])[0][:, :, 0])
    return v, info == 0


def kkt(H: Tensor, A: Tensor, a: Tensor) -> Tensor:
    """v with H v + A^T l = a, A v = 0: (R, n). Rows of A that are 0 drop out; the others must be independent."""
    n = H.shape[1]
    off = (A.abs().amax(-1) == 0).to(A.dtype)
    K = torch.cat([torch.cat([H, A.mT], 2), torch.cat([A, -torch.diag_embed(off)], 2)], 1)
    return torch.linalg.solve_ex(K, torch.cat([a, torch.zeros_like(off)], 1))[0][:, :n]


def redundant_kkt(H: Tensor, J: Tensor, active: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """v, m with H v + J_A^T m = g, J_A v = 0, where the unit rows J_A of J may depend on each other.

    A small negative diagonal makes redundant constraints harmless, three refinements take its effect away. Of many constraints
    few are active, and the system has those alone: with 53 of 214 for 59 unknowns it takes a tenth of the time.
    """
    n, k = H.shape[1], J.shape[1]
    width = int(active.sum(1).max()) if k > MANY and len(active) else k
    if width < k:
        order = (~active).to(torch.int8).sort(dim=1, stable=True)[1][:, :width]
        v, m = redundant_kkt(H, J.gather(1, order[:, :, None].expand(-1, -1, n)), active.gather(1, order), g)
        return v, m.new_zeros(len(m), k).scatter(1, order, m)
    N = J * active.to(J.dtype)[:, :, None]
    low = torch.diag_embed(torch.where(active, LOW, 1.0).to(J.dtype))
    K = torch.cat([torch.cat([H, N.mT], 2), torch.cat([N, -low], 2)], 1)
    exact = torch.cat([torch.cat([H, N.mT], 2), torch.cat([N, -torch.diag_embed((~active).to(J.dtype))], 2)], 1)
    rhs = torch.cat([g, g.new_zeros(len(g), k)], 1)[:, :, None]
    LU, pivots, _ = torch.linalg.lu_factor_ex(K)
    s = torch.linalg.lu_solve(LU, pivots, rhs)
    enough = torch.finfo(K.dtype).eps * rhs.abs().amax(1, keepdim=True)
    for _ in range(REFINEMENTS):
        rest = rhs - exact @ s
        more = rest.abs().amax(1, keepdim=True) > enough  # row by row, so that none depends on those beside it
        if not bool(more.any()):
            break
        s = torch.where(more, s + torch.linalg.lu_solve(LU, pivots, rest), s)
    s = torch.where(torch.isfinite(s), s, 0.0)[:, :, 0]
    return s[:, :n], s[:, n:]
