from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import LieGroup, check_size, working_dtype


class Euclidean(LieGroup):
    """Everything: all tensors of shape `shape`, a group under +. The reference case, and free channels in a Product."""

    reach = math.inf

    def __init__(self, *shape: int):
        super().__init__()
        check_size("Euclidean", *shape)
        if any(n < 1 for n in shape):
            raise ValueError(f"Euclidean asked for positive sizes, got {shape}. Write Euclidean(3) or Euclidean(3, 3).")
        self.shape = tuple(shape)
        self.dim = math.prod(shape)

    def _project(self, x):
        return x

    def _residuals(self, x):
        none = self._flat(x)[..., :0]
        return none, none

    def _tangent(self, x, v):
        return v + torch.zeros_like(x)

    def _exp(self, x, v):
        return x + v

    def _log(self, x, y):
        return y - x

    def _refine(self, x):
        return x

    def origin(self, like):
        return torch.zeros(self.shape, dtype=working_dtype(like), device=like.device)

    def hat(self, c):
        return c.reshape(c.shape[:-1] + self.shape)

    def vee(self, A):
        return self._flat(A)

    def _group_exp(self, c):
        return self.hat(c)

    def _group_log(self, g):
        return self.vee(g)

    def _compose(self, g, h):
        return g + h

    def _inverse(self, g):
        return -g

    def _sample(self, batch, generator, dtype, device) -> Tensor:
        return torch.randn(*batch, *self.shape, generator=generator, dtype=dtype, device=device)

    def extra_repr(self):
        return ", ".join(map(str, self.shape))
