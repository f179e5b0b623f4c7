"""`load`: a learned set from the file that `M.save(path)` wrote."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from .algebraic import Algebraic
from .base import LearnedSet, read
from .flow_fit import LearnedFlow
from .within import Within

READERS: dict[str, type[LearnedSet]] = {c.__name__: c for c in (Algebraic, LearnedFlow, Within)}


def load(path: str | Path) -> LearnedSet:
    """The set, in eval mode, as it was saved."""
    header, tensors = read(Path(path))
    if header["class"] not in READERS:
        raise ValueError(f"load asked for a set of a known kind, got {header['class']!r} in {path}. Update inbounds.")
    try:
        return assemble(header, tensors)
    except (KeyError, TypeError, IndexError, RuntimeError) as error:
        raise ValueError(
            f"load asked for a file that M.save(path) wrote, got {path}, in which {error} is wrong or missing."
        ) from None


def assemble(header: dict, tensors: dict[str, Tensor]) -> LearnedSet:
    M = READERS[header["class"]].from_parts(tensors, header["spec"])
    M.info, M.reach = header["info"], header["reach"]
    return M.eval()
