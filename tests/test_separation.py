"""What has no way is known before anything looks for one; and nothing that has a way is given up."""

import math

import pytest
import torch
from planning_cases import F64, T, g, one_per_row, ring

from inbounds import planning as pl
from inbounds.planning.separation import separated
from inbounds.planning.shortest import ShortestPaths

MADE = {
    "discs": lambda: pl.random_worlds(60, (5, 10), seed=3),
    "crowded": lambda: pl.random_worlds(12, (12, 16), seed=4),
    "caps": lambda: pl.random_caps(60, (4, 10), seed=5),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_separated_has_no_shortest_path_and_the_other_way_round(name):
    worlds = MADE[name]()
    n, queries = len(worlds.centers), 8
    x, y = (worlds.sample(queries, generator=g(seed)) for seed in (1, 2))
    lengths = torch.stack([ShortestPaths(worlds[k]).distance(x[k], y[k]) for k in range(n)])
    apart = separated(worlds[torch.arange(n).repeat_interleave(queries)], x.flatten(0, 1), y.flatten(0, 1))
    no_way = torch.isinf(lengths).flatten()
    assert torch.equal(apart, no_way) and 0 < int(no_way.sum()) < len(no_way)


def test_starts_at_contacts_and_crossings_are_not_given_up():
    """At contacts of two discs, at crossings of rims and beside both a path leaves on either side."""
    given_up = 0
    for seed in (17, 19, 24, 25, 26, 32, 37):  # worlds of several pieces among them
        world = pl.random_worlds(1, (6, 10), seed=seed)[0]
        c, r, solver = world.centers, world.sizes, ShortestPaths(world)
        present = (r > 0).nonzero()[:, 0]
        i, j = present[torch.triu_indices(len(present), len(present), 1)]
        apart = (c[i] - c[j]).norm(dim=1)
        near = apart <= r[i] + r[j] + 1e-9
        middle = (apart.square() + r[i].square() - r[j].square()) / (2 * apart)
        towards = world.angle(c[i], c[j])[near, None]
        half = torch.acos((middle / r[i]).clamp(-1, 1))[near, None]
        turns = torch.cat([s * half + s * d for s in (1, -1) for d in T(0, 1e-8, 1e-6, 1e-3)], 1) + towards
        points = world.rim_point(c[i][near, None].expand(-1, 8, -1), r[i][near, None].expand(-1, 8), turns).flatten(0, 1)
        points = points[world.segment_clearance(points, points) >= 0]
        if not len(points):
            continue
        y = world.sample(len(points), generator=g(seed))
        known = separated(world, points, y)
        assert not (known & torch.isfinite(solver.distance(points, y))).any()
        given_up += int(known.sum())
    assert given_up > 20


def test_centres_on_the_straight_way():
    """Discs in a row, as people write them: the way from x to y goes through their centres."""
    discs = [[1.0, 1.5], [2.0, 1.5], [3.0, 1.5]]
    open_row = pl.BoxWorld([0, 0], [4, 3], discs, [0.6, 0.6, 0.6])
    x, y = T((0.2, 1.5), (0.2, 1.5), (0.2, 0.2)), T((3.8, 1.5), (2.0, 2.5), (3.8, 2.8))
    assert not separated(open_row, x, y).any()
    wall = pl.BoxWorld([0, 0], [4, 3], [[2.0, 0.5], [2.0, 1.5], [2.0, 2.5]], [0.6, 0.6, 0.6])
    assert separated(wall, x, y).tolist() == [True, False, True]
    touching = pl.BoxWorld([0, 0], [4, 3], [[2.0, 0.5], [2.0, 1.5], [2.0, 2.5]], [0.5, 0.5, 0.5])
    assert separated(touching, x, y).tolist() == [True, False, True]
    pocket = pl.BoxWorld([0, 0], [4, 3], [[1, 1], [2, 1], [3, 1], [1, 2], [2, 2], [3, 2]], [0.52] * 6)
    assert separated(pocket, T((1.5, 1.5), (1.5, 1.5)), T((2.5, 1.5), (1.5, 0.2))).all()


def test_rings_of_caps_and_opposite_points():
    north = T((0.0, 0.0, 1.0), (0.0, 0.0, 1.0), (0.0, 0.6, 0.8))
    south = T((0.0, 0.0, -1.0), (0.6, 0.0, -0.8), (0.6, 0.0, 0.8))
    assert separated(ring(), north, south).tolist()[1:] == [True, False]  # opposite points are left to the planners
    assert not separated(ring(8, math.pi / 8 - 1e-3), north, south).any()


def test_a_world_without_obstacles_separates_nothing():
    for world in (pl.BoxWorld([0.0, 0.0], [1.0, 2.0]), pl.BoxWorld([0, 0], [4, 3], [[1.0, 1.0]], [0.0])):
        x, y = world.sample(5, generator=g(1)), world.sample(5, generator=g(2))
        assert not separated(one_per_row(world, 5), x, y).any() and not separated(world, x, y).any()


def test_the_fallback_is_not_asked_for_what_has_no_way():
    wall = pl.BoxWorld([0, 0], [4, 3], [[2.0, 0.5], [2.0, 1.5], [2.0, 2.5]], [0.6, 0.6, 0.6])
    x, y = T((0.2, 1.5), (0.2, 1.5)), T((3.8, 1.5), (0.3, 2.5))

    def fallback(world):
        raise AssertionError("asked")

    solver = ShortestPaths(wall)
    for planner in (
        pl.Around(wall, pl.load_sides(), fallback=fallback),
        pl.Certified(wall, lambda a, b: solver.solve(a, b)[1], fallback=fallback),
    ):
        path = planner.plan(x, y)
        assert path.certified.tolist() == [False, True] and path.free.all() and not path.fallback.any()
        assert torch.equal(path.points[0, -1], x[0]) and path.points.dtype == F64
