"""Whether there is a way at all, before anything looks for one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .contacts import CLOSED
from .worlds import World

ON = 1e-12  # of the world's size: a point so near to a way between two centres may be at the contact that the way goes through
SHORT = math.pi - 1e-6  # radians: of centres that are farther apart on the sphere the short way between is not certain


def separated(world: World, x: Tensor, y: Tensor) -> Tensor:
    """Whether obstacles that meet, or a chain of them from wall to wall, keep x from y: (rows,). One world, or one per row.

    x and y are free. Centres of obstacles that overlap or touch are joined by a straight way inside of them, and those that reach
    a wall to a point behind it. A closed chain of such ways that crosses the straight way from x to y an odd number of times goes
    around one of them and not the other, so that no path leads from one to the other. There is such a chain just if a centre can
    be reached from itself with an odd number of crossings, which a graph shows that has every centre twice. A point that lies at
    a contact is on both sides of it.
    """
    m, gap = world.sizes.shape[-1], CLOSED * world.scale
    c, r = world.centers.expand(len(x), -1, -1), world.sizes.expand(len(x), -1)
    walls, there = world.to_walls(c), r > 0
    apart = world.distance(c[:, :, None].expand(-1, m, m, -1), c[:, None].expand(-1, m, m, -1))
    meet = (apart < r[:, :, None] + r[:, None] + gap) & there[:, :, None] & there[:, None]
    if not walls.shape[-1]:
        meet &= apart < SHORT
    row, i, j = meet.triu(1).nonzero().mT
    at, k, wall = ((walls < r[..., None] + gap) & there[..., None]).nonzero().mT
    a, b = torch.cat([c[row, i], c[at, k]]), torch.cat([c[row, j], world.feet(c[at, k], r[at, k])[torch.arange(len(at)), wall]])
    row, i, j = torch.cat([row, at]), torch.cat([i, k]), torch.cat([j, torch.full_like(k, m)])  # all walls are one node
    p, q, length = x[row], y[row], world.distance(a, b) + ON * world.scale
    sa, sb = world.beside(a, p, q), world.beside(b, p, q)
    odd = ((sa >= 0) != (sb >= 0)) & world.between(a, b, sa, sb, p, q)  # a centre on the straight way counts as left of it
    closed = (world.distance(p, a) + world.distance(p, b) > length) & (world.distance(q, a) + world.distance(q, b) > length)
    row, i, j, odd = row[closed], i[closed], j[closed], odd[closed]
    twice = torch.eye(2 * (m + 1)).repeat(len(x), 1, 1)
    for copy, other in ((0, m + 1), (m + 1, 0)):
        ends = i + copy, j + torch.where(odd, other, copy)
        twice[row, ends[0], ends[1]] = twice[row, ends[1], ends[0]] = 1.0
    for _ in range(math.ceil(math.log2(2 * (m + 1)))):
        twice = (twice @ twice).clamp_(max=1)
    return twice.diagonal(m + 1, dim1=1, dim2=2).any(-1) & ~world.opposite(x, y)
