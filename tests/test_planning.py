"""Paths that cannot collide: clearance and inflation are theorems, shortest paths are shortest, planners keep their promises."""

import json
import math
import re
import warnings
from functools import cache

import pytest
import torch
from planning_judge import Judge

from inbounds import planning as pl
from inbounds.cli import main
from inbounds.planning.learning import blocked_pairs
from inbounds.planning.sides import Ways, exits, one_per_row

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


def along(world, a, b, n=400):
    """Points of the straight way from a to b: (rows, n, dim)."""
    t = torch.linspace(0, 1, n, dtype=F64)[:, None] * world.distance(a, b)[:, None, None]
    return world.move(a[:, None].expand(-1, n, -1), t * world.direction(a, b)[:, None])


# --- worlds --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", WORLDS)
def test_clearance_is_the_least_distance_along_a_segment(name):
    world = WORLDS[name]()
    a, b = pairs(world, 200)
    p = along(world, a, b)
    assert torch.allclose(p[:, -1], b, atol=1e-9)
    sampled = world.segment_clearance(p, p).amin(1)
    exact = world.segment_clearance(a, b)
    assert (exact <= sampled + 1e-9).all()
    near = torch.isfinite(sampled)
    assert ((sampled - exact)[near] < 0.02).all()


def test_clearance_of_segments_past_the_far_side_of_the_sphere():
    world = caps()
    a = torch.tensor([[-1.0, 0.1, 0.3]], dtype=F64)
    a = a / a.norm()
    b = -a + torch.tensor([[0.0, 0.3, 0.1]], dtype=F64)
    b = b / b.norm()
    p = along(world, a, b, 4000)
    assert abs(float(world.segment_clearance(p, p).min() - world.segment_clearance(a, b))) < 1e-3


@pytest.mark.parametrize("name", ["rect", "rect-overlap", "sphere", "caps"])
@pytest.mark.parametrize("step", [0.05, 0.4])
def test_short_steps_outside_inflated_obstacles_miss_the_true_ones(name, step):
    world = WORLDS[name]()
    inner = world.inflate(step)
    a = inner.sample(4000, generator=g())
    v = torch.randn(a.shape, generator=g(1), dtype=F64)
    b = inner.M.project(world.move(a, 0.5 * step * world.direction(a, inner.M.project(a + v))))
    assert (world.distance(a, b) <= step * (1 + 1e-9)).all()
    assert (world.segment_clearance(a, b) >= 0).all()
    # and no smaller inflation would do: a chord of the inflated rim touches the obstacle
    c, r = inner.centers[0], inner.sizes[:1]
    half = torch.asin(math.sin(step / 2) / torch.sin(r)) if world.dim == 3 else torch.asin(0.5 * step / r)
    ends = [inner.rim_point(c[None], r, torch.tensor([1.0], dtype=F64) + s * half) for s in (-1, 1)]
    only = type(world)(*([world.low, world.high] if world.dim == 2 else []), world.centers[:1], world.sizes[:1])
    assert abs(float(only.reach_of_segment(*ends)[0, 0] - only.sizes[0])) < 1e-9


def test_worlds_go_through_files(tmp_path):
    for name in ("rect", "caps"):
        world = WORLDS[name]()
        world.save(tmp_path / "world.json")
        again = pl.load_world(tmp_path / "world.json")
        assert torch.equal(world.centers, again.centers) and torch.equal(world.sizes, again.sizes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[1, 2]", "asked for a world like"),
        ('{"box": [[0, 0], [1, 1]], "sphere": true}', "asked for a world like"),
        ('{"box": [[0, 0], [1, 1]], "discs": [[1, 2]]}', "rows of 3 numbers"),
        ('{"box": [[0, 0], [1, 1]], "discs": [["a", 2, 3]]}', "asked for numbers"),
        ('{"box": [[0, 0]], "discs": []}', "two corners"),
        ('{"box": [[0, 0], [1, 1]], "discs": [[0.5, 0.5, NaN]]}', "finite"),
        ('{"box": [[0, 0], [1, 1]], "discs": [[0.5, 0.5, 3]]}', "non-empty free space"),
        ('{"sphere": true, "caps": [[1, 0, 0]]}', "rows of 4 numbers"),
        ('{"box": [[0, 0], [1, 1]], "disks": []}', "disks.*discs"),
        ('{"box": [[0, 0], [1, 1]], "caps": []}', "caps.*discs"),
        ('{"sphere": true, "discs": []}', "discs.*caps"),
        ('{"sphere": false, "caps": []}', "true"),
        ('{"box": [[], []]}', "two corners"),
        ('{"box": [[0, 0], [1, 1%s]]}' % (400 * "0"), "finite numbers|asked for numbers"),
        ('{"box": [[0, 0], [1, 0]]}', "low < high"),
    ],
)
def test_bad_worlds(tmp_path, text, words):
    (tmp_path / "world.json").write_text(text)
    with pytest.raises(ValueError, match=words):
        pl.load_world(tmp_path / "world.json")


