"""Matrices with orthonormal columns."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core import Manifold, check_size, working_dtype
from ..kernels.exponential import longest_exponent, matrix_exp, shortened
from ..kernels.polar import polar, repolish, short_step
from ..kernels.vectors import norm
from .so import haar


class Stiefel(Manifold):
    """{X in R^(n x k) : X^T X = I}: k orthonormal columns. P(A) = U V^T, the polar factor."""

    reach = 1.0

    def __init__(self, n: int, k: int):
        super().__init__()
        check_size("Stiefel", n, k)
        if not 1 <= k <= n:
            raise ValueError(f"Stiefel asked for 1 <= k <= n, got n={n}, k={k}. Rows and columns swapped? Stiefel({k}, {n}).")
        self.n, self.k, self.shape = n, k, (n, k)
        self.dim = n * k - k * (k + 1) // 2

    def _project(self, x: Tensor) -> Tensor:
        return polar(x)

    def _gram(self, x: Tensor):
        return x.mT @ x - torch.eye(self.k, dtype=x.dtype, device=x.device)

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Upper triangle of X^T X - I."""
        i, j = torch.triu_indices(self.k, self.k, device=x.device)
        return self._gram(x)[..., i, j], x[..., 0, :0]

    def _violation(self, x: Tensor) -> Tensor:
        return self._gram(x).flatten(-2).norm(dim=-1)

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        b = x.mT @ v
        return v - x @ (0.5 * (b + b.mT))

    def _uniqueness_margin(self, x: Tensor) -> Tensor:
        """s_k, the smallest singular value."""
        poison = self._poison(x)
        return torch.linalg.svdvals(torch.where(poison == 0, x, 0.0))[..., -1] + poison[..., 0, 0]

    def _exp(self, x: Tensor, v: Tensor) -> Tensor:
        """exp(V X^T - X V^T) X exp(-X^T V); for tall matrices the same curve from exponentials of 2k x 2k blocks."""
        if self.n > max(2 * self.k, 32):
            return self._exp_in_blocks(x, v)
        v = shortened(v.flatten(-2), longest_exponent(v.dtype)).unflatten(-1, self.shape)
        a, b = v @ x.mT, x.mT @ v
        return matrix_exp(a - a.mT) @ x @ matrix_exp(0.5 * (b.mT - b))

    def _exp_in_blocks(self, x: Tensor, v: Tensor):
        """[X, V] exp([[A, -S], [I, A]]) [I; 0] exp(-A) with A = X^T V, S = V^T V (Edelman, Arias and Smith, 1998).

        V is scaled to unit length, and the blocks with it, to keep the exponent balanced. The blocks are not normal, and
        rounding grows with |V|^2: beyond 0.1 / sqrt(eps), some 290 in float32, V is shortened.
        """
        v = shortened(v.flatten(-2), 0.1 * torch.finfo(v.dtype).eps ** -0.5).unflatten(-1, self.shape)
        a = x.mT @ v
        a = 0.5 * (a - a.mT)
        eye = torch.eye(self.k, dtype=x.dtype, device=x.device).expand_as(a)
        size = norm(v.detach().flatten(-2)).clamp(min=1e-6)[..., None, None]
        v = v / size
        block = torch.cat([torch.cat([a, -(v.mT @ v) * size], -1), torch.cat([eye * size, a], -1)], -2)
        flow = matrix_exp(block)[..., : self.k] @ matrix_exp(-a)
        return torch.cat([x, v], -1) @ flow

    def _retract(self, x: Tensor, v: Tensor) -> Tensor:
        near = short_step(x, v)
        return super()._retract(x, v) if near is None else near

    def _refine(self, x: Tensor) -> Tensor:
        return repolish(x, self._project)

    def origin(self, like: Tensor) -> Tensor:
        return torch.eye(self.n, self.k, dtype=working_dtype(like), device=like.device)

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return haar(torch.randn(*batch, *self.shape, generator=generator, dtype=dtype, device=device))

    def extra_repr(self) -> str:
        return f"{self.n}, {self.k}"
