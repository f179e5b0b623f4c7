"""The contract as a function: `check_set(M)` raises an error that names the law a set breaks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .core import ConstraintSet, LieGroup, Manifold, tangent_basis
from .kernels.vectors import norm
from .sets.solved import SolvedSet, SolveError


class LawError(AssertionError):
    """A set breaks a law of the contract."""


def check_set(M: ConstraintSet, seed: int = 0, points: int = 64) -> None:
    """Check the laws of the contract on M, in float32 and float64; raise LawError at the first that fails.

    Points of M come from M.sample, or from projected noise where M does not sample. Laws of first derivatives are checked in
    float64; they may fail on one row in fifty, since a random row can sit on a kink.
    """
    if not isinstance(M, ConstraintSet):
        raise TypeError(f"check_set asked for a ConstraintSet, got {type(M).__name__}. Write check_set(MySet()).")
    overrides_hooks_only(M)
    for dtype in (torch.float32, torch.float64):
        case = Case.of(M, dtype, seed, points)
        for law in LAWS:
            law(case)
        if dtype == torch.float64:
            for kind, laws in SMOOTH_LAWS:
                for law in laws if isinstance(M, kind) else ():
                    law(case)


def overrides_hooks_only(M: ConstraintSet) -> None:
    """The public methods of the contract check their input; a set that replaces one of them loses these checks."""
    for base in (ConstraintSet, Manifold, LieGroup):
        for name, method in vars(base).items() if isinstance(M, base) else ():
            public = callable(method) and not name.startswith("_") and not getattr(method, "__isabstractmethod__", False)
            if public and getattr(type(M), name) is not method:
                raise LawError(
                    f"{M!r} breaks a law: public methods are the contract's own, but {type(M).__name__} defines {name}. "
                    f"Write the hook _{name} instead, which is called with checked input."
                )


@dataclass(frozen=True)
class Case:
    """A set with test data in one dtype: points p of M, noise x around M, the generator."""

    M: ConstraintSet
    p: Tensor
    x: Tensor
    scale: float
    generator: torch.Generator

    @classmethod
    def of(cls, M: ConstraintSet, dtype: torch.dtype, seed: int, points: int) -> Case:
        """Test data for M: samples of it, and noise from a hundredth of its size to three times its size around them."""
        g = torch.Generator().manual_seed(seed)

        def draw() -> Tensor:
            return torch.randn(points, *M.shape, generator=g, dtype=dtype)

        try:
            p = M.sample(points, generator=g, dtype=dtype)
        except NotImplementedError:
            p = M.project(draw())
        scale = float(p.abs().max().clamp(min=1)) if bool(torch.isfinite(p).all()) else 1.0
        size = torch.logspace(-2, 0.5, points, dtype=dtype).reshape(-1, *[1] * len(M.shape))
        return cls(M, p, p + scale * size * draw(), scale, g)

    @property
    def eps(self) -> float:
        """The rounding of the case's dtype."""
        return torch.finfo(self.x.dtype).eps

    @property
    def tol(self) -> float:
        """Rounding allowed in a point of M; a set that is not exact answers for its own accuracy."""
        own = 0.0 if self.M.exact else 1e-3
        return max(own, 64 * math.sqrt(math.prod(self.M.shape)) * self.eps)

    def draw(self, *batch: int) -> Tensor:
        """Normal random numbers in the shape of points of M: (*batch, *shape)."""
        return torch.randn(*batch, *self.M.shape, generator=self.generator, dtype=self.x.dtype)

    def size(self, x: Tensor) -> Tensor:
        """The length of points or vectors: (*batch,)."""
        return norm(self.M._flat(x))

    def away(self, x: Tensor) -> Tensor:
        """The length of x in the metric in which `project` finds the nearest point: (*batch,)."""
        return norm(self.M._flat(self.M._isometric(x)))

    def room(self, y: Tensor) -> Tensor:
        """What rounding at y is relative to."""
        return torch.maximum(self.size(y).clamp(min=self.scale), torch.as_tensor(self.M._scale(y), dtype=y.dtype))

    def require(self, ok: Tensor | bool, law: str, detail: str) -> None:
        """Raise a LawError that names the law unless all is ok."""
        if not bool(torch.as_tensor(ok).all()):
            dtype = str(self.x.dtype).removeprefix("torch.")
            raise LawError(f"{self.M!r} breaks the law '{law}' in {dtype}: {detail}")

    def require_most(self, ok: Tensor, law: str, detail: str) -> None:
        """`require` for laws that may fail in 2 % of the rows, at kinks and medial axes."""
        share = float(ok.double().mean())
        self.require(share >= 0.98, law, f"{detail}, in {100 * (1 - share):.0f} % of the rows")


