"""A convex set cut by linear equations, by Newton's method on the dual problem."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.derivative import eager
from ..kernels.vectors import pulled_in
from ..solvers import NOT_CONVERGED, OK
from ..solvers.dual_newton import Convex, dual_newton
from .solved import FirstOnly

FAR = 1e4  # an x with larger entries is moved nearer along its ray
NEAR = 1e2  # to this distance, in sizes of the answer
GOOD = 1e-9  # gap of a row that is called converged, relative to the answer
AFAR = 1e-4  # of the way to x that adds to what the gap is relative to: rounding of a far x is that of x and not of the answer
SOFT, FLOOR = 1e-12, 1e-3  # on the diagonal of the last step: above rounding; and where that diagonal is 0


def nearest_on_planes(
    K: Convex, x: Tensor, A: Tensor, b: Tensor, who: str, learnable: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """P of the convex K and {A y = b}: point (R, n) in float64 with its derivative, multipliers, gap (R,), status, steps.

    K knows flat points. x (R, n), A (p, n), b (p,) in float64.
    The derivative is that of one more Newton step: exact to first order.
    """
    if not eager():
        raise RuntimeError(
            f"{who} cannot be projected on inside torch.compile(fullgraph=True), vmap, export or ONNX: its solver looks at "
            f"values. Call it outside of them; it takes any batch dims itself."
        )
    R, every = len(x), torch.arange(len(x), device=x.device)
    fixed = torch.where(torch.isfinite(x.detach()).all(1, keepdim=True), x.detach(), 0.0)
    rows_A, rows_b = A.detach().expand(R, *A.shape), b.detach().expand(R, len(b))
    true, share = fixed, torch.ones_like(fixed[:, :1])
    with torch.no_grad():
        away = fixed.abs().amax(1, keepdim=True)
        far = away > FAR
        fixed = torch.where(far, pulled_in(fixed, NEAR), fixed)
        m, y, gap, count = dual_newton(K, fixed, rows_A, rows_b)
        for _ in range(3 if bool(far.any()) else 0):  # P(y + s (x - y)) = P(x) for y = P(x): where rounding is that of y
            step = true - y
            s = NEAR * (1 + y.norm(dim=1, keepdim=True)) / step.norm(dim=1, keepdim=True).clamp(min=1e-300)
            share = torch.where(far, s, 1.0)
            fixed = torch.where(far, y + s * step, true)
            m, y, gap, count = dual_newton(K, fixed, rows_A, rows_b)
    scale = 1 + y.norm(dim=1) + AFAR * (fixed - y).norm(dim=1)
    status = torch.where(gap <= GOOD * scale, OK, NOT_CONVERGED)
    if not (torch.is_grad_enabled() and (x.requires_grad or A.requires_grad or b.requires_grad or learnable)):
        return y, m, gap, status, count
    z = fixed - (m[:, None] @ rows_A)[:, 0]
    with torch.no_grad():
        V = K.slope(K.look(z, every)[1], rows_A, every)
    soft = SOFT * torch.diag_embed(V.diagonal(dim1=1, dim2=2).abs() + FLOOR)
    u = fixed + share * (x - x.detach())
    off = K.project(u - m @ A, every) @ A.mT - b
    step = torch.linalg.solve_ex(V + soft, (off - off.detach())[:, :, None])[0][:, :, 0]
    path = K.project(u - (m + step) @ A, every)
    path = torch.where(torch.isfinite(path), path, y)
    y = FirstOnly.apply(y + (path - path.detach()))
    return y, m, gap, status, count  # pyright: ignore[reportReturnType]
