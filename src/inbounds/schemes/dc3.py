"""Completion and correction (Donti, Rolnick and Kolter, 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from ..core import ConstraintSet
from .base import Memo, Scheme
from .linear import completion, free_variables, product, rows_of, shared


class DC3(Scheme):
    """The backbone gives some variables z, the equations E y = f the others; then z takes gradient steps on |(A y - b)_+|^2.

    Equalities hold. Inequalities are not guaranteed: `steps` steps of size `rate` with momentum lower them, and `weight` times
    their norm is in the loss. dependent: the variables that the equations give, by default chosen by pivoting, so that completion
    is well conditioned. rate: by default 1 / L, with L the Lipschitz constant of the gradient.
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
        dependent: Sequence[int] | None = None,
    ):
        super().__init__(net, M)
        if not isinstance(steps, int) or steps < 0:
            raise ValueError(f"DC3 asked for a whole number of steps >= 0, got {steps!r}.")
        self.steps, self.rate, self.momentum, self.weight = steps, rate, momentum, weight
        self._completion, self._norm = Memo(partial(completion, dependent=dependent)), Memo(_squared_norm)

    def size(self, M: ConstraintSet) -> int:
        return free_variables(M, "DC3")

    def enforce(self, M: ConstraintSet, u: Tensor, x: Tensor) -> Tensor:
        rows = rows_of(M, u, "DC3")
        solve, lift = self._completion(shared(rows.E, "DC3"))
        start = product(solve, rows.f)
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


def _squared_norm(J: Tensor) -> Tensor:
    """The square of the largest singular value, (*batch,)."""
    return torch.linalg.matrix_norm(J, 2).square() if J.shape[-2] else J.new_ones(J.shape[:-2])