def worst(t: Tensor) -> str:
    """The largest entry, for messages."""
    return f"{float(t.max()) if t.numel() else 0:.1e}"


# --- laws of project and violation, both dtypes -------------------------------------------------------------


def keeps_dtype(c: Case) -> None:
    """project returns the shape that it gets, and computes in the dtype that it gets."""
    y, raw = c.M.project(c.x), c.M._project(c.x)
    c.require(y.dtype == raw.dtype == c.x.dtype, "keeps the dtype", f"project({c.x.dtype}) computed {raw.dtype}.")
    c.require(y.shape == c.x.shape, "keeps the shape", f"project({tuple(c.x.shape)}) returned {tuple(y.shape)}.")


def leaves_its_input_alone(c: Case) -> None:
    """project, violation and tangent return new tensors and do not write into their arguments."""
    x, p = c.x.clone(), c.p.clone()
    results = [c.M.project(x), c.M.project(p)]
    c.M.violation(x)
    c.M.tangent(p, x)

    def same() -> bool:
        return torch.equal(x, c.x) and torch.equal(p, c.p)

    c.require(same(), "leaves its input alone", "a method wrote into its argument.")
    for y in results:
        y += 1
    c.require(same(), "leaves its input alone", "project returned its argument itself.")


def rows_are_independent(c: Case) -> None:
    """Row i of project(x) is project(row i), for batch shapes (), (1,), (3, 1, 2), and among a thousand rows."""
    many = c.x.repeat(1000 // len(c.x) + 1, *[1] * len(c.M.shape))
    gap = float((c.M.project(many)[-len(c.x) :] - c.M.project(c.x)).abs().max())
    bound = 1e3 * c.tol * c.scale
    c.require(gap <= bound, "rows are independent", f"among {len(many)} rows the same rows differ by {gap:.1e}.")
    x = c.x[-6:]
    rows = torch.stack([c.M.project(row) for row in x])
    for batch in ((6,), (3, 1, 2)):
        whole = c.M.project(x.reshape(*batch, *c.M.shape)).reshape(rows.shape)
        gap = float((whole - rows).abs().max())
        c.require(gap <= 1e3 * c.tol * c.scale, "rows are independent", f"batch {batch} differs from single rows by {gap:.1e}.")


def is_total(c: Case) -> None:
    """Finite and in M at 0, and from 1e-20 to 1e20."""
    for name, x in (("0", 0 * c.x), ("1e-20 x", 1e-20 * c.x), ("1e20 x", 1e20 * c.x)):
        y = c.M.project(x)
        c.require(torch.isfinite(y), "total", f"project({name}) is not finite.")
        v = c.M.violation(y)
        c.require(v <= c.tol * c.room(y), "total", f"project({name}) has violation {worst(v)}.")


def lands_in_the_set(c: Case) -> None:
    """project(x) and samples are points of M, including rounding."""
    y = c.M.project(c.x)
    v = c.M.violation(y)
    c.require(v <= c.tol * c.room(y), "lands in M", f"violation of project(x) is {worst(v)}.")
    c.require(c.M.violation(c.p) <= c.tol * c.room(c.p), "samples are in M", "sample() left M.")
    try:
        over = c.M.residuals(y)[1] if c.M.exact else y[:0]
    except NotImplementedError:
        return
    c.require(over <= 0, "inequalities hold including rounding", f"an inequality of project(x) is {worst(over)} > 0.")


def is_idempotent(c: Case) -> None:
    """project leaves its own results where they are."""
    y = c.M.project(c.x)
    gap = c.size(c.M.project(y) - y)
    c.require(gap <= c.tol * c.size(y).clamp(min=c.scale), "idempotent", f"project moves its own result by {worst(gap)}.")


def violation_is_independent(c: Case) -> None:
    """violation gives the same numbers when project is broken. Sets that are not exact may use project, and say so."""
    if not c.M.exact:
        return
    before = c.M.violation(c.x)
    c.M._project = lambda x: x + 1.0  # pyright: ignore[reportAttributeAccessIssue]
    try:
        after = c.M.violation(c.x)
    finally:
        del c.M._project
    same = (before == after) | (before.isnan() & after.isnan())
    c.require(same, "violation does not go through project", "breaking project changed the violation.")
    outside = c.size(c.x - c.M.project(c.x)) > 1e-3 * c.scale
    c.require(before[outside] > 0, "violation is zero only in M", "it is 0 at a point that project moves.")


def nothing_is_nearer(c: Case) -> None:
    """Neither points of M nor project(p + s xi) are nearer to x than p = project(x), for x near M and up to 1e6 away.

    A solver on a set that is not convex promises a point that is nearer than its neighbours, not the nearest of all: there only
    small s are asked for, and no samples.
    """
    local = isinstance(c.M, SolvedSet) and c.M.reach != math.inf
    away = torch.logspace(0.5, 6, len(c.x), dtype=c.x.dtype).reshape(-1, *[1] * len(c.M.shape))
    for x in (c.x, c.p + c.scale * away * c.draw(len(c.p))):
        try:
            p = c.M.project(x)
        except SolveError:  # a solver may say that it has no answer for points far away, but not near the set
            if x is c.x:
                raise
            continue
        d = c.away(x - p)
        slack = 64 * c.tol * (c.away(x) + c.scale)
        v = c.M.violation(p)
        c.require(
            v <= c.tol * c.room(p), "lands in M", f"violation of project(x) is {worst(v)} for |x| up to {worst(c.size(x))}."
        )
        others = c.away(x[:, None] - c.p[None])
        c.require((others.amin(1) >= d - slack) | local, "nearest", "a sampled point of M is nearer.")
        for s in (1e-4, 1e-3) if local else (1e-4, 1e-3, 1e-2, 1e-1, 1.0):
            q = c.M.project(p + s * c.scale * c.draw(len(p)))
            c.require(c.away(x - q) >= d - slack, "nearest", f"project(p + {s:g} xi) is nearer than p = project(x).")


def samples_cover_the_set(c: Case) -> None:
    """Projected noise lies among the samples: not more than a fifth of it three times as far from every sample as samples are
    from each other, and a fifth of their spread. A set that goes on far beyond its samples is not compact, and may sample
    as it likes.
    """
    try:
        a = c.M._flat(c.M.sample(512, generator=c.generator, dtype=c.x.dtype))
    except NotImplementedError:
        return
    middle = a.mean(0)
    spread = (a - middle).norm(dim=-1)
    size = 2 * float(spread.max()) / math.sqrt(a.shape[-1])
    noise = c.M._flat(c.draw(256))
    b, far = (c.M._flat(c.M.project((middle + s * noise).reshape(-1, *c.M.shape))) for s in (size, 1e3 * size))
    if float((far - middle).norm(dim=-1).max()) > 8 * float(spread.max()):
        return
    exact = "donot_use_mm_for_euclid_dist"
    own = torch.cdist(a, a, compute_mode=exact).fill_diagonal_(math.inf).amin(1)
    gap = max(3 * float(own.quantile(0.95)), 0.2 * float(spread.max()))
    lost = torch.cdist(b, a, compute_mode=exact).amin(1) > gap
    share = float(lost.double().mean())
    detail = f"{100 * share:.0f} % of projected noise is far from every one of 512 samples."
    c.require(share <= 0.2, "samples cover the set", detail)


def keeps_bad_rows_apart(c: Case) -> None:
    """A row with NaN is mapped to NaN, and the other rows do not see it."""
    x = c.x.clone()
    x[(1, *[0] * len(c.M.shape))] = math.nan
    y = c.M.project(x)
    good = torch.arange(len(x)) != 1
    c.require(y[1].isnan(), "a NaN row stays in its row", "a row with NaN was mapped to numbers.")
    c.require(torch.isfinite(y[good]), "a NaN row stays in its row", "another row was lost.")


def gradients_are_finite(c: Case) -> None:
    """On M, at 0, at noise and at 1e-20, 1e20 of it."""
    for name, x in (("points of M", c.p), ("0", 0 * c.x), ("noise", c.x), ("1e-20 x", 1e-20 * c.x), ("1e20 x", 1e20 * c.x)):
        x = x.clone().requires_grad_()
        y = c.M.project(x)
        if not y.requires_grad:
            c.require(False, "gradients are finite", "project cut the graph.")
        (g,) = torch.autograd.grad(y, x, c.draw(len(x)))
        c.require(torch.isfinite(g), "gradients are finite", f"NaN or inf at {name}.")
    for p in (c.p, c.M.project(c.x)):
        p, v = p.clone().requires_grad_(), c.draw(len(p)).requires_grad_()
        t = c.M.tangent(p, v)
        grads = torch.autograd.grad(t, (p, v), torch.ones_like(t), allow_unused=True)
        ok = torch.stack([torch.isfinite(g).all() for g in grads if g is not None])
        c.require(ok, "gradients are finite", "NaN or inf in the gradient of tangent.")


def tangent_kills_the_normal(c: Case) -> None:
    """tangent(p, x - p) = 0 for p = project(x). Loose: near a kink the rounding of p turns the cone."""
    p = c.M.project(c.x)
    t = c.size(c.M.tangent(p, c.x - p))
    c.require_most(t <= 1e4 * c.eps * (c.size(c.x) + c.scale), "tangent(p, x - p) = 0", f"it is up to {worst(t)}")


def reach_inequality(c: Case) -> None:
    """<v, y - p> <= |v| |y - p|^2 / (2 reach) for y in M and v = x - p normal at p = project(x)."""
    if c.M.reach is None:
        return
    p = c.M.project(c.x)
    v = c.M._flat(c.M._isometric(c.x - p))
    step = c.M._flat(c.M._isometric(c.p[None] - p[:, None])).double()
    left = (v.double()[:, None] * step).sum(-1)
    right = v.double().norm(dim=-1)[:, None] * step.square().sum(-1) / (2 * c.M.reach)
    slack = 1e3 * c.tol * (c.size(c.x)[:, None] + c.scale) ** 2
    c.require(left <= right + slack, "reach inequality", f"it fails for reach {c.M.reach:g}.")


def margin_is_a_margin(c: Case) -> None:
    """uniqueness_margin is 1-Lipschitz and at least reach - distance."""
    m, d = c.M.uniqueness_margin(c.x), c.M.distance(c.x)
    slack = 64 * c.tol * (c.size(c.x) + c.scale)
    if c.M.reach is not None:
        c.require(m >= c.M.reach - d - slack, "margin >= reach - distance", f"it is {float(m.min()):.1e} somewhere.")
    y = c.x + 0.1 * c.scale * c.draw(len(c.x))
    change = torch.where(m.isinf(), 0.0, (c.M.uniqueness_margin(y) - m).abs())
    c.require(change <= c.size(y - c.x) + slack, "the margin is 1-Lipschitz", "it changed faster than x.")
    # P is constant along a normal until it meets a point with several projections, and none is within the margin
    p = c.M.project(c.x)
    off = d > 1e-3 * c.scale
    n, p = (c.x - p)[off] / d[off].reshape(-1, *[1] * len(c.M.shape)), p[off]
    for side in (0.95, -0.95):
        step = side * m[off].clamp(max=10 * c.scale)
        q = c.M.project(c.x[off] + step.reshape(-1, *[1] * len(c.M.shape)) * n)
        beyond = d[off] + step < 0  # on the other side of M, which only a manifold has
        gap = torch.where(beyond & (not isinstance(c.M, Manifold)), 0.0, c.size(q - p))
        c.require(gap <= 1e4 * c.tol * c.scale, "the projection is unique within the margin", f"it jumps by {worst(gap)}.")


# --- laws of derivatives, float64 ---------------------------------------------------------------------------


def tangent_is_the_one_sided_derivative(c: Case) -> None:
    """(project(p + t v) - p) / t -> tangent(p, v), at samples and at projected noise (corners, boundaries)."""
    t = 1e-8 * c.scale
    for p in (c.p, c.M.project(c.x)):
        v = c.draw(len(p))
        slope = (c.M.project(p + t * v) - p) / t
        gap = c.size(slope - c.M.tangent(p, v)) / c.size(v)
        c.require_most(gap <= 2e-3, "tangent = one-sided derivative of project", f"they differ by up to {worst(gap)} |v|")


def gradient_is_the_derivative(c: Case) -> None:
    """<w, DP d> by autograd against central differences, where one-sided differences agree."""
    h, w, d = 1e-6, c.draw(len(c.x)), c.draw(len(c.x))
    x = c.x.clone().requires_grad_()
    (g,) = torch.autograd.grad(c.M.project(x), x, w)
    up, mid, down = (c.M.project(c.x + s * d) for s in (h, 0, -h))
    forward, backward = c.M._flat((up - mid) * w).sum(-1) / h, c.M._flat((mid - down) * w).sum(-1) / h
    smooth = (forward - backward).abs() <= 1e-4 * (1 + forward.abs())
    gap = (c.M._flat(g * d).sum(-1) - 0.5 * (forward + backward)).abs()
    ok = ~smooth | (gap <= 1e-4 * (1 + c.size(w) * c.size(d)))
    c.require_most(ok, "gradient = derivative", f"they differ by up to {worst(gap[smooth])}")


def gradient_keeps_tangent_directions(c: Case) -> None:
    """DP d = d at p in M for every direction d along which M goes on both ways: tangent(p, d) = d, tangent(p, -d) = -d.

    This is where networks train: p = project(x) lies on the boundary of M. There P has a kink, but every element of its Clarke
    Jacobian keeps these directions.
    """
    for p in (c.p, c.M.project(c.x)):
        d = c.M.tangent(p, c.draw(len(p)))
        d = -c.M.tangent(p, -d)
        both = (c.size(c.M.tangent(p, d) - d) <= 1e-9 * c.size(d)) & (c.size(c.M.tangent(p, -d) + d) <= 1e-9 * c.size(d))
        w, z = c.draw(len(p)), p.clone().requires_grad_()
        (g,) = torch.autograd.grad(c.M.project(z), z, w)
        gap = (c.M._flat((g - w) * d).sum(-1)).abs() / (c.size(w) * c.size(d)).clamp(min=1e-300)
        ok = ~both | (gap <= (1e-6 if c.M.exact else 1e-2))
        c.require_most(ok, "the gradient keeps tangent directions", f"it changes them by up to {worst(gap[both])}")


def second_derivative_is_the_derivative(c: Case) -> None:
    """The derivative of the gradient of <w, P> in direction d against central differences, where one-sided ones agree.

    A set may refuse, with an error that says "second derivative"; it may not be wrong.
    """
    if not c.M.exact:
        return
    h, w, d = 1e-5, c.draw(len(c.x)), c.draw(len(c.x))

    def slope(at: Tensor, graph: bool = False) -> tuple[Tensor, Tensor]:
        at = at.clone().requires_grad_()
        return at, torch.autograd.grad(c.M.project(at), at, w, create_graph=graph)[0]

    try:
        x, g = slope(c.x, graph=True)
    except RuntimeError as refusal:
        if "second derivative" in str(refusal):
            return
        raise
    along = c.M._flat(g * d).sum(-1)
    bent = torch.zeros_like(c.x)
    if along.requires_grad:
        found = torch.autograd.grad(along.sum(), x, allow_unused=True)[0]
        bent = bent if found is None else found
    e = c.draw(len(c.x))
    up, mid, down = (c.M._flat(slope(c.x + s * e)[1].detach() * d).sum(-1) for s in (h, 0, -h))
    forward, backward = (up - mid) / h, (mid - down) / h
    size = (c.size(w) * c.size(d) * c.size(e)).clamp(min=1.0)
    smooth = (forward - backward).abs() <= 1e-3 * size
    gap = (c.M._flat(bent * e).sum(-1) - 0.5 * (forward + backward)).abs()
    ok = ~smooth | (gap <= 1e-2 * size)
    c.require_most(ok, "second derivative = derivative of the gradient", f"they differ by up to {worst(gap[smooth])}")


def dimension_is_the_rank_of_the_tangent(c: Case) -> None:
    """dim = the trace of v -> tangent(p, v), a projection on a linear space."""
    M, n = c.M, math.prod(c.M.shape)
    assert isinstance(M, Manifold)
    p, axes = c.p[:1], torch.eye(n, dtype=c.p.dtype).reshape(n, *M.shape)
    rank = float((M._flat(M.tangent(p.expand_as(axes), axes)) * M._flat(axes)).sum())
    c.require(abs(rank - M.dim) <= 1e-6 * n, "dim is the dimension of the tangent space", f"dim is {M.dim}, its rank {rank:.2f}.")


def unit_tangents(c: Case) -> Tensor:
    """A tangent vector at every point of the case, of length 1 or the reach, whichever is smaller."""
    v = c.M.tangent(c.p, c.draw(len(c.p)))
    return v / c.size(v).clamp(min=1e-12).reshape(-1, *[1] * len(c.M.shape)) * min(1.0, c.M.reach or 1.0)


def exp_is_a_geodesic(c: Case) -> None:
    """exp(x, 0) = x, velocity v, and, if the metric is the ambient one, exp(x, t v) - project(x + t v) = O(t^3)."""
    M, p = c.M, c.p
    assert isinstance(M, Manifold)
    v = unit_tangents(c)
    c.require(c.size(M.exp(p, 0 * v) - p) <= c.tol * c.scale, "exp(x, 0) = x", "it moved.")
    slope = (M.exp(p, 1e-6 * v) - M.exp(p, -1e-6 * v)) / 2e-6
    c.require(c.size(slope - v) <= 1e-6 * (1 + c.size(v)), "exp starts with velocity v", "another velocity.")
    far, near = (c.size(M.exp(p, t * v) - M.project(p + t * v)).max() for t in (2e-2, 1e-2))
    ok = M.metric != "ambient" or near <= 1e-12 * c.scale or far >= 6.5 * near
    c.require(ok, "exp agrees with project to third order", f"halving t took {float(far):.1e} to {float(near):.1e}.")
    c.require(M.violation(M.origin(p)) <= c.tol * c.scale, "origin is in M", "it is not.")


def log_inverts_exp(c: Case) -> None:
    """log(p, exp(p, v)) = v for short tangent vectors v."""
    M, p = c.M, c.p
    assert isinstance(M, Manifold)
    v = 0.5 * unit_tangents(c)
    try:
        back = M.log(p, M.exp(p, v))
    except NotImplementedError:
        return
    c.require(c.size(back - v) <= 1e-9 * c.scale, "log(x, exp(x, v)) = v", f"off by {worst(c.size(back - v))}.")


# --- laws of the metric ---------------------------------------------------------------------------------------


def gradient_is_the_steepest_ascent(c: Case) -> None:
    """inner(x, gradient(x, g), v) = <g, v> on manifolds; -gradient(x, g) = tangent(x, -g) where the metric is the ambient one."""
    p, g = c.M.project(c.x), c.draw(len(c.x))
    found = c.M.gradient(p, g)
    room = 1e-9 * c.size(g) * (1 + c.size(p) ** 2)
    if c.M.metric == "ambient":
        gap = c.size(found + c.M.tangent(p, -g))
        c.require(gap <= room, "gradient = -tangent(x, -g)", f"off by {worst(gap)}.")
    if isinstance(c.M, Manifold):
        v = c.M.tangent(p, c.draw(len(p)))
        gap = (c.M.inner(p, found, v) - c.M._flat(g * v).sum(-1)).abs()
        c.require(gap <= room * c.size(v), "inner(x, gradient(x, g), v) = <g, v>", f"off by {worst(gap)}.")
        gap = c.size(c.M.tangent(p, found) - found)
        c.require(gap <= room, "the gradient is tangent", f"off by {worst(gap)}.")


def transport_keeps_lengths(c: Case) -> None:
    """Transport from x to x changes nothing, and what it gives is tangent. Where M has a log it keeps inner products, and carries
    the velocity of the geodesic from x to y to minus that of the geodesic from y to x."""
    M, p = c.M, c.p
    assert isinstance(M, Manifold)
    u, v = M.tangent(p, c.draw(len(p))), unit_tangents(c)
    y = M.exp(p, v)
    moved = M.transport(p, y, u)
    room = 1e-9 * (1 + c.size(u)) * (1 + c.size(p) ** 2)
    c.require(c.size(M.transport(p, p, u) - u) <= room, "transport(x, x, v) = v", "it changed v.")
    c.require(c.size(M.tangent(y, moved) - moved) <= room, "transport gives tangent vectors", "it does not.")
    try:
        there, back = M.log(p, y), M.log(y, p)
    except NotImplementedError:
        return
    gap = (M.inner(y, moved, moved) - M.inner(p, u, u)).abs()
    c.require(gap <= room * (1 + c.size(u)), "transport keeps inner products", f"off by {worst(gap)}.")
    gap = c.size(M.transport(p, y, there) + back)
    c.require(gap <= room, "transport(x, y, log(x, y)) = -log(y, x)", f"off by {worst(gap)}.")


def distance_is_the_length_of_the_log(c: Case) -> None:
    """geodesic_distance(x, y)^2 = inner(x, log, log); half of the way is half of the distance, on both sides."""
    M, p = c.M, c.p
    assert isinstance(M, Manifold)
    v = unit_tangents(c)
    y, half = M.exp(p, v), M.exp(p, 0.5 * v)
    try:
        d = M.geodesic_distance(p, y)
    except NotImplementedError:
        return
    room = 1e-7 * (1 + d)
    gap = (d - M.inner(p, v, v).sqrt()).abs()
    c.require(gap <= room, "geodesic_distance(x, exp(x, v)) = |v|", f"off by {worst(gap)}.")
    for other in (p, y):
        gap = (M.geodesic_distance(half, other) - 0.5 * d).abs()
        c.require(gap <= room, "exp is of constant speed", f"off by {worst(gap)}.")


def log_volume_is_the_determinant(c: Case) -> None:
    """log |det d exp| by central differences along a basis of the tangent space."""
    M, h = c.M, 1e-5
    assert isinstance(M, Manifold)
    p, v = c.p[:4], unit_tangents(c)[:4]
    basis = tangent_basis(M, p)
    moved = [(M.exp(p, v + h * b) - M.exp(p, v - h * b)) / (2 * h) for b in basis]

    def gram(x: Tensor, vectors: list[Tensor]) -> Tensor:
        return torch.stack([torch.stack([M.inner(x, a, b) for b in vectors], -1) for a in vectors], -2)

    expected = 0.5 * (torch.logdet(gram(M.exp(p, v), moved)) - torch.logdet(gram(p, basis)))
    gap = (M.log_volume(p, v) - expected).abs()
    c.require(gap <= 1e-5 * (1 + expected.abs()), "log_volume = log |det d exp|", f"off by {worst(gap)}.")


def random_tangents_are_standard_normal(c: Case) -> None:
    """At one point, the mean of inner(v, a)^2 over random tangent vectors v is inner(a, a); within six standard errors."""
    M, many = c.M, 4096
    assert isinstance(M, Manifold)
    p = c.p[:1].expand(many, *M.shape)
    v = M.random_tangent(p, generator=c.generator)
    a = v[:1].expand_as(v)
    expected, found = M.inner(p, a, a)[0], M.inner(p, v, a)[1:].square().mean()
    c.require(
        (found - expected).abs() <= 6 * math.sqrt(2 / many) * expected,
        "random tangents are standard normal",
        f"a variance is {float(found / expected):.3f}.",
    )


def group_laws(c: Case) -> None:
    """hat and vee, group_exp and group_log, compose and inverse fit together."""
    G, p, q = c.M, c.p, c.p.flip(0)
    assert isinstance(G, LieGroup)
    a = 0.5 * torch.randn(len(p), G.dim, generator=c.generator, dtype=p.dtype)
    laws = {
        "vee(hat(c)) = c": G.vee(G.hat(a)) - a,
        "g inverse(g) = origin": G.compose(p, G.inverse(p)) - G.origin(p),
        "(g h) inverse(h) = g": G.compose(G.compose(p, q), G.inverse(q)) - p,
        "group_exp(c) is in the group": G.violation(G.group_exp(a)),
        "group_exp(-c) = inverse": G.group_exp(-a) - G.inverse(G.group_exp(a)),
    }
    for law, gap in laws.items():
        c.require(gap.abs() <= 1e-10 * c.scale**2, law, f"off by {worst(gap.abs())}.")
    try:
        gap = (G.group_log(G.group_exp(a)) - a).abs().max()
    except NotImplementedError:
        return
    c.require(gap <= 1e-9, "group_log(group_exp(c)) = c", f"off by {float(gap):.1e}.")


LAWS = (
    leaves_its_input_alone,
    keeps_dtype,
    rows_are_independent,
    is_total,
    lands_in_the_set,
    is_idempotent,
    violation_is_independent,
    keeps_bad_rows_apart,
    gradients_are_finite,
    nothing_is_nearer,
    samples_cover_the_set,
    tangent_kills_the_normal,
    reach_inequality,
    margin_is_a_margin,
)
SMOOTH_LAWS = (
    (
        ConstraintSet,
        (
            tangent_is_the_one_sided_derivative,
            gradient_is_the_derivative,
            gradient_keeps_tangent_directions,
            second_derivative_is_the_derivative,
            gradient_is_the_steepest_ascent,
        ),
    ),
    (
        Manifold,
        (
            dimension_is_the_rank_of_the_tangent,
            exp_is_a_geodesic,
            log_inverts_exp,
            transport_keeps_lengths,
            distance_is_the_length_of_the_log,
            log_volume_is_the_determinant,
            random_tangents_are_standard_normal,
        ),
    ),
    (LieGroup, (group_laws,)),
)
