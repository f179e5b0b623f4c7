"""One self-contained page from a run store, and its pictures as SVG files beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from ..paper.table import SETS
from ..train.files import publish, strict
from . import figures, scenes, story
from .figures import Figure
from .reading import Reading, read
from .stills import VIEW
from .table import table

STYLES = ("figures.css", "page.css")
SCRIPTS = ("planner.js", "view.js", "sphere.js", "frames.js", "chain.js", "planning.js", "page.js")


def write(folder: str | Path, out: str | Path | None = None) -> Path:
    """Read the run store and write the report; out: its file, report.html in the store if not given.

    Pictures go to a folder of the same name beside it, report/*.svg.
    """
    reading = read(folder)
    file = Path(out) if out is not None else reading.folder / "report.html"
    body, shown = _body(reading)
    publish(file, _page(reading, body, shown).encode())
    for figure in shown:
        publish(file.with_suffix("") / f"{figure.name}.svg", alone(figure.svg).encode())
    return file


def asset(name: str) -> str:
    """The text of a file that comes with the report: its style, its scripts."""
    return (files("inbounds.report") / "assets" / name).read_text(encoding="utf-8")


def alone(svg: str) -> str:
    """A picture with its own style, to be opened by itself."""
    head, rest = svg.split(">", 1)
    return f"{head}>\n<style>\n{asset('figures.css')}</style>{rest}"


def embedded(value: object) -> str:
    """JSON that can stand inside of a script element: no text in it can end that element or begin a comment."""
    text = json.dumps(strict(value), separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _page(reading: Reading, body: str, shown: Sequence[Figure]) -> str:
    moving = {figure.name: figure.scene for figure in shown if figure.scene is not None}
    return Template(asset("page.html")).substitute(
        title=escape(f"Inbounds report: {reading.folder.name}"),
        style="\n".join(asset(name) for name in STYLES),
        body=body,
        data=embedded({"view": VIEW, "scenes": moving}),
        script='"use strict";\n' + "\n".join(asset(name) for name in SCRIPTS),
    )


# --- the page, part by part ----------------------------------------------------------------------------------
def _body(reading: Reading) -> tuple[str, list[Figure]]:
    parts = [_charts(reading), _learned(reading), _sphere(reading), _frames(reading), _protein(reading), _planning()]
    shown = [figure for _, found in parts for figure in found]
    text = [_head(reading), _story(reading), _table(reading), *(part for part, _ in parts)]
    return "\n".join(text), shown


def _head(reading: Reading) -> str:
    places = ("table", "accuracy", "curves", "layers", "learned", "sphere", "frames", "protein", "planning")
    links = "".join(f'<a href="#{place}">{place}</a>' for place in places)
    about = "Neural networks that never leave their constraint set: what this run shows."
    head = f'<header><h1>Inbounds: {escape(reading.folder.name)}</h1><p class="quiet">{about}</p>'
    return f"{head}{_command(reading.about)}</header><nav>{links}</nav>"


def _command(about: dict) -> str:
    if "command" not in about:
        return ""
    when = ", ".join(str(about[k]) for k in ("date", "machine") if k in about)
    return f'<p class="quiet">The last command on {escape(when)}:<br><code>{escape(about["command"])}</code></p>'


def _list(sentences: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(s)}</li>" for s in sentences) + "</ul>"


def _story(reading: Reading) -> str:
    told = (
        ("ran", "What was run", story.run(reading)),
        ("holds", "What holds", story.holds(reading)),
        ("fails", "What does not", story.holds_not(reading)),
    )
    boxes = [f'<section class="{kind}"><h3>{title}</h3>{_list(said)}</section>' for kind, title, said in told]
    return f'<div class="story">{"".join(boxes)}</div>'


def _section(place: str, title: str, text: str, content: str) -> str:
    return f'<h2 id="{place}">{title}</h2>\n<p>{escape(text)}</p>\n{content}'


def _table(reading: Reading) -> str:
    text = "Ours beside the published numbers. Click on a header to sort by it; grey rows predict points outside of the set."
    notes = f'<div class="notes">{_list(story.table_notes(reading))}</div>'
    return _section("table", "Table 1", text, table(reading.shown) + notes)


def _grid(found: Sequence[Figure]) -> str:
    return '<div class="figures">' + "".join(f"<figure>{f.svg}</figure>" for f in found) + "</div>"


def _moving(found: Sequence[Figure], caption: str) -> str:
    words = f"<figcaption>{escape(caption)}</figcaption>"
    titles = [f"<h3>{escape(f.scene['title'])}</h3>" if f.scene and "title" in f.scene else "" for f in found]
    return "".join(
        f'<figure class="scene" id="scene-{f.name}">{title}{f.svg}{words}</figure>'
        for f, title in zip(found, titles, strict=True)
    )


def _charts(reading: Reading) -> tuple[str, list[Figure]]:
    accuracy, curves, layers = figures.accuracy(reading), figures.curves(reading), figures.layers(reading)
    texts = (
        "Down is more accurate, left is nearer to the set. Colour says where a row enforces the set (blue: in every layer, IAA; "
        "orange: at the output, FAA; grey: nowhere), the mark says how. Hollow marks are the published numbers.",
        "The error on the validation split after every evaluation, a line for each seed.",
        "The mean distance of hidden states to the set. IAA rows with a formula keep every one of them in the set. FAA rows "
        "leave it and come back at the output. Regular never comes back. 0 means below float32 rounding.",
    )
    return "\n".join(
        (
            _section("accuracy", "Accuracy against feasibility", texts[0], _grid(accuracy)),
            _section("curves", "Loss curves", texts[1], _grid(curves)),
            _section("layers", "Hidden states, layer by layer", texts[2], _grid(layers) or _left_out(LAYERS)),
        )
    ), [*accuracy, *curves, *layers]


LAYERS = "This run has no row whose hidden states can be shown."


def _left_out(sentence: str) -> str:
    return f'<p class="quiet">{escape(sentence)}</p>'


def _learned(reading: Reading) -> tuple[str, list[Figure]]:
    found, told = figures.projections(reading)
    text = (
        "A projection that is learned from samples is compared with the exact one, on points that noise has moved away from the "
        "set. " + told
    )
    content = _grid(found) if found else _left_out("This run has no dataset for which that is measured.")
    return _section("learned", "Projections learned from samples", text, content), found


def _scene(place: str, title: str, text: str, found: Sequence[Figure], caption: str, missing: str) -> tuple[str, list[Figure]]:
    """A moving picture, or one sentence where the run has nothing for it."""
    content = _moving(found, caption) if found else _left_out(missing)
    return _section(place, title, text, content), [*found]


def _sphere(reading: Reading) -> tuple[str, list[Figure]]:
    figure = scenes.sphere(reading)
    return _scene(
        "sphere",
        "The sphere",
        "Points of the sphere are carried along a field, the short grey strokes. A network sees where a point starts and says "
        "where it ends.",
        [figure] if figure else [],
        "Drag the sphere, or use the arrow keys, to turn it. Points behind it are faint.",
        "This run has no finished cell on the sphere.",
    )


def _frames(reading: Reading) -> tuple[str, list[Figure]]:
    names = ("so3", "cs", "flock")
    found = [f for f in (scenes.rotations(reading, name) for name in names) if f is not None]
    there = [SETS[name] for name in names if any(f.name == f"frames-{name}" for f in found)]
    return _scene(
        "frames",
        "Rotations" + (": " + story.listed(there) if there else ""),
        "A rotation is a frame of three axes. The slider goes from the input of each network to its output, layer by layer; "
        "dashed frames are the true outputs. Networks that leave the set pass through frames that are bent or too short.",
        found,
        "Between two layers the frames are interpolated. Drag to turn them.",
        "This run has no finished cell on rotations (SO(3), CS, Flock).",
    )


def _protein(reading: Reading) -> tuple[str, list[Figure]]:
    figure = scenes.backbone(reading)
    return _scene(
        "protein",
        "A protein backbone",
        "A residue is a frame in space. A network sees a true residue and says where the next one is; no prediction is built on "
        "another. The chain is of a protein that no training saw.",
        [figure] if figure else [],
        "Green: the true chain. Each dot is a prediction, joined to the true place of that residue.",
        "This run has no finished protein cell on the chains of this package.",
    )


def _planning() -> tuple[str, list[Figure]]:
    figure = scenes.planning()
    return _scene(
        "planning",
        "Planning",
        "The shortest path around discs, found in this page while you drag. A path is certified if every one of its segments is "
        "free: the distance of a segment from every disc and wall is a formula, so nothing is sampled.",
        [figure],
        "Drag the start or the target. Arcs are followed by short segments just outside of the disc.",
        "",
    )
