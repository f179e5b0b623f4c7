from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import ConstraintSet
from ..kernels.spectral import density, sym
from .psd import compressed, lifted, symmetry_residuals
from .simplex import cone_level
from .sphere import shown


class FixedTracePSD(ConstraintSet):
    """{X symmetric positive semidefinite, trace X = trace}: density matrices. P projects the eigenvalues on a simplex."""

    reach = math.inf
    trace: Tensor

    def __init__(self, n: int, trace=1.0):
        super().__init__()
        if n < 1:
            raise ValueError(f"FixedTracePSD asked for n >= 1, got {n}.")
        self.n, self.shape = n, (n, n)
        t = self._constant("trace", trace)
        self._require(t > 0, lambda: f"FixedTracePSD asked for trace > 0, got {trace}. Trace 0 leaves the zero matrix only.")

    def _project(self, x):
        t = self._cast("trace", x)[..., None, None]
        return density(sym(x / t)) * t

    def _residuals(self, x):
        eq, ineq = symmetry_residuals(x)
        trace = x.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True)
        return torch.cat([eq, trace - self._cast("trace", x)[..., None]], -1), ineq

    def _tangent(self, x, v):
        """Trace zero and nonnegative on the null space of x."""
        q, w, active, nu, u = compressed(x, v)
        rest = w.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True) - nu.sum(-1, keepdim=True)
        share = rest / (1 - active).sum(-1, keepdim=True)
        level = cone_level(torch.where(active > 0, nu, share), active > 0)
        eye = torch.eye(self.n, dtype=x.dtype, device=x.device)
        z = w - level[..., None] * eye + lifted(u, active * (level - nu).clamp(min=0))
        return sym(q @ z @ q.mT)

    def _sample(self, batch, generator, dtype, device):
        g = torch.randn(*batch, self.n, self.n, generator=generator, dtype=dtype, device=device)
        w = g @ g.mT
        t = self.trace.to(dtype)[..., None, None]
        return self._project(w / w.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None] * t)

    def extra_repr(self):
        return f"{self.n}" + shown("trace", self.trace, 1.0)
