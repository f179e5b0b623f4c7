"""Which constants matter: every number that planning and the solvers are steered by, halved, as it is and doubled.

The workloads are small: planning in random worlds, in the plane and on the sphere; nearest points on implicit sets, polytopes,
correlation matrices and intersections. A row says how the CPU time changes (the least of two runs, next to those of the constants
as they are, taken before and after), how many rows fail, and how far answers move. `python benchmarks/constants.py` goes on where
it was stopped, and measures again what another commit left; `--only planning` takes the files whose path contains the word.
Constants that only order rounding or bound memory change nothing here; that is what their comments say. Writes
results/constants.json.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

import inbounds as ib
from inbounds import planning as pl
from inbounds.records import head

RESULTS = Path(__file__).parents[1] / "results" / "constants.json"
ROOT = Path(ib.__file__).parent
ROOMS = {"planning": "planning", "solvers": "solvers", "sets/convex_affine.py": "solvers", "sets/ellipsoid.py": "solvers"}
DISPLAY = ("planning/picture.py", "planning/drawing.py", "planning/command.py", "planning/random_worlds.py")  # steer no answer
Answer = tuple[int, Tensor]  # rows that fail, and numbers that say what was found


@dataclass(frozen=True)
class Constant:
    """A number, or a tuple of numbers, at the top of a file."""

    file: str
    name: str

    @property
    def module(self) -> str:
        return "inbounds." + self.file.removesuffix(".py").replace("/", ".")

    @property
    def value(self) -> object:
        return getattr(importlib.import_module(self.module), self.name)

    def set(self, value: object) -> None:
        """In its own module, and in every one that has imported the name from it."""
        for module in [sys.modules[self.module], *importers(self.module, self.name)]:
            setattr(module, self.name, value)


@cache
def imported() -> dict[tuple[str, str], list]:
    """(module, name) -> the modules of the package with `from module import name`."""
    found: dict[tuple[str, str], list] = {}
    for key, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not key.startswith("inbounds") or not file:
            continue
        package = key if file.endswith("__init__.py") else key.rpartition(".")[0]
        for node in ast.walk(ast.parse(Path(file).read_text())):
            if isinstance(node, ast.ImportFrom):
                above = package.rsplit(".", node.level - 1)[0] if node.level else ""
                source = ".".join(filter(None, (above, node.module)))
                for alias in node.names:
                    found.setdefault((source, alias.name), []).append(module)
    return found


def importers(module: str, name: str) -> list:
    """The modules that hold this name because they imported it, also by way of the package that re-exports it."""
    known = imported()
    return known.get((module, name), []) + known.get((module.rpartition(".")[0], name), [])


def constants() -> list[Constant]:
    """Capital names of the rooms that hold numbers, in the order of the files."""
    found = []
    for file in sorted(ROOT.rglob("*.py")):
        path = str(file.relative_to(ROOT))
        if path in DISPLAY or not any(path.startswith(room) for room in ROOMS):
            continue
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
                constant = Constant(path, node.targets[0].id)
                if scaled(constant.value, 1.0) is not None:
                    found.append(constant)
    return found


def scaled(value: object, factor: float) -> object:
    """The number times the factor, a whole number as a whole number of at least 1; None for what is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float | tuple):
        return None
    if isinstance(value, tuple):
        parts = tuple(scaled(v, factor) for v in value)
        return None if None in parts or not parts else parts
    return max(1, round(value * factor)) if isinstance(value, int) else value * factor


# --- the workloads -------------------------------------------------------------------------------------------------
def planning() -> Callable[[], Answer]:
    """Unseen and crowded worlds and spheres: the network's paths, shortest lengths and paths, and paths pulled tight."""
    cases, net = [], pl.load_sides()
    for worlds in (pl.random_worlds(40, seed=1), pl.random_worlds(12, (9, 14), seed=2), pl.random_caps(20, seed=3)):
        g = torch.Generator().manual_seed(4)
        cases.append((worlds, worlds.sample(generator=g), worlds.sample(generator=g)))
    one = pl.random_worlds(1, (12, 12), seed=5)[0]
    g = torch.Generator().manual_seed(6)
    x, y = one.sample(15, generator=g), one.sample(15, generator=g)

    def run() -> Answer:
        lost, numbers = 0, []
        for worlds, a, b in cases:
            path, shortest = pl.Around(worlds, net).plan(a, b), pl.ShortestPaths(worlds).distance(a, b)
            lost += int((~path.certified & torch.isfinite(shortest)).sum()) + int((path.clearance < 0).any(-1).sum())
            numbers += [shortest, torch.where(path.certified, pl.pull_tight(worlds, path).length, 0.0)]
        exact = pl.Exact(one).plan(x, y)
        road = pl.Roadmap(one, 100).plan(x, y)
        lost += int((~exact.certified).sum()) + int((~road.certified).sum())
        numbers += [torch.where(p.certified, p.length, 0.0) for p in (exact, road)]
        return lost, torch.cat(numbers).nan_to_num(posinf=0.0)

    return run


