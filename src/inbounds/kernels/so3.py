"""SO(3): exponential and logarithm between rotation vectors w (*batch, 3) and rotations (*batch, 3, 3).

exp(w) = I + c1 hat(w) + c2 hat(w)^2 and d exp(w) = R hat(J dw), J = I - c2 hat(w) + c3 hat(w)^2, with Stumpff c_k(|w|^2).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .components import Components, axpy, components, cross, dot, matrix, skew_part, times_hat, vector
from .davenport import davenport, largest_column, rotation_of
from .derivative import with_derivative
from .stumpff import stumpff


def exponential(w: Components) -> list[Tensor]:
    """Nine components of exp(w), through the quaternion (cos t/2, sin(t/2) w/t): orthogonal whatever sin and cos round to."""
    half = (0.5 * dot(w, w).sqrt()).clamp(min=torch.finfo(w[0].dtype).tiny)
    sinc = torch.sin(half) / half * 0.5
    return rotation_of([torch.cos(half), *(sinc * e for e in w)])


def jacobian_times(w: Components, v: Components, a: Tensor | float, b: Tensor) -> list[Tensor]:
    """(I + a hat(w) + b hat(w)^2) v."""
    wv = cross(w, v)
    return axpy(v, (a, wv), (b, cross(w, wv)))


def jacobian_coefficients(s: Tensor) -> list[Tensor]:
    """c2 and c3 at s = |w|^2. c3 only meets hat(w)^2, so its rounding 1/s near 0 is harmless; its derivative's is not."""
    if torch.is_grad_enabled():
        return stumpff(s, 3)[2:]
    s = s.clamp(min=torch.finfo(s.dtype).tiny)
    t = s.sqrt()
    half = 0.5 * t
    return [0.5 * (torch.sin(half) / half).square(), (1 - torch.sin(t) / t) / s]


def exp_vjp(w: Components, r: Components, g: Components, c2: Tensor, c3: Tensor) -> list[Tensor]:
    """J^T vee(R^T G - G^T R)."""
    return jacobian_times(w, skew_part(r, g), c2, c3)


def rotation_vector(r: Components) -> list[Tensor]:
    """w with exp(w) = R and |w| <= pi, through the quaternion: accurate at 0 and at pi."""
    q, best = largest_column(davenport(r, -1.0))  # K(R) + I = 4 q q^T
    w, x, y, z = q
    sine = (x * x + y * y + z * z).sqrt()
    flat = sine <= torch.finfo(sine.dtype).eps * 1e-3 * best
    factor = 2 * torch.atan2(sine, w.abs()) / torch.where(flat, 1.0, sine)
    factor = torch.where(flat, 2 / torch.where(flat, w.abs(), 1.0), factor)
    factor = torch.where(w < 0, -factor, factor)
    return [factor * x, factor * y, factor * z]


def inverse_jacobian(s: Tensor) -> Tensor:
    """D(s) in J^{-1} = I + hat(w)/2 + D hat(w)^2: 1/t^2 - cot(t/2)/(2t) = (c3 - 2 c4) / (2 c2), smooth for t < 2 pi."""
    c2, c3, c4 = stumpff(s, 4)[2:]
    return (c3 - 2 * c4) / (2 * c2)


def log_vjp(w: Components, r: Components, g: Components, d: Tensor) -> list[Tensor]:
    """Gradient of log, tangent to SO(3) at R: R hat(J^{-T} g) / 2, with d of `inverse_jacobian`."""
    pulled = jacobian_times(w, g, -0.5, d)
    return times_hat(r, [0.5 * e for e in pulled])


def _exp(w: Tensor) -> Tensor:
    return matrix(exponential(components(w, 1)), 3, 3)


def _exp_vjp(w: Tensor, r: Tensor, g: Tensor) -> Tensor:
    axis = components(w, 1)
    return vector(exp_vjp(axis, components(r), components(g), *jacobian_coefficients(dot(axis, axis))))


def _exp_jvp(w: Tensor, r: Tensor, t: Tensor) -> Tensor:
    axis = components(w, 1)
    c2, c3 = jacobian_coefficients(dot(axis, axis))
    return matrix(times_hat(components(r), jacobian_times(axis, components(t, 1), -c2, c3)), 3, 3)


def _log(r: Tensor) -> Tensor:
    return vector(rotation_vector(components(r)))


def _log_vjp(r: Tensor, w: Tensor, g: Tensor) -> Tensor:
    axis = components(w, 1)
    return matrix(log_vjp(axis, components(r), components(g, 1), inverse_jacobian(dot(axis, axis))), 3, 3)


def _log_jvp(r: Tensor, w: Tensor, t: Tensor) -> Tensor:
    axis = components(w, 1)
    turned = [0.5 * e for e in skew_part(components(r), components(t))]
    return vector(jacobian_times(axis, turned, 0.5, inverse_jacobian(dot(axis, axis))))


so3_exp = with_derivative(_exp, _exp_vjp, _exp_jvp)
so3_log = with_derivative(_log, _log_vjp, _log_jvp)
