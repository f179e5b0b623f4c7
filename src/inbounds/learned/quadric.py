"""The projection on one ellipsoid or elliptic cylinder, solid or not: a scalar equation for each point, and no search."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.derivative import eager, symmetric_method
from .polynomials import Polynomials

STEPS = 30  # at most
EPS = torch.finfo(torch.float64).eps
FLAT = 1e-9  # of the largest eigenvalue: no curvature
TINY = 1e-30  # keeps quotients finite at the centre; its square is no denormal number


class Quadric:
    """sum_j a_j z_j^2 = 1, or <= 1 if solid, with z = V^T (w - middle), V orthonormal, a >= 0."""

    def __init__(self, a: Tensor, V: Tensor, middle: Tensor, solid: bool):
        self.a, self.V, self.middle, self.solid = a, V, middle, solid
        self.project = symmetric_method(self._solve, self._derivative)

    @classmethod
    def of(cls, p: Polynomials, f: Polynomials, codim: int) -> Quadric | None:
        """Of p = 0 if that is one quadratic equation, or of |f|^2 <= 1 if f is linear; None if it is another set."""
        zero = torch.zeros(1, p.n, dtype=torch.float64)
        if len(p) == codim == 1 and not len(f) and p.degree == 2:
            H, b, c = p.hessian(zero, zero.new_ones(1, 1))[0], p.jacobian(zero)[0, 0], p.values(zero)[0, 0]
        elif not codim and len(f) and f.degree == 1:
            J, v = f.jacobian(zero)[0], f.values(zero)[0]
            H, b, c = 2 * J.mT @ J, 2 * v @ J, v @ v - 1
        else:
            return None
        if float(H.trace()) < 0:
            H, b, c = -H, -b, -c
        e, V = torch.linalg.eigh(H)  # ascending: the last is the largest
        flat = e.abs() <= FLAT * e.abs().max()
        b = b @ V
        if bool((e[~flat] < 0).any()) or bool((b[flat].abs() > FLAT * b.abs().max()).any()):
            return None  # hyperboloids and paraboloids
        middle = torch.where(flat, 0.0, -b / torch.where(flat, 1.0, e))
        level = -(c + 0.5 * b @ middle)
        return cls(torch.where(flat, 0.0, 0.5 * e / level), V, V @ middle, not codim) if float(level) > 0 else None

    @torch.no_grad()
    def _solve(self, w: Tensor) -> Tensor:
        """z_j = x_j / (1 + m a_j) with the m > -1 / max a for which z lies on the quadric: the nearest point.

        1 / |sqrt(a) z| is concave and increasing in m, so that Newton's method from the left never overshoots; it starts where
        one term alone is 1. Unknown is n = m max a + 1 > 0, which does not cancel.
        """
        x = (w - self.middle) @ self.V
        r = self.a / self.a[-1]
        top = torch.where(x[:, -1:].abs() < TINY, TINY, x[:, -1:])  # at the centre any direction is nearest: this one
        x = torch.cat([x[:, :-1], top], 1)
        g = self.a.sqrt() * x
        n = torch.where(r > 0, (g.abs() - (1 - r)) / r.clamp(min=TINY), 0.0).amax(1, keepdim=True)
        for _ in range(STEPS):
            d = (1 - r) + n * r
            s = g / d
            size = torch.linalg.vector_norm(s, dim=1, keepdim=True)
            if eager() and bool((size <= 1 + 4 * EPS).all()):
                break
            n = n + (size - 1) * size.square() / (s.square() * r / d).sum(1, keepdim=True)
        y = self.middle + (x / ((1 - r) + n * r)) @ self.V.mT
        return torch.where((g.square().sum(1, keepdim=True) <= 1), w, y) if self.solid else y

    def _derivative(self, w: Tensor, y: Tensor, g: Tensor) -> Tensor:
        """H^{-1} g without its part along H^{-1} a z, H = 1 + m a: the implicit derivative."""
        x, z, v = (w - self.middle) @ self.V, (y - self.middle) @ self.V, g @ self.V
        n = self.a * z
        m = ((x - z) * n).sum(1, keepdim=True) / n.square().sum(1, keepdim=True)
        h = 1 / (1 + m * self.a).clamp(min=TINY)
        along = (n * h * v).sum(1, keepdim=True) / (n * h * n).sum(1, keepdim=True)
        dy = (h * (v - along * n)) @ self.V.mT
        return torch.where((self.a * x * x).sum(1, keepdim=True) <= 1, g, dy) if self.solid else dy
