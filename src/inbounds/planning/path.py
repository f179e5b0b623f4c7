"""`Path`: what a planner returns. Way points with the exact clearance of every segment between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

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
    world: World | None = field(default=None, compare=False)  # where it was planned, for pictures

    @classmethod
    def of(cls, world: World, points: Tensor, reached: Tensor, fallback: Tensor | None = None) -> Path:
        """The path through these points, with its clearance and length."""
        points = points.double()
        fallback = torch.zeros_like(reached) if fallback is None else fallback
        return cls(points, world.clearance(points), world.length(points), reached, fallback, world)

    @property
    def free(self) -> Tensor:
        """Whether no segment enters an obstacle or leaves the world. A path that stays at its start is free: (*batch,)."""
        return (self.clearance >= 0).all(-1)

    @property
    def certified(self) -> Tensor:
        """Whether the path arrives, as `reached` says, and the whole of it is free, as `free` says: (*batch,)."""
        return self.reached & self.free

    def __getitem__(self, rows) -> Path:
        world = self.world
        if world is not None and world.centers.dim() > 2:  # a world for each row
            world = None if isinstance(rows, tuple) else world[rows]
        return Path(self.points[rows], self.clearance[rows], self.length[rows], self.reached[rows], self.fallback[rows], world)

    def __repr__(self) -> str:
        """What the paths are worth: how many are certified, how long they are, how near they come to something."""
        n = self.reached.numel()
        if not n or not self.clearance.numel():
            return f"Path({n} paths of {self.points.shape[-2]} points)"
        bends = (self.points[..., 1:, :] != self.points[..., :-1, :]).any(-1).sum(-1)
        short, long = (float(v) for v in self.length.aminmax())
        count = "1 path" if n == 1 else f"{n} paths"
        length = f"{short:.4g}" if n == 1 else f"{short:.4g} to {long:.4g}"
        told = {
            "certified": self.certified,
            "not arrived": ~self.reached,
            "colliding": ~self.free,
            "by the fallback": self.fallback,
        }
        flags = ", ".join(f"{int(rows.sum())} {word}" for word, rows in told.items() if word == "certified" or bool(rows.any()))
        return (
            f"Path({count} of at most {int(bends.max()) + 1} points, {flags}; length {length}, "
            f"least clearance {float(self.clearance.min()):.3g})"
        )

    def _repr_html_(self) -> str:
        """A picture for notebooks; of paths in worlds of their own, the first. Without a picture, the summary."""
        from .picture import svg  # it draws with what draws paths, which stands on this file

        path, world = self, self.world
        if world is not None and world.centers.dim() > 2:
            path, world = self[0], world[0]
        k, n = path.points.shape[-2:]
        drawing = world and svg(world, path.points.reshape(-1, k, n), path.clearance.reshape(-1, k - 1))
        return f"{drawing or ''}<pre>{escape(repr(self))}</pre>"


def joined(world: World, legs: list[Path]) -> Path:
    """One path that goes along several, each from where the one before arrives; it ends with the first that does not arrive."""
    points, reached, fallback = legs[0].points, legs[0].reached, legs[0].fallback
    for leg in legs[1:]:
        more = torch.where(reached[..., None, None], leg.points[..., 1:, :], points[..., -1:, :])
        points = torch.cat([points, more], -2)
        fallback = fallback | (reached & leg.fallback)
        reached = reached & leg.reached
    return Path.of(world, points, reached, fallback)


def padded(points: Tensor, count: int) -> Tensor:
    """The points and copies of the last, so that there are `count`."""
    last = points[..., -1:, :].expand(*points.shape[:-2], count - points.shape[-2], points.shape[-1])
    return torch.cat([points, last], -2)


BETWEEN = (1 / 16, 1 / 4, 1 / 2, 3 / 4, 15 / 16)  # where along a segment pull_tight may cut a corner
MOST = 16  # points of paths whose corners are cut; every one that is cut becomes two
CHUNK = 2_000_000  # numbers of the largest table at once


@torch.no_grad()
def pull_tight(world: World, path: Path, rounds: int = 3) -> Path:
    """A shorter path near to this one: never longer, and certified if this one is. Any dimension.

    First the shortest way over its own points by segments that are free; then, round by round, over points between them as well,
    which cuts corners. Points that no obstacle needs disappear.
    """
    if world.centers.dim() > 2 and (path.points.dim() != 3 or world.centers.shape[:-2] != path.points.shape[:1]):
        raise ValueError(
            f"pull_tight asked for paths of one world, or for one path per world, got {tuple(path.points.shape)} and "
            f"worlds {tuple(world.centers.shape[:-2])}."
        )
    points = path.points.reshape(-1, *path.points.shape[-2:])
    points = over_own_points(world, points)
    for _ in range(rounds if len(points) else 0):
        points = _cut_corners(world, points)
    return Path.of(world, points.reshape(*path.points.shape[:-2], *points.shape[-2:]), path.reached, path.fallback)


def over_own_points(world: World, points: Tensor, stride: int = 1) -> Tensor:
    """The shortest way along paths (rows, k, n) from point to point by segments that are free: (rows, fewer, n).

    Segments from one multiple of `stride` to the next are those of the path itself, and are kept if there is nothing better. One
    world, or one per row.
    """
    k, each = points.shape[1], 1e-14 * world.unit  # of two ways that are equal to rounding, the one with fewer segments
    rows = max(1, CHUNK // (max(1, world.sizes.shape[-1]) * k))
    parts = []
    for part in torch.arange(len(points)).split(rows):
        w, p = world[part] if world.centers.dim() > 2 else world, points[part]
        best = p.new_zeros(len(p), k)  # least length from each point to the end
        after = torch.arange(k).repeat(len(p), 1)
        for i in range(k - 2, -1, -1):
            here = p[:, i : i + 1].expand(-1, k - 1 - i, -1)
            free = w.sees(here, p[:, i + 1 :])
            if i % stride == 0:
                free[:, stride - 1] = True
            cost = torch.where(free, w.distance(here, p[:, i + 1 :]) + best[:, i + 1 :] + each, torch.inf)
            best[:, i], which = cost.min(1)
            after[:, i] = which + i + 1
        order = [torch.zeros(len(p), 1, dtype=torch.long)]
        while bool((order[-1] < k - 1).any()):
            order.append(after.gather(1, order[-1]))
        parts.append(p.gather(1, torch.cat(order, 1)[..., None].expand(-1, -1, p.shape[-1])))
    most = max([p.shape[1] for p in parts], default=k)
    return torch.cat([padded(p, most) for p in parts]) if parts else points


def _cut_corners(world: World, points: Tensor) -> Tensor:
    """Paths (rows, k, n) over points on their segments as well; those of as many points together."""
    moves = (points[:, 1:] != points[:, :-1]).any(-1)
    count = 1 + torch.where(moves, torch.arange(1, points.shape[1]), 0).amax(1)
    parts, order = [], []
    for k in count.unique().tolist():
        rows = (count == k).nonzero()[:, 0]
        some = points[rows, :k]
        if 2 < k <= MOST:  # else it is straight, or bends little at each of its points
            w = world[rows] if world.centers.dim() > 2 else world
            some = over_own_points(w, _with_points_between(w, some), len(BETWEEN) + 1)
        parts.append(some)
        order.append(rows)
    most = max(p.shape[1] for p in parts)
    return torch.cat([padded(p, most) for p in parts])[torch.cat(order).argsort()]


def _with_points_between(world: World, points: Tensor) -> Tensor:
    """Each segment with some points on it: (rows, k, n) -> (rows, (k - 1) (1 + more) + 1, n)."""
    a, b = points[:, :-1], points[:, 1:]
    way = world.direction(a, b) * world.distance(a, b)[..., None]
    parts = torch.stack([a, *(world.move(a, t * way) for t in BETWEEN)], 2)
    return torch.cat([parts.flatten(1, 2), points[:, -1:]], 1)
