"""Davenport's symmetric 4x4 matrix K(A): q^T K(A) q = <R(q), A> for unit quaternions q = (w, x, y, z)."""

from __future__ import annotations

import torch
from torch import Tensor

from .components import Components, dot, minor

Symmetric4 = tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]


def davenport(a: Components, shift: Tensor | float) -> Symmetric4:
    """Rows of K(A) - shift I."""
    a0, a1, a2, a3, a4, a5, a6, a7, a8 = a
    plus, minus = a4 + a8, a4 - a8
    left, right = a0 - shift, -a0 - shift
    k01, k02, k03, k12, k13, k23 = a7 - a5, a2 - a6, a3 - a1, a1 + a3, a2 + a6, a5 + a7
    return (
        [left + plus, k01, k02, k03],
        [k01, left - plus, k12, k13],
        [k02, k12, right + minus, k23],
        [k03, k13, k23, right - minus],
    )


def adjugate(k: Symmetric4) -> Symmetric4:
    """adj(K) of a symmetric 4x4 matrix, from the 2x2 minors of its upper and lower half."""
    (k00, k01, k02, k03), (_, k11, k12, k13), (_, _, k22, k23), (_, _, _, k33) = k
    s0, s1, s2 = minor(k00, k11, k01, k01), minor(k00, k12, k01, k02), minor(k00, k13, k01, k03)
    s3, s4, s5 = minor(k01, k12, k11, k02), minor(k01, k13, k11, k03), minor(k02, k13, k12, k03)
    c1, c2, c3 = minor(k02, k23, k03, k22), minor(k02, k33, k03, k23), minor(k12, k23, k13, k22)
    c4, c5 = minor(k12, k33, k13, k23), minor(k22, k33, k23, k23)

    def three(a, b, c, d, e, f):
        return torch.addcmul(minor(a, b, c, d), e, f)

    b01, b02, b03 = three(k02, c4, k01, c5, -k03, c3), three(k13, s5, k23, s4, k33, s3), three(k22, s4, k12, s5, -k23, s3)
    b12, b13, b23 = three(k23, s2, k03, s5, -k33, s1), three(k02, s5, k22, s2, k23, s1), three(k12, s2, k02, s4, -k23, s0)
    return (
        [three(k11, c5, k12, c4, k13, c3), b01, b02, b03],
        [b01, three(k00, c5, k02, c2, k03, c1), b12, b13],
        [b02, b12, three(k03, s4, k13, s2, k33, s0), b23],
        [b03, b13, b23, three(k02, s3, k12, s1, k22, s0)],
    )


def largest_column(b: Symmetric4) -> tuple[list[Tensor], Tensor]:
    """The column of B with the largest |diagonal|, and that diagonal's absolute value."""
    column, best = b[0], b[0][0].abs()
    for i in (1, 2, 3):
        size = b[i][i].abs()
        larger, best = size > best, torch.maximum(size, best)
        column = [torch.where(larger, new, old) for new, old in zip(b[i], column, strict=True)]
    return column, best


def rotation_of(q: Components) -> list[Tensor]:
    """R(q / |q|) as nine components."""
    w, x, y, z = q
    two = 2 / dot(q, q)
    xs, ys, zs = x * two, y * two, z * two
    wx, wy, wz, xx, xy, xz = w * xs, w * ys, w * zs, x * xs, x * ys, x * zs
    yy, yz, zz = y * ys, y * zs, z * zs
    return [1 - (yy + zz), xy - wz, xz + wy, xy + wz, 1 - (xx + zz), yz - wx, xz - wy, yz + wx, 1 - (xx + yy)]
