"""Planners, all with one method: plan(x, y) -> Path."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from ..kernels.vectors import norm
from .path import Path, padded
from .queries import departures, ready
from .roadmap import Roadmap
from .shortest import ShortestPaths
from .worlds import World

Policy = Callable[[Tensor, Tensor], Tensor]  # x, y -> direction to go, (rows, n)
ARRIVED = 0.05  # units; the paper's kind of planner never quite gets there


class Planner(Protocol):
    world: World

    def plan(self, x: Tensor, y: Tensor, snap: bool = False) -> Path:
        """From x to y, both (rows, n). Points inside obstacles are an error, or with snap moved to the nearest free point."""
        ...


Fallback = Callable[[World], Planner]


def rescue(path: Path, world: World, x: Tensor, y: Tensor, fallback: Fallback | None) -> Path:
    """Rows that do not arrive, planned again: by one planner for all of them, in a batch of worlds by one for equal worlds."""
    lost = (~(path.reached & path.certified)).nonzero()[:, 0]
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
    k = max(path.points.shape[1], *(p.points.shape[1] for p in others))
    points = padded(path.points, k).index_copy(0, lost, torch.cat([padded(p.points, k) for p in others]))
    reached = path.reached.index_copy(0, lost, torch.cat([p.reached for p in others]))
    return Path.of(world, points, reached, torch.zeros_like(reached).index_fill(0, lost, True))


def roadmap(world: World, nodes: int = 1000, seed: int = 0) -> Fallback:
    """For `fallback`: made when it is first needed, and kept for this world."""
    kept = cache(lambda: Roadmap(world, nodes, seed))
    return lambda w: kept() if w is world else Roadmap(w, nodes, seed)


class OneStep:
    """The paper's planner: x_{n+1} = P_M(g(x_n, y)). Its points are free, its segments need not be.

    g None: the minimiser of its loss d(z, y)^2 + lam |z - x|^2 for Euclidean d, P_M((y + lam x) / (1 + lam)): no learning.
    """

    def __init__(self, world: World, g: Callable[[Tensor, Tensor], Tensor] | None = None, lam: float = 9.0, steps: int = 200):
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
    """Shortest paths in short steps, on obstacles inflated by a hair: certified, and longer by as much. corner: 0.02 units."""

    def __init__(self, world: World, corner: float | None = None):
        world.need_one("Exact")
        self.world, self.solver = world, ShortestPaths(world)
        self.corner = 0.02 * world.unit if corner is None else corner

    @torch.no_grad()
    def plan(self, x: Tensor, y: Tensor, snap: bool = False) -> Path:
        """By steps along exact directions; rows without a way stay where they are."""
        x, y = ready(self.world, x, y, snap)
        ways = torch.isfinite(self.solver.distance(x, y)).nonzero()[:, 0]
        steps = Certified(self.world, lambda a, b: self.solver.solve(a, b)[1], self.corner, max_steps=2000)
        path = steps.plan(x[ways], y[ways])
        points = x[:, None].expand(-1, path.points.shape[1], -1).index_copy(0, ways, path.points)
        return Path.of(self.world, points, torch.zeros(len(x), dtype=torch.bool).index_copy(0, ways, path.reached))


class Certified:
    """Steps of a policy on inflated obstacles, so small that no segment can touch the true ones; straight to y when y is seen.

    With M' the world inflated for steps s and x in M', the point P_M'(x + s/2 v), |v| <= 1, is at most s from x, since x itself
    is in M'. Longer v are cut to 1; every segment is checked in closed form all the same, and not gone if it is not free. Rows
    that do not arrive are planned again by `fallback`. step: 0.1 units.
    """

    def __init__(
        self, world: World, policy: Policy, step: float | None = None, max_steps: int = 400, fallback: Fallback | None = None
    ):
        world.need_one("Certified")
        self.world, self.policy, self.max_steps, self.fallback = world, policy, max_steps, fallback
        self.step, self.inner = inflated(world, step)

    @torch.no_grad()
    def plan(self, x: Tensor, y: Tensor, snap: bool = False) -> Path:
        x, y = ready(self.world, x, y, snap)
        start = departures(self.world, x, y)
        seen, inside = self.world.sees(start, y), self.inner.M.project(start)
        inside = torch.where(self.world.sees(start, inside)[:, None], inside, start)
        points, reached = [x] if start is x else [x, start], seen.clone()
        points.append(torch.where(seen[:, None], y, inside))
        live = (~seen).nonzero()[:, 0]
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
        return rescue(Path.of(self.world, torch.stack(points, 1), reached), self.world, x, y, self.fallback)

    def _step(self, x: Tensor, y: Tensor) -> Tensor:
        v = self.policy(x, y)
        if v.shape != x.shape:
            raise ValueError(f"Certified asked its policy for directions {tuple(x.shape)}, got {tuple(v.shape)}.")
        v = self.world.tangent(x, v.double()).nan_to_num(0.0, 0.0, 0.0)
        return self.inner.M.project(self.world.move(x, 0.5 * self.step * v / norm(v).clamp(min=1)[:, None]))


def inflated(world: World, step: float | None = None) -> tuple[float, World]:
    """The steps that `Certified` takes, and the world that it takes them in: what a policy is trained on."""
    step = float(world.safe_steps(0.1 * world.unit if step is None else step))
    return step, world.inflate(step)
