"""Positive semidefinite matrices, and those with a smallest eigenvalue."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import ConstraintSet, Numbers, check_size, shown
from ..kernels.spectral import null_projector, positive_part, safe_eigh, sym


class PSD(ConstraintSet):
    """Symmetric n x n matrices with eigenvalues >= minimum. P(A) clamps the eigenvalues of the symmetric part there."""

    reach = math.inf
    minimum: Tensor

    def __init__(self, n: int, minimum: Numbers = 0.0):
        super().__init__()
        check_size("PSD", n)
        if n < 1:
            raise ValueError(f"PSD asked for n >= 1, got {n}.")
        self.n, self.shape = n, (n, n)
        self._constant("minimum", minimum, dims=0)
        self._plain = not isinstance(minimum, Tensor) and minimum == 0

    def _lifted(self, x: Tensor, land: bool = False) -> Tensor:
        """minimum I, a few units of rounding higher where a point is about to land."""
        low = self._cast("minimum", x)[..., None, None]
        rise = 4 * max(4, self.n) * torch.finfo(x.dtype).eps * low.abs() if land else 0.0
        return (low + rise) * torch.eye(self.n, dtype=x.dtype, device=x.device)

    def _floor(self, x: Tensor) -> Tensor:
        """minimum I, and as much higher as rounding and landing put eigenvalues that are at the minimum."""
        size = x.detach().abs().amax((-2, -1), keepdim=True) + self._cast("minimum", x).detach().abs()[..., None, None]
        higher = 8 * max(4, self.n) * torch.finfo(x.dtype).eps * size
        return self._lifted(x) + higher * torch.eye(self.n, dtype=x.dtype, device=x.device)

    def _project(self, x: Tensor) -> Tensor:
        if self._plain:
            return positive_part(sym(x))
        low = self._lifted(x, land=True)
        y = positive_part(sym(x - low)) + low
        eye = torch.eye(self.n, dtype=x.dtype, device=x.device)
        l, _, scale = safe_eigh(sym(x.detach()) - self._lifted(x))
        unit = 2 * max(4, self.n) * torch.finfo(x.dtype).eps
        near = l[..., :1, None] * scale < unit * (x.detach().abs() + low.detach().abs()).amax((-2, -1), keepdim=True)
        size = y.detach().abs().amax((-2, -1), keepdim=True)  # adding `low` to large eigenvalues rounds
        return torch.where(near, y + unit * size * eye, sym(x))

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self._plain:
            return symmetry_residuals(x)
        eq, ineq = symmetry_residuals(x)
        low = self._cast("minimum", x)[..., None]
        over = low + ineq
        return eq.expand(*over.shape[:-1], eq.shape[-1]), over

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        """v minus the negative part of its compression to the null space of x."""
        v, null = sym(v), null_projector(sym(x) if self._plain else sym(x) - self._floor(x))
        return v + positive_part(sym(-(null @ v @ null)))

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Wishart."""
        g = torch.randn(*batch, self.n, self.n, generator=generator, dtype=dtype, device=device)
        return self._project(g @ g.mT / self.n + (0.0 if self._plain else self._lifted(g)))

    def extra_repr(self) -> str:
        return f"{self.n}" + shown("minimum", self.minimum, 0.0)

    def _scale(self, x: Tensor) -> Tensor | float:
        return x.abs().amax((-2, -1))


def symmetry_residuals(x: Tensor) -> tuple[Tensor, Tensor]:
    """x_ij - x_ji for i < j, and minus the eigenvalues of the symmetric part."""
    i, j = torch.triu_indices(x.shape[-1], x.shape[-1], offset=1, device=x.device)
    l, _, scale = safe_eigh(sym(x))
    return (x - x.mT)[..., i, j], -l * scale[..., 0]
