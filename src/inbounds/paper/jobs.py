"""The kinds of work behind the table: each advances epoch by epoch and can be put away after any of them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable

import torch
from torch import Tensor

from ..data.pairs import Pairs
from ..learned import FlowTraining, LearnedSet, fit
from ..train.store import Store
from ..train.training import Member, Protocol, StackTraining, mse
from ..train.work import Job
from .cells import choose, chosen_flow, learned_set, trained_net
from .datasets import open_pairs
from .distil import Distillation
from .names import named
from .rows import ROWS, Source


class VelocityJob:
    """A velocity network on the inputs of the training split. Of flocks it sees single agents."""

    def __init__(self, config: dict, pairs: Pairs, store: Store):
        knobs = {k: v for k, v in config.items() if k not in ("kind", "data")}
        train, val = (pairs[split][0].reshape(-1, *pairs.set.shape) for split in ("train", "val"))
        self.training = FlowTraining(train, val, **knobs)
        self.epochs, self.state, self.restore = self.training.epochs, self.training.state, self.training.restore

    @property
    def epoch(self) -> int:
        """The number of epochs that are done."""
        return self.training.epoch

    @property
    def done(self) -> bool:
        """Whether training is over."""
        return self.training.done

    def advance(self) -> dict:
        """One epoch more, and its validation loss."""
        loss = self.training.advance()
        return {"epoch": self.epoch, "val": loss}

    def finish(self) -> tuple[dict, dict[str, Tensor]]:
        """The best network; nothing but its absence if training diverged."""
        t = self.training
        if not math.isfinite(t.best):
            return {"val": None, "epoch": t.epoch}, {}
        flow = t.flow()
        return {"val": t.best, "epoch": t.best_epoch, "spec": flow.spec(), "radius": t.radius}, flow.net.state_dict()


class DistilJob(Distillation):
    """The chosen flow in one evaluation of a small network."""

    def __init__(self, config: dict, pairs: Pairs, store: Store):
        flow, radius = chosen_flow(config["velocities"], pairs, store, euler=40)
        knobs = {k: config[k] for k in ("epochs", "far", "points") if k in config}
        super().__init__(flow, pairs["train"][0].reshape(-1, *pairs.set.shape), radius, **knobs)

    def state(self) -> dict[str, Tensor]:
        return {"epoch": torch.tensor(0)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Half a minute of work: nothing is kept half-way."""

    def finish(self) -> tuple[dict, dict[str, Tensor]]:
        net = {k: getattr(self.net, k) for k in ("size", "width", "depth", "dropout")}
        return {"error": self.error, "radius": self.radius, "net": net}, self.net.state_dict()


