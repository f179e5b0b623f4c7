"""How long a table will take on this machine: two epochs of every stack are trained and timed."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import torch

from ..data.pairs import Pairs
from ..train.files import read_tensors
from ..train.planes import rule_of
from ..train.progress import time_text
from ..train.store import Store
from ..train.work import Unit
from .datasets import open_pairs
from .jobs import COMPILED, StackJob, compiler
from .names import named
from .rows import ROWS, Source

EPOCHS = 2  # timed, after one that warms up
COMPILED_LAYERS, COMPILED_OUTPUT = 0.4, 0.75  # time of compiled rows, of that of eager ones: steps at every layer, at the output


def seconds(unit: Unit, store: Store) -> float:
    """What is left of a unit: measured for stacks whose sets are formulas, else the unit's own guess."""
    config = unit.config
    if config["kind"] != "stack" or unit.needs:
        return unit.cost
    torch.set_num_threads(1)
    pairs = open_pairs(config["data"], store)
    job = StackJob(config, pairs, store, compile=False)
    job.advance()
    began = time.perf_counter()
    for _ in range(EPOCHS):
        job.advance()
    each = (time.perf_counter() - began) / EPOCHS
    saved = store.run(config).folder / "checkpoint.safetensors"
    done = int(read_tensors(saved)[0]["epoch"]) if saved.exists() else 0
    return each * (job.epochs - done) * _gain(config, job, pairs)


def _gain(config: dict, job: StackJob, pairs: Pairs) -> float:
    """What compiling the step leaves of the time, of a run that is long enough for it. Measured, see docs/paper.md."""
    steps = job.epochs * math.ceil(job._rows / job.protocol.batch)
    row = named(config["row"], ROWS)
    rule = None if pairs.tokens else rule_of(row.step(pairs.set))
    if steps < COMPILED or compiler() is None or rule is None or not rule.heavy:
        return 1.0
    return COMPILED_LAYERS if row.each_layer else COMPILED_OUTPUT


def report(missing: Sequence[Unit], store: Store, workers: int) -> list[str]:
    """Lines to print: a row each, what the Flow rows add, the sum."""
    rows: dict[str, float] = {}
    flows = 0.0
    for unit in missing:
        took = seconds(unit, store)
        if _of_flows(unit.config):
            flows += took
        else:
            name = f"{unit.config['data']['name']} {unit.config.get('row', unit.config['kind'])}"
            rows[name] = rows.get(name, 0.0) + took
    said = [f"  {name:20s} {time_text(s)}" for name, s in rows.items()]
    total = sum(rows.values()) + flows
    if flows:
        said.append(f"  {'Flow rows':20s} {time_text(flows)} (guessed, not measured)")
    said.append(
        f"Estimated time: {time_text(total / workers)} on {workers} cores ({time_text(total)} of one core"
        + (f", {time_text(total - flows)} of it without the Flow rows" if flows and flows < total else "")
        + "). It can be stopped at any time and goes on where it was."
    )
    return said


def _of_flows(config: dict) -> bool:
    """Whether a unit is part of the Flow rows."""
    if "row" in config:
        return named(config["row"], ROWS).source is Source.FLOW
    return config["kind"] in ("velocity", "distil")
