"""How finely the functions of a set can be told at all: the rounding of evaluating them, measured where it is in doubt."""

from __future__ import annotations

import torch
from torch import Tensor

from .jets import Constraints

FINER = 0.25  # ratio of two trial steps: the noise is found to within a factor of 4, for some twenty evaluations at most
SEEN = 0.5  # a step is seen if the change is that of the gradient to within this part: the noise is below half a step


def resolution(constraints: Constraints, y: Tensor, rows: Tensor, N: Tensor, which: Tensor, slope: Tensor, top: Tensor) -> Tensor:
    """The shortest step along a gradient whose effect on the value can be seen, as a length (R,); inf if `top` is not seen.

    Below it the value stands still, or jumps by rounding. This is large where the terms of a function are larger than the point,
    in coordinates that are centred on a solution for example: (p + c)^2 - c^2 near p = 0 is rounded as c^2 is. N (R, n): the unit
    gradient of constraint `which` (R,), of length `slope`; trial steps shrink from `top` (R,) until one is not seen, so that a
    real feature of the function which is larger than `top` is never taken for noise.
    """
    out = torch.full_like(top, torch.inf)
    left, step = torch.arange(len(y), device=y.device), top.clone()
    unit = torch.finfo(y.dtype).eps * torch.linalg.vector_norm(y, dim=1)
    while len(left):
        at, own = rows[left], which[left, None]
        ahead, behind = (
            constraints.value(y[left] + sign * step[left, None] * N[left], at).gather(1, own)[:, 0] for sign in (0.5, -0.5)
        )
        change = (ahead - behind) / slope[left]
        seen = (change - step[left]).abs() <= SEEN * step[left]
        out[left[seen]] = step[left[seen]]
        left = left[seen & (step[left] * FINER >= unit[left])]
        step = step * FINER
    return out
