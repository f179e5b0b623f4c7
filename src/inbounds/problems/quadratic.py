"""The benchmark of DC3 (Donti, Rolnick and Kolter, 2021): random linear constraints, the input is the right-hand side."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..extras import needed_for
from ..sets import Depends, Polytope
from .solvers import newton_descent, quadratic_program
from .task import Task


class RightHandSide(nn.Module):
    """x -> {y : E y = x, A y <= b}."""

    A: Tensor
    b: Tensor
    E: Tensor

    def __init__(self, A: Tensor, b: Tensor, E: Tensor):
        super().__init__()
        self.shape = (E.shape[-1],)
        for name, value in (("A", A), ("b", b), ("E", E)):
            self.register_buffer(name, value, persistent=False)

    def forward(self, x: Tensor) -> Polytope:
        return Polytope(A=self.A, b=self.b, E=self.E, f=x)


def quadratic(
    variables: int = 100,
    equations: int = 50,
    inequalities: int = 50,
    rows: int = 10_000,
    seed: int = 17,
    sine: bool = False,
    order: str = "dc3",
) -> Task:
    """min y^T Q y / 2 + p^T y (with sine: p^T sin y) over E y = x, A y <= b; Q diagonal, x uniform in [-1, 1].

    Numbers are drawn in the order of DC3's authors, or with order="hardnet" in that of HardNet's, so that seed 17 gives their
    data; b_i = sum_j |A E^+|_ij makes E^+ x feasible.
    """
    if not 0 < equations < variables:
        raise ValueError(f"quadratic asked for 0 < equations < variables, got {equations} and {variables}.")
    with needed_for("The quadratic task"):
        import numpy

    Q, p, E, x, A = map(torch.from_numpy, drawn(numpy.random.RandomState(seed), variables, equations, inequalities, rows, order))
    inverse = torch.linalg.pinv(E)
    b = (A @ inverse).abs().sum(1)

    def cost(y: Tensor) -> Tensor:
        return (0.5 * Q * y.square() + p * (y.sin() if sine else y)).sum(-1)

    def solve(x: Tensor) -> Tensor:
        best = quadratic_program(Q.diag(), p, A, b, E, x)
        return newton_descent(cost, best, A, b, E, x) if sine else best

    M = Depends(RightHandSide(A, b, E))
    name, title = ("sine", "QP with sine") if sine else ("qp", "convex QP")
    name, title = (name, f"{title} (DC3)") if order == "dc3" else (f"{name}-hardnet", f"{title} (HardNet's data)")
    return Task(name, title, x, M, lambda x, y: cost(y), solve, lambda x: x @ inverse.mT)


def drawn(random: Any, variables: int, equations: int, inequalities: int, rows: int, order: str = "dc3") -> list[Any]:
    """Q, p, E, x and A from a numpy.random.RandomState: DC3's authors draw E, x, A, and HardNet's A, E, x."""
    if order not in ("dc3", "hardnet"):
        raise ValueError(f"The quadratic task asked for order='dc3' or 'hardnet', got {order!r}.")
    Q, p = random.random(variables), random.random(variables)
    A = random.normal(size=(inequalities, variables)) if order == "hardnet" else None
    E, x = random.normal(size=(equations, variables)), random.uniform(-1, 1, size=(rows, equations))
    return [Q, p, E, x, random.normal(size=(inequalities, variables)) if A is None else A]


def dependent_variables(order: str = "dc3") -> list[int]:
    """The variables that the equations give in the authors' data: the next draw after them."""
    with needed_for("The authors' variables"):
        import numpy

    random = numpy.random.RandomState(17)
    drawn(random, 100, 50, 50, 10_000, order)
    free = set(random.choice(100, 50, replace=False).tolist())
    return [j for j in range(100) if j not in free]
