"""The nearest point of {A y <= b, E y = f} in the metric of a matrix W, row by row, landed inside in the caller's dtype.

Everything is float64 inside. Coordinates are turned so that the metric is the usual one (z = L^T y, W = L L^T), the equalities
are taken out by orthonormal directions Q, and the faces get unit normals. What remains is pure: {z : A z <= b}.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .dual_method import dual_feasible, dual_method, exact_on_faces, fast_dual_method
from .pivoting import (
    EPS,
    Chosen,
    back,
    block_pivoting,
    few,
    on_faces,
    orthonormal,
    pick,
    products,
    rows_of,
    spread,
    take,
    times,
    tolerance,
)
from .solution import EMPTY, FLAT, NOT_CONVERGED, OK

RANK = 1e-10  # an equality nearer than this (relative) to the span of those before it is redundant
PARALLEL = 1e-9  # a face whose normal has no more than this outside the span of the equalities is decided by them
LAND = 3  # units of rounding of the caller's dtype that the answer lies inside every inequality
PRESSES = 3  # of faces that depend on others and are met by rounding: one for each of them, and the worst is taken first
DEPENDENT = 1e-6  # share of a face in another one that is not rounding
FAR = 1e3  # an x farther away than this, in sizes of the answer, is moved nearer along its own ray


@dataclass(frozen=True)
class Pure:
    """The constraints in turned coordinates: unit A, b; Q, g of the equalities; L of the metric; lengths of old rows.

    own: the lengths of the caller's rows of A; G: products(A), where all rows share A and it is not large.
    """

    A: Tensor
    b: Tensor
    Q: Tensor | None
    g: Tensor | None
    L: Tensor | None
    size: Tensor
    own: Tensor
    chosen: Tensor
    consistent: Tensor
    G: Tensor | None

    def turned(self, x: Tensor) -> Tensor:
        """x (R, n) in these coordinates, on the equalities."""
        x = x if self.L is None else times(self.L.mT, x)
        return x if self.Q is None or self.g is None else x - times(self.Q, times(self.Q.mT, x) - self.g)


def solve_upper(U: Tensor, z: Tensor) -> Tensor:
    """U^{-1} z for every row, U (n, n) or (R, n, n)."""
    if U.dim() == 2:
        return torch.linalg.solve_triangular(U, z.mT, upper=True).mT
    return torch.linalg.solve_triangular(U, z[:, :, None], upper=True)[:, :, 0]


def basis(E: Tensor) -> tuple[Tensor, Tensor]:
    """Q (*, n, p) with orthonormal columns, 0 for redundant rows of E (*, p, n); and which rows are not redundant, (*, p)."""
    size = E.norm(dim=-1).clamp(min=1e-300)
    Q, T = torch.linalg.qr((E / size[..., None]).mT)
    if E.shape[-2] <= E.shape[-1] and bool((T.diagonal(dim1=-2, dim2=-1).abs() > RANK).all()):
        return Q, torch.ones_like(size, dtype=torch.bool)
    return orthonormal(E / size[..., None], RANK)


def coordinates(E: Tensor, f: Tensor, Q: Tensor, kept: Tensor) -> Tensor:
    """g with Q g on E y = f: (Q^T E^T)^T g = f on the kept rows. Differentiable in f. (p,) or (R, p)"""
    T = torch.where(kept[..., :, None] & kept[..., None, :], E @ Q, 0.0) + torch.diag_embed((~kept).to(E.dtype))
    rhs = torch.where(kept, f, 0.0)
    return torch.linalg.solve_triangular(T, rhs[..., None], upper=False)[..., 0]


def purify(A: Tensor, b: Tensor, E: Tensor, f: Tensor, W: Tensor) -> Pure:
    """The same constraints in the usual metric, without equations and with faces of unit normals."""
    own = A.norm(dim=-1)
    L = torch.linalg.cholesky(W) if W.numel() else None
    if L is not None:
        A, E = (torch.linalg.solve_triangular(L.mT, t, upper=True, left=False) for t in (A, E))
    rounding = own if L is None else A.norm(dim=-1)
    Q = g = None
    chosen = torch.zeros(E.shape[:-1], dtype=torch.bool, device=A.device)
    consistent = torch.ones(1, dtype=torch.bool, device=A.device)
    if E.shape[-2]:
        Q, chosen = basis(E)
        g = coordinates(E, f, Q, chosen)
        wide = g if g.dim() == 2 else g[None]
        across = A @ Q
        shift = times(across, wide)
        b = b - (shift[0] if b.dim() == 1 and across.dim() == 2 and g.dim() == 1 else shift)
        A = A - across @ Q.mT
        A = A - (A @ Q) @ Q.mT
        foot = times(Q, wide)
        off = (times(E, foot) - f).abs()
        room = 1e-6 if W.numel() else 1e-7
        consistent = (off <= room * (E.norm(dim=-1) * foot.norm(dim=1, keepdim=True) + f.abs())).all(-1)
    size = A.norm(dim=-1)
    decided = size <= PARALLEL * rounding
    size = torch.where(decided, rounding.clamp(min=1e-300), size)
    A = torch.where(decided[..., None], 0.0, A) / size[..., None]
    return Pure(A, b / size, Q, g, L, size, own, chosen, consistent, products(A) if few(A) else None)


def nearest(x: Tensor, A: Tensor, b: Tensor, J: Tensor, G: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """J, whether a row is finished, whether the set is certified empty, rounds: by pivoting, then by the exact method."""
    J, finished, count = block_pivoting(x, A, b, J, G)
    empty = torch.zeros_like(finished)
    steps = 4 * (x.shape[1] + 10)
    left = (~finished).nonzero()[:, 0]
    if len(left):
        part = x[left], rows_of(A, left, 2), rows_of(b, left, 1)
        start = dual_feasible(*part, J[left])
        faces, done = fast_dual_method(*part, start, steps)
        done = done & is_nearest(*part, faces)
        J[left], finished[left] = torch.where(done[:, None], faces, start), done
        left = left[~done]
    if len(left):
        part = x[left], rows_of(A, left, 2), rows_of(b, left, 1)
        J[left], finished[left], empty[left], more = dual_method(*part, J[left], 5 * steps + A.shape[-2])
        count[left] += more
    return J, finished, empty, count


def is_nearest(x: Tensor, A: Tensor, b: Tensor, J: Tensor) -> Tensor:
    """Whether the nearest point of the faces J is feasible and has multipliers >= 0, to rounding."""
    y, l = on_faces(x, A, b, J)
    over = (times(A, y) - b - tolerance(x, y, b)).amax(1)
    return (over <= 0) & (l >= -16 * EPS * x.norm(dim=1, keepdim=True)).all(1)


@dataclass(frozen=True)
class Held:
    """The derivative of the projection of all rows of a batch, where A is shared: g -> g without what the faces J hold, in the
    usual metric. `rows`: those that touch faces, None if all; N: their normals, which are independent."""

    pure: Pure
    rows: Tensor | None
    N: Chosen

    def __call__(self, g: Tensor) -> Tensor:
        """The derivative, which is symmetric, times g (R, n)."""
        Q = self.pure.Q
        g = g if Q is None else g - times(Q, times(Q.mT, g))
        part = g if self.rows is None else g.index_select(0, self.rows)
        part = part - self.N.back(self.N.solve(self.N.times(part)))
        return part if self.rows is None else g.index_copy(0, self.rows, part)


def solve_rows(
    x: Tensor, A: Tensor, b: Tensor, E: Tensor, f: Tensor, W: Tensor, fine: int, eps: float, land: float, pure: Pure | None = None
) -> tuple[tuple[Tensor, ...], Held | None]:
    """point (R, n), multipliers (R, K) of the faces J (R, K), J, chosen equalities, directions Q, status, rounds, optimality;
    and the derivative in x, where it is at hand.

    The last `fine` rows of A are bounds on single coordinates: they hold exactly after a clamp and need no landing.
    eps, land: rounding of the caller's dtype and how many units of it the answer lies inside. pure: purify(A, b, E, f, W).
    """
    R, n = x.shape
    m = A.shape[-2]
    K = min(n, m)
    bad = ~torch.isfinite(x).all(1)
    x = torch.where(bad[:, None], 0.0, x)
    x = x * (1e150 / x.abs().amax(1, keepdim=True).clamp(min=1e150))
    pure = purify(A, b, E, f, W) if pure is None else pure
    px = pure.turned(x)
    J = torch.full((R, K), m, dtype=torch.long, device=x.device)
    status = torch.full((R,), OK, dtype=torch.long, device=x.device)
    count = torch.zeros_like(status)
    inside = strictly_inside(x, A, b) if not E.shape[-2] else torch.zeros(R, dtype=torch.bool, device=x.device)
    point, l, held = x.clone(), x.new_zeros(R, K), None
    rest = (~inside).nonzero()[:, 0]
    if len(rest):
        work = Rows(px[rest], rows_of(pure.A, rest, 2), rows_of(pure.b, rest, 1), J[rest], pure.G)
        work.run()
        own = Own(A, b, pure.own, pure.size, fine, eps).of(rest)
        back_map = Restore(pure, rest)
        work.recentre(back_map)
        y, flat, worst = work.land(back_map, own, land)
        point[rest], J[rest], l[rest], count[rest] = y, work.J, work.l, work.count
        lost = ~work.finished & ~work.empty
        state = torch.where(flat, FLAT, OK)
        state = torch.where(worst > 0, NOT_CONVERGED, state)
        state = torch.where(lost, NOT_CONVERGED, state)
        state = torch.where(work.empty | ~rows_of(pure.consistent.expand(R), rest, 0), EMPTY, state)
        status[rest] = state
        if work.N is not None and W.numel() == 0 and pure.A.dim() == 2 and (pure.Q is None or pure.Q.dim() == 2):
            held = Held(pure, None if len(rest) == R else rest, work.N)
    optimality = stationarity(pure, px, point, J, l)
    status = torch.where((status <= FLAT) & ~(optimality <= 1e3 * max(eps, 1e2 * EPS)), NOT_CONVERGED, status)
    if held is not None and bool(((status > FLAT) | bad).any()):
        held = None
    l = l / pick(pure.size, J).clamp(min=1e-300)
    Q = E.mT.clone() if pure.Q is None else pure.Q
    return (point, l, J, pure.chosen, Q, status, count, optimality), held


@dataclass(frozen=True)
class Own:
    """Some rows' faces as the caller gave them: A, b, the lengths of the rows of A, those of the turned ones; the last `fine` are
    bounds. eps: rounding of the caller's dtype."""

    A: Tensor
    b: Tensor
    length: Tensor
    size: Tensor
    fine: int
    eps: float

    def of(self, rows: Tensor) -> Own:
        """The same for some of the rows."""
        A, b = rows_of(self.A, rows, 2), rows_of(self.b, rows, 1)
        return Own(A, b, rows_of(self.length, rows, 1), rows_of(self.size, rows, 1), self.fine, self.eps)

    def finish(self, y: Tensor) -> Tensor:
        """y rounded to the caller's dtype, and clamped to the bounds."""
        return finish(y, self.A, self.b, self.A.shape[-2] - self.fine, self.eps)

    def worst(self, y: Tensor) -> Tensor:
        """The largest inequality, every one divided by the length of its normal: sign exact to rounding. (R,)"""
        if not self.A.shape[-2]:
            return y.new_full((len(y),), -torch.inf)
        return ((times(self.A, y) - self.b) / torch.where(self.length > 0, self.length, 1.0)).amax(1)


