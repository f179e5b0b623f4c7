"""From samples to an `Algebraic` set: which polynomials, which inequality, which combinations of them near every sample."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from .algebraic import Algebraic
from .christoffel import region
from .near import combinations
from .polynomials import Monomials, Polynomials
from .samples import Samples
from .vanishing import EXACT, Spectrum, codimension, spectrum

STARTS = 3_000  # samples kept to start Newton's method
MOST = 400  # monomials
MANY = 200  # equations of one degree
SOON = 150  # monomials of the degree that is looked at for more equations when there are enough
FINE = 1e-4  # tau of samples without noise: where there is no exact equation yet, higher degrees come nearer
LIKE_ZERO = 1e-8  # tau
LEAST_SHARE = 0.97  # of the samples that an inequality holds on
STORED = 2e7  # numbers that the combinations near all starting samples may take


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
    starts = w[: max(100, min(STARTS, int(STORED / (len(tau) * max(plan.codim, w.shape[1]) + 1))))]
    if not len(starts):
        raise ValueError(f"no sample satisfies the inequality of degree {2 * plan.inner}")
    for _ in range(2 if plan.steps else 1):
        W = combinations(p, tau, starts, plan.codim)
        M = Algebraic(*common, starts, p.C, tau, W, inside, plan.degree, plan.inner, data.unit, tolerance)
        if plan.steps:
            starts = M.settled(starts)
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


def ladder(w: Tensor, scale: Tensor, codim: int, top: int) -> list[Plan]:
    """Plans with equations, degree by degree; codim: what local dimension estimates expect.

    Where there are exact equations of the right codimension, one more degree is looked at: a curve that is all that two cubics
    have in common with a few quartics may be only a part of what the cubics have in common.
    """
    plans: list[Plan] = []
    known: tuple[tuple[int, int], ...] = ()
    found: tuple[Polynomials, ...] = ()
    best, idle, enough = math.inf, 0, False
    for degree in range(2, top + 1):
        s = spectrum(w, degree, scale, found)
        if not len(s.tau):
            break
        if enough:
            more = s.gaps(0.2)[:1]
            if more and more[0][1] > EXACT and float(s.tau[0]) < LIKE_ZERO:
                plans[-1] = Plan((*known, (degree, more[0][0])), plans[-1].codim)
            break
        idle = idle + 1 if float(s.tau[0]) > 0.7 * best else 0
        best = min(best, float(s.tau[0]))
        if idle > 2:  # higher degrees have stopped to come nearer: what is left is noise
            break
        gaps = s.gaps(0.2)
        r, gap = gaps[0] if gaps else (0, 0.0)
        own = codimension(_joint(found, s, r), w, s.tau[:r]) if r else 0
        plans += _at(s, codim, own, gap, r, known)
        if gap < 10 or (gap < EXACT and float(s.tau[r - 1]) < FINE):  # the latter is neither noise nor exact
            continue
        known, found = (*known, (degree, r)), (*found, s.take(r))
        if own >= codim:
            enough = own > 1 and gap > EXACT and Monomials.count(w.shape[1], degree + 1) <= SOON
            if not enough:
                break
    return list(dict.fromkeys(plans))


def _joint(found: tuple[Polynomials, ...], s: Spectrum, r: int) -> Polynomials:
    """The equations found before and r new ones, on one set of monomials."""
    C = [F.pad(p.C, (0, s.C.shape[1] - p.C.shape[1])) for p in found]
    return Polynomials(torch.cat([*C, s.C[:r]]), s.monomials, s.scale)


def _at(s: Spectrum, codim: int, own: int, gap: float, r: int, known: tuple[tuple[int, int], ...]) -> list[Plan]:
    """As many equations as the widest gap tells, and as few as the codimension needs.

    own: the rank of all equations up to the gap. An exact gap leaves no doubt about them: then it is the codimension, whatever
    local estimates expect, and fewer equations would only have more zeros.
    """
    degree, others, n = s.monomials.degree, sum(k for _, k in known), s.monomials.n
    if gap > EXACT and own >= codim:
        return [Plan((*known, (degree, r)), own)]
    plans = []
    if gap >= (1.5 if r <= 10 else 3.0) and r <= MANY:  # many equations that hardly stand out take long and are noise
        plans += [Plan((*known, (degree, r)), c) for c in sorted({own, codim}) if 0 < c <= min(n, r + others)]
    for k in sorted({codim - others, codim, 2 * codim if codim > 1 else 0}):
        if 0 < k < len(s.tau) and float(s.tau[k - 1]) <= 0.1 and codim <= k + others:
            plans.append(Plan((*known, (degree, k)), codim))
    return plans


def regions(n: int, N: int, steps: Plan, top: int = 4) -> list[Plan]:
    """The plan's equations with inequalities of several degrees, up to 2 top."""
    degrees = [k for k in range(1, top + 1) if Monomials.count(n, k) <= min(70, N // 20)] or [1]
    shares = (1.0, 0.99, LEAST_SHARE) if N >= 300 else (1.0,)
    return [replace(steps, inner=k, share=share) for k in degrees for share in (shares if k <= 2 else (1.0,))]
