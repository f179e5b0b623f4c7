"""Worlds, points and planners that several tests of planning share."""

import math

import torch

from inbounds import planning as pl

F64 = torch.float64


def g(seed=0):
    return torch.Generator().manual_seed(seed)


def caps():
    return pl.SphereWorld([[1.0, 0, 0], [0, 1, 0.2], [-0.5, 0.5, -0.8]], [0.6, 0.5, 0.9])


WORLDS = {
    "rect": lambda: pl.load_world("rect"),
    "rect-overlap": lambda: pl.load_world("rect-overlap"),
    "sphere": lambda: pl.load_world("sphere"),
    "caps": caps,
    "empty": lambda: pl.BoxWorld([0.0, 0.0], [1.0, 2.0]),
}


def pairs(world, n, seed=0):
    r = g(seed)
    return world.sample(n, generator=r), world.sample(n, generator=r)


def promises(world, path, x, y):
    """Starts at x, ends at y where it says so, every point and segment free."""
    assert torch.allclose(path.points[:, 0], x.double(), atol=1e-6)
    arrived = path.points[path.reached, -1]
    assert torch.allclose(arrived, y.double()[path.reached], atol=1e-6)
    assert (path.clearance >= 0).all() and path.free.all() and torch.equal(path.certified, path.reached)
    assert (world.segment_clearance(path.points, path.points) >= 0).all()
    assert torch.allclose(path.length, world.distance(path.points[:, :-1], path.points[:, 1:]).sum(1))


def one_per_row(world, rows):
    """The same world for each of so many points."""
    return world[None][torch.zeros(rows, dtype=torch.long)]


def T(*rows):
    return torch.tensor(rows, dtype=F64)


def ring(count=8, angle=0.45):
    """Caps around the equator."""
    a = 2 * math.pi / count
    return pl.SphereWorld([[math.cos(k * a), math.sin(k * a), 0.0] for k in range(count)], [angle] * count)


def scaled(world, s):
    return pl.BoxWorld(s * world.low, s * world.high, s * world.centers, s * world.sizes)