def meets(A: Tensor, J: Tensor, y: Tensor) -> Tensor:
    """A_J y, (R, K)."""
    return pick(times(A, y), J) if few(A) else times(take(A, J), y)


def pushed(A: Tensor, J: Tensor, l: Tensor) -> Tensor:
    """A_J^T l, (R, n)."""
    return spread(l, J, len(A)) @ A if few(A) else back(take(A, J), l)


def strictly_inside(x: Tensor, A: Tensor, b: Tensor) -> Tensor:
    """Which rows satisfy every inequality as it stands, (R,)."""
    return (times(A, x) - b <= 0).all(1)


def stationarity(pure: Pure, x: Tensor, point: Tensor, J: Tensor, l: Tensor) -> Tensor:
    """|x - y - A_J^T l| / (|x| + |y|) in turned coordinates, for the returned point y."""
    y = point if pure.L is None else times(pure.L.mT, point)
    rest = x - y - pushed(pure.A, J, l)
    if pure.Q is not None:
        rest = rest - times(pure.Q, times(pure.Q.mT, rest))
    size = x.norm(dim=1) + y.norm(dim=1) + pick(pure.b, J).abs().amax(1) if J.shape[1] else x.norm(dim=1) + y.norm(dim=1)
    return rest.norm(dim=1) / size.clamp(min=1e-300)


