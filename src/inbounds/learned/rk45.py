"""An adaptive Runge-Kutta method in which every row of a batch has its own steps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..kernels.runge_kutta import METHODS, combined

TABLEAU = METHODS["dopri5"]  # its last stage is the solution


def rk45(field: Callable[[Tensor, Tensor], Tensor], z: Tensor, T: Tensor, rtol: float, atol: float, max_steps: int) -> Tensor:
    """z(0) from z(T) = z, where dz/dt = field(z (rows, d), t (rows,)): Dormand-Prince with SciPy's step control, row by row.

    T: (rows,). Rows that have arrived leave the batch; those with a non-finite entry, too, as they came.
    """
    out, rows = z.clone(), (torch.isfinite(z).all(-1) & (T > 0)).nonzero()[:, 0]
    z, t = z[rows], T[rows]
    f = field(z, t)
    h = _first_step(field, z, f, t, rtol, atol)
    refused = torch.zeros_like(rows, dtype=torch.bool)
    for _ in range(max_steps):
        if not len(rows):
            return out
        h = torch.minimum(h, t)
        k, y = [f], z
        for c, a in zip(TABLEAU.times[1:], TABLEAU.stages[1:], strict=True):
            y = z - h[:, None] * combined(a, k)
            k.append(field(y, t - c * h))
        error = _rms(h[:, None] * combined(TABLEAU.error, k) / (atol + rtol * torch.maximum(z.abs(), y.abs())))
        ok = error < 1
        factor = (0.9 * error**-0.2).nan_to_num(nan=0.2).clamp(0.2, 10)  # a NaN error refuses the step, too
        t, z, f = torch.where(ok, t - h, t), torch.where(ok[:, None], y, z), torch.where(ok[:, None], k[-1], f)
        h = h * torch.where(refused, factor.clamp(max=1), factor)
        refused = ~ok
        if bool((refused & ~(h >= 10 * torch.finfo(t.dtype).eps * t)).any()):  # h may be NaN
            break
        left = t > 0
        if not bool(left.all()):
            out[rows[~left]] = z[~left]
            rows, t, z, f, h, refused = (s[left] for s in (rows, t, z, f, h, refused))
    if not len(rows):
        return out
    raise RuntimeError(
        f"Flow: {len(rows)} of {len(out)} rows did not reach t = 0 in {max_steps} RK45 steps, or their step shrank to nothing; "
        f"the slowest is at t = {float(t.max()):.3g} of T = {float(T.max()):.3g}. The field is too steep there: "
        f"train it longer, loosen rtol and atol, raise max_steps, or use the Euler steps: flow.train().project(x)."
    )


def _first_step(field, z: Tensor, f: Tensor, T: Tensor, rtol: float, atol: float) -> Tensor:
    """Hairer, Norsett, Wanner, Solving ODEs I, II.4, as SciPy has it: (rows,)."""
    scale = atol + rtol * z.abs()
    d0, d1 = _rms(z / scale), _rms(f / scale)
    small = (d0 < 1e-5) | (d1 < 1e-5)
    h0 = torch.minimum(torch.where(small, 1e-6, 0.01 * d0 / torch.where(small, 1.0, d1)), T)
    d2 = _rms((field(z - h0[:, None] * f, T - h0) - f) / scale) / h0
    flat = (d1 <= 1e-15) & (d2 <= 1e-15)
    h1 = torch.where(flat, (1e-3 * h0).clamp(min=1e-6), (0.01 / torch.where(flat, 1.0, torch.maximum(d1, d2))) ** 0.2)
    return torch.minimum(torch.minimum(100 * h0, h1), T)


def _rms(e: Tensor) -> Tensor:
    return e.square().mean(-1).sqrt()
