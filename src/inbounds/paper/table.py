"""Table 1, ours beside the published one, from the store alone."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field

from ..extras import needed_for
from ..train.files import strict
from ..train.store import Store
from .datasets import DATASETS
from .names import named
from .presets import Preset
from .published import OTHER_DATA, PUBLISHED
from .rows import ROWS, Source
from .units import UNDEFINED, Catalogue, final_config, learned_configs, stack_configs

FEASIBLE = 1e-5  # a row whose worst test violation is below predicts points of the set, to float32 rounding
TITLES = {row.name: row.title for row in ROWS.values()}
SETS = {dataset.name: dataset.title for dataset in DATASETS.values()}


@dataclass(frozen=True)
class Cell:
    """A row on a dataset. mse: mean over seeds; mse_on_set: after projecting the prediction on the set."""

    dataset: str
    row: str
    mse: float
    mse_median: float
    mse_spread: float
    mse_on_set: float
    violation_mean: float
    violation_max: float
    feasible: bool
    depth: int
    weight_decay: float
    seeds: int
    diverged: int
    steps: int
    batch: int
    parameters: int
    split: str
    rows: int
    seconds: float
    mse_by_seed: list[float]
    published_mse: float | None
    published_distance: float | None
    other_data: bool
    val_by_seed: list[float] = field(default_factory=list)
    mse_on_set_by_seed: list[float] = field(default_factory=list)
    violation_by_seed: list[float] = field(default_factory=list)
    best_epoch_by_seed: list[int] = field(default_factory=list)
    data: str = ""  # fingerprint
    made_by: dict = field(default_factory=dict)  # versions and commit


def cells(
    preset: Preset, references: Sequence[dict], rows: Sequence[str], store: Store, other: Collection[str] = OTHER_DATA
) -> list[Cell]:
    """Every finished cell; `other`: datasets that are not the data of the published numbers."""
    found, there = [], Catalogue(store)
    for reference in references:
        for row in [named(row, ROWS) for row in rows]:
            if (reference["name"], row.name) in UNDEFINED:
                continue
            stacks = stack_configs(preset, reference, row, learned_configs(preset, reference, row), there)
            result = store.run(final_config(preset, reference, row, stacks)).result
            if result is not None:
                seconds = sum((store.run(c).result or {}).get("seconds", 0.0) for c in stacks)
                found.append(cell_of(result, seconds, reference["name"] in other, reference["fingerprint"]))
    return found


def cell_of(r: dict, seconds: float, other: bool, fingerprint: str) -> Cell:
    """The result of a test as a cell. Statistics over the seeds that have a model; NaN if none has."""
    published = PUBLISHED.get(r["dataset"], {}).get(r["row"], (None, None))
    kept = {m: [v for v in r[m] if v is not None] or [math.nan] for m in ("mse", "mse_on_set", "violation_mean", "violation_max")}
    worst = max(kept["violation_max"])
    return Cell(
        dataset=r["dataset"],
        row=r["row"],
        mse=statistics.fmean(kept["mse"]),
        mse_median=statistics.median(kept["mse"]),
        mse_spread=statistics.stdev(kept["mse"]) if len(kept["mse"]) > 1 else 0.0,
        mse_on_set=statistics.fmean(kept["mse_on_set"]),
        violation_mean=statistics.fmean(kept["violation_mean"]),
        violation_max=worst,
        feasible=worst <= FEASIBLE,
        depth=r["depth"],
        weight_decay=r["weight_decay"],
        seeds=len(r["seeds"]),
        diverged=r["diverged"],
        steps=r["steps"],
        batch=r["batch"],
        parameters=r["parameters"],
        split=r["split"],
        rows=r["rows"],
        seconds=float(f"{seconds:.3g}"),  # of a short run, too, something is left
        mse_by_seed=r["mse"],
        published_mse=published[0],
        published_distance=published[1],
        other_data=other,
        val_by_seed=r["val"],
        mse_on_set_by_seed=r["mse_on_set"],
        violation_by_seed=r["violation_mean"],
        best_epoch_by_seed=r.get("epoch", []),
        data=fingerprint,
        made_by=r.get("made_by", {}),
    )


def number(value: float | None) -> str:
    """A number in three digits: "-" if there is none, "none" for NaN."""
    if value is not None and math.isnan(value):
        return "none"
    return "-" if value is None else "0" if value == 0 else f"{value:.2e}".replace("e-0", "e-").replace("e+00", "")


COLUMNS = (
    "model",
    "loss",
    "median",
    "+-",
    "loss on M",
    "violation",
    "max",
    "in M",
    "published",
    "dist.",
    "depth",
    "wd",
    "seeds x steps",
    "test",
)


def line(c: Cell) -> tuple[str, ...]:
    """One cell as the texts of COLUMNS."""
    mark = "*" if c.other_data and c.published_mse is not None else ""
    return (
        TITLES[c.row] + ("!" if c.diverged else ""),
        number(c.mse),
        number(c.mse_median),
        number(c.mse_spread) if c.seeds > 1 else "",
        number(c.mse_on_set),
        number(c.violation_mean),
        number(c.violation_max),
        "yes" if c.feasible else "NO",
        number(c.published_mse) + mark,
        number(c.published_distance) + mark,
        str(c.depth),
        f"{c.weight_decay:g}",
        f"{c.seeds} x {c.steps:,}",
        f"{c.rows:,}",
    )


def notes(found: Sequence[Cell], preset: Preset) -> list[str]:
    """What a reader has to know about these cells, in sentences."""
    said = [f"Preset {preset.name}: {preset.label}." if preset.label else f"Preset {preset.name}."]
    said.append(
        "loss: test MSE, mean over coordinates, then over seeds; +-: standard deviation over seeds; violation: the paper's "
        "distance, in float64 on the float32 prediction; loss on M: after projecting the prediction on the set."
    )
    if any(not c.feasible for c in found):
        said.append(
            "in M = NO: the predictions are not points of the set. Their lower loss is not better: a conditional mean off the "
            "set beats every point of it. Compare such rows by 'loss on M'."
        )
    for c in found:
        if c.diverged:
            said.append(
                f"! {SETS[c.dataset]} {TITLES[c.row]}: {c.diverged} of {c.seeds} seeds diverged; one without a model is left out."
            )
    if any(c.other_data and c.published_mse is not None for c in found):
        said.append(
            "* published on other data: another draw of the sphere's random field, ProteinNet casp8 instead of the chains "
            "shipped here, or data of your own."
        )
    if any(c.dataset == "cs" for c in found):
        said.append(
            "CS: the inputs leave out the angular velocities that decide the outcome. 1/3 is the loss of predicting the mean, "
            "2/3 that of any rotation guessed independently of the target. Flock is the learnable variant."
        )
    if any(c.dataset == "disk" for c in found):
        said.append("Disk: the exponential rows are undefined, as the disk has a boundary.")
    sources = {named(c.row, ROWS).source for c in found}
    if Source.FIT in sources:
        said.append("Fit rows: the set was fitted to the training targets (inbounds.fit); violation is of the true set.")
    if Source.FLOW in sources:
        said.append("Flow rows: Euler steps in training, RK45 at test time, hence fewer test points.")
    return said


def groups(found: Sequence[Cell]) -> dict[str, list[Cell]]:
    """The cells of every dataset."""
    return {name: [c for c in found if c.dataset == name] for name in dict.fromkeys(c.dataset for c in found)}


NARROW = ("model", "loss", "loss on M", "violation", "in M", "published", "seeds x steps")
FULL_WIDTH = 132  # characters that all columns take


def show(found: Sequence[Cell], preset: Preset, out=None) -> None:
    """Print the table. A narrow screen gets fewer columns; all of them are in the files."""
    with needed_for("Showing the table"):
        from rich.console import Console
        from rich.table import Table

    console = Console(file=out)
    console = console if console.is_terminal else Console(file=out, width=FULL_WIDTH)
    columns = COLUMNS if console.width >= FULL_WIDTH else NARROW
    for name, members in groups(found).items():
        table = Table(title=f"[bold]{SETS[name]}[/]", title_justify="left", pad_edge=False, box=None, padding=(0, 1))
        for column in columns:
            table.add_column(column, justify="left" if column == "model" else "right", no_wrap=True)
        for c in members:
            texts = dict(zip(COLUMNS, line(c), strict=True))
            table.add_row(*(texts[column] for column in columns), style=None if c.feasible else "dim")
        console.print(table)
        console.print()
    for note in notes(found, preset):
        console.print(note, highlight=False, markup=False)


def overview(found: Sequence[Cell]) -> str:
    """All datasets on one page, as Markdown: our loss, struck out where predictions leave the set, and the published one."""
    names = list(groups(found))
    text = ["| loss (published) | " + " | ".join(SETS[n] for n in names) + " |", "|---|" + "---|" * len(names)]
    by_place = {(c.row, c.dataset): c for c in found}
    for row in dict.fromkeys(c.row for c in found):
        cells = [_short(by_place.get((row, n)), (n, row) in UNDEFINED) for n in names]
        text.append(f"| {TITLES[row]} | " + " | ".join(cells) + " |")
    return "\n".join(text) + "\n"


def _short(c: Cell | None, undefined: bool) -> str:
    if c is None:
        return "undefined" if undefined else ""
    mark = "\\*" if c.other_data else ""
    published = "" if c.published_mse is None else f" ({brief(c.published_mse)}{mark})"
    return (brief(c.mse) if c.feasible else f"~~{brief(c.mse)}~~") + published


PROTOCOL_POINTS = 80_000 * 500  # training points of the paper's protocol


def share(c: Cell) -> float:
    """How much of the paper's protocol the chosen network has seen, in training points."""
    return c.steps * c.batch / PROTOCOL_POINTS


