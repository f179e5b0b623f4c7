"""Names become objects here, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def named(name: str, known: Mapping[str, T]) -> T:
    """The row, dataset, preset or job of that name."""
    if name not in known:
        raise ValueError(f"asked for a name among {', '.join(known)}, got {name!r}.")
    return known[name]