class FitJob:
    """`inbounds.fit` on the targets of the training split, single agents of flocks."""

    def __init__(self, config: dict, pairs: Pairs, store: Store):
        self.samples = pairs["train"][1].reshape(-1, *pairs.set.shape)[: config["samples"]]
        self.epoch, self.epochs = 0, 1
        self.found: LearnedSet

    @property
    def done(self) -> bool:
        return self.epoch >= self.epochs

    def advance(self) -> dict:
        self.epoch, self.found = 1, fit(self.samples)
        return {"epoch": 1, "title": self.found.info["title"]}

    def state(self) -> dict[str, Tensor]:
        return {"epoch": torch.tensor(0)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Nothing is kept half-way."""

    def finish(self) -> tuple[dict, dict[str, Tensor]]:
        return {"header": self.found.header()}, self.found.tensors()


COMPILED = 20_000  # steps from which on a minute or two of compilation pays: the steps on SO(3) and SE(3) become six times faster


def compiler() -> str | None:
    """A C++ compiler, which torch.compile needs."""
    return next((path for name in ("g++", "clang++", "c++") if (path := shutil.which(name))), None)


class StackJob(StackTraining):
    """All depths, seeds and weight decays of a row; compile: where it pays, unless told."""

    def __init__(self, config: dict, pairs: Pairs, store: Store, compile: bool | None = None):
        problem = named(config["row"], ROWS).problem(pairs, learned=learned_set(config, pairs, store))
        members = [Member(seed, wd, depth=depth) for seed, wd, depth in config["members"]]
        protocol = Protocol(**config["protocol"])
        steps = protocol.epochs * min(math.ceil(len(problem.x) / protocol.batch), protocol.batches or 10**9)
        if compile is None:
            compile = not pairs.tokens and steps >= COMPILED and compiler() is not None
        super().__init__(problem, protocol, members, compile=compile)

    def finish(self) -> tuple[dict, dict[str, Tensor]]:
        result = {
            "val": [v if math.isfinite(v) else None for v in self.best.tolist()],
            "epoch": self.best_epoch.tolist(),
            "diverged": self.diverged.tolist(),
            "steps": self.steps,
            "parameters": [sum(t.numel() for t in self.stack.tensors(k).values()) for k in range(len(self.members))],
        }
        return result, {"theta": self.best_theta}


class FinalJob:
    """The chosen depth and weight decay on the test split, a seed at a time."""

    METRICS = ("mse", "mse_on_set", "violation_mean", "violation_max")

    def __init__(self, config: dict, pairs: Pairs, store: Store):
        self.config, self.pairs = config, pairs
        self.choice = choose(config, store)
        self.trained = [store.run(stack).result or {} for stack, _ in self.choice.places]
        self.theta = [store.run(stack).weights()["theta"][k] for stack, k in self.choice.places]
        self.epoch, self.epochs = 0, len(self.theta)
        self.found = torch.full((self.epochs, len(self.METRICS)), math.nan, dtype=torch.float64)
        row, stack = named(config["row"], ROWS), self.choice.places[0][0]
        self.problem = row.problem(pairs, learned=learned_set(stack, pairs, store, test=True))
        self.split = "large" if pairs.synthetic and row.source is not Source.FLOW else "test"
        x, y = pairs[self.split]
        self.x, self.y = x[: config["rows"]], y[: config["rows"]]

    @property
    def done(self) -> bool:
        return self.epoch >= self.epochs

    @torch.no_grad()
    def advance(self) -> dict:
        i, (stack, k) = self.epoch, self.choice.places[self.epoch]
        self.epoch += 1
        if self.trained[i]["val"][k] is None:  # it diverged before its first evaluation: there is no model to test
            return {"epoch": self.epoch}
        net = trained_net(self.problem, stack, k, self.theta[i])
        predicted = torch.cat([self.problem.read(net(x[None]))[0] for x in self.x.split(1_000)])
        self.found[self.epoch - 1] = torch.tensor(self._measure(predicted), dtype=torch.float64)
        return {"epoch": self.epoch, **dict(zip(self.METRICS, self.found[self.epoch - 1].tolist(), strict=True))}

    def _measure(self, predicted: Tensor) -> list[float]:
        """The metrics of a float32 prediction, computed in float64."""
        p, y, M = predicted.double(), self.y.double(), self.pairs.set
        violation = M.violation(p)
        return [float(v) for v in (mse(p[None], y[None]), mse(M.project(p)[None], y[None]), violation.mean(), violation.max())]

    def state(self) -> dict[str, Tensor]:
        return {"found": self.found, "epoch": torch.tensor(self.epoch)}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.found, self.epoch = state["found"].clone(), int(state["epoch"])

    def finish(self) -> tuple[dict, dict[str, Tensor]]:
        rows = [k for _, k in self.choice.places]
        stack, trained = self.choice.places[0][0], list(zip(self.trained, rows, strict=True))
        result = {
            "row": self.config["row"],
            "dataset": self.pairs.name,
            "depth": self.choice.depth,
            "weight_decay": self.choice.decay,
            "seeds": [s["members"][k][0] for s, k in self.choice.places],
            "diverged": sum(r["diverged"][k] >= 0 for r, k in trained),
            "val": [r["val"][k] for r, k in trained],
            "epoch": [r["epoch"][k] for r, k in trained],
            "steps": self.trained[0]["steps"],
            "batch": stack["protocol"]["batch"],
            "parameters": self.trained[0]["parameters"][rows[0]],
            "split": self.split,
            "rows": len(self.x),
            **{name: self.found[:, i].tolist() for i, name in enumerate(self.METRICS)},
        }
        return result, {"found": self.found}


JOBS: dict[str, Callable[[dict, Pairs, Store], Job]] = {
    "velocity": VelocityJob,
    "distil": DistilJob,
    "fit": FitJob,
    "stack": StackJob,
    "test": FinalJob,
}


def open_job(config: dict, store: Store) -> Job:
    """The work that a config of units.py describes."""
    return named(config["kind"], JOBS)(config, open_pairs(config["data"], store), store)
