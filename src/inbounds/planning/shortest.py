"""Exact shortest paths among discs and caps: straight ways that touch obstacles, and arcs of their rims. The yardstick."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .contacts import CLOSED, Contacts
from .routes import Routes
from .worlds import TURN, World

CHUNK = 2**22  # numbers of the largest table at once
DENSE = 256  # with more tangents than this, a world is searched by Dijkstra and not by a table of all pairs
BLOCK = 32  # obstacles that are compared with straight ways at once, where there are many
ANGLE = 1e-9  # radians: rim points so near to each other are one


@dataclass
class Touches:
    """Straight ways between a point and an obstacle's rim, (*batch, m, 2): the obstacle to the left, or to the right."""

    angle: Tensor  # where on the rim
    length: Tensor  # inf if not free
    direction: Tensor  # in which the way leaves its first end


class ShortestPaths:
    """Shortest paths of one world, or of a batch of them, for any number of queries.

    A shortest path is straight but for arcs of the rims of obstacles, which it enters and leaves along common tangents. Nodes are
    directed tangents from obstacle i to obstacle j, either on its left or right: four per ordered pair. Of one world with many
    tangents the graph is searched by Dijkstra's algorithm (`routes`); else `between[b, c]` is the least length from the end of b
    to the end of c.

    Gaps of at most 2e-9 of the world's size count as closed: where two obstacles touch, or one and a wall, no path goes between
    them. A path may start or end at such a contact, and then leaves it on either side. An obstacle that lies inside of another,
    or sticks out by at most as much, is left out.
    """

    def __init__(self, world: World):
        world.need_surface("Shortest paths")
        self.gap = CLOSED * world.scale
        self.tol = self.gap / 2
        self.world = world = without_covered(world, self.gap)
        self.m = world.sizes.shape[-1]
        self.middle, self.width = world.blocked(self.gap)
        self.contacts = Contacts(world, self.gap)
        self._find_tangents()
        self.sparse = world.centers.dim() == 2 and len(self.i) > DENSE
        if not self.sparse:
            self.between = self._all_pairs()

    # --- the graph ---------------------------------------------------------------------------------------
    def _find_tangents(self) -> None:
        """Those that are free in one of the worlds, then the same ones backwards: i, j, si, sj (N,), the others (*worlds, N)."""
        w, (c, r) = self.world, (self.world.centers, self.world.sizes)
        i, j = torch.triu_indices(self.m, self.m, 1).repeat_interleave(4, 1)
        si, sj = torch.tensor([(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)], dtype=c.dtype).repeat(len(i) // 4, 1).mT
        possible = w.wrapped[..., i] & w.wrapped[..., j]
        possible = possible & ~((si != sj) & self.contacts.touching[..., i, j])  # between two that touch no way crosses over
        some = possible.flatten(0, -2).any(0) if possible.dim() > 1 else possible
        i, j, si, sj, possible = i[some], j[some], si[some], sj[some], possible[..., some]
        ci, cj, ri, rj = c[..., i, :], c[..., j, :], r[..., i], r[..., j]
        a, b, _, length, real = w.tangents(ci, ri, si.expand(ri.shape), cj, rj, sj.expand(rj.shape))
        free = possible & real & self._sees(a, b)
        free = free & ~self.contacts.crossed(a, b, beyond=True) & ~self.contacts.crossed(b, a, beyond=True)
        some = free.flatten(0, -2).any(0) if free.dim() > 1 else free
        i, j, si, sj = (t[some] for t in (i, j, si, sj))
        leave, arrive = w.angle(ci, a)[..., some], w.angle(cj, b)[..., some]
        self.i, self.j, self.si, self.sj = torch.cat([i, j]), torch.cat([j, i]), torch.cat([si, -sj]), torch.cat([sj, -si])
        self.leave, self.arrive = torch.cat([leave, arrive], -1), torch.cat([arrive, leave], -1)
        self.length = torch.where(free, length, math.inf)[..., some].repeat(*(1,) * (free.dim() - 1), 2)

    def _sees(self, a: Tensor, b: Tensor) -> Tensor:
        """Straight ways that are free and cross no contact. Of one world with many obstacles, block by block: what some hide need
        not be compared with the others."""
        a, b = torch.broadcast_tensors(a, b)
        if self.world.centers.dim() > 2 or self.m <= 2 * BLOCK:
            return self.world.sees(a, b, self.tol) & ~self.contacts.crossed(a, b)
        shape = a.shape[:-1]
        a, b = a.flatten(0, -2), b.flatten(0, -2)
        free = ~self.contacts.crossed(a, b)
        largest = self.world.sizes.argsort(descending=True)
        for block in largest[self.world.sizes[largest] > 0].split(BLOCK):
            some = self.world.among(self.world.centers[block], self.world.sizes[block])
            for rows in free.nonzero()[:, 0].split(CHUNK // BLOCK):
                free[rows] = some.sees(a[rows], b[rows], self.tol)
        return free.reshape(shape)

    def arc(self, i: Tensor, side: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """Length of the rim of obstacle i from one angle to another, counterclockwise for side 1; inf where it is not free.

        i, side (...K,) without world dimensions; start, end (*worlds, *queries, K). What hides the rim may begin where the arc
        ends, and end where the arc begins.
        """
        sweep = (side * (end - start)) % TURN
        sweep = torch.where(sweep > TURN - ANGLE, 0.0, sweep)
        queries = start.dim() - (self.width.dim() - 2) - i.dim()
        middle = self.world.spread(self.middle[..., i, :], queries)
        width = self.world.spread(self.width[..., i, :], queries)
        ahead = (side[..., None] * (middle - start[..., None])) % TURN
        within = (ahead - width < sweep[..., None] - ANGLE) & (ahead + width > ANGLE)
        hidden = (width >= 0) & (within | (ahead + width > TURN + ANGLE))
        speed = self.world.rim_speed(self.world.spread(self.world.sizes[..., i], queries))
        return torch.where(hidden.any(-1), math.inf, sweep * speed)

    def _all_pairs(self) -> Tensor:
        """(*worlds, N, N), by Floyd and Warshall among the tangents that are free."""
        n = len(self.i)
        same = (self.j[:, None] == self.i[None]) & (self.sj[:, None] == self.si[None])
        b, c = same.nonzero().mT
        D = self.length.new_full((*self.length.shape[:-1], n, n), math.inf)
        if len(b):
            arcs = self.arc(self.i[c], self.si[c], self.arrive[..., b], self.leave[..., c])
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

    @cached_property
    def routes(self) -> Routes:
        """The same graph for Dijkstra's algorithm, which also tells the way; of one world."""
        self.world.need_one("Routes of ShortestPaths")
        return Routes(self)

    # --- queries -----------------------------------------------------------------------------------------
    def touches(self, x: Tensor, outwards: bool) -> Touches:
        """Ways from x to the rims, or from the rims to x. A point on a rim touches it where it is."""
        w, queries = self.world, x.dim() - self.world.centers.dim() + 1
        c = w.spread(w.centers, queries)[..., None, :]
        r, wrapped = (w.spread(t, queries)[..., None] for t in (w.sizes, w.wrapped))
        side = torch.tensor([1.0, -1.0], dtype=x.dtype)
        p = x[..., None, None, :]
        shape = torch.broadcast_shapes(p.shape[:-1], c.shape[:-1], side.shape)
        c, r, side, p = c.expand(*shape, x.shape[-1]), r.expand(shape), side.expand(shape), p.expand(*shape, x.shape[-1])
        zero = torch.zeros_like(r)
        ends = (p, zero, side, c, r, side) if outwards else (c, r, side, p, zero, side)
        a, b, direction, length, real = w.tangents(*ends)
        rim = b if outwards else a
        angle = w.angle(c, rim)
        at_rim = (w.distance(p, c) - r).abs() <= self.tol
        if bool((at_rim & wrapped).any()):
            here = w.angle(c, p)
            here = here + self._to_the_open(here, side if outwards else -side)
            angle = torch.where(at_rim, here, angle)
            rim = torch.where(at_rim[..., None], w.rim_point(c, r, angle), rim)
            length = torch.where(at_rim, w.distance(p, rim), length)
        free = self._sees(p, rim) & (real | at_rim) & wrapped & (at_rim | ~self.contacts.crossed(p, rim, beyond=True))
        return Touches(angle, torch.where(free, length, math.inf), direction)

    def _to_the_open(self, angle: Tensor, side: Tensor) -> Tensor:
        """How far a point of a rim that another obstacle hides must turn to be at the end of what is hidden: (*batch, m, 2).

        A point where two rims cross lies, by rounding, at one of the ends, on this side or that. Whether the end can be seen
        from the point is not asked here.
        """
        queries = angle.dim() - self.world.centers.dim()
        middle, width = (self.world.spread(t, queries)[..., None, :] for t in (self.middle, self.width))
        behind = (side[..., None] * (angle[..., None] - middle) + math.pi) % TURN - math.pi
        turn = torch.where(behind.abs() < width, width - behind, 0.0).amax(-1)
        return side * turn

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
        table = 2 * self.m * (self.m + 8) if self.sparse else len(self.i) ** 2
        rows = max(1, CHUNK // max(1, table * math.prod(x.shape[:k])))
        parts = [self._solve(a, b) for a, b in zip(flat_x.split(rows, k), flat_y.split(rows, k), strict=True)]
        length, direction = (torch.cat(p, k) for p in zip(*parts, strict=True))
        return length.reshape(x.shape[:-1]), direction.reshape(x.shape)

    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        """The length of a shortest path, inf where there is no way: (*batch,)."""
        return self.solve(x, y)[0]

    def _solve(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Points (*worlds, Q, n)."""
        straight, ahead = self.straight(x, y)
        if not self.m:
            return straight, ahead
        if self.sparse:
            best, bent = self.routes.solve(x, y)
        else:
            total, direction = self.ways(x, y)
            best, which = total.min(-1)
            bent = direction.gather(-2, which[..., None, None].expand(*which.shape, 1, x.shape[-1]))[..., 0, :]
        seen = straight <= best
        return torch.where(seen, straight, best), torch.where(seen[..., None], ahead, bent)

    def straight(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Length and direction of the straight way, inf if it is not free: (*batch,), (*batch, n)."""
        length, ahead = torch.where(self._sees(x, y), self.world.distance(x, y), math.inf), self.world.direction(x, y)
        opposite = self.world.opposite(x, y)
        if bool(opposite.any()):
            via = self.world.halfway(x)
            free = self._sees(x, via) & self._sees(via, y) & ~self.contacts.crossed(x, via, beyond=True)
            length = torch.where(opposite & free, self.world.distance(x, y), length)
            ahead = torch.where(opposite[..., None], self.world.direction(x, via), ahead)
        return length, ahead

    def ways(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The least length of a path that goes first to obstacle i, keeping it on the left (2i) or the right (2i + 1), and the
        direction in which it leaves: (*worlds, Q, 2m), (*worlds, Q, 2m, n). Points (*worlds, Q, n)."""
        out, back = self.touches(x, True), self.touches(y, False)
        i = torch.arange(self.m).repeat_interleave(2)
        side = torch.tensor([1.0, -1.0], dtype=x.dtype).repeat(self.m)
        flat = (*x.shape[:-1], 2 * self.m)
        a0, l0, a1, l1 = (t.reshape(flat) for t in (out.angle, out.length, back.angle, back.length))
        # x, an arc of one obstacle, y
        total = l0 + self.arc(i, side, a0, a1) + l1
        if len(self.i):
            first, last = 2 * self.i + (self.si < 0), 2 * self.j + (self.sj < 0)
            queries = 1
            spread = self.world.spread
            into = l0[..., first] + self.arc(self.i, self.si, a0[..., first], spread(self.leave, queries).expand(*flat[:-1], -1))
            into = into + spread(self.length, queries)  # x to the end of tangent b
            from_end = l1[..., last] + self.arc(
                self.j, self.sj, spread(self.arrive, queries).expand(*flat[:-1], -1), a1[..., last]
            )
            through = into + self._onwards(from_end)
            many = torch.full_like(total, math.inf)
            total = torch.minimum(total, many.scatter_reduce(-1, first.expand(through.shape), through, "amin"))
        return total, out.direction.flatten(-3, -2)

    def _onwards(self, from_end: Tensor) -> Tensor:
        """The least length from the end of each tangent to y, by any others: (*worlds, Q, N)."""
        rows = max(1, CHUNK // max(1, from_end.numel()))
        parts = [(b[..., None, :, :] + from_end[..., None, :]).amin(-1) for b in self.between.split(rows, -2)]
        return torch.cat(parts, -1)


def without_covered(world: World, gap: float) -> World:
    """Obstacles that others hold, or that stick out by at most gap, have size 0. Of two that are equal the first stays."""
    c, r = world.centers, world.sizes
    m = r.shape[-1]
    if m < 2:
        return world
    shape = (*c.shape[:-2], m, m, c.shape[-1])
    apart = world.distance(c[..., :, None, :].expand(shape), c[..., None, :, :].expand(shape))
    ri, rk = r[..., :, None], r[..., None, :]
    earlier = torch.ones(m, m, dtype=torch.bool).triu(1)
    covered = (ri > 0) & (rk > 0) & (apart + rk <= ri + gap) & ((rk < ri) | ((rk == ri) & earlier))
    return world.among(c, torch.where(covered.any(-2), 0.0, r)) if bool(covered.any()) else world
