"""Inverse kinematics: joint angles that put a hand on a goal, with joint limits and a round obstacle."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..core import ConstraintSet
from ..data.pairs import generator
from ..extras import needed_for
from ..sets import Depends, Implicit
from .solvers import Unsolved
from .task import Task

LIMIT, OBSTACLE, RADIUS = 2.5, (1.0, 0.0), 0.4  # of each joint, radians; a disc within reach of the links
REST, STIFFNESS = (1.0, 0.3, 0.3), (4.0, 2.0, 1.0)  # the posture that costs nothing, and what each joint costs
STARTS = 8  # of the reference solver beside the rest posture: the best of its answers counts


def joints(q: Tensor) -> Tensor:
    """The positions of the joints and the hand of links of length 1: (*batch, 3) -> (*batch, 3, 2)."""
    a = q.cumsum(-1)
    return torch.stack([a.cos(), a.sin()], -1).cumsum(-2)


def reaches(q: Tensor, goal: Tensor) -> Tensor:
    """The hand's way to the goal, 0 if it is there."""
    return joints(q)[..., -1, :] - goal


def allowed(q: Tensor, goal: Tensor) -> Tensor:
    """Joint limits and the distance of every joint to the obstacle, <= 0 where all is well."""
    away = (joints(q) - torch.tensor(OBSTACLE, dtype=q.dtype, device=q.device)).square().sum(-1)
    return torch.cat([q.abs() - LIMIT, RADIUS**2 - away], -1)


class Reach(nn.Module):
    """x, a goal -> the joint angles that reach it."""

    shape = (3,)

    def __init__(self):
        super().__init__()
        self.all = Implicit(3, eq=reaches, ineq=allowed, context=2, on_fail="best")

    def forward(self, x: Tensor) -> ConstraintSet:
        return self.all.given(x)


def arm(rows: int = 10_000, seed: int = 0) -> Task:
    """min sum_i stiffness_i (q_i - rest_i)^2 over the angles q that reach the goal x. Every goal is reached by some angles.

    The set is not convex and has several pieces, elbow up and elbow down, so the optimum is the best of several starts.
    """
    random = generator(seed, stream=19)
    q = torch.zeros(0, 3, dtype=torch.float64)
    while len(q) < rows:
        more = LIMIT * (2 * torch.rand(4 * rows, 3, generator=random, dtype=torch.float64) - 1)
        q = torch.cat([q, more[(allowed(more, more) < -0.05).all(-1)]])
    x = joints(q[:rows])[:, -1]
    rest, stiffness = (torch.tensor(t, dtype=torch.float64) for t in (REST, STIFFNESS))
    starts = LIMIT * (2 * torch.rand(STARTS, 3, generator=random, dtype=torch.float64) - 1)

    def cost(x: Tensor, q: Tensor) -> Tensor:
        return (stiffness * (q - rest).square()).sum(-1)

    def solve(x: Tensor) -> Tensor:
        found = [q for start in torch.cat([rest[None], starts]) if (q := _descent(cost, x, start)) is not None]
        if not found:
            raise Unsolved(f"SLSQP reached the goal {x.tolist()} from none of {STARTS + 1} starts.")
        return min(found, key=lambda q: float(cost(x, q)))

    return Task("arm", "inverse kinematics", x, Depends(Reach()), cost, solve)


def _descent(cost, x: Tensor, start: Tensor) -> Tensor | None:
    """Where SLSQP ends from a start, with derivatives by differences: three variables are few. None if that is no solution."""
    with needed_for("An optimal posture"):
        from scipy.optimize import minimize

    def numbers(function):
        return lambda q: function(torch.from_numpy(q)).numpy()

    def eq(q: Tensor) -> Tensor:
        return reaches(q, x)

    def room(q: Tensor) -> Tensor:
        return -allowed(q, x)

    kinds = [{"type": kind, "fun": numbers(f)} for kind, f in (("eq", eq), ("ineq", room))]
    how = {"constraints": kinds, "options": {"ftol": 1e-12, "maxiter": 200}}
    q = torch.from_numpy(minimize(numbers(lambda q: cost(x, q)), start.numpy(), method="SLSQP", **how).x)
    good = float(eq(q).abs().max()) < 1e-8 and float(room(q).min()) > -1e-8
    return q if good else None
