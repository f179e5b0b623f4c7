"""How far a fitted set can be trusted: what samples that nothing has seen say about it."""

from __future__ import annotations

import math

import torch

from . import rules, thresholds
from .base import LearnedSet
from .describe import text
from .doubts import doubts, filled
from .graphs import beyond
from .pieces import pieces
from .samples import SPARED, STRAY, Cloud, Samples
from .trial import Trial

CONFIDENCE = 0.95  # of the bounds that samples give which were set aside
SHARES = (0.5, 0.9, 0.95, 0.99)  # quantiles of the distance
LAW = 0.1  # standard deviation of the displaced samples that are projected, in sizes of the set
LANDINGS = 1_000  # displaced samples: a share of 1 % is then known to 0.3 %


@torch.no_grad()
def examine(M: LearnedSet, data: Samples, trial: Trial | None, cloud: Cloud, generator: torch.Generator) -> None:
    """Write into M.info what calibration, landings and close calls say, and the doubts that follow from all of it."""
    info = M.info
    info["calibration"] = known = calibration(M, cloud)
    info["spared"] = sorted(cloud.spared_rows.tolist())
    info["outliers"] += known["outliers"] if known else 0
    info["landings"] = landings(M, data, generator)
    info["close_calls"] = close_calls(trial) if trial else []
    info["notes"], info["dropped"] = dropped(data, cloud)
    apart = None if trial and filled(M, data, trial) else pieces(cloud.x)
    odd = data.doubts if info["title"] != "everything" else []  # where nothing was found, nobody disagrees with it
    info["doubts"] = [*([str(apart)] if apart else []), *odd, *(doubts(M, data, trial) if trial else [])]
    info["text"] = text(info)


# --- calibration ------------------------------------------------------------------------------------------------
def calibration(M: LearnedSet, cloud: Cloud) -> dict | None:
    """Distances of the spared samples from the set; for each share the bound that holds with a confidence of 95 %."""
    m = len(cloud.spared)
    if m < SPARED:
        return None
    far = torch.linalg.vector_norm(M.foot(cloud.spared) - cloud.spared, dim=1).sort().values
    ranks = {q: rank(m, q) for q in SHARES}
    bounds = {f"{q:g}": float(far[k - 1]) for q, k in ranks.items() if k is not None}
    odd = int((far > STRAY * far.median() + 1e-6 * M.info["size"]).sum())
    return {"samples": m, "confidence": CONFIDENCE, "median": float(far.median()), "within": bounds, "outliers": odd}


def rank(m: int, share: float) -> int | None:
    """The least k such that the k-th smallest of m distances bounds that share of all with the confidence; None if none does.

    The k-th smallest fails to if at least k of the m samples lie among the share that is nearest, which is binomial.
    """
    below, logs = 0.0, (math.log(share), math.log1p(-share))
    for k in range(1, m + 1):
        j = k - 1
        ways = math.lgamma(m + 1) - math.lgamma(j + 1) - math.lgamma(m - j + 1)
        below += math.exp(ways + j * logs[0] + (m - j) * logs[1])
        if below >= CONFIDENCE:
            return k
    return None


def landings(M: LearnedSet, data: Samples, generator: torch.Generator) -> dict:
    """Displaced samples, projected: the share that lands farther from every sample than the local spacing of the samples."""
    x = data.lift(data.w)
    some = x[torch.randint(len(x), (LANDINGS,), generator=generator)]
    shift = torch.randn(some.shape, generator=generator, dtype=x.dtype) @ data.frame @ data.frame.mT
    z = some + LAW * data.unit / math.sqrt(data.w.shape[1]) * shift
    p = M.foot(z)
    far, lost = beyond(p, x).double().mean(), 1 - M.trusted(z, p).double().mean()
    return {"law": LAW, "points": LANDINGS, "beyond": float(far), "lost": float(lost)}


def close_calls(trial: Trial) -> list[str]:
    """Candidates of another dimension whose risk, near and far, is within its error of the chosen one's."""
    best = trial.chosen
    if not best.risk or rules.is_exact(trial, best):
        return []
    others = [c for c in trial.candidates if c.risk and c.dim != best.dim and c.method != "heat"]
    return [c.title for c in others if all(rules.tie(a, b) for a, b in zip(c.risk, best.risk, strict=True))]


def dropped(data: Samples, cloud: Cloud) -> tuple[list[str], list[int]]:
    """What was left out and why, in words, and the rows of the samples that were."""
    kept = torch.isin(cloud.rows, data.rows)
    notes, d, n = list(data.notes), *data.frame.shape
    if n < d:
        flat = f"noise of {data.flat:.2g}" if data.flat > thresholds.THICK * data.unit else "rounding"
        still = [f"x{k + 1}" for k, row in enumerate(data.frame) if not bool(row.any())]
        names = f" (coordinates {', '.join(still)} constant)" if 0 < len(still) <= 12 else ""
        notes.append(f"{d - n} of {d} directions left out: the samples are flat there, but for {flat}{names}")
    return notes, sorted(int(k) for k in cloud.rows[~kept])[:10_000]
