"""Economic dispatch, the setting of E2ELR: generators with limits share a demand at the lowest cost."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..data.pairs import generator
from ..sets import CappedSimplex, Depends
from .solvers import quadratic_program
from .task import Task


class Demand(nn.Module):
    """x = (demand, prices) -> {y : 0 <= y <= cap, sum y = demand}."""

    cap: Tensor

    def __init__(self, cap: Tensor):
        super().__init__()
        self.shape = (len(cap),)
        self.register_buffer("cap", cap, persistent=False)

    def forward(self, x: Tensor) -> CappedSimplex:
        return CappedSimplex(len(self.cap), self.cap, x[..., 0])


def dispatch(generators: int = 30, rows: int = 10_000, seed: int = 0) -> Task:
    """min sum_i price_i y_i + curve_i y_i^2 / 2; demand is 30 to 70 % of what the generators can give, prices vary."""
    random = generator(seed, stream=17)

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=random, dtype=torch.float64)

    cap, base, curve = 0.5 + draw(generators), 1 + draw(generators), 0.2 + draw(generators)
    demand, factor = (0.3 + 0.4 * draw(rows, 1)) * cap.sum(), 0.75 + 0.5 * draw(rows, generators)
    x = torch.cat([demand, factor * base], 1)

    def cost(x: Tensor, y: Tensor) -> Tensor:
        return (x[..., 1:] * y + 0.5 * curve * y.square()).sum(-1)

    eye = torch.eye(generators, dtype=torch.float64)
    faces, ends = torch.cat([-eye, eye]), torch.cat([torch.zeros_like(cap), cap])

    def solve(x: Tensor) -> Tensor:
        return quadratic_program(curve.diag(), x[1:], faces, ends, torch.ones_like(cap)[None], x[:1])

    def center(x: Tensor) -> Tensor:
        return x[..., :1] / cap.sum() * cap

    return Task("dispatch", "economic dispatch (E2ELR)", x, Depends(Demand(cap)), cost, solve, center)
