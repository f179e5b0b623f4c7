"""The nearest point of {y : A y <= b} by block pivoting on the dual, for rows of one batch, in float64.

Every row keeps a list J of candidate faces, the first of which is a guess by a gradient method. A round solves A_J y = b_J,
y = x - A_J^T l, drops the faces with l < 0 and adds the most violated ones. Rows that are finished leave the batch. It usually
takes one round or two and may cycle: what is not finished after `ROUNDS` goes to `dual_method`, which is finite. Faces have unit
normals; b may be inf, which means that the face is absent.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

ROUNDS = 4  # tuned on random polytopes and portfolios, 3 to 8 within a fifth: the exact method is as fast for what is left then
LOOKS = 30  # steps of the guess, each a twentieth of a round; tuned on the sizes of `added`: 10 take a round more, 80 save little
POWERS = 8  # steps to the largest eigenvalue of A A^T, a tenth above which is safe: too small a one would only spoil the guess
GUESSED = 1e-4  # part of the largest multiplier above which a guessed one counts: below it are steps that have not reached 0 yet
BLUR = 1e-12  # diagonal that shows a dependent normal by a pivot of about its root, far below PIVOT
PIVOT = 1e-4  # a face nearer than this to the span of those before it counts as dependent on them
FEW = 4  # faces per variable up to which products of normals are used
EPS = torch.finfo(torch.float64).eps
TINY = 1e-30  # keeps a quotient finite in float32


def take(A: Tensor, J: Tensor) -> Tensor:
    """Rows J (R, K) of A, (m, n) or (R, m, n); index m gives zeros. (R, K, n)"""
    m, n = A.shape[-2:]
    if A.dim() == 2:
        padded = torch.cat([A, A.new_zeros(1, n)])
        return padded.index_select(0, J.reshape(-1)).view(*J.shape, n)
    flat = A.reshape(-1, n)
    index = J.clamp(max=m - 1) + m * torch.arange(A.shape[0], device=J.device)[:, None]
    return flat.index_select(0, index.reshape(-1)).view(*J.shape, n) * (J < m).to(A.dtype)[..., None]


def pick(b: Tensor, J: Tensor) -> Tensor:
    """Entries J (R, K) of b, (m,) or (R, m); index m gives 0."""
    b = torch.cat([b, b.new_zeros(*b.shape[:-1], 1)], -1)
    return b[J] if b.dim() == 1 else b.gather(1, J)


def times(A: Tensor, x: Tensor) -> Tensor:
    """A x for every row: A (m, n) or (R, m, n), x (R, n)."""
    return x @ A.mT if A.dim() == 2 else torch.bmm(A, x[:, :, None])[:, :, 0]


def back(A: Tensor, l: Tensor) -> Tensor:
    """A^T l for every row: A (R, K, n), l (R, K)."""
    return torch.bmm(l[:, None], A)[:, 0]


def rows_of(t: Tensor, rows: Tensor, dims: int) -> Tensor:
    """The rows of a batched tensor; a shared one (with `dims` dims) is kept as it is."""
    return t if t.dim() == dims else t.index_select(0, rows)


def chosen(rows: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """These rows of each tensor."""
    return tuple(t.index_select(0, rows) for t in tensors)


def factor(C: Tensor, pad: Tensor) -> Tensor:
    """The Cholesky factor of C C^T, with 1 on the diagonal of padded slots. (R, K, K)"""
    return factor_ex(C, pad)[0]


def factor_ex(C: Tensor, pad: Tensor) -> tuple[Tensor, Tensor]:
    """The same, and whether there is one: (R, K, K), (R,)."""
    L, info = torch.linalg.cholesky_ex(torch.baddbmm(torch.diag_embed(pad.to(C.dtype)), C, C.mT))
    return L, info == 0


def independent(A: Tensor, J: Tensor, least: float = PIVOT) -> Tensor:
    """J without the faces whose normals depend on those before them."""
    m = A.shape[-2]
    C = take(A, J)
    L, sound = factor_ex(C, J == m)
    bad = (~sound | ~(L.diagonal(dim1=1, dim2=2) >= least).all(1)).nonzero()[:, 0]
    if not len(bad):
        return J
    some = J[bad]
    some = some.masked_fill(~orthonormal(C[bad], least)[1], m).sort(1).values
    return J.index_copy(0, bad, some)


def orthonormal(E: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """Q (*, n, p) with orthonormal columns, and which rows of E (*, p, n) they stand for, (*, p).

    A row that is nearer than `least` to the span of those before it has a column of 0. The rows have length 1 or 0. This is
    Gram-Schmidt, each row twice, which is right however many of the rows depend on each other.
    """
    columns: list[Tensor] = []
    kept: list[Tensor] = []
    for q in E.unbind(-2):
        if columns:
            B = torch.stack(columns, -1)
            for _ in range(2):
                q = q - (B @ (B.mT @ q[..., None]))[..., 0]
        length = q.norm(dim=-1, keepdim=True)
        keep = length > least
        columns.append(torch.where(keep, q / torch.where(keep, length, 1.0), 0.0))
        kept.append(keep[..., 0])
    return torch.stack(columns, -1), torch.stack(kept, -1)


def few(A: Tensor) -> bool:
    """Whether all rows share their normals, and these are not many: then all of them at once are cheaper than the chosen ones."""
    return A.dim() == 2 and A.shape[0] <= FEW * A.shape[1]


def products(A: Tensor) -> Tensor:
    """A A^T for shared normals, with a last row and column of 0 for padded slots, (m + 1, m + 1)."""
    return torch.nn.functional.pad(A @ A.mT, (0, 1, 0, 1))


def products_of(G: Tensor, J: Tensor) -> Tensor:
    """A_J A_J^T from G = products(A). (R, K, K)"""
    at = J[:, :, None] * G.shape[0] + J[:, None, :]
    return G.view(-1).index_select(0, at.view(-1)).view(at.shape)


def shared_factor(G: Tensor, J: Tensor) -> Tensor:
    """`factor` of the faces J from G = products(A). (R, K, K)"""
    part = products_of(G, J)
    part.diagonal(dim1=1, dim2=2).add_((J == G.shape[0] - 1).to(G.dtype))
    return torch.linalg.cholesky_ex(part)[0]


def spread(l: Tensor, J: Tensor, m: int) -> Tensor:
    """l (R, K) of the faces J as one number per face, (R, m)."""
    return l.new_zeros(len(l), m + 1).scatter(1, J, l)[:, :m]


class Chosen:
    """The normals A_J of every row: products with them, and their factor."""

    def __init__(self, A: Tensor, J: Tensor, G: Tensor | None = None):
        self.A, self.J, self.few = A, J, few(A)
        self.C = A if self.few else take(A, J)
        self.L = shared_factor(products(A) if G is None else G, J) if self.few else factor(self.C, J == A.shape[-2])

    def times(self, y: Tensor) -> Tensor:
        """A_J y, (R, K)."""
        return pick(y @ self.A.mT, self.J) if self.few else times(self.C, y)

    def back(self, l: Tensor) -> Tensor:
        """A_J^T l, (R, n)."""
        return spread(l, self.J, len(self.A)) @ self.A if self.few else back(self.C, l)

    def solve(self, r: Tensor) -> Tensor:
        """(A_J A_J^T)^-1 r, (R, K)."""
        return torch.cholesky_solve(r[:, :, None], self.L)[:, :, 0]

    def meet(self, x: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest y with A_J y = d, and l with y = x - A_J^T l.

        With one refinement, after which the error grows with the condition of A_J and not with its square.
        """
        l = self.solve(self.times(x) - d)
        y = x - self.back(l)
        more = self.solve(self.times(y) - d)
        return y - self.back(more), l + more


