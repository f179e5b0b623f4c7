"""Is `ib.fit` right, or does it say that it may be wrong? A grid of sets, disturbances and sizes, with a judge of its own.

Every cell fits a set to samples of a known one. The judge compares projections of corrupted points with the exact ones and with
what ten lines of a user's own would give: the nearest sample, local PCA with 10 and 40 neighbours and the true dimension, for
regions the convex hull. A cell fails if the fit is three times worse than the best of these, or finds a wrong dimension; it fails
silently if the fit gave no warning. Every cell runs in a process of its own. Writes results/truth.json.

`--quick` runs a subset in about ten minutes; without it the grid takes hours, and the same command goes on where it was stopped,
as long as the code that fits is the same: every row holds its fingerprint.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import hashlib
import json
import math
import multiprocessing as mp
import resource
import subprocess
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch
from torch import Tensor
from truth_sets import Truth, make, normal, uniform

import inbounds as ib
from inbounds.records import machine

SIZES = (30, 200, 2_000, 20_000)
ORDER = (2_000, 200, 30, 20_000)  # in which sizes are run, since a run may be stopped
STATES = ("clean", "noise 0.003", "noise 0.03", "noise 0.1", "outliers", "uneven")
SIGMAS = (0.05, 0.2)  # corruption of the points that are projected, in sizes of the set
POINTS, SEEDS, SHARE = 1_000, 3, 0.05  # 300 points were too few: three of them decided a ratio at the small sigma
NEIGHBOURS = 10  # whose distance is the spacing of the samples, here and in the library
SECONDS, MEMORY = 30.0, 2 * 2**20  # of CPU, and KiB
WORSE, FLOOR = 3.0, 1e-20  # a squared error below FLOOR of the size counts as none
BESIDE = ("command", "flow", "flow_training", "onnx", "report", "rk45", "storage")  # modules that no cell reaches
QUICK = {
    ("clean", 30): ("rank one", "essential", "circle"),
    ("clean", 200): ("trefoil", "L-shape", "essential"),
    ("clean", 2_000): ("trefoil", "lissajous", "rough sphere", "swiss roll", "essential", "L-shape", "ring sector", "star"),
    ("noise 0.03", 2_000): ("circle", "trefoil", "half-sphere", "two spheres", "rough sphere", "veronese", "annulus"),
    ("noise 0.1", 2_000): ("circle", "sphere", "torus", "disk"),
    ("outliers", 2_000): ("trefoil", "lissajous", "rough sphere", "L-shape", "triangle"),
    ("uneven", 2_000): ("trefoil", "two circles", "disk"),
}


@dataclass(frozen=True)
class Cell:
    """What to fit."""

    name: str
    state: str
    N: int
    seed: int

    @property
    def noise(self) -> float:
        """Standard deviation per coordinate of the samples' noise."""
        return float(self.state.split()[1]) if self.state.startswith("noise") else 0.0


@cache
def sets() -> dict[str, Truth]:
    """Made once, and asked once, so that what they import is there; forked processes share all of it."""
    known = make()
    for truth in known.values():
        truth.exact(truth.draw(2, torch.Generator().manual_seed(0)))
    return known


def fingerprint() -> str:
    """Of the code whose answers are judged, and of the judge; comments and docstrings do not count."""
    package, here = Path(ib.__file__).parent, Path(__file__).parent
    files = [f for f in sorted((package / "learned").glob("*.py")) if f.stem not in BESIDE]
    files += [*sorted((package / "kernels").glob("*.py")), package / "solvers" / "linear.py"]
    files += [here / "truth.py", here / "truth_sets.py", here / "auto.py"]
    return hashlib.sha256("".join(map(meaning, files)).encode()).hexdigest()[:12]