def furthest(found: Sequence[Cell]) -> list[Cell]:
    """The training of every cell that went furthest, where there are several, in the order of the first."""
    best: dict[tuple[str, str], Cell] = {}
    for c in found:
        place = (c.dataset, c.row)
        if place not in best or share(c) > share(best[place]):
            best[place] = c
    return list(best.values())


def protocol_overview(found: Sequence[Cell]) -> str:
    """`overview` of the furthest trainings; a cell that has not seen the whole protocol says how much of it."""
    found = furthest(found)
    lines = overview(found).splitlines()
    names, rows = list(groups(found)), list(dict.fromkeys(c.row for c in found))
    by_place = {(c.row, c.dataset): c for c in found}
    for i, row in enumerate(rows):
        cells = lines[2 + i].split(" | ")
        for j, name in enumerate(names, 1):
            c = by_place.get((row, name))
            if c is not None and share(c) < 1:
                end = " |" if cells[j].endswith(" |") else ""
                cells[j] = cells[j].removesuffix(" |") + f" at {percent(share(c))}" + end
        lines[2 + i] = " | ".join(cells)
    return "\n".join(lines) + "\n"


def percent(part: float) -> str:
    """A share in whole percent, small ones with one digit."""
    return f"{100 * part:.0f} %" if part >= 0.01 else f"{100 * part:.1g} %"


