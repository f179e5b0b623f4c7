"""Noise projected on every set of the library: how far outside it was, how far outside it is, and what that costs."""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from ..core import ConstraintSet
from ..records import machine, tiny, writable
from ..sets.solved import SolvedSet
from .exhibits import EXHIBITS, Exhibit
from .pictures import Plate, draw_overview, draw_plate

REPEATS = 9  # timings, of which the median is shown
PATIENCE = 1_000  # points of sets that a solver projects on: a thousand times as dear as a formula


def run(args) -> int:
    """`inbounds gallery`. Returns the exit code."""
    try:
        exhibits, out = choose(args.sets), writable(Path(args.out))
    except (ValueError, OSError) as error:
        print(f"inbounds gallery: {error}", file=sys.stderr)
        return 2
    console = Console(width=None if sys.stdout.isatty() else 140)
    rows, plates = [], []
    for e in track(exhibits, "projecting", console=console, transient=True, disable=not console.is_terminal):
        row, plate = examine(e, args.points, args.seed)
        draw_plate(plate, out / row["picture"])
        rows.append(row)
        plates.append(plate)
    draw_overview(plates, out / "overview.png")
    write_json(rows, args, out / "gallery.json")
    console.print(table(rows, args.points))
    return conclude(rows, args.points, out, console)


def choose(names: str | None) -> list[Exhibit]:
    """Exhibits called by name or by class, whatever the case and the punctuation."""
    if names is None:
        return EXHIBITS
    wanted = [plain(n) for n in names.split(",")]
    for n, given in zip(wanted, names.split(","), strict=True):
        if not any(n in known(e) for e in EXHIBITS):
            raise ValueError(f"no set called {given!r}. Choose from: {', '.join(e.name for e in EXHIBITS)}.")
    return [e for e in EXHIBITS if known(e) & set(wanted)]


def known(e: Exhibit) -> set[str]:
    """The names by which --sets finds an exhibit."""
    return {plain(e.name), plain(e.kind.__name__), plain(e.text)}


def plain(name: str) -> str:
    """A name without case, spaces and signs."""
    return "".join(c for c in name.lower() if c.isalnum())


def examine(e: Exhibit, points: int, seed: int) -> tuple[dict, Plate]:
    """Project noise on an exhibit's set: the row of the table, and what the picture shows."""
    M = e.kind(*e.args)
    points = min(points, PATIENCE) if isinstance(M, SolvedSet) else points
    noise = torch.randn(points, *M.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x = torch.as_tensor(e.center, dtype=torch.float64) + e.sigma * noise
    p, single = M.project(x), M.project(x.float())
    row = {
        "name": e.name,
        "set": e.text,
        "label": e.label,
        "shape": list(M.shape),
        "reach": M.reach if M.reach is None or math.isfinite(M.reach) else str(M.reach),
        "sigma": e.sigma,
        "points": points,
        "before_mean": float(M.violation(x).mean()),
        "after_max_float32": float(M.violation(single).max()),
        "after_max_float64": float(M.violation(p).max()),
        "inside": bool(M.contains(p).all() and M.contains(single).all()),
        **cost(M, x.float()),
        "picture": f"{e.name}.png",
    }
    return row, Plate(e.picture, e.text, e.label, caption(row, points), x, p)


def caption(row: dict, points: int) -> str:
    """What was measured, in a line below the picture."""
    after = f"{tiny(row['after_max_float32'])} float32, {tiny(row['after_max_float64'])} float64"
    return f"violation: {row['before_mean']:.2f} before (mean) \u2192 {after} after (largest of {points:,})"


def cost(M: ConstraintSet, x: Tensor) -> dict[str, float]:
    """Microseconds per point on one thread."""
    leaf = x.clone().requires_grad_()
    ones = torch.ones_like(x)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {
            "project_us": micros(lambda: M.project(x)) / len(x),
            "forward_backward_us": micros(lambda: torch.autograd.grad(M.project(leaf), leaf, ones)) / len(x),
        }
    finally:
        torch.set_num_threads(threads)


def micros(work: Callable[[], object]) -> float:
    """Median of several runs after one to warm up."""
    times = []
    for _ in range(1 + REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times[1:])


def table(rows: list[dict], points: int) -> Table:
    """The table that is printed."""
    count = f"{points:,} points of noise on each set (at most {PATIENCE:,} where a solver projects)"
    words = f"{count}: violation before (mean) and after projection (max); microseconds per point"
    t = Table(title=words, box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    t.add_column("set")
    for head in ("shape", "reach", "before", "after\nfloat32", "after\nfloat64", "project\nus", "+ backward\nus"):
        t.add_column(head, justify="right", no_wrap=True)
    for r in rows:
        reach = r["reach"] if isinstance(r["reach"], str) else "unknown" if r["reach"] is None else f"{r['reach']:.3f}"
        after = [tiny(r[k]) for k in ("after_max_float32", "after_max_float64")]
        costs = [f"{r[k]:.3f}" for k in ("project_us", "forward_backward_us")]
        t.add_row(r["label"], "x".join(map(str, r["shape"])), reach, f"{r['before_mean']:.3f}", *after, *costs)
    return t


def conclude(rows: list[dict], points: int, out: Path, console: Console) -> int:
    """Print the verdict and where the files are. Returns the exit code, 1 if a point is outside."""
    outside = [r["label"] for r in rows if not r["inside"]]
    found = (
        f"NOT inside up to rounding: {', '.join(outside)}" if outside else "every projected point is in its set up to rounding"
    )
    count = f"{len(rows)} sets, {points:,} points each, at most {PATIENCE:,} where a solver projects"
    text = f"{count}: {found}. Pictures: {out / 'overview.png'} and one per set beside it."
    console.print(text, highlight=False, soft_wrap=True)
    return 1 if outside else 0


def write_json(rows: list[dict], args, path: Path) -> None:
    """Write what was measured, with the command and the machine."""
    options = {"points": args.points, "seed": args.seed, "timing": f"float32, one thread, median of {REPEATS}"}
    record = {
        "command": args.line,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        **options,
        "rows": rows,
    }
    path.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
