"""Stumpff functions c_k(s) = sum_j (-s)^j / (2j + k)!: with s = t^2, c_0 = cos t, c_1 = sin t / t, c_2 = (1 - cos t)/t^2, ...

They are entire in s, so exponential maps written with them have the right value and every derivative at 0.
Derivative: c_k' = (k c_{k+2} - c_{k+1}) / 2.  Recurrence: c_k = 1/k! - s c_{k+2}.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def stumpff(s: Tensor, top: int) -> list[Tensor]:
    """c_0 .. c_top at s >= 0, safe to differentiate any number of times.

    The two highest come from their series below s = 1 and from sin and cos above, the others from the recurrence.
    """
    near = s < 1.0
    low, high = torch.where(near, s, 0.0), torch.where(near, 1.0, s)
    t = high.sqrt()
    far = [torch.cos(t), torch.sin(t) / t]
    for k in range(top - 1):
        far.append((1 / math.factorial(k) - far[k]) / high)
    c = far[:-2] + [torch.where(near, _series(low, k), far[k]) for k in (top - 1, top)]
    for k in range(top - 2, -1, -1):
        c[k] = 1 / math.factorial(k) - s * c[k + 2]
    return c


def _series(s: Tensor, k: int) -> Tensor:
    terms = 10 if s.dtype == torch.float64 else 6
    total = torch.full_like(s, 1 / math.factorial(2 * terms + k))
    for j in range(terms - 1, -1, -1):
        total = 1 / math.factorial(2 * j + k) - s * total
    return total