def solvers() -> Callable[[], Answer]:
    """One and several equations and inequalities, arms with and without limits, polytopes with degenerate faces, and others."""

    def torus(x: Tensor) -> Tensor:
        return ((x[..., :2].norm(dim=-1) - 2) ** 2 + x[..., 2] ** 2 - 0.25)[..., None]

    def arm(q: Tensor) -> Tensor:
        angles = q.cumsum(0)
        return torch.stack([angles.cos().sum() - 2, angles.sin().sum() - 1])

    g = torch.Generator().manual_seed(0)
    nearly = torch.randn(3, 5, generator=g).repeat(4, 1) + 1e-7 * torch.randn(12, 5, generator=g)
    cube = torch.cat([torch.eye(4), -torch.eye(4)])
    sets = [
        (ib.Implicit((3,), eq=torus, on_fail="best"), 3.0, 60),
        (ib.Implicit((3,), eq=torus, ineq=lambda x: x[..., :1] + x[..., 1:2], on_fail="best"), 3.0, 60),
        (
            ib.Implicit((4,), ineq=lambda x: torch.stack([x.square().sum(-1) - 1, -x[..., 0] * x[..., 1]], -1), on_fail="best"),
            2.0,
            60,
        ),
        (ib.Polytope(torch.randn(20, 6, generator=g), torch.rand(20, generator=g) + 0.1), 3.0, 100),
        (ib.Polytope(torch.cat([cube, cube, torch.ones(1, 4)]), torch.ones(17)), 3.0, 60),
        (ib.Polytope(nearly, torch.ones(12), on_fail="best"), 5.0, 60),
        (ib.Implicit((6,), eq=arm, on_fail="best"), 2.0, 24),
        (ib.Implicit((4,), eq=arm, ineq=lambda q: q.abs() - 1.5, on_fail="best"), 2.0, 10),
        (ib.Correlation(8), 100.0, 20),
        (ib.Ellipsoid([1.0, 2.0, 30.0]), 40.0, 100),
        (ib.Intersection(ib.Ball(3), ib.Affine([[1.0, 1.0, 1.0]], [0.5])), 3.0, 60),
    ]
    points = [scale * torch.randn(rows, *M.shape, generator=g, dtype=torch.float64) for M, scale, rows in sets]

    def run() -> Answer:
        lost, numbers = 0, []
        for (M, _, _), x in zip(sets, points, strict=True):
            answer = M.solve(x) if hasattr(M, "solve") else None
            y = M.project(x) if answer is None else answer.point
            lost += 0 if answer is None else int((answer.status != 0).sum())
            lost += int((~(M.violation(y) <= 1e-7)).sum())
            numbers.append((x - y).flatten(1).norm(dim=1).nan_to_num())
        return lost, torch.cat(numbers)

    return run


def measured(run: Callable[[], Answer]) -> tuple[float, int, Tensor]:
    """CPU seconds, the least of two runs; rows that fail; the numbers."""
    seconds, lost, numbers = [], 0, torch.zeros(0)
    for _ in range(2):
        start = time.process_time()
        lost, numbers = run()
        seconds.append(time.process_time() - start)
    return min(seconds), lost, numbers


def row(constant: Constant, run: Callable[[], Answer]) -> dict:
    """Halved, as it is, doubled, and as it is again. A value with which nothing works at all says why."""
    own, found, before = constant.value, {}, measured(run)
    for word, factor in (("halved", 0.5), ("doubled", 2.0)):
        constant.set(scaled(own, factor))
        try:
            found[word] = measured(run)
        except Exception as error:  # a sweep goes on: what a value breaks is its result
            found[word] = f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
        finally:
            constant.set(own)
    after = measured(run)
    base = min(before[0], after[0])
    told: dict = {"constant": f"{constant.file} {constant.name}", "value": own, "failures": before[1]}
    for word, result in found.items():
        if isinstance(result, str):
            told[word] = {"error": result}
            continue
        moved = (result[2] - before[2]).abs() / (1 + before[2].abs())
        told[word] = {"time": round(result[0] / base, 3), "failures": result[1], "moved": float(f"{float(moved.max()):.1e}")}
    told["matters"] = any(matters(told[word], told["failures"], 1 + 2 * abs(before[0] - after[0]) / base) for word in found)
    return told


def matters(found: dict, failures: int, noise: float) -> bool:
    """A change of failures, of an answer by more than a millionth, or of the time by a fifth beyond the noise of this row."""
    if "error" in found or found["failures"] != failures or found["moved"] > 1e-6:
        return True
    return not 1 / (1.2 * noise) <= found["time"] <= 1.2 * noise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", default="", metavar="WORD", help="files whose path contains this")
    parser.add_argument("--again", action="store_true", help="also what this commit has measured already")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    about = head("python benchmarks/constants.py")
    rows = {r["constant"]: r for r in json.loads(RESULTS.read_text())["rows"]} if RESULTS.exists() else {}
    load: dict[str, Callable[[], Answer]] = {}
    for constant in constants():
        title = f"{constant.file} {constant.name}"
        if args.only not in constant.file or (not args.again and rows.get(title, {}).get("commit") == about["commit"]):
            continue
        room = next(ROOMS[r] for r in ROOMS if constant.file.startswith(r))
        if room not in load:
            load[room] = {"planning": planning, "solvers": solvers}[room]()
            load[room]()
        rows[title] = row(constant, load[room]) | {"commit": about["commit"]}
        print(json.dumps(rows[title]), flush=True)
        RESULTS.write_text(json.dumps({**about, "rows": list(rows.values())}, indent=1) + "\n")
    idle = [title for title, found in rows.items() if not found["matters"]]
    print(f"{len(rows)} constants, {len(rows) - len(idle)} of which matter on these workloads")


if __name__ == "__main__":
    main()
