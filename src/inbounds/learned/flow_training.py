"""Flow matching: how a velocity network learns from samples, one epoch at a time; how flows are compared; `fit_flow`."""

from __future__ import annotations

import copy
import hashlib
import math
import time
import zlib
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau

from ..core import check_point
from ..kernels.vectors import norm
from .flow import SPEED, Flow, VelocityNet

NEIGHBOURS = 4_000  # samples kept for own times, at most
EPOCHS, BATCHES = 8, 100  # 3 networks x 800 steps: 80 s on one core of 2026 for points of R^3, more samples or not
ALPHAS = (0.25, 0.5, 1.0)  # of the paper: one network for each, and the best denoiser is kept


class FlowTraining:
    """Flow matching as in the paper: v(x_n + v_n t_k, t_k) = v_n in the mean, v_n of length `speed` in random directions.

    T = 2 alpha median |x_n|, of the training points divided by `scale`; t_k = `times` uniform points of [0, T]. New v_n every
    epoch, the same for validation. Halves lr after `patience` epochs without improvement, stops after `stop_after`, keeps the
    best. `batches` caps the minibatches of an epoch.

        training = FlowTraining(train, val)
        while not training.done:
            training.advance()
        M = training.flow()

    On the CPU, in float32. Randomness comes from (seed, epoch) alone: state(), restore() and further epochs give the same bits
    as an uninterrupted run.
    """

    PAIRS = 24_000  # validation pairs at most

    def __init__(
        self,
        train: Tensor,
        val: Tensor,
        *,
        alpha: float = 0.5,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        epochs: int = 2000,
        batch: int = 256,
        patience: int = 100,
        stop_after: int = 1000,
        times: int = 30,
        speed: float = SPEED,
        width: int = 256,
        depth: int = 8,
        dropout: float = 0.1,
        clip: float = 1.0,
        seed: int = 0,
        batches: int | None = None,
        scale: float = 1.0,
    ):
        self.shape, self.scale, self.seed = tuple(torch.as_tensor(train).shape[1:]), float(scale), seed
        self.epochs, self.batch, self.batches, self.stop_after = epochs, batch, batches, stop_after
        self.speed, self.clip = speed, clip
        self._x, held = self._rows("train", train), self._rows("val", val)
        self.T = 2 * alpha * float(norm(self._x.double()).quantile(0.5))
        if not self.T > 0:
            raise ValueError(
                f"FlowTraining asked for T = 2 alpha median|x| > 0, got {self.T} with alpha={alpha}. "
                f"Half of the points or more are at the origin: shift the data."
            )
        self._times = torch.linspace(0, self.T, times)
        with self._randomness("start"):
            self._net = VelocityNet(self._x.shape[1], width, depth, dropout)
        with self._randomness("validation"):
            self._val = self._pairs(held)
        self._adam = torch.optim.AdamW(self._net.parameters(), lr=lr, weight_decay=weight_decay, fused=True)
        self._plateau = ReduceLROnPlateau(self._adam, factor=0.5, patience=patience)
        self._best_net = copy.deepcopy(self._net)
        self.epoch, self.best_epoch, self.loss, self.best = 0, 0, math.inf, math.inf
        knobs = (alpha, lr, weight_decay, batch, patience, times, speed, width, depth, dropout, clip, seed, batches, scale)
        self._key = zlib.crc32(repr((*knobs, tuple(train.shape), tuple(val.shape), f"{self.T:.5g}")).encode())

    def _rows(self, name: str, x: Tensor) -> Tensor:
        """Samples that have been looked at as rows (N, d), in units of scale."""
        check_point(x, self.shape, lambda: f"FlowTraining's {name}")
        if not self.shape or x.dim() != 1 + len(self.shape) or not x.numel():
            raise ValueError(
                f"FlowTraining asked for samples of shape (N, *shape), N >= 1, in {name}, got {tuple(x.shape)}. "
                f"Numbers of a line are x[:, None]."
            )
        if bad := int((~torch.isfinite(x)).flatten(1).any(1).sum()):
            raise ValueError(
                f"FlowTraining asked for finite samples in {name}, but {bad} of {len(x)} rows hold NaN or inf. "
                f"Drop them: x[x.flatten(1).isfinite().all(1)]."
            )
        return (x.detach().cpu().double() / self.scale).float().reshape(len(x), -1)

    @property
    def done(self) -> bool:
        """Whether training is over: all epochs are done, or it has not improved for long, or it has diverged."""
        diverged = self.epoch > 0 and not math.isfinite(self.loss)
        return self.epoch >= self.epochs or self.epoch - self.best_epoch >= self.stop_after or diverged

    @property
    def lr(self) -> float:
        """The learning rate at this point of the schedule."""
        return self._adam.param_groups[0]["lr"]

    @property
    def radius(self) -> float:
        """The longest displacement trained on, in units of the data: speed T scale."""
        return self.speed * self.T * self.scale

    def advance(self) -> float:
        """One epoch; the validation loss after it."""
        if self.done:
            raise RuntimeError(f"FlowTraining is done after {self.epoch} epochs. Call flow(), or start one with more epochs.")
        with self._randomness(self.epoch):
            self._train()
        self.epoch, self.loss = self.epoch + 1, self._validate()
        self._plateau.step(self.loss)
        if self.loss < self.best:
            self.best, self.best_epoch = self.loss, self.epoch
            self._best_net.load_state_dict(self._net.state_dict())
        return self.loss

    def flow(self, samples: Tensor | None = None) -> Flow:
        """The set of the best epoch, in eval mode. With samples of the set, points set out at their own times."""
        if not math.isfinite(self.best):
            raise RuntimeError(f"FlowTraining has no finite validation loss after {self.epoch} epochs. Call advance() first.")
        return Flow(copy.deepcopy(self._best_net), self.shape, self.T, self.scale, samples=samples).eval()

    # --- an epoch ----------------------------------------------------------------------------------------
    def _train(self) -> None:
        self._net.train()
        times = len(self._times)
        v = self._velocities(self._x)
        pairs = torch.randperm(len(v) * times).split(self.batch)  # pair i is point i // times at time i % times
        for pair in pairs[: self.batches]:
            n, t = pair // times, self._times[pair % times]
            target = v[n]
            loss = F.mse_loss(self._net(torch.addcmul(self._x[n], target, t[:, None]), t), target)
            self._adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self._net.parameters(), self.clip)
            self._adam.step()

    @torch.no_grad()
    def _validate(self) -> float:
        self._net.eval()
        chunks = zip(*(s.split(2048) for s in self._val), strict=True)
        return sum(float((self._net(y, t) - v).double().square().sum()) for y, t, v in chunks) / self._val[2].numel()

    def _velocities(self, x: Tensor) -> Tensor:
        u = torch.randn_like(x)
        return self.speed * u / (norm(u)[:, None] + 1e-8)

    def _pairs(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(y, t, v) of all pairs, or of a random PAIRS of them: a stride could meet the same few times only."""
        times, v = len(self._times), self._velocities(x)
        pair = torch.randperm(len(x) * times)[: self.PAIRS]
        n, t = pair // times, self._times[pair % times]
        return x[n] + v[n] * t[:, None], t, v[n]

    @contextmanager
    def _randomness(self, what: int | str):
        """torch's generator, dropout's too, is a function of (seed, what) inside and untouched outside."""
        digest = hashlib.sha256(f"{self.seed}/{what}".encode()).digest()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int.from_bytes(digest[:7]))
            yield

    # --- to disk and back --------------------------------------------------------------------------------
    NUMBERS = ("epoch", "best_epoch", "loss", "best")

    def state(self) -> dict[str, Tensor]:
        """All that restore() needs to go on with the same bits; ready for safetensors."""
        state = {f"net.{k}": w for k, w in self._net.state_dict().items()}
        state |= {f"best.{k}": w for k, w in self._best_net.state_dict().items()}
        for name, p in self._net.named_parameters():
            state |= {f"adam.{name}.{k}": s for k, s in self._adam.state[p].items()}
        numbers = {k: getattr(self, k) for k in self.NUMBERS} | {"lr": self.lr, "key": self._key}
        numbers |= {"plateau.best": self._plateau.best, "plateau.bad": self._plateau.num_bad_epochs}
        state |= {k: torch.tensor(n, dtype=torch.int64 if isinstance(n, int) else torch.float64) for k, n in numbers.items()}
        return {k: s.detach().clone().contiguous() for k, s in state.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on where state() was taken; the arguments must be the same, except epochs and stop_after."""
        if int(state["key"]) != self._key:
            raise ValueError(
                "FlowTraining.restore asked for a state of the same data and arguments (epochs and stop_after may differ), got "
                "another one's. Construct FlowTraining as the run that made it."
            )
        self._net.load_state_dict(_under("net.", state))
        self._best_net.load_state_dict(_under("best.", state))
        for name, p in self._net.named_parameters():
            self._adam.state[p] = {k: s.clone() for k, s in _under(f"adam.{name}.", state).items()}
        for k in self.NUMBERS:
            setattr(self, k, state[k].item())
        self._adam.param_groups[0]["lr"] = state["lr"].item()
        self._plateau.best, self._plateau.num_bad_epochs = state["plateau.best"].item(), int(state["plateau.bad"])


def _under(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): s for k, s in state.items() if k.startswith(prefix)}


