"""Kills and interrupts at chosen moments of writing, not of the clock: see moments/sitecustomize.py."""

import os
from pathlib import Path

FOLDER = Path(__file__).with_name("moments")
HANG = 3600  # seconds after which a test that waits for a process gives up: not a bound on its speed


def moment(
    event: str = "", name: str = "", number: int = 1, deed: str = "kill-all", once=None, absent: str = ""
) -> dict[str, str]:
    """The environment of a process to which it happens."""
    path = os.pathsep.join([str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": path, "ABSENT": absent, "ONCE": str(once or "")}
    return {**env, "MOMENT": f"{event} {name} {number} {deed}"} if event else env
