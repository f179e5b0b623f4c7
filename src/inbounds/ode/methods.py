"""Runge-Kutta methods in a set: every stage point is projected on M, every velocity is tangent.

This is the method itself for the equation x' = (V o P)(x) around M, whose solutions that start in M are those of x' = V(x). So
away from a boundary every method keeps its order, and so do its error estimate and its interpolation.

Along a curved boundary that the field presses against, stage points fall off to the inside, by the third power of the step. There
nothing holds the velocity back, and it jumps. An adaptive method would have to make steps so short that rounding hides this.
Instead it moves the stage points of such a step back by a tenth of what the tolerance allows, along the normal at its start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..core import ConstraintSet, Manifold
from ..kernels.runge_kutta import Method, combined
from ..kernels.vectors import norm, unit

Time = float | Tensor  # a number, or one number per row that broadcasts against the points
Rate = Callable[[Time, Tensor], Tensor]  # the velocity of the run at a time and a point


@dataclass(frozen=True)
class Made:
    """One step: where it leads, the field there, the velocities of its stages, and how fast volumes grow, if counted."""

    end: Tensor
    after: Tensor
    stages: list[Tensor]
    growths: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Motion:
    """A method with the set and the field that it follows, in the time s >= 0 that has passed since the start.

    growth(s, x) -> (velocity, growth of volume) takes the place of the velocity where volumes are counted. `inner` is the number
    of trailing dims of x that share their steps: those of a point, and of the tokens of a row. `hold` is how far stage points may
    be moved back to a boundary, relative to max(1, |x|), (*rows,).
    """

    method: Method
    M: ConstraintSet
    field: Rate
    inner: int
    growth: Callable[[Time, Tensor], tuple[Tensor, Tensor]] | None = None
    hold: Tensor | None = None

    def rate(self, s: Time, x: Tensor) -> Tensor:
        """The velocity: the field, projected on the tangent cone."""
        return self.M.tangent(x, self.field(s, x))

    def step(self, s: Time, h: Time, x: Tensor, first: Tensor | None = None) -> Made:
        """The point at s + h from the point x at s; `first` is the field at x, if it is known."""
        k: list[Tensor] = []
        growths: list[Tensor] = []
        y, f, back = x, x, None
        for c, row in zip(self.method.times, self.method.stages, strict=True):
            if row:
                moved = x + h * combined(row, k)
                y = self.M.project(moved if back is None else moved + back)
            if self.growth is not None:
                v, g = self.growth(s + c * h, y)
                growths.append(g)
            else:
                f = self.field(s + c * h, y) if row or first is None else first
                v = self.M.tangent(y, f)
            k.append(v)
            back = self._back(x, f, v) if not row else back
        end = y if self.method.error else self.M.project(x + h * combined(self.method.weights, k))
        return Made(end, f, k, growths)

    def _back(self, x: Tensor, f: Tensor, v: Tensor) -> Tensor | None:
        """How to move stage points towards a boundary that the field f presses x against; 0 where it does not."""
        if self.hold is None or isinstance(self.M, Manifold):
            return None
        flat = self.M._flat
        n, size = flat((f - v).detach()), norm(flat(f.detach()))
        pressed = norm(n) > 64 * torch.finfo(x.dtype).eps * size
        far = torch.where(pressed, norm(flat(x.detach())).clamp(min=1.0), 0.0)
        hold = self.spread(self.hold, x).reshape(self.hold.shape + (1,) * (far.dim() - self.hold.dim()))
        return ((far * hold)[..., None] * unit(n)).reshape(x.shape)

    def rows(self, x: Tensor) -> torch.Size:
        """The batch dims of x that have steps of their own."""
        return x.shape[: x.dim() - self.inner]

    def spread(self, t: Tensor, like: Tensor) -> Tensor:
        """One number per row, (*rows,), in a shape that broadcasts against the points, and in their dtype."""
        return t.to(like.dtype).reshape(t.shape + (1,) * self.inner)
