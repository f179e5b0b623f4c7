"""Curved inequalities on planes that depend on the input."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from ..sets import Implicit
from ..sets.solved import SolvedSet
from ..solvers import Solution
from ..solvers.jets import Constraints, Jet, lengths


class Curves(ABC):
    """Convex inequalities with their derivatives in closed form, over batches; `along(N)` are the same ones as functions of t."""

    count: int

    @abstractmethod
    def values(self, y: Tensor) -> Tensor:
        """(*batch, n) -> (*batch, count), <= 0 inside."""

    @abstractmethod
    def slopes(self, y: Tensor, N: Tensor) -> Tensor:
        """The Jacobian of t -> values(y + N t) at t = 0: (R, n), (n, k) -> (R, count, k)."""

    @abstractmethod
    def curvature(self, y: Tensor, N: Tensor, l: Tensor) -> Tensor:
        """sum_i l_i Hess_i of the same function: (R, n), (n, k), (R, count) -> (R, k, k)."""


class Known(Constraints, ABC):
    """Constraints that know their derivatives in closed form; autograd takes several times as long."""

    @abstractmethod
    def derived(self, y: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
        """Values (R, k), Jacobian (R, k, n), and the function l -> sum l_i Hess c_i, (R, k) -> (R, n, n)."""

    def expand(self, y: Tensor, rows: Tensor, l: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        c, J, curvature = self.derived(y, rows)
        return c, J, None if l is None else curvature(l)

    def jet(self, y: Tensor, rows: Tensor, m: Tensor | None, scale: Tensor | None) -> Jet:
        c, J, curvature = self.derived(y, rows)
        size = lengths(J).clamp(min=1e-12)
        scale = size if scale is None else torch.maximum(scale, size)
        H = y.new_zeros(*y.shape, y.shape[1]) if m is None else curvature(m / scale)
        return Jet(c, J, scale, H, None, slice(0, J.shape[1]))


@dataclass(frozen=True)
class Analytic(Known):
    """The curves as functions of t, for y = start + N t."""

    curves: Curves
    start: Tensor  # (R, n)
    N: Tensor

    def derived(self, y: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
        point = self.start.index_select(0, rows) + y @ self.N.mT
        curvature = partial(self.curves.curvature, point, self.N)
        return self.curves.values(point), self.curves.slopes(point, self.N), curvature

    def restricted(self, rows: Tensor) -> Analytic:
        return analytic(self.curves, self.start.index_select(0, rows), self.N)


def analytic(curves: Curves, start: Tensor, N: Tensor) -> Analytic:
    """The constraints curves(start + N t) <= 0 on t, a start for every row."""
    return Analytic(lambda t, rows: [curves.values(start[rows] + t @ N.mT)], 0, curves, start, N)


class Inner(Implicit):
    """{t : curves(start + N t) <= 0}; the context of a point is its start."""

    def __init__(self, curves: Curves, N: Tensor):
        self.curves, self.N = curves, N  # before the functions are tried out
        super().__init__(N.shape[1], ineq=lambda t, start: curves.values(start + N @ t), context=N.shape[0])

    def _constraints(self, context: Tensor | None) -> Constraints:
        assert context is not None
        return analytic(self.curves, context.detach(), self.N)


class Planes(nn.Module):
    """x -> {y : E y = x, curves(y) <= 0}.

    All y with E y = x are E^+ x + N t with orthonormal columns in N, so the nearest point is the nearest in t: a set of fewer
    variables without equations.
    """

    E: Tensor
    inverse: Tensor
    N: Tensor

    def __init__(self, E: Tensor, curves: Curves):
        super().__init__()
        self.shape, self.curves = (E.shape[-1],), curves
        N = torch.linalg.svd(E)[2][len(E) :].mT.contiguous()
        for name, value in (("E", E), ("inverse", torch.linalg.pinv(E)), ("N", N)):
            self.register_buffer(name, value, persistent=False)
        self.inner = Inner(curves, N)

    def forward(self, x: Tensor) -> OnPlanes:
        return OnPlanes(self, x)


class OnPlanes(SolvedSet):
    """The set of one input, or of a batch of them. Points are float64."""

    reach = math.inf

    def __init__(self, planes: Planes, x: Tensor):
        super().__init__("raise")
        self.shape, self.planes, self.x = planes.shape, planes, x
        self.start = x @ planes.inverse.mT

    def equations(self) -> tuple[Tensor, Tensor]:
        """E and f of E y = f."""
        return self.planes.E, self.x

    def coordinates(self, y: Tensor) -> Tensor:
        """t of the point of the planes that is nearest to y."""
        if y.dtype != torch.float64:
            raise TypeError(f"{self!r} asked for points in float64, got {y.dtype}. Write y.double().")
        return (y - self.start) @ self.planes.N

    def point(self, t: Tensor) -> Tensor:
        """start + N t."""
        return self.start + t @ self.planes.N.mT

    def _inner(self) -> Inner:
        return self.planes.inner.given(self.start)  # pyright: ignore[reportReturnType]

    def _nearest(self, x: Tensor) -> tuple[Tensor, Tensor]:
        t, status = self._inner()._nearest(self.coordinates(x))
        return self.point(t), status

    def _solve(self, x: Tensor) -> Solution:
        """The multipliers of the equations are those of what x - y and the push of the inequalities have across the planes."""
        s = self._inner()._solve(self.coordinates(x))
        y = self.point(s.point)
        eye = torch.eye(self.shape[0], dtype=y.dtype)
        slope = self.planes.curves.slopes(y.reshape(-1, *self.shape), eye)
        push = (s.multipliers.reshape(len(slope), 1, -1) @ slope)[:, 0].reshape(y.shape)
        equal = (x - y - push) @ self.planes.inverse
        every = torch.ones_like(equal, dtype=torch.bool)
        l, active = torch.cat([equal, s.multipliers], -1), torch.cat([every, s.active], -1)
        return Solution(y, s.violation, s.optimality, l, active, s.status, s.iterations)

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x @ self.planes.E.mT - self.x, self.planes.curves.values(x)

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        return self._inner()._tangent(self.coordinates(x), v @ self.planes.N) @ self.planes.N.mT

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Projected noise: not uniform."""
        with torch.no_grad():
            return self._project(torch.randn(*batch, *self.shape, generator=generator, dtype=dtype, device=device))

    def __repr__(self) -> str:
        return f"OnPlanes({self.shape[0]}, {len(self.planes.E)} equations, {self.planes.curves.count} inequalities)"
