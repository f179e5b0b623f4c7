"""The nearest point of a convex set K on which A y = b: semismooth Newton on A P_K(x - A^T m) = b, one m per row.

For correlation matrices (K the positive semidefinite ones, A the diagonal) this is the method of Qi and Sun. The gradient of a
concave dual function is b - A P_K(x - A^T m), so a step is halved until the dual rises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from .linear import apply
from .pivoting import chosen

STEPS = 50  # at most; a row leaves when it has converged
HALVINGS = 20  # of a step, at most: to a millionth of it
ENOUGH = 1e-4  # part of the rise that the slope promises which a step must reach: Armijo's rule with its usual constant
LOWER = 0.9  # or the equations are better met by this factor, which rounding of the dual function does not hide
SOFT = 1e-3  # weight of the regularisation next to |g|, which keeps the convergence quadratic (Qi and Sun 2006)
SOFTEST = 1e-2  # |g| from which on it does not grow: far away a step stays one of Newton's method
LEAST = 1e-14  # its least value: rounding of a matrix of size 1
SETTLED = 1e3  # units of rounding at which a row that no longer improves leaves: those of an eigenvalue problem of that size
TINY = 1e-300  # keeps a quotient finite
Project = Callable[[Tensor, Tensor], Tensor]  # points (r, n) and their row numbers (r,) -> P_K


class Convex(Protocol):
    """A convex set K, as the solver sees it."""

    def project(self, z: Tensor, rows: Tensor, /) -> Tensor:
        """P_K of the points z (r, n) with the row numbers `rows` (r,), differentiable."""
        ...

    def look(self, z: Tensor, rows: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """P_K(z) without derivative, and what `slope` needs, as tensors of r rows."""
        ...

    def slope(self, known: tuple[Tensor, ...], A: Tensor, rows: Tensor) -> Tensor:
        """A DP_K(z) A^T (r, p, p) from what `look` returned."""
        ...


class ByAutograd:
    """A convex set that is known through its projection."""

    def __init__(self, project: Project):
        self._project = project

    def project(self, z: Tensor, rows: Tensor) -> Tensor:
        """P_K(z)."""
        return self._project(z, rows)

    def look(self, z: Tensor, rows: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The point itself is all that autograd needs."""
        return self.project(z, rows), (z,)

    def slope(self, known: tuple[Tensor, ...], A: Tensor, rows: Tensor) -> Tensor:
        """All rows of A are pulled back in one call: DP is symmetric."""
        with torch.enable_grad():
            z = known[0].detach().requires_grad_()
            y = self.project(z, rows)
            (D,) = torch.autograd.grad(y, z, A.movedim(1, 0), is_grads_batched=True)
        return D.movedim(0, 1) @ A.mT


def dual_newton(K: Convex, x: Tensor, A: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """m (R, p), y = P_K(x - A^T m), the largest |A y - b| per row with unit rows of A, and the steps. A (R, p, n), b (R, p)."""
    size = A.norm(dim=2).clamp(min=TINY)
    A, b = A / size[:, :, None], b / size
    count = torch.zeros(len(x), dtype=torch.long, device=x.device)
    unit = torch.finfo(x.dtype).eps * (x.norm(dim=1) + b.norm(dim=1) + TINY)
    eye = torch.eye(b.shape[1], dtype=x.dtype, device=x.device)
    rows, m = torch.arange(len(x), device=x.device), apply(A, x) - b  # on the planes first: a step less than from m = 0
    y, known = K.look(x - apply(A.mT, m), rows)
    g = apply(A, y) - b
    gap, dual = g.abs().amax(1), value(x, y, x - apply(A.mT, m), m, b)
    best_m, best_y, out_gap = m.clone(), y.clone(), gap.clone()
    for _ in range(STEPS):
        left = (gap > unit[rows]).nonzero()[:, 0]
        if not len(left):
            break
        if len(left) < len(rows):
            rows, x, A, b, m, y, g, gap, dual = chosen(left, rows, x, A, b, m, y, g, gap, dual)
            known = chosen(left, *known)
        old = g.norm(dim=1)
        soft = old.clamp(max=SOFTEST) * SOFT + LEAST
        V = K.slope(known, A, rows) + soft[:, None, None] * eye
        step = torch.linalg.solve_ex(V, g[:, :, None])[0][:, :, 0]
        rise, t = (step * g).sum(1), torch.ones_like(old)
        at, start, before = torch.arange(len(rows), device=x.device), m, dual
        m, y, g, dual, known = m.clone(), y.clone(), g.clone(), dual.clone(), tuple(k.clone() for k in known)
        for _ in range(HALVINGS):
            xt, At, bt = (x, A, b) if len(at) == len(x) else chosen(at, x, A, b)
            new = start[at] + t[at, None] * step[at]
            z = xt - apply(At.mT, new)
            y1, known1 = K.look(z, rows[at])
            g1, dual1 = apply(At, y1) - bt, value(xt, y1, z, new, bt)
            for a, c in zip((m, y, g, dual, *known), (new, y1, g1, dual1, *known1), strict=True):
                a[at] = c
            good = (g1.norm(dim=1) <= LOWER * old[at]) | (dual1 >= before[at] + ENOUGH * t[at] * rise[at])
            at = at[~good]
            if not len(at):
                break
            t[at] = 0.5 * t[at]
        count[rows] += 1
        off = g.abs().amax(1)
        nearer = off < out_gap[rows]
        to = rows[nearer]
        best_m[to], best_y[to], out_gap[to] = m[nearer], y[nearer], off[nearer]
        still = ~nearer & (out_gap[rows] <= SETTLED * unit[rows])
        unit[rows[still]] = torch.inf  # at rounding: more steps do not help
        gap = out_gap[rows]
    return best_m / size, best_y, out_gap, count


def value(x: Tensor, y: Tensor, z: Tensor, m: Tensor, b: Tensor) -> Tensor:
    """The dual function at m: |x|^2/2 - |z|^2/2 + |z - y|^2/2 - m b with z = x - A^T m, y = P_K(z)."""
    return 0.5 * ((x - z) * (x + z)).sum(1) + 0.5 * (z - y).square().sum(1) - (m * b).sum(1)