def brief(value: float) -> str:
    """Two digits."""
    return f"{value:.2g}" if value >= 0.1 else f"{value:.1e}".replace("e-0", "e-")


def read(texts: Sequence[str]) -> list[Cell]:
    """Cells of table.json files."""
    return [Cell(**c) for text in texts for c in json.loads(text)["cells"]]


def markdown(found: Sequence[Cell], preset: Preset) -> str:
    """The whole table as a Markdown page."""
    text = [f"# Table 1, preset {preset.name}", "", overview(found), "Struck out: the predictions are not in the set.", ""]
    for name, members in groups(found).items():
        text += [f"## {SETS[name]}", "", "| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
        text += ["| " + " | ".join(line(c)).replace("*", "\\*") + " |" for c in members]
        text.append("")
    return "\n".join(text + [f"- {n}" for n in notes(found, preset)]) + "\n"


def csv_text(found: Sequence[Cell]) -> str:
    """The cells as CSV, a line each."""
    buffer = io.StringIO()
    rows = [_flat(c) for c in found]
    writer = csv.DictWriter(buffer, list(rows[0]) if rows else list(Cell.__dataclass_fields__), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _flat(c: Cell) -> dict:
    """A cell for CSV: values by seed are one field with spaces between, versions have columns of their own."""
    made_by = {k: c.made_by.get(k) for k in ("inbounds", "commit", "torch", "python")}
    flat = {k: " ".join(map(str, v)) if isinstance(v, list) else v for k, v in asdict(c).items() if k != "made_by"}
    return flat | made_by


def json_text(found: Sequence[Cell], about: dict) -> str:
    """The cells as JSON, below what is said about all of them."""
    return json.dumps(strict({**about, "cells": [asdict(c) for c in found]}), indent=1) + "\n"
