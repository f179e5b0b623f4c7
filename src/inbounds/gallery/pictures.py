"""One PNG per set, and all of them on one sheet: noise, where it lands, and the set."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from mpl_toolkits.mplot3d.art3d import Line3DCollection
from torch import Tensor

from ..drawing import GREY, INK, LAND, NOISE, SECOND, THIRD, save
from .shapes import EDGE, Backdrop, globe, hidden, screen, towards

COLUMNS = (SECOND, THIRD, LAND)
THREAD = "#7d868e"
CLOUD = {"noise": NOISE, "projected": LAND}
FRAME = {"noise": NOISE, **{f"projected column {k + 1}": c for k, c in enumerate(COLUMNS)}}
PAIR = dict(list(FRAME.items())[:3])


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What is looked at: a square or cube of half-width `half` around `middle`, in space from `camera` (elevation, azimuth)."""

    half: float
    middle: tuple[float, ...] = (0, 0, 0)
    camera: tuple[float, float] = (22, 35)
    says: str = ""
    legend = CLOUD

    @property
    def solid(self) -> bool:
        """Whether the scene is drawn in three dimensions."""
        return len(self.middle) == 3

    def axes(self, fig: Figure, cell: Any, bare: bool) -> Any:
        """Axes for this scene in a cell of the figure; bare ones have no numbers."""
        ax: Any = fig.add_subplot(cell, projection="3d" if self.solid else None)
        for name, m in zip("xyz", self.middle, strict=False):
            getattr(ax, f"set_{name}lim")(m - self.half, m + self.half)
        if self.solid:
            ax.set_box_aspect((1, 1, 1), zoom=1.62)
            ax.set_proj_type("ortho")
            ax.view_init(*self.camera)
            ax.computed_zorder = False
            ax.set_axis_off()
            return ax
        ax.set_aspect("equal")
        ax.tick_params(colors=GREY, labelsize=9, left=not bare, bottom=not bare, labelleft=not bare, labelbottom=not bare)
        ax.spines[:].set_color("#c9d0d6")
        return ax

    def sees(self, points: np.ndarray) -> np.ndarray:
        """Which points lie within the frame of the picture."""
        d = points - np.array(self.middle)
        return np.linalg.norm(d, axis=-1) <= self.half if self.solid else np.abs(d).max(-1) <= 0.97 * self.half


def flat(x: Tensor) -> np.ndarray:
    """The numbers themselves, as they are."""
    return x.numpy()


def dots(ax, points: np.ndarray, colour: str, size: float, alpha: float, zorder: int) -> None:
    """Draw points."""
    flat_only = {"depthshade": False} if points.shape[-1] == 3 else {}
    ax.scatter(*points.T, s=size, c=colour, alpha=alpha, lw=0, zorder=zorder, **flat_only)


def strokes(ax, start: np.ndarray, stop: np.ndarray, colour: str, width: float, alpha: float, zorder: int) -> None:
    """Draw straight lines from `start` to `stop`."""
    style = {"colors": colour, "lw": width, "alpha": alpha, "zorder": zorder}
    if not len(start):
        return  # mplot3d refuses an empty collection
    if start.shape[-1] == 3:
        ax.add_collection3d(Line3DCollection(np.stack([start, stop], 1), **style))
    else:
        ax.add_collection(LineCollection(list(np.stack([start, stop], 1)), **style))


