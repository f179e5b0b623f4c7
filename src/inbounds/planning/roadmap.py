"""A roadmap: free points, the straight ways between them, shortest paths along those. Works wherever clearance is known."""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from .graphs import dijkstra
from .path import Path
from .queries import ready
from .worlds import SphereWorld, World


class Roadmap:
    """Planner that asks for clearance alone: balls may overlap in any dimension.

    Half of the nodes are uniform, the others lie close to obstacles, where narrow passages are.
    """

    def __init__(self, world: World, nodes: int = 1000, seed: int = 0):
        world.need_one("Roadmap")
        self.world, g = world, torch.Generator().manual_seed(seed)
        uniform = world.sample(nodes, generator=g)
        near = uniform[nodes // 2 :]
        if world.sizes.numel():
            which = torch.randint(len(world.sizes), (len(near),), generator=g)
            spread = world.sizes[which, None] * (1 + 0.3 * torch.rand(len(near), 1, generator=g, dtype=torch.float64))
            around = torch.randn(near.shape, generator=g, dtype=torch.float64)
            aim = world.centers[which] + spread * around / around.norm(dim=1, keepdim=True)
            aim = aim / aim.norm(dim=1, keepdim=True) if isinstance(world, SphereWorld) else aim
            near = torch.where(world.sees(aim, aim)[:, None], aim, near)
        self.nodes = torch.cat([uniform[: nodes // 2], near])
        a, b = torch.triu_indices(nodes, nodes, 1)
        seen = torch.cat(
            [world.sees(self.nodes[i], self.nodes[j]) for i, j in zip(a.split(200_000), b.split(200_000), strict=True)]
        )
        self.edges = torch.zeros(nodes, nodes, dtype=torch.float64)  # 0: none
        far = world.distance(self.nodes[a[seen]], self.nodes[b[seen]]).clamp(min=self._least)
        self.edges[a[seen], b[seen]] = self.edges[b[seen], a[seen]] = far

    @property
    def _least(self) -> float:
        """The least length of an edge, since 0 says that there is none."""
        return 1e-12 * self.world.unit

    @cached_property
    def lengths(self) -> Tensor:
        """The least lengths between all nodes."""
        return torch.from_numpy(dijkstra(self.edges, directed=False))

    def _ends(self, x: Tensor) -> Tensor:
        """Distance to every node that is seen, else inf: (rows, nodes)."""
        rows, n = len(x), len(self.nodes)
        a, b = x[:, None].expand(rows, n, -1), self.nodes[None].expand(rows, n, -1)
        return torch.where(self.world.sees(a, b), self.world.distance(a, b), math.inf)

    def directions(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The direction in which the way to the nodes `target` (rows,) begins, and its length."""
        total = self._ends(x) + self.lengths[target]
        best, first = total.min(1)
        return self.world.direction(x, self.nodes[first]), best

    @torch.no_grad()
    def plan(self, x: Tensor, y: Tensor, snap: bool = False) -> Path:
        x, y = ready(self.world, x, y, snap)
        straight = self.world.sees(x, y)
        out, back = self._ends(x), self._ends(y)
        routes = [[] if seen else self._route(a, b) for seen, a, b in zip(straight.tolist(), out, back, strict=True)]
        reached = straight | torch.tensor([bool(r) for r in routes], dtype=torch.bool)
        most = max([len(r) for r in routes], default=0)
        filled = [r + r[-1:] * (most - len(r)) if r else [-1] * most for r in routes]
        index = torch.tensor(filled, dtype=torch.long).reshape(len(x), most)
        between = torch.where((index < 0)[..., None], y[:, None], self.nodes[index])
        points = torch.cat([x[:, None], between, y[:, None]], 1)
        return Path.of(self.world, torch.where(reached[:, None, None], points, x[:, None]), reached)

    def _route(self, out: Tensor, back: Tensor) -> list[int]:
        """The nodes of a shortest way; empty if there is none. out, back: lengths from start and target to nodes, inf: hidden."""
        n = len(self.nodes)
        graph = torch.zeros(n + 2, n + 2, dtype=torch.float64)
        graph[:n, :n] = self.edges
        graph[n, :n], graph[n + 1, :n] = (torch.where(torch.isinf(e), 0.0, e.clamp(min=self._least)) for e in (out, back))
        length, before = dijkstra(graph, directed=False, indices=n, return_predecessors=True)
        if math.isinf(length[n + 1]):
            return []
        route, node = [], int(before[n + 1])
        while node != n:
            route.append(node)
            node = int(before[node])
        return route[::-1]
