"""Shared by the sets with obstacles: choosing among candidates."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..kernels.vectors import norm

FLOAT32 = torch.float32  # emptiness and disjointness are decided with its skins, so that they hold in every dtype


def cheapest(points: Tensor, cost: Tensor, allowed: Tensor) -> Tensor:
    """Of the candidates (*batch, K, n), the allowed one of least cost: (*batch, n)."""
    best = torch.where(allowed, cost, math.inf).argmin(-1, keepdim=True)
    index = best[..., None].expand(*best.shape, points.shape[-1])
    return points.gather(-2, index)[..., 0, :]


def cone_projection(v: Tensor, normals: Tensor, active: Tensor) -> Tensor:
    """Nearest w to v with w.n_i <= 0 for every active unit normal n_i (*batch, K, n).

    Exact where at most two directions are left (the plane, a surface) or the active normals are parallel:
    there w is v, or v slid along one active boundary, or 0.
    """
    outward = (normals * v[..., None, :]).sum(-1)
    slid = v[..., None, :] - outward.clamp(min=0)[..., None] * normals * active[..., None]
    options = torch.cat([v[..., None, :], slid, torch.zeros_like(v)[..., None, :]], -2)
    over = (options[..., :, None, :] * normals[..., None, :, :]).sum(-1)  # (*batch, options, K)
    size = v.abs().amax(-1)[..., None, None]
    allowed = ((over <= 16 * torch.finfo(v.dtype).eps * size) | ~active[..., None, :]).all(-1)
    cost = (options - v[..., None, :]).square().sum(-1)
    return cheapest(options, cost, allowed)


def sample_free(draw: Callable[[], Tensor], allowed: Callable[[Tensor], Tensor], project: Callable[[Tensor], Tensor]) -> Tensor:
    """Rejection: redraw the rows that are not allowed; what is left after a thousand rounds is projected."""
    x = draw()
    for _ in range(1000):
        bad = ~allowed(x)
        if bad.is_meta or not bad.any():
            return x
        x = torch.where(bad, draw(), x)
    return project(x)


def positive_root(square: Tensor) -> Tensor:
    """sqrt where positive, else 0, with zero gradient there."""
    real = square > 0
    return torch.where(real, torch.where(real, square, 1.0).sqrt(), 0.0)


def closest_pair(points: Tensor, allowed: Tensor, same: float) -> float:
    """Least distance between two allowed points (*batch, K, n) further apart than `same`; inf if there are none."""
    d = distances(points, points)
    ok = allowed[..., :, None] & allowed[..., None, :] & (d > same)
    return float(torch.where(ok, d, math.inf).min()) if d.numel() else math.inf


def distances(p: Tensor, q: Tensor) -> Tensor:
    """|p_i - q_j|, (*batch, K, L), to rounding also where points coincide."""
    return norm(p[..., :, None, :] - q[..., None, :, :])
