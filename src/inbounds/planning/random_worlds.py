"""Random boxes with discs, by seed: some overlap, some touch, some cut the edge."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .shortest import ShortestPaths
from .worlds import BoxWorld, SphereWorld, World

LOW, HIGH = (0.0, 0.0), (4.0, 3.0)  # the paper's rectangle
RADII = (0.15, 0.6)  # from a twentieth to a fifth of its height; the shipped rectangles have 0.45 to 0.6


def random_worlds(count: int, discs: tuple[int, int] = (3, 8), seed: int = 0) -> BoxWorld:
    """A batch of worlds, (count,): centers (count, most, 2), radii (count, most), 0 where there is no disc.

    Centres are uniform in the box, so that discs overlap and cut the edge; one in eight is moved to touch the one before it.
    """
    g = torch.Generator().manual_seed(seed)
    low, high = torch.tensor(LOW, dtype=torch.float64), torch.tensor(HIGH, dtype=torch.float64)
    most = discs[1]
    u = torch.rand(count, most, 6, generator=g, dtype=torch.float64)
    centers = low + u[..., :2] * (high - low)
    radii = RADII[0] + u[..., 2] * (RADII[1] - RADII[0])
    angle = 2 * math.pi * u[..., 3]
    around = torch.stack([angle.cos(), angle.sin()], -1)
    for k in range(1, most):
        touching = centers[:, k - 1] + (radii[:, k - 1] + radii[:, k])[:, None] * around[:, k]
        inside = ((touching > low) & (touching < high)).all(-1)
        centers[:, k] = torch.where((inside & (u[:, k, 4] < 0.125))[:, None], touching, centers[:, k])
    number = torch.randint(discs[0], discs[1] + 1, (count, 1), generator=g)
    radii = torch.where(torch.arange(most) < number, radii, 0.0)
    return BoxWorld(low, high, centers, radii)


def random_caps(count: int, caps: tuple[int, int] = (1, 3), seed: int = 0) -> SphereWorld:
    """A batch of spheres with caps of 0.2 to 1.1 radians, not all of them separate."""
    g = torch.Generator().manual_seed(seed)
    centers = torch.randn(count, caps[1], 3, generator=g, dtype=torch.float64)
    angles = 0.2 + 0.9 * torch.rand(count, caps[1], generator=g, dtype=torch.float64)
    number = torch.randint(caps[0], caps[1] + 1, (count, 1), generator=g)
    return SphereWorld(centers, torch.where(torch.arange(caps[1]) < number, angles, 0.0))


def is_connected(world: World, solver: ShortestPaths | None = None) -> Tensor:
    """Whether the free space is one piece, (*worlds,): whether all free corners, crossings and rims reach each other.

    Gaps below 1e-9 of the world's size count as closed.
    """
    world.need_surface("is_connected")
    if not world.sizes.shape[-1]:
        return torch.ones(world.sizes.shape[:-1], dtype=torch.bool)
    solver = solver or ShortestPaths(world)
    inner = world.thicker(2 * solver.tol)
    points = inner.landmarks()
    free = inner.segment_clearance(points, points) >= -solver.tol  # outside of what the solver counts as closed
    order = free.byte().argsort(dim=-1, descending=True, stable=True)[..., : max(1, int(free.sum(-1).max()))]
    points, free = points.gather(-2, order[..., None].expand(*order.shape, world.dim)), free.gather(-1, order)
    far = solver.distance(points[..., :1, :].expand(points.shape), points)
    return ~(torch.isinf(far) & free).any(-1)
