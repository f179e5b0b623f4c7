"""From samples to an `Algebraic` set: which polynomials, which inequality, which combinations of them near every sample."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from .algebraic import Algebraic, combinations
from .base import EPS
from .christoffel import region
from .polynomials import Monomials, Polynomials
from .samples import Samples
from .vanishing import Spectrum, codimension, consensus, residual, spectrum

STARTS = 3_000  # samples kept to start Newton's method
MOST = 400  # monomials
EXACT = 1e3  # a gap this wide is no accident


@dataclass(frozen=True)
class Plan:
    """How to build the set: r polynomials of each (degree, r), their codimension, an inequality of degree 2 `inner` (0: none)."""

    steps: tuple[tuple[int, int], ...] = ()
    codim: int = 0
    inner: int = 0
    share: float = 1.0  # of the samples that the inequality holds on

    @property
    def degree(self) -> int:
        """The highest degree of the plan's equations, 0 if it has none."""
        return max([d for d, _ in self.steps], default=0)

    @property
    def cost(self) -> tuple:
        """Simple plans first."""
        return (self.degree, self.inner, -self.share)

    def __str__(self) -> str:
        many = [f"{r} of degree {d}" for d, r in self.steps]
        words = [f"equations: {' and '.join(many)}, codimension {self.codim}"] if many else []
        words += [f"inequality of degree {2 * self.inner}"] if self.inner else []
        words += [f"on {self.share:.1%} of the samples"] if self.share < 1 else []
        return ", ".join(words) or "everything"


def equations(w: Tensor, plan: Plan, scale: Tensor) -> tuple[Polynomials, Tensor, tuple[Polynomials, ...]]:
    """The plan's polynomials fitted to w: all on one set of monomials, their tau, and as they were found."""
    found: tuple[Polynomials, ...] = ()
    tau = [w.new_zeros(0)]
    for degree, r in plan.steps:
        s = spectrum(w, degree, scale, found)
        found += (s.take(r),)
        tau.append(s.tau[:r])
    monomials = Monomials(w.shape[1], plan.degree)
    C = torch.cat([w.new_zeros(0, len(monomials))] + [F.pad(p.C, (0, len(monomials) - p.C.shape[1])) for p in found])
    return Polynomials(C, monomials, scale), torch.cat(tau), found


def build(data: Samples, w: Tensor, plan: Plan) -> Algebraic:
    """The set, with its starting samples on it."""
    scale = data.scale
    p, tau, found = equations(w, plan, scale)
    inside = boundary(w, plan, scale, found) if plan.inner else w.new_zeros(0, 1)
    tolerance = max(1e-9, 1e-3 * float(tau.max()) if len(tau) else 0.0)
    common = (data.shape, data.center, data.frame, scale)
    if plan.inner:
        f = Polynomials(inside, Monomials(w.shape[1], plan.inner), scale).values(w).square().sum(1)
        w = w[f <= 1 + 1e-12]
    starts = w[:STARTS]
    if not len(starts):
        raise ValueError(f"no sample satisfies the inequality of degree {2 * plan.inner}")
    for _ in range(2 if plan.steps else 1):
        W = combinations(p, tau, starts, plan.codim)
        M = Algebraic(*common, starts, p.C, tau, W, inside, plan.degree, plan.inner, data.unit, tolerance)
        if plan.steps:
            starts = M._newton(starts, starts, torch.arange(len(starts)), None, starts.new_full((len(starts),), EPS), starts)
    return M


def boundary(w: Tensor, plan: Plan, scale: Tensor, found: tuple[Polynomials, ...]) -> Tensor:
    """The inequality around the plan's share of the samples; the outermost leave in two rounds, since they bend the first fit."""
    monomials = Monomials(w.shape[1], plan.inner)
    for _ in range(2 if plan.share < 1 else 0):
        f = Polynomials(region(w, plan.inner, scale, found), monomials, scale).values(w).square().sum(1)
        w = w[f.argsort()[: math.ceil(math.sqrt(plan.share) * len(w))]]
    return region(w, plan.inner, scale, found)


