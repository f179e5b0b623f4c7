"""`inbounds table` on a small store, run by the tests of stores, damage and clusters, and one store that nobody harmed."""

import csv
import fcntl
import sys
from pathlib import Path

from inbounds.cli import main

ARGS = ["--datasets", "sphere", "--models", "regular,proj-iaa", "--depths", "2,3", "--seeds", "1", "--epochs", "40"]


def command(out, *extra):
    """One worker, unless it is told where to work: every process takes seconds to import torch."""
    start = [sys.executable, "-m", "inbounds.cli", "table", *ARGS, "--out", str(out)]
    return [*start, "--checkpoint", "0.05", *([] if "--executor" in extra else ["--workers", "1"]), *extra]


def table(out):
    """The cells without what time and chance decide."""
    with open(out / "table.csv") as f:
        return [{k: v for k, v in row.items() if k not in ("seconds", "commit")} for row in csv.DictReader(f)]


def made_once(folder: Path) -> Path:
    """A finished store in this folder, which all processes of a test run share: the first one that asks makes it, itself."""
    folder.mkdir(exist_ok=True)
    with open(folder / "turn", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not (folder / "store" / "table.csv").exists():
            assert main(["table", *ARGS, "--executor", "here", "--out", str(folder / "store")]) == 0
    return folder / "store"
