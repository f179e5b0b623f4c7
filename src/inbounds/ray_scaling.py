"""`RayScaling`: a smooth map onto the interior of a convex set, which has no dead gradients."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .core import ConstraintSet, check_point, working_dtype
from .sets.affine import times
from .sets.intersection import polyhedral
from .sets.polytope import Polytope
from .steps import Step

ON_PLANES = 1e-6  # how far off an equation a center may be: that of a float32 one, of size up to 10
SPAN = 1e9  # the gauge of v is looked for from |v| / SPAN to |v| * SPAN: sets of a size between these
HALVINGS = 80  # of the logarithm of SPAN^2, 41 in units of 1: to 3e-23, below rounding
NUDGE = 1e-5  # part of k over which its slope is taken: central differences are then right to 1e-10, rounding to 1e-11
TINY = 1e-300  # keeps a quotient finite


class RayScaling(Step):
    """c + v / (1 + k(v)) with v = u, or x + u - c, and the gauge k(v) = min {k : c + v / k in M} of a convex M about a point c.

    Every point of the interior is reached, the boundary in the limit, and the derivative has full rank everywhere: unlike that of
    a projection, it is not 0 where the raw output lies outside. It is not a projection: points of M move too. Equalities (planes)
    are taken out of v first.
    """

    center: Tensor

    def __init__(self, M: ConstraintSet, center=None):
        super().__init__(M, ConstraintSet, "set", "Projection")
        if M.reach != math.inf:
            raise TypeError(f"RayScaling needs a convex set, got {M!r}. Use Projection({M!r}).")
        self.size = math.prod(M.shape)
        if center is None:
            center = getattr(M, "center", None)
            low, high = getattr(M, "low", None), getattr(M, "high", None)
            if center is None and low is not None and high is not None and low.shape == high.shape and low.numel():
                center = 0.5 * (low + high)
            if center is None:
                raise ValueError(f"RayScaling asked for a center inside {M!r}, got none. Write RayScaling(M, center=point).")
        c = torch.as_tensor(center, dtype=torch.float64) if not isinstance(center, Tensor) else center.detach()
        check_point(c, M.shape, lambda: f"RayScaling's center in {M!r}")
        eq, ineq = M.residuals(c.double())
        if not bool((ineq < 0).all()) or (eq.numel() and float(eq.abs().max()) > ON_PLANES):
            raise ValueError(f"RayScaling asked for a center strictly inside {M!r}, got one on its boundary or outside.")
        self.register_buffer("center", c, persistent=False)

    def forward(self, x: Tensor | None, u: Tensor) -> Tensor:
        u = self.shaped(u, self.M.shape)
        u = u.to(working_dtype(u))
        c = self.center.to(u.dtype)
        v = (u if x is None else x + u - c).double()
        v = self._along(v)
        y = (c.double() + v / (1 + self._gauge(v, c.double()))).to(u.dtype)
        return self.M.project(y)

    def _along(self, v: Tensor) -> Tensor:
        """v without its part across the planes of M."""
        faces = polyhedral(self.M)
        if faces is None or "E" not in faces:
            return v
        E = faces["E"].to(v)
        return v - times(torch.linalg.pinv(E), times(E, v))

    def _gauge(self, v: Tensor, c: Tensor) -> Tensor:
        """(*batch, 1, .., 1), >= 0."""
        faces = polyhedral(self.M)
        wide = [1] * len(self.M.shape)
        if faces is not None:
            P = Polytope(**faces)  # pyright: ignore[reportArgumentType]
            A, b, _ = P._faces(P._parts(v))
            k = (times(A, v) / (b - times(A, c))).amax(-1).clamp(min=0)
            return k.reshape(*k.shape, *wide)
        if self.M.residuals(c)[0].numel():
            raise TypeError(f"RayScaling cannot stay on the equations of {self.M!r}. Use Projection({self.M!r}).")
        size = self.M._flat(v).norm(dim=-1).detach() + TINY
        low, high = size / SPAN, size * SPAN
        with torch.no_grad():
            for _ in range(HALVINGS):  # bisection in the logarithm
                mid = (low * high).sqrt()
                out = self._over(c, v.detach(), mid) > 0
                low, high = torch.where(out, mid, low), torch.where(out, high, mid)
        k = high.detach()
        # one Newton step, whose derivative is that of k: h(c + v / k) = 0. Its slope is a number, not a function of v
        ends = [self._over(c, v.detach(), k * (1 + s * NUDGE)) for s in (1, -1)]  # autograd cannot be called inside a graph
        slope = ((ends[0] - ends[1]) / (2 * NUDGE * k)).detach()
        k = k - (self._over(c, v, k) - self._over(c, v.detach(), k).detach()) / torch.where(slope.abs() > TINY, slope, -1.0)
        return k.reshape(*k.shape, *wide)

    def _over(self, c: Tensor, v: Tensor, k: Tensor) -> Tensor:
        """The largest inequality at c + v / k."""
        wide = k.clamp(min=TINY).reshape(*k.shape, *[1] * len(self.M.shape))
        return self.M.residuals(c + v / wide)[1].amax(-1)
