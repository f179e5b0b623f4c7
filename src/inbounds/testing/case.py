"""What every law looks at: a set, points on it and off it, and how an error is told."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import ConstraintSet
from ..kernels.vectors import norm


class LawError(AssertionError):
    """A set breaks a law of the contract."""


@dataclass(frozen=True)
class Case:
    """A set with test data in one dtype: points p of M, noise x around M, the generator."""

    M: ConstraintSet
    p: Tensor
    x: Tensor
    scale: float
    generator: torch.Generator

    @classmethod
    def of(cls, M: ConstraintSet, dtype: torch.dtype, seed: int, points: int) -> Case:
        """Test data for M: samples of it, and noise from a hundredth of its size to three times its size around them."""
        g = torch.Generator().manual_seed(seed)

        def draw() -> Tensor:
            return torch.randn(points, *M.shape, generator=g, dtype=dtype)

        try:
            p = M.sample(points, generator=g, dtype=dtype)
        except NotImplementedError:
            p = M.project(draw())
        scale = float(p.abs().max().clamp(min=1)) if bool(torch.isfinite(p).all()) else 1.0
        size = torch.logspace(-2, 0.5, points, dtype=dtype).reshape(-1, *[1] * len(M.shape))
        return cls(M, p, p + scale * size * draw(), scale, g)

    @property
    def eps(self) -> float:
        """The rounding of the case's dtype."""
        return torch.finfo(self.x.dtype).eps

    @property
    def tol(self) -> float:
        """Rounding allowed in a point of M; a set that is not exact answers for its own accuracy."""
        own = 0.0 if self.M.exact else 1e-3
        return max(own, 64 * math.sqrt(math.prod(self.M.shape)) * self.eps)

    def draw(self, *batch: int) -> Tensor:
        """Normal random numbers in the shape of points of M: (*batch, *shape)."""
        return torch.randn(*batch, *self.M.shape, generator=self.generator, dtype=self.x.dtype)

    def size(self, x: Tensor) -> Tensor:
        """The length of points or vectors: (*batch,)."""
        return norm(self.M._flat(x))

    def away(self, x: Tensor) -> Tensor:
        """The length of x in the metric in which `project` finds the nearest point: (*batch,)."""
        return norm(self.M._flat(self.M._isometric(x)))

    def room(self, y: Tensor) -> Tensor:
        """What rounding at y is relative to."""
        return torch.maximum(self.size(y).clamp(min=self.scale), torch.as_tensor(self.M._scale(y), dtype=y.dtype))

    def require(self, ok: Tensor | bool, law: str, detail: str) -> None:
        """Raise a LawError that names the law unless all is ok."""
        if not bool(torch.as_tensor(ok).all()):
            dtype = str(self.x.dtype).removeprefix("torch.")
            raise LawError(f"{self.M!r} breaks the law '{law}' in {dtype}: {detail}")

    def require_most(self, ok: Tensor, law: str, detail: str) -> None:
        """`require` for laws that may fail in 2 % of the rows, at kinks and medial axes."""
        share = float(ok.double().mean())
        self.require(share >= 0.98, law, f"{detail}, in {100 * (1 - share):.0f} % of the rows")


def worst(t: Tensor) -> str:
    """The largest entry, for messages."""
    return f"{float(t.max()) if t.numel() else 0:.1e}"
