"""Colours and saving, shared by all who draw. Needs the extra inbounds[lab]."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

INK = "#33393f"
NOISE, LAND, SECOND, THIRD = "#d3a04d", "#0072b2", "#d55e00", "#009e73"  # told apart by colour-blind eyes as well


def save(fig: Figure, path: Path) -> None:
    """As a PNG of 256 colours, a third of the size of full colour; the octree keeps rare colours exact."""
    raw = io.BytesIO()
    fig.savefig(raw, format="png")
    Image.open(raw).convert("RGB").quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
        path, optimize=True
    )
