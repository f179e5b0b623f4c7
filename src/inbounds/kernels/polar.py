"""Polar factors of n x k matrices: X = U V^T, with the last sign chosen for det X = 1 if `proper`.

X = U V^T, S = X^T A symmetric:  dX = X Y + (I - X X^T) dA S^+  with  S Y + Y S = X^T dA - dA^T X,
O(n k^2) and without the 1/(s_i - s_j) of singular vectors.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .derivative import all_rows, eager, symmetric
from .sylvester import divide_pairs, sylvester


def _unit_scale(a: Tensor) -> Tensor:
    """a / max|a|, with non-finite matrices replaced: LAPACK fails a whole batch for one of them."""
    m = a.abs().amax((-2, -1), keepdim=True)
    usable = torch.isfinite(m) & (m >= torch.finfo(a.dtype).tiny)
    eye = torch.eye(a.shape[-2], a.shape[-1], dtype=a.dtype, device=a.device)
    return torch.where(usable, a / torch.where(usable, m, 1.0), eye)


def polish(x: Tensor) -> Tensor:
    """X (3I - X^T X) / 2: squares the distance from orthonormality of an almost orthonormal X."""
    return 1.5 * x - 0.5 * (x @ (x.mT @ x))


def repolish(x: Tensor, project: Callable[[Tensor], Tensor]) -> Tensor:
    """Two polishes; where looking is free, project(x) instead if some row is too far off for them."""
    y = polish(x)
    near = (y - x).detach().abs().amax((-2, -1)) < 1e-3
    return polish(y) if not eager() or all_rows(near) else project(x)


def short_step(x: Tensor, v: Tensor) -> Tensor | None:
    """The polar factor Y (Y^T Y)^(-1/2) of Y = x + v for an orthonormal x and a short v; None where a projection is needed.

    A square v is shorter than 1, so that x + t v is regular on the way and the determinant keeps its sign. The root is the series
    I - E/2 + 3/8 E^2 - 5/16 E^3 in E = Y^T Y - I, again and again: an error |E| = e <= 0.4 becomes at most e^4. The derivative is
    left to `polar`.
    """
    if (
        not eager()
        or x.device.type != "cpu"
        or not v.numel()
        or (torch.is_grad_enabled() and (x.requires_grad or v.requires_grad))
    ):
        return None
    y, eye = x + v, torch.eye(x.shape[-1], dtype=x.dtype)
    E = y.mT @ y - eye
    error = _longest(E)
    if not (error <= 0.4 and (x.shape[-2] > x.shape[-1] or _longest(v) < 1)):  # NaN is far, too
        return None
    while True:
        y, error = y + y @ (E @ (E * 0.375 - (E @ E).mul_(0.3125)).sub_(eye, alpha=0.5)), error**4
        if error <= torch.finfo(x.dtype).eps:
            return y
        E = y.mT @ y - eye


def _longest(v: Tensor) -> float:
    return float(torch.linalg.vector_norm(v, dim=(-2, -1)).max())


def _by_svd(a: Tensor, proper: bool) -> tuple[Tensor, Tensor, Tensor]:
    """X, and V, s with S = V diag(s) V^T, s signed."""
    u, s, vh = torch.linalg.svd(a, full_matrices=False)
    x = u @ vh
    if proper:
        sign = torch.where(torch.linalg.slogdet(x)[0] < 0, -1.0, 1.0)[..., None]
        last = torch.cat([torch.ones_like(s[..., :-1]), sign], -1)
        x, s = (u * last[..., None, :]) @ vh, s * last
    return polish(x), vh.mT, s


def _by_eigh(a: Tensor, proper: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The same for float32, from the eigenvectors of A^T A in float64, at a third of the cost; ill-conditioned rows by SVD."""
    b = a.double()
    l, v = torch.linalg.eigh(b.mT @ b)
    s = l.clamp(min=0).sqrt()
    bad = s[..., 0] < 1e-4 * s[..., -1]
    inverse = s.clamp(min=1e-300).reciprocal()
    if proper:
        sign = torch.where(torch.linalg.slogdet(b)[0] < 0, -1.0, 1.0)[..., None]
        last = torch.cat([sign, torch.ones_like(s[..., 1:])], -1)
        s, inverse = s * last, inverse * last
    x = polish((b @ (v * inverse[..., None, :])) @ v.mT)
    x, v, s = x.to(a.dtype), v.to(a.dtype), s.to(a.dtype)
    if not all_rows(~bad):
        x[bad], v[bad], s[bad] = _by_svd(a[bad], proper)
    return x, v, s


