"""Builds wheel and sdist into dist/, and tries both.

The wheel goes into an empty venv with torch alone. The sdist is unpacked; its tests are collected, and those of the README run.

usage: python scripts/release_check.py -- ARGUMENTS OF PIP
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
HEAVY = {"numpy", "scipy", "matplotlib", "rich", "safetensors", "gemmi", "ray"}  # what extras bring, and torch does not


def run(*command: str | Path, cwd: Path = ROOT, **env: str) -> str:
    """The command's output; its error if it fails."""
    done = subprocess.run([str(c) for c in command], cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"release-check: {' '.join(map(str, command))} failed\n{done.stdout}\n{done.stderr}")
    return done.stdout


def fresh(folder: Path) -> Path:
    """The Python of a new, empty venv."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def build(folder: Path) -> tuple[Path, Path]:
    """dist/*.whl and dist/*.tar.gz, made in a venv of their own."""
    python = fresh(folder)
    run(python, "-m", "pip", "install", "--quiet", "build")
    for old in (ROOT / "dist").glob("inbounds-*"):
        old.unlink()
    run(python, "-m", "build", "--outdir", ROOT / "dist")
    (wheel,), (sdist,) = (list((ROOT / "dist").glob(pattern)) for pattern in ("inbounds-*.whl", "inbounds-*.tar.gz"))
    return wheel, sdist


def try_wheel(wheel: Path, folder: Path, pip: list[str]) -> None:
    """Installed beside torch alone it imports, says its version, and runs the README's first example."""
    files = zipfile.ZipFile(wheel).namelist()
    for part in ("inbounds/py.typed", "inbounds/data/backbones.npz", "inbounds/planning/sides.safetensors"):
        assert part in files, f"{part} is not in {wheel.name}"
    assert all(f.startswith(("inbounds/", "inbounds-")) for f in files), "the wheel holds more than the package"
    python = fresh(folder)
    run(python, "-m", "pip", "install", "--quiet", *pip, wheel)
    listed = {re.split("==| @ ", line)[0].lower() for line in run(python, "-m", "pip", "freeze").splitlines()}
    assert not HEAVY & listed, f"{HEAVY & listed} came with the wheel"
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    run(python, "-c", example, cwd=folder)
    print(
        run(python, "-m", "inbounds.cli", "--version", cwd=folder).strip(),
        "runs the README's example with",
        ", ".join(sorted(listed)),
    )


def try_sdist(sdist: Path, folder: Path) -> None:
    """What its tests read is in it: all of them are collected, and those of the README and of links run."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (top,) = folder.iterdir()
    own = {"PYTHONPATH": str(top / "src")}
    found = run(sys.executable, "-m", "pytest", "-o", "addopts=", "--collect-only", "-q", cwd=top, **own).strip().splitlines()[-1]
    told = run(
        sys.executable,
        "-m",
        "pytest",
        "-o",
        "addopts=",
        "-q",
        "tests/test_readme.py",
        "tests/test_docs.py",
        "-k",
        "not snippets",
        cwd=top,
        **own,
    )
    print(f"{sdist.name}: {found}; README and pages: {told.strip().splitlines()[-1]}")


def main() -> None:
    pip = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    with tempfile.TemporaryDirectory() as folder:
        wheel, sdist = build(Path(folder) / "build")
        try_wheel(wheel, Path(folder) / "empty", pip)
        try_sdist(sdist, Path(folder) / "sdist")
    print(f"ready: {wheel.name} ({wheel.stat().st_size / 1e6:.1f} MB), {sdist.name} ({sdist.stat().st_size / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
