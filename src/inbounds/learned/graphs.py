"""Polynomial graphs through neighbouring samples, by weighted least squares."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..extras import needed_for
from ..kernels.vectors import norm
from .polynomials import monomials_of

BLOCK = 2**19  # coordinates of neighbours held at once: bounds the memory


def fit_graphs(Y: Tensor, c: Tensor, dim: int, degree: int) -> Tensor:
    """G (b, q, d) of the graphs y(s) through the neighbourhoods Y (b, K, d) of the centres c (b, d).

    Weighted least squares over the plane of the first principal directions; then once more over the tangent plane of that graph
    at its own centre, which lies on M where the sample did not.
    """
    radius = (Y - c[:, None]).square().sum(-1).amax(1).sqrt().clamp(min=1e-300)[:, None]  # (b, 1)
    T = principal(Y - c[:, None], dim)  # (b, d, m)
    for _ in range(2):
        G = _over(Y, c, T, radius, degree)
        c, T = G[:, 0], torch.linalg.qr(G[:, 1 : dim + 1].mT).Q
    return G


def _over(Y: Tensor, c: Tensor, T: Tensor, radius: Tensor, degree: int) -> Tensor:
    """The least squares graph over the plane c + T, in units of the radius."""
    y = (Y - c[:, None]) / radius[..., None]
    s = y @ T
    w = (1 - s.square().sum(-1) / 1.1).clamp(min=1e-3)[..., None]
    phi = monomials_of(s.shape[-1], degree)(s)
    G = least_squares(phi * w, phi, y - s @ T.mT)
    G[:, 1 : T.shape[-1] + 1] += T.mT
    G *= radius[..., None]
    G[:, 0] += c
    return G


def least_squares(weighted: Tensor, phi: Tensor, y: Tensor) -> Tensor:
    """argmin_B sum w |y - phi B|^2, with a ridge of the size of rounding for neighbourhoods that do not span."""
    gram = weighted.mT @ phi
    ridge = 1e-13 * gram.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    L = torch.linalg.cholesky_ex(gram + ridge * torch.eye(phi.shape[-1], dtype=phi.dtype, device=phi.device)).L
    return torch.cholesky_solve(weighted.mT @ y, L)


def principal(Y: Tensor, dim: int) -> Tensor:
    """The first `dim` principal directions of the rows of Y (b, K, d): (b, d, dim)."""
    Y = Y - Y.mean(1, keepdim=True)
    if Y.shape[1] >= Y.shape[2]:
        return torch.linalg.eigh(Y.mT @ Y).eigenvectors[..., -dim:]
    return torch.linalg.qr(Y.mT @ torch.linalg.eigh(Y @ Y.mT).eigenvectors[..., -dim:]).Q


def nearest_samples(samples: Tensor, x: Tensor, k: int) -> Tensor:
    """Which samples are nearest to x: (rows, k)."""
    tree = kd_tree(samples)
    return torch.from_numpy(tree.query(x.cpu().numpy(), k)[1]).to(x.device)


def kd_tree(points: Tensor) -> Any:
    """A tree that finds nearest points, by scipy."""
    with needed_for("Fitting a set to samples"):
        from scipy.spatial import cKDTree  # pyright: ignore[reportAttributeAccessIssue]
    return cKDTree(points.detach().cpu().numpy())


def neighbours(samples: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Of every sample the k nearest, itself first, and how far they are: (N, k), (N, k)."""
    far, near = kd_tree(samples).query(samples.numpy(), [*range(1, k + 1)])
    return torch.from_numpy(near), torch.from_numpy(far)


LOCAL = 10  # neighbours: their distance is the local spacing


WIDE = 8 * LOCAL  # neighbours around a hole


def missing(points: Tensor, samples: Tensor, crowds: bool = False) -> Tensor:
    """How many samples the empty ball around each point should have held, by the density around it.

    Of N uniform samples a ball that holds a share q of the volume is empty with probability e^(-N q), and there are about 1 / q
    such balls. The density is that around the nearest sample, and half a ball counts: at the rim of a region the other half is
    empty anyway. Where samples lie all around the point, `surrounded`, which asks more of them, tells more; not where they crowd
    on a piece of lower dimension.
    """
    away, nearest = (torch.from_numpy(t) for t in kd_tree(samples).query(points.numpy()))
    usual = neighbours(samples, min(LOCAL + 1, len(samples)))[1][:, -1]
    by_one = 0.5 * LOCAL * (away / usual[nearest].clamp(min=1e-300)) ** samples.shape[1]
    return by_one if crowds or len(samples) < 4 * LOCAL else by_one.maximum(surrounded(points, samples))


