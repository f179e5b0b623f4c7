"""Shortest paths are shortest: against dense graphs, against an independent judge, and where obstacles touch."""

import math

import pytest
import torch
from planning_cases import F64, WORLDS, T, g, pairs, ring
from planning_judge import Judge

from inbounds import planning as pl
from inbounds.planning.learning import blocked_pairs


def by_rim_points(world, x, y, count=400):
    """Shortest path over many points just outside the rims, by Dijkstra: an upper bound, a hair above."""
    from scipy.sparse.csgraph import dijkstra

    angle = torch.linspace(0, 2 * math.pi, count + 1, dtype=F64)[:-1]
    rims = [
        world.rim_point(c.expand(count, -1), (r * (1 + 3e-4)).expand(count), angle)
        for c, r in zip(world.centers, world.sizes, strict=True)
    ]
    p = torch.cat([x[None], y[None], *rims])
    p = p[world.segment_clearance(p, p) >= 0]
    a, b = p[:, None].expand(len(p), len(p), -1), p[None].expand(len(p), len(p), -1)
    D = torch.where(world.sees(a, b), world.distance(a, b), 0.0)
    return float(dijkstra(D.numpy(), indices=0)[1])


@pytest.mark.parametrize("name", ["rect", "rect-overlap", "sphere", pytest.param("caps", marks=pytest.mark.nightly)])
def test_shortest_paths_against_a_dense_graph(name):
    world = WORLDS[name]()
    x, y = blocked_pairs(world, 3, g(3))
    exact = pl.ShortestPaths(world).distance(x, y)
    for k in range(len(x)):
        bound = by_rim_points(world, x[k], y[k])
        assert float(exact[k]) <= bound <= float(exact[k]) * (1 + 1e-3)


@pytest.mark.parametrize("name", WORLDS)
def test_shortest_paths_are_a_metric(name):
    world = WORLDS[name]()
    solver = pl.ShortestPaths(world)
    (x, y), z = pairs(world, 300), world.sample(300, generator=g(5))
    d = solver.distance(x, y)
    assert torch.allclose(d, solver.distance(y, x), atol=1e-9)
    assert (d >= world.distance(x, y) - 1e-12).all()
    assert (solver.distance(x, z) + solver.distance(z, y) >= d - 1e-9).all()
    seen = world.sees(x, y)
    assert torch.allclose(d[seen], world.distance(x, y)[seen])


@pytest.mark.parametrize("name", ["rect", "rect-overlap", "caps"])
def test_the_first_direction_is_that_of_the_shortest_path(name):
    """After a small step in that direction the way is shorter by the step."""
    world = WORLDS[name]()
    solver = pl.ShortestPaths(world)
    x, y = blocked_pairs(world, 200, g(2))
    x = world.for_chords(0.05).M.project(x)
    d, v = solver.solve(x, y)
    h = 1e-3
    after = solver.distance(world.for_chords(0.05).M.project(world.move(x, h * v)), y)
    assert (d - after - h).abs().quantile(0.95) < 1e-5


def test_a_batch_of_worlds_is_each_of_them():
    worlds = pl.random_worlds(6, (3, 5), seed=4)
    x, y = worlds.sample(20, generator=g(0)), worlds.sample(20, generator=g(1))
    assert x.shape == (6, 20, 2)
    together = pl.ShortestPaths(worlds).distance(x, y)
    for k in range(6):
        assert torch.allclose(together[k], pl.ShortestPaths(worlds[k]).distance(x[k], y[k]))


def test_disconnected_pairs_are_infinitely_far():
    world = pl.BoxWorld([0.0, 0.0], [2.0, 1.0], [[1.0, 0.2], [1.0, 0.55], [1.0, 0.9]], [0.25, 0.25, 0.25])
    x, y = torch.tensor([[0.2, 0.5]], dtype=F64), torch.tensor([[1.8, 0.5]], dtype=F64)
    solver = pl.ShortestPaths(world)
    assert torch.isinf(solver.distance(x, y)).all()
    assert torch.isfinite(solver.distance(x, x + 0.1)).all()
    assert not pl.is_connected(world)
    assert pl.is_connected(pl.load_world("rect-overlap"))
    for planner in (pl.Roadmap(world, 200), pl.Around(world, pl.load_sides(), fallback=lambda w: pl.Roadmap(w, 100))):
        path = planner.plan(x, y)
        assert not path.reached.any() and path.free.all() and not path.certified.any()


