"""A base install, torch and what torch asks for: a folder of links to just those packages, and no other site-packages."""

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import inbounds

SOURCE = Path(inbounds.__file__).parents[1]


def closure(name: str, found: dict | None = None) -> dict:
    """The installed distributions that `name` asks for without extras, itself among them."""
    found = {} if found is None else found
    try:
        here = distribution(name)
    except PackageNotFoundError:  # for another platform
        return found
    found[name] = here
    for asked in here.requires or []:
        other = re.match(r"[\w.-]+", asked)[0].lower().replace("_", "-")
        if "extra ==" not in asked and other not in found:
            closure(other, found)
    return found


def base_install(folder: Path) -> Path:
    for here in closure("torch").values():
        tops = {Path(file.parts[0]) for file in here.files if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            link = folder / top
            if not link.exists():
                link.symlink_to(here.locate_file(top))
    return folder


def run(folder: Path, code: str, *args: str, cwd: Path) -> subprocess.CompletedProcess:
    """The code in a Python that sees this package and the folder's, and no site-packages (-S)."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    env["PYTHONPATH"] = os.pathsep.join([str(SOURCE), str(folder)])
    start = [sys.executable, "-S", "-W", "ignore", "-c", code, *args]
    return subprocess.run(start, capture_output=True, text=True, env=env, cwd=cwd)
