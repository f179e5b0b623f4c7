"""Solutions of linear equations."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import Numbers, eager, sized, skin, working_dtype
from ..kernels.vectors import norm
from .flat import Flat


class Affine(Flat):
    """{x in R^n : A x = b}, A of shape (*batch, m, n), b of shape (*batch, m). Redundant rows are welcome."""

    reach = math.inf
    A: Tensor
    b: Tensor

    def __init__(self, A: Numbers, b: Numbers):
        super().__init__()
        a, c = self._constant("A", A, dims=2), self._constant("b", b, dims=1)
        if a.dim() < 2 or c.dim() < 1 or a.shape[-2] != c.shape[-1]:
            raise ValueError(
                f"Affine asked for A of shape (*batch, m, n) and b of shape (*batch, m), got {tuple(a.shape)} and "
                f"{tuple(c.shape)}."
            )
        self.shape = (a.shape[-1],)
        self.dim = a.shape[-1] - a.shape[-2]
        if eager() and not a.is_meta:
            A64, b64 = a.detach().double(), c.detach().double()[..., None]
            inverse = torch.linalg.pinv(A64)
            self.dim = a.shape[-1] - int(torch.linalg.matrix_rank(A64).min())
            miss = (A64 @ (inverse @ b64) - b64).abs().amax((-2, -1))
            scale = b64.abs().amax((-2, -1)).clamp(min=1e-300)
            self._require(
                miss <= 1e-6 * scale, lambda: "Affine asked for A x = b with a solution, got contradicting equations. Mend b."
            )

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A, b and the pseudo-inverse of A, all as cast to x's dtype and then computed with in float64."""

        def compute() -> tuple[Tensor, Tensor, Tensor]:
            A = self.A.to(x.dtype).double()
            # rows that depend on each other up to the rounding of x's dtype are redundant
            inverse = torch.linalg.pinv(A, rtol=max(A.shape[-2:]) * torch.finfo(x.dtype).eps)
            return A, self.b.to(x.dtype).double(), inverse

        return self._derived("parts", x, ("A", "b"), compute)

    def _correct(self, x: Tensor, steps: int, linear: bool = False) -> Tensor:
        """x - A^+ (A x - b), again and again: each step leaves eps cond(A) of the residual before it."""
        A, b, inverse = self._parts(x)
        y = x.double()
        for _ in range(steps):
            y = y - times(inverse, times(A, y) if linear else times(A, y) - b)
        return y.to(x.dtype)

    def _project(self, x: Tensor) -> Tensor:
        """x where it solves the equations up to rounding, which A^+ would only blow up by cond(A); else three corrections."""
        y = self._correct(x, 3)  # the first step cancels |x|
        A, b, _ = self._parts(x)
        fixed = x.detach().double()
        rounding = skin(x, self.shape[0]) * (norm(A) * norm(fixed)[..., None] + b.abs())
        solved = ((times(A, fixed) - b).abs() <= rounding).all(-1, keepdim=True)
        return y - torch.where(solved, (y - x).detach(), 0.0)

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return times(self._cast("A", x), x) - self._cast("b", x), x[..., :0]

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        return self._correct(v, 2, linear=True)

    def _refine(self, x: Tensor) -> Tensor:
        return self._correct(x, 1)

    def _scale(self, x: Tensor) -> Tensor | float:
        return (norm(self._cast("A", x)) * norm(x)[..., None] + self._cast("b", x).abs()).amax(-1)

    def origin(self, like: Tensor) -> Tensor:
        return self.project(torch.zeros(self.shape, dtype=working_dtype(like), device=like.device))

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return self._project(torch.randn(*batch, *self.shape, generator=generator, dtype=dtype, device=device))

    def extra_repr(self) -> str:
        return f"{sized(self.A)}, {sized(self.b)}"


def times(A: Tensor, x: Tensor) -> Tensor:
    """A x over batches of vectors."""
    return (A @ x[..., None])[..., 0]
