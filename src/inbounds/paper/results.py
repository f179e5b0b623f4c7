"""Trained cells come back: `open_cell` gives the network that the table chose, its curves and predictions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn

from ..data.pairs import Pairs
from ..kernels.vectors import norm
from ..nets import FAA, IAA
from ..train.store import Run, Store, key
from ..train.training import Problem
from .cells import Choice, choose, learned_set, trained_net
from .datasets import DATASETS, open_pairs
from .names import named
from .presets import PRESETS
from .rows import ROWS


@dataclass(frozen=True)
class Layers:
    """Hidden states h_0, h_1, ..., the last of which is the prediction: (states, *batch, *shape).

    violation: of the true set, (states, *batch); movement: |h_{i+1} - h_i|, (states - 1, *batch).
    """

    states: Tensor
    violation: Tensor
    movement: Tensor


class TrainedCell:
    """A row of the table on a dataset, trained. `config`: what was run; `result`: what the table shows of it, seed by seed."""

    def __init__(self, config: dict, store: Store):
        self.config, self.store = config, store
        self.dataset, self.row = config["data"]["name"], config["row"]
        self.result: dict = store.run(config).result or {}

    def __repr__(self) -> str:
        r = self.result
        return f"TrainedCell({self.dataset} {self.row}, depth {r['depth']}, {len(r['seeds'])} seeds x {r['steps']:,} steps)"

    @cached_property
    def choice(self) -> Choice:
        """The depth and weight decay that the table chose, and where its seeds are."""
        return choose(self.config, self.store)

    @cached_property
    def data(self) -> Pairs:
        """The dataset; of shipped results it is made again."""
        try:
            return open_pairs(self.config["data"], self.store)
        except FileNotFoundError:
            sizes = {} if self.dataset == "protein" else {"large": named("paper", PRESETS).large}
            return named(self.dataset, DATASETS).make(sizes, seed=0)

    @cached_property
    def _problem(self) -> Problem:
        stack = self.choice.places[0][0]
        learned = learned_set(stack, self.data, self.store, test=True)
        return named(self.row, ROWS).problem(self.data, learned=learned)

    @cached_property
    def nets(self) -> list[nn.Module]:
        """The network of every seed, ready for inference."""
        found = []
        for stack, k in self.choice.places:
            found.append(trained_net(self._problem, stack, k, self.store.run(stack).weights()["theta"][k]))
        return found

    @property
    def net(self) -> nn.Module:
        """The network of the first seed, of the depth and weight decay that the table chose."""
        return self.nets[0]

    @property
    def curves(self) -> list[dict[str, list]]:
        """For every seed what its evaluations measured: {"epoch": [...], "train": [...], "val": [...], "lr": [...]}."""
        return [_curve(self.store.run(stack), k) for stack, k in self.choice.places]

    @torch.no_grad()
    def predict(self, x: Tensor, seed: int = 0) -> Tensor:
        """Predictions for x (n, *shape) by the seed's network."""
        net = self.nets[seed]
        return torch.cat([self._problem.read(net(part[None]))[0] for part in x.split(1_000)])

    @torch.no_grad()
    def layers(self, x: Tensor, seed: int = 0) -> Layers:
        """Every hidden state on the way to predict(x), how far it is from the set and how far it moved."""
        states = _states(self.nets[seed], x)
        predicted = self.predict(x, seed)
        if states[-1].shape != predicted.shape or not torch.equal(states[-1], predicted):
            states.append(predicted)
        h, M = torch.stack(states), self.data.set
        return Layers(h, M.violation(h.double()), norm(M._flat(h[1:] - h[:-1])))


def _states(net: nn.Module, x: Tensor) -> list[Tensor]:
    """Hidden states of the layers inside a network; what follows them (a step, a linear map) is left to the caller."""
    if isinstance(net, IAA):
        return net.states(x)
    if isinstance(net, FAA):
        return _states(net.net, x)
    if isinstance(net, nn.Sequential):
        return _states(net[0], x)
    raise TypeError(f"layers() asked for a network of layers (IAA, or FAA around one), got {type(net).__name__}.")


def _curve(run: Run, k: int) -> dict[str, list]:
    lines = [json.loads(text) for text in (run.folder / "metrics.jsonl").read_text().splitlines()]
    pick = {name: [line[name][k] for line in lines] for name in ("train", "val", "lr")}
    return {"epoch": [line["epoch"] for line in lines], **pick}


def open_store(folder: str | Path) -> Store:
    """A run store, or a folder of shipped runs such as results/paper."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} asked for, not found. Give a folder that inbounds table wrote, e.g. runs/quick.")
    return Store(folder) if (folder / "runs").is_dir() else Store(folder, shipped=folder)


def open_cells(folder: str | Path) -> list[TrainedCell]:
    """Every finished cell of a run store, in the order of the table.

    Where several trainings of a cell are there, it is the longest one, then the one of most seeds.
    """
    store = open_store(folder)
    best: dict[tuple[str, str], TrainedCell] = {}
    for config in store.configs():
        if config.get("kind") == "test" and store.run(config).done:
            cell = TrainedCell(config, store)
            place = (cell.dataset, cell.row)
            best[place] = max(best.get(place, cell), cell, key=_length)
    return [best[place] for place in product(DATASETS, ROWS) if place in best]


def open_cell(folder: str | Path, dataset: str, row: str) -> TrainedCell:
    """The finished cell of a run store; where several trainings of it are there, the longest one, then the one of most seeds.

    cell = open_cell("runs/standard", "sphere", "proj-faa")
    cell.net(x), cell.predict(x), cell.curves, cell.layers(x), cell.config
    """
    for what, name, known in (("dataset", dataset, DATASETS), ("row", row, ROWS)):
        if name not in known:
            raise ValueError(f"open_cell asked for a {what} among {', '.join(known)}, got {name!r}.")
    found = open_cells(folder)
    mine = [c for c in found if (c.dataset, c.row) == (dataset, row)]
    if not mine:
        there = ", ".join(f"{c.dataset} {c.row}" for c in found)
        raise FileNotFoundError(f"{folder} has no finished cell {dataset} {row}. It has: {there or 'none'}.")
    return mine[0]


def _length(cell: TrainedCell) -> tuple:
    return cell.result["steps"], len(cell.result["seeds"]), key(cell.config)
