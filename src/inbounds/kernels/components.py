"""Small matrices as lists of components, each a (*batch,) tensor.

Batched 3x3 matrix products cost more than the formulas they serve and a compiler cannot fuse them; sums of products of
components it can. `matrix` and `components` are the only places that know the memory layout.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Components = Sequence[Tensor]


def components(x: Tensor, dims: int = 2, dtype: torch.dtype | None = None) -> tuple[Tensor, ...]:
    """(*batch, n, m) -> n m tensors (*batch,), row by row; dims=1 for vectors."""
    x = x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1]) if dims == 2 else x
    if dtype is not None and dtype != x.dtype:
        return x.movedim(-1, 0).to(dtype, memory_format=torch.contiguous_format).unbind(0)
    return torch.stack(x.unbind(-1)).unbind(0)


def vector(c: Components, dtype: torch.dtype | None = None) -> Tensor:
    """The inverse of `components`: (*batch, len(c))."""
    x = torch.stack(tuple(c)).movedim(0, -1)
    if dtype is not None and dtype != x.dtype:
        return x.to(dtype, memory_format=torch.contiguous_format)
    return x.contiguous()


def matrix(c: Components, rows: int, cols: int, dtype: torch.dtype | None = None) -> Tensor:
    """The inverse of `components`: (*batch, rows, cols)."""
    x = vector(c, dtype)
    return x.reshape(*x.shape[:-1], rows, cols)


def dot(x: Components, y: Components) -> Tensor:
    """The sum of the products of the components."""
    total = x[0] * y[0]
    for a, b in zip(x[1:], y[1:], strict=True):
        total = torch.addcmul(total, a, b)
    return total


def less_product(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """a - b c.

    One fused operation, but not where a compiler fuses anyway: torch 2.13 ends the process when compiled forward mode meets
    the scalar factor of `addcmul` or `add` beside an input without a tangent (`mul.Scalar` of an `_efficientzerotensor`).
    """
    return a - b * c if torch.compiler.is_compiling() else torch.addcmul(a, b, c, value=-1)


def plus_multiple(a: Tensor, factor: float, b: Tensor) -> Tensor:
    """a + factor b, for a number. For the two ways see `less_product`."""
    return a + factor * b if torch.compiler.is_compiling() else torch.add(a, b, alpha=factor)


def minor(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """a b - c d."""
    return less_product(a * b, c, d)


def cross(x: Components, y: Components) -> list[Tensor]:
    """The cross product of two vectors of three components."""
    return [minor(x[1], y[2], x[2], y[1]), minor(x[2], y[0], x[0], y[2]), minor(x[0], y[1], x[1], y[0])]


def axpy(y: Components, *terms: tuple[Tensor | float, Components]) -> list[Tensor]:
    """y + sum of a x over the terms (a, x)."""
    out = list(y)
    for a, x in terms:
        if isinstance(a, Tensor):
            out = [torch.addcmul(o, a, e) for o, e in zip(out, x, strict=True)]
        else:
            out = [plus_multiple(o, a, e) for o, e in zip(out, x, strict=True)]
    return out


def cofactors(a: Components) -> list[Tensor]:
    """Cofactor matrix of a 3x3 matrix: its rows are the cross products of the rows of a."""
    r0, r1, r2 = a[0:3], a[3:6], a[6:9]
    return cross(r1, r2) + cross(r2, r0) + cross(r0, r1)


def transpose_times(a: Components, b: Components, i: int, j: int) -> Tensor:
    """(A^T B)_ij of 3x3 matrices."""
    return dot(a[i::3], b[j::3])


def plus_cross(total: Components, x: Components, y: Components) -> list[Tensor]:
    """total + x cross y."""
    turns = zip(total, (1, 2, 0), (2, 0, 1), strict=True)
    return [less_product(torch.addcmul(t, x[i], y[j]), x[j], y[i]) for t, i, j in turns]


def skew_part(r: Components, g: Components) -> list[Tensor]:
    """vee(R^T G - G^T R) of 3x3 matrices: the sum of the cross products of the rows of G with those of R."""
    return plus_cross(plus_cross(cross(g[0:3], r[0:3]), g[3:6], r[3:6]), g[6:9], r[6:9])


def times_hat(r: Components, z: Components) -> list[Tensor]:
    """R hat(z), with hat(z) y = z x y: its rows are the cross products of the rows of R with z."""
    return cross(r[0:3], z) + cross(r[3:6], z) + cross(r[6:9], z)
