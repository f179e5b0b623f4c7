from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import ACTIVE, ConstraintSet
from ..kernels.spectral import eigen_floor, positive_part, safe_eigh, sym


class PSD(ConstraintSet):
    """Symmetric positive semidefinite n x n matrices. P(A) clamps the eigenvalues of the symmetric part at 0."""

    reach = math.inf

    def __init__(self, n: int):
        super().__init__()
        if n < 1:
            raise ValueError(f"PSD asked for n >= 1, got {n}.")
        self.n, self.shape = n, (n, n)

    def _project(self, x):
        return positive_part(sym(x))

    def _residuals(self, x):
        return symmetry_residuals(x)

    def _tangent(self, x, v):
        """v minus the negative part of its compression to the null space of x."""
        q, w, active, nu, u = compressed(x, v)
        return sym(q @ (w + lifted(u, active * (-nu).clamp(min=0))) @ q.mT)

    def _sample(self, batch, generator, dtype, device):
        """Wishart."""
        g = torch.randn(*batch, self.n, self.n, generator=generator, dtype=dtype, device=device)
        return self._project(g @ g.mT / self.n)

    def extra_repr(self):
        return f"{self.n}"


def symmetry_residuals(x: Tensor) -> tuple[Tensor, Tensor]:
    """x_ij - x_ji for i < j, and minus the eigenvalues of the symmetric part."""
    i, j = torch.triu_indices(x.shape[-1], x.shape[-1], offset=1, device=x.device)
    l, _, scale = safe_eigh(sym(x))
    return (x - x.mT)[..., i, j], -l * scale[..., 0]


def compressed(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Eigenvectors q of x; w = q^T v q; which of the ascending directions are null directions of x, as 0 and 1;
    and the eigenvalues nu and vectors u of w on them (other directions come first, decoupled)."""
    l, q, _ = safe_eigh(sym(x))
    null = (l <= ACTIVE * eigen_floor(x) * l[..., -1:]).to(x.dtype)
    w = q.mT @ sym(v) @ q
    block = w * null[..., :, None] * null[..., None, :]
    far = -4 * (1 + block.abs().sum((-2, -1)))
    nu, u = torch.linalg.eigh(block + torch.diag_embed((1 - null) * far[..., None]))
    active = torch.flip(null, (-1,))  # null directions are the first of x, and the last of the block
    return q, w, active, torch.where(active > 0, nu, 0.0), u


def lifted(u: Tensor, values: Tensor) -> Tensor:
    return (u * values[..., None, :]) @ u.mT
