"""The table: from finished runs to JSON, CSV, Markdown and the screen."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..records import tiny
from ..train.store import Store
from .jobs import reference_config, scheme_config
from .rows import Row

MEANS = ("objective", "gap_mean", "gap_p95", "infeasible")
WORST = ("equalities_max", "inequalities_max", "float32_equalities_eps", "float32_inequalities_max")
SAME = 1e-6  # relative, of mean optima of one problem by one solver on two machines
TIMES = ("cpu_seconds", "inference_seconds")  # every seed does the same work, so the least time is the least disturbed


@dataclass(frozen=True)
class Cell:
    """A scheme on a task: means over the seeds, violations the largest, times the least. note: why there are no numbers."""

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
    ok: float | None = None
    ok_equalities_max: float | None = None
    ok_inequalities_max: float | None = None
    float32_equalities_eps: float | None = None
    float32_inequalities_max: float | None = None
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
    times = {k: min(r[k] for r in whole) for k in TIMES} if whole else {}
    worst = {k: max(r[k] for r in whole) for k in WORST if whole and all(k in r for r in whole)}
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
        **times,
        **worst,
        **_statuses(whole),
    )


def _statuses(whole: list[dict]) -> dict:
    """The mean share of rows with status ok, and the largest residuals among them, where a solver projects."""
    known = [r for r in whole if "ok" in r]
    if not known:
        return {}
    most = {k: max(r[k] for r in known) for k in ("ok_equalities_max", "ok_inequalities_max") if all(k in r for r in known)}
    return {"ok": statistics.fmean(r["ok"] for r in known), **most}


COLUMNS = (
    "scheme",
    "seeds",
    "gap",
    "least to most",
    "gap 95 %",
    "equalities",
    "inequalities",
    "infeasible",
    "training",
    "inference",
    "solver / net",
)


def line(c: Cell) -> list[str]:
    """A cell as texts, in the order of COLUMNS."""
    if c.gap_mean is None or c.gap_p95 is None:
        return [c.title, *["-"] * (len(COLUMNS) - 1)]
    return [
        c.title,
        str(c.seeds),
        f"{100 * c.gap_mean:.2f} %",
        f"{100 * min(c.gap_by_seed):.2f} to {100 * max(c.gap_by_seed):.2f}" if c.seeds > 1 else "-",
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
        done = sorted((c for c in mine if not c.note), key=lambda c: math.inf if c.gap_mean is None else c.gap_mean)
        head = f"## {task}"
        if done:
            c = done[0]
            budgets = {(c.steps, c.batch) for c in done}
            head += f"\n\n{c.steps:,} steps of {c.batch}; mean" if len(budgets) == 1 else "\n\nMean"
            head += f" optimum {c.optimum:.4f}, solver "
            if len(budgets) > 1:  # authors' settings beside ours
                done = [replace(c, title=f"{c.title}, {c.steps:,} steps of {c.batch}") for c in done]
            head += f"{1e3 * (c.solver_seconds or 0):.1f} ms an instance. "
            head += "The last column is the solver's loop in the time of one batch of the network."
        rows = ["| " + " | ".join(r) + " |" for r in (COLUMNS, ["---"] * len(COLUMNS), *map(line, done))]
        notes = [f"- {c.title} has no row: {c.note}" for c in mine if c.note]
        notes += [said(c) for c in done if c.ok is not None]
        notes += [rounded(c) for c in done if c.float32_inequalities_max is not None]
        parts.append("\n\n".join(p for p in (head, "\n".join(rows), "\n".join(notes)) if p))
    return "\n\n".join(parts) + "\n"


def quoted(text: str) -> str:
    """The table of a stored file, as a page quotes it: `scripts/quote.py` writes it, and a test compares it."""
    return "\n" + markdown(cells_of(json.loads(text))).split("\n\n", 1)[1]


def cells_of(stored: dict) -> list[Cell]:
    """The cells of a stored file."""
    known: list[dict[str, Any]] = [{k: v for k, v in c.items() if k in Cell.__dataclass_fields__} for c in stored["cells"]]
    return [Cell(**{**c, "gap_by_seed": tuple(c.get("gap_by_seed", ()))}) for c in known]


ORIGIN = ("command", "commit", "date", "machine")


def beside(found: list[Cell], about: dict, stored: dict) -> tuple[list[Cell], dict]:
    """The cells of one task with those of a stored file that have no new numbers, and where each of the old ones comes from.

    Another store may have trained them. Their optimum must be that of the new ones: otherwise the problem is another one.
    """
    new, all_of_mine = {c.scheme for c in found if c.gap_mean is not None}, {c.scheme for c in found}
    old = [c for c in cells_of(stored) if c.scheme not in (new if c.gap_mean is not None else all_of_mine)]
    optima = [c.optimum for c in [*found, *old] if c.optimum is not None]
    if optima and max(optima) - min(optima) > SAME * max(1.0, *map(abs, optima)):
        raise ValueError(f"The stored rows of {found[0].task} have the mean optima {sorted(set(optima))}. Use another folder.")
    names = {c.scheme for c in old if c.gap_mean is not None}
    kept = [{**k, "schemes": [s for s in k["schemes"] if s in names]} for k in stored.get("kept", [])]
    rest = [c.scheme for c in old if c.scheme in names and not any(c.scheme in k["schemes"] for k in kept)]
    kept = [k for k in [*kept, {"schemes": rest, **{k: stored[k] for k in ORIGIN if k in stored}}] if k["schemes"]]
    mine = [c for c in found if c.scheme not in {o.scheme for o in old}]
    return [*mine, *old], about | ({"kept": kept} if kept else {})


def said(c: Cell) -> str:
    """A sentence about the rows of a solver's projection."""
    equal = f"equations to {tiny(c.ok_equalities_max)}, " if c.ok_equalities_max is not None else ""
    return (
        f"- {c.title}: {100 * (c.ok or 0.0):.1f} % of the outputs have status ok; on them {equal}inequalities at most "
        f"{tiny(c.ok_inequalities_max or 0.0)}."
    )


def rounded(c: Cell) -> str:
    """A sentence about the same networks in float32."""
    equal = "" if c.float32_equalities_eps is None else f", equations to {c.float32_equalities_eps:.2g} eps of their terms"
    return f"- {c.title} in float32: inequalities at most {tiny(c.float32_inequalities_max or 0.0)}{equal}."


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
