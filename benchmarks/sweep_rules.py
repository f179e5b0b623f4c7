"""What breaks when a threshold of `ib.fit` is halved or doubled.

Every number of `learned/thresholds.py` is multiplied by 1/2 and by 2, one at a time, and eleven cells of `truth.py` are judged
again (cheap ones, since there are many runs). Stored are the cells whose verdict, warning or ratio to the best of the simple ways
changed. Writes results/rules.json after every run; the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing as mp
import subprocess
import sys
from pathlib import Path

from truth import Cell, fingerprint, judge, sets, verdict

from inbounds.learned import pieces, thresholds
from inbounds.records import machine

FACTORS = (0.5, 2.0)
SAME = 1e-12  # ratios below it are equal
NAMES = (
    "SHORT TIE GAIN NOISY LOUD SHELL SPARSE OFF ISOLATED ROUGH TOGETHER CROWDING CROWDED LEVEL QUARTER BEYOND SEEN SLACK SIGMAS "
    "ABOVE_NOISE FEW_DROPPED MOST_DROPPED FEWEST_EACH MOST_SIGMA TAIL RIM CLOUD ALIKE RARE MIDDLE MIXED SMALLEST"
).split()
CELLS = [
    Cell("L-shape", "clean", 500, 0),
    Cell("star", "clean", 1_000, 0),
    Cell("disk", "noise 0.1", 1_000, 0),
    Cell("circle", "noise 0.1", 500, 0),
    Cell("triangle", "outliers", 1_000, 0),
    Cell("trefoil", "outliers", 1_000, 0),
    Cell("two circles", "uneven", 1_000, 0),
    Cell("disk", "uneven", 1_000, 0),
    Cell("essential", "clean", 300, 0),
    Cell("half-sphere", "noise 0.03", 500, 0),
    Cell("planar poses", "clean", 200, 0),
]


def changed(name: str, factor: float) -> list[dict]:
    """The cells, judged with one threshold changed, in a process of its own: modules that took the number by name get it, too."""
    here, there = mp.get_context("fork").Pipe(False)

    def work() -> None:
        if name:
            value = getattr(pieces if hasattr(pieces, name) else thresholds, name)
            if name == "SLACK":  # what counts is by how much it exceeds 1
                new = 1 + factor * (thresholds.SLACK - 1)
            else:
                new = tuple(factor * v for v in value) if isinstance(value, tuple) else type(value)(factor * value)
            for key, module in list(sys.modules.items()):
                if key.startswith("inbounds.learned") and getattr(module, name, None) is value:
                    setattr(module, name, new)
        there.send([row | {"verdict": verdict(row)} for row in map(judge, CELLS)])

    process = mp.get_context("fork").Process(target=work)
    process.start()
    there.close()
    rows = here.recv()
    process.join()
    return rows


def compared(rows: list[dict], before: list[dict]) -> list[dict]:
    """What is different from the run with the numbers as they are."""
    found = []
    for row, old in zip(rows, before, strict=True):
        worse = max(*row.get("ratio", [1]), SAME) / max(*old.get("ratio", [1]), SAME)
        said = bool(row.get("warnings")) != bool(old.get("warnings"))
        if row["verdict"] != old["verdict"] or worse > 1.5 or worse < 1 / 1.5 or said:
            found.append({k: row.get(k) for k in ("set", "state", "samples", "ratio", "dimension", "verdict", "chosen")})
            found[-1] |= {"was": old["verdict"], "ratio was": old.get("ratio"), "warned": bool(row.get("warnings"))}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", nargs="*", default=NAMES, help="names of thresholds")
    parser.add_argument("--out", default="results/rules.json")
    args = parser.parse_args()
    out = Path(args.out)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    sets()
    kept = json.loads(out.read_text()) if out.is_file() else {}
    code = fingerprint()
    stored = kept if kept.get("code") == code else {"commit": commit, "code": code, "runs": {}}
    about = {"command": "python benchmarks/sweep_rules.py", "date": datetime.date.today().isoformat(), "machine": machine()}
    before = stored.get("before") or changed("", 1.0)
    stored |= {**about, "before": before}
    for name in args.only:
        for factor in FACTORS:
            key = f"{name} x {factor:g}"
            if key not in stored["runs"]:
                stored["runs"][key] = compared(changed(name, factor), before)
                stored["thresholds"] = f"{len(stored['runs'])} of {len(NAMES) * len(FACTORS)} changes"
                out.write_text(json.dumps(stored, indent=1) + "\n")
            print(key, [f"{r['set']}: {r['was']} -> {r['verdict']} {r['ratio']}" for r in stored["runs"][key]], flush=True)


if __name__ == "__main__":
    main()