def surrounded(points: Tensor, samples: Tensor) -> Tensor:
    """The same by the K samples nearest to each point, and 0 where these do not lie all around it.

    With r the distance of the nearest and R that of the K-th of them, the K - 1 nearer ones are uniform in the ball of radius R,
    and the one of radius r is empty with probability (1 - (r / R)^d)^(K - 1) = e^-t. The point was sought: among all balls that
    touch d + 1 samples, t is a Gamma(d) variable, which exceeds t with probability e^-t (1 + t + .. + t^(d-1) / (d-1)!).
    All around: the mean of the unit vectors to these samples is shorter than half of what a half-space would give.
    """
    k, d = min(WIDE, len(samples) // 4), samples.shape[1]
    far, which = (torch.from_numpy(t) for t in kd_tree(samples).query(points.numpy(), k))
    t = -(k - 1) * torch.log1p(-((far[:, 0] / far[:, -1].clamp(min=1e-300)).clamp(max=1 - 1e-12) ** d))
    held = t - torch.stack([t**j / math.factorial(j) for j in range(d)]).sum(0).log()
    ways = samples[which] - points[:, None]
    off = norm((ways / norm(ways).clamp(min=1e-300)[..., None]).mean(1))
    half = math.gamma(d / 2) / (math.sqrt(math.pi) * math.gamma((d + 1) / 2))
    return torch.where(off < half / 2, held, 0.0)


def beyond(points: Tensor, samples: Tensor) -> Tensor:
    """Whether each point is farther from every sample than the nearest of them is from its tenth neighbour: (P,)."""
    tree = kd_tree(samples)
    away, nearest = (torch.from_numpy(t) for t in tree.query(points.numpy()))
    spacing = tree.query(samples[nearest].numpy(), [min(LOCAL + 1, len(samples))])[0]
    return away > torch.from_numpy(spacing[:, 0])


def off_graphs(points: Tensor, samples: Tensor, near: Tensor, dim: int) -> Tensor:
    """Of every point the distance from the quadratic graph through the samples near it (P, K), the worst quarter left out."""
    rows = max(1, BLOCK // (near.shape[1] * samples.shape[1]))
    return torch.cat([_off_graph(x, samples[i], dim) for x, i in zip(points.split(rows), near.split(rows), strict=True)])


def _off_graph(x: Tensor, Y: Tensor, dim: int) -> Tensor:
    for _ in range(2):
        c = Y.mean(1)
        T = principal(Y - c[:, None], dim)
        radius = (Y - c[:, None]).square().sum(-1).amax(1).sqrt().clamp(min=1e-300)[:, None]
        G = _over(Y, c, T, radius, 2)
        e = _from_graph(Y, c, T, radius, G)
        Y = Y.take_along_dim(e.argsort(1)[:, : 3 * e.shape[1] // 4, None], 1)
    return _from_graph(x[:, None], c, T, radius, G)[:, 0]


def _from_graph(Y: Tensor, c: Tensor, T: Tensor, radius: Tensor, G: Tensor) -> Tensor:
    """|y - G(s)| with s the coordinates of y over the plane c + T: (b, K)."""
    s = (Y - c[:, None]) @ T / radius[..., None]
    return norm(Y - monomials_of(s.shape[-1], 2)(s) @ G)


def spread(x: Tensor) -> Tensor:
    """(N,): mean log of the distance of the tenth neighbour over those of the nearer ones, whose mean is 1 / dimension.

    Levina and Bickel (2005): of uniform samples in dimension m, log(T_k / T_j) has the mean (1/j + .. + 1/(k-1)) / m; the mean of
    that over j = 1 .. k-1 is 1 / m.
    """
    far = neighbours(x, min(LOCAL, len(x) - 1) + 1)[1][:, 1:].clamp(min=1e-300)
    return (far[:, -1:] / far[:, :-1]).log().mean(1)
