"""Solvers of the extra inbounds[problems], as functions of tensors: one problem at a time, to full precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..extras import needed_for


class Unsolved(RuntimeError):
    """A solver that did not reach the optimum."""


def quadratic_program(P: Tensor, q: Tensor, A: Tensor, b: Tensor, E: Tensor, f: Tensor) -> Tensor:
    """argmin {y^T P y / 2 + q^T y : A y <= b, E y = f} by Clarabel's interior point method, P positive semidefinite."""
    return _clarabel(P, q, torch.cat([E, A]), torch.cat([f, b]), len(f), len(b), [])


def conic_program(P: Tensor, q: Tensor, E: Tensor, f: Tensor, cones: list[tuple[Tensor, Tensor]]) -> Tensor:
    """argmin {y^T P y / 2 + q^T y : E y = f, b_i - A_i y in a second-order cone, its first entry the longest} by Clarabel."""
    rows, ends = (torch.cat(parts) for parts in zip((E, f), *cones, strict=True))
    return _clarabel(P, q, rows, ends, len(f), 0, [len(b) for _, b in cones])


def _clarabel(P: Tensor, q: Tensor, rows: Tensor, ends: Tensor, equal: int, less: int, cones: list[int]) -> Tensor:
    with needed_for("An optimal point"):
        import clarabel
        from scipy import sparse

    solver: Any = clarabel  # it comes without types
    settings = solver.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-8 if cones else 1e-10  # curved: as far as it gets
    kinds = [solver.ZeroConeT(equal), solver.NonnegativeConeT(less)] if less else [solver.ZeroConeT(equal)]
    kinds += [solver.SecondOrderConeT(size) for size in cones]
    upper = sparse.triu(sparse.csc_matrix(P.numpy()), format="csc")
    found = solver.DefaultSolver(upper, q.numpy(), sparse.csc_matrix(rows.numpy()), ends.numpy(), kinds, settings).solve()
    if str(found.status) != "Solved":
        raise Unsolved(f"Clarabel says {found.status} of a program of {len(q)} variables.")
    return torch.tensor(found.x, dtype=torch.float64)


def newton_descent(
    cost: Callable[[Tensor], Tensor], start: Tensor, A: Tensor, b: Tensor, E: Tensor, f: Tensor, steps: int = 100
) -> Tensor:
    """A stationary point of a smooth cost on {A y <= b, E y = f}: quadratic programs with the convex part of its Hessian.

    The cost never rises, every iterate is feasible. It ends where the program promises less than 1e-10 of the cost. Like every
    local method it may end in a local minimum.
    """
    y = start
    for _ in range(steps):
        slope, value = torch.func.grad_and_value(cost)(y)
        l, V = torch.linalg.eigh(torch.func.hessian(cost)(y))  # pyright: ignore[reportArgumentType]
        H = (V * l.clamp(min=1e-2)) @ V.mT
        move = quadratic_program(H, slope, A, b - A @ y, E, f - E @ y)
        promised = -float(slope @ move)
        if promised <= 1e-10 * (1 + abs(float(value))):
            return y
        t = 1.0
        while float(cost(y + t * move)) > float(value) - 1e-4 * t * promised and t > 1e-12:
            t *= 0.5
        y = y + t * move
    raise Unsolved(f"A descent of {steps} steps did not end; the last step promised {promised:.1e}.")