# --- what there is to try --------------------------------------------------------------------------------------
def highest(n: int, N: int) -> int:
    """Degree: at most 400 monomials, a third as many as samples, and 10."""
    fits = [k for k in range(1, 11) if Monomials.count(n, k) <= min(MOST, N // 3) or (k == 2 and Monomials.count(n, k) <= N)]
    return max(fits, default=0)


def inliers(w: Tensor, scale: Tensor, top: int, generator: torch.Generator) -> Tensor:
    """Rows that belong, (N,), by the first degree at which most samples agree on equations while some refuse."""
    everything = torch.ones(len(w), dtype=torch.bool)
    best, mask = 1.0, everything
    for degree in range(2, min(top, 4) + 1):
        s = spectrum(w, degree, scale)
        before = s.gaps(0.3)[0] if s.gaps(0.3) else (0, 1.0)
        quiet = False
        if before[0]:
            e = residual(s.take(before[0]), w)
            quiet = float(e.max()) <= 6 * float(e[e <= e.median()].square().mean().sqrt()) + 1e-10
        # equations may hold for a few outliers by chance, or badly for all: quiet is not enough, but asking again costs time
        if quiet and (20 < before[1] < EXACT or len(s.tau) > 120):
            return everything if before[1] > 20 else mask
        found = consensus(w, degree, scale, (), generator)
        after = spectrum(w[found], degree, scale).gaps(0.3) if 0 < int((~found).sum()) <= 0.3 * len(w) else []
        if not after or (quiet and before[1] < EXACT and after[0][1] <= EXACT):
            if quiet:
                return mask
            continue
        more = after[0][1] > EXACT and after[0][0] > before[0]
        if more or (after[0][1] > 3 * before[1] and after[0][1] > 5 * best):
            best, mask = after[0][1], found
        if best > EXACT:
            break
    return mask


def ladder(w: Tensor, scale: Tensor, codim: int, top: int) -> list[Plan]:
    """Plans with equations, degree by degree; codim: what local dimension estimates expect."""
    plans: list[Plan] = []
    known: tuple[tuple[int, int], ...] = ()
    found: tuple[Polynomials, ...] = ()
    best, idle = math.inf, 0
    for degree in range(2, top + 1):
        s = spectrum(w, degree, scale, found)
        idle = idle + 1 if float(s.tau[0]) > 0.7 * best else 0
        best = min(best, float(s.tau[0]))
        if idle > 2:  # higher degrees have stopped to come nearer: what is left is noise
            break
        plans += _at(s, w, codim, known)
        gaps = s.gaps(0.2)
        if not gaps or gaps[0][1] < 10:
            continue
        r = gaps[0][0]
        own = codimension(s.take(r), w, s.tau[:r])
        if known:
            joint = Polynomials(
                torch.cat([F.pad(p.C, (0, s.C.shape[1] - p.C.shape[1])) for p in found] + [s.C[:r]]), s.monomials, scale
            )
            own = codimension(joint, w, s.tau[:r])
        known, found = (*known, (degree, r)), (*found, s.take(r))
        if own >= codim:
            break
    return list(dict.fromkeys(plans))


def _at(s: Spectrum, w: Tensor, codim: int, known: tuple[tuple[int, int], ...]) -> list[Plan]:
    """As many equations as the widest gap tells, and as few as the codimension needs."""
    degree, others = s.monomials.degree, sum(r for _, r in known)
    plans = []
    for r, gap in s.gaps(0.2)[:1]:
        if gap < 1.5 or r > 200:
            continue
        own = codim if known else codimension(s.take(r), w, s.tau[:r])
        plans += [Plan((*known, (degree, r)), c) for c in sorted({own, codim}) if 0 < c <= min(w.shape[1], r + others)]
    for r in sorted({codim - others, codim, 2 * codim if codim > 1 else 0}):
        if 0 < r < len(s.tau) and float(s.tau[r - 1]) <= 0.1 and codim <= r + others:
            plans.append(Plan((*known, (degree, r)), codim))
    return plans


def regions(n: int, N: int, steps: Plan) -> list[Plan]:
    """The plan's equations with inequalities of several degrees."""
    degrees = [k for k in (1, 2, 3, 4) if Monomials.count(n, k) <= min(60, N // 20)] or [1]
    shares = (1.0, 0.99, 0.97) if N >= 300 else (1.0,)
    return [replace(steps, inner=k, share=share) for k in degrees for share in (shares if k <= 2 else (1.0,))]
