"""Explicit Runge-Kutta methods as data: when their stages are, and how much of each goes into the next."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Method:
    """An explicit method: stage times, weights of the stages before each stage, weights of the step.

    An embedded method has weights of its error, and of the point in the middle of the step, too; its last stage point is the
    new point.
    """

    times: tuple[float, ...]
    stages: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    error: tuple[float, ...] = ()
    middle: tuple[float, ...] = ()


METHODS = {
    "euler": Method((0.0,), ((),), (1.0,)),
    "heun": Method((0.0, 1.0), ((), (1.0,)), (0.5, 0.5)),
    "rk4": Method((0.0, 0.5, 0.5, 1.0), ((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
    "dopri5": Method(  # Dormand and Prince, 1980; the middle is Shampine's, of order 4
        (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
        (
            (),
            (1 / 5,),
            (3 / 40, 9 / 40),
            (44 / 45, -56 / 15, 32 / 9),
            (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
            (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
            (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
        ),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0.0),
        (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40),
        (
            6025192743 / 30085553152 / 2,
            0.0,
            51252292925 / 65400821598 / 2,
            -2691868925 / 45128329728 / 2,
            187940372067 / 1594534317056 / 2,
            -1776094331 / 19743644256 / 2,
            11237099 / 235043384 / 2,
        ),
    ),
}


def combined(weights: tuple[float, ...], k: list[Tensor]) -> Tensor:
    """The sum of weights[i] k[i]; a k[i] without weight is left out, even where it is not finite."""
    total = None
    for w, v in zip(weights, k, strict=True):
        if w:
            total = w * v if total is None else total.add(v, alpha=w)
    return torch.zeros_like(k[0]) if total is None else total
