"""The network that sees the obstacles: any order, worlds that it has never met, training that can be repeated."""

import math

import pytest
import torch
from planning_cases import F64, WORLDS, g, one_per_row, pairs, promises, scaled

from inbounds import planning as pl
from inbounds.planning.learning import blocked_pairs
from inbounds.planning.ways import Ways, exits, gaps


def test_obstacles_in_any_order():
    world = pl.load_world("rect")
    x, y = blocked_pairs(world, 50, g())
    order = torch.tensor([2, 0, 1])
    other = pl.BoxWorld(world.low, world.high, world.centers[order], world.sizes[order])
    more = pl.BoxWorld(
        world.low, world.high, torch.cat([world.centers, torch.ones(2, 2)]), torch.cat([world.sizes, torch.zeros(2)])
    )
    net = pl.load_sides()

    def scores(w):
        rows = one_per_row(w, len(x))
        step = rows.safe_steps(0.2)
        return net(Ways.at(rows, rows.for_chords(step), x, y, step, exits(rows.for_chords(step)), gaps(rows)), rows.sizes > 0)

    a, b, c = scores(world), scores(other), scores(more)
    assert torch.allclose(a[:, order], b, atol=1e-4)
    assert torch.allclose(a, c[:, :3], atol=1e-4)
    assert torch.isinf(c[:, 3:]).all()


def test_unseen_worlds():
    worlds = pl.random_worlds(40, (3, 8), seed=77)
    rows = torch.arange(40).repeat_interleave(5)
    x, y = (worlds.sample(5, generator=g(s)).flatten(0, 1) for s in (1, 2))
    shortest = pl.ShortestPaths(worlds).distance(x.unflatten(0, (40, 5)), y.unflatten(0, (40, 5))).flatten()
    path = pl.Around(worlds[rows], pl.load_sides()).plan(x, y)
    assert (path.clearance >= 0).all()
    connected = torch.isfinite(shortest)
    assert path.reached[connected].double().mean() > 0.97
    assert not path.reached[~connected].any()
    ratio = (path.length / shortest)[path.reached]
    assert float(ratio.mean()) < 1.03 and float(ratio.min()) > 1 - 1e-9


def test_training_is_seeded():
    worlds = pl.random_worlds(20, (3, 3), seed=1)
    a, b, c = (pl.train_sides(worlds, queries=20, steps=30, seed=s) for s in (0, 0, 1))
    same = [torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True)]
    assert all(same) and not torch.equal(next(a.parameters()), next(c.parameters()))


def test_training_does_not_depend_on_the_unit_of_length():
    worlds = pl.random_worlds(20, (3, 3), seed=1)
    a, b = (pl.train_sides(w, queries=20, steps=20) for w in (worlds, scaled(worlds, 2.0**-10)))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    one = pl.load_world("rect")
    x, y = pairs(one, 50)
    for train, unit in (
        (lambda w: pl.train_one_step(w, steps=10, batch=50), 1024.0),
        (lambda w: pl.train_direction(w, pairs=200, steps=10), 1.0),
    ):
        f, h = train(one), train(scaled(one, 1024.0))
        assert torch.allclose(unit * f(x, y), h(1024 * x, 1024 * y), rtol=1e-3)


def test_a_bad_network_file(tmp_path):
    from safetensors.torch import save_file

    (tmp_path / "a").write_text("no")
    save_file({"w": torch.zeros(2)}, tmp_path / "b")
    for name in ("a", "b", "c"):
        with pytest.raises((ValueError, FileNotFoundError), match=r"inbounds plan --train"):
            pl.load_sides(tmp_path / name)


@pytest.mark.parametrize("name", ["rect-overlap", "rect", "sphere"])
def test_around_leaves_and_enters_notches_without_a_fallback(name):
    """From and to where snap puts points: the nearest free ones to points inside of obstacles, and where rims cross."""
    world = WORLDS[name]()
    r = g(5)
    which = torch.randint(len(world.sizes), (150,), generator=r)
    depth = world.sizes[which] * torch.rand(150, generator=r, dtype=F64)
    inside = world.rim_point(world.centers[which], depth, 2 * math.pi * torch.rand(150, generator=r, dtype=F64))
    snapped = world.M.project(inside.clamp(world.low, world.high) if world.dim == 2 else inside)
    if name == "rect-overlap":
        points, free = world.M._vertices(torch.zeros(2, dtype=F64))
        snapped = torch.cat([snapped, points[free].repeat(10, 1)])
    away = world.sample(len(snapped), generator=r)
    planner = pl.Around(world, pl.load_sides())
    for x, y in ((snapped, away), (away, snapped), (snapped, snapped.roll(1, 0))):
        path = planner.plan(x, y)
        promises(world, path, x, y)
        assert path.certified.all()


def test_absent_obstacles_do_not_count():
    world = pl.load_world("rect")
    centers, radii = torch.cat([world.centers, torch.ones(20, 2)]), torch.cat([world.sizes, torch.zeros(20)])
    more = pl.BoxWorld(world.low, world.high, centers, radii)
    x, y = pairs(world, 20)
    paths = [pl.Around(w, pl.load_sides()).plan(x, y) for w in (world, more)]
    assert paths[1].certified.all() and torch.allclose(paths[0].length, paths[1].length)
    assert torch.allclose(pl.ShortestPaths(world).distance(x, y), pl.ShortestPaths(more).distance(x, y))
