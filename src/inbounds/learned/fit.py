"""`fit`: a set from samples of it. Candidates are built on four fifths of the samples and judged on the rest."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from .base import LearnedSet
from .describe import describe
from .heat import Heat
from .hull import Hull
from .local import Local, tangent_dimension
from .plans import Plan, build, highest, inliers, ladder, regions
from .polynomials import Monomials
from .samples import Samples, prepare
from .within import Within

METHODS = ("auto", "algebraic", "local", "heat", "flow", "flow-own-time")
SUPPORTS = ("closure", "sampled")
SIGMAS = (0.03, 0.1)  # of the set's size
JUDGES = 1_000  # held-out samples
SLACK = 1.05
THICK = 1e-7  # a set that is flatter than this is flat
PROBES = 5_000  # random points that measure volumes
SHELL = 0.2  # of a region's volume


def fit(samples, method: str = "auto", support: str = "closure", generator: torch.Generator | None = None) -> LearnedSet:
    """The set that samples (N, *shape) were drawn from, N from 20 to a million, with noise and outliers.

    method: "algebraic" (polynomial equations and inequalities), "local" (moving least squares), "heat" (heat-kernel mean), "flow"
    (flow matching as in the paper; minutes), "flow-own-time" (the same, each point from its own time), or "auto": the first
    three, whichever denoises held-out samples best.
    support: where equations are found, "closure" is all that satisfies them, "sampled" the part that samples came from.

    `M.report()` says what was found. ValueError if nothing fits.
    """
    _check(method, support)
    start = time.perf_counter()
    g = torch.Generator().manual_seed(0) if generator is None else generator
    data = prepare(samples, g)
    if method.startswith("flow"):
        from .flow_fit import fit_flow

        x = data.lift(data.w).reshape(-1, *data.shape)
        M = fit_flow(x, generator=g, own_time=method == "flow-own-time")
        M.info |= describe(M, data, [], None, time.perf_counter() - start)
        return M
    tried = examined(data, method, support, g)
    if data.flat > THICK * data.unit:  # noise around a subspace, or a thin set?
        other = prepare(samples, g, flatten=False)
        thicker = examined(other, method, support, g)
        if thicker.distance() < 0.1 * data.flat:
            data, tried = other, thicker
    M = tried.chosen.build(data.w)
    M.info |= describe(M, data, tried.candidates, tried.chosen, time.perf_counter() - start)
    M.reach = M.info["reach"]
    return M.eval()


def examined(data: Samples, method: str, support: str, generator: torch.Generator) -> Trial:
    """Without the samples that most others disagree with."""
    top = highest(data.w.shape[1], len(data.w))
    if top >= 2 and method != "heat":
        keep = inliers(data.w, data.scale, top, generator)
        data.strays += int((~keep).sum())
        data.w = data.w[keep]
    return Trial(data, generator).run(method, support)


def _check(method: str, support: str) -> None:
    if method not in METHODS:
        raise ValueError(f"fit asked for a method among {', '.join(METHODS)}, got {method!r}.")
    if support not in SUPPORTS:
        raise ValueError(f"fit asked for support 'closure' or 'sampled', got {support!r}.")


@dataclass(eq=False)
class Candidate:
    """One way to fit; judged by what it does to held-out samples y."""

    method: str
    title: str
    cost: tuple
    build: Callable[[Tensor], LearnedSet]
    region: bool = False  # full-dimensional
    risk: tuple[Tensor, ...] = ()  # |P(y + sigma n) - y|^2 / sigma^2 per sample, for each sigma
    rest: Tensor | None = None  # |P(y) - y|^2 per sample
    covered: Tensor | None = None  # regions: which probes lie inside
    beyond: Tensor | None = None  # what the inequality adds to rest
    sharp: bool = True  # regions: whether samples end at the boundary, rather than thin out
    seconds: float = 0.0
    failure: str = ""

    def score(self) -> tuple[float, ...]:
        """The mean of every risk, in the order in which candidates are compared."""
        return tuple(float(r.mean()) for r in self.risk)


class Trial:
    """Candidates, each fitted to the training samples and judged on the others with the same noise."""

    def __init__(self, data: Samples, generator: torch.Generator):
        self.data, N = data, len(data.w)
        held = min(max(N // 5, 10), JUDGES)
        self.train, val = data.w[held:], data.w[:held]
        self.y = data.lift(val)
        self.sigmas = [s * data.fine * data.unit for s in SIGMAS]
        self.noise = torch.randn(len(SIGMAS), *self.y.shape, generator=generator, dtype=torch.float64)
        self.generator = generator
        u = 2 * torch.rand(PROBES, data.w.shape[1], generator=generator, dtype=torch.float64) - 1
        self.probes = data.lift(1.1 * u * data.scale)
        self.candidates: list[Candidate] = []
        self.chosen: Candidate

    def run(self, method: str, support: str) -> Trial:
        """Try every candidate of the method, cheap ones first."""
        data, n = self.data, self.data.w.shape[1]
        dim = tangent_dimension(self.train, self.generator) if n > 1 else n
        self.dim = dim
        if method in ("auto", "algebraic") and n > 1:
            for plan in ladder(self.train, data.scale, n - dim, highest(n, len(self.train))):
                self.judge(self.algebraic(plan))
                if self.candidates[-1].rest is not None and self._perfect(self.candidates[-1], n - dim):
                    break
        exact = any(self._perfect(c, n - dim) for c in self.candidates if c.rest is not None)
        if method in ("auto", "local") and not exact:
            for c in self.local(dim):
                self.judge(c)
        if method in ("auto", "heat") and not exact:
            self.judge(Candidate("heat", "mean of the samples under a heat kernel", (9,), self.heat))
        thin = any(c.risk and c.method != "heat" and c.score()[0] < max(0.9 * n, n - 0.5) for c in self.candidates)
        if method in ("auto", "algebraic") and not thin:
            for c in self.full():
                self.judge(c)
        self.drop_outliers()
        self.chosen = self.choose(method)
        if self.chosen.region and not self.is_sharp(self.chosen):
            self.chosen.sharp = False
            if support == "closure":
                self.chosen = self.algebraic(Plan())
                self.judge(self.chosen)
        if support == "sampled" and self.chosen.method == "algebraic" and not self.chosen.region:
            self.restrict()
        return self

    def distance(self) -> float:
        """Of the held-out samples from the chosen set, by their median."""
        if self.chosen.rest is None or self.chosen.region:
            return math.inf
        return math.sqrt(float(self.chosen.rest.median()))

    # --- candidates --------------------------------------------------------------------------------------
    def algebraic(self, plan: Plan) -> Candidate:
        """The candidate of a plan of polynomials."""
        return Candidate("algebraic", str(plan), (1, *plan.cost), partial(build, self.data, plan=plan), region=not plan.steps)

    def local(self, dim: int) -> list[Candidate]:
        """Candidates of moving least squares of that dimension: two degrees, several sizes of neighbourhoods."""
        n, N = self.data.w.shape[1], len(self.train)
        found = []
        for degree, factor in ((2, 3), (2, 10), (2, 30), (4, 3), (4, 10)):
            count = Monomials.count(dim, degree)
            k = factor * count
            if 0 < dim < n and k <= min(N // 4, 600):
                title = f"moving least squares of degree {degree} over {k} neighbours, dimension {dim}"
                found.append(Candidate("local", title, (5, degree, -factor), partial(self._local, dim, k, degree)))
        return found

    def _local(self, dim: int, k: int, degree: int, w: Tensor) -> LearnedSet:
        return self._embed(Local.fit(w, (w.shape[1],), dim, k, degree))

    def heat(self, w: Tensor) -> LearnedSet:
        """A heat kernel fitted to w, in the coordinates of the samples."""
        return self._embed(Heat.fit(w, (w.shape[1],), torch.Generator().manual_seed(0)))

    def full(self) -> list[Candidate]:
        """Regions of full dimension."""
        n, N = self.data.w.shape[1], len(self.train)
        found = [self.algebraic(plan) for plan in regions(n, N, Plan())]
        if n in (2, 3):
            found.append(Candidate("hull", "convex hull", (1, 0, 1.5), lambda w: self._embed(Hull.fit(w)), region=True))
        return found

    def _embed(self, M: LearnedSet) -> LearnedSet:
        return Within(M, self.data.shape, self.data.center, self.data.frame, self.data.unit)

    # --- judgement ---------------------------------------------------------------------------------------
    def judge(self, c: Candidate) -> None:
        """Fit a candidate to the training samples and measure it on the others. One that cannot be fitted says why."""
        start = time.perf_counter()
        self.candidates.append(c)
        try:
            M = c.build(self.train)
            with torch.no_grad():
                moved = [M._foot(self.y + s * e) for s, e in zip(self.sigmas, self.noise, strict=True)]
                c.risk = tuple(_squares(m - self.y) / s**2 for s, m in zip(self.sigmas, moved, strict=True))
                c.rest = _squares(M._foot(self.y) - self.y)
                if c.region:
                    c.covered = M._inside(self.probes)
        except (ValueError, RuntimeError) as error:
            c.failure = str(error)
        if c.rest is not None and not all(bool(torch.isfinite(t).all()) for t in (*c.risk, c.rest)):
            c.rest, c.risk, c.failure = None, (), "not finite"
        c.seconds = time.perf_counter() - start

    def _perfect(self, c: Candidate, codim: int) -> bool:
        """On the set to rounding, and no thicker than it looks."""
        return self._exact(c) and c.score()[0] <= 1.15 * max(self.data.w.shape[1] - codim, 1)

    def _exact(self, c: Candidate) -> bool:
        """Equations that samples they were not fitted to satisfy, to the rounding of float32."""
        assert c.rest is not None
        return not c.region and float(c.rest.median()) <= (1e-7 * self.data.unit) ** 2

    def drop_outliers(self) -> None:
        """Held-out samples that no candidate comes near would only add noise to the comparison."""
        sound = [c for c in self.candidates if c.rest is not None and not c.region]
        if not sound:
            return
        best = min((c.rest for c in sound if c.rest is not None), key=lambda rest: float(rest.median()))
        keep = best <= 100 * best.median() + (1e-3 * self.data.unit) ** 2
        if int(keep.sum()) >= 0.9 * len(keep):  # more than that are no outliers, but part of the set
            self.y, self.noise = self.y[keep], self.noise[:, keep]
            for c in self.candidates:
                if c.rest is not None:
                    c.rest, c.risk = c.rest[keep], tuple(r[keep] for r in c.risk)

    def choose(self, method: str) -> Candidate:
        """Low risk at both sigmas; of those the nearest to the held-out samples; of equals the simplest.

        Exact equations are no accident: where samples crowd, a thinner set that is not quite theirs may denoise them better from
        afar, but only one that does so from near and far beats them.
        """
        sound = [c for c in self.candidates if c.rest is not None]
        if not sound:
            full = method == "local" and self.dim == self.data.w.shape[1]
            none = "they fill all dimensions; use method='algebraic'" if full else "too few samples for any method"
            reasons = "; ".join(f"{c.title}: {c.failure}" for c in self.candidates) or none
            raise ValueError(f"fit asked for samples of a set, but nothing fits these {len(self.data.w)}: {reasons}.")
        for k in range(len(SIGMAS)):
            best = min(sound, key=lambda c: c.score()[k])
            safe = [c for c in sound if self._exact(c) and k and c.score()[0] < best.score()[0]]
            sound = [c for c in sound if c.score()[k] <= SLACK * best.score()[k] or _tie(c.risk[k], best.risk[k]) or c in safe]
        thin = [c for c in sound if not c.region]
        regions = [c for c in sound if c.region and not any(self._exact(t) or _gain(c, t) > 0.5 for t in thin)]
        if regions:  # as good as anything thinner, which would gain a dimension
            return self.tightest(regions)
        best = min(thin, key=lambda c: float(self._depth(c).mean()))
        return min([c for c in thin if _tie(self._depth(c), self._depth(best))], key=lambda c: c.cost)

    def _depth(self, c: Candidate) -> Tensor:
        """log of the squared distance of every held-out sample; what is at rounding is equal."""
        assert c.rest is not None
        return (c.rest + self._touch).log()

    @property
    def _touch(self) -> float:
        return (1e-9 * self.data.unit) ** 2

    def tightest(self, regions: list[Candidate]) -> Candidate:
        """The region that differs least from the true one, of equals the simplest.

        Risk would not do: a set that is too small denoises better than the right one. With S a candidate, T the truth and V its
        volume, vol(S \\ T) + vol(T \\ S) = vol(S) - V + 2 V P(y not in S). V is the least vol(S) / P(y in S): exact for S in T.
        """
        loss = {c: self._volume_terms(c) for c in regions}
        V = min(float(inside.mean() / (1 - missed.mean()).clamp(min=1e-3)) for inside, missed in loss.values())

        def value(c: Candidate) -> float:
            return float(loss[c][0].mean() + 2 * V * loss[c][1].mean())

        best = min(regions, key=value)

        def error(c: Candidate) -> float:
            a, b = loss[c][0] - loss[best][0], loss[c][1] - loss[best][1]
            rare = float(b.var()) + 1 / len(b)  # none missed of a few hundred does not mean that none ever is
            return math.hypot(float(a.std()) / math.sqrt(len(a)), 2 * V * math.sqrt(rare / len(b)))

        return min([c for c in regions if value(c) - value(best) <= 3 * error(c)], key=lambda c: c.cost)

    def is_sharp(self, c: Candidate) -> bool:
        """Whether the outermost fifth of the region's volume is at least a third as dense with samples as all of it.

        That fifth is what leaves the region when it is stretched about the middle of the samples. A normal distribution has 0.1
        to 0.3 there, whatever part of it the region holds. All samples say so, and the held-out ones, which it was not fitted to,
        but for one.
        """
        M, w, held = c.build(self.train), self.data.w, len(self.data.w) - len(self.train)
        inside = M._inside(self.data.lift(w))
        outer = inside & ~M._inside(self.data.lift(w.mean(0) + (w - w.mean(0)) / (1 - SHELL) ** (1 / w.shape[1])))
        dense = outer.double() - SHELL / 3 * inside.double()
        return float(dense.sum()) >= 0 and float(dense[:held].sum()) >= -1

    def _volume_terms(self, c: Candidate) -> tuple[Tensor, Tensor]:
        """1 for probes inside; 1 for held-out samples outside."""
        assert c.rest is not None and c.covered is not None
        beyond = c.rest if c.beyond is None else c.beyond
        return c.covered.double(), (beyond > self._touch).double()

    def restrict(self) -> None:
        """Add an inequality to the chosen equations where it cuts off more of them than of the samples.

        Probes are noise projected on the equations; without inequality all of them are inside.
        """
        whole, plan = self.chosen, self.chosen.build.keywords["plan"]  # pyright: ignore[reportFunctionMemberAccess]
        assert whole.rest is not None
        M = whole.build(self.train)
        noise = (
            torch.randn(self.probes.shape, generator=self.generator, dtype=torch.float64) @ self.data.frame @ self.data.frame.mT
        )
        self.probes = M._foot(self.data.center + 2 * self.data.unit / math.sqrt(self.data.w.shape[1]) * noise)
        whole.covered = torch.ones(PROBES, dtype=torch.bool)
        tried = [self.algebraic(p) for p in regions(self.data.w.shape[1], len(self.train), plan)]
        for c in tried:
            c.region = True
            self.judge(c)
            c.region = False
            if c.rest is not None:  # what the equations leave of a sample is noise, not the boundary
                c.beyond = (c.rest - whole.rest).clamp(min=0)
        whole.beyond = torch.zeros_like(whole.rest)
        self.chosen = self.tightest([whole, *(c for c in tried if c.rest is not None)])


def _squares(x: Tensor) -> Tensor:
    return x.square().sum(1)


def _gain(a: Candidate, b: Candidate) -> float:
    """By how many dimensions b's risk is less than a's, from near."""
    return float((a.risk[0] - b.risk[0]).mean())


def _tie(a: Tensor, b: Tensor) -> bool:
    """Whether a's mean exceeds b's by less than two standard errors of their paired difference."""
    d = a - b
    return float(d.mean()) <= 2 * float(d.std()) / math.sqrt(len(d))
