"""`Trial`: candidates, each fitted to the training samples and judged on the others with the same noise."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from ..kernels.vectors import norm
from . import rules, thresholds
from .algebraic import Algebraic
from .alpha import MOST, AlphaShape
from .base import LearnedSet
from .candidate import Candidate
from .graphs import beyond, missing, nearest_samples
from .heat import Heat
from .hull import Hull
from .local import Local
from .outliers import rarity
from .pieces import pieces
from .plans import LEAST_SHARE, Plan, build, highest, ladder, regions
from .polynomials import Monomials
from .samples import Samples
from .tangents import Tangent
from .within import Within

PROBES = 8_000  # random points that measure volumes
GRAPHS = ((2, 3), (2, 10), (2, 30), (4, 3), (4, 10))  # degree, and neighbours for every coefficient
SMOOTHER = (2, 100)  # where there is noise
DRAWN = (2, 3)  # dimensions in which hulls and alpha shapes are made


class Trial:
    """The samples, what is held out of them, and the candidates so far."""

    def __init__(self, data: Samples, tangent: Tangent, generator: torch.Generator):
        self.data, self.n, N = data, data.w.shape[1], len(data.w)
        self.dim, self.tangent = tangent.dim, tangent
        held = min(max(N // 5, 10), thresholds.JUDGES)
        self.train, val = data.w[held : held + thresholds.ENOUGH], data.w[:held]
        self.seen = data.w[: held + thresholds.ENOUGH]
        self.unused = data.lift(data.w[len(self.seen) :][:MOST])
        self.y = data.lift(val)
        self.sigmas = [s * data.unit for s in rules.sigmas(data.fine, tangent.noise)]
        self.shift = torch.randn(len(self.sigmas), *self.y.shape, generator=generator, dtype=torch.float64)
        self.generator = generator
        u = 2 * torch.rand(PROBES, self.n, generator=generator, dtype=torch.float64) - 1
        self.inner = 1.1 * u * data.scale
        self.probes = data.lift(self.inner)
        self.candidates: list[Candidate] = []
        self.chosen: Candidate
        self.support: str

    @cached_property
    def missing(self) -> Tensor:
        """How many samples the empty balls around the probes should have held; where that tells something, else 0."""
        if self.n > thresholds.LOW:
            return torch.zeros(PROBES, dtype=torch.float64)
        return missing(self.inner, self.seen, crowds=pieces(self.seen) is not None)

    def spacing(self) -> float:
        """How far a held-out sample is from the nearest of the others, by the median."""
        x = self.data.lift(self.train)
        return float(norm(self.y - x[nearest_samples(x, self.y, 1)]).median())

    def run(self, method: str, support: str) -> Trial:
        """Try every candidate of the method, cheap ones first, and choose."""
        self.support = support
        for c in self.worth_trying(method):
            self.judge(c)
        self.spare_outliers()
        self.chosen = self.settled()
        if self.chosen.graph is not None and len(self.seen) < len(self.data.w):
            self.chosen = self.grown(*self.chosen.graph)
        if self.chosen.region and not rules.is_sharp(self, self.chosen):
            self.chosen.sharp = False
            if support == "closure" and method not in ("hull", "alpha"):
                self.chosen = self.polynomial(Plan())
                self.judge(self.chosen)
        if support == "sampled" and self.chosen.plan is not None and not self.chosen.region:
            self.restrict(self.chosen.plan)
        return self

    def settled(self) -> Candidate:
        """The best candidate, unless it is a region that closes a hole as soon as it is fitted to all samples; then the next."""
        while True:
            c = rules.choose(self)
            others = [o for o in self.candidates if o is not c and o.region and o.rest is not None]
            if not c.region or rules.is_hole(c.hole, len(self.seen)) or not others:
                return c
            c.hole = self.emptiest(c.build(self.data.w).leaves(self.probes))[0]
            if not rules.is_hole(c.hole, len(self.seen)):
                return c

    def worth_trying(self, method: str) -> Iterator[Candidate]:
        """Candidates one after the other; what was judged before decides what still is worth the time."""
        if method in ("auto", "algebraic") and self.n > 1:
            codim, top = self.n - self.dim, highest(self.n, len(self.train))
            if not codim and self.n in DRAWN:  # noise may have hidden a curve or a surface from its neighbourhoods
                codim, top = 1, min(top, thresholds.HIDDEN)
            for plan in ladder(self.train, self.data.scale, codim, top):
                if rules.is_settled(self, plan.degree):
                    break
                yield self.polynomial(plan)
                if rules.is_perfect(self, self.candidates[-1]):
                    return
        if method in ("auto", "local"):
            for c in self.graphs():
                if rules.is_beaten(self):
                    break
                yield c
        thin = rules.is_thin(self)
        if method == "heat" or (method == "auto" and not thin):
            yield Candidate("heat", "mean of the samples under a heat kernel", (9,), self.heat, self.dim)
        solid = not thin and method in ("auto", "algebraic")
        if solid:
            bounded = method == "auto" and self.n in DRAWN  # there an alpha shape follows the boundary better than high degrees
            plans = regions(self.n, len(self.train), Plan(), 2 if bounded else 4)
            yield from (self.polynomial(plan) for plan in plans if plan.share == 1)
        if method == "hull" or (solid and self.n in DRAWN):
            yield self.hull(widened=method != "hull")
        if method == "alpha" or (method == "auto" and solid and self.n in DRAWN):
            yield self.alpha()
        whole = self.sound(region=True)
        if solid and whole and rules.tightest(self, whole).method != "alpha":  # what has bays needs no trimmed ellipse
            for plan in plans:
                same = next(c for c in self.candidates if c.plan == replace(plan, share=1.0))
                if plan.share < 1 and not (same.deep and rules.is_hole(same.hole, len(self.seen))):
                    yield self.polynomial(plan)  # on fewer samples, unless that would leave a hole open

    def sound(self, region: bool) -> list[Candidate]:
        """The candidates that could be fitted: regions, or sets without volume."""
        return [c for c in self.candidates if c.rest is not None and c.region == region]

    def distance(self) -> float:
        """Of the held-out samples from the chosen set, by their median; inf for a region without sharp boundary."""
        if self.chosen.rest is None or (self.chosen.region and not self.chosen.sharp):
            return math.inf
        return math.sqrt(float(self.chosen.rest.median()))

    def thickness(self, c: Candidate) -> float:
        """The dimension without what noise adds to the risk: |P(y + sigma n) - y|^2 grows from sigma = 0 on by dim sigma^2.

        From 0 and not from the other sigma: that one is as large as curvature allows, and the difference would be curvature's.
        """
        assert c.rest is not None
        return c.score()[0] - float(c.rest.mean()) / self.sigmas[0] ** 2

    @torch.no_grad()
    def left(self, c: Candidate) -> Tensor:
        """|P(x) - x|^2 of held-out samples, and of as many others as are looked at: the law of the noise needs many."""
        assert c.rest is not None
        if c.left is None:
            x = self.data.lift(self.train[: thresholds.LEFT - len(self.y)])
            c.left = torch.cat([c.rest, _squares(c.build(self.train).foot(x) - x)])
        return c.left

    @torch.no_grad()
    def around(self, c: Candidate) -> Tensor:
        """|P(u) - u|^2 of the probes; inf where P(u) is farther from every sample than these are from their tenth neighbours."""
        if c.around is None:
            feet = c.build(self.train).foot(self.probes)
            c.around = torch.where(beyond(feet, self.data.lift(self.seen)), torch.inf, _squares(feet - self.probes))
        return c.around

    def why_nothing_fits(self) -> str:
        """The words of the error."""
        full = self.dim == self.n and not self.candidates
        none = "they fill all dimensions; use method='algebraic'" if full else "too few samples for any method"
        reasons = "; ".join(f"{c.title}: {c.failure}" for c in self.candidates) or none
        return f"fit asked for samples of a set, but nothing fits these {len(self.data.w)}: {reasons}."

    # --- candidates --------------------------------------------------------------------------------------
    def polynomial(self, plan: Plan) -> Candidate:
        """The candidate of a plan of polynomials."""
        dim, solid = self.n - plan.codim, not plan.steps
        return Candidate("algebraic", str(plan), (1, *plan.cost), lambda w: build(self.data, w, plan), dim, plan, solid)

    def graphs(self) -> list[Candidate]:
        """Candidates of moving least squares: two degrees, several sizes of neighbourhoods."""
        found, noisy = [], self.tangent.noise > 0.3 * thresholds.SIGMAS[0] * self.data.fine
        for degree, factor in (*GRAPHS, *([SMOOTHER] if noisy else [])):
            k = factor * Monomials.count(self.dim, degree)
            if 0 < self.dim < self.n and k <= min(len(self.train) // 4, 600):
                found.append(self.graph(degree, k))
        return found

    def graph(self, degree: int, k: int) -> Candidate:
        """The candidate of moving least squares over k neighbours."""
        title = f"moving least squares of degree {degree} over {k} neighbours, dimension {self.dim}"
        build = lambda w: self._embed(Local.fit(w, (w.shape[1],), self.dim, k, degree))  # noqa: E731
        return Candidate("local", title, (5, degree, -k), build, self.dim, graph=(degree, k))

    def grown(self, degree: int, k: int) -> Candidate:
        """Graphs that a part of the samples chose, on all: over as many neighbours, as wide as before, or between the two."""
        part = len(self.train)
        self.train = self.data.w[len(self.seen) - part :]
        found = [self.graph(degree, round(k * (len(self.train) / part) ** power)) for power in (0, 0.5, 1)]
        for c in found:
            self.judge(c)
        found = [c for c in found if c.rest is not None]
        return rules.thinnest(self, found) if found else self.chosen

    def hull(self, widened: bool) -> Candidate:
        """The candidate of a convex hull; whoever asks for the hull by name gets no more than that."""
        build = lambda w: self._embed(Hull.fit(w).widened(len(w)) if widened else Hull.fit(w))  # noqa: E731
        return Candidate("hull", "convex hull", (1, 0, 1.5), build, self.n, region=True)

    def alpha(self) -> Candidate:
        """The candidate of an alpha shape. Between equals, ellipsoids, rings and hulls come first."""
        build = lambda w: self._embed(AlphaShape.fit(w).widened(min(len(w), MOST)))  # noqa: E731
        return Candidate("alpha", "alpha shape", (1, 0, 2.5), build, self.n, region=True)

    def heat(self, w: Tensor) -> LearnedSet:
        """A heat kernel fitted to w, in the coordinates of the samples."""
        return self._embed(Heat.fit(w, (w.shape[1],), torch.Generator().manual_seed(0)))

    def _embed(self, M: LearnedSet) -> LearnedSet:
        return Within(M, self.data.shape, self.data.center, self.data.frame, self.data.unit)

    # --- judgement ---------------------------------------------------------------------------------------
    def judge(self, c: Candidate) -> None:
        """Fit a candidate to the training samples and measure it on the others. One that cannot be fitted says why."""
        start = time.perf_counter()
        self.candidates.append(c)
        try:
            self._measure(c, c.build(self.train))
        except (ValueError, RuntimeError) as error:
            c.rest, c.risk, c.failure = None, (), str(error)
        if c.rest is not None and not all(bool(torch.isfinite(t).all()) for t in (*c.risk, c.rest)):
            c.rest, c.risk, c.failure = None, (), "not finite"
        c.seconds = time.perf_counter() - start

    @torch.no_grad()
    def _measure(self, c: Candidate, M: LearnedSet) -> None:
        moved = [M.foot(self.y + s * e) for s, e in zip(self.sigmas, self.shift, strict=True)]
        c.risk = tuple(_squares(m - self.y) / s**2 for s, m in zip(self.sigmas, moved, strict=True))
        c.rest = _squares(M.foot(self.y) - self.y)
        if c.region:
            c.covered, c.more = M.leaves(self.probes), ~M.leaves(self.unused)
            c.hole, where = self.emptiest(c.covered)
            if c.plan is not None and c.plan.share < 1:
                inside = M.leaves(self.data.lift(self.seen))
                if not inside.all() and float(rarity(self.seen, inside).max()) > thresholds.RARE:
                    raise ValueError("where it leaves samples out, others are rare as well: they are no noise")
            if isinstance(M, Algebraic) and len(M.F):
                c.deep = float(M.level(where)) <= float(M.level(self.y).quantile(LEAST_SHARE))

    def emptiest(self, inside: Tensor) -> tuple[float, Tensor]:
        """How many samples the emptiest of the balls around these probes should have held, and its centre (1, d)."""
        held = torch.where(inside, self.missing, 0.0)
        worst = int(held.argmax())
        return float(held[worst]), self.probes[worst][None]

    def spare_outliers(self) -> None:
        """Held-out samples that no candidate comes near would only add noise to the comparison."""
        sound = self.sound(region=False)
        if not sound:
            return
        best = min((c.rest for c in sound if c.rest is not None), key=lambda rest: float(rest.median()))
        keep = best <= 100 * best.median() + (1e-3 * self.data.unit) ** 2
        if int(keep.sum()) >= 0.9 * len(keep):  # more than that are no outliers, but part of the set
            self.y, self.shift = self.y[keep], self.shift[:, keep]
            for c in self.candidates:
                if c.rest is not None:
                    c.rest, c.risk = c.rest[keep], tuple(r[keep] for r in c.risk)

    @torch.no_grad()
    def restrict(self, plan: Plan) -> None:
        """Add an inequality to the chosen equations where it cuts off more of them than of the samples.

        Probes are noise projected on the equations, held-out samples are projected, too: what the equations leave of them is
        noise, and says nothing about the boundary. Without inequality all of them are inside.
        """
        whole, data = self.chosen, self.data
        M = whole.build(self.train)
        noise = torch.randn(self.probes.shape, generator=self.generator, dtype=torch.float64) @ data.frame @ data.frame.mT
        probes = M.foot(data.center + 2 * data.unit / math.sqrt(self.n) * noise)
        feet = M.foot(self.y)
        whole.covered, whole.missed = torch.ones(len(probes), dtype=torch.bool), torch.zeros(len(feet), dtype=torch.bool)
        tried = [whole]
        for p in regions(self.n, len(self.train), plan):
            c = replace(self.polynomial(p), risk=whole.risk, rest=whole.rest)
            self.candidates.append(c)
            try:
                inside = build(data, self.train, p)
            except (ValueError, RuntimeError) as error:
                c.failure, c.rest, c.risk = str(error), None, ()
                continue
            c.covered, c.missed = inside.satisfies(probes), ~inside.satisfies(feet)
            tried.append(c)
        self.chosen = rules.tightest(self, tried)


def _squares(x: Tensor) -> Tensor:
    return x.square().sum(1)
