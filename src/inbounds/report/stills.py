"""Stills of the moving pictures as SVG, seen from the same place as the page sees them at first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from .charts import Look, mark, svg

# rows of the rotation from the world to the eye, right, up, towards: the same numbers are in view.js
VIEW = ((0.80, 0.60, 0.0), (-0.24, 0.32, 0.9165), (0.55, -0.73, 0.40))
AXIS_COLOURS = ("off", "true", "iaa")


def seen(p: Sequence[float]) -> tuple[float, float, float]:
    """Right, down, towards the eye."""
    right, up, near = (sum(a * b for a, b in zip(row, p, strict=True)) for row in VIEW)
    return right, -up, near


def line(a: Sequence[float], b: Sequence[float], colour: str, kind: str = "thin", more: str = "") -> str:
    """A straight line from a to b as SVG."""
    return f'<path class="{kind} {colour}" d="M{a[0]:.1f} {a[1]:.1f}L{b[0]:.1f} {b[1]:.1f}"{more}/>'


def heading(text: str, x: float = 12, y: float = 20) -> str:
    """The title of a picture as SVG."""
    return f'<text class="title" x="{x:g}" y="{y:g}">{escape(text)}</text>'


def note(text: str, x: float, y: float, anchor: str = "start") -> str:
    """A small text as SVG."""
    return f'<text class="tick" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def best_inside(rows: Sequence[dict]) -> dict:
    """The row of the smallest error among those whose predictions are all in the set."""
    return min([row for row in rows if not any(row["off"])] or rows, key=lambda row: row["error"])


# --- the sphere ----------------------------------------------------------------------------------------------
def sphere(scene: dict) -> str:
    """The side that faces the eye."""
    row = best_inside(scene["rows"])
    middle, size = (220.0, 220.0), 180.0

    def at(p: Sequence[float]) -> tuple[float, float]:
        x, y, _ = seen(p)
        return middle[0] + size * x, middle[1] + size * y

    parts = [heading(f"Sphere: true end points and those of {row['title']}")]
    parts.append(f'<circle class="ball" cx="{middle[0]}" cy="{middle[1]}" r="{size}"/>')
    for p, v in scene["field"]:
        if seen(p)[2] > 0:
            parts.append(line(at(p), at([a + 0.07 * b for a, b in zip(p, v, strict=True)]), "free", more=' opacity="0.45"'))
    for true, end in zip(scene["true"], row["ends"], strict=True):
        if seen(true)[2] > 0:
            parts.append(line(at(true), at(end), row["colour"]))
            parts.append(mark(*at(true), Look("true"), size=3) + mark(*at(end), Look(row["colour"]), size=3))
    parts += [
        mark(60, 424, Look("true")),
        note("true", 70, 428),
        mark(120, 424, Look(row["colour"])),
        note("predicted", 130, 428),
    ]
    return svg(440, 440, "\n".join(parts), "A sphere with true and predicted end points")


# --- frames --------------------------------------------------------------------------------------------------
def frames(scene: dict, title: str) -> str:
    """The last picture of every lane."""
    cell, left, top = 60.0, 110.0, 40.0
    bodies = len(scene["target"])
    parts = [heading(f"{title}: output frames, targets dashed")]
    for k, lane in enumerate(scene["lanes"]):
        y = top + cell * (k + 0.5)
        parts.append(note(lane["title"], 12, y + 4))
        for j in range(bodies):
            c = (left + cell * (j + 0.5), y)
            parts += _frame(c, scene["target"][j], 24, ' stroke-dasharray="2 3"', "thin")
            parts += _frame(c, lane["frames"][-1][j], 24, "", "line")
    width, height = left + cell * bodies + 10, top + cell * len(scene["lanes"]) + 10
    return svg(max(width, 440), height, "\n".join(parts), f"{title}: predicted and true frames")


def _frame(c: tuple[float, float], axes: Sequence[Sequence[float]], size: float, more: str, kind: str) -> list[str]:
    ends = [(c[0] + size * x, c[1] + size * y) for x, y, _ in map(seen, axes)]
    return [line(c, end, colour, kind, more) for end, colour in zip(ends, AXIS_COLOURS, strict=True)]


# --- a protein -----------------------------------------------------------------------------------------------
def chain(scene: dict) -> str:
    """The backbone as it is and as the best row predicts it."""
    row = best_inside(scene["rows"])
    shown = [(220 + 185 * x, 225 + 185 * y) for x, y, _ in map(seen, scene["true"])]
    places = [(220 + 185 * x, 225 + 185 * y) for x, y, _ in map(seen, row["places"])]
    way = "L".join(f"{x:.1f} {y:.1f}" for x, y in shown)
    parts = [heading(f"Backbone of {scene['name']}: true, and by {row['title']}")]
    parts += [line(a, b, row["colour"], more=' opacity="0.5"') for a, b in zip(shown, places, strict=True)]
    parts.append(f'<path class="line true" d="M{way}"/>')
    parts += [mark(x, y, Look(row["colour"]), size=2.5) for x, y in places]
    return svg(440, 440, "\n".join(parts), "A protein backbone, predicted and true")


# --- planning ------------------------------------------------------------------------------------------------
def planning(scene: dict) -> str:
    """All worlds with the library's paths, two in a row."""
    cell, gap = 210.0, 12.0
    parts = [heading("Shortest paths around discs, certified")]
    for k, case in enumerate(scene["cases"]):
        corner = gap + (k % 2) * (cell + gap), 40 + (k // 2) * (cell * 0.75 + 30)
        parts.append(_world(case, corner, cell))
    rows = math.ceil(len(scene["cases"]) / 2)
    return svg(2 * cell + 3 * gap, 40 + rows * (cell * 0.75 + 30), "\n".join(parts), "Shortest paths around discs")


def _world(case: dict, corner: tuple[float, float], width: float) -> str:
    (x0, y0), (x1, y1) = case["world"]["box"]
    s = width / (x1 - x0)
    height = s * (y1 - y0)

    def at(p: Sequence[float]) -> tuple[float, float]:
        return corner[0] + s * (p[0] - x0), corner[1] + s * (y1 - p[1])

    clip = f"clip{corner[0]:.0f}-{corner[1]:.0f}"
    box = f'x="{corner[0]:.1f}" y="{corner[1]:.1f}" width="{width:.1f}" height="{height:.1f}"'
    parts = [f'<clipPath id="{clip}"><rect {box}/></clipPath><g clip-path="url(#{clip})">']
    for x, y, r in case["world"]["discs"]:
        parts.append('<circle class="disc" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"/>'.format(*at((x, y)), s * r))
    way = "L".join("{:.1f} {:.1f}".format(*at(p)) for p in case["library"]["points"])
    parts.append(f'</g><rect class="box" {box}/><path class="line iaa" d="M{way}"/>')
    parts += [mark(*at(case["start"]), Look("true"), size=4), mark(*at(case["target"]), Look("faa"), size=4)]
    length = case["library"]["length"]
    return "\n".join([*parts, note(f"{case['title']}: length {length:.3f}", corner[0], corner[1] + height + 15)])
