"""Training speed of a stack of 10 models (2 weight decays x 5 seeds, depth 8, batch 500) against two plain loops, one thread.

Peers, both one model after the other with the projection by raw SVD:
- loader: torch's DataLoader and AdamW, as tutorials write it;
- slices: tensor slices of a shuffled copy and fused AdamW, as a careful practitioner writes it.
Prints ms per step of all ten models and ratios, then what the paper's protocol costs: 80,000 steps of depths 4, 6, 8 and two
weight decays, with a stack for each depth (how="batched") and with one stack for all, in core-hours of CPU time. Writes
results/training.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from inbounds import data
from inbounds.paper.names import named
from inbounds.paper.rows import ROWS
from inbounds.paper.units import UNDEFINED
from inbounds.train import Member, Protocol, StackTraining
from inbounds.train.planes import rule_of

DEPTH, BATCH, DECAYS, SEEDS = 8, 500, (0.0, 1e-4), 5


def nearest_rotation(A: Tensor) -> Tensor:
    """U diag(1, 1, det UV^T) V^T by torch.linalg.svd."""
    U, _, Vh = torch.linalg.svd(A)
    signs = torch.ones(A.shape[:-1])
    signs[..., -1] = torch.linalg.det(U @ Vh)
    return U * signs[..., None, :] @ Vh


class Residual(nn.Module):
    """The paper's feed-forward network in plain torch: x <- P(x + dt block(x))."""

    def __init__(self, size: int, project: Callable[[Tensor], Tensor]):
        super().__init__()
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size)) for _ in range(DEPTH)]
        )
        self.dt, self.project = nn.Parameter(torch.ones(DEPTH)), project

    def forward(self, x: Tensor) -> Tensor:
        for i, block in enumerate(self.blocks):
            x = self.project(x + self.dt[i] * block(x.flatten(1)).reshape(x.shape))
        return x


def peers(x: Tensor, y: Tensor, project) -> dict[str, Callable[[], None]]:
    """One epoch of all ten models, by either loop."""
    size = x[0].numel()

    def fresh(fused: bool) -> list:
        nets = [Residual(size, project) for _ in range(len(DECAYS) * SEEDS)]
        decays = [wd for wd in DECAYS for _ in range(SEEDS)]
        return [
            (n, torch.optim.AdamW(n.parameters(), lr=1e-3, weight_decay=wd, fused=fused))
            for n, wd in zip(nets, decays, strict=True)
        ]

    def step(net, adam, xb, yb) -> None:
        adam.zero_grad()
        nn.functional.mse_loss(net(xb), yb).backward()
        adam.step()

    plain, fused = fresh(False), fresh(True)
    loader = DataLoader(TensorDataset(x, y), BATCH, shuffle=True)

    def loop_loader() -> None:
        for net, adam in plain:
            for xb, yb in loader:
                step(net, adam, xb, yb)

    def loop_slices() -> None:
        for net, adam in fused:
            order = torch.randperm(len(x))
            for xb, yb in zip(x[order].split(BATCH), y[order].split(BATCH), strict=True):
                step(net, adam, xb, yb)

    return {"loader": loop_loader, "slices": loop_slices}


def stacks(row: str, pairs, compiled: bool) -> dict[str, Callable[[], object]]:
    members = [Member(s, wd) for wd in DECAYS for s in range(SEEDS)]
    problem = named(row, ROWS).problem(pairs, DEPTH)
    protocol = Protocol(epochs=10**9, batch=BATCH, every=10**9)
    ways = {"eager": False} | ({"compiled": True} if compiled else {})
    return {name: StackTraining(problem, protocol, members, compile=c).advance for name, c in ways.items()}


