"""Exact shortest paths among discs and caps: straight ways that touch obstacles, and arcs of their rims. The yardstick."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .worlds import TURN, World

CHUNK = 2**22  # numbers of the largest table at once


@dataclass
class Touches:
    """Straight ways between a point and an obstacle's rim, (*batch, m, 2): the obstacle to the left, or to the right."""

    point: Tensor  # where on the rim
    angle: Tensor
    length: Tensor  # inf if not free
    direction: Tensor  # in which the way leaves its first end


class ShortestPaths:
    """Of one world, or of a batch of them, for any number of queries.

    A shortest path is straight but for arcs of the rims of obstacles, which it enters and leaves along common tangents. Nodes are
    directed tangents from obstacle i to obstacle j, either on its left or right: four per ordered pair. `between[b, c]` is the
    least length from the end of b to the end of c. Gaps below 1e-9 of the world's size count as closed.
    """

    def __init__(self, world: World):
        world.need_surface("Shortest paths")
        self.world = world
        c, r = world.centers, world.sizes
        self.m = m = r.shape[-1]
        self.tol = 1e-9 * world.scale
        self.middle, self.width = self.world.swollen(self.tol).blocked()
        ci, cj = torch.broadcast_tensors(c[..., :, None, :], c[..., None, :, :])
        apart = world.distance(ci, cj) - r[..., :, None] - r[..., None, :]
        present = (r[..., :, None] > 0) & (r[..., None, :] > 0)
        self.touching = (apart.abs() <= 2 * self.tol) & present  # (*worlds, m, m)
        self.touch_walls = ((world.to_walls(c) - r[..., None]).abs() <= 2 * self.tol) & (r > 0)[..., None]
        i, j = torch.cartesian_prod(torch.arange(m), torch.arange(m)).reshape(-1, 2)[~torch.eye(m, dtype=torch.bool).flatten()].mT
        sides = torch.tensor([(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)], dtype=c.dtype)
        self.i, self.j = i.repeat_interleave(4), j.repeat_interleave(4)
        self.si, self.sj = sides.repeat(len(i), 1).mT
        ci, cj, ri, rj = c[..., self.i, :], c[..., self.j, :], r[..., self.i], r[..., self.j]
        a, b, _, length, real = self.world.tangents(ci, ri, self.si.expand(ri.shape), cj, rj, self.sj.expand(rj.shape))
        wrapped = self.world.wrapped
        free = real & wrapped[..., self.i] & wrapped[..., self.j] & self._sees(a, b)
        some = free.flatten(0, -2).any(0) if free.dim() > 1 else free  # in one of the worlds
        self.i, self.j, self.si, self.sj = (t[some] for t in (self.i, self.j, self.si, self.sj))
        self.leave, self.arrive = self.world.angle(ci, a)[..., some], self.world.angle(cj, b)[..., some]
        self.length = torch.where(free, length, math.inf)[..., some]
        self.between = self._all_pairs()

    # --- the graph ---------------------------------------------------------------------------------------
    def _sees(self, a: Tensor, b: Tensor) -> Tensor:
        return self.world.sees(a, b, self.tol) & ~self._squeezed(a, b)

    def _squeezed(self, a: Tensor, b: Tensor) -> Tensor:
        """Straight ways between two obstacles that touch, or between one and a wall that it touches."""
        if not bool(self.touching.any() | self.touch_walls.any()):
            return torch.zeros_like(a[..., 0], dtype=torch.bool)
        w = self.world
        queries = a.dim() - w.centers.dim() + 1
        c, r, touching, walls = (w._spread(t, queries) for t in (w.centers, w.sizes, self.touching, self.touch_walls))
        near = w.reach_of_segment(a, b) <= r + 2 * self.tol
        normal = w.left(a, w.direction(a, b))
        side = ((c - a[..., None, :]) * normal[..., None, :]).sum(-1)
        left, right = near & (side > 0), near & (side < 0)
        along = torch.maximum(w.to_walls(a), w.to_walls(b)) <= 2 * self.tol  # (*batch, walls)
        between = (touching & left[..., :, None] & right[..., None, :]).flatten(-2).any(-1)
        return between | (walls & near[..., :, None] & along[..., None, :]).flatten(-2).any(-1)

    def _arc(self, i: Tensor, side: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """Length of the rim of obstacle i from one angle to another, counterclockwise for side 1; inf where it is not free.

        i, side (...K,) without world dimensions; start, end (*worlds, *queries, K).
        """
        sweep = (side * (end - start)) % TURN
        sweep = torch.where(sweep > TURN - 1e-9, 0.0, sweep)
        queries = start.dim() - (self.width.dim() - 2) - i.dim()
        middle = self.world._spread(self.middle[..., i, :], queries)
        width = self.world._spread(self.width[..., i, :], queries)
        ahead = (side[..., None] * (middle - start[..., None])) % TURN
        hidden = (width > 0) & ((ahead - width < sweep[..., None] - 1e-9) | (ahead + width > TURN + 1e-9))
        speed = self.world.rim_speed(self.world._spread(self.world.sizes[..., i], queries))
        return torch.where(hidden.any(-1), math.inf, sweep * speed)

    def _all_pairs(self) -> Tensor:
        """(*worlds, N, N), by Floyd and Warshall among the tangents that are free."""
        n = len(self.i)
        same = (self.j[:, None] == self.i[None]) & (self.sj[:, None] == self.si[None])
        b, c = same.nonzero().mT
        D = self.length.new_full((*self.length.shape[:-1], n, n), math.inf)
        if len(b):
            arcs = self._arc(self.i[c], self.si[c], self.arrive[..., b], self.leave[..., c])
            D[..., b, c] = arcs + self.length[..., c] + torch.where(torch.isinf(self.length[..., b]), math.inf, 0.0)
        D.diagonal(dim1=-2, dim2=-1).zero_()
        free = torch.isfinite(self.length)
        most = int(free.sum(-1).max()) if n else 0
        order = free.byte().argsort(dim=-1, descending=True, stable=True)[..., :most]
        rows = order[..., None].expand(*order.shape, n)
        some = D.gather(-2, rows)
        among = some.gather(-1, order[..., None, :].expand(*order.shape, most))
        for k in range(most):
            among = torch.minimum(among, among[..., :, k, None] + among[..., None, k, :])
        return D.scatter(-2, rows, some.scatter(-1, order[..., None, :].expand(*order.shape, most), among))

    # --- queries -----------------------------------------------------------------------------------------
    def _touches(self, x: Tensor, outwards: bool) -> Touches:
        """Ways from x to the rims, or from the rims to x."""
        queries = x.dim() - self.world.centers.dim() + 1
        c = self.world._spread(self.world.centers, queries)[..., None, :]
        r = self.world._spread(self.world.sizes, queries)[..., None]
        side = torch.tensor([1.0, -1.0], dtype=x.dtype)
        p = x[..., None, None, :]
        shape = torch.broadcast_shapes(p.shape[:-1], c.shape[:-1], side.shape)
        c, r, side, p = c.expand(*shape, x.shape[-1]), r.expand(shape), side.expand(shape), p.expand(*shape, x.shape[-1])
        zero = torch.zeros_like(r)
        ends = (p, zero, side, c, r, side) if outwards else (c, r, side, p, zero, side)
        a, b, direction, length, real = self.world.tangents(*ends)
        rim = b if outwards else a
        wrapped = self.world._spread(self.world.wrapped, queries)[..., None]
        free = self._sees(a, b) & (real | (self.world.distance(p, c) <= r + self.tol)) & wrapped
        return Touches(rim, self.world.angle(c, rim), torch.where(free, length, math.inf), direction)

    def solve(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Length (inf: no way) and the direction in which a shortest path leaves x: (*batch,), (*batch, n)."""
        x, y = torch.broadcast_tensors(x.double(), y.double())
        k, n = self.world.centers.dim() - 2, self.world.dim
        worlds = self.world.centers.shape[:k]
        if x.shape[-1:] != (n,) or x.shape[:-1][:k] != worlds:
            asked = ", ".join(map(str, (*worlds, "...", n)))
            raise ValueError(f"Shortest paths asked for points ({asked}), got {tuple(x.shape)}: worlds first, then queries.")
        queries = x.shape[k:-1]
        flat_x, flat_y = (t.flatten(k, -2) if queries else t.unsqueeze(-2) for t in (x, y))
        rows = max(1, CHUNK // max(1, len(self.i) ** 2 * math.prod(x.shape[:k])))
        parts = [self._solve(a, b) for a, b in zip(flat_x.split(rows, k), flat_y.split(rows, k), strict=True)]
        length, direction = (torch.cat(p, k) for p in zip(*parts, strict=True))
        return length.reshape(x.shape[:-1]), direction.reshape(x.shape)

    def _onwards(self, from_end: Tensor) -> Tensor:
        """From the end of each tangent to y, by any others: (*worlds, Q, N)."""
        rows = max(1, CHUNK // max(1, from_end.numel()))
        parts = [(b[..., None, :, :] + from_end[..., None, :]).amin(-1) for b in self.between.split(rows, -2)]
        return torch.cat(parts, -1)

    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        return self.solve(x, y)[0]

    def _solve(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Points (*worlds, Q, n)."""
        straight, ahead = torch.where(self._sees(x, y), self.world.distance(x, y), math.inf), self.world.direction(x, y)
        opposite = self.world.opposite(x, y)
        if bool(opposite.any()):
            via = self.world.halfway(x)
            straight = torch.where(opposite & self._sees(x, via) & self._sees(via, y), self.world.distance(x, y), straight)
            ahead = torch.where(opposite[..., None], self.world.direction(x, via), ahead)
        if not self.m:
            return straight, ahead
        total, direction = self.ways(x, y)
        best, which = total.min(-1)
        bent = direction.gather(-2, which[..., None, None].expand(*which.shape, 1, x.shape[-1]))[..., 0, :]
        seen = straight <= best
        return torch.where(seen, straight, best), torch.where(seen[..., None], ahead, bent)

    def ways(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The least length of a path that goes first to obstacle i, keeping it on the left (2i) or the right (2i + 1), and the
        direction in which it leaves: (*worlds, Q, 2m), (*worlds, Q, 2m, n). Points (*worlds, Q, n)."""
        out, back = self._touches(x, True), self._touches(y, False)
        i = torch.arange(self.m).repeat_interleave(2)
        side = torch.tensor([1.0, -1.0], dtype=x.dtype).repeat(self.m)
        flat = (*x.shape[:-1], 2 * self.m)
        a0, l0, a1, l1 = (t.reshape(flat) for t in (out.angle, out.length, back.angle, back.length))
        # x, an arc of one obstacle, y
        total = l0 + self._arc(i, side, a0, a1) + l1
        if len(self.i):
            first, last = 2 * self.i + (self.si < 0), 2 * self.j + (self.sj < 0)
            queries = 1
            spread = self.world._spread
            into = l0[..., first] + self._arc(self.i, self.si, a0[..., first], spread(self.leave, queries).expand(*flat[:-1], -1))
            into = into + spread(self.length, queries)  # x to the end of tangent b
            from_end = l1[..., last] + self._arc(
                self.j, self.sj, spread(self.arrive, queries).expand(*flat[:-1], -1), a1[..., last]
            )
            through = into + self._onwards(from_end)
            many = torch.full_like(total, math.inf)
            total = torch.minimum(total, many.scatter_reduce(-1, first.expand(through.shape), through, "amin"))
        return total, out.direction.flatten(-3, -2)
