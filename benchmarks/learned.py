"""Sets fitted to samples against the formula: accuracy, derivative and speed of `inbounds.fit`, three seeds, one thread.

Protocol of the paper: fit on 4,000 samples, corrupt held-out points by N(0, sigma^2 I), compare with the exact projection
of the corrupted point: mean squared error per coordinate, mean violation of the exact set. Writes results/learned.json.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

import inbounds as ib
from inbounds.learned import Local
from inbounds.records import head

SAMPLES, POINTS, SIGMAS, SEEDS = 4_000, 1_000, (0.01, 0.1, 0.3), (401, 402, 403)


@dataclass
class Case:
    name: str
    draw: Callable[[int, torch.Generator], Tensor]
    exact: Callable[[Tensor], Tensor]
    violation: Callable[[Tensor], Tensor]
    noise: float = 0.0
    outliers: int = 0
    mse: float = math.inf  # targets
    off: float = math.inf
    derivative: float = math.inf  # from the formula's; from the fitted set's own differences it is 1e-6 everywhere


def of(M: ib.ConstraintSet) -> dict:
    return {
        "draw": lambda n, g: M.sample(n, generator=g, dtype=torch.float64),
        "exact": M.project,
        "violation": M.violation,
    }


def torus(n: int, g: torch.Generator) -> Tensor:
    a, b = 2 * math.pi * torch.rand(2, n, generator=g, dtype=torch.float64)
    r = 1 + 0.4 * b.cos()
    return torch.stack([r * a.cos(), r * a.sin(), 0.4 * b.sin()], 1)


def on_torus(x: Tensor) -> Tensor:
    ring = F.pad(F.normalize(x[:, :2], dim=1), (0, 1))
    return ring + 0.4 * F.normalize(x - ring, dim=1)


def off_torus(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x - on_torus(x), dim=1)


CASES = [
    Case("sphere", **of(ib.Sphere(3)), mse=1e-17, off=1e-8, derivative=1e-6),
    Case("SO(3)", **of(ib.SO(3)), mse=1e-24, off=1e-12, derivative=1e-6),
    Case("SE(3), 22 outliers", **of(ib.SE(3)), outliers=22, mse=1e-15, off=2e-7, derivative=1e-6),
    Case("disk", **of(ib.Ball(2)), mse=2e-7),
    Case("torus", torus, on_torus, off_torus, mse=1e-19, derivative=1e-6),
    Case("sphere, noise 0.01", **of(ib.Sphere(3)), noise=0.01, mse=3e-7),
    Case("SO(3), noise 0.01", **of(ib.SO(3)), noise=0.01, mse=1e-6),
    Case("SE(3), noise 0.01", **of(ib.SE(3)), noise=0.01, mse=1e-6),
]


def samples(c: Case, g: torch.Generator) -> Tensor:
    x = c.draw(SAMPLES, g)
    x = x + c.noise * torch.randn(x.shape, generator=g, dtype=torch.float64)
    if c.outliers:
        x[: c.outliers] += 0.5 * torch.randn(x[: c.outliers].shape, generator=g, dtype=torch.float64)
    return x


def examine(c: Case, seed: int) -> dict:
    g = torch.Generator().manual_seed(seed)
    x = samples(c, g)
    start = time.perf_counter()
    M = ib.fit(x)
    seconds = time.perf_counter() - start
    y = c.draw(POINTS, g)
    e = torch.randn(y.shape, generator=g, dtype=torch.float64)
    mse, off = [], []
    for sigma in SIGMAS:
        p = M.project(y + sigma * e)
        mse.append(float((p - c.exact(y + sigma * e)).square().mean()))
        off.append(float(c.violation(p).mean()))
    theirs, own = derivative(M, c, y[:50] + 0.1 * e[:50], g)
    return {
        "case": c.name,
        "seed": seed,
        "mse": mse,
        "violation": off,
        "jacobian": theirs,
        "own_jacobian": own,
        "found": M.info["title"],
        "outliers": M.info["outliers"],
        "seconds": round(seconds, 2),
        "met": max(mse) <= c.mse and max(off) <= c.off and theirs <= c.derivative and own <= 1e-6,
    }


def derivative(M: ib.ConstraintSet, c: Case, x: Tensor, g: torch.Generator) -> tuple[float, float]:
    """Largest difference of DP(x) w from the exact projection's, and from finite differences of P itself, w of length 1.

    DP is symmetric. Points at a kink of P, where two step lengths disagree, are left out of the second.
    """
    x = x.clone().requires_grad_()
    w = torch.randn(x.shape, generator=g, dtype=torch.float64)
    w = w / torch.linalg.vector_norm(w.flatten(1), dim=1).reshape(-1, *[1] * (x.dim() - 1))
    (a,), (b,) = (torch.autograd.grad(P(x), x, w) for P in (M.project, c.exact))
    with torch.no_grad():
        d = [(M.project(x + s * w) - M.project(x - s * w)) / (2 * s) for s in (1e-5, 2e-5)]
        own = (a - (4 * d[0] - d[1]) / 3).flatten(1).abs().amax(1)  # Richardson: of fourth order
        kink = (d[0] - d[1]).flatten(1).abs().amax(1) > 1e-3
    return float((a - b).abs().max()), float(own[~kink].max())


def speed() -> dict:
    """Seconds on one thread, the least of three: a fit of a million points of a sphere, first, for its memory, and once; of 4,000
    frames; a projection."""
    g = torch.Generator().manual_seed(7)
    many = ib.Sphere(3).sample(1_000_000, generator=g, dtype=torch.float64)
    found = {"fit 1,000,000 points of a sphere": timed(lambda: ib.fit(many), 1)}
    found["memory of the whole process by then, GiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    M = ib.fit(ib.SO(3).sample(SAMPLES, generator=g, dtype=torch.float64))
    x = ib.SO(3).sample(10_000, generator=g, dtype=torch.float64)
    x = x + 0.1 * torch.randn(x.shape, generator=g, dtype=torch.float64)
    M.project(x)
    found["project 10,000 points of SO(3)"] = timed(lambda: M.project(x))
    frames = ib.SE(3).sample(SAMPLES, generator=g, dtype=torch.float64)
    found["fit 4,000 frames of SE(3)"] = timed(lambda: ib.fit(frames))
    return {k: round(v, 3) for k, v in found.items()}


def local_speed() -> dict:
    """CPU seconds, the least of three, in which `local` projects 10,000 points: a surface in R^3, and SO(3) in R^9."""
    g, found = torch.Generator().manual_seed(7), {}
    rotations = lambda n, g: ib.SO(3).sample(n, generator=g, dtype=torch.float64).flatten(1)  # noqa: E731
    for name, draw, dim, neighbours, degree in (("torus", torus, 2, 45, 4), ("SO(3)", rotations, 3, 100, 2)):
        x, y = draw(SAMPLES, g), draw(10_000, g)
        M = Local.fit(x, (x.shape[1],), dim, neighbours, degree)
        y = y + 0.1 * torch.randn(y.shape, generator=g, dtype=torch.float64)
        M.project(y[:100])
        found[name] = round(timed(lambda M=M, y=y: M.project(y), clock=time.process_time), 2)
    return {**head("python benchmarks/learned.py --local"), "seconds": found}


def timed(work: Callable[[], object], times: int = 3, clock: Callable[[], float] = time.perf_counter) -> float:
    spent = []
    for _ in range(times):
        start = clock()
        work()
        spent.append(clock() - start)
    return min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--out", default="results/learned.json")
    parser.add_argument("--local", action="store_true", help="only how fast local projects; the rest of the file stays")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.local:
        about = json.loads(Path(args.out).read_text()) | {"local": local_speed()}
        print(about["local"])
        Path(args.out).write_text(json.dumps(about, indent=1) + "\n")
        return
    fast = speed()
    for what, value in fast.items():
        print(f"{what}: {value}", flush=True)
    rows = []
    for c in CASES:
        for seed in SEEDS:
            r = examine(c, seed)
            rows.append(r)
            errors = "  ".join(f"{m:.1e}/{v:.1e}" for m, v in zip(r["mse"], r["violation"], strict=True))
            verdict = "met" if r["met"] else f"MISSED (mse {c.mse:g}, violation {c.off:g}, derivative {c.derivative:g} and 1e-6)"
            off = f"derivative {r['jacobian']:.1e}, own {r['own_jacobian']:.1e}"
            print(f"{c.name:22} {errors}  {off}  {r['seconds']:5.1f} s  {verdict}", flush=True)
    about = {
        **head("python benchmarks/learned.py"),
        "sigmas": SIGMAS,
        "rows": rows,
        "speed": fast,
        "local": local_speed(),
    }
    Path(args.out).write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
