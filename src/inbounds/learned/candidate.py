"""`Candidate`: one way to fit, and what it does to held-out samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from . import rules
from .base import LearnedSet
from .plans import Plan

if TYPE_CHECKING:
    from .trial import Trial


@dataclass(eq=False)
class Candidate:
    """One way to fit; judged by what it does to held-out samples y."""

    method: str
    title: str
    cost: tuple
    build: Callable[[Tensor], LearnedSet]
    dim: int
    plan: Plan | None = None  # of polynomials
    region: bool = False  # full-dimensional
    graph: tuple[int, int] | None = None  # of moving least squares: degree and neighbours
    risk: tuple[Tensor, ...] = ()  # |P(y + sigma n) - y|^2 / sigma^2 per sample, for each sigma
    rest: Tensor | None = None  # |P(y) - y|^2 per sample
    left: Tensor | None = None  # the same of more samples, where it was asked for
    around: Tensor | None = None  # the same of the probes, where it was asked for
    covered: Tensor | None = None  # regions: which probes lie inside
    missed: Tensor | None = None  # inequalities: which held-out samples lie outside; else those that move
    more: Tensor | None = None  # regions: which of the samples that nobody was fitted to lie outside, beside these
    hole: float = 0.0  # regions: how many samples the emptiest ball inside should have held
    deep: bool = False  # regions: whether that ball would still be inside if the outermost samples were left out
    sharp: bool = True  # regions: whether samples end at the boundary, rather than thin out
    seconds: float = 0.0
    failure: str = ""

    def score(self) -> tuple[float, ...]:
        """The mean of every risk, in the order in which candidates are compared."""
        return tuple(float(r.mean()) for r in self.risk)

    def noise(self, trial: Trial) -> float:
        """Standard deviation per coordinate across the set, from held-out samples."""
        assert self.rest is not None
        return math.sqrt(float(self.rest.mean()) / max(trial.n - self.dim, 1))

    def inside_probes(self) -> Tensor:
        """1 for probes inside."""
        assert self.covered is not None
        return self.covered.double()

    def missed_samples(self, trial: Trial) -> Tensor:
        """1 for held-out samples outside."""
        assert self.rest is not None
        outside = self.rest > (rules.TOUCH * trial.data.unit) ** 2 if self.missed is None else self.missed
        return (outside if self.more is None else torch.cat([outside, self.more])).double()

    def line(self, chosen: bool) -> dict:
        """What is told of it in `info`."""
        return {
            "method": self.method,
            "title": self.title,
            "dimension": self.dim,
            "risk": [round(r, 5) for r in self.score()],
            "residual": math.sqrt(float(self.rest.mean())) if self.rest is not None else None,
            "seconds": round(self.seconds, 2),
            "failure": self.failure,
            "chosen": chosen,
        }
