"""`tangent`: the dimension of a set and the noise around it, from neighbourhoods of many sizes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .graphs import least_squares, nearest_samples
from .polynomials import Monomials, monomials_of

MOST = 8_192  # samples that are looked at: a quarter of them is the largest neighbourhood


class Tangent(NamedTuple):
    """The dimension of the tangent spaces, the standard deviation of what is left across them, and the highest dimension that the
    number of samples allows to tell."""

    dim: int
    noise: float
    tested: int


def tangent_dimension(samples: Tensor, generator: torch.Generator | None = None) -> int:
    """The least m < d such that, at some scale, the samples are graphs over R^m; d if there is none."""
    return tangent(samples, generator).dim


def tangent(samples: Tensor, generator: torch.Generator | None = None) -> Tangent:
    """The least m < d such that, at some scale, the samples are graphs over R^m, and the noise around these; d if there is none.

    At 64 samples and for neighbourhoods of 8 samples to a quarter of all: principal directions, variances l_1 >= .. >= l_d;
    coordinates m+1 .. d are fitted by quadratics of the first m, which takes curvature out, and the largest variance left over is
    compared with l_m. If m is too small, the left-over holds a tangent direction and the ratio is about 1 (above 0.3 on all sets
    tried, also where boundaries flatten the neighbourhoods); if m is right, it is O(radius^4) + noise^2 / radius^2. The median
    over the samples must be below 0.2 at one scale: a small one where M bends, a large one where there is noise. A set
    thinner in some direction than a fifth of a neighbourhood of a quarter of its samples counts as noise around a thinner set.
    Coordinates are in units of their own spread, so that the dimension does not depend on units; the noise is measured once more
    in those of the samples.
    """
    X = samples[torch.randperm(len(samples), generator=generator, device=samples.device)[:MOST]].double().unique(dim=0)
    X = X[torch.randperm(len(X), generator=generator, device=X.device)]
    N, d = X.shape
    given, spread = X, X.std(0)
    X = X / torch.where(spread > 0, spread, 1.0)
    most = min(max(N // 4, min(N, 32)), 2048)
    scales = sorted({int(8 * 1.5**i) for i in range(40) if 8 * 1.5**i < most} | {most})
    near = nearest_samples(X, X[:64], most)
    charts = [_chart(X[near[:, :K]]) for K in scales]
    for m in range(1, d):
        degree = 2 if Monomials.count(m, 2) <= 140 else 1
        known = [(K, c) for K, c in zip(scales, charts, strict=True) if K >= 1.5 * Monomials.count(m, degree)]
        ratio, K = min(((_left_over(*c, m, degree)[0], K) for K, c in known), default=(1.0, 0))
        if not known:
            return Tangent(d, 0.0, m - 1)
        if ratio < 0.2:
            return Tangent(m, _left_over(*_chart(given[near[:, :K]]), m, degree)[1], d)
    return Tangent(d, 0.0, d)


def _chart(Y: Tensor) -> tuple[Tensor, Tensor]:
    """Principal coordinates (b, K, d) and variances (b, d), largest first."""
    Y = Y - Y.mean(1, keepdim=True)
    l, V = torch.linalg.eigh(Y.mT @ Y / Y.shape[1])
    return Y @ V.flip(-1), l.flip(-1)


def _left_over(y: Tensor, l: Tensor, m: int, degree: int) -> tuple[float, float]:
    """With v_j = Var(y_j | polynomials of y_1 .. y_m), j > m, medians over the charts: of max v_j / l_m, and of the root of the
    mean v_j, the noise per coordinate."""
    K, spread = y.shape[1], l[:, m - 1]
    s = y[..., :m] / (l[:, None, :m] * (m + 2)).clamp(min=1e-300).sqrt()
    phi = monomials_of(s.shape[-1], degree)(s)
    rest = y[..., m:] - phi @ least_squares(phi, phi, y[..., m:])
    left = rest.square().sum(1) / (K - phi.shape[-1])
    return float((left.amax(-1) / spread.clamp(min=1e-300)).median()), float(left.mean(-1).sqrt().median())
