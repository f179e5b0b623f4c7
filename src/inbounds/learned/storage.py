"""`load`: a learned set from the file that `M.save(path)` wrote."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

from .algebraic import Algebraic
from .alpha import AlphaShape
from .base import LearnedSet, misfit, read
from .flow import Flow
from .heat import Heat
from .hull import Hull
from .local import Local
from .polynomials import Monomials
from .within import Within

READERS: dict[str, type[LearnedSet]] = {c.__name__: c for c in (Algebraic, AlphaShape, Flow, Heat, Hull, Local, Within)}
READERS["LearnedFlow"] = Flow  # its name in files of earlier versions
# of the polynomials of Algebraic, q and p are the numbers of monomials; the other kinds look at their tensors themselves
SIZES = {"center": "d", "frame": "dn", "scale": "n", "samples": "sn", "C": "rq", "tau": "r", "W": "scr", "F": "mp"}


def load(path: str | Path) -> LearnedSet:
    """The set, in eval mode, as it was saved."""
    header, tensors = read(Path(path))
    if header["class"] not in READERS:
        raise ValueError(f"load asked for a set of a known kind, got {header['class']!r} in {path}. Update inbounds.")
    try:
        _check(header, tensors)
        M = assemble(header, {k: t if k.startswith("net.") else t.double() for k, t in tensors.items()})
        M.check()
        _try_out(M)
    except Exception as error:  # whatever it is, the file is to blame
        reason = f"{error} is unknown or missing" if isinstance(error, KeyError) else str(error)[:200].rstrip(".")
        raise ValueError(f"load asked for a file that M.save(path) wrote, got {path}, which is damaged: {reason}.") from error
    return M


def assemble(header: dict, tensors: dict[str, Tensor]) -> LearnedSet:
    """The set of a header and its tensors, in eval mode."""
    M = READERS[header["class"]].from_parts(tensors, header["spec"])
    M.info, M.reach = header["info"], header["reach"]
    return M.eval()


def _check(header: dict, tensors: dict[str, Tensor]) -> None:
    """Raise where numbers are none, or where sizes disagree that the set's constructor does not compare."""
    for name, t in tensors.items():
        if not t.dtype.is_floating_point or not bool(torch.isfinite(t).all()):
            raise ValueError(f"{name} ({t.dtype}) should hold finite floating point numbers")
    spec, sizes, known = header["spec"], {}, {}
    if header["class"] == "Algebraic":
        n = tensors["frame"].shape[-1]
        sizes, known = SIZES, {"q": Monomials.count(n, spec["degree"]), "p": Monomials.count(n, spec["inner"])}
    if READERS[header["class"]] is Flow and "samples" in tensors:
        sizes = {"samples": "sd"}
    wrong = sizes and misfit(sizes, tensors, d=math.prod(spec["shape"]), **known)
    if wrong:
        raise ValueError(f"{wrong}, for points of shape {spec['shape']}")


@torch.no_grad()
def _try_out(M: LearnedSet) -> None:
    """Project a point of the set."""
    try:
        x = M.known()[:1]
    except NotImplementedError:
        x = torch.zeros(1, math.prod(M.shape), dtype=torch.float64)
    if not len(x) or not bool(torch.isfinite(M.project(x.reshape(1, *M.shape))).all()):
        raise ValueError("it holds no samples of the set" if not len(x) else "a sample of the set has no finite projection")
