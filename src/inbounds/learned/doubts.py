"""Every reason not to rely on a fitted set, in words, with what to do about it. Each function gives one, or nothing."""

from __future__ import annotations

import math

import torch

from ..kernels.vectors import norm
from . import rules, thresholds
from .algebraic import Algebraic
from .base import LearnedSet
from .facets import Polyhedral
from .graphs import LOCAL, neighbours, spread
from .samples import Samples
from .trial import Trial
from .within import Within

CROWDS = 2_000  # samples whose neighbours tell the dimension
RIM_SAMPLES = 50  # that the rim of a region should hold: a third of them hardly ever is there by chance
RIM_PROBES = 10  # random points in the rim, at least
EDGE = 0.3  # of the distance of neighbours: their mean is farther away only at an edge


def doubts(M: LearnedSet, data: Samples, trial: Trial) -> list[str]:
    """Every reason not to rely on the set, with what to do about it."""
    exact = trial.chosen.rest is not None and rules.is_exact(trial, trial.chosen)
    found = [few(data, trial), flattened(M, data), without_structure(M, trial), noisy(M, data, exact)]
    found += [thick(trial) or part_of_it(M, data), unsolved(M)]
    if not trial.chosen.region:
        found += [past_the_samples(M) or past_the_edge(data, trial), band(trial)]
    elif M.info["title"] != "everything":
        found += [hole(M, data, trial), short(trial), coarse(M, data, trial), blurred(M, data, trial)]
    if trial.chosen.region and M.info["close_calls"]:
        found.append(
            f"A region was chosen, but a set without volume is nearly as good ({M.info['close_calls'][0]}). Give more samples, "
            f"or write method='local' if you know that the set has no volume."
        )
    if trial.chosen.method == "heat" and len(trial.candidates) > 1:
        found.append(
            "Nothing fits better than the mean of the samples under a heat kernel, which is off by the order of its width. "
            "Give more samples or less noise, or write method='local' if you know that the set is smooth."
        )
    return [f for f in found if f]


def few(data: Samples, trial: Trial) -> str:
    """Samples that are too few to tell equations from chance; with noise, twice as many are needed. Exact ones are no chance."""
    N, n, dim = len(data.w), trial.n, trial.chosen.dim
    if trial.chosen.rest is not None and rules.is_exact(trial, trial.chosen):
        return ""
    need = (1 if trial.chosen.region else 2) * thresholds.FEWEST_EACH * (dim + 1)
    return "" if N >= need else f"{N} samples are too few for a set of dimension {dim} in {n} coordinates: give at least {need}."


def flattened(M: LearnedSet, data: Samples) -> str:
    """Directions that were left out though the samples vary there by more than the noise of the set."""
    noise = M.info["noise"]
    if data.flat <= 1e-6 * data.unit or (noise is not None and data.flat <= 5 * noise * math.sqrt(len(data.center))):
        return ""
    return (
        f"The samples vary by {data.flat:.2g} across the affine subspace that was found, beside {data.unit:.2g} along it. That "
        f"was taken for noise. If those directions matter, rescale the coordinates to similar spread before fitting."
    )


def without_structure(M: LearnedSet, trial: Trial) -> str:
    """A cloud that fills the space and does not end."""
    if not trial.chosen.region or (trial.chosen.sharp and M.info["title"] != "everything") or trial.n < len(trial.data.center):
        return ""
    return (
        "No structure was found: the samples fill all dimensions and thin out without a sharp boundary. If they lie on a set "
        "with noise, the noise is too large for it, or the samples are too few. Do not rely on this set as a constraint."
    )


def noisy(M: LearnedSet, data: Samples, exact: bool) -> str:
    """Noise that is not small beside the reach."""
    noise, reach, codim = M.info["noise"], M.info["reach"], max(data.frame.shape[1] - M.info["dimension"], 1)
    if exact or noise is None or reach is None or noise * math.sqrt(codim) <= thresholds.QUARTER * reach:
        return ""
    return (
        f"The noise ({noise:.2g} per coordinate) is not small beside the reach of the set ({reach:.2g}): it may have been "
        f"smoothed or closed up there. Give less noisy samples, or check projections against samples that you trust."
    )


