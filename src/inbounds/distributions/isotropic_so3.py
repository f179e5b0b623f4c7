"""The normal distribution of rotations in space: the heat kernel of SO(3)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints

from ..kernels.derivative import all_rows
from ..kernels.vectors import unit
from ..sets import SO
from .angles import Law
from .on_set import OnSet, as_tensors, require_point, require_scale

SWITCH = 0.3  # of the time: both series below are right to 1e-11 here
TERMS = 13  # of the series for long times: the next is e^-54
LOG_VOLUME = math.log(16 * math.sqrt(2) * math.pi**2)  # of SO(3) in the ambient metric: 8 pi^2 for unit speed, times sqrt(2)^3


def log_heat(w: Tensor, time: Tensor) -> Tensor:
    """log of sum_l (2l + 1) exp(-l(l + 1) time) sin((l + 1/2) w) / sin(w/2): the density at the angle w, over that of Haar."""
    short = time < SWITCH
    if all_rows(short):
        return _short(w, time)
    return torch.where(short, _short(w, time.clamp(max=SWITCH)), _long(w, time.clamp(min=SWITCH)))


def _short(w: Tensor, time: Tensor) -> Tensor:
    """By Poisson's formula: normal densities at w, w - 2 pi, ..; the second counts near w = pi alone, the others never do."""
    second = w > 0.3
    away = torch.where(second, w, math.pi)
    wrap = torch.where(second, (2 * math.pi - away) / away * torch.exp(-math.pi * (math.pi - away) / time), 0.0)
    ratio = -torch.sinc(w / (2 * math.pi)).log()  # (w/2) / sin(w/2)
    return 0.25 * time + 0.5 * math.log(math.pi) - 1.5 * time.log() - 0.25 * w.square() / time + ratio + torch.log1p(wrap)


def _long(w: Tensor, time: Tensor) -> Tensor:
    """The series itself, with sin((l + 1/2) w) / sin(w/2) = 1 + 2 cos w + .. + 2 cos l w."""
    l = torch.arange(TERMS, dtype=w.dtype, device=w.device)
    size = (2 * l + 1) * torch.exp(-l * (l + 1) * time[..., None])
    beyond = size.flip(-1).cumsum(-1).flip(-1) * torch.where(l > 0, 2.0, 1.0)
    return (beyond * torch.cos(l * w[..., None])).sum(-1).clamp(min=1e-300).log()


def angle_law(scale: Tensor) -> Law:
    """The law of the angle w between a draw and loc: the heat kernel times (1 - cos w)/pi."""
    time = scale.double().square()[..., None] / 4

    def f(w: Tensor) -> Tensor:
        return log_heat(w, time) + 2 * torch.sin(0.5 * w).log() + math.log(2 / math.pi)

    with torch.no_grad():
        s = scale.double()
        mode, high = s.clamp(max=3.0), (8 * s).clamp(max=math.pi)
        return Law(f, torch.zeros_like(s), mode, high)


class IsotropicSO3(OnSet):
    """Where Brownian motion on SO(3) that starts at loc is after the time scale^2: the normal distribution of rotations.

    The scale is in the Frobenius metric, as all lengths on SO(3): a scale s is a standard deviation of s/sqrt(2) radians about
    every axis while it is small. For large scales the distribution is uniform. Densities are with respect to the volume of that
    metric, which is 16 sqrt(2) pi^2 in all.
    """

    loc: Tensor
    scale: Tensor
    dims: ClassVar = {"loc": 2, "scale": 0}
    arg_constraints: dict[str, Any] = {"scale": constraints.positive}  # noqa: RUF012 (as in torch)

    def __init__(self, loc: Tensor, scale: Any, validate_args: Any = None):
        loc, scale = as_tensors(loc, scale)
        M = SO(3)
        if validate_args is not False:
            require_point(M, loc, "IsotropicSO3")
            require_scale(scale, "scale", "IsotropicSO3")
        super().__init__(M, {"loc": loc, "scale": scale}, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """loc turned by a random angle about a random axis; the derivative in the scale is implicit, and unbiased."""
        w = angle_law(self.scale).rsample(torch.Size(sample_shape))[..., None]
        axis = unit(torch.randn(*w.shape[:-1], 3, dtype=w.dtype, device=w.device))
        turned = self.loc.double() @ SO(3).group_exp(w * axis)
        return SO(3).refine(turned.to(self.loc.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        """The heat kernel at the angle between value and loc, with respect to the volume of the Frobenius metric."""
        x, loc = torch.broadcast_tensors(self._checked(value).double(), self.loc.double())
        found = log_heat(SO(3).angle(loc, x), self.scale.double().square() / 4) - LOG_VOLUME
        return found.to(torch.promote_types(value.dtype, self.loc.dtype))

    def divergence_from_uniform(self) -> Tensor:
        """KL(self | UniformOn(SO(3))), by quadrature over the angle."""
        time = self.scale.double().square()[..., None] / 4
        return angle_law(self.scale).mean(lambda w: log_heat(w, time)).to(self.loc.dtype)

    def divergence_of_uniform(self) -> Tensor:
        """KL(UniformOn(SO(3)) | self), by quadrature over the angle, whose law under Haar measure is (1 - cos w)/pi."""
        s = self.scale.double()

        def haar(w: Tensor) -> Tensor:
            return 2 * torch.sin(0.5 * w).log() + math.log(2 / math.pi)

        law = Law(haar, torch.zeros_like(s), torch.full_like(s, math.pi), torch.full_like(s, math.pi))
        return -law.mean(lambda w: log_heat(w, s.square()[..., None] / 4)).to(self.loc.dtype)
