"""Correlation matrices."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import check_size
from ..kernels.spectral import diagonal_slope, null_projector, positive_part, positive_with_slopes, sym
from ..solvers import NOT_CONVERGED, Solution
from ..solvers.dual_newton import ByAutograd
from .convex_affine import nearest_on_planes
from .psd import symmetry_residuals
from .solved import SolvedSet


class Positive:
    """Flat positive semidefinite matrices, cut by planes that fix the diagonal: one eigenvalue problem for P and its slope."""

    def __init__(self, n: int):
        self.shape = (n, n)

    def project(self, z: Tensor, rows: Tensor) -> Tensor:
        """The nearest positive semidefinite matrix, differentiable."""
        return positive_part(sym(z.reshape(-1, *self.shape))).reshape(z.shape)

    def look(self, z: Tensor, rows: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The same, with eigenvectors and divided differences."""
        p, *known = positive_with_slopes(sym(z.reshape(-1, *self.shape)))
        return p.reshape(z.shape), tuple(known)

    def slope(self, known: tuple[Tensor, ...], A: Tensor, rows: Tensor) -> Tensor:
        """How the diagonal of P moves with the diagonal of its argument."""
        return diagonal_slope(*known)


class Correlation(SolvedSet):
    """Symmetric positive semidefinite n x n matrices with ones on the diagonal: P(x) is the nearest correlation matrix.

    Semismooth Newton on the dual (Qi and Sun), then x -> D^-1/2 x D^-1/2 with D the diagonal of x, which is then exactly 1.
    `sample` normalises Wishart matrices: it is not uniform.
    """

    reach = math.inf

    def __init__(self, n: int, on_fail: str = "raise"):
        super().__init__(on_fail)
        check_size("Correlation", n)
        if n < 1:
            raise ValueError(f"Correlation asked for n >= 1, got {n}.")
        self.n, self.shape = n, (n, n)

    def _answer(self, x: Tensor):
        batch = x.shape[:-2]
        flat = sym(x.double()).reshape(-1, self.n * self.n)
        A = torch.diag_embed(torch.eye(self.n, dtype=flat.dtype, device=x.device)).reshape(self.n, -1)
        return batch, nearest_on_planes(Positive(self.n), flat, A, A.new_ones(self.n), repr(self))

    def _nearest(self, x: Tensor):
        batch, (y, _, _, status, _) = self._answer(x)
        return self._clean(y.reshape(*batch, *self.shape), x.dtype), status.reshape(batch)

    def _clean(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """Ones on the diagonal, and eigenvalues that stay >= 0 after rounding to dtype: mixed with I by units of rounding."""
        d = y.diagonal(dim1=-2, dim2=-1).clamp(min=1e-12).rsqrt()
        y = sym(y * d[..., :, None] * d[..., None, :])
        eye = torch.eye(self.n, dtype=y.dtype, device=y.device)
        share = 2 * max(4, self.n) * torch.finfo(dtype).eps * y.detach().abs().sum(-1).amax(-1)[..., None, None]
        return torch.where(eye > 0, 1.0 + 0.0 * y, (1 - share) * y).to(dtype)

    def _solve(self, x: Tensor):
        batch, (y, m, gap, status, count) = self._answer(x)
        point = self._clean(y.reshape(*batch, *self.shape), x.dtype)
        finite = torch.isfinite(self._flat(x)).all(-1)
        point = torch.where(self._wide(finite), point, math.nan)
        floor = symmetry_residuals(torch.where(self._wide(finite), point.double(), 0.0))[1].amax(-1)
        return Solution(
            point,
            floor.reshape(batch),
            (gap / (1 + self._flat(x).norm(dim=-1).reshape(-1))).reshape(batch),
            m.reshape(*batch, self.n),
            torch.ones(*batch, self.n, dtype=torch.bool, device=x.device),
            torch.where(finite, status.reshape(batch), NOT_CONVERGED),
            count.reshape(batch),
        )

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        eq, ineq = symmetry_residuals(x)
        return torch.cat([eq, x.diagonal(dim1=-2, dim2=-1) - 1], -1), ineq

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        """Symmetric, 0 on the diagonal, >= 0 on the null space of x: the cone of PSD at x, cut by the planes."""
        batch = torch.broadcast_shapes(x.shape, v.shape)[:-2]
        flat = sym(v.double()).expand(*batch, *self.shape).reshape(-1, self.n * self.n)
        A = torch.diag_embed(torch.eye(self.n, dtype=flat.dtype, device=x.device)).reshape(self.n, -1)
        null = null_projector(sym(x)).double().expand(*batch, *self.shape).reshape(-1, *self.shape)

        def cone(z: Tensor, rows: Tensor) -> Tensor:
            v, N = z.reshape(-1, *self.shape), null.index_select(0, rows)
            return (v + positive_part(sym(-(N @ v @ N)))).reshape(z.shape)

        y = nearest_on_planes(ByAutograd(cone), flat, A, A.new_zeros(self.n), repr(self))[0].reshape(*batch, *self.shape)
        return (y - torch.diag_embed(y.diagonal(dim1=-2, dim2=-1))).to(x.dtype)

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        g = torch.randn(*batch, self.n, self.n, generator=generator, dtype=torch.float64, device=device)
        return self._clean(g @ g.mT, dtype)

    def extra_repr(self) -> str:
        return f"{self.n}"
