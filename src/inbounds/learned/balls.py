"""The smallest ball around points."""

from __future__ import annotations

import torch
from torch import Tensor

STEPS = 1_000  # at most; a few per dimension
EPS = 64 * torch.finfo(torch.float64).eps  # rounding of a weight or of a way, relative to its size


def smallest_ball(w: Tensor) -> tuple[Tensor, float]:
    """Centre and radius, w (N, n).

    The centre walks. Points that touch hold it at equal distance; it moves straight to the middle of their affine hull, where the
    ball is smallest for them, unless another point touches before, which then holds it, too. In the middle, the ball is the
    smallest if the centre is a mean of the holders with weights >= 0; else the one with the lowest weight lets go.
    """
    c = w.mean(0)
    held = [int(_squares(w - c).argmax())]
    for _ in range(STEPS):
        p = w[held[0]]
        D = (w[held[1:]] - p).mT
        weights = torch.linalg.lstsq(D, (c - p)[:, None]).solution[:, 0]
        way = p + D @ weights - c
        gap = (_squares(p - c) - _squares(w - c)).clamp(min=0)
        nearing = 2 * (p - w) @ way
        nearing[held] = 0
        t = torch.where(nearing > EPS * way.norm(), gap / nearing, torch.inf)
        first = int(t.argmin())
        if float(t[first]) < 1:
            c = c + t[first] * way
            held.append(first)
            continue
        c = c + way
        weights = torch.cat([1 - weights.sum(0, keepdim=True), weights])
        if float(weights.min()) >= -EPS:
            break
        held.pop(int(weights.argmin()))
    return c, float(_squares(w - c).max().sqrt())


def _squares(x: Tensor) -> Tensor:
    return x.square().sum(-1)
