"""Laws of a metric: gradients, geodesics, transport, volumes and groups."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import LieGroup, Manifold, tangent_basis
from .case import Case, worst
from .derivatives import unit_tangents


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
