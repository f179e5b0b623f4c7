"""A spiral in the closed unit disk, stopped by its boundary."""

from __future__ import annotations

import torch
from torch import Tensor

from ..sets import Ball
from .pairs import Pairs
from .synthetic import build

ALPHA, STEPS, DT = 0.5, 100, 0.01  # the paper's


def disk(sizes: dict[str, int] | None = None, seed: int = 0) -> Pairs:
    """x uniform in the disk; y after 100 steps x <- P(x + 0.01 P_T(F(x))), F(x) = (alpha x1 - x2, x1 + alpha x2)."""
    M = Ball(2)
    return build("disk", M, sizes, seed, lambda n, g: M.sample(n, generator=g, dtype=torch.float64), advect)


def advect(x: Tensor) -> Tensor:
    """Where points of the disk are after the spiral has moved them: STEPS projected Euler steps."""
    M = Ball(2)
    F = torch.tensor([[ALPHA, -1.0], [1.0, ALPHA]], dtype=x.dtype)
    for _ in range(STEPS):
        x = M.project(x + DT * M.tangent(x, x @ F.T))
    return x