def test_a_world_that_is_not_there():
    with pytest.raises(FileNotFoundError, match="rect"):
        pl.load_world("nowhere.json")


# --- shortest paths --------------------------------------------------------------------------------------------
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


@pytest.mark.parametrize("name", ["rect", "rect-overlap", "sphere", "caps"])
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
    x = world.inflate(0.05).M.project(x)
    d, v = solver.solve(x, y)
    h = 1e-3
    after = solver.distance(world.inflate(0.05).M.project(world.move(x, h * v)), y)
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


# --- planners --------------------------------------------------------------------------------------------------
def promises(world, path, x, y):
    """Starts at x, ends at y where it says so, every point and segment free."""
    assert torch.allclose(path.points[:, 0], x.double(), atol=1e-6)
    arrived = path.points[path.reached, -1]
    assert torch.allclose(arrived, y.double()[path.reached], atol=1e-6)
    assert (path.clearance >= 0).all() and path.free.all() and torch.equal(path.certified, path.reached)
    assert (world.segment_clearance(path.points, path.points) >= 0).all()
    assert torch.allclose(path.length, world.distance(path.points[:, :-1], path.points[:, 1:]).sum(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["rect", "rect-overlap", "sphere", "caps"])
def test_planners_keep_their_promises(name, dtype):
    world = WORLDS[name]()
    solver, r = pl.ShortestPaths(world), g(1)
    x, y = (world.sample(200, generator=r, dtype=dtype) for _ in range(2))
    shortest = solver.distance(x, y)
    made = {
        "steps": pl.Certified(world, lambda a, b: solver.solve(a, b)[1]),
        "sides": pl.Around(world, pl.load_sides(), fallback=lambda w: pl.Roadmap(w, 200)),
        "roadmap": pl.Roadmap(world, 300),
    }
    for planner, bound in zip(made.values(), (1.003, 1.02, 1.05), strict=True):
        path = planner.plan(x, y)
        promises(world, path, x, y)
        assert path.reached.all()
        ratio = path.length / shortest
        assert float(ratio.min()) > 1 - 1e-6 and float(ratio.mean()) < bound


def test_a_bad_policy_is_detected_and_rescued():
    world = pl.load_world("rect-overlap")
    x, y = blocked_pairs(world, 40, g())
    away = pl.Certified(world, lambda a, b: -world.direction(a, b), max_steps=50)
    assert not away.plan(x, y).reached.all()
    path = pl.Certified(world, away.policy, max_steps=50, fallback=pl.roadmap(world, 300)).plan(x, y)
    assert path.reached.all() and path.fallback.any() and not path.fallback.all()
    promises(world, path, x, y)


def test_steps_shrink_for_small_obstacles_so_that_passages_stay_open():
    """Two walls of small discs, a passage of 0.02 between them."""
    across = torch.arange(0.0, 1.001, 0.06, dtype=F64)
    centers = torch.stack([torch.full_like(across, 1.0), across], 1)
    centers = centers[(centers[:, 1] - 0.5).abs() > 0.04]
    world = pl.BoxWorld([0.0, 0.0], [2.0, 1.0], centers, torch.full((len(centers),), 0.04))
    gaps = centers[:, 1].sort().values.diff() - 0.08
    assert float(gaps.max()) > 0.015
    x, y = torch.tensor([[0.1, 0.2]], dtype=F64), torch.tensor([[1.9, 0.9]], dtype=F64)
    solver = pl.ShortestPaths(world)
    path = pl.Certified(world, lambda a, b: solver.solve(a, b)[1], max_steps=2000).plan(x, y)
    assert path.reached.all() and path.certified.all()


def test_the_papers_planner_and_its_closed_form():
    """|z - y|^2 + l |z - x|^2 is least over M at P_M((y + l x) / (1 + l)): points are free, segments need not be."""
    world = pl.load_world("rect")
    x, y = pairs(world, 300)
    z = world.M.project((y + 9 * x) / 10)
    others = world.sample(3000, generator=g(8))
    cost = ((z - y).square() + 9 * (z - x).square()).sum(1)
    every = (others[None] - y[:, None]).square().sum(2) + 9 * (others[None] - x[:, None]).square().sum(2)
    assert (every.amin(1) >= cost - 1e-9).all()
    path = pl.OneStep(world, lam=9.0).plan(x, y)
    assert (world.segment_clearance(path.points, path.points) >= 0).all()
    assert (path.clearance < 0).any(1).double().mean() > 0.2


def test_string_pulling_never_lengthens():
    world = pl.load_world("rect-overlap")
    x, y = pairs(world, 60)
    solver, r = pl.ShortestPaths(world), g(4)
    drunk = pl.Certified(world, lambda a, b: solver.solve(a, b)[1] + 0.5 * torch.randn(a.shape, generator=r, dtype=F64))
    path = drunk.plan(x, y)
    tight = pl.pull_tight(world, path)
    assert (tight.length <= path.length + 1e-12).all() and float(tight.length.sum()) < float(path.length.sum())
    promises(world, tight, x, y)


def test_learned_directions():
    world = pl.load_world("rect")
    _, inner = pl.inflated(world)
    x, y = pairs(world, 200)
    ratio = {}
    for labels in ("exact", "roadmap"):
        net = pl.train_direction(inner, labels, pairs=6_000, steps=400, seed=0)
        path = pl.Certified(world, net, fallback=pl.roadmap(world, 200)).plan(x, y)
        promises(world, path, x, y)
        assert path.reached.all()
        ratio[labels] = float((path.length / pl.ShortestPaths(world).distance(x, y)).mean())
    assert max(ratio.values()) < 1.08


def test_training_the_papers_planner_finds_the_closed_form():
    world = pl.load_world("rect")
    net = pl.train_one_step(world, lam=1.0, steps=600, batch=500)
    x, y = pairs(world, 500)
    with torch.no_grad():
        off = (world.M.project(net(x, y)) - world.M.project(0.5 * (x + y))).square().mean()
    assert float(off) < 0.02


# --- the network that sees the obstacles -------------------------------------------------------------------------
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
        return net(Ways.at(rows, rows.inflate(step), x, y, step, exits(rows.inflate(step))), rows.sizes > 0)

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


# --- opposite points of the sphere ---------------------------------------------------------------------------------
def T(*rows):
    return torch.tensor(rows, dtype=F64)


def ring(count=8, angle=0.45):
    """Caps around the equator."""
    a = 2 * math.pi / count
    return pl.SphereWorld([[math.cos(k * a), math.sin(k * a), 0.0] for k in range(count)], [angle] * count)


def exact_steps(world):
    solver = pl.ShortestPaths(world)
    return pl.Certified(world, lambda a, b: solver.solve(a, b)[1], max_steps=100)


PLANNERS = {
    "sides": lambda w: pl.Around(w, pl.load_sides(), fallback=lambda w: pl.Roadmap(w, 200)),
    "steps": exact_steps,
    "exact": pl.Exact,
    "roadmap": lambda w: pl.Roadmap(w, 200),
    "closed-form": pl.OneStep,
}


def test_there_is_no_straight_way_to_the_opposite_point():
    world, n = pl.load_world("sphere"), T([0.0, 0.6, 0.8])
    assert torch.equal(world.segment_clearance(n, -n), T(-math.inf)) and not world.direction(n, -n).any()
    off = n * (1 + 3e-8)  # as float32 leaves them
    assert not world.sees(off, -n).any()


@pytest.mark.parametrize("name", ["sides", "steps", "exact", "roadmap"])
def test_a_closed_equator_has_no_way_from_pole_to_pole(name):
    world, n = ring(), T([0.0, 0.0, 1.0])
    path = PLANNERS[name](world).plan(n, -n)
    assert not path.reached.any() and path.free.all() and not path.certified.any()
    assert torch.isinf(pl.ShortestPaths(world).distance(n, -n)).all()
    assert not pl.is_connected(world)


@pytest.mark.parametrize("name", ["sides", "steps", "exact", "roadmap"])
@pytest.mark.parametrize("make", [pl.SphereWorld, caps, lambda: ring(6, 0.45)], ids=["empty", "caps", "gaps"])
def test_ways_to_opposite_points_are_found(name, make):
    world = make()
    x = world.sample(10, generator=g(2))
    x = torch.cat([T([0.0, 0.0, 1.0]), x])
    x = x[world.segment_clearance(-x, -x) >= 0]
    path = PLANNERS[name](world).plan(x, -x)
    promises(world, path, x, -x)
    assert path.reached.all()
    exact = pl.ShortestPaths(world).distance(x, -x)
    assert (exact >= math.pi - 1e-9).all() and (path.length >= exact - 1e-9).all()
    if name != "roadmap":
        assert (path.length <= 1.02 * exact).all()


def test_the_half_circle_to_the_opposite_point_is_as_long_as_pi():
    n = T([0.0, 0.0, 1.0])
    for world in (pl.SphereWorld(), ring(6, 0.45), pl.SphereWorld([[1.0, 0, 0]], [0.0])):
        assert torch.allclose(pl.ShortestPaths(world).distance(n, -n), T(math.pi), atol=1e-9)


def test_directions_to_almost_opposite_points():
    """To within rounding also where y is nearly -x: moving the whole way arrives."""
    world, x = pl.SphereWorld(), pl.SphereWorld().sample(50, generator=g())
    v = world.direction(x, world.sample(50, generator=g(1)))
    for short in (1e-2, 1e-5, 1e-7):
        y = world.move(x, (math.pi - short) * v)
        assert torch.allclose(world.direction(x, y), v, atol=1e-15 / short)


# --- obstacles that touch --------------------------------------------------------------------------------------------
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


# --- the unit of length ------------------------------------------------------------------------------------------------
def scaled(world, s):
    return pl.BoxWorld(s * world.low, s * world.high, s * world.centers, s * world.sizes)


@cache
def plan_scaled(name, s):
    world = pl.load_world("rect")
    x, y = blocked_pairs(world, 20, g())
    near = world.distance(x, y).argsort()[:4]
    return PLANNERS[name](scaled(world, s)).plan(s * x[near], s * y[near])


@pytest.mark.parametrize("s", [1 / 1024, 1e-3, 1e-6, 1e6])
def test_plans_of_a_scaled_world_are_the_scaled_plans(s):
    for name in PLANNERS:
        a, b = plan_scaled(name, 1.0), plan_scaled(name, s)
        assert torch.equal(a.reached, b.reached) and a.reached.all(), name
        assert torch.allclose(s * a.length, b.length, rtol=1e-6, atol=0), name
        if math.log2(s) % 1 == 0:
            assert torch.allclose(s * a.points, b.points, rtol=1e-12, atol=1e-12 * s), name


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


# --- starts on a line --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["sides", "steps", "exact"])
@pytest.mark.parametrize("where", ["plane", "sphere"])
def test_start_centres_and_target_on_one_line(name, where):
    if where == "plane":
        world = pl.BoxWorld([0, 0], [4, 3], [[0.9, 1.5], [2.0, 1.5], [3.0, 1.5]], [0.3, 0.4, 0.25])
        x, y = T([0.5, 1.5], [2.0, 0.9], [1.45, 1.5]), T([3.5, 1.5], [2.0, 2.1], [3.5, 1.5])
    else:
        world = pl.SphereWorld([[math.cos(t), math.sin(t), 0.0] for t in (0.4, 0.8, 1.2)], [0.15, 0.2, 0.15])
        x, y = T([math.cos(0.1), math.sin(0.1), 0.0]), T([math.cos(1.5), math.sin(1.5), 0.0])
    path = PLANNERS[name](world).plan(x, y)
    promises(world, path, x, y)
    assert path.reached.all() and not path.fallback.any()
    assert (path.length <= 1.02 * pl.ShortestPaths(world).distance(x, y)).all()


# --- promises that do not rest on anyone's good will ----------------------------------------------------------------------
def test_clearance_of_float32_points_is_computed_in_float64():
    for name in ("rect", "sphere"):
        world = WORLDS[name]()
        x = world.sample(20, generator=g(), dtype=torch.float32)
        path = torch.stack([x, x, x.roll(1, 0)], 1)
        clearance = world.clearance(path)
        assert clearance.dtype == F64 and torch.equal(clearance, world.clearance(path.double()))
        assert not clearance.isnan().any()


@pytest.mark.parametrize("name", ["rect", "sphere", "caps"])
@pytest.mark.parametrize(
    "bad", [lambda v: 1e3 * v, lambda v: v + 50, lambda v: v * math.nan, lambda v: 0 * v], ids=["long", "off", "nan", "zero"]
)
def test_no_policy_can_make_a_path_collide(name, bad):
    world = WORLDS[name]()
    x, y = pairs(world, 30)
    path = pl.Certified(world, lambda a, b: bad(world.direction(a, b)), max_steps=40).plan(x, y)
    promises(world, path, x, y)
    assert (world.distance(path.points[:, 1:-1], path.points[:, 2:]).amax(1)[~path.reached] <= 0.1 + 1e-9).all()


def test_a_policys_length_is_clipped_to_1():
    world = pl.load_world("rect")
    x, y = pairs(world, 60)
    solver = pl.ShortestPaths(world)
    one, ten = (pl.Certified(world, lambda a, b, k=k: k * solver.solve(a, b)[1]).plan(x, y) for k in (1.0, 10.0))
    assert torch.allclose(one.length, ten.length) and ten.reached.all()


def test_a_policy_of_the_wrong_shape():
    world = pl.load_world("rect")
    x, y = blocked_pairs(world, 4, g())
    with pytest.raises(ValueError, match=r"its policy for directions \(4, 2\), got \(4, 3\)"):
        pl.Certified(world, lambda a, b: torch.zeros(4, 3)).plan(x, y)


def test_no_rows_no_paths():
    for world in (pl.load_world("rect"), pl.load_world("sphere"), pl.SphereWorld()):
        none = torch.zeros(0, world.dim)
        for name, make in PLANNERS.items():
            path = make(world).plan(none, none)
            assert len(path.points) == len(path.reached) == 0, name


def test_exact_tells_disconnected_pairs_at_once():
    world = pl.BoxWorld([0.0, 0.0], [2.0, 1.0], [[1.0, 0.2], [1.0, 0.55], [1.0, 0.9]], [0.25, 0.25, 0.25])
    planner, calls = pl.Exact(world), []
    solve = planner.solver.solve
    planner.solver.solve = lambda a, b: (calls.append(len(a)), solve(a, b))[1]
    x, y = T([0.2, 0.5], [0.2, 0.5], [1.8, 0.5]), T([1.8, 0.5], [0.3, 0.1], [0.2, 0.5])
    path = planner.plan(x, y)
    assert path.reached.tolist() == [False, True, False] and path.free.all() and len(calls) == 1
    assert not planner.plan(x[:1], y[:1]).reached.any()


def test_one_fallback_for_all_rows_of_a_world():
    world = pl.load_world("rect-overlap")
    x, y = blocked_pairs(world, 30, g())
    made = []

    def fallback(w):
        made.append(w)
        return pl.Roadmap(w, 100)

    lazy = pl.Certified(world, lambda a, b: 0 * a, max_steps=2, fallback=fallback)
    for planner in (pl.Around(world, pl.load_sides(), max_steps=1, fallback=fallback), lazy):
        made.clear()
        path = planner.plan(x, y)
        assert len(made) == 1 and path.fallback.sum() > 1
        promises(world, path, x, y)
    made.clear()
    path = pl.Around(one_per_row(world, len(x)), pl.load_sides(), max_steps=1, fallback=fallback).plan(x, y)
    assert len(made) == 1 and path.fallback.sum() > 1
    promises(world, path, x, y)
    path = pl.Around(world, pl.load_sides(), max_steps=1, fallback=pl.roadmap(world, 100)).plan(x, y)
    promises(world, path, x, y)


def test_batches_of_worlds_where_one_is_needed():
    worlds = pl.random_worlds(3, (3, 3))
    for make in (pl.Roadmap, pl.Exact, lambda w: pl.Certified(w, lambda a, b: a)):
        with pytest.raises(ValueError, match=r"asked for one world, got a batch of 3.*worlds\[0\]"):
            make(worlds)
    with pytest.raises(ValueError, match=r"\(3, \.\.\., 2\), got \(4, 2\)"):
        pl.ShortestPaths(worlds).solve(torch.zeros(4, 2), torch.zeros(4, 2))
    world = pl.load_world("rect")
    with pytest.raises(ValueError, match=r"as many starts as targets.*3 and 2"):
        pl.OneStep(world).plan(world.sample(3), world.sample(2))
    with pytest.raises(ValueError, match="plane or the sphere"):
        pl.is_connected(pl.BoxWorld([0.0] * 3, [1.0] * 3, [[0.5] * 3], [0.2]))


def test_numbers_of_worlds_are_checked():
    for make, words in (
        (lambda: pl.SphereWorld([[0.0, 0, 0]], [0.3]), "nonzero"),
        (lambda: pl.SphereWorld([[math.nan, 0, 1]], [0.3]), "finite"),
        (lambda: pl.SphereWorld([[1.0, 0, 0, 0]], [0.3]), r"\(\*worlds, m, 3\)"),
        (lambda: pl.SphereWorld([[1.0, 0, 0]], [[0.3]]), "angles"),
        (lambda: pl.SphereWorld([], [0.3]), "angles"),
        (lambda: pl.BoxWorld([0, 0], [1, 1], [], [0.5]), "radii"),
        (lambda: pl.BoxWorld([0, 0], [1, 1], [[0.5, 0.5]], [[0.1]]), "radii"),
        (lambda: pl.BoxWorld([0, 0], [1, 1], [[0.5, math.inf]], [0.1]), "finite"),
        (lambda: pl.BoxWorld([0, 0], [1, 1], [[0.5, 0.5]], [math.nan]), "finite"),
        (lambda: pl.BoxWorld([0, 0], [1, 0]), "low < high"),
        (lambda: pl.BoxWorld([0, 0], [1, 1, 1]), "corners"),
        (lambda: pl.BoxWorld([], []), "corners"),
    ):
        with pytest.raises(ValueError, match=words):
            make()
    assert len(pl.SphereWorld([[0.0, 0, 0], [1, 0, 0]], [0.0, 0.3]).sizes) == 2  # absent caps need no centre


def test_a_bad_network_file(tmp_path):
    from safetensors.torch import save_file

    (tmp_path / "a").write_text("no")
    save_file({"w": torch.zeros(2)}, tmp_path / "b")
    for name in ("a", "b", "c"):
        with pytest.raises((ValueError, FileNotFoundError), match=r"inbounds plan --train"):
            pl.load_sides(tmp_path / name)


# --- an independent judge ----------------------------------------------------------------------------------------
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
        other = world.inflate(0.01).M.project(x) if far > 1e-5 else world.swollen(far).M.project(x)
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


# --- what the flags mean -----------------------------------------------------------------------------------------
def test_a_path_that_does_not_arrive_is_not_certified():
    world = pl.load_world("rect")
    x, y = blocked_pairs(world, 20, g())
    path = pl.Certified(world, lambda a, b: 0 * a, max_steps=3).plan(x, y)
    assert path.free.all() and not path.reached.any() and not path.certified.any()
    collides = pl.OneStep(world).plan(x, y)
    assert torch.equal(collides.certified, collides.reached & (collides.clearance >= 0).all(-1)) and not collides.certified.all()


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


@pytest.mark.parametrize("name", ["rect", "rect-overlap", "sphere", "caps"])
def test_pulling_tight_shortens_roadmap_paths(name):
    world = WORLDS[name]()
    x, y = blocked_pairs(world, 40, g(6))
    path = pl.Roadmap(world, 200).plan(x, y)
    tight, shortest = pl.pull_tight(world, path), pl.ShortestPaths(world).distance(x, y)
    promises(world, tight, x, y)
    over = [float((p.length / shortest - 1)[path.reached].mean()) for p in (path, tight)]
    assert (tight.length <= path.length + 1e-12).all() and over[1] < 0.3 * over[0]


def test_pulling_tight_in_a_batch_of_worlds_and_no_rows():
    worlds = pl.random_worlds(5, (3, 6), seed=3)
    x, y = (worlds.sample(1, generator=g(s))[:, 0] for s in (1, 2))
    path = pl.Around(worlds, pl.load_sides()).plan(x, y)
    tight = pl.pull_tight(worlds, path)
    assert (tight.length <= path.length + 1e-12).all() and torch.equal(tight.certified, path.certified)
    with pytest.raises(ValueError, match="one path per world"):
        pl.pull_tight(worlds, path[:2])
    world = pl.load_world("rect")
    assert not len(pl.pull_tight(world, pl.Exact(world).plan(x[:0], y[:0])).points)


def test_roadmaps_among_balls_that_overlap_in_space():
    """They ask for clearance alone; what asks for nearest free points says so."""
    world = pl.BoxWorld([0.0] * 3, [1.0] * 3, [[0.5, 0.5, 0.4], [0.5, 0.5, 0.6], [0.9, 0.5, 0.5]], [0.25, 0.25, 0.2])
    x, y = T([0.1, 0.5, 0.5], [0.2, 0.2, 0.2]), T([0.5, 0.95, 0.5], [0.9, 0.1, 0.9])
    path = pl.Roadmap(world, 300).plan(x, y)
    promises(world, path, x, y)
    assert path.certified.all()
    for make in (lambda w: pl.Certified(w, lambda a, b: a), pl.OneStep):
        with pytest.raises(ValueError, match=r"dimension 3 that touch, overlap or cut the box. Use Roadmap"):
            make(world)
    for snap in (True, False):
        with pytest.raises(ValueError, match=r"start .* lies outside"):
            pl.Roadmap(world, 20).plan(world.centers[:1], y[:1], snap=snap)
    with pytest.raises(ValueError, match="cover the box"):
        pl.Roadmap(pl.BoxWorld([0.0] * 3, [1.0] * 3, [[0.5] * 3, [0.5] * 3], [2.0, 2.0]), 20)
    with pytest.raises(ValueError, match="radii >= 0"):
        pl.BoxWorld([0.0] * 3, [1.0] * 3, [[0.5] * 3], [-0.2])


def test_the_table_of_the_figure_compares_with_the_way_to_the_target():
    from inbounds.paper.planning import _rows

    world = pl.load_world("rect")
    x, y = blocked_pairs(world, 5, g())
    stopped = pl.Certified(world, lambda a, b: 0 * a, max_steps=1).plan(x, y)
    rows = _rows("rect", "lazy", world, stopped, y)
    assert [row[-1] for row in rows] == [round(v, 6) for v in pl.ShortestPaths(world).distance(x, y).tolist()]
    assert not any(row[3] for row in rows)


# --- bad input ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["rect", "sphere"])
def test_points_inside_obstacles(name):
    world = WORLDS[name]()
    x, y = world.centers[:1], world.sample(1, generator=g())
    planner = pl.Roadmap(world, 50)
    with pytest.raises(ValueError, match="snap=True"):
        planner.plan(x, y)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        path = planner.plan(x, y, snap=True)
    assert "nearest free point" in str(notes[0].message)
    assert path.certified.all()


def test_bad_points():
    world = pl.load_world("rect")
    planner = pl.OneStep(world)
    good = torch.tensor([[0.1, 0.1]])
    with pytest.raises(ValueError, match="finite"):
        planner.plan(torch.tensor([[math.nan, 0.1]]), good)
    with pytest.raises(ValueError, match="outside the free space"):
        planner.plan(good, torch.tensor([[5.0, 1.0]]))
    with pytest.raises(ValueError, match=r"\(rows, 2\)"):
        planner.plan(torch.zeros(1, 3), good)
    with pytest.raises(ValueError, match="at most 16"):
        pl.Around(pl.BoxWorld([0.0, 0.0], [9.0, 9.0], torch.rand(17, 2), torch.full((17,), 0.01)), pl.load_sides())


def test_an_empty_world_is_all_straight():
    world = WORLDS["empty"]()
    x, y = pairs(world, 10)
    for planner in (
        pl.Certified(world, lambda a, b: a),
        pl.Around(world, pl.load_sides()),
        pl.Roadmap(world, 20),
        pl.Exact(world),
    ):
        path = planner.plan(x, y)
        assert path.reached.all() and torch.allclose(path.length, world.distance(x, y))
    with pytest.raises(ValueError, match="without shadows"):
        pl.train_direction(world)


# --- the command -------------------------------------------------------------------------------------------------
def test_plan_draws(tmp_path, capsys):
    out = tmp_path / "path.png"
    assert main(["plan", "--from", "0.2,0.2", "--to", "3.8,2.8", "-o", str(out)]) == 0
    assert out.stat().st_size > 5_000
    assert "of the shortest; free by" in capsys.readouterr().out
    assert main(["plan", "--world", "sphere", "--pairs", "3", "--planner", "exact", "-o", str(tmp_path / "s.png")]) == 0
    (tmp_path / "w.json").write_text(json.dumps({"box": [[0, 0], [2, 2]], "discs": [[1, 1, 0.5]]}))
    gif = tmp_path / "p.gif"
    for world in (str(tmp_path / "w.json"), "sphere"):
        assert main(["plan", "--world", world, "--pairs", "2", "--animate", "-o", str(gif)]) == 0
        assert gif.read_bytes()[:6] == b"GIF89a"
        gif.unlink()


def test_plan_says_what_is_wrong(tmp_path, capsys):
    out = str(tmp_path / "path.png")
    assert main(["plan", "--from", "1,1", "--to", "3.8,2.8", "-o", out]) == 2
    assert "snap" in capsys.readouterr().err
    assert main(["plan", "--from", "1,1", "--to", "3.8,2.8", "--snap", "-o", out]) == 0
    assert "note: The start" in capsys.readouterr().err
    for bad, words in (
        (["--from", "1,1"], "both --from and --to"),
        (["--from", "a", "--to", "1,1"], "numbers like"),
        (["--from", "1,1,1", "--to", "1,1"], "2 numbers"),
        (["--world", "nowhere.json"], "does not exist"),
    ):
        assert main(["plan", *bad, "-o", out]) == 2
        assert words in capsys.readouterr().err


CUBE = {"box": [[0, 0, 0], [1, 1, 1]], "discs": [[0.5, 0.5, 0.5, 0.3]]}


def test_plan_in_a_cube(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cube.json").write_text(json.dumps(CUBE))
    cube = ["plan", "--world", "cube.json", "--from", "0.1,0.5,0.5", "--to", "0.9,0.5,0.5"]
    assert main([*cube, "--planner", "roadmap"]) == 0
    said = capsys.readouterr()
    assert "1 arrive and are certified" in said.out and "no picture" in said.err and not list(tmp_path.glob("*.png"))
    for more in (["-o", "cube.png"], ["--animate"]):
        assert main([*cube, "--planner", "roadmap", *more]) == 2
        said = capsys.readouterr()
        assert "plane or the sphere" in said.err and not said.out
    assert main(cube) == 2
    assert "Use --planner roadmap" in capsys.readouterr().err


def test_plan_options_that_do_not_go_together(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("inbounds.planning.command.train_sides", lambda **_: pytest.fail("trained"))
    (tmp_path / "folder").mkdir()
    for bad, words in (
        (["--random", "1", "--world", "rect"], "--world or --random"),
        (["--animate", "-o", "path.png"], "path.gif"),
        (["--from", "1,1", "--to", "3.8,2.8"], "--snap"),
        (["--from", "0.1,0.1", "--to", "3.8,2.8", "--pairs", "3"], "or for --pairs"),
        (["--train", "a.safetensors", "--world", "rect"], "--world"),
        (["--train", "a.safetensors", "--to", "1,1", "--snap"], "--snap, --to"),
        (["--train", "nowhere/a.safetensors"], "can be written"),
        (["--train", "folder"], "can be written"),
    ):
        assert main(["plan", *bad]) == 2
        said = capsys.readouterr()
        assert words in said.err and "snap=True" not in said.err and not said.out


def test_plan_trains(tmp_path, capsys, monkeypatch):
    from safetensors import SafetensorError

    from inbounds.planning import command

    monkeypatch.setattr(command, "train_sides", lambda **_: pl.load_sides())
    out = tmp_path / "a.safetensors"
    assert main(["plan", "--train", str(out)]) == 0 and pl.load_sides(out)

    def full(*_):
        raise SafetensorError("no space left")

    monkeypatch.setattr(command, "save_sides", full)
    assert main(["plan", "--train", str(out)]) == 2
    assert "no space left" in capsys.readouterr().err


def test_plan_makes_every_planner_that_it_offers(capsys):
    from inbounds.cli import parser
    from inbounds.planning import command

    for name in command.PLANNERS:
        assert parser().parse_args(["plan", "--planner", name]).planner == name
    with pytest.raises(SystemExit):
        parser().parse_args(["plan", "--planner", "?"])
    offered = capsys.readouterr().err.partition("choose from")[2]
    assert set(re.findall(r"[\w-]+", offered)) == set(command.PLANNERS)


def test_plan_to_where_one_is_and_to_where_one_cannot_go(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "--from", "0.2,0.2", "--to", "0.2,0.2"]) == 0
    assert ", 1.0000 of the shortest" in capsys.readouterr().out and (tmp_path / "path.png").exists()
    (tmp_path / "w.json").write_text(json.dumps({"box": [[0, 0], [2, 1]], "discs": [[1, 0.5, 0.6]]}))
    assert main(["plan", "--world", "w.json", "--from", "0.1,0.5", "--to", "1.9,0.5", "--animate"]) == 1
    assert "(0.1, 0.5) -> (1.9, 0.5): no way found" in capsys.readouterr().out and (tmp_path / "path.gif").exists()


def test_crosses_are_at_targets():
    from matplotlib.figure import Figure

    from inbounds.planning.drawing import ends, panel

    world = pl.BoxWorld([0, 0], [2, 1], [[1, 0.5]], [0.6])
    x, y = T([0.1, 0.5], [0.1, 0.4]), T([1.9, 0.5], [0.2, 0.6])
    axes = panel(Figure(), 111, world, "")
    before = len(axes.lines)
    ends(axes, pl.Exact(world).plan(x, y), y)
    _, reached, lost = (line.get_xydata().tolist() for line in axes.lines[before:])
    assert reached == y[1:].tolist() and lost == y[:1].tolist()


def test_plan_for_a_robot_of_some_radius(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ends = ["plan", "--from", "0.3,0.3", "--to", "3.7,2.7", "--points", "points.csv", "--planner", "exact"]
    assert main([*ends, "--radius", "0.2"]) == 0
    assert "points.csv written" in capsys.readouterr().out
    lines = (tmp_path / "points.csv").read_text().splitlines()
    assert lines[0] == "path,point,x,y" and lines[1] == "0,0,0.3,0.3" and lines[-1].endswith(",3.7,2.7")
    points = torch.tensor([[float(v) for v in line.split(",")[2:]] for line in lines[1:]], dtype=F64)
    assert float(pl.load_world("rect").clearance(points).min()) >= 0.2 - 1e-12
    for radius, words in (("-1", "not negative"), ("nan", "not negative"), ("5", "fits into the world"), ("0.4", "lies outside")):
        assert main([*ends, "--radius", radius]) == 2
        assert words in capsys.readouterr().err


def test_plan_through_the_points_of_a_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stops.txt").write_text("# first the corner\n3.8, 0.2\n\n0.2,2.8  # then the other\n")
    ends = ["plan", "--from", "0.2,0.2", "--to", "3.8,2.8", "--planner", "exact", "--points", "p.csv"]
    assert main([*ends, "--through", "stops.txt", "--tight"]) == 0
    assert "1 arrive and are certified" in capsys.readouterr().out
    rows = [line.split(",")[2:] for line in (tmp_path / "p.csv").read_text().splitlines()[1:]]
    assert rows.index(["3.8", "0.2"]) < rows.index(["0.2", "2.8"]) < rows.index(["3.8", "2.8"]) == len(rows) - 1
    for text, words in (("", "has none"), ("1,2,3", "Line 1 of stops.txt asked for 2 numbers"), ("1,1", "snap"), ("a", "Line 1")):
        (tmp_path / "stops.txt").write_text(text)
        assert main([*ends, "--through", "stops.txt"]) == 2
        assert words in capsys.readouterr().err
    assert main([*ends, "--through", "nowhere.txt"]) == 2
    assert "does not exist" in capsys.readouterr().err
    (tmp_path / "w.json").write_text(json.dumps({"box": [[0, 0], [2, 1]], "discs": [[1, 0.5, 0.6]]}))
    (tmp_path / "stops.txt").write_text("1.9,0.5")  # behind a wall, and back
    assert main(["plan", "--world", "w.json", "--from", "0.1,0.5", "--to", "0.1,0.4", "--through", "stops.txt"]) == 1
    assert "no way found" in capsys.readouterr().out
