"""Lengths and directions of vectors (*batch, n), without overflow or underflow."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from .components import less_product
from .derivative import all_rows, forward_mode, looking, symmetric, with_derivative


def _length(x: Tensor) -> Tensor:
    """|x|, (*batch, 1). float32 is summed in float64, which has room for its squares; float64 is rescaled by max |x|.

    In the plane hypot does that in one call, six times as fast; ONNX does not know it.
    """
    if x.dtype == torch.float32:
        return torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float64).float()
    if x.shape[-1] == 2 and not torch.compiler.is_exporting():
        return torch.hypot(x[..., :1], x[..., 1:])
    m = x.abs().amax(-1, keepdim=True)
    scale = torch.where(m > 0, m, 1.0)  # not the smallest normal number: ONNX keeps constants in float32, where it is 0
    return torch.linalg.vector_norm(x / scale, dim=-1, keepdim=True) * scale


def _reciprocal(length: Tensor) -> Tensor:
    """1/|x|, and 0 for x = 0 and denormals, where it would overflow."""
    usable = length >= torch.finfo(length.dtype).tiny
    if all_rows(usable):
        return length.reciprocal()
    return torch.where(usable, length, 1.0).reciprocal() * usable


def _unit(x: Tensor) -> Tensor:
    length = _length(x)
    if all_rows((length >= torch.finfo(x.dtype).tiny) & (length < math.inf)):
        return x / length
    m = x.abs().amax(-1, keepdim=True)
    usable = ~(m < torch.finfo(x.dtype).tiny)  # NaN and infinite entries make a NaN row
    first = torch.zeros_like(x)
    first[..., 0] = 1
    scaled = torch.where(usable, x / torch.where(usable, m, 1.0), first)
    return scaled / _length(scaled)


def _unit_derivative(x: Tensor, u: Tensor, g: Tensor) -> Tensor:
    length = norm(x)[..., None] if torch.is_grad_enabled() else _length(x)
    return less_product(g, u, (u * g).sum(-1, keepdim=True)) * _reciprocal(length)


_unit_everywhere = symmetric(_unit, _unit_derivative)


class _UnitNear(torch.autograd.Function):
    """`unit` of rows whose length is known, in eager mode: half the kernels of torch's own derivative of x / |x|."""

    @staticmethod
    def forward(ctx, x: Tensor, length: Tensor) -> Tensor:
        u = x / length
        ctx.save_for_backward(x, u, length)
        return u

    @staticmethod
    def backward(ctx, g: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, u, length = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted, also in x's length
            return _unit_derivative(x, u, g), None
        return torch.addcmul(g, u, (u * g) @ _column(u), value=-1).div_(length), None


@cache
def _ones(n: int, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):
        return torch.ones(n, 1, dtype=dtype)


def _column(x: Tensor) -> Tensor:
    """A column of ones: x @ it is the sum over the last dim, which for short rows is much faster than x.sum(-1)."""
    return _ones(x.shape[-1], x.dtype)


def unit(x: Tensor) -> Tensor:
    """x/|x|; at 0 (and denormals) e_1, with zero derivative."""
    if looking(x) and x.device.type == "cpu" and x.numel() and not forward_mode():
        with torch.no_grad():
            length = ((x * x) @ _column(x)).sqrt_()
            low, high = length.aminmax()
        if 1e-15 < low.item() and high.item() < 1e15:  # no square under- or overflows
            if not (torch.is_grad_enabled() and x.requires_grad):
                return x / length
            return _UnitNear.apply(x, length)  # pyright: ignore[reportReturnType]
    return _unit_everywhere(x)


norm = with_derivative(
    lambda x: _length(x)[..., 0],
    lambda x, n, g: x * (_reciprocal(n) * g)[..., None],
    lambda x, n, t: (x * t).sum(-1) * _reciprocal(n),
)
norm.__doc__ = "|x| over the last dim; gradient x/|x|, and 0 at 0."


def pulled_in(x: Tensor, limit: float | Tensor, center: float | Tensor = 0.0) -> Tensor:
    """x where |x - center| <= limit, else the point at the distance `limit` on the ray from the center to x.

    From some distance on the direction of x is all that counts, and farther away squares overflow or rounding hides the rest.
    Every finite x is allowed, also one whose length is beyond the largest number.
    """
    away = x - center
    inside = norm(away)[..., None] <= limit
    return x if all_rows(inside) else torch.where(inside, x, center + limit * unit(away))
