"""SE(3): group exponential and logarithm between coordinates (w, v) (*batch, 6) and poses (*batch, 4, 4).

exp(w, v) = (exp(w), V v) with V = I + c2 hat(w) + c3 hat(w)^2, Stumpff c_k(|w|^2).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .components import Components, axpy, components, cross, dot, matrix, skew_part, times_hat, vector
from .derivative import with_derivative
from .so3 import exp_vjp, exponential, inverse_jacobian, jacobian_times, log_vjp, rotation_vector
from .stumpff import stumpff


def pose(r: Components, t: Components, corner: float) -> Tensor:
    """The matrix [[R, t], [0, corner]]."""
    zero = torch.zeros_like(t[0])
    return matrix([*r[0:3], t[0], *r[3:6], t[1], *r[6:9], t[2], zero, zero, zero, zero + corner], 4, 4)


def parts(m: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Rotation (nine components) and translation (three) of a 4x4 matrix."""
    c = components(m)
    return [*c[0:3], *c[4:7], *c[8:11]], [c[3], c[7], c[11]]


def twist_gradient(w: Components, v: Components, g: Components, s: Tensor, quadratic: Tensor, slope: Tensor) -> list[Tensor]:
    """d/dw of q(s) g.(w x (w x v)) with q' = slope: w x (w x v) = w (w.v) - s v, s = |w|^2."""
    wv, gv, gw = dot(w, v), dot(g, v), dot(g, w)
    along = 2 * (slope * (gw * wv - s * gv) - quadratic * gv)
    return axpy([along * e for e in w], (quadratic * wv, g), (quadratic * gw, v))


def _exp(x: Tensor) -> Tensor:
    c = components(x, 1)
    w, v = c[:3], c[3:]
    _, _, c2, c3 = stumpff(dot(w, w), 3)
    return pose(exponential(w), jacobian_times(w, v, c2, c3), 1.0)


def _exp_vjp(x: Tensor, m: Tensor, g: Tensor) -> Tensor:
    c = components(x, 1)
    w, v = c[:3], c[3:]
    (r, _), (gr, gt) = parts(m), parts(g)
    s = dot(w, w)
    _, _, c2, c3, c4, c5 = stumpff(s, 5)
    vg = cross(v, gt)
    from_rotation = exp_vjp(w, r, gr, c2, c3)
    linear = axpy([c2 * e for e in vg], (2 * (c4 - 0.5 * c3) * dot(w, vg), w))  # of c2 g.(w x v), c2' = c4 - c3/2
    quadratic = twist_gradient(w, v, gt, s, c3, 0.5 * (3 * c5 - c4))
    gw = [a + b + c for a, b, c in zip(from_rotation, linear, quadratic, strict=True)]
    return vector([*gw, *jacobian_times(w, gt, -c2, c3)])


def _exp_jvp(x: Tensor, m: Tensor, dx: Tensor) -> Tensor:
    c, d = components(x, 1), components(dx, 1)
    w, v, dw, dv = c[:3], c[3:], d[:3], d[3:]
    r, _ = parts(m)
    _, _, c2, c3, c4, c5 = stumpff(dot(w, w), 5)
    rate, wv = 2 * dot(w, dw), cross(w, v)
    dt = axpy(
        jacobian_times(w, dv, c2, c3),
        (c2, cross(dw, v)),
        ((c4 - 0.5 * c3) * rate, wv),
        (c3, cross(dw, wv)),
        (c3, cross(w, cross(dw, v))),
        (0.5 * (3 * c5 - c4) * rate, cross(w, wv)),
    )
    dr = times_hat(r, jacobian_times(w, dw, -c2, c3))
    return pose(dr, dt, 0.0)


def _log(m: Tensor) -> Tensor:
    r, t = parts(m)
    w = rotation_vector(r)
    return vector([*w, *jacobian_times(w, t, -0.5, inverse_jacobian(dot(w, w)))])


def _slope(s: Tensor) -> tuple[Tensor, Tensor]:
    """D(s) of `inverse_jacobian` and its derivative, by the quotient rule."""
    _, _, c2, c3, c4, c5, c6 = stumpff(s, 6)
    d = (c3 - 2 * c4) / (2 * c2)
    top = 0.5 * (3 * c5 - c4) - (4 * c6 - c5)
    return d, (top - 2 * d * (c4 - 0.5 * c3)) / (2 * c2)


def _log_vjp(m: Tensor, out: Tensor, g: Tensor) -> Tensor:
    r, t = parts(m)
    w, gc = components(out, 1)[:3], components(g, 1)
    gw, gv = gc[:3], gc[3:]
    s = dot(w, w)
    d, slope = _slope(s)
    total = axpy(twist_gradient(w, t, gv, s, d, slope), (1.0, gw), (-0.5, cross(t, gv)))
    gr, gt = log_vjp(w, r, total, d), jacobian_times(w, gv, 0.5, d)
    return pose(gr, gt, 0.0)


def _log_jvp(m: Tensor, out: Tensor, dm: Tensor) -> Tensor:
    (r, t), (dr, dt) = parts(m), parts(dm)
    w = components(out, 1)[:3]
    d, slope = _slope(dot(w, w))
    dw = jacobian_times(w, [0.5 * e for e in skew_part(r, dr)], 0.5, d)
    wt = cross(w, t)
    dv = axpy(
        jacobian_times(w, dt, -0.5, d),
        (-0.5, cross(dw, t)),
        (d, cross(dw, wt)),
        (d, cross(w, cross(dw, t))),
        (slope * (2 * dot(w, dw)), cross(w, wt)),
    )
    return vector([*dw, *dv])


se3_exp = with_derivative(_exp, _exp_vjp, _exp_jvp)
se3_log = with_derivative(_log, _log_vjp, _log_jvp)
