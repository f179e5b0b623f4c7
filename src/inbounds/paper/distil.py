"""A projection in one evaluation of a small network, distilled from a flow: for training, at a fraction of the cost."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core import ConstraintSet
from ..kernels.vectors import norm
from ..learned import Flow, VelocityNet

BATCHES, BATCH, LR = 100, 512, 2e-3  # of an epoch, of pairs in each, at the start; set by reasoning: half a minute in all


class OneStep(ConstraintSet):
    """P(x) = x - d(x), d a network trained so that P imitates a flow's projection. Approximate: not in M exactly."""

    exact = False
    reach = None

    def __init__(self, net: VelocityNet, shape: tuple[int, ...]):
        super().__init__()
        self.shape, self.net = tuple(shape), net.requires_grad_(False).eval()

    def _project(self, x):
        return moved(self.net, self._flat(x).reshape(-1, self.net.size)).reshape(x.shape)

    def _violation(self, x):
        """|x - P(x)|: how far the network moves x."""
        return norm(self._flat(x - self._project(x)))

    def extra_repr(self):
        return f"{self.shape}, width={self.net.width}"


def moved(net: VelocityNet, x: Tensor) -> Tensor:
    """x - d(x) of rows x."""
    return x - net(x, x.new_zeros(()))


class Distillation:
    """OneStep learns P(x + r u) = flow(x + r u): x samples of M, u random directions, r uniform on [0, radius].

    far: every second point is up to so many times further away. Hidden layers wander there; a network that was distilled near
    M alone disagrees with the flow by 0.1 to 0.3 at four radii from the disk, and every layer adds to that.
    `points` such pairs are made once, a tenth of them kept for `error`, the root mean square of the difference. An epoch is
    BATCHES minibatches of the others; the rate falls to zero along a half cosine. Randomness comes from the epoch alone.
    """

    def __init__(
        self,
        flow: Flow,
        samples: Tensor,
        radius: float,
        *,
        epochs: int = 40,
        far: float = 1.0,
        points: int = 20_000,
        width: int = 64,
        depth: int = 2,
    ):
        self.flow, self.radius, self.far, self.epochs, self.epoch = flow, radius, far, epochs, 0
        x, y = self._pairs(samples.reshape(len(samples), -1), points)
        held = points // 10
        self.held, self.x, self.y = (x[:held], y[:held]), x[held:], y[held:]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.net = VelocityNet(self.x.shape[1], width, depth, dropout=0.0)
        self.adam = torch.optim.AdamW(self.net.parameters(), lr=LR, weight_decay=0.0, fused=True)
        self.error = math.inf

    @property
    def done(self) -> bool:
        """Whether all epochs are done."""
        return self.epoch >= self.epochs

    def advance(self) -> dict:
        """One epoch of training, and its error."""
        g = torch.Generator().manual_seed(self.epoch)
        for i in range(BATCHES):
            share = (self.epoch + i / BATCHES) / self.epochs
            self.adam.param_groups[0]["lr"] = LR * 0.5 * (1 + math.cos(math.pi * share))
            rows = torch.randint(len(self.x), (BATCH,), generator=g)
            self.adam.zero_grad()
            F.mse_loss(moved(self.net, self.x[rows]), self.y[rows]).backward()
            self.adam.step()
        self.epoch += 1
        with torch.no_grad():
            self.error = float((moved(self.net, self.held[0]) - self.held[1]).square().sum(1).mean().sqrt())
        return {"epoch": self.epoch, "val": self.error}

    @torch.no_grad()
    def _pairs(self, samples: Tensor, n: int) -> tuple[Tensor, Tensor]:
        g = torch.Generator().manual_seed(999_983)
        x = samples[torch.randint(len(samples), (n,), generator=g)]
        u = torch.randn(x.shape, generator=g)
        r = self.radius * torch.rand(n, 1, generator=g)
        r[::2] *= self.far
        x = x + r * u / norm(u)[:, None]
        return x, self.flow.walked(x)

    def set(self) -> OneStep:
        """The set whose projection is the network as it is now."""
        return OneStep(self.net, self.flow.shape)
