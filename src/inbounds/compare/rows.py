"""Which schemes and tasks the table has, as data; names become objects here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import cast

import torch
from torch import nn

from .. import schemes as ways
from ..problems import Task, arm, control, dispatch, quadratic
from ..schemes import Scheme
from ..train.training import built

WIDTH, DEPTH = 200, 2  # of the network: units of a hidden layer, and how many of them


@dataclass(frozen=True)
class Row:
    """A scheme of the table.

    make(net, task) is the module. cost: a guess of its training time, in that of the cheapest. form: a number that is raised when
    the scheme's formula changes, so that runs of the old one are not taken for runs of the new one.
    """

    name: str
    title: str
    make: Callable[[nn.Module, Task], Scheme]
    cost: float = 1.0
    form: int = 1

    def build(self, task: Task, seed: int) -> Scheme:
        """A fresh scheme around a backbone of DEPTH hidden layers, in float64. Raises where the scheme does not fit the task."""
        x = task.part("train")[:2]
        size = self.make(nn.Identity(), task).size(task.M.given(x))
        scheme = cast(Scheme, built(lambda: self.make(backbone(x.shape[-1], size), task), seed)).double()
        with torch.no_grad():
            scheme(x)
        return scheme


def backbone(inputs: int, outputs: int) -> nn.Module:
    """The same network for all: linear maps with ReLU between them."""
    sizes = [inputs, *[WIDTH] * DEPTH]
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(WIDTH, outputs))


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


SCHEMES = {
    row.name: row
    for row in (
        Row("projection", "projection (ours)", plain(ways.Projected), 4),
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
TASKS: dict[str, Callable[[], Task]] = {
    "qp": quadratic,
    "sine": partial(quadratic, sine=True),
    "dispatch": dispatch,
    "control": control,
    "arm": arm,
}

USUAL = tuple(name for name in TASKS if name != "arm")  # a projection on the arm's curves takes seconds a step: on request alone


@cache
def open_task(name: str) -> Task:
    """The task of a name, made once."""
    return TASKS[name]()
