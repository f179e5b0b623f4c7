"""Laws of project, violation, tangent and sample, in float32 and in float64."""

from __future__ import annotations

import math

import torch

from ..core import Manifold
from ..sets.solved import SolvedSet, SolveError
from .case import Case, worst


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
