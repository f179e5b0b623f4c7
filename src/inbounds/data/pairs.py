"""One type for every dataset: inputs and targets in a set, cut into splits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..core import ConstraintSet
from ..fingerprint import raw

SIZES = {"train": 4_000, "val": 800, "test": 1_200}  # the paper's
LARGE = 20_000  # further test points of the synthetic sets: 1,200 are noisy


@dataclass(frozen=True, eq=False)
class Pairs:
    """y = F(x) for points of `set`: x and y of shape (N, *tokens, *set.shape), split by row ranges.

    Points are stored divided by `scale` (one factor per entry of a point), and still in `set`; `unscaled` undoes it.
    `notes` says in words what happened to the data on the way.
    """

    name: str
    set: ConstraintSet
    x: Tensor
    y: Tensor
    splits: dict[str, slice]
    scale: Tensor
    notes: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, split: str) -> tuple[Tensor, Tensor]:
        if split not in self.splits:
            raise KeyError(f"{self.name} asked for a split among {', '.join(self.splits)}, got {split!r}.")
        rows = self.splits[split]
        return self.x[rows], self.y[rows]

    @property
    def tokens(self) -> tuple[int, ...]:
        """() for single points, (agents,) for flocks."""
        return tuple(self.x.shape[1 : self.x.dim() - len(self.set.shape)])

    @property
    def synthetic(self) -> bool:
        """Whether there is a large test split, as for data that are generated."""
        return "large" in self.splits

    def unscaled(self, points: Tensor) -> Tensor:
        """Points in the data's own units."""
        return points * self.scale.to(points)

    def fingerprint(self) -> str:
        """A digest of every number and of how they are read: equal data, equal fingerprint."""
        digest = hashlib.sha256(
            repr((self.name, repr(self.set), tuple(self.x.shape), sorted(cuts(self.splits).items()))).encode()
        )
        for t in (self.x, self.y, self.scale):
            digest.update(repr(t.dtype).encode())
            digest.update(raw(t))
        return digest.hexdigest()[:16]


def cuts(splits: dict[str, slice]) -> dict[str, tuple[int, int]]:
    """Splits as plain numbers, for JSON."""
    return {name: (s.start, s.stop) for name, s in splits.items()}


def ranges(sizes: dict[str, int]) -> dict[str, slice]:
    """{"train": 4, "val": 2} -> consecutive slices 0:4, 4:6."""
    splits, start = {}, 0
    for name, n in sizes.items():
        if n < 1:
            raise ValueError(f"A split needs at least one row, got {name}={n}.")
        splits[name] = slice(start, start + n)
        start += n
    return splits


def generator(seed: int, *, stream: int = 0) -> torch.Generator:
    """Independent streams of one seed."""
    return torch.Generator().manual_seed(1_000_003 * seed + stream)


def unit_scale(M: ConstraintSet) -> Tensor:
    """The scale of data that are left as they are."""
    return torch.ones(M.shape)
