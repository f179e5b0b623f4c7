"""Which blocks do the wide rows get? Validation error of Wide FAA for several widths, depths and learning rates.

No test split is touched. The rule: of all settings take the cheapest (width x depth) whose validation error, as a ratio to the
best of its dataset and as a geometric mean over the datasets, is within 10 % of the lowest. Flocks choose by themselves, since
their blocks are transformers. Writes results/wide_blocks.json.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import math
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

from inbounds import FAA, Projection, data
from inbounds.paper.models import Shape
from inbounds.train import Member, Problem, Protocol, StackTraining, mse

SEEDS = (10, 11)  # not those of the table
RATES = (1e-3, 3e-3, 1e-2)
POINTS = {"datasets": ("sphere", "disk", "so3", "protein"), "widths": (16, 64, 128), "depths": (4, 8), "epochs": 60, "batch": 500}
GROUPS = {"datasets": ("flock",), "widths": (32, 64, 128), "depths": (4,), "epochs": 4, "batch": 50, "batches": 40}
SLACK = 1.1


def validation(
    name: str, tokens: bool, width: int, depth: int, epochs: int, batch: int, batches: int | None
) -> dict[float, float]:
    """lr -> best validation error, mean over the seeds."""
    torch.set_num_threads(1)
    pairs = getattr(data, name)({} if name == "protein" else {"large": 1})
    blocks = {"heads": 4, "dim": width, "width": 2 * width} if tokens else {"width": width}
    shape = Shape(pairs.set, tokens, wide=blocks)
    (x, y), (x_val, y_val) = pairs["train"], pairs["val"]
    problem = Problem(lambda: FAA(shape.regular(depth), Projection(pairs.set)), x, y, x_val, y_val, mse, lambda output: output)
    every, patience = max(1, epochs // 20), max(1, epochs // 10)
    protocol = Protocol(epochs, batch, every=every, patience=patience, batches=batches, val=400 if tokens else None)
    training = StackTraining(problem, protocol, [Member(s, 0.0, lr) for lr in RATES for s in SEEDS])
    while not training.done:
        training.advance()
    return dict(zip(RATES, training.best.unflatten(0, (len(RATES), len(SEEDS))).mean(1).tolist(), strict=True))


def search(kind: dict, tokens: bool, pool: ProcessPoolExecutor) -> list[dict]:
    """A line per setting, lowest first."""
    cases = list(itertools.product(kind["widths"], kind["depths"]))
    jobs = {
        (name, *case): pool.submit(validation, name, tokens, *case, kind["epochs"], kind["batch"], kind.get("batches"))
        for case in sorted(cases, key=math.prod, reverse=True)
        for name in kind["datasets"]
    }
    found = {case: job.result() for case, job in jobs.items()}
    lines = []
    for (width, depth), lr in itertools.product(cases, RATES):
        errors = {name: found[name, width, depth][lr] for name in kind["datasets"]}
        ratios = [e / min(min(v.values()) for (n, *_), v in found.items() if n == name) for name, e in errors.items()]
        score = math.exp(sum(map(math.log, ratios)) / len(ratios))
        lines.append({"width": width, "depth": depth, "lr": lr, "score": round(score, 4), "validation": errors})
    return sorted(lines, key=lambda line: line["score"])


def choice(lines: list[dict]) -> dict:
    near = [line for line in lines if line["score"] <= SLACK * lines[0]["score"]]
    best = min(near, key=lambda line: (line["width"] * line["depth"], line["score"]))
    return {k: best[k] for k in ("width", "depth", "lr", "score")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--out", default="results/wide_blocks.json")
    args = parser.parse_args()
    about = {
        "command": "python benchmarks/wide_blocks.py",
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, torch {torch.__version__.split('+')[0]}",
    }
    start = time.perf_counter()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for title, kind, tokens in (("points", POINTS, False), ("flocks", GROUPS, True)):
            lines = search(kind, tokens, pool)
            about[title] = {"chosen": choice(lines), "budget": {k: v for k, v in kind.items() if k != "datasets"}, "tried": lines}
            for line in lines:
                errors = "  ".join(f"{n} {e:.3g}" for n, e in line["validation"].items())
                print(
                    f"{title}: width {line['width']}, depth {line['depth']}, lr {line['lr']:g}: {line['score']:.3f}  ({errors})"
                )
            print(f"{title}: chosen {about[title]['chosen']}", flush=True)
    about["seconds"] = round(time.perf_counter() - start)
    Path(args.out).write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