class Restore:
    """The way back to the caller's coordinates for some of the rows."""

    def __init__(self, pure: Pure, rows: Tensor):
        self.Q = None if pure.Q is None else rows_of(pure.Q, rows, 2)
        self.g = None if pure.g is None else rows_of(pure.g, rows, 1)
        self.L = None if pure.L is None else rows_of(pure.L, rows, 2)

    def plane(self, z: Tensor) -> Tensor:
        """z put on the equalities, twice: the first step cancels what is far."""
        if self.Q is None or self.g is None:
            return z
        for _ in range(2):
            z = z - times(self.Q, times(self.Q.mT, z) - self.g)
        return z

    def __call__(self, z: Tensor) -> Tensor:
        z = self.plane(z)
        return z if self.L is None else solve_upper(self.L.mT, z)

    def of(self, rows: Tensor) -> Restore:
        """The way back for these rows."""
        other = Restore.__new__(Restore)
        other.Q = None if self.Q is None else rows_of(self.Q, rows, 2)
        other.g = None if self.g is None else rows_of(self.g, rows, 1)
        other.L = None if self.L is None else rows_of(self.L, rows, 2)
        return other


class Rows:
    """The rows that lie outside, with their lists of faces J; N: the normals of these, if they gave the answers of all rows."""

    def __init__(self, x: Tensor, A: Tensor, b: Tensor, J: Tensor, G: Tensor | None = None):
        self.x, self.A, self.b, self.J, self.G = x, A, b, J, G
        self.finished = self.empty = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        self.count = torch.zeros(len(x), dtype=torch.long, device=x.device)
        self.l = x.new_zeros(J.shape)
        self.scaled, self.origin = x.new_ones(len(x)), x
        self.N: Chosen | None = None

    def run(self) -> None:
        """Find the faces that hold, and with them the point and the multipliers of every row."""
        self.J, self.finished, self.empty, self.count = nearest(self.x, self.A, self.b, self.J, self.G)
        self.y, self.l = self.on(self.b)

    def on(self, b: Tensor) -> tuple[Tensor, Tensor]:
        """y and l on the faces J, by QR where the fast way is not exact."""
        m = self.A.shape[-2]
        if self.N is None:
            width = int((self.J < m).sum(1).max()) if self.J.numel() else 0
            self.N = Chosen(self.A, self.J[:, :width], self.G) if width else None
        if self.N is None:
            return self.x, torch.zeros_like(self.l)
        J = self.N.J
        d = pick(b, J)
        y, l = self.N.meet(self.x, d)
        off = ((self.N.times(y) - d).abs().amax(1) <= 64 * EPS * (self.x.norm(dim=1) + 1e-300)).logical_not_()
        bad = off.nonzero()[:, 0]
        if len(bad):
            y2, l2 = exact_on_faces(self.x[bad], rows_of(self.A, bad, 2), rows_of(b, bad, 1), J[bad])
            y, l = y.index_copy(0, bad, y2), l.index_copy(0, bad, l2)
            self.N = None
        return y, torch.nn.functional.pad(l, (0, self.J.shape[1] - J.shape[1]))

    def recentre(self, restore: Restore) -> None:
        """P(y + s (x - y)) = P(x) for y = P(x) and s > 0: a far x is moved nearer, where rounding is that of y.

        By at most 1e-8 at a time, always from x itself, so that the error of the last y, eps |x|, does not turn the ray; the last
        distance is taken twice.
        """
        origin, distance = self.x, (self.x - self.y).norm(dim=1)
        b = pick(self.b, self.J).abs().amax(1) if self.J.shape[1] else distance
        again = self.finished & (distance > FAR * (self.y.norm(dim=1) + b))
        for _ in range(40):
            rows = again.nonzero()[:, 0]
            if not len(rows):
                return
            y = restore.of(rows).plane(self.y[rows])
            away = origin[rows] - y
            far = away.norm(dim=1)
            b = pick(self.b, self.J).abs().amax(1)[rows]
            new = (y.norm(dim=1) + b).maximum(1e-8 * distance[rows]).maximum(1e-30 * far)
            s = new / far
            part = Rows(y + s[:, None] * away, rows_of(self.A, rows, 2), rows_of(self.b, rows, 1), self.J[rows], self.G)
            part.run()
            again[rows] = part.finished & (new < 0.5 * distance[rows])
            rows, keep, self.N = rows[part.finished], part.finished, None
            for old, fresh in ((distance, new), (self.scaled, s), (self.J, part.J), (self.y, part.y), (self.l, part.l)):
                old[rows] = fresh[keep]
            self.x = self.x.index_copy(0, rows, part.x[keep])

    def land(self, restore: Restore, own: Own, land: float) -> tuple[Tensor, Tensor, Tensor]:
        """The point in the caller's coordinates and dtype, whether the set is flat there, and its largest inequality.

        The same faces again with b - land eps (|A_i||y| + |b_i|); rows that fail are solved anew; what fails then is flat.
        """
        m, eps, plain = self.A.shape[-2], own.eps, self.y
        flat = torch.zeros(len(plain), dtype=torch.bool, device=plain.device)
        if land:
            y = plain if restore.L is None else restore(plain)
            units = own.length * y.norm(dim=1, keepdim=True) + torch.where(torch.isfinite(own.b), own.b.abs(), 0.0)
            margin = units * (land * eps) / own.size
            if own.fine:
                margin[:, m - own.fine :] = 0
            self.y, self.l = self.on(self.b - margin)
            landed = own.finish(restore(self.y))
            over = own.worst(landed)
            fail = ((over > 0) & self.finished).nonzero()[:, 0]
            if len(fail):
                landed, flat = self.mended(restore, own, plain, margin, landed, fail)
                over = own.worst(landed)
        else:
            landed = restore(plain)
            over = own.worst(landed)
        self.l = self.l / self.scaled[:, None]
        if land and not len(fail):
            return landed, flat, over
        room = 16 * eps * landed.norm(dim=1) + 64 * EPS * self.origin.norm(dim=1)
        if self.J.shape[1]:
            room = room + 16 * eps * pick(own.b / own.length.clamp(min=1e-300), self.J).abs().amax(1)
        return landed, flat, torch.where(flat | (land == 0), (over - room).clamp(min=0), over)

    def press(self, at: Tensor, b: Tensor, margin: Tensor) -> None:
        """Moves the rows `at` off faces that are not in J but depend on it, and are met by rounding.

        With A_p = sum r_j A_j, the faces j with r_j > 0 are pressed until face p has its margin, too. b: without margins.
        """
        d = b - margin
        for _ in range(PRESSES):
            A, J = rows_of(self.A, at, 2), self.J[at]
            short, p = (times(A, self.y[at]) - rows_of(b, at, 1) + margin[at]).max(1)
            p, width = p[:, None], max(1, int((J < A.shape[-2]).sum(1).max()))
            N = Chosen(A, J[:, :width], self.G)
            r = N.solve(N.times(take(A, p)[:, 0]))
            up = (r > DEPENDENT) & (N.J < A.shape[-2])
            part = torch.where(up, short[:, None] / torch.where(up, r, 0.0).sum(1, keepdim=True).clamp(min=DEPENDENT), 0.0)
            press = torch.where(part > 0, part, 0.0)
            d = d.index_copy(0, at, d[at].scatter_add(1, N.J.clamp(max=A.shape[-2] - 1), -press))
            y, l = N.meet(self.x[at], pick(d[at], N.J))
            self.y = self.y.index_copy(0, at, y)
            self.l = self.l.index_copy(0, at, torch.nn.functional.pad(l, (0, self.J.shape[1] - width)))
            at = at[(times(A, y) - rows_of(b, at, 1) > 0).any(1)]
            if not len(at):
                return

    def mended(
        self, restore: Restore, own: Own, plain: Tensor, margin: Tensor, landed: Tensor, fail: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The rows `fail` solved anew with the margin, or without it where that leaves nothing: points, and which are flat."""
        part = Rows(self.x[fail], rows_of(self.A, fail, 2), (self.b - margin)[fail], self.J[fail], self.G)
        part.run()
        some = own.of(fail)
        there = some.finish(restore.of(fail)(part.y))
        over = part.finished & (some.worst(there) > 0)
        at = over.nonzero()[:, 0]
        if len(at):
            part.press(at, rows_of(self.b, fail, 1), margin[fail])
            there = some.finish(restore.of(fail)(part.y))
        good = part.finished & (some.worst(there) <= 0)
        rows, self.N = fail[good], None
        landed = landed.index_copy(0, rows, there[good])
        self.J = self.J.index_copy(0, rows, part.J[good])
        self.l = self.l.index_copy(0, rows, part.l[good])
        rows = fail[~good]
        flat = torch.zeros(len(landed), dtype=torch.bool, device=landed.device).index_fill(0, rows, True)
        some = own.of(rows)
        there = some.finish(restore.of(rows)(plain[rows]))
        # a cone that is {0}: what is left is the rounding of x, and 0 is the foot
        lost = (there.norm(dim=1) <= 64 * EPS * self.origin[rows].norm(dim=1)) & (some.b >= 0).all(-1)
        if restore.g is None:
            there = torch.where(lost[:, None], 0.0, there)
        return landed.index_copy(0, rows, there), flat


def finish(y: Tensor, A: Tensor, b: Tensor, coarse: int, eps: float) -> Tensor:
    """y rounded to the caller's dtype, and clamped to the bounds: A[coarse:] is one entry, 1 or -1, per row."""
    if eps > 1e-10:
        y = y.float().double()
    if coarse == A.shape[-2]:
        return y
    n = y.shape[1]
    sign = A[..., coarse:, :]
    column, bound = sign.abs().argmax(-1), b[..., coarse:].expand(len(y), -1)
    side = sign.sum(-1)
    column, side = column.expand(len(y), -1), side.expand(len(y), -1)
    high = y.new_full((len(y), n), torch.inf).scatter_reduce(1, column, torch.where(side > 0, bound, torch.inf), "amin")
    low = y.new_full((len(y), n), -torch.inf).scatter_reduce(1, column, torch.where(side < 0, -bound, -torch.inf), "amax")
    return torch.minimum(torch.maximum(y, low), high)
