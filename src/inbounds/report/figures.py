"""The charts of a report: accuracy against feasibility, loss curves, violation layer by layer, learned projections."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import torch

from ..core import ConstraintSet
from ..data.pairs import Pairs, generator
from ..learned import FitWarning, LearnedSet, fit
from ..paper.cells import learned_set
from ..paper.figures.projection import METHODS, SIGMAS, samples
from ..paper.results import TrainedCell
from ..paper.rows import FLOW_ROWS
from ..paper.table import SETS, TITLES, Cell, brief, groups
from ..records import tiny
from .charts import DASHES, Axis, Look, Series, chart, look_of
from .reading import Reading, seed_with_model

FLOOR = 1e-9  # violations below float32 rounding are drawn as 0
POINTS, FLOW_POINTS = 200, 40  # whose hidden states are looked at; a flow is dear
CURVE = 150  # points of a loss curve, at most
LAYER_ROWS = ("regular", "proj-iaa", "exp-iaa", "flow-iaa", "proj-faa", "exp-faa", "flow-faa")
VIOLATION = "mean distance to the set"


@dataclass(frozen=True)
class Figure:
    """A picture: the name of its file, its SVG; scene: what the page needs to draw it anew, moving."""

    name: str
    svg: str
    scene: dict | None = None


# --- accuracy against feasibility ----------------------------------------------------------------------------
def accuracy(reading: Reading) -> list[Figure]:
    """For each dataset a chart of error against violation."""
    return [Figure(f"accuracy-{name}", _scatter(name, members)) for name, members in groups(reading.shown).items()]


def _scatter(name: str, members: list[Cell]) -> str:
    """Ours filled, published hollow, a row's two points joined by a thin line."""
    series = []
    for c in members:
        look = look_of(c.row)
        says = [f"{TITLES[c.row]}: loss {brief(c.mse)}, violation {tiny(c.violation_mean)}"]
        series.append(Series(TITLES[c.row], look, [c.violation_mean], [c.mse], says))
        if c.published_mse is not None and c.published_distance is not None:
            x, y = c.published_distance, c.published_mse
            says = [f"{TITLES[c.row]}, published: loss {brief(y)}, distance {tiny(x)}"]
            series.append(Series("", look, [x], [y], says, hollow=True, listed=False))
    if any(c.published_mse is not None for c in members):
        series.append(Series("published", Look("free"), [], [], hollow=True))
    axes = Axis(VIOLATION, log=True, floor=FLOOR), Axis("test loss", log=True)
    return chart(f"{SETS[name]}: loss against feasibility", *axes, series, joined=False)


# --- loss curves ---------------------------------------------------------------------------------------------
def curves(reading: Reading) -> list[Figure]:
    """For each dataset a chart of the loss of every row during training."""
    return [Figure(f"curves-{name}", _curves(name, members)) for name, members in reading.by_dataset.items()]


