"""The paper's figure of learned projections: how far they are from the formula, and from the set, against the noise sigma."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from torch import Tensor

from ... import data
from ...core import ConstraintSet
from ...data.pairs import Pairs, generator
from ...drawing import GREY, GRID, INK, LAND, NOISE, SECOND, THIRD, save
from ...learned import Flow, LearnedSet, fit
from ...learned.flow_training import NEIGHBOURS, fit_flow
from ...records import machine, tiny, writable

DATASETS = ("sphere", "disk", "so3", "cs", "protein")
TITLES = {"sphere": "Sphere", "disk": "Disk", "so3": "SO(3)", "cs": "CS", "protein": "Protein"}
SIGMAS = (0.01, 0.03, 0.1, 0.2, 0.3, 0.5)  # noise, the horizontal axis
SAMPLES, POINTS = 4_000, 500  # that a set is learned from, and that are projected; the paper's
METHODS = {  # name: title, colour
    "flow": ("flow matching (the paper)", SECOND),
    "flow-own-time": ("flow matching, own time", NOISE),
    "heat": ("heat kernel", GREY),
    "local": ("local", THIRD),
    "auto": ("fit, auto", LAND),
}


def run(args) -> int:
    """`inbounds figure projection`. Returns the exit code."""
    try:
        names = _chosen(args.datasets)
        out = writable(Path(args.out))
    except (ValueError, OSError) as error:
        print(f"inbounds figure: {error}", file=sys.stderr)
        return 2
    console = Console(width=None if sys.stdout.isatty() else 140)
    rows = []
    for name in names:
        pairs = getattr(data, name)({} if name == "protein" else {"large": 1})
        for method, M, seconds in fitted(pairs, args.flow_epochs):
            rows += measure(pairs, name, method, M, seconds)
            console.print(f"{TITLES[name]}, {METHODS[method][0]}: fitted in {seconds:.1f} s", highlight=False)
    record = {"command": args.line, "date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(), "rows": rows}
    (out / "projection.json").write_text(json.dumps(record, indent=1) + "\n")
    with open(out / "projection.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draw(rows, out / "projection.png")
    console.print(table(rows))
    console.print(f"Written: {out / 'projection.png'}, .csv, .json", highlight=False)
    return 0


def _chosen(text: str | None) -> Sequence[str]:
    names = [*DATASETS] if text is None else text.split(",")
    if wrong := [n for n in names if n not in DATASETS]:
        raise ValueError(f"asked for datasets among {', '.join(DATASETS)}, got {', '.join(wrong)}.")
    return names


def samples(pairs: Pairs, split: str, most: int) -> Tensor:
    """Single points of the set, in float64."""
    x = pairs[split][0].reshape(-1, *pairs.set.shape)
    return x[torch.randperm(len(x), generator=generator(0, stream=5))[:most]].double()


def fitted(pairs: Pairs, epochs: int) -> Iterator[tuple[str, LearnedSet, float]]:
    """Method, set and seconds for every method that is defined. Both flows share their network."""
    x = samples(pairs, "train", SAMPLES)
    start = time.perf_counter()
    flow = fit_flow(x, epochs=epochs)
    seconds = time.perf_counter() - start
    yield "flow", flow, seconds
    yield "flow-own-time", Flow.from_parts({**flow.tensors(), "samples": x[:NEIGHBOURS]}, flow.spec()), seconds
    for method in ("heat", "local", "auto"):
        start = time.perf_counter()
        try:
            M = fit(x, method)
        except ValueError:  # local: sets of full dimension
            continue
        yield method, M, time.perf_counter() - start


@torch.no_grad()
def measure(pairs: Pairs, name: str, method: str, M: LearnedSet, seconds: float) -> list[dict]:
    """Mean squared error per coordinate against the exact projection, and mean violation of the exact set, for each sigma."""
    exact: ConstraintSet = pairs.set
    y = samples(pairs, "test", POINTS)
    e = torch.randn(y.shape, generator=generator(0, stream=6), dtype=torch.float64)
    rows = []
    for sigma in SIGMAS:
        x = y + sigma * e
        p = M.project(x)
        error = float((p - exact.project(x)).square().mean())
        rows.append(
            {
                "dataset": name,
                "method": method,
                "sigma": sigma,
                "mse": error,
                "violation": float(exact.violation(p).mean()),
                "seconds": round(seconds, 2),
                "found": M.info.get("title", repr(M)),
            }
        )
    return rows


def table(rows: list[dict]) -> Table:
    """The numbers of the figure, as a table that is printed."""
    text = Table(title="MSE to the exact projection / mean violation", box=SIMPLE_HEAD)
    for column in ("set", "method", *(f"sigma {s:g}" for s in SIGMAS)):
        text.add_column(column)
    by_method: dict[tuple[str, str], list[dict]] = {}
    for r in rows:
        by_method.setdefault((r["dataset"], r["method"]), []).append(r)
    for (name, method), line in by_method.items():
        cells = [f"{tiny(r['mse'])} / {tiny(r['violation'])}" for r in line]
        text.add_row(TITLES[name], METHODS[method][0], *cells)
    return text


def draw(rows: list[dict], path: Path) -> None:
    """Draw a column of two panels for every dataset."""
    names = list(dict.fromkeys(r["dataset"] for r in rows))
    fig = Figure(figsize=(1.5 + 2.9 * len(names), 6.8), dpi=110, facecolor="white")
    where = {"left": 0.07, "right": 0.985, "bottom": 0.09, "top": 0.82, "wspace": 0.3, "hspace": 0.28}
    axes = fig.subplots(2, len(names), squeeze=False, gridspec_kw=where)
    says: dict[str, Line2D] = {}
    for column, name in enumerate(names):
        for row, quantity in enumerate(("mse", "violation")):
            ax = axes[row][column]
            for method, (_, colour) in METHODS.items():
                line = [r for r in rows if (r["dataset"], r["method"]) == (name, method)]
                if line:
                    values = [max(r[quantity], 1e-33 if quantity == "mse" else 1e-17) for r in line]
                    (says[method],) = ax.plot([r["sigma"] for r in line], values, color=colour, lw=1.8, marker="o", ms=3.5)
            style(ax, TITLES[name] if not row else "")
    for row, words in enumerate(("MSE to the exact projection", "mean distance to the set")):
        axes[row][0].set_ylabel(words, color=GREY)
    for ax in axes[1]:
        ax.set_xlabel(r"noise $\sigma$", color=GREY)
    titles = [METHODS[m][0] for m in says]
    fig.suptitle("Projections learned from 4,000 samples", x=0.07, ha="left", size=14, weight="bold", color=INK, y=0.97)
    place = {"loc": "upper left", "bbox_to_anchor": (0.06, 0.94), "ncols": len(titles), "frameon": False, "labelcolor": INK}
    fig.legend(list(says.values()), titles, **place)
    save(fig, path)


def style(ax, title: str) -> None:
    """Logarithmic axes in the style of all figures."""
    ax.set(xscale="log", yscale="log")
    ax.set_title(title, loc="left", size=12, weight="bold", color=INK)
    ax.set_xticks([0.01, 0.1, 0.5], ["0.01", "0.1", "0.5"])
    ax.minorticks_off()
    ax.grid(color=GRID, lw=0.8)
    ax.tick_params(which="both", colors=GREY, length=0)
    ax.spines[:].set_visible(False)
