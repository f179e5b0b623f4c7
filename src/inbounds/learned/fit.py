"""`fit`: a set from samples of it. Follow one cloud of samples from top to bottom.

`gather` checks the samples and sets a tenth aside; `prepare` finds their affine hull; `tangent` their dimension and noise;
`drop_outliers` leaves out who disagrees with the others; `Trial` fits candidates and judges them on held-out samples by `rules`;
`describe` says what was found and `examine`, with the tenth that nothing has seen, how far it can be trusted.
"""

from __future__ import annotations

import time
import warnings

import torch

from . import thresholds
from .base import FitWarning, LearnedSet
from .describe import describe
from .honesty import examine
from .outliers import drop_outliers
from .plans import highest
from .samples import Cloud, Samples, gather, prepare
from .tangents import tangent
from .threads import few_threads
from .trial import Trial

METHODS = ("auto", "algebraic", "local", "heat", "hull", "alpha", "flow", "flow-own-time")
SUPPORTS = ("closure", "sampled")


def fit(samples, method: str = "auto", support: str = "closure", generator: torch.Generator | None = None) -> LearnedSet:
    """The set that samples (N, *shape) were drawn from, N from 20 to a million, with noise and outliers.

    method: "algebraic" (polynomial equations and inequalities), "local" (moving least squares), "heat" (heat-kernel mean), "hull"
    (the convex hull) and "alpha" (a region that need not be convex), both in two or three dimensions, "flow" (flow matching as in
    the paper; minutes), "flow-own-time" (the same, each point from its own time), or "auto": the first five, whichever suits
    held-out samples best.
    support: where equations are found, "closure" is all that satisfies them, "sampled" the part that samples came from.

    `M.report()` says what was found and how far it can be trusted. A `FitWarning` says where it should not be relied on.
    ValueError if nothing fits.
    """
    _check(method, support)
    start = time.perf_counter()
    g = torch.Generator().manual_seed(0) if generator is None else generator
    cloud = gather(samples, g)
    if method.startswith("flow"):
        data, trial, M = prepare(cloud), None, _flow(cloud, method, g)
    else:
        with few_threads(cloud.x):
            data, trial = _examined(cloud, method, support, g)
            M = trial.chosen.build(data.w)
    M.info |= describe(M, data, trial, cloud)
    M.reach = M.info["reach"]
    examine(M, data, trial, cloud, g)
    M.info["seconds"] = round(time.perf_counter() - start, 2)
    for doubt in M.info["doubts"]:
        warnings.warn(doubt, FitWarning, stacklevel=2)
    return M.eval()


def _examined(cloud: Cloud, method: str, support: str, generator: torch.Generator) -> tuple[Samples, Trial]:
    """Without noise around the samples' affine hull; or, where a thin set is found in it, with all that is no rounding."""
    data = prepare(cloud)
    trial = _tried(data, method, support, generator)
    if data.flat <= thresholds.THICK * data.unit:
        return data, trial
    thick = prepare(cloud, flatten=False)
    other = _tried(thick, method, support, generator)
    return (thick, other) if other.distance() < 0.1 * data.flat else (data, trial)


def _tried(data: Samples, method: str, support: str, generator: torch.Generator) -> Trial:
    found = tangent(data.w, generator)
    if method != "heat":
        before = len(data.w)
        drop_outliers(data, highest(data.w.shape[1], before), found.dim, generator)
        if len(data.w) < before:
            found = tangent(data.w, generator)
    return Trial(data, found, generator).run(method, support)


def _flow(cloud: Cloud, method: str, generator: torch.Generator) -> LearnedSet:
    from .flow_training import fit_flow

    return fit_flow(cloud.x.reshape(-1, *cloud.shape), generator=generator, own_time=method == "flow-own-time")


def _check(method: str, support: str) -> None:
    if method not in METHODS:
        raise ValueError(f"fit asked for a method among {', '.join(METHODS)}, got {method!r}.")
    if support not in SUPPORTS:
        raise ValueError(f"fit asked for support 'closure' or 'sampled', got {support!r}.")
