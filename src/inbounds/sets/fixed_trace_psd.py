"""Positive semidefinite matrices of a given trace."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import ConstraintSet, Numbers, check_size, shown
from ..kernels.spectral import density, null_projector, positive_part, sym, trace
from .psd import symmetry_residuals
from .simplex import cone_level


class FixedTracePSD(ConstraintSet):
    """{X symmetric positive semidefinite, trace X = trace}: density matrices. P projects the eigenvalues on a simplex."""

    reach = math.inf
    trace: Tensor

    def __init__(self, n: int, trace: Numbers = 1.0):
        super().__init__()
        check_size("FixedTracePSD", n)
        if n < 1:
            raise ValueError(f"FixedTracePSD asked for n >= 1, got {n}.")
        self.n, self.shape = n, (n, n)
        self._constant("trace", trace, dims=0)
        self._validate()

    def _validate(self) -> None:
        t = self.trace
        self._require(t > 0, lambda: f"FixedTracePSD asked for trace > 0, got {t.tolist()}. Trace 0 leaves the zero matrix only.")

    def _project(self, x: Tensor) -> Tensor:
        t = self._cast("trace", x)[..., None, None]
        return density(sym(x / t)) * t

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        eq, ineq = symmetry_residuals(x)
        off = x.diagonal(dim1=-2, dim2=-1).sum(-1) - self._cast("trace", x)
        return torch.cat([eq.expand(*off.shape, eq.shape[-1]), off[..., None]], -1), ineq.expand(*off.shape, self.n)

    def _scale(self, x: Tensor) -> Tensor | float:
        return self._cast("trace", x)

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        """Trace zero and nonnegative on the null space of x: v - t I, its compression there clamped at 0, t for trace zero."""
        v, null = sym(v), null_projector(sym(x))
        eye = torch.eye(self.n, dtype=x.dtype, device=x.device)
        inner = sym(null @ v @ null)
        # eigenvalues on the null space; the other directions are moved out of the way, below them
        far = -4 * (1 + inner.detach().abs().sum((-2, -1), keepdim=True))
        nu = torch.linalg.eigvalsh(inner + far * (eye - null))
        free = trace(eye - null.detach())[..., 0].round()  # (*batch, 1)
        active = torch.arange(self.n, dtype=x.dtype, device=x.device) >= free
        rest = trace(v)[..., 0] - torch.where(active, nu, 0.0).sum(-1, keepdim=True)
        level = cone_level(torch.where(active, nu, rest / free), active)[..., None]
        return v - level * eye + positive_part(sym(level * null - inner))

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Uniform: a Wishart matrix with n + 1 degrees of freedom has a flat density at given trace."""
        g = torch.randn(*batch, self.n, self.n + 1, generator=generator, dtype=dtype, device=device)
        w = g @ g.mT
        return self._project(w / trace(w) * self.trace.to(dtype)[..., None, None])

    def extra_repr(self) -> str:
        return f"{self.n}" + shown("trace", self.trace, 1.0)
