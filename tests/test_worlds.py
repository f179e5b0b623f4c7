"""Worlds: clearance and thicker obstacles are theorems, files give back what was written, bad numbers are told."""

import math

import pytest
import torch
from planning_cases import F64, WORLDS, T, caps, g, pairs

from inbounds import planning as pl


def along(world, a, b, n=400):
    """Points of the straight way from a to b: (rows, n, dim)."""
    t = torch.linspace(0, 1, n, dtype=F64)[:, None] * world.distance(a, b)[:, None, None]
    return world.move(a[:, None].expand(-1, n, -1), t * world.direction(a, b)[:, None])


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
    inner = world.for_chords(step)
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


def test_there_is_no_straight_way_to_the_opposite_point():
    world, n = pl.load_world("sphere"), T([0.0, 0.6, 0.8])
    assert torch.equal(world.segment_clearance(n, -n), T(-math.inf)) and not world.direction(n, -n).any()
    off = n * (1 + 3e-8)  # as float32 leaves them
    assert not world.sees(off, -n).any()


def test_directions_to_almost_opposite_points():
    """To within rounding also where y is nearly -x: moving the whole way arrives."""
    world, x = pl.SphereWorld(), pl.SphereWorld().sample(50, generator=g())
    v = world.direction(x, world.sample(50, generator=g(1)))
    for short in (1e-2, 1e-5, 1e-7):
        y = world.move(x, (math.pi - short) * v)
        assert torch.allclose(world.direction(x, y), v, atol=1e-15 / short)


def test_clearance_of_float32_points_is_computed_in_float64():
    for name in ("rect", "sphere"):
        world = WORLDS[name]()
        x = world.sample(20, generator=g(), dtype=torch.float32)
        path = torch.stack([x, x, x.roll(1, 0)], 1)
        clearance = world.clearance(path)
        assert clearance.dtype == F64 and torch.equal(clearance, world.clearance(path.double()))
        assert not clearance.isnan().any()


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
