"""How far ahead can a flock be predicted? Validation R^2 of a wide unconstrained network, for several horizons.

Fixes FLOCK_HORIZON before any other row is trained: R^2 must be at least 0.9 there, with room for the much smaller blocks of the
table, so 2 was taken although 8 just passes. Writes results/flock_horizon.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
from pathlib import Path

import torch

from inbounds.data import flock
from inbounds.paper.models import Shape, wide_blocks
from inbounds.train.training import Member, Problem, Protocol, StackTraining, mse


def r_squared(horizon: float, epochs: int) -> float:
    """1 - (validation error)/(variance of the validation targets about the training mean), all coordinates together."""
    pairs = flock({"large": 1}, horizon=horizon)
    (x, y), (x_val, y_val) = pairs["train"], pairs["val"]
    shape = Shape(pairs.set, tokens=True, wide=wide_blocks(tokens=True))
    problem = Problem(lambda: shape.regular(4), x, y, x_val, y_val, mse, lambda output: output)
    training = StackTraining(problem, Protocol(epochs=epochs, batch=100, every=5, patience=15), [Member(0)])
    while not training.done:
        training.advance()
        print(f"\rhorizon {horizon:g}: epoch {training.epoch}, validation {float(training.best[0]):.4f}", end="", flush=True)
    variance = (y_val - y.mean((0, 1))).square().mean()
    return 1 - float(training.best[0] / variance)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--horizons", default="2,4,8")
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--out", default="results/flock_horizon.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for h in map(float, args.horizons.split(",")):
        found[h] = r_squared(h, args.epochs)
        print(f"\rhorizon {h:g}: validation R^2 {found[h]:.3f}" + 30 * " ", flush=True)
    about = {
        "command": f"python benchmarks/flock_horizon.py --horizons {args.horizons} --epochs {args.epochs}",
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, torch {torch.__version__.split('+')[0]}",
        "r_squared": {str(h): round(r, 4) for h, r in found.items()},
    }
    Path(args.out).write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
