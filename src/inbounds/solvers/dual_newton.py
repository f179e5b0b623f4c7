"""The nearest point of a convex set K on which A y = b: semismooth Newton on A P_K(x - A^T m) = b, one m per row.

For correlation matrices (K the positive semidefinite ones, A the diagonal) this is the method of Qi and Sun. The gradient of a
concave dual function is b - A P_K(x - A^T m), so a step is halved until the dual rises.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

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


def jacobian(project: Project, z: Tensor, A: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """P_K(z) (R, n) and A DP_K(z) A^T (R, p, p), by autograd: DP is symmetric, so rows of A are pulled back."""
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        y = project(z, rows)
        pulled = [torch.autograd.grad(y, z, A[:, i], retain_graph=True)[0] for i in range(A.shape[1])]
    D = torch.stack(pulled, 1)
    return y.detach(), D @ A.mT


def dual_newton(project: Project, x: Tensor, A: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """m (R, p), y = P_K(x - A^T m), the largest |A y - b| per row with unit rows of A, and the steps. A (R, p, n), b (R, p)."""
    size = A.norm(dim=2).clamp(min=TINY)
    A, b = A / size[:, :, None], b / size
    m = torch.zeros_like(b)
    y = project(x, torch.arange(len(x), device=x.device))
    best_m, best_y = m.clone(), y.clone()
    gap = ((A @ y[:, :, None])[:, :, 0] - b).abs().amax(1)
    count = torch.zeros(len(x), dtype=torch.long, device=x.device)
    unit = torch.finfo(x.dtype).eps * (x.norm(dim=1) + b.norm(dim=1) + TINY)
    eye = torch.eye(b.shape[1], dtype=x.dtype, device=x.device)
    for _ in range(STEPS):
        rows = (gap > unit).nonzero()[:, 0]
        if not len(rows):
            break
        Ar, br, xr, mr = A[rows], b[rows], x[rows], m[rows]
        z = xr - (mr[:, None] @ Ar)[:, 0]
        y, V = jacobian(project, z, Ar, rows)
        g = (Ar @ y[:, :, None])[:, :, 0] - br
        old = g.norm(dim=1)
        soft = old.clamp(max=SOFTEST) * SOFT + LEAST
        step = torch.linalg.solve_ex(V + soft[:, None, None] * eye, g[:, :, None])[0][:, :, 0]
        dual = value(xr, y, z, mr, br)
        t = torch.ones_like(old)
        for _ in range(HALVINGS):
            new = mr + t[:, None] * step
            z = xr - (new[:, None] @ Ar)[:, 0]
            y = project(z, rows)
            fresh = ((Ar @ y[:, :, None])[:, :, 0] - br).norm(dim=1)
            good = (fresh <= LOWER * old) | (value(xr, y, z, new, br) >= dual + ENOUGH * t * (step * g).sum(1))
            if bool(good.all()):
                break
            t = torch.where(good, t, 0.5 * t)
        count[rows] += 1
        m[rows] = mr + t[:, None] * step
        off = ((Ar @ y[:, :, None])[:, :, 0] - br).abs().amax(1)
        nearer = off < gap[rows]
        at = rows[nearer]
        best_m[at], best_y[at], gap[at] = m[at], y[nearer], off[nearer]
        still = ~nearer & (gap[rows] <= SETTLED * unit[rows])
        unit[rows[still]] = torch.inf  # at rounding: more steps do not help
    return best_m / size, best_y, gap, count


def value(x: Tensor, y: Tensor, z: Tensor, m: Tensor, b: Tensor) -> Tensor:
    """The dual function at m: |x|^2/2 - |z|^2/2 + |z - y|^2/2 - m b with z = x - A^T m, y = P_K(z)."""
    return 0.5 * ((x - z) * (x + z)).sum(1) + 0.5 * (z - y).square().sum(1) - (m * b).sum(1)
