"""Regions: sublevel sets of a Christoffel function, the smallest of their kind around the samples."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .balls import smallest_ball
from .polynomials import Monomials, Polynomials
from .vanishing import complement

ROUNDS = (2_000, 300)  # for few and for many polynomials
KEPT = 3_000  # samples that can still touch the boundary


def region(w: Tensor, degree: int, scale: Tensor, known: tuple[Polynomials, ...] = ()) -> Tensor:
    """F (q, count) with |F m(w/scale)|^2 <= 1 on the samples.

    kappa(w) = b^T G^{-1} b with b a basis of the polynomials (modulo those known to vanish) and G = sum_i a_i b_i b_i^T. The
    weights a are D-optimal: they maximise det G, which makes {kappa <= q} the smallest ellipsoid of the b_i; degree 1 is the
    smallest ellipsoid of the samples, or their smallest ball if they do not tell one from the other. Found by
    a <- a kappa / q, without the points that cannot carry weight any more.
    """
    monomials = Monomials(w.shape[1], degree)
    known = tuple(p for p in known if p.degree <= degree)
    keep = complement([monomials.products(p.C, p.degree) for p in known], len(monomials), w)
    b = monomials(w / scale) @ keep
    T = torch.linalg.qr(b, mode="r").R  # the samples' own scale: G starts near the identity
    b = torch.linalg.solve_triangular(T, b, upper=True, left=False)
    G = _optimal(b)
    kappa = (torch.linalg.solve_triangular(G, b, upper=True, left=False)).square().sum(1)
    F = torch.linalg.solve(G.mT, torch.linalg.solve(T.mT, keep.mT)) / kappa.max().sqrt()
    return _rounded(F, w, scale) if degree == 1 and not known and w.shape[1] > 1 else F


def _rounded(F: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    """The smallest ball instead of the smallest ellipsoid F, unless the space between them should hold samples.

    Both touch as many samples as they have parameters, n + 1 and n (n + 3) / 2, and a new one of N falls outside with that
    probability / N. Around a ball, then, the space between holds about the difference, k: an excess of three standard
    deviations tells an ellipsoid. The density is that of the outermost samples.
    """
    n = w.shape[1]
    middle, radius = smallest_ball(w)
    outermost = min(5 * n * (n + 3), len(w) // 4)
    shell = radius**n - float(torch.linalg.vector_norm(w - middle, dim=1).topk(outermost).values[-1]) ** n
    between = outermost * (radius**n - _volume(F[:, 0], F[:, 1:] / scale)) / max(shell, 1e-300)
    k = n * (n + 3) // 2 - (n + 1)
    return torch.cat([-middle[:, None], scale.diag()], 1) / radius if between <= k + 3 * math.sqrt(k) else F


def _volume(v: Tensor, J: Tensor) -> float:
    """Of |v + J w| <= 1, in unit balls."""
    n, H = J.shape[1], J.mT @ J
    level = 1 - float((v - J @ torch.linalg.solve(H, J.mT @ v)).square().sum())
    return max(level, 0.0) ** (n / 2) / math.sqrt(float(torch.linalg.det(H)))


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
