"""Pictures of worlds and paths: the plane, and the sphere in three dimensions."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path as File
from typing import Any

import torch
from torch import Tensor

from ..drawing import BAD, FREE, GLOBE, OBSTACLE
from ..extras import needed_for
from .path import Path
from .worlds import BoxWorld, SphereWorld, World

VIEW = (22, -12)  # elevation, azimuth in degrees


def draw(world: World, path: Path, out: File, title: str = "", targets: Tensor | None = None) -> None:
    """Write a picture of the world and the paths."""
    with needed_for("Drawing paths"):
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(7.2, 5.6) if isinstance(world, BoxWorld) else (6.4, 6.4))
    axes = panel(figure, 111, world, title)
    paths(axes, world, path, targets)
    figure.savefig(out, dpi=150, bbox_inches="tight")
    plt.close(figure)


def animate(world: World, path: Path, out: File, seconds: float = 4.0, targets: Tensor | None = None) -> None:
    """The paths as they grow, a GIF."""
    with needed_for("Drawing paths"):
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as plt
        from matplotlib.animation import FuncAnimation, PillowWriter

    figure = plt.figure(figsize=(6.4, 5.0) if isinstance(world, BoxWorld) else (5.6, 5.6))
    axes = panel(figure, 111, world, "")
    frames = 40
    lines = [dense(world, p) for p in path.points]
    ends(axes, path, targets)
    if isinstance(world, SphereWorld):  # what is behind is not drawn
        lines = [torch.where(facing(p)[:, None], 1.003 * p, torch.nan) for p in lines]
    dots = [axes.plot(*p[:1].mT.tolist(), "o", color=FREE, ms=6, zorder=6)[0] for p in lines]
    trails = [axes.plot(*p[:1].mT.tolist(), "-", color=FREE, lw=1.6, zorder=5)[0] for p in lines]

    def show(frame: int):
        for p, dot, trail in zip(lines, dots, trails, strict=True):
            k = max(1, round((frame + 1) / frames * len(p)))
            for artist, part in ((dot, p[k - 1 : k]), (trail, p[:k])):
                (artist.set_data_3d if world.dim == 3 else artist.set_data)(*part.mT.numpy())
        return [*dots, *trails]

    FuncAnimation(figure, show, frames=frames).save(out, writer=PillowWriter(fps=round(frames / seconds)))
    plt.close(figure)


def panel(figure: Any, position: int, world: World, title: str) -> Any:
    """Axes with the world on them."""
    if isinstance(world, BoxWorld):
        return _plane(figure, position, world, title)
    if isinstance(world, SphereWorld):
        return _sphere(figure, position, world, title)
    raise ValueError(f"Pictures are drawn in the plane and on the sphere, got dimension {world.dim}.")


def _plane(figure, position: int, world: BoxWorld, title: str):
    with needed_for("Drawing paths"):
        from matplotlib.patches import Circle

    if world.dim != 2:
        raise ValueError(f"Pictures are drawn in the plane and on the sphere, got a box of dimension {world.dim}.")
    axes = figure.add_subplot(position)
    (a, b), (c, d) = world.low.tolist(), world.high.tolist()
    for center, radius in zip(world.centers.tolist(), world.sizes.tolist(), strict=True):
        axes.add_patch(Circle(center, radius, color=OBSTACLE, zorder=1))
    axes.plot([a, c, c, a, a], [b, b, d, d, b], color="black", lw=1.2, zorder=2)
    margin = 0.03 * (c - a)
    axes.set(xlim=(a - margin, c + margin), ylim=(b - margin, d + margin), aspect="equal", title=title)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes


def _sphere(figure, position: int, world: SphereWorld, title: str):
    axes = figure.add_subplot(position, projection="3d", computed_zorder=False)
    t, p = torch.linspace(0, math.pi, 40), torch.linspace(0, 2 * math.pi, 80)
    grid = torch.stack([t.sin()[:, None] * p.cos(), t.sin()[:, None] * p.sin(), t.cos()[:, None].expand(40, 80)])
    axes.plot_surface(*grid.numpy(), color=GLOBE, alpha=0.35, linewidth=0, zorder=0)
    for c, r in zip(world.centers, world.sizes, strict=True):
        a, s = torch.linspace(0, 1, 14, dtype=torch.float64), torch.linspace(0, 2 * math.pi, 60, dtype=torch.float64)
        cap = world.rim_point(c.expand(14, 60, 3), (a * r)[:, None].expand(14, 60), s.expand(14, 60))
        shown = facing(c[None])[0]
        axes.plot_surface(*cap.permute(2, 0, 1).numpy(), color=OBSTACLE, alpha=0.95 if shown else 0.3, linewidth=0, zorder=1)
    axes.set_box_aspect((1, 1, 1))
    axes.set(xlim=(-0.75, 0.75), ylim=(-0.75, 0.75), zlim=(-0.75, 0.75), title=title)
    axes.view_init(*VIEW)
    axes.set_axis_off()
    return axes


def facing(p: Tensor) -> Tensor:
    """Which points of the sphere are on the viewer's side."""
    e, a = (math.radians(v) for v in VIEW)
    eye = torch.tensor([math.cos(e) * math.cos(a), math.cos(e) * math.sin(a), math.sin(e)], dtype=p.dtype)
    return p @ eye > 0


