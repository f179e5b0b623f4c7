"""Every rule by which `fit` chooses; every number in them is in thresholds.py."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..extras import needed_for
from .algebraic import Algebraic
from .thresholds import (
    ABOVE_NOISE,
    ALIKE,
    CROWDED,
    GAIN,
    LOUD,
    LOW,
    MOST_SIGMA,
    NEARER,
    NOISY,
    ROUND,
    SHELL,
    SIGMAS,
    SKEWED,
    SLACK,
    SPARSE,
    SPREAD,
    TIE,
    TOUCH,
)

if TYPE_CHECKING:
    from .trial import Candidate, Trial


def choose(trial: Trial) -> Candidate:
    """The best set without volume, the best region, and the better of the two."""
    thin, solid = trial.sound(region=False), trial.sound(region=True)
    if not thin and not solid:
        raise ValueError(trial.why_nothing_fits())
    if solid:  # what a heat kernel leaves of the samples is no noise: it cannot tell a curve from a region
        thin = [c for c in thin if c.method != "heat"]
    if not thin or not solid:
        return thinnest(trial, thin) if thin else tightest(trial, solid)
    curve, region = thinnest(trial, thin), tightest(trial, solid)
    return curve if beats_region(trial, curve, region) else region


def beats_region(trial: Trial, curve: Candidate, region: Candidate) -> bool:
    """Whether a set without volume explains the samples better than a region: it is exact, or it saves half a dimension.

    Noise inflates the risk of the thin set by codim (noise / sigma)^2, which its thickness does not hold. By its thickness any
    curve saves a dimension, also one through a solid disk. So that counts only where the samples look like a set of that
    dimension, or noise hides theirs, where what they leave of it is small and thins out as noise does, and where they are
    likelier than as even samples of the region.
    """
    if is_exact(trial, curve) or curve.score()[0] < region.score()[0] - GAIN:
        return True
    small = curve.noise(trial) <= NOISY * trial.data.unit / math.sqrt(trial.n)
    alike = curve.dim == trial.dim or trial.dim == trial.n
    if not (small and alike and is_lean(trial, curve)) or is_lopsided(trial, curve):
        return False
    return thins_out(trial.left(curve), trial.n - curve.dim) and is_likelier(trial, curve, region)


def is_likelier(trial: Trial, curve: Candidate, region: Candidate, errors: float = 0.0) -> bool:
    """Whether held-out samples are likelier as a thin set with normal noise around it than as even samples of a region; by so
    many standard errors of the mean difference of the logarithms. In more than three dimensions nobody knows the volumes.

    In the box of the probes the first density is exp(-r^2 / 2 v) / Z with v = mean r^2 / codim and Z its mean over the probes. A
    curve that winds through a disk leaves as little of the samples as noise would, but of the probes just as little.
    """
    if trial.n > LOW:
        return True
    assert curve.rest is not None and region.covered is not None
    v = 2 * float(curve.rest.mean()) / (trial.n - curve.dim)
    near = -curve.rest / v - (-trial.around(curve) / v).exp().mean().clamp(min=1e-300).log()
    out, count = region.missed_samples(trial)[: len(trial.y)], len(trial.y)
    missed, size = (float(out.sum()) + 0.5) / (count + 1), (float(region.covered.sum()) + 0.5) / (len(region.covered) + 1)
    gain = near - torch.where(out > 0, math.log(missed / (1 - size)), math.log((1 - missed) / size))
    return float(gain.mean()) > errors * float(gain.std()) / math.sqrt(count)


def thins_out(squares: Tensor, codim: int, errors: float = 0.0) -> bool:
    """Whether samples leave a thin set as normal noise does, and do not fill a layer around it up to its rim; with `errors`,
    whether so many standard errors of each quantile do not tell them from normal noise.

    What is compared is the ratio of two quantiles of their distances, 90 % and 50 %, which outliers do not reach. For normal
    noise in codimension 1 it is 2.44, for a layer that is filled evenly 1.8, and the line between is their geometric mean.
    """
    r = squares.sqrt().sort().values
    far, near = [(q, errors * math.sqrt(q * (1 - q) / len(r))) for q in SPREAD]
    ratio = float(r.quantile(min(far[0] + far[1], 1.0)) / r.quantile(near[0] - near[1]).clamp(min=1e-300))
    normal = math.sqrt(chi_squared(SPREAD[0], codim) / chi_squared(SPREAD[1], codim))
    filled = (SPREAD[0] / SPREAD[1]) ** (1 / codim)
    return ratio > (normal if errors else math.sqrt(normal * filled))


def chi_squared(share: float, dim: int) -> float:
    """What so large a share of the squared lengths of standard normal vectors does not exceed."""
    with needed_for("Fitting a set to samples"):
        from scipy.special import gammaincinv
    return 2 * float(gammaincinv(dim / 2, share))


def is_lopsided(trial: Trial, c: Candidate) -> bool:
    """Whether samples in more than three dimensions lie unevenly on both sides of the zeros of one polynomial, as those of a
    solid ball or shell do, most of which is near its outer rim. Noise has no skewness, give or take sqrt(6 / N); that of the
    distance from the middle of a ball is -1.1 in four dimensions, and tends to -2; of shells it is less."""
    if trial.n <= LOW or c.plan is None or len(c.plan.steps) != 1 or c.plan.steps[0][1] != 1:
        return False
    M, x = c.build(trial.train), trial.data.lift(trial.seen)
    assert isinstance(M, Algebraic)
    off = torch.linalg.vector_norm(M.foot(x) - x, dim=1) * M.side(x)
    off = off - off.mean()
    skewness = float(off.pow(3).mean()) / max(float(off.square().mean()), 1e-300) ** 1.5
    return abs(skewness) > max(SKEWED, TIE * math.sqrt(6 / len(off)))


def is_lean(trial: Trial, c: Candidate) -> bool:
    """Whether a set is as thin as its dimension says, up to a quarter of a dimension."""
    return trial.thickness(c) <= c.dim + GAIN / 2


def is_quiet(trial: Trial, c: Candidate) -> bool:
    """Whether what samples leave of a thin set is rounding, or small beside displacements."""
    return is_exact(trial, c) or c.noise(trial) <= LOUD * trial.sigmas[0]


def is_noise(trial: Trial, c: Candidate) -> bool:
    """Whether what samples leave of a thin set is without doubt rounding, or small beside displacements, or normal noise."""
    if is_quiet(trial, c) or trial.n > LOW:
        return True
    solid = trial.sound(region=True)
    even = bool(solid) and not is_likelier(trial, c, tightest(trial, solid), TIE)
    return not even and is_lean(trial, c) and thins_out(trial.left(c), trial.n - c.dim, TIE)


def thinnest(trial: Trial, thin: list[Candidate]) -> Candidate:
    """Low risk at both sigmas; of those the thin ones, the nearest of them to the held-out samples; of equals the simplest.

    Where there is noise, a thick set is nearer to the samples and denoises as well as the right one: it leaves them their noise.
    Thick is what has a quarter of a dimension more, and the lowest risk decides instead of the nearness. Noise hides differences,
    so that half as many standard errors tell them.
    Exact equations are no accident: where samples crowd, a thinner set that is not quite theirs may denoise them better from
    afar, but only one that does so from near and far beats them.
    """
    for k in range(len(SIGMAS)):
        best = min(thin, key=lambda c: c.score()[k])
        safe = [c for c in thin if is_exact(trial, c) and k and c.score()[0] < best.score()[0]]
        thin = [c for c in thin if c.score()[k] <= SLACK * best.score()[k] or tie(c.risk[k], best.risk[k]) or c in safe]
    least = min(trial.thickness(c) for c in thin)
    thin = [c for c in thin if trial.thickness(c) <= least + GAIN / 2]
    loud = min(LOUD * trial.sigmas[0], trial.spacing())  # dense samples are near to all that follows them through their noise
    noisy = all(c.noise(trial) > loud for c in thin)
    loss = {c: c.risk[0] + c.risk[1] if noisy else depth(trial, c) for c in thin}
    best = min(thin, key=lambda c: float(loss[c].mean()))
    return min([c for c in thin if tie(loss[c], loss[best], TIE / 2 if noisy else TIE)], key=lambda c: c.cost)


def tightest(trial: Trial, regions: list[Candidate]) -> Candidate:
    """Of the regions without holes that chance would have filled the one that differs least from the true one, of equals the
    simplest.

    Risk would not do: a set that is too small denoises better than the right one. With S a candidate, T the truth and V its
    volume, vol(S \\ T) + vol(T \\ S) = vol(S) - V + 2 V P(y not in S). V is the least vol(S) / P(y in S): exact for S in T.
    """
    regions = [c for c in regions if not is_hole(c.hole, len(trial.seen))] or regions
    loss = {c: (c.inside_probes(), c.missed_samples(trial)) for c in regions}
    V = min(float(inside.mean() / (1 - missed.mean()).clamp(min=1e-3)) for inside, missed in loss.values())

    def value(c: Candidate) -> float:
        return float(loss[c][0].mean() + 2 * V * loss[c][1].mean())

    best = min(regions, key=value)

    def error(c: Candidate) -> float:
        a, b = loss[c][0] - loss[best][0], loss[c][1] - loss[best][1]
        rare = float(b.var()) + 1 / len(b)  # none missed of a few hundred does not mean that none ever is
        return math.hypot(float(a.std()) / math.sqrt(len(a)), 2 * V * math.sqrt(rare / len(b)))

    return min([c for c in regions if value(c) - value(best) <= TIE * error(c)], key=lambda c: c.cost)


def is_hole(held: float, N: int) -> bool:
    """Whether a ball that should have held so many of N samples is emptier than chance allows."""
    return held > math.log(N) + CROWDED


def is_sharp(trial: Trial, c: Candidate) -> bool:
    """Whether the outermost fifth of the region's volume is at least a third as dense with samples as all of it.

    That fifth is what leaves the region when it is stretched about the middle of the samples. A normal distribution has 0.1
    to 0.3 there, whatever part of it the region holds. All samples say so, and the held-out ones, which it was not fitted to,
    but for one.
    """
    M, w, held = c.build(trial.train), trial.seen, len(trial.seen) - len(trial.train)
    inside = M.leaves(trial.data.lift(w))
    outer = inside & ~M.leaves(trial.data.lift(w.mean(0) + (w - w.mean(0)) / (1 - SHELL) ** (1 / w.shape[1])))
    dense = outer.double() - SHELL * SPARSE * inside.double()
    return float(dense.sum()) >= 0 and float(dense[:held].sum()) >= -1


def is_exact(trial: Trial, c: Candidate) -> bool:
    """Equations that samples they were not fitted to satisfy, to the rounding of float32."""
    assert c.rest is not None
    return not c.region and float(c.rest.median()) <= (ROUND * trial.data.fine * trial.data.unit) ** 2


def is_perfect(trial: Trial, c: Candidate) -> bool:
    """Exact to the last digits, and of no more dimensions than the samples look like."""
    if c.rest is None or c.region or c.score()[0] > 1.15 * max(trial.dim, 1):
        return False
    return float(c.rest.median()) <= (TOUCH * trial.data.fine * trial.data.unit) ** 2


def is_settled(trial: Trial, degree: int) -> bool:
    """Whether equations of this degree are not worth the time: those of the last one were no better at either sigma than those of
    lower ones, of which one is as thin as the samples are, and leaves no more of them than neighbours leave of each other; and
    those of the last two are no nearer to the samples than lower ones: of clean samples every degree leaves less."""
    known = [(c.plan.degree, c) for c in trial.candidates if c.plan is not None and c.rest is not None]
    lower, last = [c for d, c in known if d < degree - 1], [c for d, c in known if d == degree - 1]
    local = ALIKE * trial.tangent.noise * trial.data.unit
    if not last or not any(trial.thickness(c) <= trial.dim + GAIN / 2 and c.noise(trial) <= local for c in lower):
        return False
    best = [min(c.score()[k] for c in lower) for k in range(len(SIGMAS))]
    old, new = ([c.noise(trial) for d, c in known if (d < degree - 2) == early] for early in (True, False))
    nearer = bool(old) and min(new) < NEARER * min(old)
    return not nearer and all(c.score()[k] * SLACK > best[k] for c in last for k in range(len(SIGMAS)))


def is_beaten(trial: Trial) -> bool:
    """Whether graphs through neighbours are not worth the time: equations denoise better than two of them at both sigmas, are
    nearer to the samples, and are as thin as the samples look."""
    sound = [c for c in trial.candidates if c.rest is not None]
    exact, graphs = [c for c in sound if c.plan is not None], [c for c in sound if c.method == "local"]
    return len(graphs) > 1 and any(
        trial.thickness(c) <= trial.dim + GAIN / 2
        and all(c.score() < g.score() and c.score()[1] < g.score()[1] and c.noise(trial) < g.noise(trial) for g in graphs)
        for c in exact
    )


def is_thin(trial: Trial) -> bool:
    """Whether some candidate has no volume, as far as its risk tells, is as thin as its dimension says, and leaves so little of
    the samples that no region need be tried."""
    n, sound = trial.n, [c for c in trial.sound(region=False) if c.method != "heat"]
    thin = [c for c in sound if trial.thickness(c) < max(0.9 * n, n - 0.5) and is_lean(trial, c)]
    best = thinnest(trial, thin) if thin else None
    return best is not None and (is_quiet(trial, best) or (n > LOW and not is_lopsided(trial, best)))


def depth(trial: Trial, c: Candidate) -> Tensor:
    """log of the squared distance of every held-out sample; what is at rounding is equal."""
    assert c.rest is not None
    return (c.rest + (TOUCH * trial.data.unit) ** 2).log()


def tie(a: Tensor, b: Tensor, errors: float = TIE) -> bool:
    """Whether a's mean exceeds b's by less than so many standard errors of their paired difference."""
    d = a - b
    return float(d.mean()) <= errors * float(d.std()) / math.sqrt(len(d))


def sigmas(size: float, noise: float) -> list[float]:
    """Displacements of held-out samples: shares of the size, but above the noise."""
    return [max(s * size, min(a * noise, MOST_SIGMA * size)) for s, a in zip(SIGMAS, ABOVE_NOISE, strict=True)]
