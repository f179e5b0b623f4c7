"""`Picture`: a set in two or three dimensions as plain SVG, for notebooks and files, without any package."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

WIDTH = 360  # pixels of the picture
CELLS = 90  # cells of the grid across, each of which is filled if its middle is in the set
DOTS = {2: 500, 3: 1500}  # projected points, by dimension
OWN = 2000  # points of the user's in one picture
MARGIN = 0.12  # around the samples, as a part of their extent
FILL, EDGE, INSIDE, OUTSIDE = "#cfe3ea", "#1f6f8b", "#d55e00", "#c1272d"
VIEW = (25, -50)  # elevation and azimuth in degrees


@dataclass(frozen=True)
class Picture:
    """A drawing. A notebook shows it, `save("set.svg")` writes a file that browsers and editors open."""

    svg: str = field(repr=False)
    title: str

    def save(self, path: str | Path) -> None:
        """Write the picture to a file whose name ends with .svg."""
        if Path(path).suffix != ".svg":
            raise ValueError(f"save asked for a file name that ends with .svg, got {str(path)!r}. Write 'set.svg'.")
        Path(path).write_text(self.svg)

    def _repr_svg_(self) -> str:
        return self.svg


@torch.no_grad()
def picture_of(M: Any, points: Tensor | None = None) -> Picture:
    """The set M, and points of the user's on top of it: orange where they are in M, red crosses where they are not."""
    n = math.prod(M.shape)
    if n not in DOTS:
        raise ValueError(
            f"plot asked for a set whose points have two or three numbers, got {M!r}, whose points have {n}. "
            f"Write M.sets[i].plot() for a part of a product; the command `inbounds gallery` draws matrices."
        )
    if M.batch:
        raise ValueError(f"plot asked for one set, got a batch of them, {M!r}. Build one of them and plot it.")
    device = next((t.device for t in (*M.buffers(), *M.parameters())), torch.device("cpu"))
    generator = torch.Generator(device).manual_seed(0)
    cloud = M.sample(400, generator=generator, dtype=torch.float64, device=device)
    low, high = _window(cloud.reshape(400, n), points)
    noise = low + (high - low) * torch.rand(DOTS[n], n, generator=generator, dtype=torch.float64, device=device)
    landed = _landed(M, noise, cloud).cpu()
    own = None if points is None else points.detach().to(device, torch.float64).reshape(-1, n)[:OWN]
    inside = None if own is None else M.contains(own.to(points.dtype).reshape(-1, *M.shape)).cpu()  # pyright: ignore[reportOptionalMemberAccess]
    draw = _flat if n == 2 else _space
    svg = draw(M, low, high, landed, None if own is None else own.cpu(), inside)
    return Picture(svg, repr(M))


def _window(cloud: Tensor, points: Tensor | None) -> tuple[Tensor, Tensor]:
    """Two corners around the samples and the points; no side is shorter than a tenth of the longest."""
    if points is not None:
        cloud = torch.cat([cloud, points.detach().to(cloud).reshape(-1, cloud.shape[-1])])
        cloud = cloud[torch.isfinite(cloud).all(-1)]
    low, high = cloud.amin(0), cloud.amax(0)
    extent = (high - low).max()
    extent = extent if extent > 0 else torch.ones_like(extent)
    half = ((high - low) / 2).clamp(min=0.1 * float(extent)) + MARGIN * extent
    return (low + high) / 2 - half, (low + high) / 2 + half


def _landed(M: Any, noise: Tensor, cloud: Tensor) -> Tensor:
    """Where points outside of M land on it, which is its boundary; the samples where a solver does not find that."""
    x = noise.reshape(-1, *M.shape)
    try:
        y = M.project(x)
    except RuntimeError:
        return cloud.flatten(1)
    moved = (y - x).abs().flatten(1).amax(1) > 1e-9 * noise.abs().max()
    return y.flatten(1)[moved & torch.isfinite(y).flatten(1).all(1)]


