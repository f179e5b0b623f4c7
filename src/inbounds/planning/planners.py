"""Planners, all with one method: plan(x, y) -> Path."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Protocol

import torch
from torch import Tensor

from ..kernels.vectors import norm
from .contacts import CLOSED, Contacts
from .path import Path, padded
from .queries import departures, ready, ways_out
from .roadmap import Roadmap
from .routes import Arc
from .separation import separated
from .shortest import ShortestPaths
from .worlds import World

Policy = Callable[[Tensor, Tensor], Tensor]  # x, y -> direction to go, (rows, n)
ARRIVED = 0.05  # units; the paper's kind of planner never quite gets there
THICKER = 1e-8  # units: more than what counts as closed, so that what the solver sees is free
ROWS = 256  # queries that are searched at once


class Planner(Protocol):
    """What finds ways from starts to targets."""

    world: World

    def plan(self, x: Tensor, y: Tensor, snap: bool = False) -> Path:
        """Paths from x to y, both (rows, n). Points inside obstacles are an error, or with snap move to the nearest free one."""
        ...


Fallback = Callable[[World], Planner]


def rescue(path: Path, world: World, x: Tensor, y: Tensor, fallback: Fallback | None, hopeless: Tensor | None = None) -> Path:
    """Rows that do not arrive, planned again: by one planner for all of them, in a batch of worlds by one for equal worlds.

    Those that are known to have no way, `hopeless`, stay as they are.
    """
    lost = (~path.certified if hopeless is None else ~path.certified & ~hopeless).nonzero()[:, 0]
    if fallback is None or not len(lost):
        return path
    if world.centers.dim() > 2:
        layout = torch.cat([world.centers[lost].flatten(1), world.sizes[lost]], 1)
        _, same = layout.unique(dim=0, return_inverse=True)
        groups = [lost[same == k] for k in range(int(same.max()) + 1)]
        others = [fallback(world[int(rows[0])]).plan(x[rows], y[rows]) for rows in groups]
        lost = torch.cat(groups)
    else:
        others = [fallback(world).plan(x[lost], y[lost])]
    return replaced(path, world, lost, others)


def replaced(path: Path, world: World, rows: Tensor, others: list[Path]) -> Path:
    """The path in which these rows are taken from other paths, one after the other."""
    k = max(path.points.shape[1], *(p.points.shape[1] for p in others))
    points = padded(path.points, k).index_copy(0, rows, torch.cat([padded(p.points, k) for p in others]))
    reached = path.reached.index_copy(0, rows, torch.cat([p.reached for p in others]))
    return Path.of(world, points, reached, path.fallback.index_fill(0, rows, True))


def roadmap(world: World, nodes: int = 1000, seed: int = 0) -> Fallback:
    """A roadmap for `fallback`. It is made when it is first needed, and kept for this world."""
    kept = cache(lambda: Roadmap(world, nodes, seed))
    return lambda w: kept() if w is world else Roadmap(w, nodes, seed)


class OneStep:
    """The paper's planner: x_{n+1} = P_M(g(x_n, y)). Its points are free, its segments need not be.

    g None: the minimiser of its loss d(z, y)^2 + lam |z - x|^2 for Euclidean d, P_M((y + lam x) / (1 + lam)): no learning.
    """

    def __init__(self, world: World, g: Callable[[Tensor, Tensor], Tensor] | None = None, lam: float = 9.0, steps: int = 200):
        world.need_projection("OneStep")
        self.world, self.steps = world, steps
        self.g = g or (lambda x, y: (y + lam * x) / (1 + lam))

    @torch.no_grad()
    def plan(self, x: Tensor, y: Tensor, snap: bool = False) -> Path:
        x, y = ready(self.world, x, y, snap)
        points, live = [x], torch.ones(x.shape[:-1], dtype=torch.bool)
        for _ in range(self.steps):
            x = torch.where(live[..., None], self.world.M.project(self.g(x, y)), x)
            points.append(x)
            live = self.world.distance(x, y) > ARRIVED * self.world.unit
            if not bool(live.any()):
                break
        return Path.of(self.world, torch.stack(points, -2), ~live)


class Exact:
    """Shortest paths, read off the graph of tangents and arcs in one go. Certified, and longer by a hair.

    The graph is that of obstacles that are thicker by 1e-8 units, so that rounding does no harm; arcs become polygons around them
    with sides of at most `corner`, 0.02 units. Where such a polygon meets another obstacle, in a narrow passage, its sides are
    made shorter. Rows without a way stay where they are. Passages narrower than 3e-8 units are closed.
    """

    def __init__(self, world: World, corner: float | None = None):
        world.need_one("Exact")
        world.need_surface("Exact")
        self.world, self.inner = world, world.thicker(THICKER * world.unit)
        self.solver, self.contacts = ShortestPaths(self.inner), Contacts(world, CLOSED * world.scale)
        self.corner = 0.02 * world.unit if corner is None else corner

    @torch.no_grad()
    def plan(self, x: Tensor, y: Tensor, snap: bool = False) -> Path:
        x, y = ready(self.world, x, y, snap)
        start = departures(self.world, x, y)
        a, b, length = self._ends(start, y)
        straight = self._sees(start, y)
        reached = torch.isfinite(length) | straight
        ways = (~straight & reached).nonzero()[:, 0]
        arcs = self._arcs(a[ways], b[ways])
        middle, todo = {}, dict(zip(ways.tolist(), arcs, strict=True))
        for corner in (self.corner, self.corner / 8, self.corner / 64):
            for k, route in todo.items():
                middle[k] = torch.cat([a[k, None], *(self._polygon(arc, corner) for arc in route), b[k, None]])
            todo = {k: todo[k] for k in todo if not bool(self.world.sees(middle[k][:-1], middle[k][1:]).all())}
            if not todo:
                break
        reached[list(todo)] = False
        most = max([len(p) for k, p in middle.items() if k not in todo], default=0)
        points = [x] if start is x else [x, start]
        points = torch.stack([*points, *[points[-1]] * most, torch.where(reached[:, None], y, points[-1])], 1)
        for k in middle.keys() - todo.keys():
            points[k, -1 - most : -1] = padded(middle[k], most)
        return Path.of(self.world, points, reached)

    def _sees(self, a: Tensor, b: Tensor) -> Tensor:
        """Certified, and through no contact."""
        return self.world.sees(a, b) & ~self.contacts.crossed(a, b)

    def _ends(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Where paths enter and leave the free space of thicker obstacles, and the least length between.

        A start on a rim moves to the nearest free point. Where two obstacles touch there is one on either side.
        """
        starts, targets = self._inside(x), self._inside(y)
        a, b, best = starts[0], targets[0], torch.full_like(x[:, 0], torch.inf)
        for k, (p, q) in enumerate(product(starts, targets)):
            rows = self._sees(x, p) & self._sees(q, y)
            if k:  # most have no second point
                rows &= (p != starts[0]).any(1) | (q != targets[0]).any(1)
            length = torch.full_like(best, torch.inf)
            length[rows] = self.solver.distance(p[rows], q[rows])
            length = length + self.world.distance(x, p) + self.world.distance(q, y)
            shorter = (length < best)[:, None]
            a, b, best = torch.where(shorter, p, a), torch.where(shorter, q, b), torch.minimum(best, length)
        return a, b, best

    def _inside(self, x: Tensor) -> list[Tensor]:
        """Points of the free space of thicker obstacles, near to x, by which a path can leave it: x itself if it is one."""
        near = (self.inner.segment_clearance(x, x) < 0).nonzero()[:, 0]
        if not len(near):
            return [x]
        return [x.index_copy(0, near, p) for p in ways_out(self.inner, x[near], THICKER * self.world.unit)]

    def _arcs(self, a: Tensor, b: Tensor) -> list[list[Arc]]:
        """The arcs of the shortest way from a to b. There are none where it is straight."""
        if not len(a):
            return []
        straight = self.inner.sees(a, b, self.solver.tol).tolist()
        found = [arcs for part in zip(a.split(ROWS), b.split(ROWS), strict=True) for arcs in self.solver.routes.arcs(*part)]
        return [[] if seen or arcs is None else arcs for seen, arcs in zip(straight, found, strict=True)]

    def _polygon(self, arc: Arc, corner: float) -> Tensor:
        """Corners outside of the rim, whose sides touch it: (k, n)."""
        r = self.inner.sizes[arc.obstacle]
        sides = max(1, math.ceil(arc.sweep / min(0.2, corner / float(self.inner.rim_speed(r)))))
        step = arc.sweep / sides
        angle = arc.start + arc.side * step * (torch.arange(sides, dtype=torch.float64) + 0.5)
        far = self.inner.outer_corner(r, torch.tensor(0.5 * step, dtype=torch.float64)).expand(sides)
        return self.inner.rim_point(self.inner.centers[arc.obstacle].expand(sides, -1), far, angle)


