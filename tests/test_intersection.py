"""`Intersection` and `Correlation`, held against other methods: Dykstra, closed forms, brute force."""

import math

import pytest
import torch
from torch import nn

import inbounds as ib
from inbounds.learned.hull import Hull
from inbounds.solvers import EMPTY, FLAT, NOT_CONVERGED, OK


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def hull():
    return Hull.fit(torch.rand(400, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64))


def dykstra(x, *sets, rounds=200):
    """The textbook method for convex sets: slow, and knows nothing of ours but the members' own projections."""
    y, corrections = x, [torch.zeros_like(x) for _ in sets]
    for _ in range(rounds):
        for i, M in enumerate(sets):
            z = M.project(y + corrections[i])
            corrections[i], y = y + corrections[i] - z, z
    return y


CONVEX = [
    (ib.Polytope, ib.Box([-1.0] * 4, [0.6] * 4), ib.Affine([[1.0, 1, 1, 1]], [0.5])),
    (ib.Polytope, ib.Simplex(4), ib.Halfspace([1.0, 1, 0, 0], 0.6)),
    (ib.Polytope, ib.CappedSimplex(4, 0.4), ib.Halfspaces([[1.0, 1, 0, 0], [0, 0, 1, 1]], [0.5, 0.6])),
    (ib.Implicit, ib.Ball(3), ib.Halfspace([1.0, 1, 0], 0.5)),
    (ib.Implicit, ib.SecondOrderCone(4), ib.Affine([[1.0, 0.2, 0, 0]], [1.0])),
    (ib.Implicit, ib.Ball(2), ib.Ball(2, center=[1.0, 0])),
]


@pytest.mark.parametrize("way, A, B", CONVEX, ids=[f"{type(c[1]).__name__} and {type(c[2]).__name__}" for c in CONVEX])
def test_convex_sets_meet_where_dykstra_says(way, A, B):
    M = ib.Intersection(A, B)
    assert isinstance(M.way, way) and M.reach == math.inf
    x = 1.5 * draw(12, *M.shape, seed=3)
    s = M.solve(x)
    assert (s.status == OK).all()
    assert (s.point - dykstra(x, A, B)).abs().max() <= 1e-4
    y = M.project(x.float())
    assert M.contains(y).all() and (M.residuals(y)[1] <= 0).all()


