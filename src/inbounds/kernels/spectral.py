"""Clamping the eigenvalues of symmetric matrices.

P = max(B, 0) has the derivative dP = Q (k_ij (Q^T dB Q)_ij) Q^T in the eigenbasis Q of B, with the divided differences
k_ij = (1 + (l_i + l_j)/(|l_i| + |l_j|))/2: exact at repeated eigenvalues, 1/2 at l_i = l_j = 0. Every k_ij is in [0, 1], so
no rounding grows, on the boundary either. With H = |B| = 2P - B, Y = 2 dP - dB solves  H Y + Y H = B dB + dB B,  and the
derivative of that equation is the second derivative.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .derivative import symmetric, with_derivative
from .simplex import water_level
from .sylvester import sylvester


def sym(x: Tensor) -> Tensor:
    """The symmetric part of each matrix."""
    return 0.5 * x + 0.5 * x.mT  # the sum of two large entries could overflow


def eigen_floor(x: Tensor) -> float:
    """Rounding of an eigenvalue relative to the largest."""
    return max(4, x.shape[-1]) * torch.finfo(x.dtype).eps


MEMORY = 10**7  # entries of what `diagonal_slope` keeps at once
NULL = 8  # eigenvalues below NULL floors are active: `_clamp` lands on two (LANDING and ACTIVE in core.py)


def safe_eigh(b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues and vectors of b / scale, and the scale (*batch, 1, 1); non-finite rows become the identity."""
    m = b.abs().amax((-2, -1), keepdim=True)
    usable = torch.isfinite(m) & (m >= torch.finfo(b.dtype).tiny)
    eye = torch.eye(b.shape[-1], dtype=b.dtype, device=b.device)
    l, q = torch.linalg.eigh(torch.where(usable, b / torch.where(usable, m, 1.0), eye))
    return torch.where(usable[..., 0], l, 0.0), q, torch.where(usable, m, 0.0)


def _clamp(b: Tensor) -> Tensor:
    """Eigenvalues below the floor land at twice the floor, so that the result is positive semidefinite after rounding."""
    return _clamped(*safe_eigh(b))


def _clamped(l: Tensor, q: Tensor, scale: Tensor) -> Tensor:
    floor = eigen_floor(q) * l[..., -1:].clamp(min=0)
    l = torch.where(l < floor, 2 * floor, l)
    return sym((q * l[..., None, :]) @ q.mT) * scale


def _differences(l: Tensor) -> Tensor:
    """The divided differences k_ij of the module's docstring."""
    size = l.abs()
    pair = size[..., :, None] + size[..., None, :]
    determined = pair > NULL * eigen_floor(l) * size.amax(-1)[..., None, None]
    return 0.5 + 0.5 * (l[..., :, None] + l[..., None, :]) / torch.where(determined, pair, 1.0) * determined


def _divided_value(b: Tensor, g: Tensor) -> Tensor:
    l, q, _ = safe_eigh(b)
    return q @ (_differences(l) * (q.mT @ g @ q)) @ q.mT


