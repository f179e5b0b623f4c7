"""What a stored result of a benchmark says of itself."""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path

from inbounds.records import machine

ROOT = Path(__file__).parents[1]


def head(command: str) -> dict:
    """The command, the commit that was measured, the date and the machine. A "+" says that the library had changes on top."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()

    commit = git("rev-parse", "--short", "HEAD") + "+" * bool(git("status", "--porcelain", "--", "src"))
    return {"command": command, "commit": commit, "date": datetime.date.today().isoformat(), "machine": machine()}