def test_an_empty_intersection_of_boxes_is_certified_and_of_balls_not_converged():
    x = draw(6, 2)
    boxes = ib.Intersection(ib.Box([0.0, 0], [1.0, 1]), ib.Box([2.0, 0], [3.0, 1]))
    assert (boxes.solve(x).status == EMPTY).all()
    balls = ib.Intersection(ib.Ball(2), ib.Ball(2, center=[3.0, 0]), on_fail="best").solve(x)
    assert (balls.status == NOT_CONVERGED).all() and (balls.violation > 0.1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_inequality_keeps_room_for_another_order_of_its_sums(dtype):
    """|v| - t by torch's own norm, and not by the kernel of the set: it was +4e-16 in some rows of a cone cut by planes."""
    E = draw(3, 10, seed=2)
    f = E @ torch.cat([torch.ones(1, dtype=torch.float64), 0.1 * draw(9, seed=3)])
    y = ib.Intersection(ib.SecondOrderCone(10), ib.Affine(E, f)).project(draw(64, 10, seed=5, dtype=dtype)).double()
    assert (y[:, 1:].norm(dim=1) <= y[:, 0]).all() and (y[:, 1:].square().sum(1) <= y[:, 0].square()).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_touching_balls_are_flat(dtype):
    M = ib.Intersection(ib.Ball(2), ib.Ball(2, center=[2.0, 0]))
    s = M.solve(draw(4, 2).to(dtype))
    assert (s.status == FLAT).all()
    assert (s.point - torch.tensor([1.0, 0.0])).abs().max() <= 1e-3 and s.violation.max() <= 1e-6


def test_a_cap_of_the_sphere():
    M = ib.Intersection(ib.Sphere(3), ib.Halfspace([0.0, 0, 1], 0.3))
    x = draw(40, 3)
    y = M.project(x)
    plain = ib.Sphere(3).project(x)
    inside = plain[:, 2] <= 0.3
    torch.testing.assert_close(y[inside], plain[inside], atol=1e-12, rtol=0)
    ring = x[~inside, :2] / x[~inside, :2].norm(dim=1, keepdim=True) * math.sqrt(1 - 0.09)
    torch.testing.assert_close(y[~inside, :2], ring, atol=1e-12, rtol=0)


def test_fitted_sets_take_part():
    circle = ib.fit(nn.functional.normalize(draw(200, 2, seed=1), dim=1))
    M = ib.Intersection(circle, ib.Halfspace([1.0, 0], 0.2), on_fail="best")
    x = 1.5 * draw(16, 2, seed=2)
    s = M.solve(x)
    assert not M.exact and s.ok.double().mean() >= 0.9
    assert ((s.point[s.ok].norm(dim=1) - 1).abs() <= 1e-6).all() and (s.point[s.ok, 0] <= 0.2).all()
    square = hull()
    N = ib.Intersection(square, ib.Affine([[1.0, 1.0]], [0.8]))
    assert isinstance(N.way, ib.Polytope)
    s = N.solve(x)
    assert (s.status == OK).all()
    assert (s.point - dykstra(x, square, ib.Affine([[1.0, 1.0]], [0.8]), rounds=500)).abs().max() <= 1e-6


def test_learnable_members_are_followed():
    high = nn.Parameter(torch.full((3,), 0.5, dtype=torch.float64))
    M = ib.Intersection(ib.Box([0.0] * 3, high), ib.Affine([[1.0, 1, 1]], [1.0]))
    M.project(draw(5, 3)).square().sum().backward()
    assert high.grad is not None and high.grad.abs().max() > 0
    with torch.no_grad():
        high.fill_(0.4)
    assert M.project(draw(5, 3)).max() <= 0.4


def test_polyhedral_intersections_compile():
    M = ib.Intersection(ib.Box([0.0] * 3, [0.7] * 3), ib.Affine([[1.0, 1, 1]], [1.0]))
    x = draw(6, 3).float().requires_grad_()
    torch._dynamo.reset()
    y = torch.compile(M, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(y, M(x))
    assert torch.isfinite(torch.autograd.grad(y.square().sum(), x)[0]).all()
    torch.testing.assert_close(torch.func.vmap(M)(x), M(x))


def test_the_nearest_correlation_matrix_is_highams():
    """Held against alternating projections with Dykstra's correction (Higham 2002); the diagonal is exactly 1."""
    C, K = ib.Correlation(5), ib.PSD(5)
    x = draw(8, 5, 5)
    s = C.solve(x)
    assert (s.status == OK).all() and (s.iterations <= 15).all()
    y, S = 0.5 * (x + x.mT), torch.zeros_like(x)
    for _ in range(800):
        R = y - S
        X = K.project(R)
        S, y = X - R, X.clone()
        y.diagonal(dim1=1, dim2=2).fill_(1)
    assert (s.point - y).abs().max() <= 1e-6
    for dtype in (torch.float32, torch.float64):
        p = C.project(x.to(dtype))
        assert (p.diagonal(dim1=1, dim2=2) == 1).all() and torch.linalg.eigvalsh(p.double()).min() >= 0
    z = x[:1].clone().requires_grad_()
    assert torch.autograd.gradcheck(C.project, (z,), atol=1e-5)


def test_psd_with_a_smallest_eigenvalue():
    M = ib.PSD(3, minimum=0.1)
    x = draw(50, 3, 3)
    l, q = torch.linalg.eigh(0.5 * (x + x.mT))
    torch.testing.assert_close(M.project(x), q @ torch.diag_embed(l.clamp(min=0.1)) @ q.mT, atol=1e-12, rtol=0)
    for dtype in (torch.float32, torch.float64):
        assert torch.linalg.eigvalsh(M.project(x.to(dtype)).double()).min() >= torch.tensor(0.1, dtype=dtype)
    assert repr(M) == "PSD(3, minimum=0.1)" and repr(ib.PSD(3)) == "PSD(3)"


WRONG = [
    (TypeError, r"Intersection asked for sets, got Linear", lambda: ib.Intersection(nn.Linear(2, 2))),
    (TypeError, r"Intersection asked for sets, got nothing", lambda: ib.Intersection()),
    (
        ValueError,
        r"one shape, got Ball\(2\) of shape \(2,\), Ball\(3\) of shape \(3,\)",
        lambda: ib.Intersection(ib.Ball(2), ib.Ball(3)),
    ),
    (
        ValueError,
        r"one set of parameters for all points, since Ball\(2, radius=\[1, 1, 1, 1\]\) is curved.*batch dims \(4,\).*context=c",
        lambda: ib.Intersection(ib.Ball(2, radius=torch.ones(4)), ib.Halfspace([1.0, 0], 0.5)),
    ),
    (ValueError, r"Correlation asked for n >= 1", lambda: ib.Correlation(0)),
    (TypeError, r"whole numbers", lambda: ib.Correlation(2.0)),
]


@pytest.mark.parametrize("error, pattern, f", WRONG, ids=[w[1][:40] for w in WRONG])
def test_bad_input_says_what_to_write(error, pattern, f):
    with pytest.raises(error, match=pattern):
        f()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_way_to_a_matrix_at_its_smallest_eigenvalues_is_normal_there(dtype):
    """Also where all eigenvalues are at the minimum: 2 to 5 % of such rows had kept the whole way as tangent."""
    M = ib.PSD(3, minimum=0.1)
    for scale in (0.1, 1.0, 100.0):
        x = (scale * draw(500, 3, 3)).to(dtype)
        p = M.project(x)
        left = M.tangent(p, x - p).flatten(1).norm(dim=1)
        assert (left <= 1e-3 * x.flatten(1).norm(dim=1)).all()
