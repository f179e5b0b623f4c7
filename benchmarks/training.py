"""Training speed of a stack of 10 models (2 weight decays x 5 seeds, depth 8, batch 500) against two plain loops, one thread.

Peers, both one model after the other with the projection by raw SVD:
- loader: torch's DataLoader and AdamW, as tutorials write it;
- slices: tensor slices of a shuffled copy and fused AdamW, as a careful practitioner writes it.
Prints ms per step of all ten models and ratios, and writes results/training.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from inbounds import data
from inbounds.paper import models
from inbounds.train import Member, Protocol, StackTraining

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
    problem = models.problem(row, pairs, DEPTH)
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


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-compile", action="store_true", help="leave out the compiled stacks")
    parser.add_argument("--out", default="results/training.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
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
    about = {
        "command": "python benchmarks/training.py" + (f" --rounds {args.rounds}" if args.rounds != 7 else ""),
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, 1 thread used, torch {torch.__version__.split('+')[0]}",
        "results": found,
    }
    Path(args.out).write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
