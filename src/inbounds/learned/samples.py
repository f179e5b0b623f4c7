"""Samples made ready: checked, without copies and strays, in coordinates of their affine hull."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..extras import needed_for

LONGEST = 1e150  # beyond, squares of lengths overflow
FEWEST = 20  # set by reasoning: fewer cannot tell a curved set from noise
REPEATED = 3  # so many rows for every different one: more of them would not help
MOST_STRAYS = 0.1  # share of the samples that may lie off the affine hull of the rest
STRAY = 30  # times the median distance from the median point
SPARED = 59  # the fewest with which 95 % of a set can be bounded at a confidence of 95 %: 0.95^59 < 0.05
MOST_SPARED = 1_000  # quantiles up to 99 % are known from them
ROUNDING = 1e-9  # of a coordinate's own spread: flatter than this is flat


@dataclass
class Cloud:
    """Different samples x (N, d) in random order, with their row numbers; a tenth of them is spared for calibration alone."""

    x: Tensor
    rows: Tensor
    spared: Tensor  # (m, d), empty where a tenth is too few to tell anything
    spared_rows: Tensor
    shape: tuple[int, ...]
    given: int

    @property
    def copies(self) -> int:
        """How many rows repeat others."""
        return self.given - len(self.x) - len(self.spared)


@dataclass
class Samples:
    """w (N, n): inliers in coordinates of their affine hull, of root mean square length 1: x = center + unit frame w."""

    w: Tensor
    rows: Tensor  # (N,): which of the given samples they are
    shape: tuple[int, ...]
    center: Tensor  # (d,)
    frame: Tensor  # (d, n)
    flat: float  # median distance of the inliers from the affine hull
    unit: float  # root mean square distance from the centre, in the samples' own units
    notes: list[str] = field(default_factory=list)  # what was dropped and why, or kept though it looked odd
    doubts: list[str] = field(default_factory=list)  # the same, where it may be wrong

    @property
    def fine(self) -> float:
        """The size of the set if it were as thin in all directions as in its thinnest; in units of w."""
        return min(1.0, float(self.w.std(0).min()) * self.w.shape[1] ** 0.5)

    def lift(self, w: Tensor) -> Tensor:
        """Points of the samples' subspace in the coordinates of the space around it."""
        return self.center + self.unit * w @ self.frame.mT

    def keep(self, which: Tensor) -> None:
        """Only these go on."""
        self.w, self.rows = self.w[which], self.rows[which]

    @property
    def scale(self) -> Tensor:
        """(n,): the largest of each coordinate."""
        return self.w.abs().amax(0)


