"""What a fit found, in words and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .algebraic import Algebraic
from .base import LearnedSet
from .polynomials import Monomials
from .samples import Cloud, Samples

if TYPE_CHECKING:
    from .trial import Candidate, Trial

READABLE = 12  # terms
PAIRS = (40, 150)  # points, every pair of which bounds the reach: where tangents are dear, and where they are cheap


def describe(M: LearnedSet, data: Samples, trial: Trial | None, cloud: Cloud) -> dict[str, Any]:
    """Plain JSON: what the set is. `honesty.examine` adds how far it can be trusted, and the text."""
    d, n = data.frame.shape
    dim = int(getattr(M, "dim", n))
    chosen = trial.chosen if trial else None
    info: dict[str, Any] = {
        "method": M.method,
        "title": _title(chosen, d, n) if chosen else str(M),
        "samples": cloud.given,
        "used": len(data.w),
        "copies": cloud.copies,
        "outliers": len(cloud.x) - len(data.w),
        "space": d,
        "affine_dimension": n,
        "dimension": dim,
        "size": data.unit,
        "flat": data.flat,
        "noise": chosen.noise(trial) if trial and chosen and chosen.rest is not None and not chosen.region else None,
        "affine": affine(data),
        "equations": equations(M) if isinstance(M, Algebraic) else [],
        "inequality": inequality(M) if isinstance(M, Algebraic) else "",
        "thickness": M.thickness,
        "candidates": [c.line(c is chosen) for c in trial.candidates] if trial else [],
    }
    convex = M.reach == math.inf or (isinstance(M, Algebraic) and not M.codim and M.inside_degree <= 1)
    info["reach"] = math.inf if convex else reach(M, data, info["noise"]) if dim < n else None
    info["verdict"] = _verdict(info, chosen)
    return info


def _title(chosen: Candidate, d: int, n: int) -> str:
    return f"the affine subspace of dimension {n}" if chosen.title == "everything" and n < d else chosen.title


def _verdict(info: dict, chosen: Candidate | None) -> str:
    if chosen is None or not chosen.region:
        return ""
    n, everything = info["affine_dimension"], chosen.title == "everything"
    where = f"all {n} dimensions" if n == info["space"] else f"an affine subspace of dimension {n}"
    if chosen.sharp and not everything:
        return f"The samples fill a region of {where} up to a sharp boundary."
    found = "No structure was found: the" if n == info["space"] else "The"
    rest = "It is the set; support='sampled' bounds it." if everything else "The inequality is where they thin out."
    return f"{found} samples fill {where}, no sharp boundary shows. {rest}"


def text(info: dict[str, Any]) -> str:
    """What was found, in sentences, for `report()`."""
    d, n = info["space"], info["affine_dimension"]
    inside = f", inside an affine subspace of dimension {n}" if n < d else ""
    lines = [f"{info['method']}: {info['title']}", f"dimension {info['dimension']} in {d} coordinates{inside}", info["verdict"]]
    lines += [f"equation: {e}" for e in info["affine"] + info["equations"]]
    lines.append(f"inequality: {info['inequality']}" if info["inequality"] else "")
    if info["noise"] is not None:
        lines.append(f"noise across the set: {info['noise']:.2g} per coordinate (size of the set {info['size']:.3g})")
    if info["reach"] is not None:
        lines.append(f"reach, estimated: {info['reach']:.3g}")
    lines.append(f"{info['samples']} samples; {info['copies']} copies and {info['outliers']} outliers dropped")
    lines += info["notes"] + trust(info)
    if info["candidates"]:
        lines.append("tried (risk at small and large displacement: the dimension is best; distance of held-out samples):")
    for c in info["candidates"]:
        score = c["failure"] or f"{c['risk'][0]:.4g} {c['risk'][1]:.4g}, {c['residual']:.2g}"
        lines.append(f" {'*' if c['chosen'] else ' '} {c['method']}, {c['title']}: {score}")
    lines.append("Fitted to samples, not exact: violation(x) is the distance to its own projection.")
    return "\n".join(line for line in lines if line)


def trust(info: dict[str, Any]) -> list[str]:
    """How far the set can be trusted, in sentences."""
    known, landed = info["calibration"], info["landings"]
    bound = "no bound on the distance of new samples: that takes 590 different samples, a tenth of which is spared for it"
    if known is not None:
        bound = (
            f"with a confidence of 95 %, 95 % of new samples lie within {known['within']['0.95']:.2g} of the set "
            f"({known['samples']} samples that were used for nothing else; their median is {known['median']:.2g})"
        )
    beyond = (
        f"{landed['beyond']:.1%} of samples displaced by {landed['law']:g} of the size are projected to points farther from "
        f"every sample than these are from each other"
    )
    calls = [f"close call: {title}" for title in info["close_calls"]]
    return [bound, beyond, *calls, *(f"DOUBT: {doubt}" for doubt in info["doubts"])]


@torch.no_grad()
def reach(M: LearnedSet, data: Samples, noise: float | None) -> float | None:
    """Federer: the least |q - p|^2 / (2 |normal part of q - p|) over pairs of points of M; an upper bound of the reach."""
    y = M.foot(data.lift(data.w[: PAIRS[isinstance(M, Algebraic)]]))
    k = len(y)
    p, q = y.repeat_interleave(k, 0), y.repeat(k, 1)
    v = q - p
    far = torch.linalg.vector_norm(v, dim=1) > max(1e-6 * data.unit, 30 * (noise or 0.0))
    p, v = p[far], v[far]
    normal = v - M.tangent(p.reshape(-1, *M.shape), v.reshape(-1, *M.shape)).reshape(v.shape)
    off = torch.linalg.vector_norm(normal, dim=1)
    radius = v.square().sum(1) / (2 * off.clamp(min=1e-12 * data.unit))
    return float(radius.min()) if len(radius) and bool(torch.isfinite(radius).all()) else None


# --- polynomials for readers -------------------------------------------------------------------------------------
def equations(M: Algebraic) -> list[str]:
    """If they are few and short."""
    if not 0 < len(M.C) <= 3 or M.degree > 6:
        return []
    return [f"{p} = 0" for p in _readable(M, M.p.values, M.degree)]


def affine(data: Samples) -> list[str]:
    """Of the subspace, if they are few and short."""
    d, n = data.frame.shape
    if not 0 < d - n <= 3:
        return []
    normals = torch.linalg.qr(data.frame, mode="complete")[0][:, n:].mT
    C = torch.cat([-normals @ data.center[:, None], normals], 1)
    return [f"{p} = 0" for p in _written(C, list(range(d)), 1, float(data.center.abs().max()) + data.unit)]


def inequality(M: Algebraic) -> str:
    """If it is a ball or an ellipsoid."""
    if M.inside_degree != 1:
        return ""
    return "".join(f"{p} <= 0" for p in _readable(M, lambda w: M.f.values(w).square().sum(1, keepdim=True) - 1, 2))


def _readable(M: Algebraic, values: Callable[[Tensor], Tensor], degree: int) -> list[str]:
    """Polynomials (rows, r), known by their values, in the samples' own coordinates."""
    identity = torch.eye(M.frame.shape[0], dtype=torch.float64)
    middle = M.center @ M.frame
    own = all(bool((identity == col).all(1).any()) for col in M.frame.mT[:, None])
    if not own or float(middle.norm()) > 10 * M.unit:  # far from the origin the terms cancel
        return []
    extent = float(middle.abs().max() + M.unit * M.scale.max())
    return _written(_expanded(M, values, degree), M.frame.argmax(0).tolist(), degree, extent)


