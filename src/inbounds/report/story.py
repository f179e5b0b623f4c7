"""In plain words: what was run, what holds, what does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..paper.presets import PRESETS
from ..paper.table import FEASIBLE, SETS, TITLES, Cell, brief, groups, notes, percent, share
from ..train.progress import time_text
from .reading import Reading

FORMULA = ("proj", "exp", "wide")  # rows that stay in the set by a formula
NEAR = 1.5  # a loss within this factor of the published one counts as the same


def listed(words: Sequence[str]) -> str:
    """a, b and c"""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def many(count: int, what: str) -> str:
    """1 cell, 2 cells"""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def by_set(cells: Sequence[Cell], says: Callable[[Cell], str] = lambda c: "") -> str:
    """Sphere: Regular, Prob; Disk: Regular"""
    lines = [f"{SETS[name]}: " + ", ".join(TITLES[c.row] + says(c) for c in members) for name, members in groups(cells).items()]
    return "; ".join(lines)


def short(value: float) -> str:
    """Two digits, or whole numbers."""
    return f"{value:,.0f}" if value >= 100 else brief(value) if value else "0"


def run(reading: Reading) -> list[str]:
    """What was run."""
    shown, about = reading.shown, reading.about
    datasets = [SETS[d] for d in dict.fromkeys(c.dataset for c in shown)]
    rows = list(dict.fromkeys(c.row for c in shown))
    said = [
        f"Finished are {many(len(shown), 'cell')} of the paper's Table 1: {many(len(rows), 'row')} on {listed(datasets)}. "
        f"They took {time_text(sum(c.seconds for c in shown))} of training.",
        _budgets(shown),
    ]
    if preset := PRESETS.get(about.get("preset", "")):
        said.append(f"Preset {preset.name}: {preset.label}.")
    return said


def _budgets(shown: list[Cell]) -> str:
    steps, seeds = sorted({c.steps for c in shown}), sorted({c.seeds for c in shown})
    span = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    count = many(seeds[0], "seed") if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds"
    parts = sorted(share(c) for c in shown)
    seen = "the whole" if parts[0] >= 1 else f"{percent(parts[0])} to {percent(min(parts[-1], 1.0))}"
    return f"A network was trained for {span} steps, with {count} for a cell. That is {seen} of the paper's protocol."


def holds(reading: Reading) -> list[str]:
    """What holds."""
    said, formula = [], [c for c in reading.shown if c.row.split("-")[0] in FORMULA]
    kept = [c for c in formula if c.feasible]
    if kept:
        which = f"All of the {len(kept)}" if len(kept) == len(formula) else f"{len(kept)} of the {len(formula)}"
        tests = sum(c.rows * c.seeds for c in kept)
        said.append(
            f"{which} cells that enforce the set by a formula (a projection or an exponential map) predict points of the set. "
            f"Among their {tests:,} test predictions the largest violation is {short(max(c.violation_max for c in kept))}; "
            f"up to {brief(FEASIBLE)} counts as rounding."
        )
    compared = [c for c in reading.shown if c.published_mse is not None]
    near = [c for c in compared if 1 / NEAR <= _ratio(c) <= NEAR]
    if near:
        said.append(
            f"The loss is within a factor of {NEAR} of the published one in {len(near)} of {many(len(compared), 'cell')}: "
            f"{by_set(near)}."
        )
    return said or ["Nothing can be said: no finished cell enforces its set by a formula, or has a published loss nearby."]


def holds_not(reading: Reading) -> list[str]:
    """What does not hold."""
    said = []
    outside = [c for c in reading.shown if not c.feasible and math.isfinite(c.mse)]
    for row in dict.fromkeys(c.row for c in outside):
        members = [c for c in outside if c.row == row]
        where = listed([f"{SETS[c.dataset]} {short(c.violation_mean)}" for c in members])
        broken = row.split("-")[0] in FORMULA
        warning = " This row should stay in its set: it is a fault." if broken else ""
        said.append(f"{TITLES[row]} leaves the set. The mean distance of its predictions: {where}.{warning}")
    begun = [c for c in reading.shown if share(c) < 1]
    if begun:
        said.append(
            f"The whole protocol has not been seen by {len(begun)} of {many(len(reading.shown), 'cell')}. Their losses show that "
            "training works, not how good the method is."
        )
    far = [c for c in reading.shown if _ratio(c) < 1 / NEAR or _ratio(c) > NEAR]
    if far:
        ratios = by_set(far, lambda c: f" ({short(_ratio(c))})")
        said.append(
            f"The loss is off the published one by more than a factor of {NEAR} in {many(len(far), 'cell')}. Ours divided by the "
            f"published one is, for {ratios}."
        )
    lost = [c for c in reading.shown if c.diverged]
    if lost:
        said.append("Seeds diverged, for " + by_set(lost, lambda c: f" ({c.diverged} of {c.seeds})") + ".")
    return said or ["Nothing to report."]


def _ratio(c: Cell) -> float:
    """Our loss divided by the published one; NaN where one of them is not there."""
    return c.mse / c.published_mse if c.published_mse else math.nan


def table_notes(reading: Reading) -> list[str]:
    """The notes below the table, without the line that names the preset."""
    preset = PRESETS.get(reading.about.get("preset", ""), PRESETS["paper"])
    return notes(reading.shown, preset)[1:]
