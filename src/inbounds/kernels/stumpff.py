"""Stumpff functions c_k(s) = sum_j (-s)^j / (2j + k)!: with s = t^2, c_0 = cos t, c_1 = sin t / t, c_2 = (1 - cos t)/t^2, ...

They are entire in s, so exponential maps written with them have the right value and every derivative at 0.
Derivative: c_k' = (k c_{k+2} - c_{k+1}) / 2.  Recurrence: c_k = 1/k! - s c_{k+2}.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

NEAR = 4.0  # below: series of the two highest, recurrence downwards; above: sin and cos, recurrence upwards


def stumpff(s: Tensor, top: int) -> list[Tensor]:
    """c_0 .. c_top at s >= 0, safe to differentiate any number of times."""
    near = s < NEAR
    low = _from_series(torch.where(near, s, 0.0), top)
    high = _from_circle(torch.where(near, NEAR, s), top)
    return [torch.where(near, a, b) for a, b in zip(low, high, strict=True)]


def sinc_pair(s: Tensor) -> tuple[Tensor, Tensor]:
    """c_1 and c_2 by values only, for use inside functions that own their derivative."""
    t = s.sqrt().clamp(min=torch.finfo(s.dtype).tiny)
    half = 0.5 * t
    return torch.sin(t) / t, 0.5 * (torch.sin(half) / half).square()


def _from_series(s: Tensor, top: int) -> list[Tensor]:
    terms = 12 if s.dtype == torch.float64 else 7
    c = [s] * (top + 1)
    for k in (top, top - 1):
        total = torch.full_like(s, 1 / math.factorial(2 * terms + k))
        for j in range(terms - 1, -1, -1):
            total = 1 / math.factorial(2 * j + k) - s * total
        c[k] = total
    for k in range(top - 2, -1, -1):
        c[k] = 1 / math.factorial(k) - s * c[k + 2]
    return c


def _from_circle(s: Tensor, top: int) -> list[Tensor]:
    t = s.sqrt()
    c = [torch.cos(t), torch.sin(t) / t]
    for k in range(top - 1):
        c.append((1 / math.factorial(k) - c[k]) / s)
    return c
