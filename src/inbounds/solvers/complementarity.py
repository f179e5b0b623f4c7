"""Multipliers of a linearised problem: l with s = r - G l, where s = 0 for equations, and l >= 0, s <= 0, l s = 0 for the others.

They minimise l G l / 2 - r l. Few constraints are pivoted, all wrong ones at a time. Of many constraints, more than there are
unknowns, only some can hold together, and G with all that are violated is next to singular: there working sets grow and shrink,
and no factor is larger than the set.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .linear import apply
from .pivoting import chosen

MANY = 16  # inequalities up to which block pivoting is as fast on random problems of 6 and 30 unknowns
ADDED = 8  # inequalities that join a working set at a time; 1 takes up to three times as long for 30 buses, 16 no less
SEEN = 16  # inequalities that a problem takes in view at a time
PATIENCE = 5  # turns of block pivoting without progress before single pivots; 3 to 10 in the literature, with little difference
TURNS = 12  # pivots for every constraint, at most: degenerate problems need less than one, a cycle by rounding never ends
SLACK = 1e-14  # of the largest entry: what rounding leaves of a slack that is 0
TINY = 1e-300  # keeps a quotient finite


def complementary(G: Tensor, r: Tensor, p: int, start: Tensor | None = None) -> Tensor:
    """l with s = r - G l: s = 0 for the first p; l >= 0, s <= 0 and l s = 0 for the others. G (R, k, k) positive definite.

    start (R, k): which constraints are expected to hold.
    """
    if r.shape[1] - p <= MANY or not len(r):
        return pivots(G, r, p)
    if not p:
        l, sound = working_sets(G, r, r.abs().amax(1), start)
    else:
        l, sound = without_equations(G, r, p, start)
    bad = (~sound).nonzero()[:, 0]
    return l.index_copy(0, bad, pivots(G[bad], r[bad], p)) if len(bad) else l


def multipliers(V: Tensor, r: Tensor, soft: Tensor, p: int, start: Tensor) -> Tensor:
    """`complementary` of G = V V^T + soft I, for V (R, k, n) and soft (R,), of which nothing is made for constraints with room.

    The least problem has the constraints that are expected to hold, and those with most of r; what its solution violates joins.
    """
    R, k = r.shape
    if k - p <= MANY or not R:
        return complementary(V @ V.mT + soft[:, None, None] * torch.eye(k, dtype=V.dtype, device=V.device), r, p, start)
    out, rows = torch.zeros_like(r), torch.arange(R, device=r.device)
    inner = torch.arange(k, device=r.device) >= p
    seen, over = start | ~inner, torch.where(start | ~inner, -torch.inf, r)
    slack = SLACK * r.abs().amax(1, keepdim=True)
    for turn in range(k):
        most, which = over.topk(min(SEEN, k - p), 1)
        joins = (most > 0) | (turn == 0)
        if turn:
            left = joins.any(1).nonzero()[:, 0]
            if not len(left):
                break
            rows, V, r, soft, start, slack, seen, which, joins = chosen(left, rows, V, r, soft, start, slack, seen, which, joins)
        seen = seen.scatter(1, which, seen.gather(1, which) | joins)
        l = of_these(V, r, soft, p, start, seen)
        out[rows], start = l, l > 0
        over = torch.where(seen, -torch.inf, r - apply(V, apply(V.mT, l)) - slack)
    return out


def of_these(V: Tensor, r: Tensor, soft: Tensor, p: int, start: Tensor, seen: Tensor) -> Tensor:
    """`multipliers` with 0 for the constraints that are not seen; the first p always are."""
    width = int(seen.sum(1).max())
    absent, order = (~seen).to(torch.int8).sort(dim=1, stable=True)
    absent, order = absent[:, :width].bool(), order[:, :width]
    N = torch.where(absent[:, :, None], 0.0, V.gather(1, order[:, :, None].expand(-1, -1, V.shape[2])))
    G = N @ N.mT
    G.diagonal(dim1=1, dim2=2).add_(soft[:, None])
    l = complementary(G, torch.where(absent, -1.0, r.gather(1, order)), p, start.gather(1, order) & ~absent)
    return torch.zeros_like(r).scatter(1, order, torch.where(absent, 0.0, l))


def without_equations(G: Tensor, r: Tensor, p: int, start: Tensor | None) -> tuple[Tensor, Tensor]:
    """`working_sets` of the inequalities, with the multipliers of the equations as functions of theirs: l, sound."""
    L = torch.linalg.cholesky_ex(G[:, :p, :p])[0]
    both = torch.linalg.solve_triangular(L, torch.cat([G[:, :p, p:], r[:, :p, None]], 2), upper=False)
    B, w = both[:, :, :-1], both[:, :, -1]
    rest = r[:, p:] - apply(B.mT, w)
    l, sound = working_sets(G[:, p:, p:] - B.mT @ B, rest, r.abs().amax(1), None if start is None else start[:, p:])
    first = torch.linalg.solve_triangular(L.mT, (w - apply(B, l))[:, :, None], upper=True)[:, :, 0]
    return torch.cat([first, l], 1), sound


def working_sets(G: Tensor, r: Tensor, size: Tensor, start: Tensor | None) -> tuple[Tensor, Tensor]:
    """l (R, k) without equations, and which rows have a factor of every working set; size (R,) is the largest entry of all.

    Lawson and Hanson's method for non-negative least squares: the minimum on the working set, if it is positive, takes in the
    most violated constraints; if not, l goes as far towards it as it may, and what is 0 there leaves. Every minimum is lower than
    the one before, also when several join: the slope towards the new one is positive in at least one of them.
    """
    R, k = r.shape
    out, rows = torch.zeros_like(r), torch.arange(R, device=r.device)
    sound = torch.ones(R, dtype=torch.bool, device=r.device)
    l, held = torch.zeros_like(r), torch.zeros_like(r, dtype=torch.bool) if start is None else start
    slack = SLACK * size[:, None]
    for _ in range(TURNS * (k + 1)):
        z, good = minimum_on(G, r, held)
        wrong = held & (z <= 0)
        share = torch.where(wrong, l / (l - z).clamp(min=TINY), 1.0)
        part = share.amin(1, keepdim=True)
        leaves = wrong & (share <= part)
        l = torch.where(held & ~leaves, l + part * (z - l), 0.0)
        over, which = torch.where(held, -torch.inf, r - apply(G, l) - slack).topk(ADDED, 1)
        inside = ~wrong.any(1)
        joins = torch.zeros_like(held).scatter(1, which, (over > 0) & inside[:, None])
        held = (held & ~leaves) | joins
        out[rows], sound[rows] = l, good
        go_on = good & (~inside | (over[:, 0] > 0))
        if not bool(go_on.all()):
            left = go_on.nonzero()[:, 0]
            if not len(left):
                break
            rows, G, r, l, held, slack = chosen(left, rows, G, r, l, held, slack)
    return out, sound


def minimum_on(G: Tensor, r: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
    """l with (G l)_i = r_i for the constraints that are held and l_i = 0 for the others; and whether it could be found, (R,)."""
    width = int(held.sum(1).max())
    free, order = (~held).to(torch.int8).sort(dim=1, stable=True)
    free, order = free[:, :width].bool(), order[:, :width]
    at = order[:, :, None] * held.shape[1] + order[:, None]
    part = G.flatten(1).gather(1, at.flatten(1)).view(at.shape)
    part = torch.where(free[:, :, None] | free[:, None], torch.diag_embed(free.to(G.dtype)), part)
    L, info = torch.linalg.cholesky_ex(part)
    z = torch.cholesky_solve(torch.where(free, 0.0, r.gather(1, order))[:, :, None], L)[:, :, 0]
    return torch.zeros_like(r).scatter(1, order, z), info == 0


def pivots(G: Tensor, r: Tensor, p: int) -> Tensor:
    """`complementary` by block pivoting, which is fastest for few constraints.

    All wrong indices change sides at once while that lowers their number, or did so a few turns ago; otherwise the last wrong one
    alone, which is finite for positive definite G (Portugal, Judice and Vicente 1994). Finished rows leave.
    """
    k = r.shape[1]
    number = torch.arange(k, device=r.device)
    inner, eye = number >= p, torch.eye(k, dtype=r.dtype, device=r.device)
    out, left = torch.zeros_like(r), None
    active = ~inner | (r > 0)
    best, patience = r.new_full((len(r),), k + 1), r.new_full((len(r),), PATIENCE)
    for _ in range(TURNS * (k + 1)):
        both = active[:, :, None] & active[:, None, :]
        L = torch.linalg.cholesky_ex(torch.where(both, G, 0.0) + eye * (~active)[:, :, None])[0]
        l = torch.cholesky_solve(torch.where(active, r, 0.0)[:, :, None], L)[:, :, 0]
        s = r - apply(G, l)
        wrong = inner & torch.where(active, l < 0, s > SLACK * r.abs().amax(1, keepdim=True) if k else s > 0)
        l = torch.where(inner, l.clamp(min=0), l)
        out = l if left is None else out.index_copy(0, left, l)
        go_on = wrong.any(1).nonzero()[:, 0]
        if not len(go_on):
            break
        if len(go_on) < len(r):
            left = go_on if left is None else left[go_on]
            G, r, wrong, active, best, patience = chosen(go_on, G, r, wrong, active, best, patience)
        count = wrong.sum(1).to(best)
        fewer = count < best
        patience = torch.where(fewer, PATIENCE, patience - 1)
        best = torch.where(fewer, count, best)
        last = (wrong * (number + 1)).amax(1, keepdim=True) - 1
        active = active ^ (wrong & ((patience >= 0)[:, None] | (number == last)))
    return out