def _curves(name: str, members: list[TrainedCell]) -> str:
    series = []
    for cell in members:
        for k, curve in enumerate(cell.curves):
            known = [(e, v) for e, v in zip(curve["epoch"], curve["val"], strict=True) if v is not None and v > 0]
            known = known[:: max(1, len(known) // CURVE)]
            x, y = [e for e, _ in known], [v for _, v in known]
            series.append(Series(TITLES[cell.row], look_of(cell.row), x, y, listed=k == 0))
    axes = Axis("epochs", log=True), Axis("validation loss", log=True)
    return chart(f"{SETS[name]}: loss while training", *axes, series, marks=False)


# --- hidden states -------------------------------------------------------------------------------------------
def layers(reading: Reading) -> list[Figure]:
    """For each dataset a chart of how far the hidden states of some rows are from the set, layer by layer."""
    found = []
    for name in reading.by_dataset:
        cells = reading.find(name, *LAYER_ROWS)
        if cells:
            axes = Axis("layer, from the input to the output"), Axis(VIOLATION, log=True, floor=FLOOR)
            title = f"{SETS[name]}: hidden states"
            found.append(Figure(f"layers-{name}", chart(title, *axes, [_layers(cell) for cell in cells])))
    return found


def _layers(cell: TrainedCell) -> Series:
    most = (FLOW_POINTS if cell.row in FLOW_ROWS else POINTS) // math.prod(cell.data.tokens)
    seed = seed_with_model(cell)
    assert seed is not None  # `Reading.by_dataset` has no other cells
    violation = cell.layers(cell.data["test"][0][:most], seed).violation
    means = violation.flatten(1).mean(1).tolist()
    says = [f"{TITLES[cell.row]}, layer {k}: {tiny(v)}" for k, v in enumerate(means)]
    return Series(TITLES[cell.row], look_of(cell.row), list(range(len(means))), means, says)


# --- projections learned from samples ------------------------------------------------------------------------
SAMPLES, PROBES = 1_000, 200
LEARNED = ("sphere", "disk", "so3", "protein")  # flocks are rotations again
METHOD_LOOKS = {
    "flow": Look("faa", "diamond"),
    "flow-own-time": Look("warm", "diamond", DASHES["flow"]),
    "heat": Look("free", "square"),
    "local": Look("true", "triangle"),
    "auto": Look("iaa", "circle"),
}


def projections(reading: Reading) -> tuple[list[Figure], str]:
    """How far learned projections are from the formula, against the noise; and a sentence on where the numbers come from."""
    stored = [folder / "projection.json" for folder in (reading.folder, reading.folder.parent / "figures")]
    file = next((path for path in stored if path.exists()), None)
    if file is not None:
        rows = [r for r in json.loads(file.read_text())["rows"] if r["dataset"] in reading.by_dataset]
        if rows:
            return _projection_charts(rows), f"The numbers are those of {file.name}, which inbounds figure projection wrote."
    doubts: list[str] = []
    rows = [r for name in reading.by_dataset if name in LEARNED for r in _measured(reading, name, doubts)]
    told = (
        f"They were measured while this report was written, on {SAMPLES:,} training targets. The flow is the one that the Flow "
        "rows of this run use; inbounds figure projection measures more methods on more samples."
    )
    return _projection_charts(rows), " ".join([told, *doubts])


def _projection_charts(rows: list[dict]) -> list[Figure]:
    found = []
    for name in dict.fromkeys(r["dataset"] for r in rows):
        series = []
        for method, (title, _) in METHODS.items():
            line = [r for r in rows if (r["dataset"], r["method"]) == (name, method)]
            if line:
                x, y = [r["sigma"] for r in line], [r["mse"] for r in line]
                says = [f"{title}: {tiny(v)}" for v in y]
                series.append(Series(SHORT[method], METHOD_LOOKS[method], x, y, says))
        axes = Axis("noise", log=True), Axis("MSE to the projection", log=True, floor=1e-17)
        found.append(Figure(f"projection-{name}", chart(f"{SETS[name]}: learned projections", *axes, series)))
    return found


SHORT = {"flow": "flow", "flow-own-time": "flow, own time", "heat": "heat kernel", "local": "local", "auto": "fit, auto"}


@torch.no_grad()
def _measured(reading: Reading, name: str, doubts: list[str]) -> Iterator[dict]:
    """A row for every method and noise. doubts: what `fit` warns of is added here, for the page."""
    pairs = reading.by_dataset[name][0].data
    y = samples(pairs, "test", PROBES)
    noise = torch.randn(y.shape, generator=generator(0, stream=6), dtype=torch.float64)
    for method, M in _learned(reading, name, pairs):
        if method == "auto" and isinstance(M, LearnedSet):
            doubts += [f"{SETS[name]}, fit, auto: {doubt}" for doubt in M.info["doubts"]]
        for sigma in SIGMAS:
            x = y + sigma * noise
            error = (M.project(x).double() - pairs.set.project(x)).square().mean()
            yield {"dataset": name, "method": method, "sigma": sigma, "mse": float(error)}


def _learned(reading: Reading, name: str, pairs: Pairs) -> Iterator[tuple[str, ConstraintSet]]:
    """The flow of the run, if it has one; what is fitted in a moment."""
    for cell in reading.find(name, *FLOW_ROWS)[:1]:
        stack = cell.choice.places[0][0]
        flow = learned_set(stack, pairs, cell.store, test=True)
        assert flow is not None
        yield "flow", flow.double()
    for method in ("heat", "auto"):
        with suppress(ValueError), warnings.catch_warnings():  # ValueError: too few samples, or nothing that fits them
            warnings.simplefilter("ignore", FitWarning)  # the page says them
            M = fit(samples(pairs, "train", SAMPLES), method)
            yield method, M
