"""Colours and saving, shared by all who draw."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from .extras import needed_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, GREY, GRID = "#33393f", "#5a636b", "#e6eaed"  # titles, what is said beside them, lines behind the data
NOISE, LAND, SECOND, THIRD = "#d3a04d", "#0072b2", "#d55e00", "#009e73"  # told apart by colour-blind eyes as well
OBSTACLE, GLOBE, FREE, BAD = "#9aa3ad", "#eef2f5", "#1f6f8b", "#c1272d"  # of worlds, and of paths that are free or collide


def save(fig: Figure, path: Path) -> None:
    """Write a PNG of 256 colours, a third of the size of full colour. The octree keeps rare colours exact."""
    with needed_for("Saving pictures"):
        from PIL import Image

    raw = io.BytesIO()
    fig.savefig(raw, format="png")
    few = Image.open(raw).convert("RGB").quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
