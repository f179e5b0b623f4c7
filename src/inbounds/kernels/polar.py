"""Polar factors U V^T of n x k matrices, by SVD, with a backward of O(n k^2) that never sees 1/(s_i - s_j).

X = U V^T, S = X^T A symmetric:  dX = X Y + (I - X X^T) dA S^+  with  S Y + Y S = X^T dA - dA^T X.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .derivative import symmetric
from .sylvester import sylvester


def _unit_scale(a: Tensor) -> Tensor:
    """a / max|a|, with non-finite matrices replaced: LAPACK fails a whole batch for one of them."""
    m = a.abs().amax((-2, -1), keepdim=True)
    usable = torch.isfinite(m) & (m >= torch.finfo(a.dtype).tiny)
    eye = torch.eye(a.shape[-2], a.shape[-1], dtype=a.dtype, device=a.device)
    return torch.where(usable, a / torch.where(usable, m, 1.0), eye)


def polish(x: Tensor) -> Tensor:
    """X (3I - X^T X) / 2: squares the distance from orthonormality of an almost orthonormal X."""
    return 1.5 * x - 0.5 * (x @ (x.mT @ x))


def _nearest(a: Tensor, proper: bool) -> Tensor:
    u, _, vh = torch.linalg.svd(_unit_scale(a), full_matrices=False)
    if proper:
        sign = torch.where(torch.linalg.det(u) * torch.linalg.det(vh) < 0, -1.0, 1.0)
        last = torch.cat([torch.ones_like(u[..., :1, :-1]), sign[..., None, None]], -1)
        u = u * last
    return polish(u @ vh)


def _derivative(a: Tensor, x: Tensor, g: Tensor) -> Tensor:
    s = x.mT @ a
    s = 0.5 * (s + s.mT)
    b = x.mT @ g
    inside = x @ sylvester(s, b - b.mT)
    if a.shape[-2] == a.shape[-1]:
        return inside
    rtol = 16 * torch.finfo(a.dtype).eps
    ok = torch.isfinite(s).flatten(-2).all(-1)[..., None, None]
    inverse = torch.linalg.pinv(torch.where(ok, s, torch.zeros_like(s)), rtol=rtol, hermitian=True)
    return inside + (g - x @ b) @ inverse


polar = symmetric(lambda a: _nearest(a, proper=False), _derivative)
polar.__doc__ = "(*batch, n, k), k <= n -> the nearest matrix with orthonormal columns."
proper_polar = symmetric(lambda a: _nearest(a, proper=True), _derivative)
proper_polar.__doc__ = "(*batch, n, n) -> the nearest rotation."
