"""The table: from finished runs to JSON, CSV, Markdown and the screen."""

from __future__ import annotations

import csv
import io
import json
import statistics
from dataclasses import asdict, dataclass

from ..records import tiny
from ..train.store import Store
from .jobs import reference_config, scheme_config
from .rows import Row

MEANS = ("objective", "gap_mean", "gap_p95", "infeasible", "cpu_seconds", "inference_seconds")


@dataclass(frozen=True)
class Cell:
    """A scheme on a task: means over the seeds, violations the largest of all seeds. note: why there are no numbers."""

    task: str
    scheme: str
    title: str
    seeds: int = 0
    steps: int = 0
    batch: int = 0
    parameters: int = 0
    diverged: int = 0
    optimum: float | None = None
    objective: float | None = None
    gap_mean: float | None = None
    gap_p95: float | None = None
    equalities_max: float | None = None
    inequalities_max: float | None = None
    infeasible: float | None = None
    cpu_seconds: float | None = None
    inference_seconds: float | None = None
    solver_seconds: float | None = None
    gap_by_seed: tuple[float, ...] = ()
    note: str = ""

    @property
    def times_faster(self) -> float | None:
        """The solver's time for an instance in that of the network, in a batch."""
        return self.solver_seconds / self.inference_seconds if self.solver_seconds and self.inference_seconds else None


def cells(tests: dict[str, int], rows: list[Row], refused: dict, seeds: int, steps: int, store: Store) -> list[Cell]:
    """Every cell that is finished, and those that cannot be with the reason."""
    found = []
    for task, test in tests.items():
        reference = store.run(reference_config(task, test)).result
        for row in rows:
            if (task, row.name) in refused:
                found.append(Cell(task, row.name, row.title, note=refused[task, row.name]))
                continue
            results = [store.run(scheme_config(task, row, k, steps, test)).result for k in range(seeds)]
            results = [r for r in results if r is not None]
            if results and reference is not None:
                found.append(_cell(row, results, reference))
    return found


def _cell(row: Row, results: list[dict], reference: dict) -> Cell:
    first = results[0]
    whole = [r for r in results if None not in (r["gap_mean"], r["objective"])]
    means = {k: statistics.fmean(r[k] for r in whole) for k in MEANS} if whole else {}
    worst = {k: max(r[k] for r in whole) for k in ("equalities_max", "inequalities_max")} if whole else {}
    return Cell(
        task=first["task"],
        scheme=row.name,
        title=row.title,
        seeds=len(results),
        steps=first["steps"],
        batch=first["batch"],
        parameters=first["parameters"],
        diverged=sum(r["diverged"] for r in results),
        optimum=reference["objective"],
        solver_seconds=reference["cpu_seconds"] / reference["rows"],
        gap_by_seed=tuple(r["gap_mean"] for r in whole),
        **means,
        **worst,
    )


COLUMNS = ("scheme", "gap", "gap 95 %", "equalities", "inequalities", "infeasible", "training", "inference", "solver / net")


def line(c: Cell) -> list[str]:
    """A cell as texts, in the order of COLUMNS."""
    if c.gap_mean is None or c.gap_p95 is None:
        return [c.title, *["-"] * (len(COLUMNS) - 1)]
    return [
        c.title,
        f"{100 * c.gap_mean:.2f} %",
        f"{100 * c.gap_p95:.2f} %",
        tiny(c.equalities_max or 0.0),
        tiny(c.inequalities_max or 0.0),
        f"{100 * (c.infeasible or 0.0):.1f} %",
        f"{c.cpu_seconds:.0f} s",
        f"{1e6 * (c.inference_seconds or 0.0):.0f} us",
        f"{c.times_faster or 0:.0f}",
    ]


def markdown(found: list[Cell]) -> str:
    """A table for every task, with what does not fit and why below it."""
    parts = []
    for task in dict.fromkeys(c.task for c in found):
        mine = [c for c in found if c.task == task]
        done = [c for c in mine if not c.note]
        head = f"## {task}"
        if done:
            c = done[0]
            head += f"\n\n{c.steps:,} steps of {c.batch}, {c.seeds} seed(s); mean optimum {c.optimum:.4f}, solver "
            head += f"{1e3 * (c.solver_seconds or 0):.1f} ms an instance."
        rows = ["| " + " | ".join(r) + " |" for r in (COLUMNS, ["---"] * len(COLUMNS), *map(line, done))]
        notes = [f"- {c.title} has no row: {c.note}" for c in mine if c.note]
        parts.append("\n\n".join(p for p in (head, "\n".join(rows), "\n".join(notes)) if p))
    return "\n\n".join(parts) + "\n"


def csv_text(found: list[Cell]) -> str:
    """A line for every cell."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [f for f in Cell.__dataclass_fields__ if f != "gap_by_seed"], extrasaction="ignore")
    writer.writeheader()
    writer.writerows(asdict(c) for c in found)
    return out.getvalue()


def json_text(found: list[Cell], about: dict) -> str:
    """All numbers, with what made them."""
    return json.dumps({**about, "cells": [{**asdict(c), "times_faster": c.times_faster} for c in found]}, indent=1) + "\n"
