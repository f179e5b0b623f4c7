"""Training of a stack, one epoch at a time; it can stop after any epoch and go on bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..data.pairs import generator
from .layers import LayeredStack, layered
from .logs import Log
from .optimizer import Plateau, StackedAdamW
from .stack import Loss, Stack


@dataclass(frozen=True)
class Protocol:
    """The paper's by default. `every`: epochs between evaluations; `patience`: epochs without progress before lr falls.

    For short runs: `batches` caps the batches of an epoch, `val` the validation rows looked at.
    """

    epochs: int = 10_000
    batch: int = 500
    lr: float = 1e-3
    every: int = 100
    patience: int = 1_000
    factor: float = 0.5
    batches: int | None = None
    val: int | None = None

    def __post_init__(self):
        for name in ("epochs", "batch", "every", "patience", "batches", "val"):
            value = getattr(self, name)
            if value is None and name in ("batches", "val"):
                continue
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"Protocol asked for a whole number {name} >= 1, got {value!r}.")
        if not self.lr > 0:
            raise ValueError(f"Protocol asked for lr > 0, got {self.lr!r}.")


@dataclass(frozen=True)
class Member:
    """One model of a stack; lr: the protocol's by default; depth: what `build` is called with, nothing by default."""

    seed: int
    weight_decay: float = 0.0
    lr: float | None = None
    depth: int | None = None


@dataclass(frozen=True)
class Problem:
    """What a stack learns: outputs of `build()` on x against `target` under `loss`; `read` makes an output a prediction of y.

    Members with a depth are made by `build(depth)`. Validation is the mean squared error of read(output) against y, whatever the
    loss is.
    """

    build: Callable[..., nn.Module]
    x: Tensor
    target: Tensor
    x_val: Tensor
    y_val: Tensor
    loss: Loss
    read: Callable[[Tensor], Tensor]


def mse(output: Tensor, y: Tensor) -> Tensor:
    """Mean over rows and coordinates: (K, rows, ...) -> (K,)."""
    if output.shape != y.shape:
        raise ValueError(f"The loss asked for outputs of the targets' shape {tuple(y.shape[1:])}, got {tuple(output.shape[1:])}.")
    return (output - y).square().mean(tuple(range(1, y.dim())))