def test_exact_paths_in_boxes_of_higher_dimension_are_refused():
    world = pl.BoxWorld([0.0] * 3, [1.0] * 3, [[0.5] * 3], [0.2])
    for make in (pl.ShortestPaths, pl.Exact, lambda w: pl.Around(w, pl.load_sides())):
        with pytest.raises(ValueError, match=r"the plane or the sphere, got a box of dimension 3. Use Roadmap"):
            make(world)


def test_the_half_circle_to_the_opposite_point_is_as_long_as_pi():
    n = T([0.0, 0.0, 1.0])
    for world in (pl.SphereWorld(), ring(6, 0.45), pl.SphereWorld([[1.0, 0, 0]], [0.0])):
        assert torch.allclose(pl.ShortestPaths(world).distance(n, -n), T(math.pi), atol=1e-9)


@pytest.mark.parametrize("more", [0.0, 1e-10, -1e-10])
def test_contacts_are_closed(more):
    world = pl.BoxWorld([0, 0], [2, 1], [[1, 0.25], [1, 0.75]], [0.25 + more] * 2)
    x, y = T([0.2, 0.3], [0.2, 0.5], [0.2, 0.0]), T([1.8, 0.6], [1.8, 0.5], [1.8, 0.0])
    assert torch.isinf(pl.ShortestPaths(world).distance(x, y)).all()
    assert torch.isfinite(pl.ShortestPaths(world).distance(x, x.roll(1, 0))).all()
    assert not pl.is_connected(world)
    assert not pl.Exact(world).plan(x[:1], y[:1]).reached.any()


def test_ways_past_a_contact():
    world = pl.BoxWorld([0, 0], [4, 3], [[1, 1.5], [2, 1.5]], [0.5, 0.5])
    x, y = T([1.4, 0.4]), T([1.6, 2.6])
    assert pl.is_connected(world)
    path, shortest = pl.Exact(world).plan(x, y), pl.ShortestPaths(world).distance(x, y)
    assert path.reached.all() and path.points.shape[1] < 400
    assert 0 <= float(path.length - shortest) < 0.01
    floor = pl.BoxWorld([0, 0], [4, 3], [[2, 0.5]], [0.5])  # straight along it is no way under the disc
    assert 3.7 < float(pl.ShortestPaths(floor).distance(T([0.2, 0.0]), T([3.8, 0.0]))) < 4.5 and pl.is_connected(floor)
    outer = pl.ShortestPaths(world).distance(T([0.2, 2.0]), T([3.8, 2.0]))  # a line that touches both is no way between them
    assert torch.allclose(outer, T(3.6))


def test_touching_caps_are_closed():
    world, n = ring(8, math.pi / 8), T([0.0, 0.0, 1.0])
    assert torch.isinf(pl.ShortestPaths(world).distance(n, -n)).all() and not pl.is_connected(world)
    assert pl.is_connected(ring(8, math.pi / 8 - 1e-3))


def judge(world):
    discs = torch.cat([world.centers, world.sizes[:, None]], 1)
    return Judge(world.low.tolist(), world.high.tolist(), discs.tolist())


def awkward_world(seed):
    """Discs that overlap, touch and cut the edge. One world of three has a disc inside of another, one a disc on the floor."""
    world = pl.random_worlds(1, (2, 7), seed=seed)[0]
    c, r = world.centers.clone(), world.sizes.clone()
    if seed % 3 == 0:
        r[1] = 0.6 * r[0]
        c[1] = c[0] + (r[0] - r[1]) * T(math.cos(seed), math.sin(seed))
    if seed % 3 == 1:
        c[0, 1] = r[0]
    return pl.BoxWorld(world.low, world.high, c, r)


def crossings(world):
    """Where rims cross each other and walls, to rounding."""
    middle, width = world.blocked()
    i, _ = (width > 0).nonzero().mT
    angle = torch.cat([(middle - width)[width > 0], (middle + width)[width > 0]])
    points = world.rim_point(world.centers[i].repeat(2, 1), world.sizes[i].repeat(2), angle)
    return points[world.segment_clearance(points, points) >= -1e-12]


