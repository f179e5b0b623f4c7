from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import ConstraintSet, check_size
from ..kernels.simplex import simplex


class Simplex(ConstraintSet):
    """{x in R^n : x >= 0, sum x = 1}: probability vectors."""

    reach = math.inf

    def __init__(self, n: int):
        super().__init__()
        check_size("Simplex", n)
        if n < 1:
            raise ValueError(f"Simplex asked for n >= 1 entries, got {n}.")
        self.shape = (n,)

    def _project(self, x):
        return simplex(x)

    def _residuals(self, x):
        return x.sum(-1, keepdim=True) - 1, -x

    def _tangent(self, x, v):
        active = x <= 4 * torch.finfo(x.dtype).eps  # project lands on exact zeros
        level = cone_level(v, active)
        moved = v - level
        return torch.where(active, moved.clamp(min=0), moved)

    def _sample(self, batch, generator, dtype, device):
        u = torch.rand(*batch, *self.shape, generator=generator, dtype=dtype, device=device)
        e = -torch.log1p(-u)
        return self._project(e / e.sum(-1, keepdim=True).clamp(min=torch.finfo(dtype).tiny))

    def extra_repr(self):
        return f"{self.shape[0]}"


def cone_level(v: Tensor, active: Tensor) -> Tensor:
    """t with sum over inactive (v - t) + sum over active max(v - t, 0) = 0, (*batch, 1).

    It is the largest mean over the inactive entries and the k largest active ones, k = 0, 1, ...
    """
    free = ~active
    top = torch.where(active, v, -math.inf).sort(-1, descending=True).values
    used = top > -math.inf
    sums = torch.where(used, top, 0.0).cumsum(-1)
    rank = torch.arange(1, v.shape[-1] + 1, dtype=v.dtype, device=v.device)
    base = torch.where(free, v, 0.0).sum(-1, keepdim=True)
    count = free.sum(-1, keepdim=True)
    means = torch.where(used, (base + sums) / (count + rank), -math.inf).amax(-1, keepdim=True)
    return torch.maximum(base / count, means)
