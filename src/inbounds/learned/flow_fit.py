"""`fit_flow`: the paper's flow matching as a method of `fit`, and `LearnedFlow`, the set it gives."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..kernels.vectors import norm
from .base import EPS, LearnedSet
from .flow import LARGEST, Flow, VelocityNet
from .flow_training import FlowTraining, denoising

SPEED = 0.5  # |v_n| of the paper: a point that left M at time 0 is at most SPEED t away
MARGIN = 2.0  # an own time is this much longer than the straight way back takes
NEIGHBOURS = 4_000  # samples kept for own times, at most

EPOCHS, BATCHES = 8, 100  # 3 networks x 800 steps: 80 s on one core of 2026 for points of R^3, more samples or not
ALPHAS = (0.25, 0.5, 1.0)  # of the paper: one network for each, and the best denoiser is kept


class LearnedFlow(LearnedSet):
    """A `Flow` with what `fit` knows about it. P(x) = x(0), where dx/dt = v(x, t) and x(t0) = x.

    As in the paper, t0 = T for every x. With `samples` (n, *shape) of the set, x sets out at its own time: seen from x at time t,
    the mean of the points of M it may come from is x - t v(x, t), so t |v(x, t)| estimates the distance to M, and

        t0 = min(t1, 2 t1 |v(x, t1)| / speed),  t1 = min(T, 2 d / speed),  d the distance to the nearest sample,

    2 being a margin: too late a start falls short of M, too early a one drifts along it. All of it is differentiated, t0 too.
    """

    method = "flow"
    samples: Tensor | None

    def __init__(self, flow: Flow, samples: Tensor | None = None):
        super().__init__(flow.shape)
        self.flow = flow
        self.register_buffer("samples", None, persistent=False)
        if samples is not None:
            self._constant("samples", samples.detach().reshape(len(samples), -1).double())
        self.eval()

    def own_time(self, x: Tensor) -> Tensor:
        """t0 of points x: (*batch,), in [0, T]; T for all where no samples are kept."""
        (x,) = self._enter("own_time", x)
        z = self.flow._standard(x).double()
        t0 = torch.full_like(z[:, 0], self.flow.T) if self.samples is None else self._start(self.flow._net(z.dtype), z)
        return t0.reshape(x.shape[: x.dim() - len(self.shape)])

    # --- the projection ----------------------------------------------------------------------------------
    def foot(self, z, eps=EPS):
        start = None if self.samples is None else self._start
        return self.flow._integrate(z / self.flow.scale, start) * self.flow.scale

    def known(self):
        return super().known() if self.samples is None else self.samples

    def trusted(self, z, y):
        """Moved no further than the displacements trained on, and, where samples are kept, set out within them of a sample."""
        limit = SPEED * self.flow.T
        near = torch.ones_like(z[:, 0], dtype=torch.bool) if self.samples is None else self._gap(z / self.flow.scale) <= limit
        return torch.isfinite(y).all(-1) & (norm(z - y) <= limit * self.flow.scale) & near

    def _start(self, net: VelocityNet, z: Tensor) -> Tensor:
        latest = (self._gap(z) * (MARGIN / SPEED)).clamp(max=self.flow.T)
        back = norm(latest[:, None] * net(z.clamp(-LARGEST, LARGEST), latest))
        return torch.minimum(latest, back * (MARGIN / SPEED))

    def _gap(self, z: Tensor) -> Tensor:
        """(rows,): the distance to the nearest sample, in units of x/scale."""
        assert self.samples is not None
        known = self.samples.to(z.dtype) / self.flow.scale
        half = known.square().sum(-1) / 2
        nearest = [(half - rows @ known.mT).argmin(-1) for rows in z.detach().split(Flow.CHUNK)]
        return norm(z - known[torch.cat(nearest)])

    # --- to disk and back --------------------------------------------------------------------------------
    def tensors(self) -> dict[str, Tensor]:
        own = {} if self.samples is None else {"samples": self.samples}
        return {f"net.{k}": w for k, w in self.flow.tensors().items()} | own

    def spec(self) -> dict[str, Any]:
        return self.flow.spec()

    @classmethod
    def from_parts(cls, tensors, spec):
        net = {k.removeprefix("net."): w for k, w in tensors.items() if k.startswith("net.")}
        return cls(Flow.load(net, spec), tensors.get("samples"))

    def extra_repr(self):
        return self.flow.extra_repr() + ("" if self.samples is None else ", own time")


def fit_flow(
    samples: Tensor,
    generator: torch.Generator | None = None,
    epochs: int | None = None,
    own_time: bool = False,
    progress: Callable[[float, str], None] | None = None,
    alphas: Sequence[float] = ALPHAS,
    **knobs: Any,
) -> LearnedFlow:
    """Flow matching as in the paper, in its small form: one network per alpha, the best denoiser of held-out samples.

    samples: (N, *shape); a tenth of them is held out. An epoch is at most 100 minibatches; knobs go to `FlowTraining`.
    progress(fraction, words) is called after every epoch. info["flow"] has the candidates, their scores and the seconds.
    """
    began, epochs = time.perf_counter(), EPOCHS if epochs is None else epochs
    seed = 0 if generator is None else int(torch.randint(2**31, (), generator=generator, device=generator.device))
    train, val = _split(samples, seed)
    knobs = {"lr": 1e-3, "epochs": epochs, "patience": max(1, epochs // 4), "batches": BATCHES, "seed": seed} | knobs
    trained = []
    for i, alpha in enumerate(alphas):
        trained.append(FlowTraining(train, val, alpha=alpha, **knobs))
        _run(trained[-1], lambda done, loss, i=i, a=alpha: progress and progress((i + done) / len(alphas), _words(a, loss)))
    best, scores = _choose(trained, val)
    M = LearnedFlow(trained[best].flow(), train[:NEIGHBOURS] if own_time else None)
    tried = [
        {"alpha": a, "T": t.T, "loss": _number(t.best), "epoch": t.best_epoch, "denoising": _number(s)}
        for a, t, s in zip(alphas, trained, scores, strict=True)
    ]
    M.info["flow"] = {
        "alpha": alphas[best],
        "denoising": scores[best],
        "candidates": tried,
        "radius": trained[best].radius,
        "own_time": own_time,
        "samples": {"train": len(train), "held_out": len(val)},
        "epochs": epochs,
        "seconds": time.perf_counter() - began,
    }
    return M


def _split(samples: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Nine tenths and one, in random order."""
    if not isinstance(samples, Tensor) or samples.dim() < 2 or len(samples) < 10:
        got = tuple(samples.shape) if isinstance(samples, Tensor) else type(samples).__name__
        raise ValueError(f"fit_flow asked for a tensor of samples (N, *shape), N >= 10, got {got}. Add samples.")
    x = samples.detach().cpu()[torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed))]
    held = len(x) // 10
    return x[held:], x[:held]


def _run(training: FlowTraining, tell: Callable[[float, float], Any]) -> None:
    while not training.done:
        loss = training.advance()
        tell(1.0 if training.done else training.epoch / training.epochs, loss)


def _choose(trained: list[FlowTraining], val: Tensor) -> tuple[int, list[float]]:
    """(which, scores): the best at undoing the largest displacements that one was trained on; inf for those that diverged.

    At the smallest radius a network that can only go a short way wins, and fails on points that are farther away.
    """
    sound = [t for t in trained if math.isfinite(t.best)]
    if not sound:
        raise RuntimeError(
            f"fit_flow: all {len(trained)} velocity networks diverged. Divide the samples by their size, or give a smaller lr."
        )
    radius = max(t.radius for t in sound)
    points = val[:2_000].float()
    scores = [denoising(t.flow(), points, radius, torch.Generator().manual_seed(0)) if t in sound else math.inf for t in trained]
    return scores.index(min(scores)), scores


def _words(alpha: float, loss: float) -> str:
    return f"flow, alpha {alpha:g}: validation loss {loss:.3g}"


def _number(value: float) -> float | None:
    """For JSON, which has no inf."""
    return value if math.isfinite(value) else None
