"""Safe control: a robot that must not hit a disc, with a control barrier, which is affine in the control."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..data.pairs import generator
from ..sets import Depends, Polytope
from .solvers import newton_descent, quadratic_program
from .task import Task

RADIUS, GAIN, SPEED, AHEAD = 0.5, 2.0, 1.0, 1.0  # r, gain, speed and T of the formulas below


class Barrier(nn.Module):
    """x = (position - obstacle, goal - position, the obstacle's velocity) -> the controls u that keep the barrier.

    h = |p - o|^2 - r^2 may fall no faster than dh/dt >= -gain h, that is 2 (p - o).(u - w) >= -gain h: one row that depends on x.
    """

    shape = (2,)

    def forward(self, x: Tensor) -> Polytope:
        off, w = x[..., :2], x[..., 4:6]
        h = off.square().sum(-1, keepdim=True) - RADIUS**2
        return Polytope(A=-2 * off[..., None, :], b=GAIN * h - 2 * (off * w).sum(-1, keepdim=True))


def control(rows: int = 10_000, seed: int = 0) -> Task:
    """min |p + T u - goal|^2 + T^2 (|u| - speed)_+^2 over the safe controls u: to the goal within the time T, at a fair speed.

    Starts are outside of the obstacle. The cost is smooth and not quadratic, so that the answer is no projection.
    """
    random = generator(seed, stream=18)
    angle = 2 * torch.pi * torch.rand(rows, 1, generator=random, dtype=torch.float64)
    far = RADIUS + 1.5 * torch.rand(rows, 1, generator=random, dtype=torch.float64)
    off = far * torch.cat([angle.cos(), angle.sin()], 1)
    goal = 2 * torch.randn(rows, 2, generator=random, dtype=torch.float64)
    w = 0.3 * torch.randn(rows, 2, generator=random, dtype=torch.float64)
    M = Depends(Barrier())

    def cost(x: Tensor, u: Tensor) -> Tensor:
        fast = (u.square().sum(-1) + 1e-12).sqrt() - SPEED
        return (AHEAD * u - x[..., 2:4]).square().sum(-1) + AHEAD**2 * fast.relu().square()

    def center(x: Tensor) -> Tensor:
        away = x[..., :2] / x[..., :2].norm(dim=-1, keepdim=True)
        return x[..., 4:6] + 0.5 * away

    def solve(x: Tensor) -> Tensor:
        P = M.given(x)
        assert isinstance(P, Polytope)
        none = x.new_zeros(0, 2), x.new_zeros(0)
        first = quadratic_program(torch.eye(2, dtype=x.dtype), -x[2:4] / AHEAD, P.A, P.b, *none)
        return newton_descent(lambda u: cost(x, u), first, P.A, P.b, *none)

    return Task("control", "safe control (HardNet)", torch.cat([off, goal, w], 1), M, cost, solve, center)
