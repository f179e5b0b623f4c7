"""The dual method of Goldfarb and Idnani for the rows that block pivoting leaves: finite, and it certifies an empty set.

It keeps a list J of faces with multipliers l >= 0 such that y is the nearest point of {A_J y = b_J} and of {A_J y <= b_J}. A step
takes the most violated face p and raises its multiplier: until p holds (p joins J), or until another multiplier is 0 (that face
leaves J). Where neither happens, the multipliers prove that the set is empty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .pivoting import EPS, back, chosen, factor_ex, independent, on_faces, pick, rows_of, take, times

DEPENDENT = 1e-11  # distance of a unit normal from the span of others that is rounding: QR is exact to a few 1e-16
FAST_DEPENDENT = 1e-5  # the same distance where an inverse is kept up to date, which adds up rounding
FAR = 1e4  # a certificate of emptiness must hold for all points within FAR (|x| + |y| + size)


@dataclass
class Rows:
    """The rows under way: y = x - A_J^T l - lp A_p, and the face p whose multiplier lp is being raised (-1: none yet).

    number (R,) is the place of a row in the caller's batch; size = |x|; floor (m,) or (R, m) is the rounding of b.
    """

    number: Tensor
    x: Tensor
    y: Tensor
    A: Tensor
    b: Tensor
    J: Tensor
    l: Tensor
    p: Tensor
    lp: Tensor
    size: Tensor
    floor: Tensor

    def keep(self, left: Tensor) -> None:
        """Go on with these rows alone."""
        self.number, self.x, self.y, self.J = chosen(left, self.number, self.x, self.y, self.J)
        self.l, self.p, self.lp, self.size = chosen(left, self.l, self.p, self.lp, self.size)
        self.A, self.b, self.floor = rows_of(self.A, left, 2), rows_of(self.b, left, 1), rows_of(self.floor, left, 1)

    def rounding(self) -> Tensor:
        """The part of the rounding of A y - b that does not come from b, (R,)."""
        return 16 * EPS * torch.maximum(self.size, self.y.norm(dim=1))

    def free(self) -> Tensor:
        """Slots of J without a face, (R, K)."""
        return self.J == self.A.shape[-2]


def begin(x: Tensor, y: Tensor, A: Tensor, b: Tensor, J: Tensor, l: Tensor) -> Rows:
    """All rows of a batch, no face being raised."""
    number = torch.arange(len(x), device=x.device)
    l = l.clamp(min=0).masked_fill(J == A.shape[-2], 0.0)
    floor = 16 * EPS * torch.where(torch.isfinite(b), b.abs(), 0.0)
    return Rows(number, x, y, A, b, J, l, torch.full_like(number, -1), x.new_zeros(len(x)), x.norm(dim=1), floor)


@dataclass(frozen=True)
class Move:
    """The multiplier of face a (R, n) rises by t: y moves along -z, l along -r. Then a joins J, or another face leaves it.

    `place` (R, 1) is the slot of J that changes; stuck: the move has no end.
    """

    a: Tensor
    r: Tensor
    z: Tensor
    zz: Tensor
    t: Tensor
    stuck: Tensor
    joins: Tensor
    place: Tensor


def measured(s: Rows, excess: Tensor, a: Tensor, r: Tensor, z: Tensor, zz: Tensor, least: float) -> Move:
    """How far a move goes. excess = a y - b; a face with zz = a z <= least depends on those in J and cannot join."""
    free = s.free()
    moves = (zz > least) & free.any(1)
    reach = torch.where(moves, excess.clamp(min=0) / torch.where(moves, zz, 1.0), math.inf)
    blocks = (r > 0) & ~free
    block, slot = torch.where(blocks, s.l / torch.where(blocks, r, 1.0), math.inf).min(1)
    t, joins = torch.minimum(reach, block), reach <= block
    stuck = t.isinf()
    place = torch.where(joins, free.to(torch.int8).argmax(1), slot)[:, None]
    return Move(a, r, z * moves.to(z.dtype)[:, None], zz, torch.where(stuck, 0.0, t), stuck, joins, place)


def advance(s: Rows, move: Move) -> None:
    """Make the move."""
    s.l = (s.l - move.t[:, None] * move.r).clamp(min=0).masked_fill(s.free(), 0.0)
    s.lp = s.lp + move.t
    s.y = s.y - move.t[:, None] * move.z
    s.J = s.J.scatter(1, move.place, torch.where(move.joins, s.p, s.A.shape[-2])[:, None])
    s.l = s.l.scatter(1, move.place, torch.where(move.joins, s.lp, 0.0)[:, None])
    s.p, s.lp = torch.where(move.joins, -1, s.p), torch.where(move.joins, 0.0, s.lp)


# --- the fast form --------------------------------------------------------------------------------------------
@dataclass
class Inverse:
    """C = A_J (R, K, n) and H = (C C^T)^-1 (R, K, K), kept up to date while faces join and leave."""

    C: Tensor
    H: Tensor

    def keep(self, left: Tensor) -> None:
        """Go on with these rows alone."""
        self.C, self.H = chosen(left, self.C, self.H)

    def across(self, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """r and z with a = C^T r + z, C z = 0, and z a."""
        r = times(self.H, times(self.C, a))
        z = a - back(self.C, r)
        return r, z, (z * a).sum(1)

    def update(self, move: Move) -> None:
        """One change of rank one: a border for the face that joins, its removal for the face that leaves."""
        K, n = self.C.shape[1:]
        joins, place = move.joins, move.place
        column = self.H.gather(1, place[:, :, None].expand(-1, 1, K))[:, 0]
        w = torch.where(joins[:, None], (-move.r).scatter(1, place, 1.0), column)
        pivot = torch.where(joins, move.zz, -column.gather(1, place)[:, 0])
        self.H = torch.baddbmm(self.H, (w / pivot[:, None])[:, :, None], w[:, None])
        one = torch.where(joins, -1.0, 1.0).to(self.H.dtype)[:, None]  # the diagonal of an empty slot is 1
        self.H.view(len(self.H), -1).scatter_add_(1, place * (K + 1), one)
        self.C = self.C.scatter(1, place[:, :, None].expand(-1, 1, n), torch.where(joins[:, None], move.a, 0.0)[:, None])


def fast_dual_method(x: Tensor, A: Tensor, b: Tensor, J: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """`dual_method` with the inverse of A_J A_J^T kept up to date, and no certificate: J, whether it seems to be finished.

    Rounding adds up along the way: the caller solves on J anew, and gives the rows that fail to `dual_method`. Rows whose faces
    J depend on each other so closely that A_J A_J^T has no Cholesky factor fail at once.
    """
    C = take(A, J)
    L, sound = factor_ex(C, J == A.shape[-2])
    inverse = Inverse(C, torch.cholesky_inverse(torch.where(sound[:, None, None], L, torch.eye(L.shape[1], dtype=L.dtype))))
    l = times(inverse.H, times(C, x) - pick(b, J)).clamp(min=0).masked_fill(J == A.shape[-2], 0.0)
    s = begin(x, x - back(C, l), A, b, J, l)
    out, finished = J.clone(), torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for _ in range(steps):
        done, move = fast_step(s, inverse)
        at, left = done.nonzero()[:, 0], (~(done | move.stuck)).nonzero()[:, 0]
        out[s.number[at]], finished[s.number[at]] = s.J[at], True
        if not len(left):
            break
        inverse.update(move)
        advance(s, move)
        if len(left) < len(done):
            s.keep(left)
            inverse.keep(left)
    return torch.where(sound[:, None], out.sort(1).values, J), finished & sound


def fast_step(s: Rows, inverse: Inverse) -> tuple[Tensor, Move]:
    """Which rows violate nothing, and the next move of the others."""
    over = times(s.A, s.y) - s.b
    worst, index = (over - s.floor).max(1)
    fresh = s.p < 0
    done = fresh & (worst <= s.rounding())
    s.p = torch.where(fresh, index, s.p)
    a = take(s.A, s.p[:, None])[:, 0]
    return done, measured(s, over.gather(1, s.p[:, None])[:, 0], a, *inverse.across(a), least=FAST_DEPENDENT**2)


# --- the exact form -------------------------------------------------------------------------------------------
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
    J = dual_feasible(x, A, b, J)
    y, l = exact_on_faces(x, A, b, J)
    s = begin(x, y, A, b, J, l)
    out, finished = J.clone(), torch.zeros(len(x), dtype=torch.bool, device=x.device)
    empty, count = finished.clone(), torch.zeros(len(x), dtype=torch.long, device=x.device)
    for _ in range(steps):
        done, proof, move = exact_step(s)
        count[s.number] += 1
        out[s.number], finished[s.number], empty[s.number] = s.J, done, proof & ~done
        left = (~(done | move.stuck)).nonzero()[:, 0]
        if not len(left):
            break
        advance(s, move)
        s.J, order = s.J.sort(1)
        s.l = s.l.gather(1, order)
        if len(left) < len(done):
            s.keep(left)
        refresh(s)
    return out, finished, empty, count


def exact_step(s: Rows) -> tuple[Tensor, Tensor, Move]:
    """Which rows violate nothing, for which of them the set is empty, and the next move of the others."""
    over = times(s.A, s.y) - s.b
    worst, index = outside(s, over).max(1)
    done = (s.p < 0) & (worst <= 0)
    s.p = torch.where(s.p < 0, index, s.p)
    a = take(s.A, s.p[:, None])[:, 0]
    r, z = across(s, a)
    length = z.norm(dim=1)
    excess = over.gather(1, s.p[:, None])[:, 0]
    move = measured(s, excess, a, r, z, length.square(), least=DEPENDENT**2)
    return done, move.stuck & contradiction(s, over, excess, r, length), move


def outside(s: Rows, over: Tensor) -> Tensor:
    """How far A y - b is above rounding for the faces that are not in J, -inf for those in J. (R, m + 1)"""
    spare = over - s.floor - s.rounding()[:, None]
    return torch.nn.functional.pad(spare, (0, 1), value=-math.inf).scatter(1, s.J, -math.inf)


def across(s: Rows, a: Tensor) -> tuple[Tensor, Tensor]:
    """r and z with a = A_J^T r + z, A_J z = 0."""
    Q, T = frame(s.A, s.J)
    c = Q.mT @ a[:, :, None]
    z = a - (Q @ c)[:, :, 0]
    z = z - (Q @ (Q.mT @ z[:, :, None]))[:, :, 0]
    return torch.linalg.solve_triangular(T, c, upper=True)[:, :, 0], z


def contradiction(s: Rows, over: Tensor, excess: Tensor, r: Tensor, length: Tensor) -> Tensor:
    """Whether sum mu_i (A_i y - b_i) > |A^T mu| radius for mu = (-r, 1) >= 0: no point of that radius satisfies all of them."""
    radius = FAR * (s.size + s.y.norm(dim=1) + pick(s.b, s.J).abs().amax(1) + excess)
    total = excess - (r * torch.where(s.free(), 0.0, pick(over, s.J))).sum(1)
    return total > (length + 1e3 * EPS * (1 + r.abs().sum(1))) * radius


def refresh(s: Rows) -> None:
    """y drifts by rounding: where no face is being raised, it is computed again from its faces."""
    fresh = s.p < 0
    if not bool(fresh.any()):
        return
    y, l = exact_on_faces(s.x, s.A, s.b, s.J)
    s.y = torch.where(fresh[:, None], y, s.y)
    s.l = torch.where(fresh[:, None], l.clamp(min=0).masked_fill(s.free(), 0.0), s.l)
