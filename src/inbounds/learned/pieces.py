"""`Pieces`: whether samples lie on pieces of different dimension, as a disk and a curve beside it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .graphs import LOCAL, neighbours, spread
from .samples import STRAY
from .thresholds import GAIN

MOST = 2_000  # samples that are looked at
AROUND = 4 * LOCAL  # neighbours over which the estimates are averaged: one alone is off by a third
MIDDLE = (
    0.125  # half of 1/4, the share of an even distribution in the middle half between the means of its two halves; normal: 0.31
)
SMALLEST = 0.05  # share of the samples that makes a piece: fewer may be outliers
MIXED = 0.25  # of the neighbours of the other kind that chance would give: above it the kinds are scattered


@dataclass(frozen=True)
class Pieces:
    """The dimensions of two kinds of samples, the lower one first, and the share of the samples that are of the lower one."""

    low: float
    high: float
    share: float

    def __str__(self) -> str:
        return (
            f"The samples look like pieces of different dimension: about {self.share:.0%} of them of dimension "
            f"{round(self.low)}, the others of dimension {round(self.high)}. A fitted set has one dimension. "
            f"Fit them apart, each piece on its own."
        )


def pieces(x: Tensor) -> Pieces | None:
    """The pieces of different dimension that samples x (N, d) in random order form, None if they form none.

    `spread` estimates 1 / dimension at every sample; its mean over a neighbourhood has an error of a few per cent. The samples
    are split in two by these means (2-means of the logarithm). On a set of one dimension the two halves meet in the middle, and
    so they do where noise or uneven density change the estimate from place to place; on pieces the middle is empty. Each kind
    must lie together. Coordinates are in
    units of their own spread.
    """
    away = torch.linalg.vector_norm(x - x.median(0).values, dim=1)
    x = x[away <= STRAY * away.median()][:MOST]
    if len(x) < 2 * AROUND:
        return None
    x = x / x.std(0).clamp(min=1e-300)
    near = neighbours(x, AROUND)[0]
    inverse = spread(x)[near].mean(1).clamp(min=1e-300)
    means, thin = two_means(inverse.log())
    share, (high, low) = float(thin.double().mean()), (1 / means.exp()).tolist()
    middle = ((inverse.log() - means.mean()).abs() < (means[1] - means[0]) / 4).double().mean()
    mixed = (thin[near[:, 1 : LOCAL + 1]] != thin[:, None]).double().mean()
    apart = round(high) > round(low) and high - low > GAIN and SMALLEST <= share <= 1 - SMALLEST
    if not apart or middle >= MIDDLE or mixed >= MIXED * 2 * share * (1 - share):
        return None
    return Pieces(low, high, share)


def two_means(v: Tensor) -> tuple[Tensor, Tensor]:
    """The means of the two halves into which the numbers fall, the smaller one first, and which numbers are of the larger one."""
    means = v.quantile(torch.tensor([0.02, 0.98], dtype=v.dtype))
    for _ in range(50):
        upper = v > means.mean()
        if not bool(upper.any()) or bool(upper.all()):
            break
        means = torch.stack([v[~upper].mean(), v[upper].mean()])
    return means, v > means.mean()
