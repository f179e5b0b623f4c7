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
from .samples import Samples

if TYPE_CHECKING:
    from .fit import Candidate

READABLE = 12  # terms
PAIRS = (40, 150)  # points, every pair of which bounds the reach: where tangents are dear, and where they are cheap


def describe(
    M: LearnedSet, data: Samples, candidates: list[Candidate], chosen: Candidate | None, seconds: float
) -> dict[str, Any]:
    """Plain JSON; "text" says the same to a reader."""
    d, n = data.frame.shape
    dim = int(getattr(M, "dim", n))
    info: dict[str, Any] = {
        "method": M.method,
        "title": _title(chosen, d, n) if chosen else str(M),
        "samples": data.given,
        "used": len(data.w),
        "copies": data.copies,
        "outliers": data.strays,
        "space": d,
        "affine_dimension": n,
        "dimension": dim,
        "size": data.unit,
        "flat": data.flat,
        "noise": _noise(M, data, dim, chosen),
        "affine": affine(data),
        "equations": equations(M) if isinstance(M, Algebraic) else [],
        "inequality": inequality(M) if isinstance(M, Algebraic) else "",
        "candidates": [_line(c, c is chosen) for c in candidates],
        "seconds": round(seconds, 2),
    }
    convex = M.reach == math.inf or (isinstance(M, Algebraic) and not M.codim and M.inner <= 1)
    info["reach"] = math.inf if convex else reach(M, data, info["noise"]) if dim < n else None
    info["verdict"] = _verdict(info, chosen, data)
    info["text"] = text(M, info)
    return info


def _title(chosen: Candidate, d: int, n: int) -> str:
    return f"the affine subspace of dimension {n}" if chosen.title == "everything" and n < d else chosen.title


def _noise(M: LearnedSet, data: Samples, dim: int, chosen: Candidate | None) -> float | None:
    """Standard deviation per coordinate across the set, from held-out samples."""
    if chosen is None or chosen.rest is None or chosen.region:
        return None
    codim = max(data.frame.shape[1] - dim, 1)
    return math.sqrt(float(chosen.rest.mean()) / codim)


def _verdict(info: dict, chosen: Candidate | None, data: Samples) -> str:
    n = info["affine_dimension"]
    if chosen is None or not chosen.region:
        return ""
    where = f"all {n} dimensions" if n == info["space"] else f"an affine subspace of dimension {n}"
    if chosen.title != "everything" and chosen.sharp:
        return f"The samples fill a region of {where} up to a sharp boundary."
    found = "No structure was found: the" if n == info["space"] else "The"
    rest = (
        "It is the set; support='sampled' bounds it."
        if chosen.title == "everything"
        else "The inequality is where they thin out."
    )
    return f"{found} samples fill {where}, no sharp boundary shows. {rest}"


def _line(c: Candidate, chosen: bool) -> dict[str, Any]:
    return {
        "method": c.method,
        "title": c.title,
        "risk": [round(r, 5) for r in c.score()],
        "residual": math.sqrt(float(c.rest.mean())) if c.rest is not None else None,
        "seconds": round(c.seconds, 2),
        "failure": c.failure,
        "chosen": chosen,
    }


def text(M: LearnedSet, info: dict[str, Any]) -> str:
    """What was found, in sentences, for `report()`."""
    lines = [
        f"{info['method']}: {info['title']}",
        f"dimension {info['dimension']} in {info['space']} coordinates"
        + (f", inside an affine subspace of dimension {info['affine_dimension']}" * (info["affine_dimension"] < info["space"])),
    ]
    lines += [info["verdict"]] if info["verdict"] else []
    lines += [f"equation: {e}" for e in info["affine"] + info["equations"]]
    lines += [f"inequality: {info['inequality']}"] if info["inequality"] else []
    if info["noise"] is not None:
        lines.append(f"noise across the set: {info['noise']:.2g} per coordinate (size of the set {info['size']:.3g})")
    if info["reach"] is not None:
        lines.append(f"reach, estimated: {info['reach']:.3g}")
    dropped = f"{info['copies']} copies and {info['outliers']} outliers dropped"
    lines.append(f"{info['samples']} samples; {dropped}; {info['seconds']:.1f} s")
    if info["candidates"]:
        lines.append("tried (risk at small and large displacement: the dimension is best; distance of held-out samples):")
    for c in info["candidates"]:
        mark = "*" if c["chosen"] else " "
        score = c["failure"] or f"{c['risk'][0]:.4g} {c['risk'][1]:.4g}, {c['residual']:.2g}"
        lines.append(f" {mark} {c['method']}, {c['title']}: {score}")
    lines.append("Fitted to samples, not exact: violation(x) is the distance to its own projection.")
    return "\n".join(lines)


