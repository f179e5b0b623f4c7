"""Polynomials in several variables: values, Jacobians and weighted Hessians, for many points at once."""

from __future__ import annotations

import math
from functools import cache, cached_property
from itertools import accumulate, combinations_with_replacement

import torch
from torch import Tensor


class Monomials:
    """z^a for all exponents |a| <= degree in n variables, by degree: lower degrees are a prefix of higher ones."""

    def __init__(self, n: int, degree: int):
        self.n, self.degree = n, degree
        factors = [combinations_with_replacement(range(n), k) for k in range(degree + 1)]
        self.exponents = [tuple(a.count(j) for j in range(n)) for level in factors for a in level]
        self.ends = [self.count(n, k) for k in range(degree + 1)]

    @staticmethod
    def count(n: int, degree: int) -> int:
        """How many monomials of that degree or less n variables have."""
        return math.comb(n + degree, degree)

    def __len__(self) -> int:
        return len(self.exponents)

    @cached_property
    def index(self) -> dict[tuple[int, ...], int]:
        """The place of every exponent."""
        return {a: i for i, a in enumerate(self.exponents)}

    @cached_property
    def lowered(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(a, j, b, a_j) for every exponent a and variable j with a_j > 0, where b = a - e_j: d z^a / dz_j = a_j z^b."""
        entries = [
            (i, j, self.index[(*a[:j], a[j] - 1, *a[j + 1 :])], a[j])
            for i, a in enumerate(self.exponents)
            for j in range(self.n)
            if a[j]
        ]
        a, j, b, factor = torch.tensor(entries or [[0, 0, 0, 0]]).unbind(1)
        return a, j, b, factor.double()

    def __call__(self, z: Tensor, degree: int | None = None) -> Tensor:
        """The monomials at z, up to a lower degree on request: (.., n) -> (.., count)."""
        levels, starts = [torch.ones_like(z[..., :1])], [0] * self.n
        for _ in range(self.degree if degree is None else degree):
            # z_j times the monomials of one degree less that have no variable before j
            parts = [levels[-1][..., starts[j] :] * z[..., j : j + 1] for j in range(self.n)]
            starts = [0, *accumulate(p.shape[-1] for p in parts)][: self.n]
            levels.append(torch.cat(parts, -1))
        return torch.cat(levels, -1)

    def jet(self) -> Tensor:
        """D (count, (1 + n) count) with m @ D = (m, dm / dz_1, .., dm / dz_n) for the monomials m at z."""
        a, j, b, factor = self.lowered
        D = torch.zeros(len(self), 1 + self.n, len(self), dtype=torch.float64)
        D[:, 0] = torch.eye(len(self))
        return D.index_put((b, 1 + j, a), factor).flatten(1)

    def gradients(self, C: Tensor) -> Tensor:
        """Coefficients of all derivatives: C (r, count) -> (r, n, count of one degree less)."""
        a, j, b, factor = self.lowered
        out = C.new_zeros(len(C), self.n * self.ends[max(self.degree - 1, 0)])
        columns = j * self.ends[max(self.degree - 1, 0)] + b
        return out.index_add(1, columns, C[:, a] * factor).unflatten(1, (self.n, -1))

    def products(self, C: Tensor, degree: int) -> Tensor:
        """Coefficients, on these monomials, of every polynomial of C (r, count of degree) times every monomial that fits."""
        rows = []
        for b in self.exponents[: self.ends[self.degree - degree]]:
            to = [self.index[tuple(x + y for x, y in zip(a, b, strict=True))] for a in self.exponents[: self.ends[degree]]]
            rows.append(C.new_zeros(len(C), len(self)).index_copy(1, torch.tensor(to), C))
        return torch.cat(rows)


@cache
def monomials_of(n: int, degree: int) -> Monomials:
    """The monomials of n variables up to a degree, made once."""
    return Monomials(n, degree)


class Polynomials:
    """r polynomials p(w) = C m(w / scale) of R^n; scale (n,) keeps the monomials near 1."""

    def __init__(self, C: Tensor, monomials: Monomials, scale: Tensor):
        self.C, self.monomials, self.scale = C, monomials, scale
        self.n, self.degree = monomials.n, monomials.degree

    def __len__(self) -> int:
        return len(self.C)

    @cached_property
    def _jacobian(self) -> Tensor:
        """(count', r n)"""
        G = self.monomials.gradients(self.C) / self.scale[:, None]  # (r, n, count')
        return G.flatten(0, 1).mT.contiguous()

    @cached_property
    def _hessian(self) -> Tensor:
        """(r count'', n n)"""
        if self.degree < 2:
            return self.C.new_zeros(len(self), self.n**2)
        lower = Monomials(self.n, self.degree - 1)
        G = self.monomials.gradients(self.C) / self.scale[:, None]
        H = lower.gradients(G.flatten(0, 1)) / self.scale[:, None]  # (r n, n, count'')
        return H.unflatten(0, (len(self), self.n)).permute(0, 3, 1, 2).flatten(2).flatten(0, 1).contiguous()

    def values(self, w: Tensor) -> Tensor:
        """p(w): (rows, n) -> (rows, r)."""
        return self.monomials(w / self.scale) @ self.C.mT

    def jacobian(self, w: Tensor) -> Tensor:
        """Dp(w): (rows, n) -> (rows, r, n)."""
        m = self.monomials(w / self.scale, max(self.degree - 1, 0))
        return (m @ self._jacobian).unflatten(1, (len(self), self.n))

    def hessian(self, w: Tensor, weights: Tensor) -> Tensor:
        """sum_i weights_i Hess p_i(w): (rows, n, n)"""
        m = self.monomials(w / self.scale, max(self.degree - 2, 0))
        return ((weights[:, :, None] * m[:, None, :]).flatten(1) @ self._hessian).unflatten(1, (self.n, self.n))
