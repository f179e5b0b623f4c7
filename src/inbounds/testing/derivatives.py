"""Laws of derivatives, and of the dimension, in float64."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import Manifold
from .case import Case, worst


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
