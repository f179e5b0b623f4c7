"""The nearest rotation in 3D, without an SVD.

R maximises <R, A>, so its quaternion is the top eigenvector of Davenport's K(A). With the signed singular values
s1 >= s2 >= |s3|, sign s3 = sign det A, the eigenvalues of K are s1+s2+s3 > s1-s2-s3 >= -s1+s2-s3 >= -s1-s2+s3 and the
characteristic polynomial is l^4 - 2F l^2 - 8d l + F^2 - 4|C|^2 with F = |A|^2, C = cof A, d = det A.

1. S = |s1|+|s2|+|s3| is the largest root for |d|, always simple: Newton from a bound that is exact at d = 0 and on SO(3).
2. For d < 0 the smallest eigenvalue is -S: divide it out and solve the cubic of the other three, which may cluster.
3. Inverse iteration with a shift slightly above the top eigenvalue: one adjugate, a few products. Every iteration
   raises q^T K q, whatever the gap, so rank one, reflections and zero need no special case.

The arithmetic is float64 even for float32 input: then roots that are double to float32 rounding do no harm. For float64
input they do: a cluster of m roots is known to eps^(1/m) only. Rows with a cluster get the eigenvector from `eigh`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .components import Components, cofactors, components, dot, matrix, skew_part, times_hat, transpose_times
from .davenport import adjugate, davenport, largest_column, rotation_of
from .derivative import all_rows, eager, symmetric

# Numbers stand where they are used: Dynamo 2.13 with dynamic=True makes an input of a global float, and cannot carry it into
# the second call of a Function (test_dynamic_shapes in tests/test_transforms.py).


def _newton(l: Tensor, d8: Tensor, f: Tensor, c4: Tensor, flat: Tensor | None = None) -> Tensor:
    """One Newton step on (l^2 - F)^2 - 8d l - 4|C|^2; d8 = 8d, f = -F, c4 = -4|C|^2; none where the slope is below `flat`."""
    w = torch.addcmul(f, l, l)
    p = torch.addcmul(torch.addcmul(c4, w, w), d8, l, value=-1)
    minus_slope = torch.addcmul(d8, l, w, value=-4)
    if flat is not None:
        p = p * (minus_slope < flat)
    return torch.addcdiv(l, p, minus_slope)


def _top_of_cubic(s: Tensor, f: Tensor, d8: Tensor) -> Tensor:
    """Largest root of the quartic divided by (l + S): S/3 + r(1 + e) with e^2 (3 + e) = h in [0, 4]."""
    s2 = s * s
    r2 = ((2 / 3) * f - (2 / 9) * s2).clamp(min=0) + 1e-30 * f
    r = r2.sqrt()
    q = s * (4 / 3 * f - 20 / 27 * s2) + d8
    h = (2 - q / (r * r2)).clamp(0, 4)
    e = (h / 3).sqrt()
    for _ in range(2):  # alternates around the root, each time eight times closer, and ends above
        e = (h / (3 + e)).sqrt()
    return s / 3 + r * (1 + e)


def _top_eigenvalue(a: list[Tensor], f: Tensor, steps: int) -> Tensor:
    """An upper bound on the top eigenvalue of K(A): at most 5e-6 S above it, to rounding where it is well separated."""
    c = cofactors(a)
    c2, d = dot(c, c), dot(a[:3], c[:3])
    d8, minus_f, c4 = 8 * d, -f, -4 * c2
    size8 = d8.abs()
    s = torch.add(f, torch.addcmul(c2, size8, f.sqrt(), value=math.sqrt(3) / 4).sqrt(), alpha=2).sqrt() * (1 + 1e-9)
    for _ in range(3):
        s = _newton(s, size8, minus_f, c4)
    l = torch.add(torch.where(d8 < 0, _top_of_cubic(s, f, size8), s), s, alpha=5e-6)  # Newton's last steps come from above
    flat = -1e-10 * (s * s * s)  # below this slope p'(l), which is also the trace of the adjugate, a step would be rounding
    for _ in range(steps):
        l = _newton(l, d8, minus_f, c4, flat)
    return l


def _value(x: Tensor) -> Tensor:
    a = list(components(x, dtype=torch.float64))
    if x.dtype != torch.float64:
        return matrix(_from_double(a, precise=False), 3, 3, x.dtype)
    # float32 has room for fourth powers in float64, float64 has not
    scale = x.abs().amax((-2, -1)).clamp(min=torch.finfo(x.dtype).tiny).reciprocal()
    return matrix(_from_double([e * scale for e in a], precise=True), 3, 3)


def nearest(a: Components) -> list[Tensor]:
    """Nine components of the nearest rotation, from nine components of moderate size."""
    if a[0].dtype == torch.float64:
        return _from_double(list(a), precise=True)
    return [e.to(a[0].dtype) for e in _from_double([e.double() for e in a], precise=False)]


def _from_double(a: list[Tensor], precise: bool) -> list[Tensor]:
    """`precise` for float64 input: more steps, and a look at clusters."""
    steps, rounds = (6, 3) if precise else (2, 1)
    f = dot(a, a)
    zero = (f == 0).to(f.dtype)  # every rotation is nearest to 0: take the identity
    a[0], a[4], a[8], f = a[0] + zero, a[4] + zero, a[8] + zero, torch.add(f, zero, alpha=3)
    b = adjugate(davenport(a, _top_eigenvalue(a, f, steps)))
    q, best = largest_column(b)
    # an adjugate below 1e-4 |A|^3 leaves fewer digits than an SVD would; 1e-5 does not keep the bound of test_promises.py
    clear = best >= 1e-4 * f * f.sqrt() if precise else None
    inverse = best.reciprocal()
    for _ in range(rounds):
        q = [e * inverse for e in q]
        q = [dot(row, q) for row in b]
    if clear is not None and not all_rows(clear):
        q = _separated(q, a, clear)
    return rotation_of(q)


def _separated(q: list[Tensor], a: list[Tensor], clear: Tensor) -> list[Tensor]:
    """q where it is clear, elsewhere the top eigenvector of K(A) as LAPACK finds it: right to eps |A| / gap."""
    K = torch.stack([torch.stack(torch.broadcast_tensors(*row), -1) for row in davenport(a, 0.0)], -2)
    ok = torch.isfinite(K).flatten(-2).all(-1)[..., None, None]  # LAPACK fails the batch for one NaN row
    K = torch.where(ok, K, torch.eye(4, dtype=K.dtype, device=K.device))
    if eager() and K.device.type == "cpu":  # where looking is free: the other rows only
        out, other = torch.stack(q, -1), ~clear
        out[other] = torch.linalg.eigh(K[other])[1][..., -1]
        return list(out.unbind(-1))
    return [torch.where(clear, old, new) for old, new in zip(q, torch.linalg.eigh(K)[1][..., -1].unbind(-1), strict=True)]


def _solve(t: list[Tensor], w: list[Tensor], tol: float) -> list[Tensor]:
    """z = T^+ w for a symmetric positive semidefinite 3x3 T = (t00, t01, t02, t11, t12, t22) of trace 2.

    Directions in which T is below tol are dropped: first the null vector of T, then all but its top one.
    """
    t00, t01, t02, t11, t12, t22 = t
    c = cofactors([t00, t01, t02, t01, t11, t12, t02, t12, t22])
    det = dot((t00, t01, t02), c[:3])
    rank2 = c[0] + c[4] + c[8]  # sum of products of two eigenvalues
    two = rank2 > tol
    full = two & (det > tol * rank2)
    ok = torch.where(full, det, 1.0).reciprocal() * full
    z = [dot(c[3 * i : 3 * i + 3], w) * ok for i in range(3)]
    if all_rows(full):
        return z
    # T of rank two or one: on the range of T, T^+ = (tr T I - T) / rank2 or 1 / tr T; n n^T = cof T / rank2 is the null part
    safe = torch.where(two, rank2, 1.0).reciprocal() * two
    null = [dot(c[3 * i : 3 * i + 3], w) * safe for i in range(3)]
    rest = [a - b for a, b in zip(w, null, strict=True)]
    rows = ((t00, t01, t02), (t01, t11, t12), (t02, t12, t22))
    trace = t00 + t11 + t22
    on_two = [(trace * rest[i] - dot(rows[i], rest)) * safe for i in range(3)]
    square = torch.where(trace > 0, trace * trace, 1.0).reciprocal()
    on_one = [dot(rows[i], w) * square for i in range(3)]
    low = [torch.where(two, a, b) for a, b in zip(on_two, on_one, strict=True)]
    return [torch.where(full, a, b) for a, b in zip(z, low, strict=True)]


def _derivative(x: Tensor, y: Tensor, g: Tensor) -> Tensor:
    """R hat(z) with (tr S I - S) z = vee(R^T G - G^T R), S = R^T A. The eigenvalues of tr S I - S are s_i + s_j."""
    return matrix(nearest_vjp(components(x), components(y), components(g)), 3, 3)


def nearest_vjp(a: Components, r: Components, g: Components) -> list[Tensor]:
    """`_derivative` by components."""
    w, dtype = skew_part(r, g), a[0].dtype
    s00, s11, s22 = (transpose_times(r, a, i, i) for i in range(3))
    s01, s02, s12 = (transpose_times(r, a, i, j) for i, j in ((0, 1), (0, 2), (1, 2)))
    trace = s00 + s11 + s22
    usable = trace > 8 * torch.finfo(dtype).tiny
    scale = torch.where(usable, trace, 1.0).reciprocal() * usable
    minus = -scale
    t = [(s11 + s22) * scale, s01 * minus, s02 * minus, (s00 + s22) * scale, s12 * minus, (s00 + s11) * scale]
    z = _solve(t, w, tol=16 * torch.finfo(dtype).eps)
    return times_hat(r, [e * scale for e in z])


nearest_rotation = symmetric(_value, _derivative)
nearest_rotation.__doc__ = "(*batch, 3, 3) -> the nearest rotation in the Frobenius norm, right for det < 0."
