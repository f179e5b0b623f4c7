"""The heat-kernel projection of Theorem 4.1: `Heat`, the weighted mean of the samples."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from ..kernels.derivative import eager, symmetric
from ..kernels.vectors import pulled_in
from .base import EPS, FAR, LearnedSet

KEPT = 20_000  # samples that fit() keeps
BLOCK = 2**20  # weights held at once: bounds the memory


class Heat(LearnedSet):
    """P(x) = x + t grad log u_t(x) = sum_i w_i x_i, w = softmax(-|x - x_i|^2 / 2t), u_t the heat kernel on the samples x_i.

    DP(x) = Cov_w(x_i) / t. Where M bends, the mean lies inside of M, by t times half its mean curvature: a check of the theorem
    rather than a good projector.
    """

    method = "heat"
    samples: Tensor
    sizes: ClassVar = {"samples": "Nd"}

    def __init__(self, samples: Tensor, t: float, shape: tuple[int, ...]):
        super().__init__(shape)
        if samples.dim() != 2 or samples.shape[1] != math.prod(self.shape) or not len(samples):
            raise ValueError(f"Heat asked for samples (N, {math.prod(self.shape)}), N >= 1, got {tuple(samples.shape)}.")
        if not 0 < t < math.inf:
            raise ValueError(f"Heat asked for a finite time t > 0, got {t}.")
        self.t = float(t)
        self._constant("samples", samples.double())

    @classmethod
    def fit(cls, samples: Tensor, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Heat:
        """t by leave-one-out denoising: of 2^-3 .. 2^5 times the squared median nearest-neighbour distance r^2, the one with the
        least mean |P(x_i + r n) - x_i|^2, n ~ N(0, I/d), where P does not see x_i; on at most 1,000 samples."""
        order = torch.randperm(len(samples), generator=generator, device=samples.device)[:KEPT]
        kept, some = samples[order].double(), torch.arange(min(1000, len(order)), device=samples.device)
        if len(kept) < 2:
            raise ValueError(f"Heat.fit asked for at least 2 samples, got {len(kept)}. Write Heat(samples, t, shape).")
        noise = torch.randn(len(some), kept.shape[1], generator=generator, dtype=kept.dtype, device=kept.device)
        r = torch.cat([_others(kept, kept[i], i).amin(1) for i in some.split(_rows(kept))]).median().sqrt()
        r = torch.where(r > 0, r, torch.finfo(r.dtype).eps ** 0.5 * kept.abs().amax().clamp(min=1e-100))  # all are doubles
        times = [float(r**2) * 2.0**k for k in range(-3, 6)]
        error = torch.zeros(len(times), dtype=kept.dtype, device=kept.device)
        for i in some.split(_rows(kept)):
            far = _others(kept, kept[i] + noise[i] * r / kept.shape[1] ** 0.5, i)
            error += torch.stack([((-far / (2 * t)).softmax(1) @ kept - kept[i]).square().sum() for t in times])
        M = cls(kept, times[int(error.argmin())], shape)
        M.info = {"t": M.t, "denoising": dict(zip(map(str, times), (error / len(some)).tolist(), strict=True))}
        return M

    # --- the set -----------------------------------------------------------------------------------------
    def foot(self, z, eps=EPS):
        mean = self.samples.mean(0)
        size = (self.samples - mean).abs().amax().clamp(min=1e-100)
        z = pulled_in(z, FAR * size, mean)
        if torch.compiler.is_compiling():  # Dynamo does not trace the definition of a Function; the closed form needs none
            return self._mean(z)
        return symmetric(self._mean, self._spread)(z)

    def _mean(self, z: Tensor) -> Tensor:
        return self._over_rows(lambda z: self._weights(z) @ self.samples, z)

    def _spread(self, z: Tensor, y: Tensor, g: Tensor) -> Tensor:
        return self._over_rows(self._covariance, z, y, g)

    def _covariance(self, z: Tensor, y: Tensor, g: Tensor) -> Tensor:
        """DP(x) g = sum_i w_i x_i <x_i - y, g> / t."""
        along = g @ self.samples.mT - (y * g).sum(-1, keepdim=True)
        return (self._weights(z) * along) @ self.samples / self.t

    def _weights(self, z: Tensor) -> Tensor:
        """w: (rows, N). |x - x_i|^2 without |x|^2, which softmax does not see; from the mean, where rounding is least."""
        mean = self.samples.mean(0)
        own = self.samples - mean
        return (((z - mean) @ own.mT - own.square().sum(-1) / 2) / self.t).softmax(-1)

    def _over_rows(self, f, *points: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return f(*points)
        parts = zip(*(p.split(_rows(self.samples)) for p in points), strict=True)
        if not eager() or torch.is_grad_enabled():
            return torch.cat([f(*p) for p in parts])
        # small results between large blocks would keep malloc from using these again: write them where they belong
        out = torch.empty_like(points[0])
        for rows, p in zip(out.split(_rows(self.samples)), parts, strict=True):
            rows.copy_(f(*p))
        return out

    def known(self):
        return self.samples

    def spec(self):
        return {"t": self.t, "shape": list(self.shape)}

    def extra_repr(self):
        return f"<{len(self.samples)}x{self.samples.shape[1]}>, t={self.t:g}, shape={self.shape}"


def _rows(samples: Tensor) -> int:
    return max(1, BLOCK // len(samples))


def _others(samples: Tensor, x: Tensor, own: Tensor) -> Tensor:
    """|x - x_i|^2, (rows, N), and inf for each row's own sample."""
    far = torch.cdist(x, samples).square()
    return far.scatter(1, own[:, None], math.inf)