def _expanded(M: Algebraic, values: Callable[[Tensor], Tensor], degree: int) -> Tensor:
    """Coefficients in x instead of (x - center) / scale: by interpolation at random points."""
    monomials = Monomials(M.n, degree)
    g = torch.Generator().manual_seed(0)
    x = M.unit * torch.randn(3 * len(monomials), M.n, generator=g, dtype=torch.float64)
    powers = M.unit ** torch.tensor([float(sum(a)) for a in monomials.exponents], dtype=torch.float64)
    return torch.linalg.lstsq(monomials(x / M.unit), values((x - M.center @ M.frame) / M.unit)).solution.mT / powers


def _echelon(C: Tensor) -> Tensor:
    """Row reduced, highest monomials first: short equations."""
    C, row = C.flip(1).clone(), 0
    for column in range(C.shape[1]):
        if row == len(C):
            break
        pivot = row + int(C[row:, column].abs().argmax())
        if float(C[pivot, column].abs()) < 1e-6 * float(C.abs().max()):
            continue
        C[[row, pivot]] = C[[pivot, row]]
        C[row] = C[row] / C[row, column]
        others = torch.arange(len(C)) != row
        C[others] = C[others] - C[others, column][:, None] * C[row]
        row += 1
    return C.flip(1)


def _written(C: Tensor, coordinates: list[int], degree: int, extent: float) -> list[str]:
    """The polynomials with the coefficients C (r, count) that are short: terms that are 1e-5 of the largest where the set is."""
    names, exponents = [f"x{k + 1}" for k in coordinates], Monomials(len(coordinates), degree).exponents
    size = torch.tensor([extent ** sum(a) for a in exponents], dtype=torch.float64)
    found = []
    for c in _echelon(C):
        kept = (size * c.abs() > 1e-5 * (size * c.abs()).max()).nonzero()[:, 0].flip(0).tolist()
        if 0 < len(kept) <= READABLE:
            words = [_term(float(c[k] / c[kept[0]]), exponents[k], names) for k in kept]
            found.append(" ".join(words).removeprefix("+ "))
    return found


def _term(v: float, a: tuple[int, ...], names: list[str]) -> str:
    """With its sign, as in "- 2 x1^2 x3"."""
    factors = [n if e == 1 else f"{n}^{e}" for n, e in zip(names, a, strict=True) if e]
    number = f"{abs(v):.6g}"
    return " ".join(["-" if v < 0 else "+", *([] if number == "1" and factors else [number]), *factors])