def awkward_points(world, seed):
    """Where rims cross each other and walls, on rims, at contacts and beside them, and anywhere."""
    r, (c, size) = g(seed), (world.centers, world.sizes)
    points, free = world.M._vertices(torch.zeros(2, dtype=F64))
    found = [world.sample(6, generator=r)]
    for where in (points[free], crossings(world)):
        found.append(where[torch.randperm(len(where), generator=r)[:8]])
    which, angle = torch.randint(len(size), (8,), generator=r), 2 * math.pi * torch.rand(8, generator=r, dtype=F64)
    found.append(world.rim_point(c[which], size[which] * (1 + 1e-15), angle))
    for i in range(len(size)):
        for j in range(i):
            if size[i] > 0 and size[j] > 0 and abs(float((c[i] - c[j]).norm() - size[i] - size[j])) < 1e-9:
                towards = math.atan2(float(c[j, 1] - c[i, 1]), float(c[j, 0] - c[i, 0]))
                off = T(0.0, 1e-6, -1e-6, 1e-4, -1e-4, 0.01, -0.01)
                found.append(world.rim_point(c[i].expand(7, 2), (size[i] * (1 + 1e-15)).expand(7), towards + off))
    points = torch.cat(found)
    return points[world.segment_clearance(points, points) >= -1e-12]


@pytest.mark.parametrize("seed", range(12))
def test_lengths_agree_with_an_independent_judge_from_above_and_below(seed):
    """From below by polygons inside of the discs, from above by a path that the judge finds free."""
    world = awkward_world(seed)
    x = awkward_points(world, seed)
    y = x[torch.randperm(len(x), generator=g(seed + 1))]
    independent = judge(world)
    exact, below = pl.ShortestPaths(world).distance(x, y), torch.from_numpy(independent.from_below(x.numpy(), y.numpy()))
    assert torch.equal(torch.isfinite(exact), torch.isfinite(below))
    some = torch.isfinite(exact)
    assert (below <= exact + 1e-7)[some].all() and (exact <= 1.004 * below + 1e-7)[some].all()
    path = pl.Exact(world).plan(x, y)
    free = (world.segment_clearance(x, x) >= 0) & (world.segment_clearance(y, y) >= 0)  # else rounding moves them off a contact
    assert torch.equal(path.certified[free], some[free])
    assert not any(independent.collides(p) for p in path.points)
    sure = free & some
    assert (path.length >= exact - 1e-9)[sure].all() and (path.length <= 1.0005 * exact + 3e-3)[sure].all()


def test_the_judge_finds_wrong_lengths():
    """It must reject a length through a disc, and one that goes the longer way."""
    world = pl.BoxWorld([0, 0], [4, 3], [[2, 1.4]], [0.9])
    x, y = T([0.5, 1.5]), T([3.5, 1.5])
    least, exact = float(judge(world).from_below(x.numpy(), y.numpy())[0]), float(pl.ShortestPaths(world).distance(x, y))
    longer = float(pl.ShortestPaths(pl.BoxWorld([0, 0], [4, 3], [[2, 1.4], [2, 2.65]], [0.9, 0.38])).distance(x, y))
    assert 3.0 < least <= exact < 1.004 * least < longer
    assert judge(world).collides([[0.5, 1.5], [3.5, 1.5]]) and not judge(world).collides([[0.5, 1.5], [0.5, 2.9]])


def test_paths_start_where_two_discs_cross():
    world = pl.BoxWorld([0, 0], [4, 3], [[1.5, 1.5], [2.5, 1.5]], [0.625, 0.625])
    length = pl.ShortestPaths(world).distance(T([2, 1.875]), T([2, 1.125]))
    turn = math.pi - math.asin(0.375 / 0.625) - math.pi / 2  # from the notch along one disc to its top
    around = 2 * 0.625 * turn + math.pi * 0.625  # over the top, half round the outside, and back below
    assert torch.allclose(length, T(around), atol=1e-9)


def test_a_disc_inside_of_another_changes_nothing():
    x, y = T([2.6, 2.6]), T([2.6, 0.4])
    alone = pl.ShortestPaths(pl.BoxWorld([0, 0], [4, 3], [[2, 1.5]], [1.0])).distance(x, y)
    assert abs(float(alone) - 2.3595) < 1e-3
    for across, radius in ((2.2, 0.8), (2.2, 0.8 + 1e-10), (2.2, 0.8 - 1e-10), (2.0, 1.0), (2.0, 0.3)):
        world = pl.BoxWorld([0, 0], [4, 3], [[2, 1.5], [across, 1.5]], [1.0, radius])
        assert torch.allclose(pl.ShortestPaths(world).distance(x, y), alone, atol=1e-8)
        assert pl.Exact(world).plan(x, y).certified.all()


