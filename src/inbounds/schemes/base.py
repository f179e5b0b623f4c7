"""What all schemes share: the set of an input, the size of a backbone's output, the loss of a training step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..core import ConstraintSet, require_finite, working_dtype
from ..sets.depends import Depends

Objective = Callable[[Tensor, Tensor], Tensor]  # (x, y) -> (*batch,)


class Scheme(nn.Module, ABC):
    """y = enforce(M(x), net(x), x): a module around a backbone that keeps its outputs in a set, or tries to.

    M: a set, or Depends(module) where it depends on the input x. exact: whether every output is in M but for rounding. weight: of
    the violation in the loss, where training has to help.
    """

    exact = True
    weight = 0.0

    def __init__(self, net: nn.Module, M: ConstraintSet):
        super().__init__()
        name = type(self).__name__
        if not isinstance(net, nn.Module):
            raise TypeError(f"{name} needs an nn.Module (a bare function would train nothing), got {type(net).__name__}.")
        if not isinstance(M, ConstraintSet):
            raise TypeError(f"{name} needs a set, got {type(M).__name__}. Write {name}(net, Polytope(A, b)).")
        self.net, self.M = net, M

    def size(self, M: ConstraintSet) -> int:
        """How many numbers the backbone gives for a point of M."""
        return math.prod(M.shape)

    @abstractmethod
    def enforce(self, M: ConstraintSet, u: Tensor, x: Tensor) -> Tensor:
        """The point of M that belongs to a raw output u (*batch, size) on the input x."""

    def at(self, x: Tensor) -> ConstraintSet:
        """The set of an input."""
        return self.M.given(x) if isinstance(self.M, Depends) else self.M

    def forward(self, x: Tensor) -> Tensor:
        return self._point(self.at(x), x)

    def _point(self, M: ConstraintSet, x: Tensor) -> Tensor:
        require_finite(x, lambda: f"{type(self).__name__} on {M!r}")
        u, size = self.net(x), self.size(M)
        if u.shape[-1] != size:
            raise ValueError(
                f"{type(self).__name__} asked for {size} numbers per point of {M!r}, got {u.shape[-1]}. Give the backbone an "
                f"output of size {size} (scheme.size(M))."
            )
        return self.enforce(M, u.to(working_dtype(u)), x)

    def loss(self, x: Tensor, objective: Objective) -> Tensor:
        """The mean of objective(x, y), with the violation of y in front of `weight`."""
        M = self.at(x)
        y = self._point(M, x)
        value = objective(x, y).mean()
        return value + self.weight * excess(M, y).mean() if self.weight else value


def excess(M: ConstraintSet, y: Tensor) -> Tensor:
    """(|equalities| + |positive parts of inequalities|) / 2, the soft loss of DC3: (*batch,)."""
    eq, ineq = M.residuals(y)
    return 0.5 * (eq.norm(dim=-1) + ineq.relu().norm(dim=-1))


class Memo:
    """The result of a function of one constant matrix, kept until another matrix comes; of learnable ones nothing is kept."""

    def __init__(self, function: Callable[[Tensor], Any]):
        self.function = function
        self.seen: Tensor | None = None
        self.result: Any = None

    def __call__(self, C: Tensor) -> Any:
        if C.requires_grad:
            return self.function(C)
        same = (
            self.seen is not None and self.seen.shape == C.shape and self.seen.dtype == C.dtype and self.seen.device == C.device
        )
        if not same or not torch.equal(self.seen, C):  # pyright: ignore[reportArgumentType]
            with torch.no_grad():
                self.seen, self.result = C.clone(), self.function(C)
        return self.result
