"""A roadmap: free points, the straight ways between them, shortest paths along those. Works wherever clearance is known."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .path import Path
from .queries import ready
from .worlds import World


class Roadmap:
    """Planner. Half of the nodes are uniform, the others lie close to obstacles, where narrow passages are."""

    def __init__(self, world: World, nodes: int = 1000, seed: int = 0):
        from scipy.sparse.csgraph import dijkstra

        self.world, g = world, torch.Generator().manual_seed(seed)
        uniform = world.sample(nodes, generator=g)
        near = uniform[nodes // 2 :]
        if world.sizes.numel():
            which = torch.randint(len(world.sizes), (len(near),), generator=g)
            spread = world.sizes[which, None] * (1 + 0.3 * torch.rand(len(near), 1, generator=g, dtype=torch.float64))
            around = torch.randn(near.shape, generator=g, dtype=torch.float64)
            near = world.M.project(world.centers[which] + spread * around / around.norm(dim=1, keepdim=True))
        self.nodes = torch.cat([uniform[: nodes // 2], near])
        a, b = torch.triu_indices(nodes, nodes, 1)
        seen = torch.cat(
            [world.sees(self.nodes[i], self.nodes[j]) for i, j in zip(a.split(200_000), b.split(200_000), strict=True)]
        )
        D = torch.zeros(nodes, nodes, dtype=torch.float64)
        D[a[seen], b[seen]] = world.distance(self.nodes[a[seen]], self.nodes[b[seen]]).clamp(min=1e-12)
        length, before = dijkstra((D + D.mT).numpy(), directed=False, return_predecessors=True)
        self.lengths, self.before = torch.from_numpy(length), torch.from_numpy(before).long()

    def _ends(self, x: Tensor) -> Tensor:
        """Distance to every node that is seen, else inf: (rows, nodes)."""
        rows, n = len(x), len(self.nodes)
        a, b = x[:, None].expand(rows, n, -1), self.nodes[None].expand(rows, n, -1)
        return torch.where(self.world.sees(a, b), self.world.distance(a, b), math.inf)

    def directions(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """To the nodes `target` (rows,): the direction of the first way, and the length of the whole."""
        total = self._ends(x) + self.lengths[target]
        best, first = total.min(1)
        return self.world.direction(x, self.nodes[first]), best

    @torch.no_grad()
    def plan(self, x: Tensor, y: Tensor, snap: bool = False) -> Path:
        x, y = ready(self.world, x, y, snap)
        straight = self.world.sees(x, y)
        out, back = self._ends(x), self._ends(y)
        by_end = [(a[:, None] + self.lengths).min(0) for a in out]  # least over the first node, for every last one
        value = torch.stack([v for v, _ in by_end]) + back if len(x) else out
        best, last = value.min(1) if len(x) else (out[:, 0], out[:, 0].long())
        first = torch.stack([w for _, w in by_end]).gather(1, last[:, None])[:, 0] if len(x) else last
        reached = straight | torch.isfinite(best)
        route, node = [y], torch.where(reached & ~straight, last, -1)
        while bool((node >= 0).any()):
            route.append(torch.where((node >= 0)[:, None], self.nodes[node], route[-1]))
            node = torch.where((node == first) | (node < 0), -1, self.before[first, node.clamp(min=0)])
        points = torch.stack([x, *reversed(route)], 1)
        points = torch.where(reached[:, None, None], points, x[:, None])
        return Path.of(self.world, points, reached)
