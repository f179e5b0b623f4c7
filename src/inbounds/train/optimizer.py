"""AdamW and the plateau schedule for a stack: one row per model, each with its own learning rate, decay and fate."""

from __future__ import annotations

import math

import torch
from torch import Tensor

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8  # those of torch.optim.AdamW


class StackedAdamW:
    """Row k of theta follows torch.optim.AdamW(lr=lr[k], weight_decay=decay[k]). A frozen row stays where it is."""

    def __init__(self, theta: Tensor, lr: Tensor, decay: Tensor):
        self.theta, self.lr, self.decay = theta, lr, decay  # (K, P), (K,), (K,)
        self.m, self.v, self.t = torch.zeros_like(theta), torch.zeros_like(theta), 0
        self.frozen = torch.zeros(len(theta), dtype=torch.bool)

    def step(self, grad: Tensor) -> None:
        """One step of every model that is not frozen, with gradients (K, P)."""
        self.t += 1
        if self.frozen.any():
            grad = grad.masked_fill(self.frozen[:, None], 0)
        lr = torch.where(self.frozen, 0, self.lr)
        if self.decay.any():
            self.theta.mul_((1 - lr * self.decay)[:, None])
        self.m.lerp_(grad, 1 - BETA1)
        self.v.mul_(BETA2).addcmul_(grad, grad, value=1 - BETA2)
        denominator = self.v.sqrt().div_(math.sqrt(1 - BETA2**self.t)).add_(EPS)
        self.theta.addcmul_((-lr / (1 - BETA1**self.t))[:, None], self.m / denominator)

    def freeze(self, rows: Tensor) -> None:
        """Stop these models: their parameters no longer change."""
        self.frozen |= rows
        self.m[rows], self.v[rows] = 0, 0

    def state(self) -> dict[str, Tensor]:
        """All that `restore` needs."""
        return {"m": self.m, "v": self.v, "lr": self.lr, "frozen": self.frozen, "t": torch.tensor(self.t)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        for name in ("m", "v", "lr", "frozen"):
            getattr(self, name).copy_(state[name])
        self.t = int(state["t"])


class Plateau:
    """torch's ReduceLROnPlateau per row; patience counts epochs: lr falls after more than `patience` of them without progress."""

    THRESHOLD = 1e-4  # relative progress that counts

    def __init__(self, rows: int, factor: float, patience: int):
        self.factor, self.patience = factor, patience
        self.best = torch.full((rows,), math.inf, dtype=torch.float64)
        self.waited = torch.zeros(rows, dtype=torch.int64)

    def step(self, loss: Tensor, epochs: int, lr: Tensor) -> None:
        """loss (K,) float64, `epochs` after the last call; lr is changed in place."""
        better = loss < self.best * (1 - self.THRESHOLD)
        self.best = torch.where(better, loss, self.best)
        self.waited = torch.where(better, 0, self.waited + epochs)
        tired = self.waited > self.patience
        lr.mul_(torch.where(tired, self.factor, 1.0).to(lr))
        self.waited[tired] = 0

    def state(self) -> dict[str, Tensor]:
        """All that `restore` needs."""
        return {"plateau_best": self.best, "waited": self.waited}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        self.best, self.waited = state["plateau_best"].clone(), state["waited"].clone()
