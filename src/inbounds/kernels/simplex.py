"""Projection of (*batch, n) on the simplex of given total, and its shift."""

from __future__ import annotations

import torch
from torch import Tensor

from .derivative import symmetric


def water_level(z: Tensor, total: Tensor | float) -> Tensor:
    """t with sum max(z - t, 0) = total, (*batch, 1): the largest of (sum of the k largest - total)/k over k."""
    top = z.sort(-1, descending=True).values
    count = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    return ((top.cumsum(-1) - total) / count).amax(-1, keepdim=True)


def _value(x: Tensor) -> Tensor:
    # shifting by the maximum keeps 1e20 exact; entries more than 1 below it end at 0, so -2 stands for all of them
    z = (x - x.amax(-1, keepdim=True)).clamp(min=-2)
    y = (z - water_level(z, 1.0)).clamp(min=0)
    return y / y.sum(-1, keepdim=True)


def _derivative(x: Tensor, y: Tensor, g: Tensor) -> Tensor:
    """On the support: g minus its mean there. P is piecewise linear: no second derivative."""
    support = (y.detach() > 0).to(g.dtype)
    return support * (g - (support * g).sum(-1, keepdim=True) / support.sum(-1, keepdim=True))


simplex = symmetric(_value, _derivative)
simplex.__doc__ = "(*batch, n) -> the nearest point with entries >= 0 and sum 1."
