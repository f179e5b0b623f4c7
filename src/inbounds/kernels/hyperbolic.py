"""The unit hyperboloid {(t, y) : t = sqrt(1 + |y|^2)}: its nearest point, and hyperbolic functions of squares.

The nearest point to (s, rho u), |u| = 1, is (t, q u) where q >= 0 is the largest root of h(q) = 2q - s q/t - rho. For s > 0 the
function h is convex and not positive at 0, for s <= 0 it is concave and increasing: Newton's method from a bound on the right
side of the root converges without overshooting. The derivative of P follows from h(q) = 0; it is written with y = q u alone, so
that it is smooth where u is not defined.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .derivative import symmetric
from .vectors import norm, unit

FAR = 1e8  # from here on sqrt(1 + q^2) rounds to q, in float64
CHORD = 1 - math.sqrt(0.5)  # q/t <= q (1 - CHORD q^2) for 0 <= q <= 1
TINY = 1e-30  # roots and quotients stay away from 0: compiled code may differentiate these lines
STEPS = 8  # beyond seven only rounding changes, measured over s and rho from 1e-12 to 1e12 and at the focus s = 2, rho = 0


def height(q: Tensor) -> Tensor:
    """sqrt(1 + q^2) without overflow."""
    return torch.where(q > FAR, q, (1 + q.clamp(max=FAR).square()).sqrt())


def _above(s: Tensor, rho: Tensor) -> Tensor:
    """An upper bound on the root for s > 0: (rho + s)/2, or what the cubic below h gives where that is at most 1."""
    a = CHORD * s.clamp(min=TINY)
    outer = torch.maximum((2 * (s - 2).clamp(min=TINY) / a).sqrt(), (2 * rho / a).clamp(min=TINY) ** (1 / 3))
    inner = torch.minimum(rho / (2 - s).clamp(min=TINY), (rho / a).clamp(min=TINY) ** (1 / 3))
    cubic = torch.where(s > 2, outer, inner)
    return torch.where(cubic <= 1, cubic, 0.5 * rho + 0.5 * s)


def _below(s: Tensor, rho: Tensor) -> Tensor:
    """A lower bound on the root for s <= 0: rho/(2 + |s|), or, where h is not positive there, one for roots above 1.

    For these h <= 2q - |s|/(2 + 2q^2) - d with d = rho - |s|, and the root of the right side is at least `beyond`.
    """
    size, d = -s, rho + s
    low = rho / (2 + size)
    curved = torch.minimum(
        (size / 16).clamp(min=TINY) ** (1 / 3), (size / (4 * d.abs()).clamp(min=TINY) - 1).clamp(min=TINY).sqrt()
    )
    beyond = torch.maximum(0.5 * d, curved)
    return torch.where(_excess(s, rho, beyond) <= 0, torch.maximum(low, beyond), low)


def _excess(s: Tensor, rho: Tensor, q: Tensor) -> Tensor:
    """h(q) = 2q - s q/t - rho."""
    return 2 * q - s * (q / height(q)) - rho


def _root(s: Tensor, rho: Tensor) -> Tensor:
    """The largest root q of 2q - s q/t - rho, in float64."""
    q = torch.where(s > 0, _above(s.clamp(min=0), rho), _below(s.clamp(max=0), rho))
    for _ in range(STEPS):
        t = height(q)
        slope = 2 - s / t / t / t
        step = _excess(s, rho, q) / torch.where(slope > 0, slope, 1.0)
        q = (q - torch.where(slope > 0, step, 0.0)).clamp(min=0)
    return q


def _polar(y: Tensor) -> tuple[Tensor, Tensor]:
    """|y| and y/|y| in float64, the latter e_1 at 0. float64 has room for the squares of float32, and needs no smallest number
    to compare with, which the ONNX exporter of torch 2.13 would round to 0."""
    if y.dtype == torch.float64:
        return norm(y)[..., None], unit(y)
    wide = y.double()
    length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    away = length > 0
    first = torch.cat([torch.ones_like(wide[..., :1]), torch.zeros_like(wide[..., 1:])], -1)
    return length, torch.where(away, wide / torch.where(away, length, 1.0), first)


def _value(x: Tensor) -> Tensor:
    rho, u = _polar(x[..., 1:])
    q = _root(x[..., :1].double(), rho)
    return torch.cat([height(q), q * u], -1).to(x.dtype)


def _derivative(x: Tensor, p: Tensor, g: Tensor) -> Tensor:
    """DP g; directions that a point with several nearest points leaves undetermined are dropped."""
    x, p, wide = x.double(), p.double(), g.double()
    s, t, y, g0, gs = x[..., :1], p[..., :1], p[..., 1:], wide[..., :1], wide[..., 1:]
    q = norm(y)[..., None]
    outside = q > 0.1  # there rho/q has all digits, and 2 - s/t has not
    around = torch.where(outside, norm(x[..., 1:])[..., None] / torch.where(outside, q, 1.0), 2 - s / t)
    slope = 2 - s / t / t / t
    least = 64 * torch.finfo(g.dtype).eps
    wide_enough, steep = around > least, slope > least
    a = torch.where(wide_enough, around, 1.0).reciprocal() * wide_enough
    b = torch.where(steep, slope, 1.0).reciprocal() * steep
    n = y / t
    along = (n * gs).sum(-1, keepdim=True)
    # on the medial axis a = 0: what is left moves in the plane of s and u, along (n, u) with u u^T = y y^T / q^2
    bend = torch.where(wide_enough, -(s / t) * a, (t / q.clamp(min=0.1)).square())
    space = a * gs + b * (bend * along + g0) * n
    time = b * ((n * n).sum(-1, keepdim=True) * g0 + along)
    return torch.cat([time, space], -1).to(g.dtype)


nearest_on_hyperboloid = symmetric(_value, _derivative)
nearest_on_hyperboloid.__doc__ = (
    "(*batch, n) -> the nearest point with t = sqrt(1 + |y|^2); on the medial axis, the one along e_1."
)


def sinhc(z: Tensor) -> Tensor:
    """sinh(w)/w at z = w^2 >= 0."""
    small = z < 1e-2
    w = torch.where(small, 1.0, z).sqrt()
    return torch.where(small, 1 + z / 6 * (1 + z / 20 * (1 + z / 42 * (1 + z / 72 * (1 + z / 110)))), torch.sinh(w) / w)


def asinhc(h: Tensor) -> Tensor:
    """asinh(w)/w at h = w^2 >= 0."""
    small = h < 1e-2
    z, series, term = torch.where(small, h, 0.0), 1.0, 1.0
    for k in range(1, 9):
        term = -term * z * ((2 * k - 1) / (2 * k))
        series = series + term / (2 * k + 1)
    w = torch.where(small, 1.0, h).sqrt()
    return torch.where(small, series, torch.asinh(w) / w)