def thick(trial: Trial) -> str:
    """A set of more dimensions than the samples look like, or could have shown."""
    if trial.chosen.dim > trial.tangent.tested and trial.chosen.dim > 1:
        return (
            f"The set that was found has dimension {trial.chosen.dim}, but the samples are too few to see whether it has fewer: "
            f"near each of them only dimensions up to {trial.tangent.tested} could be told. Give more samples."
        )
    if trial.chosen.dim <= trial.dim or trial.chosen.sharp is False:
        return ""
    return (
        f"The set that was found has dimension {trial.chosen.dim}, but near each of them the samples look like a set of "
        f"dimension {trial.dim}. Equations that were not found may be missing: give more samples, or method='local'."
    )


@torch.no_grad()
def part_of_it(M: LearnedSet, data: Samples) -> str:
    """Samples that crowd on a part of the set that has fewer dimensions than the set, as where equations were not found.

    The dimension by which neighbours' distances grow is compared with that of as many points drawn from the set, which has the
    same bias. Uneven samples have the set's dimension all the same.
    """
    w = data.w[:CROWDS]
    scale = torch.linalg.svd(w - w.mean(0), full_matrices=False)
    z = torch.randn(len(w), len(scale.S), generator=torch.Generator().manual_seed(0), dtype=w.dtype) * scale.S / math.sqrt(len(w))
    drawn = M.foot(data.lift(w.mean(0) + z @ scale.Vh))
    ours, theirs = spread(w), spread(drawn)
    error = math.hypot(float(ours.std()), float(theirs.std())) / math.sqrt(len(w))
    least, most = 1 / float(ours.mean()), 1 / max(float(theirs.mean()), 1e-300)
    if most - least <= thresholds.GAIN or float(ours.mean() - theirs.mean()) <= 3 * error:
        return ""
    return (
        f"The samples lie together as those of a set of dimension {least:.1f} do, but points of the set that was found, of "
        f"dimension {M.info['dimension']}, as those of dimension {most:.1f}: the samples seem to fill a part of it, and "
        f"equations of higher degree may be missing. Give more samples, or method='local'."
    )


def past_the_samples(M: LearnedSet) -> str:
    """A set that goes on where no samples are."""
    share, law = M.info["landings"]["beyond"], M.info["landings"]["law"]
    if share <= thresholds.BEYOND:
        return ""
    return (
        f"The set goes on where there are no samples: {share:.0%} of displaced samples (by {law:g} of its size) are projected to "
        f"points farther from every sample than the samples are from each other. If it should end there, write support='sampled'."
    )


def unsolved(M: LearnedSet) -> str:
    """Projections that did not arrive."""
    share, law = M.info["landings"]["lost"], M.info["landings"]["law"]
    if share <= thresholds.BEYOND:
        return ""
    return (
        f"{share:.1%} of displaced samples (by {law:g} of the set's size) could not be projected to the nearest point: they end "
        f"at another one, and M.converged(x) says which. The equations are bad there. Give more samples, or method='local'."
    )


