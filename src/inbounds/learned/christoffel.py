"""Regions: sublevel sets of a Christoffel function, the smallest of their kind around the samples."""

from __future__ import annotations

import torch
from torch import Tensor

from .polynomials import Monomials, Polynomials
from .vanishing import _complement

ROUNDS = (2_000, 300)  # for few and for many polynomials
KEPT = 3_000  # samples that can still touch the boundary


def region(w: Tensor, degree: int, scale: Tensor, known: tuple[Polynomials, ...] = ()) -> Tensor:
    """F (q, count) with |F m(w/scale)|^2 <= 1 on the samples.

    kappa(w) = b^T G^{-1} b with b a basis of the polynomials (modulo those known to vanish) and G = sum_i a_i b_i b_i^T. The
    weights a are D-optimal: they maximise det G, which makes {kappa <= q} the smallest ellipsoid of the b_i; degree 1 is the
    smallest ellipsoid of the samples. Found by a <- a kappa / q, without the points that cannot carry weight any more.
    """
    monomials = Monomials(w.shape[1], degree)
    known = tuple(p for p in known if p.degree <= degree)
    keep = _complement([monomials.products(p.C, p.degree) for p in known], len(monomials), w)
    b = monomials(w / scale) @ keep
    T = torch.linalg.qr(b, mode="r").R  # the samples' own scale: G starts near the identity
    b = torch.linalg.solve_triangular(T, b, upper=True, left=False)
    G = _optimal(b)
    kappa = (torch.linalg.solve_triangular(G, b, upper=True, left=False)).square().sum(1)
    return torch.linalg.solve(G.mT, torch.linalg.solve(T.mT, keep.mT)) / kappa.max().sqrt()


def _optimal(b: Tensor) -> Tensor:
    """R, upper triangular, with R^T R = G for the D-optimal weights of the rows of b."""
    q = b.shape[1]
    a = b.new_full((len(b),), 1 / len(b))
    R = torch.linalg.qr(a.sqrt()[:, None] * b, mode="r").R
    for k in range(ROUNDS[q > 15]):
        kappa = torch.linalg.solve_triangular(R, b, upper=True, left=False).square().sum(1)
        top = float(kappa.max())
        if top <= q * (1 + 1e-7):
            break
        a = a * kappa / q
        if k % 10 == 5:  # Harman and Pronzato (2007): below this bound a point is in no optimal design
            gap = max(top / q - 1, 0.0) * q
            bound = q * (1 + gap / 2 - (gap * (4 + gap - 4 / q)) ** 0.5 / 2) if q > 1 else 0.0
            stay = kappa >= max(bound, float(kappa.topk(min(KEPT, len(kappa))).values[-1]))
            a, b = a[stay], b[stay]
        a = a / a.sum()
        R = torch.linalg.qr(a.sqrt()[:, None] * b, mode="r").R
    return R