@torch.no_grad()
def reach(M: LearnedSet, data: Samples, noise: float | None) -> float | None:
    """Federer: the least |q - p|^2 / (2 |normal part of q - p|) over pairs of points of M; an upper bound of the reach."""
    y = M._foot(data.lift(data.w[: PAIRS[isinstance(M, Algebraic)]]))
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
    return [f"{p} = 0" for p in _readable(M, M._p.values, M.degree)]


def affine(data: Samples) -> list[str]:
    """Of the subspace, if they are few and short."""
    d, n = data.frame.shape
    if not 0 < d - n <= 3:
        return []
    normals = torch.linalg.qr(data.frame, mode="complete")[0][:, n:].mT
    C = _echelon(torch.cat([-normals @ data.center[:, None], normals], 1))
    names, extent = [f"x{k + 1}" for k in range(d)], float(data.center.abs().max()) + data.unit
    return [f"{t} = 0" for t in (_polynomial(row, Monomials(d, 1).exponents, names, extent) for row in C) if t]


def inequality(M: Algebraic) -> str:
    """If it is a ball or an ellipsoid."""
    if M.inner != 1:
        return ""
    return "".join(f"{p} <= 0" for p in _readable(M, lambda w: M._f.values(w).square().sum(1, keepdim=True) - 1, 2))


def _readable(M: Algebraic, values: Callable[[Tensor], Tensor], degree: int) -> list[str]:
    """Polynomials (rows, r), known by their values, in the samples' own coordinates."""
    identity = torch.eye(M.frame.shape[0], dtype=torch.float64)
    middle = M.center @ M.frame
    own = all(bool((identity == col).all(1).any()) for col in M.frame.mT[:, None])
    if not own or float(middle.norm()) > 10 * M.unit:  # far from the origin the terms cancel
        return []
    names = [f"x{int(col.argmax()) + 1}" for col in M.frame.mT]
    C = _expanded(M, values, degree)
    C = _echelon(C) if len(C) > 1 else C
    extent = float(middle.abs().max() + M.unit * M.scale.max())
    texts = [_polynomial(row, Monomials(M.n, degree).exponents, names, extent) for row in C]
    return [t for t in texts if t]


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


def _polynomial(c: Tensor, exponents: list[tuple[int, ...]], names: list[str], extent: float) -> str:
    """Terms that are 1e-5 of the largest where the set is."""
    weight = torch.tensor([extent ** sum(a) for a in exponents], dtype=torch.float64) * c.abs()
    kept = (weight > 1e-5 * weight.max()).flip(0)
    terms = [(float(v), a) for v, a, k in zip(c.flip(0), reversed(exponents), kept, strict=True) if k]
    if len(terms) > READABLE:
        return ""
    lead = terms[0][0]
    words = [_term(v / lead, a, names, i == 0) for i, (v, a) in enumerate(terms)]
    return " ".join(words)


def _term(v: float, a: tuple[int, ...], names: list[str], first: bool) -> str:
    factors = [n if e == 1 else f"{n}^{e}" for n, e in zip(names, a, strict=True) if e]
    number = f"{abs(v):.6g}"
    body = " ".join(([] if number == "1" and factors else [number]) + factors)
    sign = "-" if v < 0 else "+"
    return (f"-{body}" if v < 0 else body) if first else f"{sign} {body}"
