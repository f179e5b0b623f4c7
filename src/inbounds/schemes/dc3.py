"""Completion and correction (Donti, Rolnick and Kolter, 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..core import ConstraintSet
from .base import Memo, Scheme
from .linear import independent_columns, product, rows_of, shared


class DC3(Scheme):
    """The backbone gives some variables z, the equations E y = f the others; then z takes gradient steps on |(A y - b)_+|^2.

    Equalities hold. Inequalities are not guaranteed: `steps` steps of size `rate` with momentum lower them, and `weight` times
    their norm is in the loss. The dependent variables are chosen by pivoting, so that completion is well conditioned. rate: by
    default 1 / L, with L the Lipschitz constant of the gradient.
    """

    exact = False

    def __init__(
        self,
        net: nn.Module,
        M: ConstraintSet,
        steps: int = 10,
        rate: float | None = None,
        momentum: float = 0.5,
        weight: float = 10.0,
    ):
        super().__init__(net, M)
        if not isinstance(steps, int) or steps < 0:
            raise ValueError(f"DC3 asked for a whole number of steps >= 0, got {steps!r}.")
        self.steps, self.rate, self.momentum, self.weight = steps, rate, momentum, weight
        self._split, self._norm = Memo(_split), Memo(_squared_norm)

    def size(self, M: ConstraintSet) -> int:
        E = rows_of(M, torch.empty(0, *M.shape, dtype=torch.float64), "DC3").E
        return M.shape[0] - E.shape[-2]

    def enforce(self, M: ConstraintSet, u: Tensor, x: Tensor) -> Tensor:
        rows = rows_of(M, u, "DC3")
        order, solve, lift = self._split(shared(rows.E, "DC3"))
        fixed = product(solve, rows.f)  # what the equations ask of the dependent variables at z = 0
        start = torch.cat([fixed.new_zeros(*fixed.shape[:-1], len(order) - fixed.shape[-1]), fixed], -1)[..., order]
        J = rows.A @ lift  # the inequalities as functions of z: J z <= slack
        slack = rows.b - product(rows.A, start)
        rate = self.rate if self.rate is not None else 0.5 / self._norm(J).clamp(min=1e-300)[..., None]
        z = self._corrected(u.double(), J, slack, rate)
        return (start + product(lift, z)).to(u.dtype)

    def _corrected(self, z: Tensor, J: Tensor, slack: Tensor, rate: Tensor | float) -> Tensor:
        """z after the gradient steps, through which derivatives go."""
        move = torch.zeros_like(z)
        for _ in range(self.steps):
            over = (product(J, z) - slack).relu()
            move = rate * 2 * product(J.mT, over) + self.momentum * move
            z = z - move
        return z


def _split(E: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How to complete: the place of every variable in (free, dependent), E_d^-1, and dy/dz (n, n - p)."""
    n = E.shape[-1]
    dependent = independent_columns(E)
    mask = torch.ones(n, dtype=torch.bool, device=E.device)
    mask[dependent] = False
    free = mask.nonzero()[:, 0]
    order = torch.cat([free, dependent]).argsort()
    solve = torch.linalg.inv(E[:, dependent])
    follow = solve @ E[:, free]
    eye = torch.eye(len(free), dtype=E.dtype, device=E.device)
    return order, solve, torch.cat([eye, -follow])[order]


def _squared_norm(J: Tensor) -> Tensor:
    """The square of the largest singular value, (*batch,)."""
    return torch.linalg.matrix_norm(J, 2).square() if J.shape[-2] else J.new_ones(J.shape[:-2])
