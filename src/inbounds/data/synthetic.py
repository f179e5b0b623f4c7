"""What the synthetic datasets share: draw starts, run the dynamics in float64, round once, project."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..core import ConstraintSet
from .pairs import LARGE, SIZES, Pairs, generator, ranges, unit_scale

CHUNK = 2_048  # rows at a time: bounds memory, and every row is computed by itself


def build(
    name: str,
    M: ConstraintSet,
    sizes: dict[str, int] | None,
    seed: int,
    start: Callable[[int, torch.Generator], Tensor],
    flow: Callable[[Tensor], Tensor],
    seen: Callable[[Tensor], Tensor] = lambda state: state,
) -> Pairs:
    """Pairs (seen(s), flow(s)) of float32 points of M, s drawn by `start`. Each split has a random stream of its own."""
    splits = ranges({**SIZES, "large": LARGE, **(sizes or {})})
    starts = [start(s.stop - s.start, generator(seed, stream=2 + i)) for i, s in enumerate(splits.values())]
    state = torch.cat(starts)
    y = torch.cat([flow(part) for part in state.split(CHUNK)])
    return Pairs(name, M, M.project(seen(state).float()), M.project(y.float()), splits, unit_scale(M))
