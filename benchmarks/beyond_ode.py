"""ProjectedODE beside torchdiffeq, one thread, float64. Run it in .venv-peers; it writes results/beyond_ode.json.

Unconstrained: both integrate the same field with Dormand and Prince's method at a ladder of tolerances. The times that each needs
for an error of 1e-6 are read off between the rungs, on logarithmic scales; ratio = torchdiffeq / ours. The error is that of the
worst row, at the end. torchdiffeq takes one step for all rows, ours one for each.

Constrained: states at 40 times. torchdiffeq follows the field as it is ("plain"), the field projected on the tangent cone at the
nearest point ("tangent field"), and the latter with its states projected afterwards ("projected after"). Violation and error are
the largest over rows and times; the reference is ProjectedODE with the tolerance 1e-9, for the disk a formula.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torchdiffeq import odeint  # pyright: ignore[reportMissingImports]

import inbounds as ib
from inbounds.records import head

D = torch.float64
RESULTS = Path(__file__).parents[1] / "results" / "beyond_ode.json"
LADDER = [1e-4, 1e-5, 1e-6, 1e-7, 1e-8]
GOAL = 1e-6


class Oscillator(nn.Module):
    """Van der Pol's equation, whose rows have fast and slow stretches at different times."""

    def forward(self, t, x):
        a, b = x.unbind(-1)
        return torch.stack([b, 3 * (1 - a * a) * b - a], -1)


class Network(nn.Module):
    """A random field with one hidden layer of 64."""

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        n = math.prod(shape)
        torch.manual_seed(0)
        self.shape = shape
        self.layers = nn.Sequential(nn.Linear(n, 64, dtype=D), nn.Tanh(), nn.Linear(64, n, dtype=D))
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=2 / math.sqrt(layer.in_features))

    def forward(self, t, x):
        flat = x.flatten(x.dim() - len(self.shape))
        return self.layers(flat).reshape(x.shape)


class Up(nn.Module):
    def forward(self, t, x):
        return torch.tensor([0.0, 1.0], dtype=D).expand_as(x)


def timed(calls: dict[str, Callable[[], Tensor]], rounds: int) -> dict[str, float]:
    """The least CPU time of each call, in milliseconds, over rounds in which they take turns."""
    times: dict[str, list[float]] = {who: [] for who in calls}
    for _ in range(rounds):
        for who, call in calls.items():
            began = time.process_time()
            call()
            times[who].append(time.process_time() - began)
    return {who: 1e3 * min(each) for who, each in times.items()}


def at_goal(rungs: list[dict]) -> float:
    """The time for the error GOAL, between the two rungs around it."""
    for a, b in itertools.pairwise(rungs):
        if a["error"] >= GOAL >= b["error"]:
            share = math.log(a["error"] / GOAL) / math.log(a["error"] / b["error"])
            return math.exp((1 - share) * math.log(a["ms"]) + share * math.log(b["ms"]))
    return math.nan


@torch.no_grad()
def unconstrained(name: str, field: nn.Module, x: Tensor, horizon: float, rounds: int) -> dict:
    t = torch.tensor([0.0, horizon], dtype=D)
    exact = odeint(field, x, t, rtol=1e-12, atol=1e-12, method="dopri8")[-1]
    M = ib.Euclidean(*x.shape[1:])
    found: dict = {"ours": [], "torchdiffeq": []}
    for tolerance in LADDER:
        ode = ib.ProjectedODE(field, M, horizon=horizon, method="dopri5", tolerance=tolerance)
        calls = {
            "ours": lambda ode=ode: ode(x),
            "torchdiffeq": lambda e=tolerance: odeint(field, x, t, rtol=e, atol=e, method="dopri5")[-1],
        }
        ends = {who: call() for who, call in calls.items()}
        ms = timed(calls, rounds)
        for who, y in ends.items():
            error = float((y - exact).flatten(1).norm(dim=-1).max())
            found[who].append({"tolerance": tolerance, "error": error, "ms": ms[who]})
    ours, theirs = at_goal(found["ours"]), at_goal(found["torchdiffeq"])
    print(f"{name}: {ours:.1f} ms, torchdiffeq {theirs:.1f} ms at the error {GOAL:g}: ratio {theirs / ours:.2f}", flush=True)
    return {**found, "ms_at_goal": {"ours": ours, "torchdiffeq": theirs}, "ratio": theirs / ours}