def positive_with_slopes(b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The nearest positive semidefinite matrix of b (R, n, n), the eigenvectors and the k_ij: without derivative."""
    l, q, scale = safe_eigh(b)
    return _clamped(l, q, scale), q, _differences(l)


def diagonal_slope(q: Tensor, k: Tensor) -> Tensor:
    """d diag(max(B, 0))_i / d B_jj = sum k_pq q_ip q_iq q_jp q_jq, (R, n, n), from `positive_with_slopes`."""
    n = q.shape[-1]
    parts = []
    for Q, K in zip(*(t.split(max(1, MEMORY // n**3)) for t in (q, k)), strict=True):
        pairs = Q[:, :, :, None] * Q[:, :, None, :]
        parts.append((pairs * K[:, None]).flatten(2) @ pairs.flatten(2).mT)
    return torch.cat(parts)


def _unfolded(b: Tensor, p: Tensor, g: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """H = |B| from p = max(b, 0) and Y of the module's docstring, and a scale in which H has entries of order one."""
    m = torch.where(torch.isfinite(b), b.detach(), 0.0).abs().amax((-2, -1), keepdim=True)
    m = torch.where(m >= torch.finfo(b.dtype).tiny, m, 1.0)
    return sym(2 * p - b) / m, 2 * d - g, m


def _divided_vjp(b: Tensor, g: Tensor, d: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    w = sym(w)
    h, y, m = _unfolded(b, positive_part(b), g, d)
    z = 0.5 * sylvester(h, w)
    turned = sym(2 * z @ y)
    return (sym(2 * z @ g) + turned - 2 * divided(b, turned)) / m, divided(b, w)


def _divided_jvp(b: Tensor, g: Tensor, d: Tensor, db: Tensor, dg: Tensor) -> Tensor:
    h, y, m = _unfolded(b, positive_part(b), g, d)
    dh = 2 * divided(b, db) - db
    return divided(b, dg) + 0.5 * sylvester(h, sym(2 * (db @ g - dh @ y))) / m


def _divided_expanded(b: Tensor, g: Tensor) -> Tensor:
    """The first derivative in b about b held fixed; the value is linear in g as it stands."""
    held = b.detach()
    db, d = b - held, _divided_value(held, g)
    h, y, m = _unfolded(held, _clamp(held), g, d)
    dh = 2 * _divided_value(held, db) - db
    return d + 0.5 * sylvester(h, sym(2 * (db @ g - dh @ y))) / m


divided = with_derivative(_divided_value, _divided_vjp, _divided_jvp, _divided_expanded, two=True)
divided.__doc__ = "D max(., 0) at the symmetric b in the symmetric direction g."

positive_part = symmetric(_clamp, lambda b, p, g: divided(b, sym(g)))
positive_part.__doc__ = "Symmetric (*batch, n, n) -> the nearest positive semidefinite matrix."


def _null(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Eigenvalues and vectors of x / scale, the scale, and 1 for the active eigenvalues, 0 for the others."""
    l, q, scale = safe_eigh(x)
    return l, q, scale, (l <= NULL * eigen_floor(x) * l[..., -1:].clamp(min=0)).to(x.dtype)


def _null_value(x: Tensor) -> Tensor:
    _, q, _, null = _null(x)
    return (q * null[..., None, :]) @ q.mT


def _null_derivative(x: Tensor, n: Tensor, g: Tensor) -> Tensor:
    """Q (k_ij (Q^T G Q)_ij) Q^T with k_ij = 1/(l_i - l_j) between null i and other j."""
    l, q, scale, null = _null(x)
    jump = null[..., :, None] - null[..., None, :]
    gap = l[..., :, None] - l[..., None, :]
    size = torch.where(jump != 0, gap, 1.0).abs().clamp(min=eigen_floor(x)) * torch.where(scale > 0, scale, 1.0)
    return q @ (-jump.abs() / size * (q.mT @ sym(g) @ q)) @ q.mT


null_projector = symmetric(_null_value, _null_derivative)
null_projector.__doc__ = "Symmetric (*batch, n, n) -> projector on the eigenvectors whose eigenvalues are at the floor."


def _level(x: Tensor) -> Tensor:
    l, _, scale = safe_eigh(x)
    l = l * scale[..., 0]
    top = l[..., -1:]
    return (top + water_level((l - top).clamp(min=-2), 1.0))[..., 0]


def _support(x: Tensor, t: Tensor) -> Tensor:
    """Dt/dx = projector on the eigenvectors above t, divided by their number."""
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device).expand_as(x)
    b = x - t[..., None, None] * eye
    projector = divided(b, eye)
    return projector / trace(projector).clamp(min=0.5)


spectral_level = with_derivative(
    _level,
    lambda x, t, g: _support(x, t) * g[..., None, None],
    lambda x, t, d: (_support(x, t) * d).sum((-2, -1)),
)
spectral_level.__doc__ = "Symmetric (*batch, n, n) -> t (*batch,) with trace max(x - t I, 0) = 1."


def trace(x: Tensor) -> Tensor:
    """(*batch, 1, 1)."""
    return x.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]


def _density(x: Tensor) -> Tensor:
    l, q, scale = safe_eigh(x)
    l = l * scale[..., 0]
    z = (l - l[..., -1:]).clamp(min=-2)
    l = (z - water_level(z, 1.0)).clamp(min=0)
    floor = eigen_floor(x) * l[..., -1:]
    y = sym((q * torch.where(l < floor, 2 * floor, l)[..., None, :]) @ q.mT)
    return y / trace(y)


def _density_derivative(x: Tensor, p: Tensor, g: Tensor) -> Tensor:
    """P(x) = max(x - t(x) I, 0) with trace 1: D(g) - D(I) tr D(g) / tr D(I), D the derivative of max(., 0) at x - t I."""
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device).expand_as(x)
    b = x - spectral_level(x)[..., None, None] * eye
    along, level = divided(b, sym(g)), divided(b, eye)
    return along - level * (trace(along) / trace(level).clamp(min=0.5))


density = symmetric(_density, _density_derivative)
density.__doc__ = "Symmetric (*batch, n, n) -> the nearest positive semidefinite matrix of trace 1."
