from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import Manifold, eager, sized, working_dtype
from ..kernels.vectors import norm


class Affine(Manifold):
    """{x in R^n : A x = b}, A of shape (*batch, m, n), b of shape (*batch, m). Redundant rows are welcome."""

    reach = math.inf
    A: Tensor
    b: Tensor

    def __init__(self, A, b):
        super().__init__()
        a, c = self._constant("A", A), self._constant("b", b)
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
        A = self._cast("A", x)
        return A, self._cast("b", x), torch.linalg.pinv(A)

    def _project(self, x):
        A, b, inverse = self._parts(x)
        for _ in range(3):  # the first step cancels |x|, the others remove its rounding
            x = x - times(inverse, times(A, x) - b)
        return x

    def _residuals(self, x):
        return times(self._cast("A", x), x) - self._cast("b", x), x[..., :0]

    def _tangent(self, x, v):
        A, _, inverse = self._parts(x)
        return v - times(inverse, times(A, v))

    def _exp(self, x, v):
        return x + v

    def _log(self, x, y):
        return y - x

    def _refine(self, x):
        A, b, inverse = self._parts(x)
        return x - times(inverse, times(A, x) - b)

    def _scale(self, x):
        return (norm(self._cast("A", x)) * norm(x)[..., None] + self._cast("b", x).abs()).amax(-1)

    def origin(self, like):
        return self.project(torch.zeros(self.shape, dtype=working_dtype(like), device=like.device))

    def _sample(self, batch, generator, dtype, device):
        return self._project(torch.randn(*batch, *self.shape, generator=generator, dtype=dtype, device=device))

    def extra_repr(self):
        return f"{sized(self.A)}, {sized(self.b)}"


def times(A: Tensor, x: Tensor) -> Tensor:
    """A x over batches of vectors."""
    return (A @ x[..., None])[..., 0]
