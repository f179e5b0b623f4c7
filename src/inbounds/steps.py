"""Steps: how a raw network output u moves a point x of M. (x, u) -> next point of M."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from torch import Tensor, nn

from .core import ConstraintSet, LieGroup, Manifold, working_dtype


class Step(nn.Module, ABC):
    """`size` numbers of network output per point. Takes u flat, (*batch, size), or in the point's shape."""

    M: ConstraintSet
    size: int

    def __init__(self, M: ConstraintSet, kind: type[ConstraintSet], needs: str, instead: str):
        super().__init__()
        name = type(self).__name__
        if not isinstance(M, ConstraintSet):
            raise TypeError(f"{name} needs a set, got {type(M).__name__}. Write {name}(Sphere(3)).")
        if not isinstance(M, kind):
            raise TypeError(f"{name} needs a {needs}, got {M!r}. Use {instead}({M!r}).")
        self.M = M

    @abstractmethod
    def forward(self, x: Tensor | None, u: Tensor) -> Tensor:
        """The next point; x = None starts from the step's own base point."""

    def shaped(self, u: Tensor, shape: tuple[int, ...]) -> Tensor:
        """u as (*batch, *shape), from there or from (*batch, size)."""
        flat = u.dim() > 0 and u.shape[-1] == self.size
        if flat and shape[-1] != self.size:
            return u.unflatten(-1, shape)
        if u.dim() >= len(shape) and u.shape[u.dim() - len(shape) :] == shape:
            return u
        if flat:
            return u.unflatten(-1, shape)
        forms = f"(*batch, {self.size})" + (f" or (*batch, {', '.join(map(str, shape))})" if len(shape) > 1 else "")
        raise ValueError(
            f"{self!r} asked for {self.size} numbers per point, {forms}, got {tuple(u.shape)}. Give the network an output "
            f"of size {self.size} (step.size)."
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.M!r}{self.extra_repr()})"


class Projection(Step):
    """P_M(x + u); P_M(u) without a base point."""

    def __init__(self, M: ConstraintSet):
        super().__init__(M, ConstraintSet, "set", "Projection")
        self.size = math.prod(M.shape)

    def forward(self, x: Tensor | None, u: Tensor) -> Tensor:
        u = self.shaped(u, self.M.shape)
        return self.M.project(u if x is None else x + u)


class Exponential(Step):
    """exp_x(P_{T_x M} u), then one refinement; from M.origin without a base point."""

    M: Manifold

    def __init__(self, M: Manifold):
        super().__init__(M, Manifold, "Manifold (no boundary)", "Projection")
        self.size = math.prod(M.shape)

    def forward(self, x: Tensor | None, u: Tensor) -> Tensor:
        u = self.shaped(u, self.M.shape)
        u = u.to(working_dtype(u))
        x = self.M.origin(u).expand_as(u) if x is None else x
        return self.M.refine(self.M.exp(x, self.M.tangent(x, u)))


class GroupExponential(Step):
    """compose(group_exp(u), x), then one refinement; side="right" for body frames: compose(x, group_exp(u))."""

    M: LieGroup

    def __init__(self, M: LieGroup, side: str = "left"):
        super().__init__(M, LieGroup, "LieGroup", "Exponential" if isinstance(M, Manifold) else "Projection")
        if side not in ("left", "right"):
            raise ValueError(f'GroupExponential asked for side "left" or "right", got {side!r}.')
        self.size, self.side = M.dim, side

    def forward(self, x: Tensor | None, u: Tensor) -> Tensor:
        g = self.M.group_exp(self.shaped(u, (self.size,)))
        if x is None:
            return self.M.refine(g)
        return self.M.refine(self.M.compose(g, x) if self.side == "left" else self.M.compose(x, g))

    def extra_repr(self) -> str:
        return "" if self.side == "left" else ', side="right"'
