"""The direction of a normal vector."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints

from ..kernels.vectors import unit
from ..sets import Sphere
from .angles import log_integral
from .on_set import OnSet, as_tensors


class ProjectedNormal(OnSet):
    """z/|z| for z normal in R^n with mean loc and covariance I: the nearer loc is to 0, the more uniform.

    The direction for another standard deviation s is ProjectedNormal(loc / s). loc may be any vector, which makes this the
    easiest of the distributions on the sphere for a network to output.
    """

    loc: Tensor
    dims: ClassVar = {"loc": 1}
    arg_constraints: dict[str, Any] = {"loc": constraints.real_vector}  # noqa: RUF012 (as in torch)

    def __init__(self, loc: Tensor, validate_args: Any = None):
        (loc,) = as_tensors(loc)
        super().__init__(Sphere(loc.shape[-1]), {"loc": loc}, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """The direction of loc + noise."""
        noise = torch.randn(*sample_shape, *self.loc.shape, dtype=self.loc.dtype, device=self.loc.device)
        return unit(self.loc + noise)

    def log_prob(self, value: Tensor) -> Tensor:
        """log of the integral of (2 pi)^(-n/2) r^(n-1) exp(-|r x - loc|^2 / 2) over the lengths r > 0."""
        n, x, loc = self.event_shape[0], self._checked(value).double(), self.loc.double()
        a = (x * loc).sum(-1, keepdim=True)
        aside = (loc - a * x).square().sum(-1)

        def f(r: Tensor) -> Tensor:
            return (n - 1) * r.log() - 0.5 * (r - a).square()

        with torch.no_grad():
            half = 0.5 * a[..., 0]
            root = (half * half + n - 1).sqrt()
            mode = torch.where(half > 0, half + root, (n - 1) / (root - half.clamp(max=0)))  # r (r - a) = n - 1
            reach = 40 * (1 + (n - 1) / mode.square()).rsqrt()
        found = log_integral(f, (mode - reach).clamp(min=0), mode + reach, 192) - 0.5 * aside - 0.5 * n * math.log(2 * math.pi)
        return found.to(torch.promote_types(value.dtype, self.loc.dtype))
