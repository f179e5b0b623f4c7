"""Every recipe of examples/ as a user starts it: what it prints, and what it costs. Writes results/recipes.json.

Seconds are CPU time from the start of Python, its imports included, until the recipe has printed its number, one thread; "ended"
is when the process is gone, which takes torch up to a second more. A recipe that starts processes of its own runs them abreast:
there the clock on the wall is less than the sum of their CPU times, and is taken instead. The first rows are torch alone, medians
of three: its import; with an empty optimiser, which every training loop pays for; with the export of a linear layer to ONNX.
Python's bytecode is written, as it is from the second run on: without it, importing torch takes twice as long. So run this twice,
or with --warm before.

usage: python benchmarks/recipes.py [--warm] [NAME ...]
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from inbounds.records import head

ROOT = Path(__file__).parents[1]
LIMIT = 6.0  # seconds
EXPORT = "torch.onnx.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),), dynamo=True, verbose=False)"
ALONE = {
    "torch alone: import": "import torch; print('nothing else')",
    "torch alone: optimiser": "import torch; torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))]); print('and optimiser')",
    "torch alone: ONNX": f"import torch, onnxruntime; {EXPORT}; print('import and export')",
}


# runs a file as `python FILE` does, and says at its end what it has cost so far
STARTER = """import os, runpy, sys, time
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
print(time.process_time(), file=sys.stderr)"""
APART = {"two_processes"}  # starts processes, which import the file themselves


def spent() -> float:
    """CPU seconds of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(name: str, *command: str | Path) -> dict:
    """Seconds until the command has printed its last line, and that line."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    start, before = time.perf_counter(), spent()
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env={**env, "OMP_NUM_THREADS": "1"})
    wall, cpu = time.perf_counter() - start, spent() - before
    if done.returncode:
        sys.exit(f"{name} failed\n{done.stderr}")
    seconds = min(wall, cpu) if name in APART else float(done.stderr.split()[-1])
    told = {"seconds": round(seconds, 2), "ended": round(cpu, 2), "wall": round(wall, 2)}
    return {"recipe": name, **told, "printed": done.stdout.strip().splitlines()[-1]}


def recipe(file: Path) -> dict:
    """What a recipe costs and prints."""
    return timed(file.stem, file) if file.stem in APART else timed(file.stem, "-c", STARTER, file)


def alone(name: str, code: str) -> dict:
    """The median of three starts."""
    code += "; import sys, time; print(time.process_time(), file=sys.stderr)"
    return sorted((timed(name, "-c", code) for _ in range(3)), key=lambda row: row["seconds"])[1]


def has_bytecode() -> bool:
    """Whether Python keeps the compiled form of torch's modules in this environment."""
    spec = find_spec("torch")
    return bool(spec and spec.origin and Path(cache_from_source(spec.origin)).exists())


def main() -> None:
    names = [name for name in sys.argv[1:] if name != "--warm"]
    files = [f for f in sorted((ROOT / "examples").glob("*.py")) if not names or f.stem in names]
    if "--warm" in sys.argv:
        for file in files:
            recipe(file)
        return
    about, before = head("python benchmarks/recipes.py"), os.getloadavg()
    rows = [alone(name, code) for name, code in ALONE.items()]
    for row in rows:
        print(f"{row['seconds']:6.2f} s  {row['recipe']}", flush=True)
    for file in files:
        rows.append(recipe(file))
        print(f"{rows[-1]['seconds']:6.2f} s  {file.stem}: {rows[-1]['printed']}", flush=True)
    told = {
        **about,
        "load": [round(n, 1) for n in (*before, os.getloadavg()[0])],  # a minute, 5, 15 before; at the end
        "bytecode": has_bytecode(),
        "threads": 1,
        "limit": LIMIT,
        "rows": rows,
    }
    if not names:
        (ROOT / "results" / "recipes.json").write_text(json.dumps(told, indent=1) + "\n")
    slow = [r["recipe"] for r in rows if r["seconds"] > LIMIT]
    print(f"over {LIMIT:g} s: {', '.join(slow)}" if slow else f"all {len(files)} in under {LIMIT:g} s")


if __name__ == "__main__":
    main()
