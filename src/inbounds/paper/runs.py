"""`inbounds runs DIR`: what a store holds, by name; `--prune` removes what no finished cell stands on."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from ..train.files import read_tensors
from ..train.lock import Busy
from ..train.progress import time_text
from ..train.store import Run, Store, key
from .results import open_store
from .units import name_of


@dataclass(frozen=True)
class Line:
    """A run: its name and folder, how far it is, its size in bytes, the seconds of work in it; used: a finished cell needs it."""

    title: str
    run: Run
    state: str
    size: int
    seconds: float
    used: bool


def lines(store: Store) -> list[Line]:
    """Every run of the store, in the order of their names."""
    configs = store.configs()
    used = {k for c in configs if c.get("kind") == "test" and store.run(c).done for k in _stands_on(c)}
    return sorted((_line(c, store, key(c) in used) for c in configs), key=lambda line: (line.title, line.run.folder.name))


def _stands_on(test: dict) -> set[str]:
    found = {key(test)}
    for stack in test["stacks"]:
        learned = [*stack.get("velocities", []), *(stack[k] for k in ("fit", "distil") if k in stack)]
        found |= {key(stack), *map(key, learned)}
    return found


def _line(config: dict, store: Store, used: bool) -> Line:
    run = store.run(config)
    size = sum(p.stat().st_size for p in run.folder.rglob("*") if p.is_file())
    if run.done:
        return Line(name_of(config), run, "done", size, (run.result or {}).get("seconds", 0.0), used)
    saved = run.folder / "checkpoint.safetensors"
    if not saved.exists():
        return Line(name_of(config), run, "begun", size, 0.0, used)
    tensors, header = read_tensors(saved)
    whole = config.get("protocol", config).get("epochs")
    state = f"{int(tensors['epoch'])} of {whole} epochs" if whole else "begun"
    return Line(name_of(config), run, state, size, header.get("seconds", 0.0), used)


def run(args) -> int:
    """`inbounds runs`. Returns the exit code."""
    try:
        store = open_store(args.folder)
    except FileNotFoundError as error:
        print(f"inbounds runs: {error}", file=sys.stderr)
        return 2
    found = lines(store)
    width = max((len(line.title) for line in found), default=0)
    for line in found:
        note = "" if line.used else "  (no finished cell uses it)"
        print(f"{line.title:{width}s}  {line.state:>22s}  {line.size / 1024:8.0f} KiB  {time_text(line.seconds):>8s}{note}")
    unfinished = sum(line.state != "done" for line in found)
    total = sum(line.size for line in found)
    work = time_text(sum(line.seconds for line in found))
    print(f"{len(found)} runs, {unfinished} unfinished, {total / 2**20:.1f} MiB, {work} of work.")
    if args.prune:
        prune(found, Path(args.folder))
    return 0


def prune(found: list[Line], folder: Path) -> None:
    """Remove the runs that no finished cell uses, but for those that a process is at work on."""
    freed = kept = removed = 0
    for line in found:
        if line.used or line.run.folder.parent != folder / "runs":
            continue
        try:
            with line.run.lock():
                shutil.rmtree(line.run.folder)
        except Busy:
            kept += 1
            continue
        freed, removed = freed + line.size, removed + 1
    busy = f" {kept} are being worked on and were left alone." if kept else ""
    print(f"Removed {removed} runs that no finished cell uses, {freed / 2**20:.1f} MiB.{busy}")
