"""The von Mises-Fisher distribution on the unit sphere."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints

from ..kernels.vectors import unit
from ..sets import Sphere
from .angles import Law, log_sphere_area
from .on_set import OnSet, as_tensors, require_point, require_scale


def polar_law(n: int, concentration: Tensor) -> Law:
    """The law of the angle t between a draw and loc: sin^(n-2) t exp(concentration (cos t - 1))."""
    k, m = concentration.double(), n - 2

    def f(t: Tensor) -> Tensor:
        pull = -2 * k[..., None] * torch.sin(0.5 * t).square()
        return pull + m * torch.sin(t).log() if m else pull

    with torch.no_grad():  # where the derivative of f is 0, and its curvature there
        root = (m * m + 4 * k * k).sqrt()
        both = (m + root).clamp(min=1e-300)
        cosine, rest = 2 * k / both, (m + m * m / (root + 2 * k).clamp(min=1e-300)) / both
        mode = torch.atan2((rest * (1 + cosine)).sqrt(), cosine)
        reach = 14 * (k * cosine + 0.5 * both).clamp(min=1e-6).rsqrt()
        return Law(f, (mode - reach).clamp(min=0), mode, (mode + reach).clamp(max=torch.pi))


class VonMisesFisher(OnSet):
    """Density proportional to exp(concentration <loc, x>) on the unit sphere in R^n, n >= 2; loc is a unit vector.

    `rsample` is unbiased: its derivative in the concentration is the implicit one of the law of <loc, x>.
    """

    loc: Tensor
    concentration: Tensor
    dims: ClassVar = {"loc": 1, "concentration": 0}
    arg_constraints: dict[str, Any] = {"loc": constraints.real_vector, "concentration": constraints.nonnegative}  # noqa: RUF012 (as in torch)

    def __init__(self, loc: Tensor, concentration: Any, validate_args: Any = None):
        loc, concentration = as_tensors(loc, concentration)
        M = Sphere(loc.shape[-1])
        if validate_args is not False:
            require_point(M, loc, "VonMisesFisher")
            require_scale(concentration, "concentration", "VonMisesFisher", zero=True)
        super().__init__(M, {"loc": loc, "concentration": concentration}, validate_args=validate_args)

    def _law(self) -> Law:
        return polar_law(self.event_shape[0], self.concentration)

    def _log_normaliser(self) -> Tensor:
        """log of the integral of exp(concentration (<loc, x> - 1)) over the sphere, in float64."""
        return self._law().log_total() + log_sphere_area(self.event_shape[0] - 1)

    def _shortening(self) -> Tensor:
        """1 - E<loc, x>, in float64."""
        return self._law().mean(lambda t: 2 * torch.sin(0.5 * t).square())

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """cos t loc + sin t w, with w uniform among the unit vectors that are orthogonal to loc."""
        t = self._law().rsample(torch.Size(sample_shape))[..., None]
        loc = self.loc.double()
        z = torch.randn(*sample_shape, *loc.shape, dtype=loc.dtype, device=loc.device)
        w = unit(z - loc * (loc * z).sum(-1, keepdim=True))
        return unit(torch.cos(t) * loc + torch.sin(t) * w).to(self.loc.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """-concentration |x - loc|^2 / 2, less the log of its integral."""
        far = (self._checked(value).double() - self.loc.double()).square().sum(-1)
        found = -0.5 * self.concentration.double() * far - self._log_normaliser()
        return found.to(torch.promote_types(value.dtype, self.loc.dtype))

    @property
    def mean(self) -> Tensor:
        """E x in R^n, which is not on the sphere: loc times a number below 1."""
        return self.loc * (1 - self._shortening()).to(self.loc.dtype)[..., None]

    def entropy(self) -> Tensor:
        """-E log_prob."""
        found = self.concentration.double() * self._shortening() + self._log_normaliser()
        return found.to(self.loc.dtype)
