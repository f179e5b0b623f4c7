"""Starts and targets, checked."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from .worlds import World


def ready(world: World, x: Tensor, y: Tensor, snap: bool) -> tuple[Tensor, Tensor]:
    """Starts and targets in float64, checked; those that are off by rounding alone are moved to the free space."""
    x, y = (torch.as_tensor(t) for t in (x, y))
    if x.shape[-1:] != (world.dim,) or y.shape[-1:] != (world.dim,) or x.dim() > 2 or y.dim() > 2:
        raise ValueError(f"plan asked for starts and targets (rows, {world.dim}), got {tuple(x.shape)} and {tuple(y.shape)}.")
    x, y = (t.double().reshape(-1, world.dim) for t in (x, y))
    if len(x) != len(y) and 1 not in (len(x), len(y)):
        raise ValueError(f"plan asked for as many starts as targets, or one of either, got {len(x)} and {len(y)}.")
    x, y = torch.broadcast_tensors(x, y)
    if world.centers.dim() > 2 and len(x) != len(world.centers):
        raise ValueError(f"plan asked for one row per world, got {len(x)} rows and {len(world.centers)} worlds.")
    return _free(world, x, "start", snap), _free(world, y, "target", snap)


def departures(world: World, x: Tensor, y: Tensor) -> Tensor:
    """x; where y is opposite, the middle of a free half circle to it if there is one. (rows, n)"""
    rows = world.opposite(x, y).nonzero()[:, 0]
    if not len(rows):
        return x
    world, start = world[rows] if world.centers.dim() > 2 else world, x[rows]
    via = world.halfway(start)
    free = world.sees(start, via) & world.sees(via, y[rows])
    return x.index_copy(0, rows, torch.where(free[:, None], via, start))


def ways_out(inner: World, x: Tensor, margin: float) -> list[Tensor]:
    """Points by which a path can leave a narrow place: x lies inside of the obstacles of `inner`, which are thicker by margin.

    The nearest one; and those on either side along the nearest rim. At a contact there is no other way: the gap is narrow and
    bends, but its tangent leads out of it. x (rows, n), inner one world or one per row.
    """
    if not inner.sizes.shape[-1]:
        return [inner.M.project(x)]
    centers, sizes = inner.centers.expand(len(x), -1, -1), inner.sizes.expand(len(x), -1)
    spread = x[:, None].expand(centers.shape)
    nearest = torch.where(sizes > 0, inner.distance(spread, centers) - sizes, torch.inf).argmin(1)
    along = inner.left(x, inner.direction(x, centers[torch.arange(len(x)), nearest]))
    far = 3 * (margin * sizes.amax(1, keepdim=True).clamp(min=inner.scale)).sqrt()
    found = torch.stack([x, inner.move(x, far * along), inner.move(x, -far * along)])
    return list(inner.M.project(found))


def _free(world: World, p: Tensor, what: str, snap: bool) -> Tensor:
    if not bool(torch.isfinite(p).all()):
        row = int((~torch.isfinite(p)).any(-1).nonzero()[0])
        raise ValueError(f"plan asked for finite points, got {what} {p[row].tolist()} in row {row}.")
    inside = world.segment_clearance(p, p) < 0
    inside |= world.off(p) > 1e-6
    if not bool(inside.any()):
        return p
    if not world.projects:
        row = int(inside.nonzero()[0])
        raise ValueError(
            f"plan asked for free points, but the {what} {[round(v, 4) for v in p[row].tolist()]} (row {row}) lies outside the "
            f"free space. Move it: where balls of dimension {world.dim} meet, snap=True cannot, the nearest one is not known."
        )
    moved = world.M.project(p)
    far = world.distance(p, moved) if world.dim == 2 else (moved - p).norm(dim=-1)
    far = torch.where(inside, far, 0.0)
    row = int(far.argmax())
    if float(far[row]) > 1e-6 * world.scale:
        where = (
            f"{what} {[round(v, 4) for v in p[row].tolist()]} (row {row}) lies outside the free space, by {float(far[row]):.3g}"
        )
        if not snap:
            raise ValueError(f"plan asked for free points, but the {where}. Move it, or pass snap=True to take the nearest one.")
        warnings.warn(f"The {where}: moved to the nearest free point.", stacklevel=4)
    return torch.where(inside[:, None], moved, p)