def past_the_edge(data: Samples, trial: Trial) -> str:
    """A graph that was asked to end with the samples, and cannot.

    Near an edge the neighbours of a sample lie on one side: their mean is about 0.4 of their distance away from it. Elsewhere it
    is the mean of independent directions; EDGE is four of its standard errors with 60 neighbours.
    """
    w, k = data.w, min(60, len(data.w) // 4)
    if trial.support != "sampled" or trial.chosen.method != "local":
        return ""
    near, far = neighbours(w, k + 1)
    off = torch.linalg.vector_norm(w[near[:, 1:]].mean(1) - w, dim=1)
    if int((off > EDGE * far[:, -1]).sum()) < 2:
        return ""
    return (
        "The samples end at an edge, and support='sampled' asks for a set that ends there; but graphs through neighbours go on "
        "by half a patch, and points beyond the edge are projected too far out. Give more samples, so that patches are smaller."
    )


def band(trial: Trial) -> str:
    """Samples around a thin set that may fill a band instead of scattering as noise does."""
    c = trial.chosen
    if c.rest is None or c.dim == trial.n or c.method == "heat" or rules.is_noise(trial, c):
        return ""
    return (
        f"The samples lie within {2 * c.noise(trial):.2g} of the set, and it cannot be told whether that is noise or a band that "
        f"they fill. If they are free of noise, write method='alpha'; else give more samples."
    )


def short(trial: Trial) -> str:
    """An alpha shape that ends before the true region does, as far as held-out samples tell."""
    share = float(trial.chosen.missed_samples(trial).mean())
    if trial.chosen.method != "alpha" or share <= thresholds.SHORT:
        return ""
    return (
        f"The region falls short of the true one: about {share:.0%} of new samples lie outside of it, and points near its rim "
        f"are moved though they need not be. Give more samples."
    )


@torch.no_grad()
def blurred(M: LearnedSet, data: Samples, trial: Trial) -> str:
    """A region at whose rim samples thin out, as noise does it: around a smaller region, or a set without volume."""
    if isinstance(M, Within) and isinstance(M.part, Polyhedral):
        inside = trial.inner[~M.part.outside(trial.inner)]
        rim, level = thresholds.SHELL, -M.part.depth(torch.cat([inside, data.w[:CROWDS]]))
    elif isinstance(M, Algebraic) and not M.codim and M.inside_degree and len(data.w) > 2 * RIM_SAMPLES:
        inside = trial.probes[M.leaves(trial.probes)]
        rim = max(RIM_SAMPLES / len(data.w), RIM_PROBES / max(len(inside), RIM_PROBES))
        level = M.level(torch.cat([inside, data.lift(data.w)]))
    else:
        return ""
    if not len(inside):
        return ""
    share = float((level[len(inside) :] >= level[: len(inside)].quantile(1 - rim)).double().mean())
    if share >= rim * thresholds.SPARSE:
        return ""
    return (
        f"The samples thin out towards the rim of the region: only {share:.2%} of them lie in the outermost {rim:.2%} of it. "
        f"Noise does that, around a smaller region or a set without volume. Give less noisy samples, or more of them."
    )


def resolution(data: Samples) -> float:
    """The radius of the largest ball inside a region that may be empty by chance: smaller holes and bays are not seen."""
    n, N = data.w.shape[1], len(data.w)
    share = min(2 * (math.log(N) + thresholds.CROWDED) / N, 1.0)  # twice: half of a ball counts
    low, high = data.w.amin(0), data.w.amax(0)
    ball = math.pi ** (n / 2) / math.gamma(n / 2 + 1)
    return data.unit * float((share * (high - low).prod() / ball) ** (1 / n))


def coarse(M: LearnedSet, data: Samples, trial: Trial) -> str:
    """Samples of a region that are too few to show holes."""
    radius = resolution(data)
    if not 1 < trial.n <= thresholds.LOW or radius <= thresholds.SEEN * data.unit:
        return ""
    return (
        f"{len(data.w)} samples are too few to see holes and bays of a radius below {radius:.2g} (the set's size is "
        f"{data.unit:.2g}). Give more samples."
    )


def filled(M: LearnedSet, data: Samples, trial: Trial) -> bool:
    """Whether the set is a region without holes: pieces in it, as the crowded rim of a disk, belong to it."""
    if not trial.chosen.region or trial.n > thresholds.LOW:
        return False
    return not rules.is_hole(trial.emptiest(M.leaves(trial.probes))[0], len(trial.seen))


def hole(M: LearnedSet, data: Samples, trial: Trial) -> str:
    """A ball inside the region that is emptier of samples than chance allows."""
    held, where = trial.emptiest(M.leaves(trial.probes))
    if trial.n > thresholds.LOW or len(data.w) < 4 * LOCAL or not rules.is_hole(held, len(trial.seen)):
        return ""
    radius = float(norm(data.lift(data.w) - where).min())
    return (
        f"The region holds an empty ball of radius {radius:.2g} around ({', '.join(f'{v:.3g}' for v in where[0].tolist())}), "
        f"where chance alone would leave samples: the true set may have a hole or a bay there that was not found. Give more "
        f"samples."
    )
