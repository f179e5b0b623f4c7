"""Nonnegative numbers with a total."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import ConstraintSet, Numbers, check_size, shown
from ..kernels.simplex import simplex


class Simplex(ConstraintSet):
    """{x in R^n : x >= 0, sum x = total}: probability vectors."""

    reach = math.inf
    total: Tensor

    def __init__(self, n: int, total: Numbers = 1.0):
        super().__init__()
        check_size("Simplex", n)
        if n < 1:
            raise ValueError(f"Simplex asked for n >= 1 entries, got {n}.")
        self.shape = (n,)
        t = self._constant("total", total, dims=0)
        self._require(t > 0, lambda: f"Simplex asked for total > 0, got {total}. Total 0 leaves the zero vector only.")
        self._plain = not isinstance(total, Tensor) and total == 1

    def _total(self, x: Tensor) -> Tensor:
        return self._cast("total", x)[..., None]

    def _project(self, x: Tensor) -> Tensor:
        return simplex(x) if self._plain else simplex(x / self._total(x)) * self._total(x)

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        off = x.sum(-1, keepdim=True) - self._total(x)
        return off, (-x).expand(*off.shape[:-1], self.shape[0])

    def _scale(self, x: Tensor) -> Tensor | float:
        return self._cast("total", x)

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        active = x <= 4 * torch.finfo(x.dtype).eps * self._total(x)  # project lands on exact zeros
        level = cone_level(v, active)
        moved = v - level
        return torch.where(active, moved.clamp(min=0), moved)

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        u = torch.rand(*batch, *self.shape, generator=generator, dtype=dtype, device=device)
        e = -torch.log1p(-u)
        return self._project(e / e.sum(-1, keepdim=True).clamp(min=torch.finfo(dtype).tiny) * self._total(e))

    def extra_repr(self) -> str:
        return f"{self.shape[0]}" + shown("total", self.total, 1.0)


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