def dense(world: World, points: Tensor) -> Tensor:
    """Points along the straight ways between way points (k, n), 0.02 units apart."""
    spacing = 0.02 * world.unit
    a, b = points[:-1], points[1:]
    far = world.distance(a, b)
    parts = [points[:1]]
    for p, q, d in zip(a, b, far.tolist(), strict=True):
        if d > 1e-9 * world.unit:
            t = torch.linspace(0, d, max(2, math.ceil(d / spacing)), dtype=points.dtype)[1:, None]
            parts.append(world.move(p.expand(len(t), -1), t * world.direction(p, q)))
    return torch.cat(parts)


def paths(axes, world: World, path: Path, targets: Tensor | None = None) -> None:
    """Lines, way points, circles at starts, crosses at targets; segments that collide in red, targets not reached too."""
    for points, clearance in zip(path.points, path.clearance, strict=True):
        for k in range(len(points) - 1):
            if float(world.distance(points[k], points[k + 1])) < 1e-9 * world.unit:
                continue
            _line(axes, world, dense(world, points[k : k + 2]), FREE if float(clearance[k]) >= 0 else BAD)
    ends(axes, path, targets)


def ends(axes, path: Path, targets: Tensor | None = None) -> None:
    """Circles and crosses; faint on the far side of a sphere. Without targets, paths that do not arrive have no cross."""
    last, lost = path.points[:, -1], ~path.reached
    for points, style in (
        (path.points[:, 0], {"marker": "o", "mfc": "white", "color": "black"}),
        (last[path.reached], {"marker": "x", "mew": 1.6, "color": "black"}),
        (last[:0] if targets is None else targets.double().expand_as(last)[lost], {"marker": "x", "mew": 1.6, "color": BAD}),
    ):
        near = facing(points) if points.shape[-1] == 3 else torch.ones(len(points), dtype=torch.bool)
        for rows, alpha in ((near, 1.0), (~near, 0.3)):
            if bool(rows.any()):
                axes.plot(*points[rows].mT.tolist(), ls="", ms=6, zorder=7, alpha=alpha, **style)


def _line(axes, world: World, line: Tensor, color: str) -> None:
    width = 2.2 if color == BAD else 1.4
    if isinstance(world, BoxWorld):
        axes.plot(*line.mT.tolist(), color=color, lw=width, zorder=5)
        return
    front = facing(line)
    cuts = [0, *((front[1:] != front[:-1]).nonzero()[:, 0] + 1).tolist(), len(line)]
    for a, b in pairwise(cuts):
        part = (1.003 * line[a : min(b + 1, len(line))]).mT.tolist()
        shown = bool(front[a])
        axes.plot(
            *part, color=color, lw=width, alpha=1.0 if shown else 0.35, ls="-" if shown else ":", zorder=5 if shown else 0.5
        )
