"""Regions that are not convex: `ib.fit` against the nearest sample, the convex hull and a learned autoencoder, in one table.

The sets are of the seven kinds that the autoencoder's authors use (blob with a bite, star, two moons, concentric circles, shells
in 3, 5 and 10 dimensions), an L-shape and a ring sector. All methods see the same 2,000 samples; the autoencoder sees as many
infeasible points, too, and asks an oracle in training. Points to be projected are new samples plus noise of 0.2 sizes of the set.
Told are the share of results outside of the true set (farther than 1e-6 of its size), the root mean square distance from the
true projection, and seconds of CPU to fit and to project 1,000 points. `ib.fit` is told with 200 and 8,000 samples, too: its
error should fall. Writes results/regions.json; `--table` prints the table of the docs from it. `--methods` makes the rows of some
methods anew and keeps the others: an autoencoder takes a minute or more for every set, and does not depend on our code. Every row
tells the commit that made it.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import fab
import torch
from torch import Tensor
from torch.nn import functional as F
from truth_sets import Map, Truth, filled, make, normal, sector, uniform

import inbounds as ib
from inbounds.learned import Hull
from inbounds.records import head

N, POINTS, SIGMA, OUTSIDE = 2_000, 1_000, 0.2, 1e-6
OTHERS = (200, 8_000)


def bitten(x: Tensor) -> Tensor:
    """The nearest point of the disk of radius 2 without the disk of radius 1 around (1, 0)."""
    c = torch.tensor([1.0, 0.0], dtype=x.dtype)
    y = x * (2 / x.norm(dim=1, keepdim=True)).clamp(max=1)
    bite = (y - c).norm(dim=1, keepdim=True)
    return torch.where((bite < 1) & (y == x).all(1, keepdim=True), c + F.normalize(y - c, dim=1), y)


def shell(d: int) -> Truth:
    """1 <= |x| <= 2 in R^d."""

    def draw(n: int, g: torch.Generator) -> Tensor:
        r = (1 + uniform(n, 1, g) * (2.0**d - 1)) ** (1 / d)
        return r * F.normalize(normal(n, d, g), dim=1)

    return Truth(draw, lambda x: F.normalize(x, dim=1) * x.norm(dim=1, keepdim=True).clamp(1, 2), d, 1.0)


def sets() -> dict[str, Truth]:
    """All sets by name."""
    known = make()
    rings = filled(sector(1.0, 2.0, math.pi), (-2.0, -2.0), (2.0, 2.0))
    return {
        "blob with a bite": filled(bitten, (-2.0, -2.0), (2.0, 2.0)),
        "star": known["star"],
        "two moons": known["two moons"],
        "concentric circles": rings,
        **{f"shell in {d} dimensions": shell(d) for d in (3, 5, 10)},
        "L-shape": known["L-shape"],
        "ring sector": known["ring sector"],
    }


def infeasible(x: Tensor, exact: Map, g: torch.Generator) -> Tensor:
    """As many points outside as samples: half of them samples with noise of 0.3 sizes, half anywhere in a box around them."""
    low, high = x.amin(0), x.amax(0)
    reach, found = (high - low) / 4, []
    while sum(map(len, found)) < len(x):
        near = x + 0.3 * spread(x) / math.sqrt(x.shape[1]) * normal(*x.shape, g)
        box = low - reach + (high - low + 2 * reach) * uniform(*x.shape, g)
        found += [p[(exact(p) - p).norm(dim=1) > 0] for p in (near[: len(x) // 2], box[: len(x) // 2])]
    return torch.cat(found)[torch.randperm(sum(map(len, found)), generator=g)[: len(x)]]


def spread(x: Tensor) -> float:
    """Root mean square distance from the mean: the size of a set."""
    return float((x - x.mean(0)).square().sum(1).mean().sqrt())


def timed(work: Callable):
    """What it gives, and its seconds of CPU."""
    start = time.process_time()
    return work(), round(time.process_time() - start, 3)


def measured(name: str, build: Callable, y: Tensor, truth: Truth, size: float) -> dict:
    """A row: the method fitted, applied, and compared with the truth."""
    M, fitting = timed(build)
    with torch.no_grad():
        p, projecting = timed(lambda: M(y))
    off = (truth.exact(p) - p).norm(dim=1)
    row = {"method": name, "infeasible": float((off > OUTSIDE * size).double().mean()), "farthest": float(off.max()) / size}
    error = float((p - truth.exact(y)).square().sum(1).mean().sqrt()) / size
    return {**row, "error": error, "fit_seconds": fitting, "project_seconds": projecting}


def fitted(x: Tensor, said: dict) -> Callable:
    """`ib.fit`, and what it says."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        M = ib.fit(x)
    said |= {"chosen": M.info["title"], "warnings": [str(w.message) for w in caught if w.category is ib.FitWarning]}
    return M.project


