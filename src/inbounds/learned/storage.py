"""`load`: a learned set from the file that `M.save(path)` wrote."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .algebraic import Algebraic
from .alpha import AlphaShape
from .base import LearnedSet, is_number, is_whole, read
from .flow import Flow
from .heat import Heat
from .hull import Hull
from .local import Local
from .polynomials import Monomials
from .within import Within

READERS: dict[str, type[LearnedSet]] = {c.__name__: c for c in (Algebraic, AlphaShape, Flow, Heat, Hull, Local, Within)}
READERS["LearnedFlow"] = Flow  # its name in files of earlier versions

Rule = tuple[Callable[[Any], bool], str]
SHAPE: Rule = (lambda v: isinstance(v, list) and all(is_whole(n, 1) for n in v), "a list of whole numbers > 0")
WHOLE: Rule = (is_whole, "a whole number >= 0")
POSITIVE: Rule = (lambda v: is_number(v) and 0 < v < math.inf, "a finite number > 0")
OBJECT: Rule = (lambda v: isinstance(v, dict), "an object")
RULES = {
    "shape": SHAPE,
    **dict.fromkeys(("degree", "dim", "blend", "size", "width", "depth", "steps", "max_steps"), WHOLE),
    **dict.fromkeys(("unit", "t", "T", "scale", "tolerance", "rtol", "atol"), POSITIVE),
    **dict.fromkeys(("of", "net"), OBJECT),
    **dict.fromkeys(("thickness", "margin"), (lambda v: is_number(v) and 0 <= v < math.inf, "a finite number >= 0")),
    "inner": (lambda v: is_whole(v) or isinstance(v, str), "a degree or a method"),
}

# a letter per dimension; the same letter, the same size
SIZES = {
    "Algebraic": {"center": "d", "frame": "dn", "scale": "n", "samples": "sn", "C": "rq", "tau": "r", "W": "scr", "F": "mp"},
    "Flow": {"samples": "sd"},
    "Within": {
        "inner.facets": "fnn",
        "inner.normals": "fn",
        "inner.graphs": "gkn",
        "inner.samples": "sn",
        "center": "d",
        "frame": "dn",
    },
}


def load(path: str | Path) -> LearnedSet:
    """The set, in eval mode, as it was saved."""
    header, tensors = read(Path(path))
    if header["class"] not in READERS:
        raise ValueError(f"load asked for a set of a known kind, got {header['class']!r} in {path}. Update inbounds.")
    try:
        _check_spec(header["spec"])
        tensors = {k: _checked(k, t) for k, t in tensors.items()}
        _check_sizes(READERS[header["class"]].__name__, header["spec"], tensors)
        M = assemble(header, tensors)
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


def _check_spec(spec: dict[str, Any]) -> None:
    for key, value in spec.items():
        fits, wanted = RULES.get(key, (lambda v: True, ""))
        if not fits(value):
            raise ValueError(f"{key} is {reprlib.repr(value)}, not {wanted}")
        if isinstance(value, dict):
            _check_spec(value)


def _checked(name: str, t: Tensor) -> Tensor:
    """In float64; the weights of networks as they are."""
    if not t.dtype.is_floating_point or not bool(torch.isfinite(t).all()):
        raise ValueError(f"{name} ({t.dtype}) should hold finite floating point numbers")
    return t if name.startswith("net.") else t.double()


def _check_sizes(kind: str, spec: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Raise where sizes disagree: broadcasting would hide some of it."""
    known = {"d": math.prod(spec["shape"])} if "shape" in spec else {}
    if kind == "Algebraic":
        n = tensors["frame"].shape[-1]
        known |= {k: Monomials.count(n, spec[name]) for k, name in (("q", "degree"), ("p", "inner"))}
    for name, letters in SIZES.get(kind, {}).items():
        shape = tuple(tensors[name].shape) if name in tensors else ()
        wanted = ", ".join(str(known.get(k, k)) for k in letters)
        fits = len(shape) == len(letters) and all(known.setdefault(k, n) == n for k, n in zip(letters, shape, strict=True))
        if name in tensors and not fits:
            raise ValueError(f"{name} has shape {shape}, not ({wanted}), for points of shape {spec.get('shape')}")


@torch.no_grad()
def _try_out(M: LearnedSet) -> None:
    """Project a point of the set."""
    try:
        x = M.known()[:1]
    except NotImplementedError:
        x = torch.zeros(1, math.prod(M.shape), dtype=torch.float64)
    if not len(x) or not bool(torch.isfinite(M.project(x.reshape(1, *M.shape))).all()):
        raise ValueError("it holds no samples of the set" if not len(x) else "a sample of the set has no finite projection")