def built(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """build() with its random numbers from the seed, and nobody else's touched."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def member(problem: Problem, m: Member) -> nn.Module:
    """The model that a member starts from."""
    return built(problem.build if m.depth is None else lambda: problem.build(m.depth), m.seed)


def _check(p: Problem) -> None:
    for split, a, b in (("training", p.x, p.target), ("validation", p.x_val, p.y_val)):
        if not len(a) or len(a) != len(b):
            raise ValueError(f"Problem asked for as many {split} inputs as targets, at least one, got {len(a)} and {len(b)}.")


class Feed:
    """Training rows in every member's own order, a permutation from its seed and the epoch alone.

    Members of one seed see the same rows: they are gathered once. A layered stack gets planes (K, components, rows).
    """

    def __init__(self, stack: LayeredStack | Stack, problem: Problem, seeds: Sequence[int]):
        self.seeds = list(dict.fromkeys(seeds))
        self.which = torch.tensor([self.seeds.index(s) for s in seeds])
        self.rows, self.target, self.shape = len(problem.x), problem.target, tuple(problem.target.shape[1:])
        self.planes = stack.prepare(problem.x) if isinstance(stack, LayeredStack) else None
        self.x = problem.x
        if self.planes is not None and self.shape:
            self.target = problem.target.flatten(1).mT.contiguous()  # (components, N)

    def batches(self, epoch: int, rows: int, batch: int) -> Iterator[tuple]:
        """(x, target) of every minibatch: x as the stack's `gradients` wants it, target (K, rows, ...)."""
        orders = [torch.randperm(self.rows, generator=generator(s, stream=1_000 + epoch))[:rows] for s in self.seeds]
        order = torch.stack(orders)  # (seeds, rows)
        if self.planes is None:
            x, target = self.x[order][self.which], self.target[order][self.which]
            yield from zip(x.split(batch, 1), target.split(batch, 1), strict=True)
            return
        x = [self._planes(p, order) for p in self.planes]
        target = self._planes(self.target, order) if self.shape else self.target[order]
        for i in range(0, rows, batch):
            y = self._each(target[..., i : i + batch])
            yield tuple(self._each(p[..., i : i + batch]) for p in x), y.mT.unflatten(-1, self.shape) if self.shape else y

    @staticmethod
    def _planes(p: Tensor, order: Tensor) -> Tensor:
        """(components, N) -> (seeds, components, rows)."""
        return torch.stack([p.index_select(1, o) for o in order])

    def _each(self, p: Tensor) -> Tensor:
        """(seeds, ...) -> (K, ...)."""
        return p.expand(len(self.which), *p.shape[1:]) if len(self.seeds) == 1 else p[self.which]


class StackTraining:
    """K = len(members) models. Equal to K separate runs: own start, data order, decay, schedule, best checkpoint.

    Layered networks (see layers.py) of different depths share a stack, the deepest members first. how: see Stack; "auto" takes
    one sweep over all layers where it can. compile: see LayeredStack and torch.compile. log: called with every line of metrics,
    see logs.py. (Dropout, if any, draws one stream for the stack.)
    """

    def __init__(
        self,
        problem: Problem,
        protocol: Protocol,
        members: Sequence[Member],
        how: str = "auto",
        compile: bool = False,
        log: Log | None = None,
    ):
        self.problem, self.protocol, self.members, self.log = problem, protocol, list(members), log
        _check(problem)
        models = [member(problem, m) for m in members]
        self.stack: LayeredStack | Stack
        if how == "layered" or (how == "auto" and models and layered(models)):
            self.stack = LayeredStack(models, compile)
        else:
            self.stack = Stack(models, how)
        self.feed = Feed(self.stack, problem, [m.seed for m in members])
        theta = self.stack.theta
        decay = torch.tensor([m.weight_decay for m in members], dtype=theta.dtype)
        lr = torch.tensor([protocol.lr if m.lr is None else m.lr for m in members], dtype=theta.dtype)
        self.optimizer = StackedAdamW(theta, lr, decay)
        self.plateau = Plateau(len(members), protocol.factor, protocol.patience)
        self.epoch, self.epochs = 0, protocol.epochs
        self.extensible = protocol.epochs % protocol.every == 0  # a longer run makes every evaluation of this one
        self.best, self.best_theta = torch.full((len(members),), math.inf, dtype=torch.float64), theta.clone()
        self.best_epoch = torch.zeros(len(members), dtype=torch.int64)
        self.diverged = torch.full((len(members),), -1, dtype=torch.int64)  # the epoch, -1 for never
        self.value = torch.full((len(members),), math.nan)
        if compile and isinstance(self.stack, Stack):
            self.stack.net.compile(dynamic=False)

    @property
    def done(self) -> bool:
        """Whether all epochs are done, or every model is frozen."""
        return self.epoch >= self.epochs or bool(self.optimizer.frozen.all())

    @property
    def steps(self) -> int:
        """The number of optimiser steps so far."""
        return self.epoch * len(range(0, self._rows, self.protocol.batch))

    @property
    def _rows(self) -> int:
        """Training rows of an epoch."""
        n, protocol = len(self.problem.x), self.protocol
        return n if protocol.batches is None else min(n, protocol.batches * protocol.batch)

    def advance(self) -> dict | None:
        """One epoch. Returns a line of metrics when the models were evaluated."""
        self.stack.train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1_000_003 * self.members[0].seed + self.epoch)
            for xb, yb in self.feed.batches(self.epoch, self._rows, self.protocol.batch):
                self._step(xb, yb)
        self.epoch += 1
        if self.epoch % self.protocol.every == 0 or self.epoch == self.epochs:
            line = self._evaluate()
            if self.log is not None:
                self.log(line)
            return line
        return None

    def _step(self, x, target: Tensor) -> None:
        self.value, grad = self.stack.gradients(x, target, self.problem.loss)
        bad = ~torch.isfinite(self.value + grad.sum(1)) & ~self.optimizer.frozen
        if bad.any():
            self.optimizer.freeze(bad)
            self.diverged[bad] = self.epoch
        self.optimizer.step(grad)

    @torch.no_grad()
    def _evaluate(self) -> dict:
        self.stack.train(False)
        loss = self.validation()
        loss = torch.where(self.optimizer.frozen | loss.isnan(), math.inf, loss)
        better = loss < self.best
        self.best = torch.where(better, loss, self.best)
        self.best_theta[better] = self.stack.theta[better]
        self.best_epoch[better] = self.epoch
        since = self.epoch % self.protocol.every or self.protocol.every
        self.plateau.step(loss, since, self.optimizer.lr)
        return {"epoch": self.epoch, "train": self.value.tolist(), "val": loss.tolist(), "lr": self.optimizer.lr.tolist()}

    def validation(self) -> Tensor:
        """Mean squared error of the predictions on the validation split, (K,) in float64."""
        total = torch.zeros(len(self.members), dtype=torch.float64)
        x_val, y_val = self.problem.x_val[: self.protocol.val], self.problem.y_val[: self.protocol.val]
        for x, y in zip(x_val.split(2_000), y_val.split(2_000), strict=True):
            out = self.problem.read(self.stack.outputs(x.expand(len(self.members), *x.shape)))
            total += len(x) * mse(out.double(), y.double().expand(len(self.members), *y.shape))
        return total / len(x_val)

    def model(self, k: int, best: bool = True) -> nn.Module:
        """Model k by itself, from its best checkpoint."""
        net = member(self.problem, self.members[k])
        net.load_state_dict(self.stack.tensors(k, self.best_theta if best else None), strict=False)
        return net.eval()

    def state(self) -> dict[str, Tensor]:
        """Everything that changes, by name."""
        return {
            "theta": self.stack.theta,
            "best": self.best,
            "best_theta": self.best_theta,
            "best_epoch": self.best_epoch,
            "diverged": self.diverged,
            "epoch": torch.tensor(self.epoch),
            "value": self.value,
            **self.optimizer.state(),
            **self.plateau.state(),
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        self.stack.theta.copy_(state["theta"])
        for name in ("best", "best_theta", "best_epoch", "diverged", "value"):
            setattr(self, name, state[name].clone())
        self.epoch = int(state["epoch"])
        self.optimizer.restore(state)
        self.plateau.restore(state)
