"""One type for every task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ..sets import Depends

SPLITS = (0.8, 0.1)  # training, validation; the rest is for the test


@dataclass(frozen=True, eq=False)
class Task:
    """Minimise objective(x, y) over y in M(x), for inputs x (N, d) in float64, the same for everyone who gives the same seed.

    M: Depends(module), the set of an input. center(x): a point strictly inside of M(x) but for its equations, None where nobody
    knows one. solve(x): the optimal point of one input (d,), by a solver. start: where raw outputs begin, if not at 0, and scale:
    how far a raw 1 is from there. batch: inputs of a step of training, where the usual number is too dear. pull: of
    `schemes.Projected`.
    """

    name: str
    title: str
    x: Tensor
    M: Depends
    objective: Callable[[Tensor, Tensor], Tensor]
    solve: Callable[[Tensor], Tensor]
    center: Callable[[Tensor], Tensor] | None = None
    start: Tensor | None = None
    scale: float = 0.02
    batch: int | None = None
    pull: float = 0.0

    def part(self, split: str) -> Tensor:
        """The inputs of the split train, val or test."""
        first, second = (int(len(self.x) * share) for share in (SPLITS[0], sum(SPLITS)))
        parts = {"train": self.x[:first], "val": self.x[first:second], "test": self.x[second:]}
        if split not in parts:
            raise KeyError(f"{self.name} asked for a split among {', '.join(parts)}, got {split!r}.")
        return parts[split]
