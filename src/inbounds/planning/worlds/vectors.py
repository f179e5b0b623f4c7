"""Short vectors in the plane and in space: the formulas that both kinds of world use."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...kernels.vectors import norm

TURN = 2 * math.pi  # radians


def dot(u: Tensor, v: Tensor) -> Tensor:
    """u.v over the last axis. The axis is short, and adding its columns is many times faster than a sum."""
    return sum((u[..., k] * v[..., k] for k in range(1, u.shape[-1])), u[..., 0] * v[..., 0])


def cross(u: Tensor, v: Tensor) -> Tensor:
    """The cross product of vectors of the plane. It is positive where v points to the left of u."""
    return u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]


def turn(v: Tensor) -> Tensor:
    """v turned by a quarter to the left, in the plane."""
    return torch.stack([-v[..., 1], v[..., 0]], -1)


def unit_or_zero(v: Tensor) -> Tensor:
    """v/|v|, and 0 at 0."""
    return v / norm(v)[..., None].clamp(min=1e-300)
