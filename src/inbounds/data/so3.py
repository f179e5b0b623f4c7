"""Rotations driven by dX/dt = tr(X^2 + I) A X with A = E_1 + E_2 + E_3, for t from 0 to 10.

A is constant, so X(t) = exp(tau(t) A) X(0): the matrix equation is one scalar equation for the angle theta = sqrt(3) tau,
    theta' = sqrt(3) s(theta),   s(theta) = tr((exp(tau A) X_0)^2) + 3,
where s is a trigonometric polynomial of degree 2 with values in [2, 6]. Then t(theta) is the integral of the periodic, analytic
function 1/(sqrt(3) s): its Fourier series is integrated term by term and inverted by Newton's method, to rounding. (An adaptive
Runge-Kutta method on the matrix equation, the paper's choice, is the oracle in the tests.)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..sets import SO
from .pairs import Pairs
from .synthetic import build

HORIZON = 10.0
MODES = 64  # the coefficients fall by a factor of at least 2.5 per mode


def so3(sizes: dict[str, int] | None = None, seed: int = 0) -> Pairs:
    """x uniform on SO(3); y = X(10)."""
    M = SO(3)
    return build("so3", M, sizes, seed, lambda n, g: M.sample(n, generator=g, dtype=torch.float64), advect)


def advect(X: Tensor) -> Tensor:
    """Where rotations are in the end: turned around (1, 1, 1) by the angle of `arrival`."""
    M = SO(3)
    theta = arrival(X)
    axis = X.new_ones(3) / math.sqrt(3)
    return M.project(M.group_exp(theta[..., None] * axis) @ X)


def speeds(X: Tensor, theta: Tensor) -> Tensor:
    """sqrt(3) s at every theta: (n, 3, 3), (m,) -> (n, m)."""
    turned = SO(3).group_exp(theta[:, None] * theta.new_ones(3) / math.sqrt(3)) @ X[:, None]  # (n, m, 3, 3)
    return math.sqrt(3) * ((turned * turned.mT).sum((-1, -2)) + 3)


def arrival(X: Tensor) -> Tensor:
    """theta at t = HORIZON."""
    grid = torch.arange(2 * MODES, dtype=X.dtype) * (math.pi / MODES)
    c = torch.fft.rfft(1 / speeds(X, grid)) / len(grid)  # dt/dtheta = sum_k c_k e^{ik theta}
    slope, k = c[:, 0].real, torch.arange(1, MODES, dtype=X.dtype)
    wave = 2 * c[:, 1:MODES]
    theta = HORIZON / slope
    for _ in range(60):  # dt/dtheta lies in [1/6, 1/2]/sqrt(3): Newton's method converges from the mean slope
        e = torch.polar(torch.ones_like(theta[:, None] * k), theta[:, None] * k)
        t = slope * theta + (wave * (e - 1) / (1j * k)).real.sum(-1)
        step = (HORIZON - t) / (slope + (wave * e).real.sum(-1))
        theta = theta + step.clamp(-0.5, 0.5)
        if step.abs().max() < 1e-11:
            break
    return theta
