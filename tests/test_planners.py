"""Planners keep their promises: every path that is called certified arrives and is free, whoever steers."""

import math
import warnings
from functools import cache

import pytest
import torch
from planning_cases import F64, WORLDS, T, caps, g, one_per_row, pairs, promises, ring, scaled

from inbounds import planning as pl
from inbounds.planning.learning import blocked_pairs

OF_FLOAT32 = [pytest.param(name, torch.float32, marks=pytest.mark.nightly) for name in ("rect-overlap", "caps")]
OF_FLOAT32 += [(name, torch.float32) for name in ("rect", "sphere")]  # planners go on in float64 whatever comes


@pytest.mark.parametrize(("name", "dtype"), [*((name, F64) for name in ("rect", "rect-overlap", "sphere", "caps")), *OF_FLOAT32])
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


@pytest.mark.nightly
def test_learned_directions():
    world = pl.load_world("rect")
    _, inner = pl.inflated(world)
    x, y = pairs(world, 200)
    ratio = {}
    for labels in ("exact", "roadmap"):
        net = pl.train_direction(inner, labels, pairs=3_000, steps=200, seed=0)
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


def test_a_path_that_does_not_arrive_is_not_certified():
    world = pl.load_world("rect")
    x, y = blocked_pairs(world, 20, g())
    path = pl.Certified(world, lambda a, b: 0 * a, max_steps=3).plan(x, y)
    assert path.free.all() and not path.reached.any() and not path.certified.any()
    collides = pl.OneStep(world).plan(x, y)
    assert torch.equal(collides.certified, collides.reached & (collides.clearance >= 0).all(-1)) and not collides.certified.all()


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
    from inbounds.paper.figures.planning import _rows

    world = pl.load_world("rect")
    x, y = blocked_pairs(world, 5, g())
    stopped = pl.Certified(world, lambda a, b: 0 * a, max_steps=1).plan(x, y)
    rows = _rows("rect", "lazy", world, stopped, y)
    assert [row[-1] for row in rows] == [round(v, 6) for v in pl.ShortestPaths(world).distance(x, y).tolist()]
    assert not any(row[3] for row in rows)


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
