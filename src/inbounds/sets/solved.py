"""What sets share whose projection a solver finds: a status for every row, and what to do where there is no answer."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from ..core import ConstraintSet, full_precision
from ..kernels.derivative import looking
from ..solvers import EMPTY, FLAT, NAMES, Solution


class SolveError(RuntimeError):
    """A projection that a solver did not find, or that does not exist."""


class FirstOnly(torch.autograd.Function):
    """y itself, with a first derivative and an error in place of a wrong second one.

    (torch's own `once_differentiable` says nothing where the gradient that comes in is a constant.)
    """

    @staticmethod
    def forward(y: Tensor) -> Tensor:
        return y.view_as(y)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any):
        pass

    @staticmethod
    def backward(ctx: Any, g: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        refuse_second_derivatives()
        return g


def refuse_second_derivatives() -> None:
    """In the backward pass of a solver: gradients of gradients are asked for exactly where grad mode is on."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "This set is projected on by a solver that has no second derivative. Call backward or torch.autograd.grad without "
            "create_graph=True, or use a set with a closed form, a Polytope among them."
        )


class SolvedSet(ConstraintSet):
    """A set whose nearest points are found by a solver, with a status for every row.

    `project` raises `SolveError` if a row is empty or not converged; with on_fail="best" it returns the best point it found.
    Under compile, vmap and export, where nothing can raise, such rows are NaN, or the best point.
    """

    on_fail: str

    def __init__(self, on_fail: str = "raise"):
        super().__init__()
        if on_fail not in ("raise", "best"):
            raise ValueError(f'{type(self).__name__} asked for on_fail "raise" or "best", got {on_fail!r}.')
        self.on_fail = on_fail

    @abstractmethod
    def _nearest(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest point, differentiable, in x's dtype, and the status (*batch,)."""

    @abstractmethod
    def _solve(self, x: Tensor) -> Solution: ...

    def solve(self, x: Tensor, context: Tensor | None = None) -> Solution:
        """The projection of x with everything the solver knows about it, without derivative. It never raises for a bad row."""
        if context is not None:
            given = self.given(context)
            assert isinstance(given, SolvedSet)
            return given.solve(x)
        (x,) = self._enter("solve", x)
        with full_precision(x), torch.no_grad():
            return self._solve(x)

    def _project(self, x: Tensor) -> Tensor:
        y, status = self._nearest(x)
        bad = status > FLAT
        if not looking(x):
            return y if self.on_fail == "best" else torch.where(self._wide(bad), torch.nan, y)
        bad = bad & torch.isfinite(self._flat(x)).all(-1).expand(bad.shape)
        if self.on_fail == "raise" and bool(bad.any()):
            raise SolveError(self._complaint(status, bad))
        return y

    def _wide(self, row: Tensor) -> Tensor:
        """(*batch,) -> (*batch, 1, .., 1)."""
        return row.reshape(*row.shape, *[1] * len(self.shape))

    def _complaint(self, status: Tensor, bad: Tensor) -> str:
        first = tuple(bad.nonzero()[0].tolist())
        row = f" at index {first}" if first else ""
        word = NAMES[int(status[first])]
        why = (
            "its constraints contradict each other, so there is no point to project on. Mend the constraints"
            if int(status[first]) == EMPTY
            else "the solver did not converge there. Use more restarts where the set has them"
        )
        return (
            f"{self!r}.project was asked for {bad.numel()} projections and has none for {int(bad.sum())} of them. The first bad "
            f'row{row} is {word}: {why}, look at M.solve(x), or write on_fail="best" to get the best point that was found.'
        )
