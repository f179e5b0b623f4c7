"""Sets from equations next to peer packages: forward + backward, one thread. `make bench-equations` runs it.

Times are of the processor, medians over rounds in which ours and the peers take turns; ratio = peer / ours at the same dtype, so
above 1 ours is faster. Violations are maxima over the batch, re-checked in float64, with the parameters in the dtype of the
input. The distance is to the projection found in float64 by `Polytope`, whose own error is bounded by a judge that knows nothing
of it: for a feasible y, |y - P(x)| is at most the distance of x - y from the cone of the normals at y, which scipy's nnls finds.
Gradients are compared with central differences. A target that is missed is printed as missed. Only a full run (no --quick) writes
results/equations.json.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import math
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import inbounds as ib

RESULTS = Path(__file__).parents[1] / "results" / "equations.json"
PEERS = ("qpth", "proxsuite", "cvxpylayers", "torch", "scipy")
Fn = Callable[[Tensor], Tensor]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@dataclass(frozen=True)
class Faces:
    """{A y <= b, E y = f} with points x to project; must: least ratio to each peer."""

    name: str
    A: Tensor
    b: Tensor
    E: Tensor
    f: Tensor
    x: Tensor
    must: dict[str, float]

    @classmethod
    def random(cls, name: str, n: int, m: int, p: int, batch: int, must: dict[str, float]) -> Faces:
        """Unit normals, an inner point 0.1 to 1.1 away from every face; x is noise of the size of the inner point's distance."""
        A, E, inner = draw(m, n, seed=1), draw(p, n, seed=2), 0.1 * draw(n, seed=3)
        A = A / A.norm(dim=1, keepdim=True)
        room = torch.rand(m, generator=torch.Generator().manual_seed(4), dtype=torch.float64) + 0.1
        return cls(name, A, A @ inner + room, E, E @ inner, draw(batch, n, seed=5), must)

    @classmethod
    def portfolio(cls, batch: int, must: dict[str, float]) -> Faces:
        """Twenty assets of at most 10 %, five sectors of at most 30 %."""
        n, eye = 20, torch.eye(20, dtype=torch.float64)
        sectors = torch.eye(5, dtype=torch.float64).repeat_interleave(4, 1)
        A = torch.cat([-eye, eye, sectors])
        b = torch.cat([torch.zeros(n), torch.full((n,), 0.1), torch.full((5,), 0.3)]).double()
        one = torch.ones(1, n, dtype=torch.float64)
        return cls(f"portfolio, batch {batch}", A, b, one, torch.ones(1, dtype=torch.float64), 0.3 * draw(batch, n, seed=5), must)

    def in_dtype(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        return tuple(t.to(dtype) for t in (self.A, self.b, self.E, self.f, self.x))


def ours(case: Faces, dtype: torch.dtype) -> Fn:
    A, b, E, f, _ = case.in_dtype(dtype)
    M = ib.Polytope(A, b, *((E, f) if len(E) else (None, None)))
    return M.project


def qpth(case: Faces, dtype: torch.dtype) -> Fn:
    from qpth.qp import QPFunction  # pyright: ignore[reportMissingImports]

    A, b, E, f, x = case.in_dtype(dtype)
    Q, none = torch.eye(x.shape[1], dtype=dtype), torch.empty(0, dtype=dtype)
    solve = QPFunction(verbose=-1, check_Q_spd=False)
    return lambda x: solve(Q, -x, A, b, E if len(E) else none, f if len(E) else none)


def proxsuite(case: Faces, dtype: torch.dtype) -> Fn:
    from proxsuite.torch.qplayer import QPFunction  # pyright: ignore[reportMissingImports]

    A, b, E, f, x = (t.double() for t in case.in_dtype(dtype))
    Q, low = torch.eye(x.shape[1], dtype=torch.float64), torch.full_like(b, -1e20)
    solve = QPFunction(structural_feasibility=True, omp_parallel=False)
    return lambda x: solve(Q, -x.double(), E, f, A, low, b)[0].to(dtype)


def cvxpylayers(case: Faces, dtype: torch.dtype) -> Fn:
    import cvxpy as cp  # pyright: ignore[reportMissingImports]
    from cvxpylayers.torch import CvxpyLayer  # pyright: ignore[reportMissingImports]

    A, b, E, f, x = (t.double().numpy() for t in case.in_dtype(dtype))
    y, p = cp.Variable(x.shape[1]), cp.Parameter(x.shape[1])
    rules = [A @ y <= b] + ([E @ y == f] if len(E) else [])
    layer = CvxpyLayer(cp.Problem(cp.Minimize(cp.sum_squares(y - p)), rules), parameters=[p], variables=[y])
    return lambda x: layer(x)[0]


def timed(f: Fn, x: Tensor) -> tuple[float, Tensor, Tensor]:
    x = x.clone().requires_grad_()
    start = time.process_time()
    y = f(x)
    (g,) = torch.autograd.grad(y, x, torch.ones_like(y))
    return 1e3 * (time.process_time() - start), y.detach(), g


def judged(case: Faces, y: Tensor, rows: int = 64) -> float:
    """A bound of |y - P(x)| / (1 + |x|) for feasible y, by nnls."""
    import numpy as np
    from scipy.optimize import nnls

    worst = 0.0
    size = case.A.norm(dim=1)
    for x, p in zip(case.x[:rows], y[:rows].double(), strict=True):
        near = (case.A @ p - case.b) / size >= -1e-10 * (1 + float(p.norm()))
        normals = torch.cat([(case.A / size[:, None])[near], case.E, -case.E]).mT.numpy()
        rest = nnls(normals, (x - p).numpy())[1] if normals.shape[1] else float(np.linalg.norm(x - p))
        worst = max(worst, rest / (1 + float(x.norm())))
    return worst


def gradient_error(f: Fn, x: Tensor, rows: int = 32) -> float:
    """The median over rows of |autograd - central differences| in a random direction, relative."""
    x = x[:rows].double()
    w, d, h = draw(*x.shape, seed=8), draw(*x.shape, seed=9), 1e-6
    z = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(f(z), z, w)
    flat = w.flatten(1)
    true = ((f(x + h * d) - f(x - h * d)).detach().flatten(1) * flat).sum(1) / (2 * h)
    return float((((g * d).flatten(1).sum(1) - true).abs() / (1 + true.abs())).median())


def compare(case: Faces, dtype: torch.dtype, rounds: int, slow: bool) -> dict:
    name = str(dtype).removeprefix("torch.")
    x = case.x.to(dtype)
    exact = ours(case, torch.float64)(x.double())
    ways: dict[str, Fn] = {"inbounds": ours(case, dtype)}
    for make in (qpth, proxsuite) + ((cvxpylayers,) if slow else ()):
        try:
            ways[make.__name__] = make(case, dtype)
            timed(ways[make.__name__], x[:2])
        except Exception as error:  # a peer that cannot be loaded or fails is shown as such
            ways.pop(make.__name__, None)
            print(f"  {make.__name__}: {type(error).__name__}: {str(error)[:90]}")
    times: dict[str, list[float]] = {k: [] for k in ways}
    last: dict[str, Tensor] = {}
    for turn in range(rounds + 1):
        for k, f in ways.items():
            t, last[k], _ = timed(f, x)
            if turn or rounds == 1:
                times[k].append(t)
    cast = [t.double() for t in case.in_dtype(dtype)]
    rows = {}
    for k, y in last.items():
        z = y.double()
        ms = statistics.median(times[k])
        rows[k] = {
            "ms": round(ms, 2),
            "violation": float((z @ cast[0].mT - cast[1]).max()),
            "equalities": float((z @ cast[2].mT - cast[3]).abs().max()) if len(case.E) else 0.0,
            "distance": float(((z - exact).norm(dim=1) / (1 + x.double().norm(dim=1))).max()),
            "ratio": round(ms / statistics.median(times["inbounds"]), 2),
        }
    print(f"{case.name}, {name}")
    for k, r in rows.items():
        print(f"  {k:12} {r['ms']:9.1f} ms  x{r['ratio']:<7} violation {r['violation']:+.1e}  distance {r['distance']:.1e}")
    missed = [f"{k}: x{rows[k]['ratio']} of x{must:g}" for k, must in case.must.items() if k in rows and rows[k]["ratio"] < must]
    if rows["inbounds"]["violation"] > 0:
        missed.append("violation above 0")
    for m in missed:
        print(f"  MISSED {m}")
    bound = judged(case, exact)
    error = gradient_error(ours(case, torch.float64), case.x)
    print(f"  judge: float64 within {bound:.1e} of the projection; gradients within {error:.1e}")
    return {"case": case.name, "dtype": name, "rows": rows, "missed": missed, "judge": bound, "gradient": error}


# --- sets given by functions -------------------------------------------------------------------------------------------
def hand(q: Tensor) -> Tensor:
    a = q.cumsum(0)
    return torch.stack([a.cos().sum(), a.sin().sum()])


def implicit_cases() -> dict[str, tuple[dict, int, float]]:
    """Functions, size of a point, spread of x."""
    axes, goal2, goal6 = (torch.tensor(v, dtype=torch.float64) for v in ([1.0, 4.0, 9.0], [1.2, 0.5], [2.0, 3.0]))
    return {
        "disk": ({"ineq": lambda p: p @ p - 1}, 2, 1.5),
        "outside a ball": ({"ineq": lambda p: 1 - p @ p}, 3, 1.0),
        "sphere": ({"eq": lambda p: p @ p - 1}, 3, 1.5),
        "torus": ({"eq": lambda p: ((p[:2] @ p[:2]).sqrt() - 2) ** 2 + p[2] ** 2 - 0.25}, 3, 1.5),
        "ellipsoid and half-space": ({"ineq": lambda p: torch.stack([(p * p / axes.to(p)).sum() - 1, p.sum() - 1])}, 3, 2.0),
        "2-link arm": ({"eq": lambda q: hand(q) - goal2.to(q), "ineq": lambda q: torch.cat([q - 2.5, -2.5 - q])}, 2, 1.0),
        "6-link arm, near": ({"eq": lambda q: hand(q) - goal6.to(q), "ineq": lambda q: torch.cat([q - 2, -2 - q])}, 6, 0.5),
    }


def implicit(batch: int, restarts: tuple[int, ...]) -> list[dict]:
    out = []
    for name, (functions, n, spread) in implicit_cases().items():
        x = spread * draw(batch, n, seed=6) + (0.5 if "arm" in name else 0.0)
        best: Tensor | None = None
        rows = {}
        for r in sorted(restarts, reverse=True):
            M = ib.Implicit(n, **functions, restarts=r, on_fail="best")
            start = time.process_time()
            s = M.solve(x)
            ms = 1e3 * (time.process_time() - start)
            distance = torch.where(s.status == 0, (s.point - x).norm(dim=1), math.inf)
            best = distance if best is None else torch.minimum(best, distance)
            rows[r] = {
                "ms": round(ms, 1),
                "ok": int((s.status == 0).sum()),
                "distance": distance,
                "violation": float(s.violation[s.ok].max()),
            }
        assert best is not None
        for r in rows.values():
            d = r.pop("distance")
            r["nearest"] = round(float((d <= best * (1 + 1e-6) + 1e-9).double().mean()), 4)
        M = ib.Implicit(n, **functions, on_fail="best")
        error = gradient_error(M.project, x[M.solve(x).status == 0])
        print(f"{name}, batch {batch}: gradients within {error:.1e}")
        for r, row in sorted(rows.items()):
            share = f"nearest {100 * row['nearest']:.1f} %"
            print(f"  restarts {r:2}: {row['ms']:8.1f} ms, ok {row['ok']}, violation {row['violation']:+.1e}, {share}")
        out.append({"case": name, "batch": batch, "restarts": {str(k): v for k, v in sorted(rows.items())}, "gradient": error})
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="small batches, one round, nothing written")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skip-implicit", action="store_true")
    parser.add_argument("--implicit-batch", type=int, default=256)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    small = {"qpth": 8.0, "proxsuite": 5.0, "cvxpylayers": 50.0}
    cases = [
        Faces.random("10 variables, 30 faces, batch 256", 10, 30, 0, 256, small),
        Faces.random(
            "DC3's size: 100 variables, 50 equations, 50 faces, batch 256", 100, 50, 50, 256, {"qpth": 40.0, "proxsuite": 20.0}
        ),
        Faces.portfolio(256, {}),
        Faces.random("10 variables, 30 faces, batch 4096", 10, 30, 0, 4096, {"qpth": 20.0, "proxsuite": 12.0}),
        Faces.portfolio(4096, {}),
    ]
    results = []
    for case in cases[:1] if args.quick else cases:
        for dtype in (torch.float64, torch.float32):
            results.append(compare(case, dtype, 1 if args.quick else args.rounds, slow=len(case.x) <= 256 and len(case.E) == 0))
    if not args.quick:
        write(results, [])  # the rest takes longer
    if not args.skip_implicit:
        curved = implicit(16 if args.quick else args.implicit_batch, (0, 4) if args.quick else (0, 4, 16))
        if not args.quick:
            write(results, curved)


def write(polytopes: list[dict], curved: list[dict]) -> None:
    versions = {}
    for p in PEERS:
        try:
            versions[p] = importlib.metadata.version(p)
        except importlib.metadata.PackageNotFoundError:
            versions[p] = "not installed"
    record = {
        "date": datetime.date.today().isoformat(),
        "machine": platform.processor() or platform.machine(),
        "versions": versions,
    }
    RESULTS.write_text(json.dumps(record | {"polytopes": polytopes, "implicit": curved}, indent=1) + "\n")
    print(f"written to {RESULTS.name}")


if __name__ == "__main__":
    main()