def rows(name: str, truth: Truth, learned: bool) -> list[dict]:
    """The autoencoder, or every other method, on one set."""
    g = torch.Generator().manual_seed(7)
    x = truth.draw(N, g)
    size = spread(x)
    y = truth.draw(POINTS, g)
    y = y + SIGMA * size / math.sqrt(y.shape[1]) * normal(*y.shape, g)
    outside = infeasible(x, truth.exact, g)
    if learned:
        oracle = lambda p: (truth.exact(p) - p).norm(dim=1) <= OUTSIDE * size  # noqa: E731
        row = measured("autoencoder", lambda: fab.train(x, outside, oracle).project, y, truth, size)
        return [{"set": name, "samples": N, **row}]
    found = []
    for many in (N, *OTHERS):
        said: dict = {}
        samples = x if many == N else truth.draw(many, g)
        found.append({"samples": many, **measured("ib.fit", lambda s=samples, t=said: fitted(s, t), y, truth, size), **said})
    found.append({"samples": N, **measured("nearest sample", lambda: lambda y: x[torch.cdist(y, x).argmin(1)], y, truth, size)})
    if x.shape[1] <= 3:
        found.append({"samples": N, **measured("convex hull", lambda: Hull.fit(x).project, y, truth, size)})
    return [{"set": name, **row} for row in found]


def table(found: list[dict]) -> str:
    """Markdown: share of infeasible results, and error in sizes of the set."""
    methods = [("ib.fit", N), ("nearest sample", N), ("convex hull", N), ("autoencoder", N), *(("ib.fit", k) for k in OTHERS)]
    lines = [
        "| set | " + " | ".join(m if k == N else f"{m}, {k:,} samples" for m, k in methods) + " |",
        "|---" * (len(methods) + 1) + "|",
    ]
    for name in dict.fromkeys(r["set"] for r in found):
        own = {(r["method"], r["samples"]): r for r in found if r["set"] == name}
        cells = [f"{own[m]['infeasible']:.1%}, {own[m]['error']:.2g}" if m in own else "" for m in methods]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--table", action="store_true", help="only print the table of the stored rows")
    parser.add_argument("--methods", choices=("all", "autoencoder", "others"), default="all")
    parser.add_argument("--sets", help="names of sets, with commas between them; all without it")
    parser.add_argument("--out", default="results/regions.json")
    args = parser.parse_args()
    stored = json.loads(Path(args.out).read_text())["rows"] if Path(args.out).is_file() else []
    if args.table:
        print(table(stored))
        return
    torch.set_num_threads(1)
    about = head("python benchmarks/regions.py")
    found = {(r["set"], r["method"], r["samples"]): r for r in stored}
    kinds = {"all": (False, True), "autoencoder": (True,), "others": (False,)}[args.methods]  # the slow one last
    wanted = args.sets.split(",") if args.sets else list(sets())
    for learned, name in [(learned, name) for learned in kinds for name in wanted]:
        for row in rows(name, sets()[name], learned):
            found[row["set"], row["method"], row["samples"]] = row | {"commit": about["commit"][:7]}
        print(name, "autoencoder" if learned else "others", flush=True)
        Path(args.out).write_text(json.dumps({**about, "rows": list(found.values())}, indent=1) + "\n")
    print(table(list(found.values())))


if __name__ == "__main__":
    main()
