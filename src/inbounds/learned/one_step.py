"""A projection in one evaluation of a small network, distilled from a flow: for training, at a fraction of the cost."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core import ConstraintSet
from ..kernels.vectors import norm
from .flow import Flow, VelocityNet


class OneStep(ConstraintSet):
    """P(x) = x - d(x), d a network trained so that P imitates a flow's projection. Approximate: not in M exactly."""

    exact = False
    reach = None

    def __init__(self, net: VelocityNet, shape: tuple[int, ...]):
        super().__init__()
        self.shape, self.net = tuple(shape), net.requires_grad_(False).eval()

    def _project(self, x):
        flat = self._flat(x)
        z = flat.reshape(-1, self.net.size)
        return (z - self.net(z, z.new_zeros(()))).reshape(x.shape)

    def _violation(self, x):
        """|x - P(x)|: how far the network moves x."""
        return norm(self._flat(x - self._project(x)))

    def extra_repr(self):
        return f"{self.shape}, width={self.net.width}"


class Distillation:
    """OneStep learns P(x + r u) = flow(x + r u): x samples of M, u random directions, r uniform on [0, radius].

    far: every second point is up to so many times further away. Hidden layers wander there; a network that was distilled near
    M alone disagrees with the flow by 0.1 to 0.3 at four radii from the disk, and every layer adds to that.
    `points` such pairs are made once, a tenth of them kept for `error`, the root mean square of the difference. An epoch is
    `batches` minibatches of the others; lr falls to zero along a half cosine. Randomness comes from (seed, epoch) alone.
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
        batches: int = 100,
        batch: int = 512,
        lr: float = 2e-3,
        width: int = 64,
        depth: int = 2,
        seed: int = 0,
    ):
        self.flow, self.radius, self.far = flow, radius, far
        self.epochs, self.batches, self.batch, self.lr, self.seed, self.epoch = epochs, batches, batch, lr, seed, 0
        x, y = self._pairs(samples.reshape(len(samples), -1), points)
        held = points // 10
        self.held, self.x, self.y = (x[:held], y[:held]), x[held:], y[held:]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.net = VelocityNet(self.x.shape[1], width, depth, dropout=0.0)
        self.adam = torch.optim.AdamW(self.net.parameters(), lr=lr, weight_decay=0.0, fused=True)
        self.error = math.inf

    @property
    def done(self) -> bool:
        """Whether all epochs are done."""
        return self.epoch >= self.epochs

    def advance(self) -> dict:
        """One epoch of training, and its error."""
        g = torch.Generator().manual_seed(1_000_003 * self.seed + self.epoch)
        for i in range(self.batches):
            share = (self.epoch + i / self.batches) / self.epochs
            self.adam.param_groups[0]["lr"] = self.lr * 0.5 * (1 + math.cos(math.pi * share))
            rows = torch.randint(len(self.x), (self.batch,), generator=g)
            self.adam.zero_grad()
            F.mse_loss(self._step(self.x[rows]), self.y[rows]).backward()
            self.adam.step()
        self.epoch += 1
        with torch.no_grad():
            self.error = float((self._step(self.held[0]) - self.held[1]).square().sum(1).mean().sqrt())
        return {"epoch": self.epoch, "val": self.error}

    def _step(self, x: Tensor) -> Tensor:
        return x - self.net(x, x.new_zeros(()))

    @torch.no_grad()
    def _pairs(self, samples: Tensor, n: int) -> tuple[Tensor, Tensor]:
        g = torch.Generator().manual_seed(1_000_003 * self.seed + 999_983)
        x = samples[torch.randint(len(samples), (n,), generator=g)]
        u = torch.randn(x.shape, generator=g)
        r = self.radius * torch.rand(n, 1, generator=g)
        r[::2] *= self.far
        x = x + r * u / norm(u)[:, None]
        scale = self.flow.scale
        return x, torch.cat([self.flow._walk(part / scale) * scale for part in x.split(Flow.CHUNK)])

    def set(self) -> OneStep:
        """The set whose projection is the network as it is now."""
        return OneStep(self.net, self.flow.shape)
