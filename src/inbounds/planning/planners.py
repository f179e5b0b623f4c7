"""Planners, all with one method: plan(x, y) -> Path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from .path import Path, padded
from .queries import ready
from .roadmap import Roadmap
from .shortest import ShortestPaths
from .worlds import World

Policy = Callable[[Tensor, Tensor], Tensor]  # x, y -> direction to go, (rows, n)
ARRIVED = 0.05  # the paper's kind of planner never quite gets there


class Planner(Protocol):
    world: World

    def plan(self, x: Tensor, y: Tensor, snap: bool = False) -> Path:
        """From x to y, both (rows, n). Points inside obstacles are an error, or with snap moved to the nearest free point."""
        ...


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
            live = self.world.distance(x, y) > ARRIVED
            if not bool(live.any()):
                break
        return Path.of(self.world, torch.stack(points, -2), ~live)


class Exact:
    """Shortest paths in short steps, on obstacles inflated by a hair: certified, longer than the exact length by about 1e-5."""

    def __init__(self, world: World, corner: float = 0.02):
        self.world, self.solver, self.corner = world, ShortestPaths(world), corner

    @torch.no_grad()
    def plan(self, x: Tensor, y: Tensor, snap: bool = False) -> Path:
        """By steps along exact directions on slightly inflated obstacles."""
        return Certified(self.world, lambda a, b: self.solver.solve(a, b)[1], self.corner, max_steps=2000).plan(x, y, snap)


class Certified:
    """Steps of a policy on inflated obstacles, so small that no segment can touch the true ones; straight to y when y is seen.

    With M' the world inflated for steps s and x in M', the point P_M'(x + s/2 v) is at most s from x, since x itself is in M'.
    Every segment is checked in closed form all the same. Rows that do not arrive are planned again by `fallback`.
    """

    def __init__(
        self,
        world: World,
        policy: Policy,
        step: float = 0.1,
        max_steps: int = 400,
        fallback: Callable[[], Planner] | None = None,
    ):
        self.world, self.policy, self.step, self.max_steps = world, policy, float(world.safe_steps(step)), max_steps
        self.inner = world.inflate(self.step)
        self._make, self._other = fallback, None

    @torch.no_grad()
    def plan(self, x: Tensor, y: Tensor, snap: bool = False) -> Path:
        x, y = ready(self.world, x, y, snap)
        seen, inside = self.world.sees(x, y), self.inner.M.project(x)
        inside = torch.where(self.world.sees(x, inside)[:, None], inside, x)
        points, reached = [x, torch.where(seen[:, None], y, inside)], seen.clone()
        live = (~seen).nonzero()[:, 0]
        now = inside[live]
        for _ in range(self.max_steps):
            if not len(live):
                break
            target = y[live]
            seen = self.world.sees(now, target)
            ahead = self.world.move(now, 0.5 * self.step * self.policy(now, target))
            following = torch.where(seen[:, None], target, self.inner.M.project(ahead))
            points.append(points[-1].index_copy(0, live, following))
            reached[live[seen]] = True
            live, now = live[~seen], following[~seen]
        path = Path.of(self.world, torch.stack(points, 1), reached)
        return self._rescue(path, x, y)

    def _rescue(self, path: Path, x: Tensor, y: Tensor) -> Path:
        lost = (~(path.reached & path.certified)).nonzero()[:, 0]
        if self._make is None or not len(lost):
            return path
        self._other = self._other or self._make()
        other = self._other.plan(x[lost], y[lost])
        k = max(path.points.shape[1], other.points.shape[1])
        points, more = padded(path.points, k), padded(other.points, k)
        points = points.index_copy(0, lost, more.to(points.dtype))
        reached = path.reached.index_copy(0, lost, other.reached)
        return Path.of(self.world, points, reached, torch.zeros_like(reached).index_fill(0, lost, True))


def roadmap(world: World, nodes: int = 1000, seed: int = 0) -> Callable[[], Planner]:
    """For `fallback`: made when it is first needed."""
    return lambda: Roadmap(world, nodes, seed)
