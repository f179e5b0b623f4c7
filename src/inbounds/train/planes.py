"""Steps and their derivatives on planes: points as (K, components, rows), so that every component is a contiguous row.

A stack of small networks spends its time in calls and strided memory, not in arithmetic. Here a component of all points is one
plane, an operation runs along the rows, and each step knows its own derivative, so that nothing is recorded on the way.

    rule.value(h, v) = step(h, v),   rule.slope(h, v, y, g) = (gradient by h, gradient by v),  y = value(h, v)

for h in M. `rule_of(step)` gives the rule of a step, or None. The steps themselves are the judges of these formulas in the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import LANDING, skin
from ..kernels.components import axpy, cross, dot
from ..kernels.rotation import nearest, nearest_vjp
from ..kernels.se3 import twist_gradient
from ..kernels.so3 import exponential, jacobian_times
from ..kernels.stumpff import stumpff
from ..sets import SE, SO, Ball, Euclidean, Sphere
from ..steps import Exponential, GroupExponential, Projection, Step

Value = Callable[[Tensor, Tensor], Tensor]
Slope = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Rule:
    """A step on planes. heavy: so much arithmetic that compiling it pays."""

    value: Value
    slope: Slope
    heavy: bool = False


def rule_of(step: Step) -> Rule | None:
    """The rule of a step that has one."""
    M = step.M
    if isinstance(step, Projection):
        if isinstance(M, Euclidean):
            return Rule(torch.add, lambda h, v, y, g: (g, g))
        if isinstance(M, Sphere) and M.plain:
            return _projection(_unit, _unit_slope)
        if isinstance(M, Ball) and M.centered and M.radius.numel() == 1 and not M.radius.requires_grad:
            radius = float(M.radius)
            return _projection(lambda x: _in_ball(x, radius), lambda x, y, g: _in_ball_slope(x, radius, g))
        if isinstance(M, SO) and M.n == 3:
            return _projection(_rotation, _rotation_slope, heavy=True)
        if isinstance(M, SE) and M.n == 3:
            return _projection(_pose, _pose_slope, heavy=True)
    if isinstance(step, Exponential) and isinstance(M, Sphere) and M.plain:
        return Rule(_arc, _arc_slope, heavy=True)
    if isinstance(step, GroupExponential) and step.side == "left":
        if isinstance(M, SO) and M.n == 3:
            return Rule(_turn, _turn_slope, heavy=True)
        if isinstance(M, SE) and M.n == 3:
            return Rule(_screw, _screw_slope, heavy=True)
    return None


def _projection(
    value: Callable[[Tensor], Tensor], slope: Callable[[Tensor, Tensor, Tensor], Tensor], heavy: bool = False
) -> Rule:
    """P(h + v) from P and its symmetric derivative slope(x, P(x), g)."""

    def both(h: Tensor, v: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        d = slope(h + v, y, g)
        return d, d

    return Rule(lambda h, v: value(h + v), both, heavy)


# --- sphere and ball -----------------------------------------------------------------------------------------
def _length(x: Tensor) -> Tensor:
    """|x|: (K, n, rows) -> (K, 1, rows); in float64 for float32, which has no room for squares."""
    return x.double().square().sum(1, keepdim=True).sqrt().to(x.dtype)


def _unit(x: Tensor) -> Tensor:
    length = _length(x)
    usable = length >= torch.finfo(x.dtype).tiny
    first = torch.zeros_like(x[:1, :, :1])
    first[:, 0] = 1
    return torch.where(usable, x / torch.where(usable, length, 1.0), first)


def _unit_slope(x: Tensor, y: Tensor, g: Tensor) -> Tensor:
    length = _length(x)
    usable = length >= torch.finfo(x.dtype).tiny
    inverse = torch.where(usable, length, 1.0).reciprocal() * usable
    return torch.addcmul(g, y, (y * g).sum(1, keepdim=True), value=-1) * inverse


def _in_ball(x: Tensor, radius: float) -> Tensor:
    tol = skin(x, x.shape[1]) * radius
    length = _length(x)
    outside = length > radius - tol
    return torch.where(outside, x * ((radius - LANDING * tol) / torch.where(outside, length, 1.0)), x)


def _in_ball_slope(x: Tensor, radius: float, g: Tensor) -> Tensor:
    tol = skin(x, x.shape[1]) * radius
    length = _length(x)
    outside = length > radius - tol
    safe = torch.where(outside, length, 1.0)
    u = x / safe
    tangent = torch.addcmul(g, u, (u * g).sum(1, keepdim=True), value=-1) * ((radius - LANDING * tol) / safe)
    return torch.where(outside, tangent, g)


def _tangent(h: Tensor, v: Tensor) -> Tensor:
    return torch.addcmul(v, h, (h * v).sum(1, keepdim=True), value=-1)


def _arc(h: Tensor, v: Tensor) -> Tensor:
    """exp_h of the tangent part of v, refined."""
    v = _tangent(h, v)
    c0, c1 = stumpff(v.square().sum(1, keepdim=True), 1)
    return _unit(c0 * h + c1 * v)


def _arc_slope(h: Tensor, v: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """With w the tangent part of v and s = |w|^2: c0' = -c1/2 and c1' = (c3 - c2)/2. The refinement leaves g's tangent part."""
    along = (h * v).sum(1, keepdim=True)
    w = torch.addcmul(v, h, along, value=-1)
    c0, c1, c2, c3 = stumpff(w.square().sum(1, keepdim=True), 3)
    g = _tangent(y, g)
    slope = (g * w).sum(1, keepdim=True) * (c3 - c2) - (g * h).sum(1, keepdim=True) * c1
    gw = torch.addcmul(c1 * g, w, slope)
    hw = (h * gw).sum(1, keepdim=True)
    gv = torch.addcmul(gw, h, hw, value=-1)
    gh = torch.addcmul(torch.addcmul(c0 * g, gw, along, value=-1), v, hw, value=-1)
    return gh, gv


