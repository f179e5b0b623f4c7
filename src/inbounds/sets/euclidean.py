"""All of Euclidean space: no constraint."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import LieGroup, check_size, working_dtype
from .flat import Flat


class Euclidean(Flat, LieGroup):
    """Everything: all tensors of shape `shape`, a group under +. The reference case, and free channels in a Product."""

    reach = math.inf

    def __init__(self, *shape: int):
        super().__init__()
        check_size("Euclidean", *shape)
        if any(n < 1 for n in shape):
            raise ValueError(f"Euclidean asked for positive sizes, got {shape}. Write Euclidean(3) or Euclidean(3, 3).")
        self.shape = tuple(shape)
        self.dim = math.prod(shape)

    def _project(self, x: Tensor) -> Tensor:
        return x

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        none = self._flat(x)[..., :0]
        return none, none

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        return v + torch.zeros_like(x)

    def _refine(self, x: Tensor) -> Tensor:
        return x

    def origin(self, like: Tensor) -> Tensor:
        return torch.zeros(self.shape, dtype=working_dtype(like), device=like.device)

    def hat(self, c: Tensor) -> Tensor:
        return c.reshape(c.shape[:-1] + self.shape)

    def vee(self, A: Tensor) -> Tensor:
        return self._flat(A)

    def _group_exp(self, c: Tensor) -> Tensor:
        return self.hat(c)

    def _group_log(self, g: Tensor) -> Tensor:
        return self.vee(g)

    def _compose(self, g: Tensor, h: Tensor) -> Tensor:
        return g + h

    def _inverse(self, g: Tensor) -> Tensor:
        return -g

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return torch.randn(*batch, *self.shape, generator=generator, dtype=dtype, device=device)

    def extra_repr(self) -> str:
        return ", ".join(map(str, self.shape))
