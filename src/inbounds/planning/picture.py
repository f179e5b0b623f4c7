"""A path as a picture in a notebook: plain SVG of worlds in the plane and on the sphere, without any package."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

from ..drawing import BAD, FREE, GLOBE, OBSTACLE
from .drawing import VIEW, dense, facing
from .worlds import BoxWorld, SphereWorld, World

WIDTH = 360  # pixels
MOST = 60  # paths in one picture
RINGS = (0.25, 0.5, 0.75, 1.0)  # circles that shade a cap, as parts of its angle


def svg(world: World, points: Tensor, clearance: Tensor) -> str | None:
    """The obstacles and the paths (rows, k, n), colliding segments in red; None for worlds that have no flat picture."""
    if isinstance(world, BoxWorld) and world.dim == 2:
        view, parts = _plane(world)
    elif isinstance(world, SphereWorld) and world.dim == 3:
        view, parts = _globe(world)
    else:
        return None
    for row, gaps in zip(points[:MOST], clearance[:MOST], strict=True):
        parts += _path(world, view, row, gaps)
    body = "".join(parts)
    w, h = view.size
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w:.0f} {h:.0f}" width="{w:.0f}" height="{h:.0f}">{body}</svg>'


class _View:
    """Where points of the world are on the page: x right, y down, in pixels."""

    def __init__(self, low: Tensor, high: Tensor, axes: Tensor):
        self.scale = WIDTH / float(high[0] - low[0])
        self.low, self.high, self.axes = low, high, axes
        self.size = (WIDTH, float(high[1] - low[1]) * self.scale)

    def __call__(self, points: Tensor) -> list[tuple[float, float]]:
        flat = points @ self.axes.mT
        return [((x - float(self.low[0])) * self.scale, (float(self.high[1]) - y) * self.scale) for x, y in flat.tolist()]


def _plane(world: BoxWorld) -> tuple[_View, list[str]]:
    view = _View(world.low, world.high, torch.eye(2, dtype=torch.float64))
    w, h = view.size
    parts = [f'<rect width="{w:.0f}" height="{h:.0f}" fill="white" stroke="black" stroke-width="2"/>']
    for (x, y), r in zip(view(world.centers), (world.sizes * view.scale).tolist(), strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}" fill="{OBSTACLE}"/>')
    return view, parts


def _globe(world: SphereWorld) -> tuple[_View, list[str]]:
    e, a = (math.radians(v) for v in VIEW)
    right = [-math.sin(a), math.cos(a), 0.0]
    up = [-math.sin(e) * math.cos(a), -math.sin(e) * math.sin(a), math.cos(e)]
    edge = torch.full((2,), 1.04, dtype=torch.float64)
    view = _View(-edge, edge, torch.tensor([right, up], dtype=torch.float64))
    parts = [f'<circle cx="{WIDTH / 2}" cy="{WIDTH / 2}" r="{view.scale:.1f}" fill="{GLOBE}" stroke="{OBSTACLE}"/>']
    turn = torch.linspace(0, 2 * math.pi, 73, dtype=torch.float64)
    for center, angle in zip(world.centers, world.sizes, strict=True):
        for part in RINGS:
            ring = world.rim_point(center.expand(73, 3), (part * angle).expand(73), turn)
            parts += _line(view, ring, OBSTACLE, 2.0 if part == 1 else 1.0)
    return view, parts


def _path(world: World, view: _View, points: Tensor, clearance: Tensor) -> list[str]:
    parts = []
    for a, b, gap in zip(points[:-1], points[1:], clearance.tolist(), strict=True):
        if not torch.equal(a, b):
            parts += _line(view, dense(world, torch.stack([a, b])), FREE if gap >= 0 else BAD, 2.0)
    (x, y), (p, q) = view(points[[0, -1]])
    parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="white" stroke="black"/>')
    parts.append(f'<path d="M{p - 4:.1f} {q - 4:.1f}l8 8m0 -8l-8 8" stroke="black" stroke-width="1.5" fill="none"/>')
    return parts


def _line(view: _View, points: Tensor, color: str, width: float) -> list[str]:
    """A line through points; on a sphere the part behind is dotted and faint."""
    front = facing(points) if points.shape[-1] == 3 else torch.ones(len(points), dtype=torch.bool)
    cuts = [0, *((front[1:] != front[:-1]).nonzero()[:, 0] + 1).tolist(), len(points)]
    parts = []
    for i, j in pairwise(cuts):
        shown = " ".join(f"{x:.1f},{y:.1f}" for x, y in view(points[i : j + 1]))
        behind = "" if front[i] else ' stroke-dasharray="2 3" opacity="0.4"'
        parts.append(f'<polyline points="{shown}" fill="none" stroke="{color}" stroke-width="{width:g}"{behind}/>')
    return parts
