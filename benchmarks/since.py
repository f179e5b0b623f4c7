"""Is a row slower than it was? This revision and an earlier one take turns in one run.

`python benchmarks/since.py --base REV` unpacks REV into a temporary folder and starts two processes, one for each revision. Every
round measures each row in both (CPU time of one thread, forward + backward, the least of five), one right after the other and in
alternating order, so that a busy or throttled machine slows both. A row is the median over rounds of (time of REV) / (time now):
above 1 it became faster. The interval beside it holds the true median with a probability of at least 95 % (order statistics, no
assumption on the noise). A row is called slower only if its whole interval lies below 0.9, a loss of more than a tenth.
A full run (without --only) writes results/since.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

HERE = Path(__file__).parents[1]
RESULTS = HERE / "results" / "since.json"
LOSS = 0.9  # a row whose interval lies wholly below is slower
LEAST = 0.02  # CPU seconds of one of the five: 20,000 ticks of the clock, and tens of calls of the smallest rows
Run = Callable[[], object]


# --- the rows, made in the process of a revision ------------------------------------------------------------------


def geometry_rows(compiled: bool) -> dict[str, Callable[[], Run]]:
    """Ours of every case in geometry.py."""
    import geometry
    import torch

    def start(case: geometry.Case, batch: int, mode: str) -> Run:
        torch.manual_seed(0)
        fn = case.ours.make()
        return geometry.once(geometry.compiled(fn) if mode == "compiled" else fn, case.inputs(batch))[0]

    rows = {}
    for case in (make() for make in geometry.CASES):
        for mode, batches in (("eager", case.eager), ("compiled", case.compiled if compiled else ())):
            for batch in batches:
                rows[f"{case.name}, {batch}, {mode}"] = lambda c=case, b=batch, m=mode: start(c, b, m)
    return rows


def planning_rows() -> dict[str, Callable[[], Run]]:
    """The shipped network in unseen worlds with its fallback, and exact lengths."""
    import torch

    from inbounds import planning as pl

    def unseen(fallback: bool) -> Run:
        worlds = pl.random_worlds(100, (3, 8), seed=20_261_117)
        g = torch.Generator().manual_seed(12)
        x, y = (worlds.sample(5, generator=g).flatten(0, 1) for _ in range(2))
        every = worlds[torch.arange(100).repeat_interleave(5)]
        net = pl.load_sides()
        roadmap = (lambda w: pl.Roadmap(w, 150)) if fallback else None
        return lambda: pl.Around(every, net, fallback=roadmap).plan(x, y)

    def lengths() -> Run:
        world = pl.random_worlds(1, (8, 8), seed=3)[0]
        g = torch.Generator().manual_seed(12)
        x, y = (world.sample(200, generator=g) for _ in range(2))
        return lambda: pl.ShortestPaths(world).distance(x, y)

    return {
        "planning, 500 queries in unseen worlds": lambda: unseen(True),
        "planning, the same without fallback": lambda: unseen(False),
        "planning, 200 exact lengths among 8 discs": lengths,
    }


def rows(compiled: bool) -> dict[str, Callable[[], Run]]:
    return {**geometry_rows(compiled), **planning_rows()}


def serve(compiled: bool) -> None:
    """Answers every name on standard input with the CPU seconds of one call."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    answer, sys.stdout = sys.stdout, sys.stderr
    known, warm = rows(compiled), {}
    for line in sys.stdin:
        name = line.strip()
        if name not in warm:
            run = known[name]()
            run()
            warm = {name: (run, max(1, math.ceil(LEAST / min(cpu(run, 1) for _ in range(3)))))}  # one row in memory at a time
        print(min(cpu(*warm[name]) for _ in range(5)), file=answer, flush=True)


def cpu(run: Run, loops: int) -> float:
    start = time.process_time()
    for _ in range(loops):
        run()
    return (time.process_time() - start) / loops


# --- the two revisions ---------------------------------------------------------------------------------------------


class Revision:
    """A process with one revision of the library, asked for one measurement at a time."""

    def __init__(self, source: Path, compiled: bool):
        words = [sys.executable, str(Path(__file__)), "--serve", *(["--compiled"] if compiled else [])]
        env = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def ask(self, name: str) -> float:
        assert self.process.stdin and self.process.stdout
        print(name, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"The process of a revision ended at the row {name!r}; its message is above.")
        return float(answer)


