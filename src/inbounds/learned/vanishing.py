"""Polynomials that vanish on samples: the smallest generalised singular values of their monomials (Taubin's normalisation)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .polynomials import Monomials, Polynomials

CHUNK = 20_000  # samples whose monomials are in memory at once
ROUNDING = 1e-9  # tau below it is taken for zero
EXACT = 1e3  # a gap this wide is no accident
POLLED = 4_000  # samples among which a consensus is sought


@dataclass
class Spectrum:
    """Polynomials by increasing tau, the root mean square of p/|grad p|: to first order their distance from the samples."""

    tau: Tensor  # (q,)
    C: Tensor  # (q, count), mean |grad p|^2 = 1
    monomials: Monomials
    scale: Tensor

    def take(self, r: int) -> Polynomials:
        """The r polynomials that vanish best."""
        return Polynomials(self.C[:r], self.monomials, self.scale)

    def gaps(self, largest: float) -> list[tuple[int, float]]:
        """(r, tau_{r+1}/tau_r) where tau_r <= largest, widest first."""
        tau = self.tau.clamp(min=ROUNDING)
        ratio = tau[1:] / tau[:-1]
        found = [(r + 1, float(g)) for r, g in enumerate(ratio) if tau[r] <= largest]
        return sorted(found, key=lambda f: -f[1])


def spectrum(w: Tensor, degree: int, scale: Tensor, known: tuple[Polynomials, ...] = ()) -> Spectrum:
    """Of all polynomials up to the degree; of those known to vanish, multiples are left out.

    tau^2 = c^T A c / c^T B c with A = mean m m^T and B = mean Dm Dm^T. In place of B stands A + B, which is regular but for
    double zeros and keeps the order: tau'^2 = tau^2 / (1 + tau^2). A enters as a QR factor: its square loses digits.
    """
    monomials = Monomials(w.shape[1], degree)
    keep = complement([monomials.products(p.C, p.degree) for p in known], len(monomials), w)  # (count, q)
    R, B = _moments(w, monomials, scale, keep)
    e, U = torch.linalg.eigh(R.mT @ R + B)
    usable = e > 1e-14 * e[-1]
    Q = U[:, usable] / e[usable].sqrt()
    _, sigma, Vh = torch.linalg.svd(R @ Q, full_matrices=False)
    sigma, V = sigma.flip(0), Vh.flip(0)
    slope = (1 - sigma.square()).clamp(min=1e-14).sqrt()  # sqrt of c^T B c
    return Spectrum(sigma / slope, (V @ Q.mT @ keep.mT) / slope[:, None], monomials, scale)


def complement(multiples: list[Tensor], count: int, like: Tensor) -> Tensor:
    """An orthonormal basis of the coefficients that are orthogonal to all multiples: (count, q)."""
    if not multiples:
        return torch.eye(count, dtype=like.dtype)
    _, s, Vh = torch.linalg.svd(torch.cat(multiples), full_matrices=True)
    return Vh[int((s > 1e-9 * s[0]).sum()) :].mT


def _moments(w: Tensor, monomials: Monomials, scale: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    """R with R^T R = A, and B, on the basis `keep`."""
    q = keep.shape[1]
    R, B = keep.new_zeros(0, q), keep.new_zeros(q, q)
    lower = monomials.ends[max(monomials.degree - 1, 0)]
    D = (monomials.gradients(keep.mT.contiguous()) / scale[:, None]).permute(1, 2, 0)  # (n, count', q)
    for part in w.split(CHUNK):
        m = monomials(part / scale)
        R = torch.linalg.qr(torch.cat([R, m @ keep]), mode="r").R
        gram = m[:, :lower].mT @ m[:, :lower]
        B += torch.einsum("jaq,jar->qr", D, gram @ D)
    return R / len(w) ** 0.5, B / len(w)


def residual(p: Polynomials, w: Tensor) -> Tensor:
    """|p(w)|, about the distance to the common zeros: (rows,)."""
    return torch.cat([p.values(part).norm(dim=1) for part in w.split(CHUNK)])


def codimension(p: Polynomials, w: Tensor, tau: Tensor) -> int:
    """Rank of the Jacobian at the samples: the widest gap of its singular values, by their medians.

    What is below ten times the residual cannot be told from zero: at noisy points tangent directions get that much.
    """
    s = torch.linalg.svdvals(p.jacobian(w[:1000])).median(0).values
    s = torch.cat([s, s.new_zeros(w.shape[1] + 1 - len(s))])
    s = s.clamp(min=float(s[0]) * min(0.3, max(1e-6, 10 * float(tau.max()))))
    return int((s[:-1] / s[1:]).argmax()) + 1


def consensus(w: Tensor, degree: int, scale: Tensor, known: tuple[Polynomials, ...], generator: torch.Generator) -> Tensor:
    """Which samples most of the others agree with, (N,): the fit with the widest gap that three quarters of the samples allow.

    From all samples, and from small random subsets that may have met no outlier; each is refitted a few times to the three
    quarters with the smallest residual. In the end everything within ten times their residual belongs.
    """
    count, N = Monomials.count(w.shape[1], degree), len(w)
    most = w[torch.randperm(N, generator=generator)[:POLLED]]
    starts = [most] + [
        most[torch.randperm(len(most), generator=generator)[: min(count + count // 2 + 5, 2 * len(most) // 3)]]
        for _ in range(15 * (len(most) >= 2 * count))
    ]
    best, agreed, numbers = None, 0.0, []
    for start in starts:
        for _ in range(3):
            found = spectrum(start, degree, scale, known)
            r, gap = found.gaps(0.3)[0] if found.gaps(0.3) else (0, 0.0)
            if not r:
                break
            p = found.take(r)
            e = residual(p, most)
            start = most[e <= e.quantile(0.75)]
        else:
            numbers.append(r)
            if gap > 1.5 * agreed:
                best, agreed = p, gap
        if len(numbers) == 4 and len(set(numbers)) == 1 and agreed > 1e5:
            break  # all say the same, without doubt
    if best is None:
        return torch.ones(N, dtype=torch.bool)
    e = residual(best, w)
    usual = e[e <= e.quantile(0.75) if N <= CHUNK else e <= e[:CHUNK].quantile(0.75)].square().mean().sqrt()
    return e <= 10 * usual.clamp(min=1e-10)