@pytest.mark.parametrize("beside", [0.0, 1e-12, 1e-8, 1e-5, 1e-3, 0.1])
@pytest.mark.parametrize("side", [1, -1])
def test_starts_on_a_rim_beside_a_contact(beside, side):
    """The gap is left on the side that the start is on; at the contact itself on either side."""
    world = pl.BoxWorld([0, 0], [4, 3], [[1, 1.5], [2.25, 1.5]], [0.5, 0.75])
    x = T([1 + 0.5 * math.cos(side * beside), 1.5 + 0.5 * math.sin(side * beside)])
    up, down = T([1.5, 2.8]), T([1.5, 0.2])
    near, far = pl.ShortestPaths(world).distance(x.expand(2, 2), torch.cat([up, down])).tolist()[::side]
    assert abs(near - 1.3) < 0.15 and (far > 2.5 if beside > 1e-10 else abs(far - 1.3) < 0.15)


@pytest.mark.parametrize("name", ["rect-overlap", "caps"])
def test_lengths_are_as_continuous_as_distances(name):
    """|d(x, y) - d(x', y)| <= |x - x'| where x sees x': also where rims cross and on rims, in the plane and on the sphere."""
    world = WORLDS[name]()
    M = world.M
    angle = 2 * math.pi * torch.rand(40, generator=g(2), dtype=F64)
    which = torch.randint(len(world.sizes), (40,), generator=g(3))
    rims = M.project(world.rim_point(world.centers[which], world.sizes[which], angle))
    x = torch.cat([crossings(world).repeat(25, 1), rims])
    y, solver = world.sample(len(x), generator=g(4)), pl.ShortestPaths(world)
    for far in (1e-7, 1e-3):
        other = world.for_chords(0.01).M.project(x) if far > 1e-5 else world.thicker(far).M.project(x)
        seen = world.sees(x, other, 1e-12)
        assert seen.double().mean() > 0.9
        off = (solver.distance(x, y) - solver.distance(other, y)).abs() - world.distance(x, other)
        assert (off[seen] <= 1e-8).all()


def many(count, seed=0):
    """Small discs that overlap here and there."""
    r = g(seed)
    radii = (0.1 + 0.4 * torch.rand(count, generator=r, dtype=F64)) * (8 / count) ** 0.5
    return pl.BoxWorld([0, 0], [4, 3], T([4.0, 3.0]) * torch.rand(count, 2, generator=r, dtype=F64), radii)


def test_two_hundred_and_fifty_six_discs():
    """Certified paths, free for the judge, are as long as the exact lengths say; the shortest one is confirmed from below."""
    world = many(256)
    x, y = pairs(world, 300)
    hidden = (~world.sees(x, y)).nonzero()[:, 0]
    near = hidden[world.distance(x, y)[hidden].argsort()[[0, 1, 50, 100]]]
    x, y = x[near], y[near]
    length, path = pl.ShortestPaths(world).distance(x, y), pl.Exact(world).plan(x, y)
    assert torch.isfinite(length).all() and path.certified.all()
    assert (path.length >= length - 1e-9).all() and (path.length <= 1.002 * length).all()
    free = Judge(world.low.tolist(), world.high.tolist(), [])
    free.discs = torch.cat([world.centers, world.sizes[:, None]], 1).tolist()
    assert not any(free.collides(p) for p in path.points)
    # a disc that the path is too short to reach cannot matter; the others are few enough for the judge
    some = world.distance(world.centers, x[0]) + world.distance(world.centers, y[0]) - 2 * world.sizes < length[0]
    below = judge(world.among(world.centers[some], world.sizes[some])).from_below(x[:1].numpy(), y[:1].numpy())
    assert int(some.sum()) < 20 and float(below[0]) <= float(length[0]) + 1e-7 <= 1.004 * float(below[0])


def test_the_table_of_all_pairs_and_dijkstra_agree(monkeypatch):
    from inbounds.planning import shortest

    for seed in range(6):
        world = awkward_world(seed) if seed % 2 else pl.random_worlds(1, (8, 12), seed=seed)[0]
        x, y = pairs(world, 30)
        dense = pl.ShortestPaths(world).solve(x, y)
        monkeypatch.setattr(shortest, "DENSE", -1)
        sparse = pl.ShortestPaths(world).solve(x, y)
        monkeypatch.undo()
        some = torch.isfinite(dense[0])
        assert torch.allclose(dense[0], sparse[0]) and torch.allclose(dense[1][some], sparse[1][some], atol=1e-6)