@dataclass(frozen=True, kw_only=True)
class Cloud(Scene):
    """Points with their landing places. `coords` draws a batch as points of the plane or of space.

    Points in or behind `solids`, balls (center, radius), are fainter; `grain` is the size of noise dots.
    """

    backdrop: Backdrop
    coords: Callable[[Tensor], np.ndarray] = flat
    count: int = 300
    joined: int = 80
    solids: tuple = ()
    grain: float = 9

    def draw(self, ax, x: Tensor, p: Tensor, scale: float) -> None:
        """Draw noise, its projections and some of the lines between them."""
        self.backdrop(ax)
        a, b = self.coords(x), self.coords(p)
        seen = self.sees(a) & self.sees(b)
        a, b = a[seen][: self.count], b[seen][: self.count]
        moved = np.flatnonzero(np.abs(a - b).max(-1) > 1e-6)[: self.joined]
        strokes(ax, a[moved], b[moved], THREAD, 0.6 * scale, 0.7, EDGE + 1)
        far, lost = hidden(ax, a, self.solids), hidden(ax, b, self.solids)
        dots(ax, a[far], NOISE, self.grain * scale**2, 0.3, EDGE + 1)
        dots(ax, a[~far], NOISE, self.grain * scale**2, 0.7, EDGE + 2)
        dots(ax, b[lost], LAND, 9 * scale**2, 0.2, EDGE + 1)
        dots(ax, b[~lost], LAND, 13 * scale**2, 1.0, EDGE + 3)


