from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import ConstraintSet, check_size
from ..kernels.spectral import null_projector, positive_part, safe_eigh, sym


class PSD(ConstraintSet):
    """Symmetric positive semidefinite n x n matrices. P(A) clamps the eigenvalues of the symmetric part at 0."""

    reach = math.inf

    def __init__(self, n: int):
        super().__init__()
        check_size("PSD", n)
        if n < 1:
            raise ValueError(f"PSD asked for n >= 1, got {n}.")
        self.n, self.shape = n, (n, n)

    def _project(self, x):
        return positive_part(sym(x))

    def _residuals(self, x):
        return symmetry_residuals(x)

    def _tangent(self, x, v):
        """v minus the negative part of its compression to the null space of x."""
        v, null = sym(v), null_projector(sym(x))
        return v + positive_part(sym(-(null @ v @ null)))

    def _sample(self, batch, generator, dtype, device):
        """Wishart."""
        g = torch.randn(*batch, self.n, self.n, generator=generator, dtype=dtype, device=device)
        return self._project(g @ g.mT / self.n)

    def extra_repr(self):
        return f"{self.n}"

    def _scale(self, x):
        return x.abs().amax((-2, -1))


def symmetry_residuals(x: Tensor) -> tuple[Tensor, Tensor]:
    """x_ij - x_ji for i < j, and minus the eigenvalues of the symmetric part."""
    i, j = torch.triu_indices(x.shape[-1], x.shape[-1], offset=1, device=x.device)
    l, _, scale = safe_eigh(sym(x))
    return (x - x.mT)[..., i, j], -l * scale[..., 0]
