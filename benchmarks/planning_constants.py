"""Which constants of planning matter: `Around` without a fallback in random worlds, one constant halved or doubled at a time.

For each value: how many pairs arrive, the mean and the 95 % quantile of the length against the shortest path, and whether a
segment collides. None may: constants decide how often and how short, never whether a path is free. Writes
results/planning_constants.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path as File

import torch
from constants import Constant

from inbounds import planning as pl
from inbounds.records import head

WORLDS, SEED = 90, 77
SWEEP = {  # name: (constant, values; the second is the package's own)
    "margin of safe steps": (Constant("planning/worlds/base.py", "MARGIN"), (0.001, 0.004, 0.016)),
    "longest chord": (Constant("planning/ways.py", "STEP"), (0.1, 0.2, 0.4)),
    "share of a chord's angle": (Constant("planning/ways.py", "CHORD"), (0.9, 0.995, 1 - 1e-9)),
    "rim points that are one": (Constant("planning/ways.py", "SAME"), (1e-8, 1e-6, 1e-4)),
    "points on a rim": (Constant("planning/ways.py", "TINY"), (1e-11, 1e-9, 1e-7)),
}


def cases() -> list[tuple]:
    """Worlds with a start and a target each, and the shortest lengths."""
    found = []
    for worlds in (pl.random_worlds(WORLDS, seed=SEED), pl.random_caps(WORLDS // 3, seed=SEED)):
        g = torch.Generator().manual_seed(SEED)
        x, y = (worlds.sample(generator=g) for _ in range(2))
        found.append((worlds, x, y, pl.ShortestPaths(worlds).distance(x, y)))
    return found


def measured(found: list[tuple], net: pl.SideNet) -> dict:
    """Arrival, lengths and collisions of the planner as its constants are now."""
    arrived, ratios, colliding = [], [], 0
    for worlds, x, y, shortest in found:
        path = pl.Around(worlds, net).plan(x, y)
        there = torch.isfinite(shortest) & (shortest > 1e-9)
        arrived.append(path.reached[there])
        ratios.append((path.length / shortest)[there & path.reached])
        colliding += int((path.clearance < 0).sum())
    ratio = torch.cat(ratios)
    return {
        "reach": round(float(torch.cat(arrived).double().mean()), 4),
        "ratio_mean": round(float(ratio.mean()), 5),
        "ratio_p95": round(float(ratio.quantile(0.95)), 5),
        "colliding_segments": colliding,
    }


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--out", default="results/planning_constants.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found, net, rows = cases(), pl.load_sides(), []
    for name, (constant, values) in SWEEP.items():
        own = constant.value
        assert own == values[1], constant
        for value in values:
            constant.set(value)
            rows.append({"constant": name, "value": value, "own": value == own, **measured(found, net)})
            print(rows[-1], flush=True)
        constant.set(own)
    record = {**head("python benchmarks/planning_constants.py"), "worlds": WORLDS, "rows": rows}
    File(args.out).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