def on_faces(x: Tensor, A: Tensor, b: Tensor, J: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest y with A_J y = b_J, and l with y = x - A_J^T l."""
    return Chosen(A, J).meet(x, pick(b, J))


def tolerance(x: Tensor, y: Tensor, b: Tensor) -> Tensor:
    """The rounding of A y - b in float64, (R, m)."""
    size = torch.maximum(x.norm(dim=1), y.norm(dim=1))[:, None]
    return 16 * EPS * (size + torch.where(torch.isfinite(b), b.abs(), 0.0))


def added(n: int, m: int) -> int:
    """How many faces a round adds: tuned on (10, 30), (20, 200), (100, 100) variables and faces."""
    return max(2, min(16, n * n // (4 * max(m, 1))))


def meeting(x: Tensor, A: Tensor, b: Tensor, J: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """For the nearest y with A_J y = b_J: the factor of A_J A_J^T, l with y = x - A_J^T l, and A y - b."""
    C = take(A, J)
    L = factor(C, J == A.shape[-2])
    l = torch.cholesky_solve((times(C, x) - pick(b, J))[:, :, None], L)[:, :, 0]
    return L, l, times(A, x - back(C, l)) - b


def shared_meeting(start: Tensor, G: Tensor, J: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`meeting` from start = A x - b and G = products(A), for rows that share A."""
    L = shared_factor(G, J)
    l = torch.cholesky_solve(pick(start, J)[:, :, None], L)[:, :, 0]
    return L, l, torch.addmm(start, spread(l, J, start.shape[1]), G[:-1, :-1], alpha=-1)


def guess(start: Tensor, A: Tensor, G: Tensor | None) -> Tensor:
    """Rough multipliers (R, m): accelerated projected gradient steps on the dual, min l A A^T l / 2 - start l over l >= 0.

    In float32, relative to the largest violation of a row. Only the order of the multipliers is used: whatever comes out here,
    pivoting ends at the same point or says that it does not.
    """
    s = (start / start.amax(1, keepdim=True).clamp(min=1e-300)).float()
    step = gradient_step(A.float(), None if G is None else G[:-1, :-1].float(), s)
    l = z = torch.zeros_like(s)
    for k in range(LOOKS):
        new = step(z).clamp_(min=0)
        l, z = new, torch.lerp(l, new, 1 + k / (k + 3))
    return torch.where(torch.isfinite(l), l, 0.0)


def gradient_step(A: Tensor, G: Tensor | None, s: Tensor) -> Callable[[Tensor], Tensor]:
    """z -> z - r (A A^T z - s), r the inverse of the largest eigenvalue of A A^T, which is G if that is at hand."""
    if G is not None:
        rate = 1 / (1.1 * largest_eigenvalue(lambda v: v @ G, G[:1]))
        M, r = torch.eye(len(G), device=G.device) - rate * G, rate * s
        return lambda z: torch.addmm(r, z, M)
    if A.dim() == 2:
        rate = 1 / (1.1 * largest_eigenvalue(lambda v: v @ A @ A.mT, A[None, :, 0]))
        B, r = rate * A, rate * s
        return lambda z: torch.addmm(z + r, z @ A, B.mT, alpha=-1)
    rate = 1 / (1.1 * largest_eigenvalue(lambda v: times(A, back(A, v)), A[:, :, 0]))
    r = rate * s
    return lambda z: z + r - rate * times(A, back(A, z))


def largest_eigenvalue(through: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
    """Of the symmetric maps `through` of rows (R, m), from below: (R, 1). If more than a tenth is missing, the guess is bad."""
    v = torch.ones_like(like)
    for _ in range(POWERS):
        v = through(v / v.norm(dim=1, keepdim=True).clamp(min=TINY))
    return v.norm(dim=1, keepdim=True).clamp(min=TINY)


def largest(l: Tensor, slots: int) -> Tensor:
    """The faces with the largest multipliers (R, m), the largest first, padded with m. (R, up to slots)"""
    real = l > GUESSED * l.amax(1, keepdim=True)
    width = min(slots, int(real.sum(1).max()))
    value, index = torch.where(real, l, 0.0).topk(width, 1)
    return torch.where(value > 0, index, l.shape[1])


def thinned(A: Tensor, J: Tensor, G: Tensor | None) -> Tensor:
    """J without the faces whose normals depend on those before them, as far as a Cholesky factor with a small diagonal tells."""
    m = A.shape[-2]
    pad = J == m
    if G is None:
        C = take(A, J)
        part = C @ C.mT
    else:
        part = products_of(G, J)
    part.diagonal(dim1=1, dim2=2).add_(pad.to(part.dtype) + BLUR)
    pivots = torch.linalg.cholesky_ex(part)[0].diagonal(dim1=1, dim2=2)
    J = J.masked_fill(~(pivots >= PIVOT), m)
    return J.gather(1, (J == m).to(torch.int8).sort(dim=1, stable=True).indices)


def block_pivoting(
    x: Tensor, A: Tensor, b: Tensor, J: Tensor, G: Tensor | None = None, rounds: int = ROUNDS
) -> tuple[Tensor, Tensor, Tensor]:
    """J (R, min(n, m)) for every row, padded with m; whether the row is finished; the rounds it took. G: products(A), if at hand.

    A row is finished when y = P(x) on the faces J is feasible and its multipliers are >= 0, both to rounding. J is in the order
    of the multipliers, so that of faces that depend on each other those that push least are left out. Rows that have too many
    faces all the same are given up at once.
    """
    R, n = x.shape
    m, slots = A.shape[-2], J.shape[1]
    out, finished = J.clone(), torch.zeros(R, dtype=torch.bool, device=x.device)
    count = torch.zeros(R, dtype=torch.long, device=x.device)
    if not R or not slots:
        return out, ~finished, count
    rows, step = torch.arange(R, device=x.device), added(n, m)
    floor, size = 16 * EPS * torch.where(torch.isfinite(b), b.abs(), 0.0), x.norm(dim=1, keepdim=True)
    start = times(A, x) - b
    G = (products(A) if G is None else G) if few(A) else None
    fresh = (J == m).all(1, keepdim=True)
    if bool(fresh.any()):
        J = torch.where(
            fresh, torch.nn.functional.pad(first := largest(guess(start, A, G), slots), (0, slots - first.shape[1]), value=m), J
        )
    for turn in range(rounds):
        width = max(1, int((J < m).sum(1).max()))
        J = J[:, :width]
        L, l, over = meeting(x, A, b, J) if G is None else shared_meeting(start, G, J)
        sound = (L.diagonal(dim1=1, dim2=2) >= PIVOT).all(1)
        bad = (~sound).nonzero()[:, 0]
        if len(bad):
            J, l, over, sound = retried(x, A, b, J, start, G, l, over, sound, bad)
        over = over - floor - 16 * EPS * (size + l.abs().sum(1, keepdim=True))
        push = l < -16 * EPS * size
        done = sound & (over.amax(1) <= 0) & ~push.any(1)
        stop = done | ~sound
        if bool(stop.any()):
            at = stop.nonzero()[:, 0]
            out[rows[at]] = torch.nn.functional.pad(J[at], (0, slots - width), value=m)
            finished[rows[at]], count[rows[at]] = done[at], turn + 1
            if len(at) == len(rows):
                return out, finished, count
            left = (~stop).nonzero()[:, 0]
            rows, x, J, l, over, push, size, start = chosen(left, rows, x, J, l, over, push, size, start)
            A, b, floor = rows_of(A, left, 2), rows_of(b, left, 1), rows_of(floor, left, 1)
        J = exchanged(J, l.masked_fill(push, 0.0), over, step, slots)
    out[rows], count[rows] = torch.nn.functional.pad(J, (0, slots - J.shape[1]), value=m), rounds
    return out, finished, count


def exchanged(J: Tensor, l: Tensor, over: Tensor, step: int, slots: int) -> Tensor:
    """The `step` most violated faces, then those of J with l > 0 in the order of l, padded with m. (R, up to slots)

    The new ones come first, so that where faces depend on each other an old one leaves: else nothing would change.
    """
    m = over.shape[1]
    J = J.masked_fill(l <= 0, m)
    over = torch.nn.functional.pad(over, (0, 1), value=-math.inf).scatter(1, J, -math.inf)
    more, index = over.topk(max(1, min(step, m, int((over > 0).sum(1).max()))), 1)
    order = torch.cat([1 + l / l.amax(1, keepdim=True).clamp(min=1e-300), 3 + more / (1e-300 + 2 * more[:, :1].abs())], 1)
    J = torch.cat([J, torch.where(more > 0, index, m)], 1)
    return J.gather(1, order.masked_fill(J == m, -1.0).sort(1, descending=True).indices)[:, :slots]


def retried(x, A, b, J, start, G, l, over, sound, bad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """J, l, A y - b and whether they can be trusted, where the rows `bad` leave out faces that depend on others."""
    some = thinned(rows_of(A, bad, 2), J[bad], G)
    if G is None:
        L, l1, over1 = meeting(x[bad], rows_of(A, bad, 2), rows_of(b, bad, 1), some)
    else:
        L, l1, over1 = shared_meeting(start[bad], G, some)
    good = (L.diagonal(dim1=1, dim2=2) >= PIVOT).all(1)
    J, l, over = (t.index_copy(0, bad, new) for t, new in ((J, some), (l, l1), (over, over1)))
    return J, l, over, sound.index_copy(0, bad, good)
