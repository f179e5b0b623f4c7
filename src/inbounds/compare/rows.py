"""Which schemes and tasks the table has, as data; names become objects here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from .. import schemes as ways
from ..problems import Task, arm, control, curved, dispatch, power_flow, quadratic
from ..problems.quadratic import dependent_variables
from ..schemes import Scheme
from ..train.training import built

WIDTH, DEPTH = 200, 2  # of the network: units of a hidden layer, and how many of them


@dataclass(frozen=True)
class Settings:
    """How a scheme's authors train it: so many epochs at a constant rate, net(inputs, outputs) as the backbone."""

    epochs: int
    batch: int
    rate: float
    net: Callable[[int, int], nn.Module]


@dataclass(frozen=True)
class Row:
    """A scheme of the table.

    make(net, task) is the module. cost: a guess of its training time, in that of the cheapest. form: a number that is raised when
    the scheme's formula changes, so that runs of the old one are not taken for runs of the new one. how: settings of the authors,
    where the equal budget is not meant.
    """

    name: str
    title: str
    make: Callable[[nn.Module, Task], Scheme]
    cost: float = 1.0
    form: int = 1
    how: Settings | None = None

    def build(self, task: Task, seed: int) -> Scheme:
        """A fresh scheme around a backbone of DEPTH hidden layers, in float64. Raises where the scheme does not fit the task."""
        x = task.part("train")[:2]
        size = self.make(nn.Identity(), task).size(task.M.given(x))
        net = self.how.net if self.how is not None else backbone
        scheme = cast(Scheme, built(lambda: self.make(begun(net(x.shape[-1], size), task, size), task), seed)).double().eval()
        with torch.no_grad():
            scheme(x)
        return scheme.train()


def backbone(inputs: int, outputs: int) -> nn.Module:
    """The same network for all: linear maps with ReLU between them."""
    sizes = [inputs, *[WIDTH] * DEPTH]
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(WIDTH, outputs))


class Near(nn.Module):
    """start + scale u: raw outputs near a point, where 0 is none that the task knows what to do with."""

    start: Tensor

    def __init__(self, start: Tensor, scale: float):
        super().__init__()
        self.scale = scale
        self.register_buffer("start", start, persistent=False)

    def forward(self, u: Tensor) -> Tensor:
        return self.start + self.scale * u


def begun(net: nn.Module, task: Task, size: int) -> nn.Module:
    """The backbone, with its outputs near the start of the task where it names one."""
    return net if task.start is None or len(task.start) != size else nn.Sequential(net, Near(task.start, task.scale))


def kaiming(inputs: int, outputs: int, normalised: bool) -> nn.Module:
    """The backbone of DC3's and HardNet's repositories: normal weights; DC3's with batch normalisation and dropout of 20 %."""
    sizes = [inputs, *[WIDTH] * DEPTH]
    layers = list[nn.Module]()
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Dropout(0.2)] if normalised else [nn.Linear(a, b), nn.ReLU()]
    layers.append(nn.Linear(WIDTH, outputs))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
    return nn.Sequential(*layers)


def plain(scheme: Callable[..., Scheme], **knobs) -> Callable[[nn.Module, Task], Scheme]:
    """A scheme that knows the set alone."""
    return lambda net, task: scheme(net, task.M, **knobs)


def centered(scheme: Callable[..., Scheme]) -> Callable[[nn.Module, Task], Scheme]:
    """A scheme that needs a point inside."""

    def make(net: nn.Module, task: Task) -> Scheme:
        if task.center is None:
            raise TypeError(f"{getattr(scheme, '__name__', scheme)} needs a point inside, and nobody knows one of {task.title}.")
        return scheme(net, task.M, task.center)

    return make


def chosen_by_authors(scheme: Callable[..., Scheme], order: str = "dc3", **knobs) -> Callable[[nn.Module, Task], Scheme]:
    """A scheme whose dependent variables are those of the authors' data set, drawn and not chosen by pivoting."""
    fits, title = ("qp", "the convex QP of DC3") if order == "dc3" else ("sine-hardnet", "HardNet's QP with sine")

    def make(net: nn.Module, task: Task) -> Scheme:
        if task.name != fits:
            raise TypeError(f"These settings of its authors are for {title}, not for {task.title}.")
        return scheme(net, task.M, dependent=dependent_variables(order), **knobs)

    return make


SCHEMES = {
    row.name: row
    for row in (
        Row("projection", "projection (ours)", lambda net, task: ways.Projected(net, task.M, task.pull), 4),
        Row("hardnet", "HardNet-Aff", plain(ways.HardNet), form=2),
        Row("rayen", "RAYEN", centered(ways.Rayen)),
        Row("gauge", "gauge map", centered(ways.GaugeMap)),
        Row("mixture", "Prob (anchors)", centered(ways.Mixture)),
        Row("penalty", "penalty only", plain(ways.Penalty), 1.5),
        Row("dc3", "DC3", plain(ways.DC3), 2),
        Row("repair", "E2ELR repair", plain(ways.Repair)),
        Row("ray-scaling", "ray scaling (ours)", centered(ways.Scaled), 5),
        Row("splitting", "splitting (Pi-net type)", plain(ways.Splitting), 8),
        Row("optnet", "OptNet (QP layer)", plain(ways.OptNet), 15),
    )
}
_DC3 = Settings(1_000, 200, 1e-4, partial(kaiming, normalised=True))
_HARDNET = Settings(1_000, 500, 1e-3, partial(kaiming, normalised=False))
_HARDNET_SINE = Settings(1_000, 500, 1e-3, partial(kaiming, normalised=True))  # as DC3's network, they say
AUTHORS = {
    row.name: row
    for row in (
        Row("dc3-authors", "DC3, its authors' settings", chosen_by_authors(ways.DC3, rate=1e-7), 1.5, how=_DC3),
        Row("hardnet-authors", "HardNet-Aff, its authors' settings", chosen_by_authors(ways.HardNet), 1.5, how=_HARDNET),
        Row(
            "hardnet-published",
            "HardNet-Aff, as its authors published it",
            chosen_by_authors(ways.HardNet, "hardnet"),
            1.5,
            how=_HARDNET_SINE,
        ),
        Row("penalty-authors", "penalty only, settings of DC3's authors", plain(ways.Penalty, weight=100.0), how=_DC3),
    )
}
TASKS: dict[str, Callable[[], Task]] = {
    "qp": quadratic,
    "sine": partial(quadratic, sine=True),
    "sine-hardnet": partial(quadratic, sine=True, order="hardnet"),
    "dispatch": dispatch,
    "control": control,
    "qcqp": curved,
    "socp": partial(curved, cones=True),
    "acopf14": partial(power_flow, "case14"),
    "acopf30": partial(power_flow, "case30"),
    "arm": arm,
}

USUAL = ("qp", "sine", "dispatch", "control")  # a projection on curved sets takes a fraction of a second: on request alone


SOLVED = {"qp": 1_000, "dispatch": 200, "control": 200}  # test inputs that are solved
MANY = 100  # the same for all others


def solved(tasks: list[str], rows: int | None) -> dict[str, int]:
    """How many test inputs of every task are solved: `rows`, or the usual number."""
    return {name: rows or SOLVED.get(name, MANY) for name in tasks}


@cache
def open_task(name: str) -> Task:
    """The task of a name, made once."""
    return TASKS[name]()