def seconds(epochs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of an epoch of each, taken in turns so that a busy moment hits all."""
    for run in epochs.values():
        run()
    taken: dict[str, list[float]] = {name: [] for name in epochs}
    for _ in range(rounds):
        for name, run in epochs.items():
            start = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(t) for name, t in taken.items()}


# --- the paper's protocol ----------------------------------------------------------------------------------
CELLS = [
    (d, r)
    for d in ("sphere", "disk", "so3", "protein")
    for r in ("regular", "proj-faa", "prob", "exp-faa", "proj-iaa", "exp-iaa")
]
STEPS, DEPTHS = 80_000, (8, 6, 4)


def cpu_ms(trainings: list[StackTraining], least: float) -> float:
    """CPU milliseconds of a step of all of them: the best of three rounds of at least `least` seconds."""
    best = float("inf")
    for t in trainings:
        t.advance()
    for _ in range(3):
        start, epochs = time.process_time(), 0
        while time.process_time() - start < least:
            for t in trainings:
                t.advance()
            epochs += 1
        best = min(best, (time.process_time() - start) / (8 * epochs))
    return 1e3 * best


def core_hours(compile: bool, least: float) -> dict:
    """ms per step and core-hours of every cell: a stack for each depth, one stack, one stack with three seeds."""
    found, sets = {}, {d: getattr(data, d)({} if d == "protein" else {"large": 1}) for d in ("sphere", "disk", "so3", "protein")}
    for d, row in CELLS:
        if (d, row) in UNDEFINED:
            continue
        problem, protocol = named(row, ROWS).problem(sets[d]), Protocol(epochs=10**9, every=10**9)

        def members(depths, seeds):
            return [Member(s, wd, depth=depth) for depth in depths for wd in DECAYS for s in range(seeds)]

        ways = {
            "apart": [StackTraining(problem, protocol, members([depth], 1), "batched") for depth in DEPTHS],
            "one stack": [StackTraining(problem, protocol, members(DEPTHS, 1))],
            "one stack, three seeds": [StackTraining(problem, protocol, members(DEPTHS, 3))],
        }
        rule = rule_of(named(row, ROWS).step(sets[d].set))
        if compile and rule is not None and rule.heavy:
            torch.compiler.reset()  # a run compiles for one cell; the shapes of all 22 would exceed the compiler's limit
            ways["compiled"] = [StackTraining(problem, protocol, members(DEPTHS, 1), compile=True)]
        taken = {name: round(cpu_ms(t, least), 2) for name, t in ways.items()}
        found[f"{d} {row}"] = taken
        print(f"  {d} {row:9s} " + ", ".join(f"{name} {ms:.1f}" for name, ms in taken.items()) + " ms per step", flush=True)
    best = {name: min(t["one stack"], t.get("compiled", math.inf)) for name, t in found.items()}
    sums = {
        "apart": sum(t["apart"] for t in found.values()),
        "one stack": sum(t["one stack"] for t in found.values()),
        "one stack, compiled where it pays": sum(best.values()),
        "one stack, three seeds": sum(t["one stack, three seeds"] for t in found.values()),
    }
    hours = {name: round(ms * STEPS / 3.6e6, 1) for name, ms in sums.items()}
    print("core-hours of the 22 cells: " + ", ".join(f"{name} {h}" for name, h in hours.items()))
    return {"ms_per_step": found, "core_hours": hours}


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-compile", action="store_true", help="leave out the compiled stacks")
    parser.add_argument("--least", type=float, default=0.3, help="CPU seconds of a timing of the protocol (%(default)s)")
    parser.add_argument("--out", default="results/training.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found: dict = {}
    for title, make, row, project in [
        ("Sphere Regular", data.sphere, "regular", lambda x: x),
        ("SO(3) Proj IAA", data.so3, "proj-iaa", nearest_rotation),
    ]:
        pairs = make({"large": 1})
        x, y = pairs["train"]
        taken = seconds({**stacks(row, pairs, not args.no_compile), **peers(x, y, project)}, args.rounds)
        steps = len(x) / BATCH
        found[title] = {
            "ms_per_step": {name: round(1e3 * t / steps, 2) for name, t in taken.items()},
            "ratios": {
                f"{ours} against {peer}": round(taken[peer] / taken[ours], 2)
                for ours in ("eager", "compiled")
                if ours in taken
                for peer in ("loader", "slices")
            },
        }
        print(title)
        for name, ms in found[title]["ms_per_step"].items():
            print(f"  {name:10s} {ms:8.2f} ms per step of 10 models")
        for name, ratio in found[title]["ratios"].items():
            print(f"  {name}: {ratio:.1f}x", flush=True)
    protocol = core_hours(not args.no_compile, args.least)
    about = {
        "command": shlex.join(["python", "benchmarks/training.py", *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, 1 thread used, torch {torch.__version__.split('+')[0]}",
        "load": [round(v, 1) for v in os.getloadavg()],  # a busy machine slows all of them
        "results": found,
        "protocol": protocol,
    }
    Path(args.out).write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