def unpack(revision: str, folder: Path) -> Path:
    """The sources of a revision, as git has them."""
    archive = subprocess.run(["git", "-C", str(HERE), "archive", revision, "src"], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "src"


def interval(ratios: list[float]) -> tuple[float, float]:
    """Order statistics between which the median lies with a probability of at least 95 %: k from below, k from above."""
    n, tail, k = len(ratios), 0.0, 0
    while tail + math.comb(n, k) / 2**n <= 0.025:
        tail += math.comb(n, k) / 2**n
        k += 1
    if not k:
        raise SystemExit(f"{n} rounds give no interval of 95 %. Write --rounds 6 or more.")
    ordered = sorted(ratios)
    return ordered[k - 1], ordered[-k]


def compare(before: Revision, now: Revision, name: str, rounds: int) -> dict:
    """One row: both revisions in turn."""
    times: dict[Revision, list[float]] = {before: [], now: []}
    for i in range(rounds + 1):  # the first round warms both
        for revision in (before, now) if i % 2 else (now, before):
            times[revision].append(revision.ask(name))
    ratios = [b / a for b, a in zip(times[before][1:], times[now][1:], strict=True)]
    low, high = interval(ratios)
    word = "SLOWER" if high < LOSS else "not slower" if low >= LOSS else "not decided"
    ms = {"before_ms": 1e3 * statistics.median(times[before][1:]), "now_ms": 1e3 * statistics.median(times[now][1:])}
    return {"row": name, "ratio": statistics.median(ratios), "interval": [low, high], **ms, "verdict": word}


def show(row: dict) -> None:
    low, high = row["interval"]
    print(
        f"{row['row']:48} {row['ratio']:6.3f}  [{low:.3f}, {high:.3f}]  now {row['now_ms']:9.3f} ms  {row['verdict']}", flush=True
    )


def kept(new: dict, stored: dict, only: str) -> dict:
    """The stored run in which the rows that were measured again are new; each says of which commit, day and rounds it is."""
    if stored["before"] != new["before"]:
        raise SystemExit(f"The stored rows are against {stored['before']}, these against {new['before']}. Run all of them.")
    of = {key: new[key] for key in ("command", "date", "now", "rounds")}
    of["command"] += f' --only "{only}" --keep'
    fresh = {row["row"]: {**row, "of": of} for row in new["rows"]}
    return {**stored, "rows": [fresh.get(row["row"], row) for row in stored["rows"]]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--base", metavar="REV", help="the earlier revision")
    parser.add_argument("--rounds", type=int, default=12, help="of both revisions (%(default)s; the least is 6)")
    parser.add_argument("--only", default="", metavar="PATTERN", help="rows whose name contains this; printed, not stored")
    parser.add_argument("--keep", action="store_true", help="with --only: store them, and keep the other rows of the file")
    parser.add_argument("--compiled", action="store_true", help="with the compiled rows, minutes of compiling")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args.compiled)
    if not args.base:
        parser.error("which revision? Write --base REV, for example --base v0.1.0")
    interval([1.0] * args.rounds)
    with tempfile.TemporaryDirectory() as folder:
        before, now = Revision(unpack(args.base, Path(folder)), args.compiled), Revision(HERE / "src", args.compiled)
        found = []
        for name in rows(args.compiled):
            if args.only in name:
                found.append(compare(before, now, name, args.rounds))
                show(found[-1])
        for revision in (before, now):
            revision.process.communicate()
    slower = [r["row"] for r in found if r["verdict"] == "SLOWER"]
    print(f"{len(found)} rows, {len(slower)} slower by more than a tenth" + "".join(f"\n    {name}" for name in slower))
    if not args.only or args.keep:
        commit = [
            subprocess.run(
                ["git", "-C", str(HERE), "rev-parse", "--short", r], capture_output=True, text=True, check=True
            ).stdout.strip()
            for r in (args.base, "HEAD")
        ]
        about = {
            "command": "python benchmarks/since.py --base " + args.base + (" --compiled" if args.compiled else ""),
            "date": datetime.date.today().isoformat(),
            "machine": f"{os.cpu_count()} cores, one thread, CPU time",
            "before": commit[0],
            "now": commit[1],
            "rounds": args.rounds,
            "rows": found,
        }
        if args.only:
            about = kept(about, json.loads(RESULTS.read_text()), args.only)
        RESULTS.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