def on_the_rim(x: Tensor, t: Tensor) -> Tensor:
    """Where points of the disk are that are pushed upwards: straight to the rim, then along it, (rows, times, 2)."""
    a, b = x[:, :1], x[:, 1:]
    top = (1 - a * a).sqrt()
    slid = (t - (top - b)).clamp(min=0)
    angle = 2 * torch.atan(torch.tan(torch.atan2(a, top) / 2) * torch.exp(-slid))
    inside = torch.stack([a.expand_as(slid), b + t], -1)
    return torch.where((slid > 0)[..., None], torch.stack([angle.sin(), angle.cos()], -1), inside)


@torch.no_grad()
def constrained(name: str, M: ib.ConstraintSet, field: nn.Module, x: Tensor, horizon: float) -> dict:
    t = torch.linspace(0, horizon, 40, dtype=D)
    if name == "disk":
        exact = on_the_rim(x, t)
    else:
        exact = ib.ProjectedODE(field, M, horizon=horizon, method="dopri5", tolerance=1e-9)(x, times=t)

    def tangent(s: Tensor, p: Tensor) -> Tensor:
        q = M.project(p)
        return M.tangent(q, field(s, q))

    def theirs(f: Callable) -> Tensor:
        # without min_step, torchdiffeq stops with an error where the velocity jumps
        options = {"min_step": 1e-4} if name == "disk" else {}
        return odeint(f, x, t, rtol=1e-5, atol=1e-5, method="dopri5", options=options).movedim(0, 1)

    states = {
        "ours": ib.ProjectedODE(field, M, horizon=horizon, method="dopri5", tolerance=1e-5)(x, times=t),
        "torchdiffeq, plain": theirs(field),
        "torchdiffeq, tangent field": theirs(tangent),
    }
    states["torchdiffeq, projected after"] = M.project(states["torchdiffeq, tangent field"])
    found = {}
    for who, y in states.items():
        gap = (y - exact).flatten(2).norm(dim=-1)
        outside = (~M.contains(y)).double().mean()
        found[who] = {"violation": float(M.violation(y).max()), "share_outside": float(outside), "error": float(gap.max())}
        print(name, who, json.dumps(found[who]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="one round of times, printed and not stored")
    args = parser.parse_args()
    torch.set_num_threads(1)
    about = head("python benchmarks/beyond_ode.py")
    g = torch.Generator().manual_seed(0)
    rounds = 1 if args.quick else 5
    starts = torch.randn(64, 2, dtype=D, generator=g)
    free = {
        "oscillator, 64 rows": unconstrained("oscillator, 64 rows", Oscillator(), 2 * starts, 3.0, rounds),
        "oscillator, 1 row": unconstrained("oscillator, 1 row", Oscillator(), 2 * starts[:1], 3.0, rounds),
        "network, 64 rows": unconstrained("network, 64 rows", Network((2,)), starts, 2.0, rounds),
    }
    bound = {}
    for name, M, field, horizon in (
        ("sphere", ib.Sphere(3), Network((3,)), 5.0),
        ("SO(3)", ib.SO(3), Network((3, 3)), 5.0),
        ("disk", ib.Ball(2), Up(), 3.0),
    ):
        bound[name] = constrained(name, M, field, M.sample(32, generator=g, dtype=D), horizon)
    if not args.quick:
        results = {"unconstrained": free, "constrained": bound}
        RESULTS.write_text(json.dumps({**about, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
