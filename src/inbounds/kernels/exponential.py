"""Exponentials of raw network outputs, which may be of any size.

The angle of a rotation vector longer than 1/eps is lost in its own rounding: `shortened` takes such a vector to about that
length, so that what follows neither overflows nor loses the group.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .derivative import looking


def shortened(v: Tensor, longest: float | None = None) -> Tensor:
    """v (*batch, n) itself, or, where an entry exceeds `longest`, by default 1/eps, along its ray to where none does."""
    longest = longest or 1 / torch.finfo(v.dtype).eps
    if _all_within(v.detach(), longest):
        return v
    return v * (longest / v.detach().abs().amax(-1, keepdim=True).clamp(min=longest))


def _all_within(v: Tensor, bound: float) -> bool:
    """Whether no entry exceeds the bound, where looking is free: one look at all costs less than a maximum of each row."""
    if not (looking(v) and v.device.type == "cpu" and v.numel()):
        return False
    low, high = v.aminmax()
    return -bound <= low.item() and high.item() <= bound  # False for NaN


def matrix_exp(a: Tensor) -> Tensor:
    """exp(a) for (*batch, n, n) with eigenvalues on the imaginary axis, in float64: squaring costs it log2 |a| digits."""
    return torch.matrix_exp(a.double()).to(a.dtype)


def longest_exponent(dtype: torch.dtype) -> float:
    """Where `matrix_exp` still has half of float64's digits, and no longer than the angle is known in dtype."""
    return min(1 / torch.finfo(dtype).eps, torch.finfo(torch.float64).eps ** -0.5)
