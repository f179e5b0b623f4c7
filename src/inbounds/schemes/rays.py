"""Along rays from a point inside: RAYEN (Tordesillas et al., 2023), the gauge map (Tabas and Zhang, 2022), and our smooth one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core import ConstraintSet
from ..ray_scaling import RayScaling
from .base import Memo, Scheme
from .linear import equations_of, is_curved, nullspace, product, rows_of, shared

Center = Callable[[Tensor], Tensor]  # x -> a point strictly inside of M(x)


@dataclass(frozen=True)
class Star:
    """A polytope seen from a point inside: y = center + N w, and A N w <= slack."""

    center: Tensor  # (*batch, n)
    N: Tensor  # (n, k), orthonormal
    faces: Tensor  # A N, (*batch, m, k)
    slack: Tensor  # b - A center > 0, (*batch, m)

    def gauge(self, w: Tensor) -> Tensor:
        """min {t >= 0 : center + N w / t in M}, (*batch, 1); 0 where the ray never leaves."""
        return (product(self.faces, w) / self.slack).amax(-1, keepdim=True).clamp(min=0)

    def point(self, w: Tensor) -> Tensor:
        """center + N w."""
        return self.center + product(self.N, w)


class Centered(Scheme):
    """A scheme that needs a point inside: center(x) of shape (*batch, n). The backbone gives coordinates of {v : E v = 0}."""

    def __init__(self, net: nn.Module, M: ConstraintSet, center: Center):
        super().__init__(net, M)
        if not callable(center):
            name = type(self).__name__
            raise TypeError(
                f"{name} asked for center(x), a point strictly inside of the set of an input, got {type(center).__name__}. Write "
                f"{name}(net, M, lambda x: point)."
            )
        self.center = center
        self._basis = Memo(nullspace)

    def size(self, M: ConstraintSet) -> int:
        like = torch.empty(0, *M.shape, dtype=torch.float64)
        return self._basis(equations_of(M, like, type(self).__name__)[0]).shape[-1]

    def star(self, M: ConstraintSet, u: Tensor, x: Tensor) -> Star:
        """M about its center; refuses a center that is not strictly inside."""
        who = type(self).__name__
        rows = rows_of(M, u, who)
        N = self._basis(shared(rows.E, who))
        c = self.center(x).double()
        slack = rows.b - product(rows.A, c)
        if not bool((slack > 0).all()):
            raise ValueError(f"{who} asked for center(x) strictly inside {M!r}, got a point on its boundary or outside.")
        return Star(c, N, rows.A @ N, slack)


class Rayen(Centered):
    """c + v / max(1, k(v)): points inside stay, others go back along their ray to the boundary. k is the gauge about c.

    Of a convex set with linear equations and curved inequalities, which has `equations()`, the boundary is found by Newton's
    method on the ray.
    """

    def enforce(self, M: ConstraintSet, u: Tensor, x: Tensor) -> Tensor:
        if is_curved(M):
            N = self._basis(equations_of(M, u, "Rayen")[0])
            c, v = self.center(x).double(), product(N, u.double())
            return (c + v * last_inside(M, c, v)).to(u.dtype)
        star, w = self.star(M, u, x), u.double()
        return star.point(w / star.gauge(w).clamp(min=1.0)).to(u.dtype)


class GaugeMap(Centered):
    """c + v |v|_inf / k(v), v = tanh(u): the unit cube onto M, sphere of the norm by sphere. M must be bounded.

    On an unbounded M the map has no limit along rays that never leave; a gauge of exactly 0 is refused.
    """

    def enforce(self, M: ConstraintSet, u: Tensor, x: Tensor) -> Tensor:
        star, w = self.star(M, u, x), torch.tanh(u.double())
        size, gauge = w.abs().amax(-1, keepdim=True), star.gauge(w)
        if bool(((gauge == 0) & (size > 0)).any()):
            raise ValueError(f"GaugeMap asked for a bounded set, got {M!r}, which a ray never leaves. Use Rayen(net, M, center).")
        return star.point(w * size / torch.where(size > 0, gauge, 1.0)).to(u.dtype)


class Scaled(Centered):
    """c + v / (1 + k(v)), our `RayScaling`: smooth, with a derivative of full rank everywhere. M is any convex set."""

    def size(self, M: ConstraintSet) -> int:
        return M.shape[0]

    def enforce(self, M: ConstraintSet, u: Tensor, x: Tensor) -> Tensor:
        return RayScaling(M, center=self.center(x))(None, u)


def last_inside(M: ConstraintSet, c: Tensor, v: Tensor, steps: int = 12) -> Tensor:
    """The largest s <= 1 with c + s v in a convex M, (*batch, 1): Newton's method from 1, downwards, on the largest inequality.

    That is a convex function of s and negative at c, so no step goes below the root. s has the derivative of the last step.
    """

    def over(v: Tensor, s: Tensor) -> Tensor:
        return M.residuals(c + s * v)[1].amax(-1, keepdim=True)

    with torch.no_grad():
        outside = over(v, torch.ones_like(v[..., :1])) > 0
    s, slope = torch.ones_like(v[..., :1]), torch.ones_like(v[..., :1])
    for _ in range(steps):
        with torch.enable_grad():
            t = s.detach().requires_grad_()
            value = over(v.detach(), t)
            (slope,) = torch.autograd.grad(value.sum(), t)
        s = torch.where(outside, s - value.detach().clamp(min=0) / torch.where(outside, slope, 1.0), 1.0)
    value = over(v, s.detach())
    linked = s - (value - value.detach()) / torch.where(outside, slope, 1.0)
    return torch.where(outside, linked, 1.0)
