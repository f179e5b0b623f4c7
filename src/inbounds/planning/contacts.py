"""Where obstacles touch each other or a wall: for shortest paths there is no way between them."""

from __future__ import annotations

import torch
from torch import Tensor

from .worlds import World

CLOSED = 2e-9  # of the world's size: gaps that count as closed, twice what the solver lets a straight way enter an obstacle


class Contacts:
    """Every contact is a way that no path crosses: from centre to centre, or from a centre to a point behind the wall.

    `touching` (*worlds, m, m) tells which obstacles are at most `gap` apart, or overlap by as much.
    """

    def __init__(self, world: World, gap: float):
        self.world, (c, r) = world, (world.centers, world.sizes)
        m = r.shape[-1]
        i, j = torch.triu_indices(m, m, 1)
        present = (r[..., i] > 0) & (r[..., j] > 0)
        pairs = ((world.distance(c[..., i, :], c[..., j, :]) - r[..., i] - r[..., j]).abs() <= gap) & present
        self.touching = torch.zeros(*r.shape, m, dtype=torch.bool)
        self.touching[..., i, j] = self.touching[..., j, i] = pairs
        at_walls = ((world.to_walls(c) - r[..., None]).abs() <= gap) & (r > 0)[..., None]  # (*worlds, m, walls)
        first = torch.cat([c[..., i, :], c.repeat_interleave(at_walls.shape[-1], -2)], -2)
        second = torch.cat([c[..., j, :], world.feet(c, r).flatten(-3, -2)], -2)
        closed = torch.cat([pairs, at_walls.flatten(-2)], -1)
        some = closed.flatten(0, -2).any(0) if closed.dim() > 1 else closed  # in one of the worlds
        self.first, self.second, self.closed = first[..., some, :], second[..., some, :], closed[..., some]

    def crossed(self, a: Tensor, b: Tensor, beyond: bool = False) -> Tensor:
        """Whether the straight way from a to b goes through a contact: (*batch,).

        One that ends at a contact does not go through it, unless it goes on `beyond` b: where it touches a rim, say.
        """
        if not self.closed.shape[-1]:
            return torch.zeros_like(a[..., 0], dtype=torch.bool)
        w = self.world
        if beyond:
            b = w.move(b, -1e-11 * w.scale * w.direction(b, a))
        p, q, closed = (w.per_query(t, a) for t in (self.first, self.second, self.closed))
        return (w.crosses(a[..., None, :], b[..., None, :], p, q) & closed).any(-1)
