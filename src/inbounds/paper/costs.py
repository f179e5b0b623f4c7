"""How long units of work take, for order and estimates only: seconds on one core of 2026, measured with the standard preset."""

from __future__ import annotations

import math

from .datasets import DATASETS
from .names import named
from .rows import ROWS, Source

AGENTS = 10  # points of a flock
TRAINING = 4_000  # rows of the training split
LAYER = {
    "sphere": 0.02e-3,
    "disk": 0.02e-3,
    "so3": 0.05e-3,
    "protein": 0.07e-3,
    "cs": 0.13,
    "flock": 0.035,
}  # 500 rows, one model
CALLS = {"sphere": 1.0e-3, "disk": 1.2e-3, "so3": 1.4e-3, "protein": 1.6e-3}  # of a step, however many models it has
WIDE_FLOCKS = {"cs": 0.4}  # a layer of a wide row, in layers of the paper's; 1 where it is not said
NEWTON = 1e-4  # a projection on a fitted set, one point, forward and backward
PROJECTION = 1.0e-3  # 8 Euler steps of a flow of 8 x 256, one point, forward and backward
DISTILLED = 2e-6  # one evaluation of a distilled network, one point, forward and backward


def stack_cost(c: dict) -> float:
    """Steps x (calls + models x (depth x seconds of a layer + projections of a learned set))."""
    name, row, p = c["data"]["name"], named(c["row"], ROWS), c["protocol"]
    flock = named(name, DATASETS).flock
    depth = sum(m[2] for m in c["members"]) / len(c["members"])
    steps = p["epochs"] * min(math.ceil(TRAINING / p["batch"]), p["batches"] or 10**9)
    factor = (WIDE_FLOCKS.get(name, 1.0) if row.wide else 1.0) if flock else row.factor
    layer = LAYER[name] * factor * p["batch"] / 500
    points = p["batch"] * (AGENTS if flock else 1) * (depth + 1 if row.each_layer else 1)  # that are projected in a step
    each = DISTILLED if "distil" in c else PROJECTION * c.get("euler", 0) / 8
    flow = each * points if row.source is Source.FLOW else 0.0
    newton = NEWTON * points if row.source is Source.FIT else 0.0
    return steps * (CALLS.get(name, 0.0) * factor + len(c["members"]) * (layer * depth + flow + newton))


def velocity_cost(c: dict) -> float:
    """Steps x (calls + the size of the network)."""
    points = TRAINING * (AGENTS if named(c["data"]["name"], DATASETS).flock else 1)
    full = math.ceil(c["times"] * points / c["batch"])
    return c["epochs"] * min(full, c["batches"] or full) * (3e-3 + 29e-3 * _size(c))


def _size(velocity: dict) -> float:
    """The size of a velocity network, in units of the paper's."""
    return velocity["depth"] * velocity["width"] ** 2 / (8 * 256**2)


def test_cost(c: dict) -> float:
    """Seeds x rows x a prediction."""
    row, flock = named(c["row"], ROWS), named(c["data"]["name"], DATASETS).flock
    seeds, rows = len({m[0] for m in c["stacks"][0]["members"]}), c["rows"] or 20_000
    if row.source is Source.FLOW:  # RK45
        each = 6e-3 * (0.2 + 0.8 * _size(c["stacks"][0]["velocities"][0]))
        return each * rows * seeds * (AGENTS if flock else 1) * (9 if row.each_layer else 1)
    return seeds * rows * (2e-3 if flock else 2e-5)