def _derivative(a: Tensor, x: Tensor, g: Tensor) -> Tensor:
    s = x.mT @ a
    s = 0.5 * (s + s.mT)
    b = x.mT @ g
    inside = x @ sylvester(s, b - b.mT)
    if a.shape[-2] == a.shape[-1]:
        return inside
    ok = torch.isfinite(s).flatten(-2).all(-1)[..., None, None]
    s = torch.where(ok, s, torch.zeros_like(s))
    return inside + (g - x @ b) @ torch.linalg.pinv(s, rtol=16 * torch.finfo(a.dtype).eps, hermitian=True)


def _derivative_from(scale: Tensor, x: Tensor, v: Tensor, s: Tensor, g: Tensor) -> Tensor:
    """`_derivative` with S = scale V diag(s) V^T known."""
    b = x.mT @ g
    y = divide_pairs(v.mT @ (b - b.mT) @ v, s)
    inside = x @ (v @ y @ v.mT)
    if x.shape[-2] != x.shape[-1]:
        usable = s > 16 * torch.finfo(s.dtype).eps * s.amax(-1, keepdim=True)
        inverse = torch.where(usable, s, 1.0).reciprocal() * usable
        inside = inside + ((g - x @ b) @ (v * inverse[..., None, :])) @ v.mT
    return inside * scale


def _with_vectors(proper: bool, general: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """In eager mode, keep V and s of the forward pass for the backward pass; second derivatives go the general way."""

    class Eager(torch.autograd.Function):
        @staticmethod
        def forward(a):
            scaled = _unit_scale(a)
            small = a.dtype == torch.float32 and a.device.type == "cpu"  # elsewhere, choosing rows would make the device wait
            x, v, s = _by_eigh(scaled, proper) if small else _by_svd(scaled, proper)
            return x, v, s

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.mark_non_differentiable(*output[1:])
            ctx.save_for_backward(inputs[0], *output)

        @staticmethod
        def backward(ctx, g, *_):
            a, x, v, s = ctx.saved_tensors
            if torch.is_grad_enabled():
                return _derivative(a, general(a), g)
            m = a.abs().amax((-2, -1), keepdim=True)
            usable = torch.isfinite(m) & (m >= torch.finfo(a.dtype).tiny)
            return _derivative_from(torch.where(usable, m, 1.0).reciprocal() * usable, x, v, s, g)

    def apply(a: Tensor) -> Tensor:
        return Eager.apply(a)[0] if eager() and not _is_dual(a) else general(a)  # pyright: ignore[reportOptionalSubscript]

    return apply


def _is_dual(a: Tensor) -> bool:
    """Whether a carries a forward-mode tangent."""
    return torch.autograd.forward_ad._current_level >= 0 and torch.autograd.forward_ad.unpack_dual(a).tangent is not None


polar = _with_vectors(False, symmetric(lambda a: _by_svd(_unit_scale(a), False)[0], _derivative))
polar.__doc__ = "(*batch, n, k), k <= n -> the nearest matrix with orthonormal columns."
proper_polar = _with_vectors(True, symmetric(lambda a: _by_svd(_unit_scale(a), True)[0], _derivative))
proper_polar.__doc__ = "(*batch, n, n) -> the nearest rotation."
