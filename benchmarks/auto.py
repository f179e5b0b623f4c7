"""Does `fit(samples)` choose well? Sets outside the paper, clean and noisy: its error against the best method by hindsight.

2,000 samples; held-out points corrupted by N(0, 0.1^2 I); MSE per coordinate against the exact projection by
formula or dense search. Methods: algebraic, local, heat. Errors below 1e-20 count as equal. Writes results/auto.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch
from scipy.spatial import cKDTree
from torch import Tensor
from torch.nn import functional as F

import inbounds as ib
from inbounds.records import head

SAMPLES, POINTS, SIGMA, FLOOR = 2_000, 400, 0.1, 1e-20
NOISES = (0.0, 0.001, 0.01)
METHODS = ("algebraic", "local", "heat")
Draw = Callable[[int, torch.Generator], Tensor]
TURN = 2 * math.pi


@dataclass
class Shape:
    draw: Draw
    exact: Callable[[Tensor], Tensor]
    support: str = "closure"


def uniform(n: int, k: int, g: torch.Generator) -> Tensor:
    return torch.rand(n, k, generator=g, dtype=torch.float64)


def known(M: ib.ConstraintSet, support: str = "closure") -> Shape:
    return Shape(lambda n, g: M.sample(n, generator=g, dtype=torch.float64), M.project, support)


def nearest(phi: Callable[[Tensor], Tensor], grid: Tensor, low: Tensor, high: Tensor) -> Callable[[Tensor], Tensor]:
    """Nearest points of phi's image, parameters in [low, high]: from the nearest of the grid, the best of three damped steps.

    A parameter that goes around has no bounds: one that stops at its seam would leave the foot half a grid step away.
    """
    net, size = cKDTree(torch.vmap(phi)(grid).numpy()), grid.shape[1]

    def half_square(u: Tensor, x: Tensor) -> Tensor:
        return 0.5 * (x - phi(u)).square().sum()

    value, gradient = torch.vmap(half_square), torch.vmap(torch.func.grad(half_square))
    hessian, jacobian = torch.vmap(torch.func.hessian(half_square)), torch.vmap(torch.func.jacfwd(phi))

    def exact(x: Tensor) -> Tensor:
        u = grid[torch.from_numpy(net.query(x.numpy())[1])]
        eye = torch.eye(size, dtype=torch.float64)
        for _ in range(30):
            g, J = gradient(u, x)[:, :, None], jacobian(u)
            gauss = J.mT @ J
            damp = 1e-9 * gauss.diagonal(dim1=1, dim2=2).amax(1)[:, None, None] * eye
            newton, plain = (torch.linalg.solve_ex(H + damp, g)[0][:, :, 0] for H in (hessian(u, x), gauss))
            tries = torch.stack([u, *((u - step).clamp(low, high) for step in (newton, plain, 0.3 * plain))])
            values = torch.stack([value(t, x) for t in tries]).nan_to_num(nan=math.inf)
            best, old = values.argmin(0), u
            u = tries[best, torch.arange(len(u))]
            if float((u - old).abs().max()) <= 1e-12:
                break
        return torch.vmap(phi)(u)

    return exact


def globe(phi: Callable[[Tensor], Tensor]) -> Shape:
    """phi of the unit sphere; parameters are vectors of any length, so that there are no poles."""
    i = torch.arange(40_000, dtype=torch.float64) + 0.5
    z, t = 1 - 2 * i / len(i), math.pi * (1 + math.sqrt(5)) * i
    grid = torch.stack([(1 - z * z).sqrt() * t.cos(), (1 - z * z).sqrt() * t.sin(), z], 1)

    def of_vector(v: Tensor) -> Tensor:
        return phi(v / v.square().sum().sqrt())

    return Shape(
        lambda n, g: torch.vmap(of_vector)(torch.randn(n, 3, generator=g, dtype=torch.float64)),
        nearest(of_vector, grid, torch.tensor(-math.inf), torch.tensor(math.inf)),
    )


def patch(phi: Callable[[Tensor], Tensor], low: float, high: float, axes: int, around: int = 0) -> Shape:
    """phi of a cube, whose first parameters go around."""
    line = torch.linspace(low, high, 40_000 if axes == 1 else 300, dtype=torch.float64)
    grid = torch.cartesian_prod(*[line] * axes).reshape(-1, axes)
    ends = torch.tensor([math.inf] * around + [1.0] * (axes - around), dtype=torch.float64)
    exact = nearest(phi, grid, torch.where(ends > 1, -ends, low), torch.where(ends > 1, ends, high))
    return Shape(lambda n, g: torch.vmap(phi)(low + (high - low) * uniform(n, axes, g)), exact)


def deformed(p: Tensor) -> Tensor:
    return p * (1 + 0.15 * torch.sin(2 * p[0] + p[1]) + 0.1 * torch.cos(3 * p[2]))


def swiss(u: Tensor) -> Tensor:
    t = 4 + 8 * u[0]
    return torch.stack([t * t.cos() / 10, u[1], t * t.sin() / 10])


def helix(u: Tensor) -> Tensor:
    return torch.stack([u[0].cos(), u[0].sin(), u[0] / 4])


def ellipsoid(p: Tensor) -> Tensor:
    return p * torch.tensor([1.0, 0.7, 0.5], dtype=torch.float64)


def torus(n: int, g: torch.Generator) -> Tensor:
    a, b = (TURN * uniform(n, 2, g)).unbind(1)
    return torch.stack([(1 + 0.4 * b.cos()) * a.cos(), (1 + 0.4 * b.cos()) * a.sin(), 0.4 * b.sin()], 1)


def on_torus(x: Tensor) -> Tensor:
    ring = F.pad(F.normalize(x[:, :2], dim=1), (0, 1))
    return ring + 0.4 * F.normalize(x - ring, dim=1)


def clifford(x: Tensor) -> Tensor:
    return torch.cat([F.normalize(x[:, :2], dim=1), F.normalize(x[:, 2:], dim=1)], 1) / math.sqrt(2)


def projective(x: Tensor) -> Tensor:
    """Nearest v v^T, |v| = 1: the top eigenvector."""
    A = x.unflatten(1, (4, 4))
    v = torch.linalg.eigh(0.5 * (A + A.mT))[1][:, :, -1]
    return (v[:, :, None] * v[:, None, :]).flatten(1)


def lines(n: int, g: torch.Generator) -> Tensor:
    t = 2 * uniform(n, 1, g) - 1
    return torch.cat([t.clamp(min=0), (-t).clamp(min=0)], 1)


def on_lines(x: Tensor) -> Tensor:
    """The corner {(t, 0), (0, t) : 0 <= t <= 1}."""
    a = F.pad(x[:, :1].clamp(0, 1), (0, 1))
    b = F.pad(x[:, 1:].clamp(0, 1), (1, 0))
    nearer = (x - a).square().sum(1) <= (x - b).square().sum(1)
    return torch.where(nearer[:, None], a, b)


def annulus(n: int, g: torch.Generator) -> Tensor:
    r, t = (0.25 + 0.75 * uniform(n, 1, g)).sqrt(), TURN * uniform(n, 1, g)
    return torch.cat([r * t.cos(), r * t.sin()], 1)


def on_annulus(x: Tensor) -> Tensor:
    return F.normalize(x, dim=1) * torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp(0.5, 1)


def cap(n: int, g: torch.Generator) -> Tensor:
    t, z = TURN * uniform(n, 1, g), 0.5 + 0.5 * uniform(n, 1, g)
    r = (1 - z * z).sqrt()
    return torch.cat([r * t.cos(), r * t.sin(), z], 1)


def rows_of(M: ib.ConstraintSet) -> Shape:
    """Matrices as flat rows."""
    return Shape(
        lambda n, g: M.sample(n, generator=g, dtype=torch.float64).flatten(1),
        lambda x: M.project(x.unflatten(1, M.shape)).flatten(1),
    )


def veronese(n: int, g: torch.Generator) -> Tensor:
    v = F.normalize(torch.randn(n, 4, generator=g, dtype=torch.float64), dim=1)
    return (v[:, :, None] * v[:, None, :]).flatten(1)


SHAPES: dict[str, Shape] = {
    "torus": Shape(torus, on_torus),
    "ellipsoid": globe(ellipsoid),
    "Stiefel(5, 2)": rows_of(ib.Stiefel(5, 2)),
    "SO(4)": rows_of(ib.SO(4)),
    "projective space in R^16": Shape(veronese, projective),
    "Clifford torus": Shape(lambda n, g: clifford(torch.randn(n, 4, generator=g, dtype=torch.float64)), clifford),
    "helix": patch(helix, -6.0, 6.0, 1),
    "swiss roll": patch(swiss, 0.0, 1.0, 2),
    "deformed sphere": globe(deformed),
    "annulus": Shape(annulus, on_annulus),
    "square": known(ib.Box([-1.0, -1.0], [1.0, 1.0])),
    "ball": known(ib.Ball(3)),
    "spherical cap": Shape(
        cap, ib.SphereMinusCaps(torch.tensor([[0.0, 0.0, -1.0]]), torch.tensor([TURN / 3])).project, "sampled"
    ),
    "corner": Shape(lines, on_lines),
}


def examine(name: str, noise: float, seed: int) -> dict:
    torch.set_num_threads(1)
    s, g = SHAPES[name], torch.Generator().manual_seed(seed)
    x = s.draw(SAMPLES, g)
    x = x + noise * torch.randn(x.shape, generator=g, dtype=torch.float64)
    y = s.draw(POINTS, g)
    y = y + SIGMA * torch.randn(y.shape, generator=g, dtype=torch.float64)
    p, errors, found = s.exact(y), {}, {}
    start = time.perf_counter()
    for method in ("auto", *METHODS):
        try:
            M = ib.fit(x, method, s.support)
        except ValueError:
            continue
        with torch.no_grad():
            errors[method] = float((M.project(y) - p).square().mean())
        found[method] = M.info["title"]
    best = min((m for m in METHODS if m in errors), key=lambda m: errors[m])
    ratio = max(errors["auto"], FLOOR) / max(errors[best], FLOOR)
    return {
        "set": name,
        "noise": noise,
        "seed": seed,
        "mse": errors,
        "best": best,
        "ratio": round(ratio, 3),
        "chosen": found["auto"],
        "seconds": round(time.perf_counter() - start, 1),
    }


def markdown(rows: list[dict]) -> str:
    lines = [
        "| set | sample noise | auto | algebraic | local | heat | auto / best | chosen |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        errors = " | ".join(f"{r['mse'][m]:.1e}" if m in r["mse"] else "none" for m in ("auto", *METHODS))
        lines.append(f"| {r['set']} | {r['noise']:g} | {errors} | {r['ratio']:.2f} | {r['chosen']} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--out", default="results/auto.json")
    parser.add_argument("--sets", help="only these, separated by semicolons; then nothing is written")
    parser.add_argument("--seed", type=int, default=301)
    args = parser.parse_args()
    names = args.sets.split(";") if args.sets else list(SHAPES)
    rows = []
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(examine, n, noise, args.seed) for n in names for noise in NOISES]
        for job in jobs:
            r = job.result()
            rows.append(r)
            errors = "  ".join(f"{m} {e:.1e}" for m, e in r["mse"].items())
            print(
                f"{r['set']:26} noise {r['noise']:5g}: {r['ratio']:8.2f}x of {r['best']}  ({errors}; {r['chosen']})", flush=True
            )
    good = sum(r["ratio"] <= 3 for r in rows)
    print(f"within 3x of the best method by hindsight: {good} of {len(rows)} ({good / len(rows):.0%})")
    about = {
        **head("python benchmarks/auto.py"),
        "within_3x": good,
        "rows": rows,
    }
    if not args.sets:
        Path(args.out).write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