class Certified:
    """Steps of a policy on inflated obstacles, so small that no segment can touch the true ones; straight to y when y is seen.

    With M' the world inflated for steps s and x in M', the point P_M'(x + s/2 v), |v| <= 1, is at most s from x, since x itself
    is in M'. Longer v are cut to 1; every segment is checked in closed form all the same, and not gone if it is not free. Rows
    that do not arrive are planned again by `fallback`, but for those that obstacles keep from their targets. step: 0.1 units.
    """

    def __init__(
        self, world: World, policy: Policy, step: float | None = None, max_steps: int = 400, fallback: Fallback | None = None
    ):
        world.need_one("Certified")
        self.world, self.policy, self.max_steps, self.fallback = world, policy, max_steps, fallback
        self.step, self.inner = inflated(world, step)
        self.inner.need_projection("Certified")

    @torch.no_grad()
    def plan(self, x: Tensor, y: Tensor, snap: bool = False) -> Path:
        x, y = ready(self.world, x, y, snap)
        start = departures(self.world, x, y)
        seen, inside = self.world.sees(start, y), self.inner.M.project(start)
        inside = torch.where(self.world.sees(start, inside)[:, None], inside, start)
        points, reached = [x] if start is x else [x, start], seen.clone()
        points.append(torch.where(seen[:, None], y, inside))
        hopeless = torch.zeros_like(seen)
        if self.world.is_surface:
            hopeless[~seen] = separated(self.world, start[~seen], y[~seen])
        live = (~seen & ~hopeless).nonzero()[:, 0]
        now = inside[live]
        for _ in range(self.max_steps):
            if not len(live):
                break
            target = y[live]
            seen = self.world.sees(now, target)
            ahead = torch.where(seen[:, None], target, self._step(now, target))
            following = torch.where(self.world.sees(now, ahead)[:, None], ahead, now)
            points.append(points[-1].index_copy(0, live, following))
            reached[live[seen]] = True
            live, now = live[~seen], following[~seen]
        path = Path.of(self.world, torch.stack(points, 1), reached)
        return rescue(path, self.world, x, y, self.fallback, hopeless)

    def _step(self, x: Tensor, y: Tensor) -> Tensor:
        v = self.policy(x, y)
        if v.shape != x.shape:
            raise ValueError(f"Certified asked its policy for directions {tuple(x.shape)}, got {tuple(v.shape)}.")
        v = self.world.tangent(x, v.double()).nan_to_num(0.0, 0.0, 0.0)
        return self.inner.M.project(self.world.move(x, 0.5 * self.step * v / norm(v).clamp(min=1)[:, None]))


def inflated(world: World, step: float | None = None) -> tuple[float, World]:
    """The steps that `Certified` takes, and the world that it takes them in: what a policy is trained on."""
    step = float(world.safe_steps(0.1 * world.unit if step is None else step))
    return step, world.for_chords(step)
