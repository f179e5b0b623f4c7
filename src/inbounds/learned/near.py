"""`Near`: the equations of an algebraic set near its samples, with as many combinations of them as the codimension."""

from __future__ import annotations

import torch
from torch import Tensor

from ..solvers.linear import Gram, apply
from .charts import Charts
from .polynomials import Polynomials
from .vanishing import ROUNDING

CHARTS = 4e-3  # error, in units of the set's size, that training may leave: raised for speed


class Near:
    """p(y) = 0 and |f(y)|^2 <= 1 near samples: near sample i, W_i p = 0 with W_i (codim, r) of full rank, and a chart.

    Functions take the combinations W (rows, codim, r) of every row, and `active` (rows,), 1 where the inequality holds with
    equality and counts as an equation, None where there is none.
    """

    def __init__(self, p: Polynomials, f: Polynomials, tau: Tensor, W: Tensor, samples: Tensor):
        self.p, self.f, self.tau, self.W, self.samples = p, f, tau, W, samples
        self.n, self.codim = p.n, W.shape[1]
        self.charts = Charts(p, W, samples)

    def combinations(self, y: Tensor) -> Tensor:
        """W (rows, codim, r) of full rank at y."""
        return combinations(self.p, self.tau, y, self.codim)

    def equations(self, y: Tensor, W: Tensor, active: Tensor | None) -> tuple[Tensor, Tensor]:
        """Values (rows, k) and Jacobian (rows, k, n) of W p, and of (|f|^2 - 1)/2 where it is active."""
        A = W @ self.p.jacobian(y)
        if active is not None:
            G = self.f.values(y)[:, None] @ self.f.jacobian(y)
            A = torch.cat([A, active[:, None, None] * G], 1)
        return self.values(y, W, active), A

    def values(self, y: Tensor, W: Tensor, active: Tensor | None) -> Tensor:
        """W p(y), and (|f|^2 - 1)/2 where it is active: (rows, k)."""
        e = apply(W, self.p.values(y))
        return e if active is None else torch.cat([e, (0.5 * active * self.excess(y))[:, None]], 1)

    def lagrangian(self, y: Tensor, W: Tensor, multiplier: Tensor, active: Tensor | None) -> Tensor:
        """I + sum l_k Hess e_k: (rows, n, n)."""
        H = torch.eye(self.n, dtype=y.dtype) + self.p.hessian(y, apply(W.mT, multiplier[:, : self.codim]))
        if active is None:
            return H
        f, J = self.f.values(y), self.f.jacobian(y)
        return H + (active * multiplier[:, -1])[:, None, None] * (J.mT @ J + self.f.hessian(y, f))

    def tangent_frame(self, i: Tensor, gram: Gram) -> Tensor:
        """Tangent vectors at sample i without their normal part at y: (rows, n, dim)."""
        T = self.charts.tangents(i)
        return T - gram.A.mT @ gram.solve(gram.A @ T)

    def excess(self, y: Tensor) -> Tensor:
        """|f(y)|^2 - 1: (rows,)."""
        return self.f.values(y).square().sum(1) - 1

    def on(self, y: Tensor, least: float = ROUNDING) -> Tensor:
        """Whether all polynomials vanish, to ten times what they leave at the samples or `least`; W_i p alone has other zeros."""
        if not self.codim:
            return torch.isfinite(y).all(1)
        return (self.p.values(y) / self.tau.clamp(min=least)).square().mean(1) <= 100.0


def combinations(p: Polynomials, tau: Tensor, w: Tensor, codim: int) -> Tensor:
    """W (rows, codim, r) such that W p has orthonormal gradients at w: the steepest combinations, precise equations first."""
    if not codim:
        return w.new_zeros(len(w), 0, len(tau))
    weight = 1 / tau.clamp(min=ROUNDING)
    U, S, _ = torch.linalg.svd(weight[:, None] * p.jacobian(w), full_matrices=False)
    return U[:, :, :codim].mT * weight / S[:, :codim, None]
