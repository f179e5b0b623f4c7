"""What every stored result says about itself, and where it may be written."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import tempfile
from pathlib import Path

import torch

from . import __version__


def machine() -> dict:
    """The size of this machine and the versions at work, for the head of a stored result."""
    known = getattr(os, "sysconf_names", {})
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30 if "SC_PHYS_PAGES" in known else None
    return {
        "cores": os.cpu_count(),
        "memory_gib": memory and round(memory, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "inbounds": __version__,
    }


def git(*words: str) -> str | None:
    """What git says of the checkout that this package runs from; None outside of one."""
    try:
        done = subprocess.run(["git", "-C", str(Path(__file__).parent), *words], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def commit() -> str | None:
    """The commit of that checkout; None outside of one."""
    return git("rev-parse", "--short=12", "HEAD") or None


def head(command: str) -> dict:
    """Where a stored result comes from: the command, the commit, the date and the machine.

    A "+" after the commit says that the library had changes on top.
    """
    made = commit()
    if made and git("status", "--porcelain", "--", "."):
        made += "+"
    return {"command": command, "commit": made, "date": datetime.date.today().isoformat(), "machine": machine()}


def writable(out: Path) -> Path:
    """The folder `out`, made if it is missing. Raises OSError with the way out where files cannot be written there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise OSError(f"cannot write to {out}: {error.strerror}. Choose another directory with --out DIR.") from error
    return out


def tiny(number: float) -> str:
    """A small number for a table; exact zeros are told from rounding."""
    return f"{number:.1e}" if number else "0"
