"""Laws of one number t in an interval, given by a log density f(t) up to a constant: totals, draws, implicit derivatives.

f takes (.., *batch, k) values of t and returns their log densities; its parameters are in it, with a last dim of size 1. All is
float64. Integrals are Gauss-Legendre sums over an interval `low, high` that holds all of the mass to rounding and moves with the
parameters, but is not differentiated: the mass beyond it, and hence its derivative, is below rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

LogDensity = Callable[[Tensor], Tensor]
CELLS = 32  # of the table that draws start from
NODES = 8  # of a cell: a cell is less than a standard deviation wide, where eight nodes are exact to 1e-12


@cache
def legendre(count: int) -> tuple[Tensor, Tensor]:
    """Nodes and log weights of Gauss-Legendre quadrature on [0, 1], from the eigenvectors of the Jacobi matrix."""
    with torch.inference_mode(False), torch.no_grad():
        k = torch.arange(1, count, dtype=torch.float64)
        b = k / (4 * k * k - 1).sqrt()
        nodes, vectors = torch.linalg.eigh(torch.diag(b, 1) + torch.diag(b, -1))
        return 0.5 * (nodes + 1), vectors[0].square().log()


def log_integral(f: LogDensity, low: Tensor, high: Tensor, count: int = 128) -> Tensor:
    """log of the integral of exp f over [low, high]: (*batch,)."""
    t, w = _nodes(low, high, count)
    return torch.logsumexp(f(t) + w, -1)


def _nodes(low: Tensor, high: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Nodes and log weights on [low, high], (*batch, count) each."""
    x, w = (e.to(low.device) for e in legendre(count))
    width = (high - low)[..., None]
    return low[..., None] + width * x, w + width.clamp(min=1e-300).log()


@dataclass(frozen=True)
class Law:
    """The law with log density f on [low, high], whose largest value is near `mode`."""

    f: LogDensity
    low: Tensor
    mode: Tensor
    high: Tensor

    def log_total(self) -> Tensor:
        """log of the integral of exp f."""
        return log_integral(self.f, self.low, self.high)

    def mean(self, value: Callable[[Tensor], Tensor]) -> Tensor:
        """The expectation of value(t)."""
        t, w = _nodes(self.low, self.high, 128)
        return (torch.softmax(self.f(t) + w, -1) * value(t)).sum(-1)

    def rsample(self, shape: torch.Size) -> Tensor:
        """Draws (*shape, *batch) with implicit derivatives: dt = -dF(t)/p(t), where F is the distribution function.

        A second derivative is refused.
        """
        with torch.no_grad():
            t = self._draw(shape)
        if not torch.is_grad_enabled():
            return t
        total = self.log_total()
        upper = t > self.mode  # integrate over the tail in which t is: nothing cancels
        part = log_integral(self.f, torch.where(upper, t, self.low), torch.where(upper, self.high, t), 64)
        F = torch.where(upper, -1.0, 1.0) * (part - total).exp()
        p = (self.f(t[..., None])[..., 0] - total).exp()
        return _Implicit.apply(t, F, p.detach())  # pyright: ignore[reportReturnType]

    def _draw(self, shape: torch.Size) -> Tensor:
        """The inverse of the distribution function at uniform numbers: a cell of a table, then Newton's method in the cell."""
        share = torch.linspace(0, 1, CELLS + 1, dtype=torch.float64, device=self.low.device)
        edges = self.low[..., None] + (self.high - self.low)[..., None] * share  # (*batch, CELLS + 1)
        x, w = _nodes(edges[..., :-1], edges[..., 1:], NODES)
        values = self.f(x.flatten(-2)).unflatten(-1, (CELLS, NODES)) + w
        scale = torch.logsumexp(values, (-2, -1))
        mass = (torch.logsumexp(values, -1) - scale[..., None]).exp()
        below = torch.cat([torch.zeros_like(mass[..., :1]), mass.cumsum(-1)], -1)
        u = torch.rand(shape + self.low.shape, dtype=torch.float64, device=self.low.device)
        k = _cell(below, u)
        a, b, start = (_pick(table, i) for table, i in ((edges, k), (edges, k + 1), (below, k)))
        ends = self.f(torch.stack([a, b], -1).clamp(min=1e-300))
        t = torch.where(ends[..., 1] > ends[..., 0], b, a)  # the side from which Newton's method does not overshoot
        for _ in range(6):
            p = (self.f(t.clamp(min=1e-300)[..., None])[..., 0] - scale).exp()
            gap = (log_integral(self.f, a, t, NODES) - scale).exp() + start - u
            t = torch.minimum(torch.maximum(t - gap / p.clamp(min=1e-300), a), b)
        return t.clamp(min=1e-12 * (self.high - self.low))


def _cell(below: Tensor, u: Tensor) -> Tensor:
    """The cell that holds the share u of the mass: below (*batch, cells + 1), u (*shape, *batch)."""
    inner = below[..., 1:-1].expand(*u.shape, -1).contiguous()
    return torch.searchsorted(inner, u[..., None].contiguous(), right=True)[..., 0]


def _pick(table: Tensor, k: Tensor) -> Tensor:
    return table.expand(*k.shape, -1).gather(-1, k[..., None])[..., 0]


class _Implicit(torch.autograd.Function):
    """t, with the derivative -dF/p."""

    @staticmethod
    def forward(ctx, t: Tensor, F: Tensor, p: Tensor) -> Tensor:
        ctx.save_for_backward(p)
        return t.clone()

    @staticmethod
    def backward(ctx, g: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        if torch.is_grad_enabled():
            raise RuntimeError("rsample has no second derivative in this parameter. Leave create_graph out, or draw by sample().")
        (p,) = ctx.saved_tensors
        return None, -g / p.clamp(min=1e-300), None


def log_sphere_area(n: int) -> float:
    """log of the area of the unit sphere in R^n: 2 pi^(n/2) / Gamma(n/2)."""
    return math.log(2) + 0.5 * n * math.log(math.pi) - math.lgamma(0.5 * n)
