"""Box minus balls and sphere minus caps: true metric projection, against brute force, in random worlds."""

import itertools
import math

import pytest
import torch
from catalogue import OVERLAP, PLANE, RECT

import inbounds as ib

F64 = torch.float64


def between(p, q):
    """Distances to rounding: the default of cdist loses half the digits."""
    return torch.cdist(p, q, compute_mode="donot_use_mm_for_euclid_dist")


def random_world(seed, m=None):
    """A box with discs that may overlap, touch, cut the edge or be absent."""
    g = torch.Generator().manual_seed(seed)
    m = m or int(torch.randint(1, 9, (), generator=g))
    low, high = torch.zeros(2, dtype=F64), torch.tensor([4.0, 3.0], dtype=F64)
    c = torch.rand(m, 2, generator=g, dtype=F64) * high
    r = 0.15 + 0.5 * torch.rand(m, generator=g, dtype=F64)
    if seed % 3 == 0 and m > 1:  # touch
        d = c[1] - c[0]
        c[1] = c[0] + d / d.norm() * (r[0] + r[1])
    if seed % 5 == 0:
        r[-1] = 0.0
    return low, high, c, r


def brute(M, x, count=100_001):
    """Distance to the nearest free point among dense points of the boundary pieces, and x itself if free."""
    low, high, c, r = (t.to(F64) for t in (M.low, M.high, M.centers, M.radii))
    t = torch.linspace(0, 2 * math.pi, count // 40, dtype=F64)
    circles = (c[r > 0][:, None] + r[r > 0][:, None, None] * torch.stack([torch.cos(t), torch.sin(t)], -1)).reshape(-1, 2)
    s = torch.linspace(0, 1, count // 40, dtype=F64)[:, None]
    corners = torch.stack([low, torch.stack([high[0], low[1]]), high, torch.stack([low[0], high[1]]), low])
    edges = torch.cat([a + s * (b - a) for a, b in itertools.pairwise(corners)])
    p = torch.cat([circles, edges])
    free = ((p >= low) & (p <= high)).all(-1) & ((between(p, c) >= r - 1e-9) | (r <= 0)).all(-1)
    d = between(x, p[free]).amin(-1)
    own = ((x >= low) & (x <= high)).all(-1) & ((between(x, c) >= r) | (r <= 0)).all(-1)
    return torch.where(own, 0.0, d)


def probes(M, g, n=200):
    """Inside, outside, at centres, at pair midpoints."""
    low, high, c, _ = (t.to(F64) for t in (M.low, M.high, M.centers, M.radii))
    x = low + (high - low) * (1.6 * torch.rand(n, 2, generator=g, dtype=F64) - 0.3)
    return torch.cat([x, c, (c[:, None] + c[None]).reshape(-1, 2) / 2])


@pytest.mark.parametrize("block", [k if k < 4 else pytest.param(k, marks=pytest.mark.nightly) for k in range(10)])
def test_twenty_random_worlds(block):
    """Feasible at tolerance 0 in float32 and float64; nearest, against dense points of the boundary."""
    for seed in range(20 * block, 20 * block + 20):
        M = ib.BoxMinusBalls(*random_world(seed))
        x = probes(M, torch.Generator().manual_seed(seed))
        for dtype in (torch.float32, F64):
            y = M.project(x.to(dtype))
            assert (M.violation(y) == 0).all() and (M.residuals(y.double())[1] <= 0).all()
        got, dense = (x - y).norm(dim=-1), brute(M, x)
        assert (got <= dense + 1e-9).all()  # no dense point is nearer
        assert (got >= dense - 5e-3).all()  # and it is no nearer than the set is


@pytest.mark.parametrize("balls", [RECT, OVERLAP])
def test_hundred_thousand_points_at_tolerance_zero(balls):
    M = ib.BoxMinusBalls(*PLANE, *balls)
    for dtype in (torch.float32, F64):
        x = probes(M, torch.Generator().manual_seed(0), 100_000).to(dtype)
        y = M.project(x)
        assert (M.residuals(y)[1] <= 0).all() and torch.equal(M.project(y), y)


def test_disjoint_and_general_path_agree():
    """The plane's general candidates against the radial push, in a world where both apply."""
    M, N = (ib.BoxMinusBalls(*PLANE, *RECT) for _ in range(2))
    assert M.apart
    N.apart = False
    x = probes(M, torch.Generator().manual_seed(1), 5000)
    inside = (x[:, None] - M.centers).norm(dim=-1).amin(-1) > 1e-6  # at a centre every direction is nearest
    torch.testing.assert_close(M.project(x)[inside], N.project(x)[inside], atol=1e-12, rtol=0)
    v = torch.randn(x.shape, dtype=F64, generator=torch.Generator().manual_seed(2))
    y = M.project(x)
    torch.testing.assert_close(M.tangent(y, v), N.tangent(y, v), atol=1e-12, rtol=0)


def test_vertex_between_two_discs():
    """A point in the pocket of two overlapping discs goes to their intersection, where the tangent cone is a wedge."""
    M = ib.BoxMinusBalls([-3.0, -3.0], [3.0, 3.0], [[-0.8, 0.0], [0.8, 0.0]], [1.0, 1.0])
    x = torch.tensor([0.0, 0.3], dtype=F64)
    p = M.project(x)
    torch.testing.assert_close(p, torch.tensor([0.0, 0.6], dtype=F64))
    up, down = torch.tensor([0.0, 1.0], dtype=F64), torch.tensor([0.0, -1.0], dtype=F64)
    torch.testing.assert_close(M.tangent(p, up), up)
    torch.testing.assert_close(M.tangent(p, down), torch.zeros(2, dtype=F64))
    assert abs(M.reach - 0.6) < 1e-6


def test_disc_that_cuts_the_edge():
    """Below the edge, in the disc: the nearest free points are where circle and edge meet."""
    M = ib.BoxMinusBalls([0.0, 0.0], [4.0, 3.0], [[2.0, 0.0]], [0.5])
    p = M.project(torch.tensor([[2.1, -1.0], [1.9, -1.0]], dtype=F64))
    torch.testing.assert_close(p, torch.tensor([[2.5, 0.0], [1.5, 0.0]], dtype=F64), atol=1e-12, rtol=0)


def test_far_points_choose_the_right_candidate():
    M = ib.BoxMinusBalls(*PLANE, *OVERLAP)
    angle = torch.linspace(0, 2 * math.pi, 300, dtype=F64)
    direction = torch.stack([torch.cos(angle), torch.sin(angle)], -1)
    far, further = M.project(1e4 * direction), M.project(1e12 * direction)
    assert (far - further).norm(dim=-1).median() < 1e-3
    single = M.project((1e12 * direction).float()).double()
    assert ((single - further).norm(dim=-1) < 1e-3).double().mean() > 0.98


def test_absent_balls_and_batches():
    g = torch.Generator().manual_seed(0)
    low, high = torch.zeros(2), torch.tensor([4.0, 3.0])
    c = torch.rand(6, 5, 2, generator=g) * high
    r = 0.6 * torch.rand(6, 5, generator=g) * (torch.rand(6, 5, generator=g) < 0.7)
    x = 4 * torch.rand(6, 2, generator=g)
    whole = ib.BoxMinusBalls(low, high, c, r).project(x)
    for i in range(6):
        present = r[i] > 0
        alone = ib.BoxMinusBalls(low, high, c[i][present], r[i][present]) if present.any() else ib.Box(low, high)
        torch.testing.assert_close(whole[i], alone.project(x[i]))


def test_reach_is_certified():
    """Points closer to M than `reach` have one projection: projections of close pairs stay close."""
    for seed in range(40):
        M = ib.BoxMinusBalls(*random_world(seed))
        x = probes(M, torch.Generator().manual_seed(seed), 2000)
        d = M.distance(x)
        step = 1e-5 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=F64)
        near = d < 0.9 * M.reach
        jump = (M.project(x + step) - M.project(x)).norm(dim=-1) / step.norm(dim=-1)
        assert (jump[near] <= 1 / (1 - 0.9) + 1).all()


# --- sphere --------------------------------------------------------------------------------------------------


def random_caps(seed, n=3):
    g = torch.Generator().manual_seed(seed)
    m = int(torch.randint(1, 7, (), generator=g))
    return torch.randn(m, n, generator=g, dtype=F64), 0.1 + 0.6 * torch.rand(m, generator=g, dtype=F64)


@pytest.mark.parametrize("n", [2, 3])
def test_random_caps_against_dense_points(n):
    for seed in range(30):
        try:
            M = ib.SphereMinusCaps(*random_caps(seed, n))
        except ValueError as error:
            assert n == 2 and "cover" in str(error)
            continue
        g = torch.Generator().manual_seed(seed)
        x = torch.cat([torch.randn(300, n, generator=g, dtype=F64), M.centers.to(F64)])
        for dtype in (torch.float32, F64):
            y = M.project(x.to(dtype))
            assert (M.residuals(y.double())[1] <= 0).all()
        s = M.sample(5_000, generator=g, dtype=F64)
        assert (between(x, s).amin(-1) >= (x - y).norm(dim=-1) - 1e-9).all()


def test_crossing_of_two_rims():
    """Two overlapping caps: the point between them goes to the crossing of the rims, 1e-12 from its closed form."""
    a = 0.6
    u = torch.tensor([[math.cos(0.4), math.sin(0.4), 0.0], [math.cos(0.4), -math.sin(0.4), 0.0]], dtype=F64)
    M = ib.SphereMinusCaps(u, [a, a])
    p = M.project(torch.tensor([1.0, 0.0, 0.2], dtype=F64))
    cos = math.cos(a) / math.cos(0.4)
    torch.testing.assert_close(p, torch.tensor([cos, 0.0, math.sqrt(1 - cos * cos)], dtype=F64), atol=1e-12, rtol=0)


def test_large_cap_leaves_a_small_island():
    M = ib.SphereMinusCaps([[0.0, 0.0, 1.0]], [math.pi - 0.2])
    x = M.sample(1000, generator=torch.Generator().manual_seed(0))
    assert (x[:, 2] <= -math.cos(0.2) + 1e-6).all()
    y = M.project(torch.randn(1000, 3, generator=torch.Generator().manual_seed(1)))
    assert (M.residuals(y.double())[1] <= 0).all()
