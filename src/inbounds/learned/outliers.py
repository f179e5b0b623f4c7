"""Which samples belong: polynomials that most agree on, neighbours that most lie among, and what hangs together by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from .graphs import LOCAL, missing, nearest_samples, neighbours, off_graphs
from .polynomials import Monomials
from .samples import SPARED, Samples
from .thresholds import (
    CLOUD,
    CROWD,
    CROWDED,
    CROWDING,
    FEW_DROPPED,
    FLAT_ENOUGH,
    ISOLATED,
    LEVEL,
    LOW,
    MOST_DROPPED,
    NEIGHBOURS,
    OFF,
    RIM,
    ROUGH,
    ROUNDS,
    SMALL,
    TAIL,
    TOGETHER,
)
from .vanishing import EXACT, consensus, residual, spectrum

REFUSED = "equations that the others satisfy do not hold there"
ALONE = "they are isolated: their neighbours lie much closer together"
ANYWHERE = 1_000  # points in the box of the samples: a share of 1 % is then known to 0.3 %


def drop_outliers(data: Samples, top: int, dim: int, generator: torch.Generator) -> None:
    """Leave out the samples that most others disagree with, and note how many and why.

    First by polynomials; where these find nobody, and in regions, by neighbours. Samples that form a set of their own are no
    outliers: they stay.
    """
    n = data.w.shape[1]
    for keep, why in tested(data, top, dim, generator):
        lost = int((~keep).sum())
        if not lost or (dim < n and why == REFUSED and alike(data.w, keep, dim)):
            continue
        rare = why == ALONE and float(rarity(data.w, keep).median()) > 1  # the set may go on there
        if why == ALONE and dim < n and (rare or crowded(data.w[~keep], data.w[keep])):
            continue  # noise hides the surface, and these are its tails
        if rare:
            data.doubts.append(
                f"{lost} of {len(keep)} samples are isolated, but where they are others are rare as well: they were kept. If "
                f"they are outliers, leave them out; else give more samples of that part of the set."
            )
            continue
        if crowded(data.w[~keep], data.w[keep]) or (dim < n and hangs_together(data.w[~keep], dim)):
            data.doubts.append(
                f"{lost} of {len(keep)} samples do not satisfy what the others do, but hang together: they were kept. The set "
                f"may have a part that few samples show; give more samples of it, or leave these out."
            )
            continue
        data.keep(keep)
        data.notes.append(f"{lost} samples dropped: {why}")
        if lost > MOST_DROPPED * len(keep):
            data.doubts.append(f"{lost} of {len(keep)} samples were dropped as outliers. Look at them: M.info['dropped'].")
        elif len(keep) < 9 * SPARED if why == ALONE else lost > LEVEL * len(keep) and len(keep) < 2 * SPARED:
            data.doubts.append(
                f"{lost} of {len(keep)} samples were dropped: {why}. So few samples cannot show whether the set goes on there: "
                f"look at them (M.info['dropped']), or give more samples."
            )
        if dim < n:
            return


def tested(data: Samples, top: int, dim: int, generator: torch.Generator) -> Iterator[tuple[Tensor, str]]:
    """Which samples belong, (N,), by one test after the other, and what is wrong with the rest."""
    n, settled = data.w.shape[1], False
    if top >= 2:
        agree, settled = agreeing(data.w, data.scale, top, generator)
        if settled or dim < n:  # in a region, polynomials that are small where samples crowd would drop the others
            yield agree, REFUSED
    smooth = dim < n and dim <= FLAT_ENOUGH and len(data.w) > 10 * CROWD * Monomials.count(dim, 2)
    among = among_neighbours(data.w, dim) if smooth and not settled else None
    if among is not None:
        yield among, "they lie off the surface through their neighbours"
    elif not settled and n in (2, 3) and (smooth or dim == n):
        yield not_isolated(data.w), ALONE


def agreeing(w: Tensor, scale: Tensor, top: int, generator: torch.Generator) -> tuple[Tensor, bool]:
    """Rows that belong, (N,), by the first degree at which most samples agree on equations while some refuse;
    and whether these equations are exact, which settles the matter."""
    everything = torch.ones(len(w), dtype=torch.bool)
    best, mask, calm = 1.0, everything, False
    for degree in range(2, min(top, 6) + 1):
        count = Monomials.count(w.shape[1], degree)
        if count > SMALL and (calm or degree > 4):
            break
        s = spectrum(w, degree, scale)
        before = s.gaps(0.3)[0] if s.gaps(0.3) else (0, 1.0)
        quiet = noise = False
        if before[0]:
            e = residual(s.take(before[0]), w)
            quiet = float(e.max()) <= 6 * float(e[e <= e.median()].square().mean().sqrt()) + 1e-10
            noise = float(e.max()) <= TAIL * math.sqrt(2 * math.log(len(w))) * float(e.median()) / 0.6745
        calm = calm or quiet
        # equations may hold for a few outliers by chance, or badly for all: quiet is not enough, but asking again costs time
        if (quiet or noise) and 20 < before[1] < EXACT:
            return everything, False
        if quiet and len(s.tau) > 120:
            return mask, False
        found = consensus(w, degree, scale, (), generator)
        after = spectrum(w[found], degree, scale).gaps(0.3) if 0 < int((~found).sum()) <= 0.3 * len(w) else []
        if not after or (calm and after[0][1] <= EXACT):
            if quiet and before[1] >= EXACT:
                return mask, True
            continue
        more = after[0][1] > EXACT and after[0][0] > before[0]
        if more or (after[0][1] > 3 * before[1] and after[0][1] > 5 * best):
            best, mask = after[0][1], found
        if best > EXACT:
            break
    return mask, best > EXACT


def among_neighbours(w: Tensor, dim: int) -> Tensor | None:
    """Rows whose distance from the quadratic graph through their neighbours, not themselves, is like that of the neighbours.

    Not like: OFF times the median of theirs, and more than half their spacing. Nothing is dropped where that is every tenth. None
    if the graphs do not describe the set.
    """
    near, far = neighbours(w, CROWD * Monomials.count(dim, 2) + 1)
    near, spacing = near[:, 1:], far[:, 1]
    off = off_graphs(w, w, near, dim)
    if float(off.median()) > ROUGH * float(far[:, -1].median()):
        return None
    usual, apart = off[near].median(1).values, spacing[near].median(1).values
    return _few(~((off > OFF * usual) & (off > 0.5 * apart)))


def alike(w: Tensor, keep: Tensor, dim: int) -> bool:
    """Whether more of the samples that equations refuse lie among their neighbours, as others do, than outliers anywhere would.

    Equations of too low a degree leave out the parts of a set that bend most. Among: as `among_neighbours` asks, of the samples
    that were kept. The share of points anywhere in the box that lie so is p, and of k outliers more than k p + 3 sqrt(k p) + 1
    hardly ever do.
    """
    k, lost = CROWD * Monomials.count(dim, 2), int((~keep).sum())
    if dim > FLAT_ENOUGH or int(keep.sum()) < 10 * k:
        return False
    low, high, g = w.amin(0), w.amax(0), torch.Generator().manual_seed(0)
    anywhere = low + (high - low) * torch.rand(ANYWHERE, w.shape[1], generator=g, dtype=w.dtype)
    among = lies_among(torch.cat([w[~keep], anywhere]), w[keep], dim).double()
    p = float(among[lost:].mean())
    return float(among[:lost].sum()) > lost * p + 3 * math.sqrt(lost * p) + 1


def lies_among(points: Tensor, samples: Tensor, dim: int) -> Tensor:
    """Which points are as near to the quadratic graph through their neighbours among the samples as these are to theirs."""
    k = CROWD * Monomials.count(dim, 2)
    near, far = neighbours(samples, k + 1)
    usual, which = off_graphs(samples, samples, near[:, 1:], dim), nearest_samples(samples, points, k)
    off = off_graphs(points, samples, which, dim)
    return ~((off > OFF * usual[which].median(1).values) & (off > 0.5 * far[:, 1][which].median(1).values))


def not_isolated(w: Tensor) -> Tensor:
    """Rows that are no outliers of a region.

    Isolated samples farther from the others than chance leaves the tips of a region are strays, and so are their neighbours that
    lie as far apart: many outliers hide each other. This is repeated until no more are found. A region with strays near it has
    others at its rim: then a sample goes if chance leaves so much room to fewer than one in a hundred at a rim, and to no more of
    them than strays were found.
    """
    lost = torch.zeros(len(w), dtype=torch.bool)
    for _ in range(ROUNDS):
        rows = (~lost).nonzero()[:, 0]
        out = strays(w[rows], len(w))
        lost[rows[out]] = True
        if not bool(out.any()):
            break
    if bool(lost.any()):
        near, far = neighbours(w[~lost], LOCAL + 1)
        level = min(RIM, float(lost.double().mean()))
        lost[~lost] = 0.5 * LOCAL * (far[:, 1] / far[:, -1][near[:, 1]]) ** w.shape[1] > -math.log(level)
    return _few(~lost)


def rarity(w: Tensor, keep: Tensor) -> Tensor:
    """How far apart samples lie beside each of those that would be left out, in units of a flat rim: above 1 they are rare.

    Of the five kept samples next to it the one that lies densest: at a flat rim of an evenly sampled region it sees half of a
    ball, so that its tenth neighbour is 2^(1/d) times as far away as usual.
    """
    kept = w[keep]
    spacing = neighbours(kept, LOCAL + 1)[1][:, -1]
    beside = spacing[nearest_samples(kept, w[~keep], NEIGHBOURS)].amin(1)
    return beside / (2 ** (1 / w.shape[1]) * spacing.median())


def strays(w: Tensor, N: int) -> Tensor:
    """Rows of isolated samples, found layer by layer, that chance does not explain, and of those that hang together with them."""
    rows, out = torch.arange(len(w)), torch.zeros(len(w), dtype=torch.bool)
    for _ in range(ROUNDS):
        some = isolated(w[rows])
        out[rows[some]] = True
        rows = rows[~some]
        if not bool(some.any()):
            break
    if bool(out.any()):
        out[out.clone()] = missing(w[out], w[rows]) > math.log(N) + CROWDED
    near, far = neighbours(w, NEIGHBOURS + 1)
    reach, known = far[:, -1], torch.where(out, far[:, -1], 0.0)
    while True:
        around = known[near[:, 1:]].amax(1)
        more = (known == 0) & (around > 0) & (reach >= CLOUD * around)
        if not bool(more.any()):
            return known > 0
        known = torch.where(more, around, known)


def isolated(w: Tensor) -> Tensor:
    """Rows whose fifth neighbour is more than ISOLATED times as far away as that of the samples around them.

    Around them: a tenth of the twenty nearest have it as near. Outliers are neighbours of each other, but the set is not far.
    """
    near, far = neighbours(w, min(4 * NEIGHBOURS, len(w) - 1) + 1)
    reach = far[:, min(NEIGHBOURS, len(w) - 1)]
    return reach > ISOLATED * reach[near[:, 1:]].quantile(0.1, dim=1)


def _few(keep: Tensor) -> Tensor:
    return keep if float((~keep).double().mean()) <= FEW_DROPPED else torch.ones_like(keep)


def crowded(w: Tensor, among: Tensor) -> bool:
    """Whether samples that disagree with the others crowd somewhere: a part of the set that few samples show.

    Their fifth neighbours among themselves are then nearer than CROWDING times what they are for points anywhere in the box of
    all samples. In three dimensions or fewer only the empty rest of the box counts: nowhere else would an outlier be seen.
    """
    n, k = w.shape[1], NEIGHBOURS
    if len(w) <= k:
        return False
    low, high = torch.cat([w, among]).amin(0), torch.cat([w, among]).amax(0)
    room = float((high - low).prod())
    if n <= LOW:
        points = low + (high - low) * torch.rand(2_000, n, generator=torch.Generator().manual_seed(0), dtype=w.dtype)
        room *= float((missing(points, among) > math.log(len(among)) + CROWDED).double().mean().clamp(min=1e-3))
    ball = math.pi ** (n / 2) / math.gamma(n / 2 + 1)
    anywhere = (k * room / (len(w) * ball)) ** (1 / n)
    return float(neighbours(w, k + 1)[1][:, -1].median()) < CROWDING * anywhere


def hangs_together(w: Tensor, dim: int) -> bool:
    """Whether samples form a set of that dimension by themselves: they lie on the graphs through their neighbours.

    On: nearer than a fifth of the neighbours' distance, by the median. Of points anywhere it is about half, or more.
    """
    k = 2 * Monomials.count(dim, 2) + 1
    if not dim or len(w) < 2 * k:
        return False
    near, far = neighbours(w, k)
    return float((off_graphs(w, w, near[:, 1:], dim) / far[:, 1:].median(1).values.clamp(min=1e-300)).median()) < TOGETHER