def denoising(flow: Flow, points: Tensor, radius: float, generator: torch.Generator | None = None) -> float:
    """mean |P(x + r u) - x|^2 over points x of M; r uniform on [0, radius], u a random direction; P by Euler steps.

    Compares flows of different T, whose losses are not comparable. The same generator seed for each of them.
    """
    check_point(points, flow.shape, lambda: f"denoising with {flow!r}")
    x = flow._flat(points).reshape(-1, flow.net.size)
    u = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
    r = radius * torch.rand(len(x), 1, generator=generator, dtype=x.dtype, device=x.device)
    noisy = x + r * u / norm(u)[:, None]
    return float((flow.walked(noisy) - x).double().square().sum()) / len(x)


def fit_flow(
    samples: Tensor,
    generator: torch.Generator | None = None,
    epochs: int = EPOCHS,
    own_time: bool = False,
    alphas: Sequence[float] = ALPHAS,
    **knobs: Any,
) -> Flow:
    """The paper's flow matching in its small form, as a method of `fit`: one network per alpha, of which the best is kept.

    They are trained on nine tenths of the samples (N, *shape), and judged by how well they undo displacements of the others: the
    largest that one of them was trained on. At the smallest radius a network that can only go a short way wins, and fails on
    points that are farther away. knobs go to `FlowTraining`; info["flow"] has the candidates, their scores and the seconds.
    """
    began = time.perf_counter()
    seed = 0 if generator is None else int(torch.randint(2**31, (), generator=generator, device=generator.device))
    x = samples.detach().cpu()[torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed))]
    val, train = x.split([len(x) // 10, len(x) - len(x) // 10])
    knobs = {"lr": 1e-3, "epochs": epochs, "patience": max(1, epochs // 4), "batches": BATCHES, "seed": seed} | knobs
    trained = [FlowTraining(train, val, alpha=alpha, **knobs) for alpha in alphas]
    for training in trained:
        while not training.done:
            training.advance()
    sound = [t for t in trained if math.isfinite(t.best)]
    if not sound:
        raise RuntimeError(f"fit_flow: all {len(trained)} velocity networks diverged. Divide the samples by their size.")
    radius, points = max(t.radius for t in sound), val[:2_000].float()
    g = torch.Generator()
    scores = [denoising(t.flow(), points, radius, g.manual_seed(0)) if t in sound else math.inf for t in trained]
    best = scores.index(min(scores))
    M = trained[best].flow(train[:NEIGHBOURS] if own_time else None)
    tried = [
        {"alpha": alpha, "T": t.T, "loss": t.best, "epoch": t.best_epoch, "denoising": score}
        for alpha, t, score in zip(alphas, trained, scores, strict=True)
    ]
    M.info["flow"] = {
        "alpha": alphas[best],
        "denoising": scores[best],
        "candidates": [{k: v if math.isfinite(v) else None for k, v in c.items()} for c in tried],  # JSON has no inf
        "radius": trained[best].radius,
        "own_time": own_time,
        "samples": {"train": len(train), "held_out": len(val)},
        "epochs": epochs,
        "seconds": time.perf_counter() - began,
    }
    return M
