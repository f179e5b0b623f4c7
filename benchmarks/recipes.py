"""Every recipe of examples/ as a user starts it: what it prints, and what it costs. Writes results/recipes.json.

Seconds are CPU time of the command with its imports, one thread. A recipe that starts processes of its own runs them abreast:
there the clock on the wall is less than the sum of their CPU times, and is taken instead. The first row is torch alone: its
import and an empty optimiser, which every training loop pays for. Bytecode is cached, as it is from the second run on.

usage: python benchmarks/recipes.py [NAME ...]
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT = 6.0  # seconds
ALONE = "import torch; torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))]); print('import and optimiser')"


def spent() -> float:
    """CPU seconds of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(name: str, *command: str | Path) -> dict:
    """Seconds of the command, and the last line that it prints."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    start, before = time.perf_counter(), spent()
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env={**env, "OMP_NUM_THREADS": "1"})
    wall, cpu = time.perf_counter() - start, spent() - before
    if done.returncode:
        sys.exit(f"{name} failed\n{done.stderr}")
    told = {"seconds": round(min(wall, cpu), 2), "wall": round(wall, 2), "printed": done.stdout.strip().splitlines()[-1]}
    return {"recipe": name, **told}


def main() -> None:
    files = [f for f in sorted((ROOT / "examples").glob("*.py")) if len(sys.argv) == 1 or f.stem in sys.argv[1:]]
    before = os.getloadavg()
    rows = [timed("torch alone", "-c", ALONE)]
    print(f"{rows[0]['seconds']:6.2f} s  torch alone", flush=True)
    for file in files:
        rows.append(timed(file.stem, file))
        print(f"{rows[-1]['seconds']:6.2f} s  {file.stem}: {rows[-1]['printed']}", flush=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    told = {
        "command": "python benchmarks/recipes.py",
        "commit": commit,
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "load": [round(n, 1) for n in (*before, os.getloadavg()[0])],  # other work beside it: a minute, 5, 15 before; at the end
    }
    text = json.dumps({**told, "threads": 1, "limit": LIMIT, "rows": rows}, indent=1) + "\n"
    if len(sys.argv) == 1:
        (ROOT / "results" / "recipes.json").write_text(text)
    slow = [r["recipe"] for r in rows if r["seconds"] > LIMIT]
    print(f"over {LIMIT:g} s: {', '.join(slow)}" if slow else f"all {len(files)} in under {LIMIT:g} s")


if __name__ == "__main__":
    main()
