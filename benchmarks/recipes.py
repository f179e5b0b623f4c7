"""Every recipe of examples/ as a user starts it: what it prints, and how long it takes. Writes results/recipes.json.

usage: python benchmarks/recipes.py [NAME ...]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT = 6.0  # seconds


def timed(file: Path) -> dict:
    """Seconds of the command, and the last line that it prints."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{file.name} failed\n{done.stderr}")
    return {"recipe": file.stem, "seconds": round(seconds, 2), "printed": done.stdout.strip().splitlines()[-1]}


def main() -> None:
    files = [f for f in sorted((ROOT / "examples").glob("*.py")) if len(sys.argv) == 1 or f.stem in sys.argv[1:]]
    timed(files[0])  # files of torch are read from disk once
    rows = []
    for file in files:
        rows.append(timed(file))
        print(f"{rows[-1]['seconds']:6.2f} s  {file.stem}: {rows[-1]['printed']}", flush=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    told = {
        "command": "python benchmarks/recipes.py",
        "commit": commit,
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
    }
    text = json.dumps({**told, "threads": 1, "limit": LIMIT, "rows": rows}, indent=1) + "\n"
    if len(sys.argv) == 1:
        (ROOT / "results" / "recipes.json").write_text(text)
    slow = [r["recipe"] for r in rows if r["seconds"] > LIMIT]
    print(f"over {LIMIT:g} s: {', '.join(slow)}" if slow else f"all {len(rows)} in under {LIMIT:g} s")


if __name__ == "__main__":
    main()
