"""The rows of the table: what each of them is, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from torch import Tensor, nn

from ..core import ConstraintSet
from ..data.pairs import Pairs
from ..nets import AnchorMixture
from ..sets import Euclidean
from ..steps import Projection, Step
from ..train.training import Problem, mse
from . import models
from .models import ANCHORS, HEADS, WIDTH, Shape
from .presets import Budgets, Preset

Network = Callable[[Shape, int], nn.Module]  # the shape and the depth


class Source(Enum):
    """Where a row knows its set from."""

    FORMULA = "formula"
    FLOW = "flow"  # a velocity network trained on the inputs
    FIT = "fit"  # inbounds.fit on the training targets


def unconstrained(M: ConstraintSet) -> Step:
    """A step that leaves points where they are."""
    return Projection(Euclidean(*M.shape))


@dataclass(frozen=True)
class Row:
    """A row of the table.

    step: where the set is a formula, the step that costs most: at every layer of IAA rows, at the output of FAA rows.
    budget: how long the row is trained, of a preset. each_layer: whether the step is taken at every layer, as in IAA rows.
    wide: whether it has a practitioner's blocks instead of the paper's. anchors: whether it scores anchors instead of predicting
    a point. needs_manifold: whether it is undefined on sets with a boundary. ours: whether the paper does not have it. asked:
    whether the table shows it on request alone. factor: seconds of a training step, in those of the regular row, measured with
    the standard preset; estimates alone use it.
    """

    name: str
    title: str
    network: Network
    step: Callable[[ConstraintSet], Step] = Projection
    source: Source = Source.FORMULA
    budget: Callable[[Preset], Budgets] = lambda preset: preset.plain
    each_layer: bool = False
    wide: bool = False
    anchors: bool = False
    needs_manifold: bool = False
    ours: bool = False
    asked: bool = False
    factor: float = 1.0

    def knobs(self, dataset: str) -> dict:
        """The numbers of models.py that shape the row's blocks: part of a run's name, so that a change makes a new run."""
        if self.anchors:
            return {"anchors": ANCHORS, "width": WIDTH.get(dataset)}
        if self.wide:
            return models.wide_blocks(dataset in WIDTH)
        return {"heads": HEADS, "width": WIDTH[dataset]} if dataset in WIDTH else {}

    def build(self, pairs: Pairs, depth: int, learned: ConstraintSet | None = None) -> nn.Module:
        """A fresh network of this row. learned: the set it projects on, where that is learned."""
        if self.source is not Source.FORMULA and learned is None:
            raise ValueError(f"{self.title} asked for the set that was learned, got none. Pass learned=M.")
        tokens, width = bool(pairs.tokens), WIDTH.get(pairs.name, 256)
        wide = models.wide_blocks(tokens) if self.wide else None
        learned = None if self.source is Source.FORMULA else learned
        shape = Shape(pairs.set, tokens, width, wide, anchors=len(models.anchors(pairs)), learned=learned)
        return self.network(shape, depth)

    def problem(self, pairs: Pairs, depth: int = 4, learned: ConstraintSet | None = None) -> Problem:
        """What the row learns on a dataset. depth: of members that do not name one."""
        (x, y), (x_val, y_val) = pairs["train"], pairs["val"]

        def fresh(depth: int = depth) -> nn.Module:
            return self.build(pairs, depth, learned)

        if not self.anchors:
            return Problem(fresh, x, y, x_val, y_val, mse, _itself)
        mixture = AnchorMixture(nn.Identity(), models.anchors(pairs))
        return Problem(fresh, x, mixture.label(y), x_val, y_val, models.anchor_error, mixture.read)


def _itself(output: Tensor) -> Tensor:
    return output


PAPER = (
    Row("regular", "Regular", models.regular, step=unconstrained),
    Row("proj-iaa", "Proj IAA", models.projected_layers, each_layer=True, factor=3.0),
    Row("exp-iaa", "Exp IAA", models.exponential_layers, models.exponential, each_layer=True, needs_manifold=True, factor=5.0),
    Row(
        "flow-iaa",
        "Flow IAA",
        models.flow_layers,
        step=unconstrained,
        source=Source.FLOW,
        budget=lambda preset: preset.flow_layers,
        each_layer=True,
    ),
    Row("prob", "Prob", models.anchored, step=unconstrained, anchors=True, factor=2.2),
    Row("proj-faa", "Proj FAA", models.projected_output, factor=1.4),
    Row("exp-faa", "Exp FAA", models.exponential_output, models.exponential, needs_manifold=True, factor=1.7),
    Row(
        "flow-faa",
        "Flow FAA",
        models.projected_output,
        step=unconstrained,
        source=Source.FLOW,
        budget=lambda preset: preset.flow,
    ),
)


def _wide(name: str, title: str, network: Network, **more) -> Row:
    return Row(name, title, network, budget=lambda preset: preset.wide, wide=True, ours=True, **more)


def _fitted(name: str, title: str, network: Network, **more) -> Row:
    """Fitted sets are dear in training: such a row is trained on request."""
    shared = {"step": unconstrained, "source": Source.FIT, "ours": True, "asked": True}
    return Row(name, title, network, budget=lambda preset: preset.fit, **shared, **more)


OURS = (
    _wide("wide-faa", "Wide FAA", models.projected_output, factor=4.0),
    _wide("wide-iaa", "Wide IAA", models.projected_layers, each_layer=True, factor=6.0),
    _fitted("fit-iaa", "Fit IAA", models.projected_layers, each_layer=True),
    _fitted("fit-faa", "Fit FAA", models.projected_output),
)
ROWS: dict[str, Row] = {row.name: row for row in (*PAPER, *OURS)}
FLOW_ROWS = tuple(row.name for row in PAPER if row.source is Source.FLOW)
