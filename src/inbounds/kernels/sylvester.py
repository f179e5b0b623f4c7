"""H Y + Y H = C for symmetric H: the linear equation behind the derivative of polar factors and eigenvalue clamps.

Its own derivative is the same equation, Y' = solve(H, C' - H' Y - Y H'), so projections built on it can be differentiated
any number of times without the 1/(l_i - l_j) of eigenvectors.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _solve(h: Tensor, c: Tensor) -> Tensor:
    """Q ((Q^T C Q)_ij / (l_i + l_j)) Q^T, with 0 where Y is undetermined."""
    ok = torch.isfinite(h).flatten(-2).all(-1)[..., None, None]  # LAPACK fails the batch for one NaN row
    l, q = torch.linalg.eigh(torch.where(ok, h, torch.eye(h.shape[-1], dtype=h.dtype, device=h.device)))
    return q @ divide_pairs(q.mT @ c @ q, l) @ q.mT


def divide_pairs(c: Tensor, l: Tensor) -> Tensor:
    """c_ij / (l_i + l_j), and 0 where l_i + l_j is at rounding level."""
    pair = l[..., :, None] + l[..., None, :]
    tiny = torch.finfo(l.dtype).tiny
    determined = pair > 16 * torch.finfo(l.dtype).eps * l.abs().amax(-1)[..., None, None].clamp(min=tiny)
    return c / torch.where(determined, pair, 1.0) * determined


class _Backward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(h, c):
        return _solve(h, c)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, g):
        h, y = ctx.saved_tensors
        gc = sylvester(h, g)
        return -(gc @ y.mT + y.mT @ gc), gc


class _Both(_Backward):
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)
        ctx.save_for_forward(inputs[0], output)

    @staticmethod
    def jvp(ctx, dh, dc):
        h, y = ctx.saved_tensors
        change = torch.zeros_like(y) if dc is None else dc
        return sylvester(h, change if dh is None else change - dh @ y - y @ dh)


def sylvester(h: Tensor, c: Tensor) -> Tensor:
    """Y with H Y + Y H = C, for symmetric H with l_i + l_j >= 0."""
    # Dynamo refuses a Function that defines jvp
    return (_Backward if torch.compiler.is_compiling() else _Both).apply(h, c)  # pyright: ignore[reportReturnType]