def meaning(path: Path) -> str:
    """What a file of Python says, without its comments and docstrings."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            node.body = body[1:]
    return ast.dump(tree)


def disturbed(cell: Cell, truth: Truth, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """Samples and which of them are outliers."""
    bad = torch.zeros(cell.N, dtype=torch.bool)
    if cell.state == "uneven":  # e^4 times as dense at one end of the first coordinate as at the other
        x = truth.draw(6 * cell.N, g)
        rank = x[:, 0].argsort().argsort() / len(x)
        return x[torch.multinomial((-4 * rank).exp(), cell.N, generator=g)], bad
    x = truth.draw(cell.N, g)
    if cell.state == "outliers":
        k = int(SHARE * cell.N)
        low, high = x.amin(0), x.amax(0)
        x[:k], bad[:k] = low + (high - low) * uniform(k, x.shape[1], g), True
    return x + cell.noise * normal(*x.shape, g), bad


def local_pca(x: Tensor, y: Tensor, dim: int, k: int) -> Tensor:
    """The projection of y on the plane of its k nearest samples."""
    near = x[torch.cdist(y, x).topk(min(k, len(x)), largest=False).indices]
    c = near.mean(1, keepdim=True)
    V = torch.linalg.svd(near - c, full_matrices=False)[2][:, :dim]
    return (c + (y[:, None] - c) @ V.mT @ V)[:, 0]


def baselines(x: Tensor, y: Tensor, truth: Truth) -> list[Tensor]:
    """What a user would write in ten lines."""
    found = [x[torch.cdist(y, x).argmin(1)]]
    if truth.dim < x.shape[1]:
        found += [local_pca(x, y, truth.dim, k) for k in (10, 40)]
    elif x.shape[1] in (2, 3):
        from inbounds.learned import Hull

        found.append(Hull.fit(x).project(y))
    return found


def judge(cell: Cell) -> dict:
    """Fit, and compare with the truth."""
    torch.set_num_threads(1)
    truth, g = sets()[cell.name], torch.Generator().manual_seed(1000 + cell.seed)
    x, bad = disturbed(cell, truth, g)
    size = float((x[~bad] - x[~bad].mean(0)).square().sum(1).mean().sqrt())
    start, row = time.process_time(), {"set": cell.name, "state": cell.state, "samples": cell.N, "seed": cell.seed}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            M = ib.fit(x, support=truth.support)
        except ValueError as error:
            return row | {"refused": str(error), "seconds": round(time.process_time() - start, 1)}
    row |= {
        "seconds": round(time.process_time() - start, 1),
        "warnings": [str(w.message) for w in said if w.category is ib.FitWarning],
    }
    row["memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 2**10
    ratios = []
    for s in SIGMAS:
        y = truth.draw(POINTS, g)
        y = y + s * size / math.sqrt(y.shape[1]) * normal(*y.shape, g)
        p, floor = truth.exact(y), FLOOR * size**2
        with torch.no_grad():
            own = float((M.project(y) - p).square().sum(1).mean())
        best = min(float((b - p).square().sum(1).mean()) for b in baselines(x, y, truth))
        ratios.append(max(own, floor) / max(best, floor))
    codim = x.shape[1] - truth.dim
    easy = cell.N >= 2_000 and cell.noise * math.sqrt(codim) < truth.reach / 4
    row |= {"ratio": [float(f"{r:.2g}") for r in ratios], "dimension": M.info["dimension"], "true_dimension": truth.dim}
    row |= {"easy": easy, "chosen": M.info["title"], **found_outliers(M, x, bad, truth)}
    return row


def found_outliers(M, x: Tensor, bad: Tensor, truth: Truth) -> dict:
    """Of the samples that the fit has seen: how many outliers are farther from the set than its samples' spacing, by the tenth
    neighbour and by the first, and which share of these it dropped; and the share of the true samples that it dropped."""
    dropped = torch.zeros(len(x), dtype=torch.bool)
    dropped[torch.tensor(M.info.get("dropped", []), dtype=torch.long)] = True
    seen = torch.ones(len(x), dtype=torch.bool)
    seen[torch.tensor(M.info["spared"], dtype=torch.long)] = False  # for calibration: the fit never looked at them
    row: dict = {"true_dropped": round(float(dropped[~bad & seen].double().mean()), 4)}
    rows = (bad & seen).nonzero()[:, 0]
    if not len(rows):
        return row | {"outliers": 0, "outliers_found": None}
    good, away = x[~bad], (truth.exact(x[rows]) - x[rows]).norm(dim=1)
    near = torch.cdist(good[:500], good).topk(NEIGHBOURS + 1, largest=False).values.median(0).values
    for key, spacing in (("outliers", near[NEIGHBOURS]), ("near_outliers", near[1])):
        far = rows[away > spacing]
        row |= {key: len(far), f"{key}_found": round(float(dropped[far].double().mean()), 3) if len(far) else None}
    return row


def verdict(row: dict) -> str:
    """right, warned, silent or refused."""
    if "refused" in row:
        return "refused"
    if "error" in row:
        return "broken"
    wrong = max(row["ratio"]) > WORSE or row["dimension"] != row["true_dimension"]
    return "right" if not wrong else "warned" if row["warnings"] else "silent"


def alone(cells: list[Cell], jobs: int) -> Iterator[tuple[Cell, dict]]:
    """judge(cell) for all of them, each in a process of its own, so many at a time; in the order in which they finish."""
    sets()
    waiting, running = list(reversed(cells)), {}
    while waiting or running:
        while waiting and len(running) < jobs:
            cell = waiting.pop()
            here, there = mp.get_context("fork").Pipe(False)
            process = mp.get_context("fork").Process(target=told, args=(cell, there))
            process.start()
            there.close()
            running[here] = cell, process
        for here in wait(list(running)):
            assert isinstance(here, Connection)
            cell, process = running.pop(here)
            try:
                row = here.recv()
            except EOFError:
                row = {"set": cell.name, "state": cell.state, "samples": cell.N, "seed": cell.seed, "error": "the process died"}
            process.join()
            yield cell, row | {"verdict": verdict(row)}


def told(cell: Cell, there: Connection) -> None:
    """Send what the judge says."""
    there.send(judge(cell))


def stored(path: Path, code: str) -> dict[Cell, dict]:
    """Cells that runs of this code have left in the file: with the same command it goes on where it was stopped."""
    if not path.is_file():
        return {}
    rows = json.loads(path.read_text())["rows"]
    return {Cell(r["set"], r["state"], r["samples"], r["seed"]): r for r in rows if r.get("code") == code}


def summary(rows: list[dict]) -> dict:
    """What the issue asks for, counted."""
    done = [r for r in rows if "ratio" in r]
    count = {v: sum(r["verdict"] == v for r in rows) for v in ("right", "warned", "silent", "refused", "broken")}
    easy = [r for r in done if r["easy"]]
    return {
        **count,
        "better_than_baseline": round(sum(max(r["ratio"]) <= 1 for r in done) / max(len(done), 1), 3),
        "right_dimension_where_easy": f"{sum(r['dimension'] == r['true_dimension'] for r in easy)} of {len(easy)}",
        "right_with_warning": sum(r["verdict"] == "right" and bool(r["warnings"]) for r in done),
        "outliers": found_of(done, "outliers"),
        "outliers_beyond_the_nearest_neighbour": found_of(done, "near_outliers"),
        "cells_with_true_samples_dropped_beyond_1_percent": sum(r["true_dropped"] > 0.01 for r in done),
        "slower_than_30_s": sum(r["seconds"] > SECONDS for r in done),
        "larger_than_2_gib": sum(r["memory_mib"] * 2**10 > MEMORY for r in done),
    }


def found_of(rows: list[dict], key: str) -> str:
    """Outliers that were found, of all cells with at least 2,000 samples together."""
    some = [r for r in rows if r.get(key) and r["samples"] >= 2_000]
    count = sum(r[key] for r in some)
    return f"{sum(r[key] * r[key + '_found'] for r in some) / max(count, 1):.1%} of {count}"


def line(row: dict) -> str:
    """A cell in a line of text."""
    head = f"{row['verdict']:8} {row['set']:18} {row['state']:12} {row['samples']:6}"
    if "ratio" not in row:
        return f"{head} {row.get('refused') or row.get('error')}"
    found = f"{row['ratio']} dim {row['dimension']}/{row['true_dimension']}"
    lost = f"out {row['outliers_found']} lost {row['true_dropped']}"
    return f"{head} {found} {lost} {row['seconds']} s {row['memory_mib']} MiB | {row['chosen']} | {'; '.join(row['warnings'])}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="a subset, one seed")
    parser.add_argument(
        "--only", help="whole words that the line of a cell must hold, commas for and, semicolons for or; then nothing is written"
    )
    parser.add_argument("--out", default="results/truth.json")
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time")
    args = parser.parse_args()
    if args.quick:
        cells = [Cell(name, *how, 0) for how, names in QUICK.items() for name in names]
    else:
        # all sets and states with few samples first, since they are cheap; further seeds last
        cells = [Cell(name, s, N, seed) for seed in range(SEEDS) for N in ORDER for s in STATES for name in sets()]
    if args.only:
        wanted = [[w.strip() for w in a.split(",")] for a in args.only.split(";")]
        cells = [
            c for c in cells if any(all(f" {w} " in f" {c.name} {c.state} {c.N} {c.seed} " for w in words) for words in wanted)
        ]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    about = {"command": "python benchmarks/truth.py" + " --quick" * args.quick, "commit": commit, "code": fingerprint()}
    about |= {"date": datetime.date.today().isoformat(), "machine": machine()}
    known = {} if args.only else stored(Path(args.out), about["code"])
    found = {c: known[c] for c in cells if c in known}
    for cell, row in alone([c for c in cells if c not in found], args.jobs):
        found[cell] = row | {"code": about["code"]}
        print(line(row), flush=True)
        if not args.only:  # after every cell, so that a long run that is stopped has not been in vain
            rows = [found[c] for c in cells if c in found]
            counted = {"cells": f"{len(rows)} of {len(cells)}", **summary(rows)}
            Path(args.out).write_text(json.dumps({**about, "summary": counted, "rows": rows}, indent=1) + "\n")
    rows = list(found.values())
    print(json.dumps(summary(rows), indent=1))


if __name__ == "__main__":
    main()
