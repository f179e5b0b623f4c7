"""The nearest of many samples, by one product of matrices."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels.derivative import eager


class Nearest:
    """Index of the nearest sample, in float32: any near one will do to start from."""

    LANES, ROWS = 64, 256  # argmin is slow, amin is not: least of every 64th sample, then of the 64; in the cache

    def __init__(self, samples: Tensor):
        s = samples.float()
        s = torch.cat([-2 * s, s.square().sum(1, keepdim=True)], 1)
        self.table = F.pad(s, (0, 0, 0, -len(s) % self.LANES)).mT.contiguous()  # (n + 1, padded)
        self.table[-1, len(samples) :] = torch.inf

    def __call__(self, x: Tensor) -> Tensor:
        """(rows, n) -> (rows,)"""
        x = F.pad(x.float(), (0, 1), value=1.0)
        if not eager():
            return (x @ self.table).argmin(1)
        return torch.cat([self._part(part) for part in x.split(self.ROWS)])

    def _part(self, x: Tensor) -> Tensor:
        D = (x @ self.table).unflatten(1, (-1, self.LANES))
        lane = D.amin(1).argmin(1)
        return D.take_along_dim(lane[:, None, None], 2)[:, :, 0].argmin(1) * self.LANES + lane