# --- rotations and poses -------------------------------------------------------------------------------------
def _split(x: Tensor) -> tuple[Tensor, ...]:
    return x.unbind(1)


def _rotation(x: Tensor) -> Tensor:
    return torch.stack(nearest(_split(x)), 1)


def _rotation_slope(x: Tensor, y: Tensor, g: Tensor) -> Tensor:
    return torch.stack(nearest_vjp(_split(x), _split(y), _split(g)), 1)


TURN, MOVE = (0, 1, 2, 4, 5, 6, 8, 9, 10), (3, 7, 11)  # where a 4x4 pose keeps its rotation and its translation


def _parts(x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    c = _split(x)
    return [c[i] for i in TURN], [c[i] for i in MOVE]


def _joined(r: list[Tensor], t: list[Tensor], corner: float) -> Tensor:
    zero = torch.zeros_like(t[0])
    return torch.stack([*r[0:3], t[0], *r[3:6], t[1], *r[6:9], t[2], zero, zero, zero, zero + corner], 1)


def _pose(x: Tensor) -> Tensor:
    r, t = _parts(x)
    return _joined(nearest(r), t, 1.0)


def _pose_slope(x: Tensor, y: Tensor, g: Tensor) -> Tensor:
    (a, _), (r, _), (gr, gt) = _parts(x), _parts(y), _parts(g)
    return _joined(nearest_vjp(a, r, gr), gt, 0.0)


def _times(a, b) -> list[Tensor]:
    """A B of 3x3 matrices."""
    return [dot(a[3 * i : 3 * i + 3], b[j::3]) for i in range(3) for j in range(3)]


def _transposed_vector(a, v) -> list[Tensor]:
    """A^T v."""
    return [dot(a[i::3], v) for i in range(3)]


def _vector(a, v) -> list[Tensor]:
    """A v."""
    return [dot(a[3 * i : 3 * i + 3], v) for i in range(3)]


def _polished(a) -> list[Tensor]:
    """A (3 I - A^T A) / 2."""
    s00, s11, s22 = (dot(a[i::3], a[i::3]) for i in range(3))
    s01, s02, s12 = (dot(a[i::3], a[j::3]) for i, j in ((0, 1), (0, 2), (1, 2)))
    m00, m11, m22 = (1.5 - 0.5 * s for s in (s00, s11, s22))
    m01, m02, m12 = -0.5 * s01, -0.5 * s02, -0.5 * s12
    return _times(a, [m00, m01, m02, m01, m11, m12, m02, m12, m22])


def _spin(y, g) -> list[Tensor]:
    """The axial vector of G Y^T - Y G^T: the sum of the cross products of the columns of Y with those of G."""
    columns = [cross(y[i::3], g[i::3]) for i in range(3)]
    return [a + b + c for a, b, c in zip(*columns, strict=True)]


def _half_hat_times(r, spin, h) -> list[Tensor]:
    """hat(R^T spin) H / 2: the gradient by H of <G, R H> for tangent G = hat(spin) R H / 2."""
    z = [0.5 * e for e in _transposed_vector(r, spin)]
    columns = [cross(z, h[i::3]) for i in range(3)]
    return [columns[j][i] for i in range(3) for j in range(3)]


def _turn(h: Tensor, w: Tensor) -> Tensor:
    """exp(w) h, refined."""
    return torch.stack(_polished(_times(exponential(_split(w)), _split(h))), 1)


def _turn_slope(h: Tensor, w: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """The refinement leaves the tangent part hat(spin) Y / 2 of G; d exp(w) = hat(J dw) R, J = I + c2 hat(w) + c3 hat(w)^2."""
    axis = _split(w)
    spin = _spin(_split(y), _split(g))
    _, _, c2, c3 = stumpff(dot(axis, axis), 3)
    gw = jacobian_times(axis, spin, -c2, c3)
    return torch.stack(_half_hat_times(exponential(axis), spin, _split(h)), 1), torch.stack(gw, 1)


def _screw(h: Tensor, c: Tensor) -> Tensor:
    """exp(w, v) h, refined: the rotation exp(w) R, the translation exp(w) t + V v with V = I + c2 hat(w) + c3 hat(w)^2."""
    twist = _split(c)
    w, v = twist[:3], twist[3:]
    R, t = _parts(h)
    _, _, c2, c3 = stumpff(dot(w, w), 3)
    r = exponential(w)
    moved = [a + b for a, b in zip(_vector(r, t), jacobian_times(w, v, c2, c3), strict=True)]
    return _joined(_polished(_times(r, R)), moved, 1.0)


def _screw_slope(h: Tensor, c: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    twist = _split(c)
    w, v = twist[:3], twist[3:]
    (R, t), (Y, _), (gr, gt) = _parts(h), _parts(y), _parts(g)
    s = dot(w, w)
    _, _, c2, c3, c4, c5 = stumpff(s, 5)
    r, spin = exponential(w), _spin(Y, gr)
    whole = [a + b for a, b in zip(spin, cross(_vector(r, t), gt), strict=True)]
    vg = cross(v, gt)
    linear = axpy([c2 * e for e in vg], (2 * (c4 - 0.5 * c3) * dot(w, vg), w))  # of c2 g.(w x v), c2' = c4 - c3/2
    quadratic = twist_gradient(w, v, gt, s, c3, 0.5 * (3 * c5 - c4))
    gw = [a + b + d for a, b, d in zip(jacobian_times(w, whole, -c2, c3), linear, quadratic, strict=True)]
    gh = _joined(_half_hat_times(r, spin, R), _transposed_vector(r, gt), 0.0)
    return gh, torch.stack([*gw, *jacobian_times(w, gt, -c2, c3)], 1)