@dataclass(frozen=True, kw_only=True)
class Frames(Scene):
    """Matrices as frames of their columns, `size` long. `parts` gives (matrices, places); without: a grid on screen.

    Frames are the first ones that stay in view and at least `gap` apart on the screen, or in their cell of the grid.
    """

    parts: Callable[[Tensor], tuple[np.ndarray, np.ndarray | None]]
    size: float = 1.0
    count: int = 9
    gap: float = 0.0
    backdrop: Backdrop | None = None
    offsets: bool = False
    legend = FRAME

    def draw(self, ax, x: Tensor, p: Tensor, scale: float) -> None:
        """Draw each matrix as three arrows, before and after projection."""
        if self.backdrop:
            self.backdrop(ax)
        A, R, places = self.chosen(ax, x, p)
        if self.offsets:
            strokes(ax, 0 * places, places, INK, 0.6 * scale, 0.6, EDGE)
        for k, colour in enumerate(COLUMNS):
            before, after = places + self.size * A[..., k], places + self.size * R[..., k]
            strokes(ax, places, before, NOISE, 1.3 * scale, 0.9, EDGE + 2)
            strokes(ax, before, after, THREAD, 0.5 * scale, 0.7, EDGE + 1)
            strokes(ax, places, after, colour, 2.6 * scale, 1.0, EDGE + 3)
        dots(ax, places, INK, 10 * scale**2, 1.0, EDGE + 4)

    def chosen(self, ax, x: Tensor, p: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The frames that are drawn, before and after projection, and where they stand."""
        (A, places), (R, _) = self.parts(x), self.parts(p)
        length = np.linalg.norm(A, axis=-2).max(-1)
        if places is None:
            places = lattice(ax, self.count, 2 * self.half)
            A, R = (m[length < 0.6 * 2 * self.half / math.isqrt(self.count)] for m in (A, R))
        else:
            length = self.size * length
            fits = (np.linalg.norm(places, axis=-1) + length < self.half) & (length < self.gap)
            kept = np.flatnonzero(fits)
            kept = kept[apart(places[kept] @ np.stack(screen(ax), 1), self.gap)]
            A, R, places = A[kept], R[kept], places[kept]
        n = min(self.count, len(A))
        return A[:n], R[:n], places[:n]


def apart(points: np.ndarray, gap: float) -> list[int]:
    """Indices of points, first come first kept, that are `gap` apart."""
    kept: list[int] = []
    for i, p in enumerate(points):
        if np.all(np.linalg.norm(points[kept] - p, axis=-1) > gap):
            kept.append(i)
    return kept


def lattice(ax, count: int, width: float) -> np.ndarray:
    """Places in rows and columns that face the eye."""
    side = math.isqrt(count)
    ticks = (np.arange(side) + 0.5) / side - 0.5
    right, up = screen(ax)
    return np.array([width * (i * right - j * up) for j in ticks for i in ticks])


@dataclass(frozen=True, kw_only=True)
class Pairs(Scene):
    """3 x 2 matrices as two points on the sphere, a quarter of a great circle apart. Those that face the eye."""

    count: int = 5
    legend = PAIR

    def draw(self, ax, x: Tensor, p: Tensor, scale: float) -> None:
        """Draw pairs of vectors on a globe, before and after projection."""
        globe()(ax)
        A, Q = flat(x), flat(p)
        seen = (np.linalg.norm(A, axis=-2).max(-1) < self.half) & ((towards(ax) @ Q).min(-1) > 0.05)
        A, Q = A[seen][: self.count], Q[seen][: self.count]
        turn = np.linspace(0, np.pi / 2, 49)
        for q in Q:
            arc = np.outer(np.cos(turn), q[:, 0]) + np.outer(np.sin(turn), q[:, 1])
            ax.plot(*arc.T, color=INK, lw=1.3 * scale, zorder=EDGE + 1)
        for k, colour in enumerate(COLUMNS[:2]):
            strokes(ax, A[..., k], Q[..., k], THREAD, 0.6 * scale, 0.7, EDGE)
            dots(ax, A[..., k], NOISE, 22 * scale**2, 0.8, EDGE + 2)
            dots(ax, Q[..., k], colour, 34 * scale**2, 1.0, EDGE + 3)


@dataclass(frozen=True)
class Plate:
    """A picture with its words and its points."""

    picture: Cloud | Frames | Pairs
    text: str
    label: str
    caption: str
    x: Tensor
    p: Tensor


def key(colours: dict[str, str]) -> list[Line2D]:
    """The entries of a legend."""
    return [Line2D([], [], color=c, marker="o", ls="", ms=7, label=name) for name, c in colours.items()]


def draw_plate(plate: Plate, path: Path) -> None:
    """Draw one plate with its title, its words and its caption."""
    fig = Figure(figsize=(8, 8), dpi=100, facecolor="white")
    title = textwrap.fill(re.sub(r", (?=[^\[]*\])", ",\u00a0", plate.text), 88)  # no break within the innermost brackets
    size = 14 if len(title) < 50 else 10
    fig.text(0.5, 0.955, title, ha="center", va="center", size=size, family="monospace", weight="bold", color=INK)
    fig.text(0.5, 0.908, plate.picture.says, ha="center", va="center", size=10.5, color=GREY)
    cell = fig.add_gridspec(1, 1, left=0.07, right=0.93, bottom=0.12, top=0.88)[0]
    ax = plate.picture.axes(fig, cell, bare=False)
    plate.picture.draw(ax, plate.x, plate.p, 1.4)
    legend = plate.picture.legend
    place = {"loc": "center", "bbox_to_anchor": (0.5, 0.068), "ncols": len(legend), "columnspacing": 1.4, "handletextpad": 0.2}
    fig.legend(handles=key(legend), frameon=False, fontsize=11, **place)
    fig.text(0.5, 0.018, plate.caption, ha="center", va="bottom", size=10.5, color=INK)
    save(fig, path)


def draw_overview(plates: list[Plate], path: Path) -> None:
    """Draw all plates on one page, with a key in the last cell."""
    cols = min(5, len(plates) + 1)
    rows = -(-(len(plates) + 1) // cols)
    fig = Figure(figsize=(3.2 * cols, 3.4 * rows), dpi=100, facecolor="white")
    grid = fig.add_gridspec(rows, cols, left=0.01, right=0.99, bottom=0.01, top=1 - 0.35 / (3.4 * rows), hspace=0.14, wspace=0.05)
    for i, plate in enumerate(plates):
        cell = grid[divmod(i, cols)]
        ax = plate.picture.axes(fig, cell, bare=True)
        plate.picture.draw(ax, plate.x, plate.p, 0.75)
        box = cell.get_position(fig)
        middle = (box.x0 + box.x1) / 2
        fig.text(middle, box.y1 + 0.02 / rows, plate.label, ha="center", va="bottom", size=11.5, weight="bold", color=INK)
    words = fig.add_subplot(grid[rows - 1, cols - 1])
    words.set_axis_off()
    words.legend(handles=key(CLOUD | FRAME), loc="center", frameon=False, fontsize=12)
    save(fig, path)