def _flat(M: Any, low: Tensor, high: Tensor, landed: Tensor, own: Tensor | None, inside: Tensor | None) -> str:
    """The cells inside, filled, with the boundary and the points on top."""
    (a, b), (c, d) = low.tolist(), high.tolist()
    scale = WIDTH / max(c - a, d - b)
    w, h = (c - a) * scale, (d - b) * scale
    nx, ny = (max(1, round(CELLS * side / WIDTH)) for side in (w, h))
    px, py = w / nx, h / ny
    x = a + (torch.arange(nx, dtype=torch.float64) + 0.5) * px / scale
    y = d - (torch.arange(ny, dtype=torch.float64) + 0.5) * py / scale
    middles = torch.stack(torch.meshgrid(x, y, indexing="xy"), -1).to(low.device)  # (ny, nx, 2)
    held = M.contains(middles.reshape(-1, *M.shape)).reshape(ny, nx).cpu()
    parts = [
        f'<rect x="{i * px:.1f}" y="{row * py:.1f}" width="{(j - i) * px:.1f}" height="{py + 0.3:.1f}" fill="{FILL}"/>'
        for row in range(ny)
        for i, j in _runs(held[row].tolist())
    ]

    def place(p: Tensor) -> list[tuple[float, float]]:
        return [((u - a) * scale, (d - v) * scale) for u, v in p.tolist()]

    parts += [_dot(u, v, 1.4, EDGE) for u, v in place(landed)]
    parts += [] if own is None or inside is None else _marks(place(own), inside)
    corners = f'<text x="3" y="{h - 4:.0f}">{_short(a)}, {_short(b)}</text>'
    corners += f'<text x="{w - 3:.0f}" y="12" text-anchor="end">{_short(c)}, {_short(d)}</text>'
    return _page(w, h, "".join(parts), corners)


def _space(M: Any, low: Tensor, high: Tensor, landed: Tensor, own: Tensor | None, inside: Tensor | None) -> str:
    """Points of the surface seen from the outside, near ones on top of far ones and darker."""
    e, t = (math.radians(v) for v in VIEW)
    right = [-math.sin(t), math.cos(t), 0.0]
    up = [-math.sin(e) * math.cos(t), -math.sin(e) * math.sin(t), math.cos(e)]
    eye = [math.cos(e) * math.cos(t), math.cos(e) * math.sin(t), math.sin(e)]
    axes = torch.tensor([right, up, eye], dtype=torch.float64)
    middle, half = ((low + high) / 2).cpu(), float((high - low).norm()) / 2
    scale = WIDTH / (2 * half)

    def seen(p: Tensor) -> Tensor:
        q = (p - middle) @ axes.mT * scale
        return torch.stack([WIDTH / 2 + q[:, 0], WIDTH / 2 - q[:, 1], q[:, 2] / (half * scale)], -1)

    corners = torch.tensor([[float((low, high)[k >> i & 1][i]) for i in range(3)] for k in range(8)], dtype=torch.float64)
    c = seen(corners).tolist()
    box = "".join(
        f'<path d="M{c[k][0]:.1f} {c[k][1]:.1f}L{c[k ^ bit][0]:.1f} {c[k ^ bit][1]:.1f}" stroke="#d5dade"/>'
        for k in range(8)
        for bit in (1, 2, 4)
        if not k & bit
    )
    q = seen(landed)
    dots = [_dot(u, v, 1.7, EDGE, 0.55 + 0.45 * max(-1.0, min(1.0, z))) for u, v, z in q[q[:, 2].argsort()].tolist()]
    parts = dots + ([] if own is None or inside is None else _marks([(u, v) for u, v, _ in seen(own).tolist()], inside))
    return _page(WIDTH, WIDTH, box + "".join(parts), "")


def _runs(held: list[bool]) -> list[tuple[int, int]]:
    """The maximal runs of True as half-open ranges."""
    edges = [i for i, (p, q) in enumerate(zip([False, *held], [*held, False], strict=True)) if p != q]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _dot(x: float, y: float, r: float, color: str, opacity: float = 1.0) -> str:
    faint = "" if opacity >= 1 else f' opacity="{opacity:.2f}"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:g}" fill="{color}"{faint}/>'


def _marks(places: list[tuple[float, float]], inside: Tensor) -> list[str]:
    cross = '<path d="M{:.1f} {:.1f}l6 6m0 -6l-6 6" stroke="{}" stroke-width="1.5" fill="none"/>'
    return [
        _dot(x, y, 2.6, INSIDE) if ok else cross.format(x - 3, y - 3, OUTSIDE)
        for (x, y), ok in zip(places, inside.tolist(), strict=True)
        if math.isfinite(x) and math.isfinite(y)
    ]


def _short(value: float) -> str:
    return f"{value:.3g}"


def _page(w: float, h: float, body: str, words: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w:.0f} {h:.0f}" width="{w:.0f}" height="{h:.0f}">'
        f'<rect width="{w:.0f}" height="{h:.0f}" fill="white" stroke="#9aa3ad"/>{body}'
        f'<g font-family="sans-serif" font-size="10" fill="#5a636b">{words}</g></svg>'
    )
