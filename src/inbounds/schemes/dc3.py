"""Completion and correction (Donti, Rolnick and Kolter, 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from ..core import ConstraintSet
from .base import Memo, Scheme
from .linear import completion, equations_of, free_variables, is_curved, product, rows_of, shared


class DC3(Scheme):
    """The backbone gives some variables z, the equations E y = f the others; then z takes gradient steps on |(A y - b)_+|^2.

    Equalities hold. Inequalities are not guaranteed: `steps` steps of size `rate` with momentum lower them, and `weight` times
    their norm is in the loss. dependent: the variables that the equations give, by default chosen by pivoting, so that completion
    is well conditioned. rate: by default 1 / L, with L the Lipschitz constant of the gradient. Of a set with linear equations and
    curved inequalities, which has `equations()`, L is ten times that of the inequalities linearised at 0: their slopes grow.
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
        if is_curved(M):
            return self._around_curves(M, u)
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

    def _around_curves(self, M: ConstraintSet, u: Tensor) -> Tensor:
        """The same with gradients by autograd."""
        E, f = equations_of(M, u, "DC3")
        solve, lift = self._completion(E)
        start, z = product(solve, f), u.double()
        rate = self.rate if self.rate is not None else 0.05 / float(_squared_norm(_slope_at_zero(M, lift)))
        move, keep = torch.zeros_like(z), torch.is_grad_enabled() and z.requires_grad
        for _ in range(self.steps):
            with torch.enable_grad():
                z = z if z.requires_grad else z.detach().requires_grad_()
                over = M.residuals(start + product(lift, z))[1].relu().square().sum()
                (slope,) = torch.autograd.grad(over, z, create_graph=keep)
            move = rate * slope + self.momentum * move
            z = z - move if keep else (z - move).detach()
        return (start + product(lift, z)).to(u.dtype)


def _slope_at_zero(M: ConstraintSet, lift: Tensor) -> Tensor:
    """The Jacobian of the inequalities in the free variables at the point 0, (m, k)."""
    zero = torch.zeros(M.shape[0], dtype=torch.float64)
    J = torch.autograd.functional.jacobian(lambda y: M.residuals(y)[1].reshape(-1, M.residuals(y)[1].shape[-1])[0], zero)
    return J @ lift  # pyright: ignore[reportOperatorIssue]


def _squared_norm(J: Tensor) -> Tensor:
    """The square of the largest singular value, (*batch,)."""
    return torch.linalg.matrix_norm(J, 2).square() if J.shape[-2] else J.new_ones(J.shape[:-2])
