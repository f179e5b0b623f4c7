"""`Path`: what a planner returns. Way points with the exact clearance of every segment between them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .worlds import World


@dataclass(frozen=True)
class Path:
    """points (*batch, k, n); shorter paths end with copies of their last point.

    `clearance` (*batch, k - 1) is the least distance of each segment, straight or part of a great circle, from obstacles and
    walls, in closed form: where none is negative the whole path is free, not just its points. Three flags say what a row is
    worth: `reached`, `free`, and `certified`, which is both.
    """

    points: Tensor
    clearance: Tensor
    length: Tensor
    reached: Tensor  # (*batch,): ends at the target; for OneStep, which never quite gets there, near it
    fallback: Tensor  # (*batch,): where the planner gave up and another one took over

    @classmethod
    def of(cls, world: World, points: Tensor, reached: Tensor, fallback: Tensor | None = None) -> Path:
        points = points.double()
        fallback = torch.zeros_like(reached) if fallback is None else fallback
        return cls(points, world.clearance(points), world.length(points), reached, fallback)

    @property
    def free(self) -> Tensor:
        """(*batch,): whether no segment enters an obstacle or leaves the world. A path that stays at its start is free."""
        return (self.clearance >= 0).all(-1)

    @property
    def certified(self) -> Tensor:
        """(*batch,): whether the path arrives, as `reached` says, and the whole of it is free, as `free` says."""
        return self.reached & self.free

    def __getitem__(self, rows) -> Path:
        return Path(self.points[rows], self.clearance[rows], self.length[rows], self.reached[rows], self.fallback[rows])


def padded(points: Tensor, count: int) -> Tensor:
    """To count points, by copies of the last."""
    last = points[..., -1:, :].expand(*points.shape[:-2], count - points.shape[-2], points.shape[-1])
    return torch.cat([points, last], -2)


@torch.no_grad()
def pull_tight(world: World, path: Path, chunk: int = 2_000_000) -> Path:
    """The shortest way along a path's own points by segments that are free: never longer, still certified."""
    points, m = path.points, max(1, world.sizes.shape[-1])
    k = points.shape[-2]
    best = torch.zeros_like(points[..., 0])  # least length from each point to the end
    after = torch.arange(k).expand(points.shape[:-1]).clone()
    rows = max(1, chunk // (m * k))
    flat, best, after = points.reshape(-1, k, points.shape[-1]), best.reshape(-1, k), after.reshape(-1, k)
    if world.centers.dim() > 2:
        raise ValueError("pull_tight asked for paths of one world.")
    for part in torch.arange(len(flat)).split(rows):
        p = flat[part]
        for i in range(k - 2, -1, -1):
            here = p[:, i : i + 1].expand(-1, k - 1 - i, -1)
            free = world.sees(here, p[:, i + 1 :])
            free[:, 0] = True
            cost = torch.where(free, world.distance(here, p[:, i + 1 :]) + best[part, i + 1 :], torch.inf)
            best[part, i], which = cost.min(1)
            after[part, i] = which + i + 1
    index = torch.zeros(len(flat), 1, dtype=torch.long)
    order = [index]
    while bool((index < k - 1).any()):
        index = after.gather(1, index).clamp(max=k - 1)
        order.append(index)
    tight = flat.gather(1, torch.cat(order, 1)[..., None].expand(-1, -1, flat.shape[-1]))
    return Path.of(world, tight.reshape(*points.shape[:-2], *tight.shape[-2:]), path.reached, path.fallback)