def gather(samples, generator: torch.Generator) -> Cloud:
    """Checked, without copies, in random order; the calibration samples are set aside before anything else looks at them."""
    check_generator(generator)
    x = checked(samples)
    shape, given = tuple(x.shape[1:]), len(x)
    x, place = torch.unique(x.reshape(given, -1), dim=0, return_inverse=True)
    rows = torch.full((len(x),), given).scatter_reduce(0, place, torch.arange(given), "amin")
    if len(x) == 1:
        raise ValueError(f"fit asked for samples of a set, got {given} times the same point. A point needs no fit.")
    if len(x) < FEWEST and given >= REPEATED * len(x):
        raise ValueError(
            f"fit asked for at least {FEWEST} different samples, got {len(x)} different points in {given} rows: a finite set, "
            f"which fit does not learn. The nearest point needs no fit. "
            f"Write samples[torch.cdist(x.flatten(1), samples.flatten(1)).argmin(1)]."
        )
    if len(x) < FEWEST:
        raise ValueError(f"fit asked for at least {FEWEST} different samples, got {len(x)} (of {given} rows). Give it more.")
    order = torch.randperm(len(x), generator=generator)
    x, rows = x[order], rows[order]
    m = min(len(x) // 10, MOST_SPARED) if len(x) >= 10 * SPARED else 0
    return Cloud(x[m:], rows[m:], x[:m], rows[:m], shape, given)


def prepare(cloud: Cloud, flatten: bool = True) -> Samples:
    """In the affine hull of the samples. flatten: noise around the hull, however thick, is left out; else only rounding is."""
    x = cloud.x
    away = torch.linalg.vector_norm(x - x.median(0).values, dim=1)
    near = away <= STRAY * away.median()
    near |= bool((~near).double().mean() > MOST_STRAYS)
    x, rows = x[near], cloud.rows[near]
    center, frame, flat, keep = hull(x) if flatten else own_hull(x)
    if int(keep.sum()) < 2 * frame.shape[1]:
        raise ValueError(
            f"fit asked for at least twice as many samples as dimensions, got {int(keep.sum())} that span {frame.shape[1]} "
            f"dimensions: no structure could show. Give it more samples, or fewer coordinates."
        )
    w = (x[keep] - center) @ frame
    unit = float(w.square().sum(1).mean().sqrt())
    data = Samples(w / unit, rows[keep], cloud.shape, center, frame, flat, unit)
    data.notes += [f"{n} samples dropped: {why}" for n, why in _strays(near, keep) if n]
    return data


def _strays(near: Tensor, keep: Tensor) -> list[tuple[int, str]]:
    far = f"more than {STRAY} times as far from the middle as the median sample"
    return [(int((~near).sum()), far), (int((~keep).sum()), "off the affine hull of the others")]


def checked(samples) -> Tensor:
    """(N, *shape), float64."""
    try:
        x = _tensor(samples).detach()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise TypeError(f"fit asked for a tensor or an array of samples, got {type(samples).__name__}.") from None
    if x.dtype.is_complex:
        raise TypeError(f"fit asked for samples of real numbers, got {x.dtype}. Write torch.view_as_real(samples).")
    if not x.dtype.is_floating_point:
        raise TypeError(f"fit asked for floating point samples, got {x.dtype}. Write samples.double().")
    if x.dim() < 2 or not x.numel():
        raise ValueError(
            f"fit asked for samples of shape (N, *point), got {tuple(x.shape)}. Numbers on a line are samples[:, None]; "
            f"agents of flocks are samples too: samples.reshape(-1, *point)."
        )
    bad = (~torch.isfinite(x)).flatten(1).any(1)
    if bad.any():
        raise ValueError(
            f"fit asked for finite samples, but {int(bad.sum())} of {len(x)} rows hold NaN or inf, the first is row "
            f"{int(bad.nonzero()[0])}. Drop them: samples[samples.flatten(1).isfinite().all(1)]."
        )
    x = x.double().cpu()
    size = float((x - x[0]).abs().max())
    if size and not 1 / LONGEST < size < LONGEST:
        raise ValueError(
            f"fit asked for samples whose spread is between {1 / LONGEST:g} and {LONGEST:g}, so that squares can be computed, "
            f"got {size:.1g}. Divide them by it: samples / {size:.1g}."
        )
    return x


def check_generator(generator) -> None:
    """Raise a TypeError that says what to write unless this is a torch.Generator."""
    if not isinstance(generator, torch.Generator):
        seed = generator if isinstance(generator, int) else 0
        raise TypeError(
            f"fit asked for a torch.Generator, got {type(generator).__name__}. Write torch.Generator().manual_seed({seed})."
        )


def _tensor(samples) -> Tensor:
    """Numbers of Python are float64; arrays may run backwards, be read-only or have other bytes first."""
    some = samples[0] if isinstance(samples, list | tuple) and samples else samples
    if isinstance(some, Tensor):
        return samples if isinstance(samples, Tensor) else torch.stack(list(samples))
    if hasattr(some, "__array__"):
        with needed_for("Fitting a set to an array"):
            import numpy as np

        x = np.asarray(samples)
        return torch.from_numpy(np.array(x, np.float64 if x.dtype.kind == "f" else x.dtype.newbyteorder("="), order="C"))
    try:
        return torch.as_tensor(samples, dtype=torch.float64)
    except (TypeError, RuntimeError):  # complex, or no numbers at all
        return torch.as_tensor(samples)


def own_hull(x: Tensor) -> tuple[Tensor, Tensor, float, Tensor]:
    """`hull` with every coordinate in units of its own spread, so that a small one beside large ones is not taken for noise.

    Only what is flat to rounding is left out.
    """
    spread = (x - x.median(0).values).abs().median(0).values
    spread = torch.where(spread > 1e-12 * x.abs().amax(0), spread, spread.max().clamp(min=1e-300))
    center, frame, _, keep = hull(x / spread, ROUNDING)
    if frame.shape[1] == x.shape[1]:
        return whole(x)
    normals = torch.linalg.qr(frame, mode="complete")[0][:, frame.shape[1] :] / spread[:, None]
    frame = torch.linalg.qr(normals, mode="complete")[0][:, normals.shape[1] :]
    return center * spread, _along_axes(frame), 0.0, keep


def hull(x: Tensor, flat: float = 0.05) -> tuple[Tensor, Tensor, float, Tensor]:
    """Center, orthonormal frame and flatness of the affine subspace that the samples span, and which of them belong to it.

    Directions whose spread is below `flat` of the next one's, and of the largest, are noise around a subspace. Strays would fill
    the space: it is sought with the three quarters of the samples that are nearest to it, and those beyond 15 times the usual
    distance do not belong. Coordinates stay coordinates where the subspace allows it.
    """
    inside, everything = x, torch.ones(len(x), dtype=torch.bool)
    for _ in range(4):
        center, axes, spread = principal_axes(inside)
        floor = spread.clamp(min=1e-12 * float(spread[0]))
        widest = int((floor[:-1] / floor[1:]).argmax()) + 1 if len(floor) > 1 else 1
        off = _off(x, center, axes[:, :widest])
        inside = x[off <= off[:50_000].quantile(0.75)]
    _, _, spread = principal_axes(inside)
    n = _rank(spread, flat)
    if n == x.shape[1]:
        return whole(x)
    keep = everything
    for _ in range(3):
        center, axes, _ = principal_axes(inside)
        off = _off(x, center, axes[:, :n])
        usual = off.median()
        keep = off <= 15 * usual.clamp(min=1e-10 * float(spread[0]))
        if float(keep.double().mean()) < 1 - MOST_STRAYS:  # not strays, but part of the set
            return whole(x)
        inside = x[keep]
    return center, _along_axes(axes[:, :n]), float(usual), keep


def _along_axes(frame: Tensor) -> Tensor:
    """The frame, or coordinate axes where they span the same subspace."""
    fixed = torch.linalg.vector_norm(frame, dim=1)  # 1: the coordinate lies in the subspace, 0: it is constant on it
    if bool(((fixed > 1 - 1e-3) | (fixed < 1e-3)).all()) and int((fixed > 0.5).sum()) == frame.shape[1]:
        return torch.eye(len(frame), dtype=frame.dtype)[:, fixed > 0.5]
    return frame


def whole(x: Tensor) -> tuple[Tensor, Tensor, float, Tensor]:
    """The frame of samples that fill the space: nothing is left out."""
    return x.mean(0), torch.eye(x.shape[1], dtype=x.dtype), 0.0, torch.ones(len(x), dtype=torch.bool)


def principal_axes(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, orthonormal axes as columns (d, d), and the median distance along each, largest first."""
    center = x.mean(0)
    _, _, Vh = torch.linalg.svd(_root(x - center), full_matrices=True)
    spread = ((x[:50_000] - center) @ Vh.mT).abs().median(0).values
    order = spread.argsort(descending=True)
    return center, Vh[order].mT, spread[order]


def _off(x: Tensor, center: Tensor, frame: Tensor) -> Tensor:
    """Distance from center + span(frame): (N,)."""
    x = x - center
    return torch.linalg.vector_norm(x - x @ frame @ frame.mT, dim=1)


def _root(x: Tensor) -> Tensor:
    """A square factor R with R^T R = x^T x, of few rows."""
    return torch.linalg.qr(x, mode="r").R if len(x) > x.shape[1] else x


def _rank(s: Tensor, flat: float) -> int:
    """How many of the decreasing spreads are more than noise."""
    floor = s.clamp(min=1e-12 * float(s[0]))
    small = (floor[1:] < flat * floor[:-1]) & (floor[1:] < flat * floor[0])
    return int(small.int().argmax()) + 1 if bool(small.any()) else len(s)
