"""Points on S^2 carried along a random smooth tangent field."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..sets import Sphere
from .pairs import Pairs, generator
from .synthetic import build

GRID, STEPS, DT = 100, 20, 0.1  # the paper's


def sphere(sizes: dict[str, int] | None = None, seed: int = 0) -> Pairs:
    """x uniform on S^2; y where x is after 20 midpoint steps of 0.1 along a unit field given on a 100 x 100 grid of angles."""
    field = random_field(seed)
    return build("sphere", Sphere(3), sizes, seed, lambda n, g: _start(n, g), lambda p: advect(field, p))


def _start(n: int, g: torch.Generator) -> Tensor:
    return Sphere(3).sample(n, generator=g, dtype=torch.float64)


def random_field(seed: int) -> Tensor:
    """Unit vectors on the grid theta_i = pi i/99, phi_j = 2 pi j/100: (100, 100, 3), periodic in phi."""
    a, b = torch.rand(2, 3, generator=generator(seed, stream=1), dtype=torch.float64).mul(2).sub(1)
    th = torch.linspace(0, math.pi, GRID, dtype=torch.float64)[:, None]
    ph = (torch.arange(GRID, dtype=torch.float64) * (2 * math.pi / GRID))[None, :]
    along_th = a[0] * th.sin() * ph.cos() + a[1] * (2 * th).cos() + a[2] * th.sin() * (2 * ph).sin()
    along_ph = b[0] * th.cos() * ph.sin() + b[1] * (2 * ph).sin() + b[2] * th.sin() * (2 * ph).cos()
    d_th = torch.stack(torch.broadcast_tensors(th.cos() * ph.cos(), th.cos() * ph.sin(), -th.sin()), -1)
    d_ph = torch.stack(torch.broadcast_tensors(-th.sin() * ph.sin(), th.sin() * ph.cos(), torch.zeros_like(ph)), -1)
    return torch.nn.functional.normalize(along_th[..., None] * d_th + along_ph[..., None] * d_ph, dim=-1)


def interpolated(field: Tensor, p: Tensor) -> Tensor:
    """The field at p, bilinear in the angles."""
    i = torch.acos(p[..., 2].clamp(-1, 1)) * ((GRID - 1) / math.pi)
    j = torch.atan2(p[..., 1], p[..., 0]).remainder(2 * math.pi) * (GRID / (2 * math.pi))
    i0, j0 = i.long().clamp(max=GRID - 2), j.long() % GRID
    s, t = (i - i0)[..., None], (j - j.floor())[..., None]
    i1, j1 = i0 + 1, (j0 + 1) % GRID
    return (1 - s) * ((1 - t) * field[i0, j0] + t * field[i0, j1]) + s * ((1 - t) * field[i1, j0] + t * field[i1, j1])


def advect(field: Tensor, p: Tensor) -> Tensor:
    """Where points of the sphere are after the field has moved them: STEPS projected midpoint steps."""
    M = Sphere(3)
    for _ in range(STEPS):
        mid = M.project(p + DT / 2 * M.tangent(p, interpolated(field, p)))
        p = M.project(p + DT * M.tangent(mid, interpolated(field, mid)))
    return p
