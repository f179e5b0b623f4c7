"""`Implicit`: nearest points from equations, held against closed forms, restarts and finite differences."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import inbounds as ib
from inbounds.solvers import NOT_CONVERGED, OK
from inbounds.solvers.complementarity import complementary, multipliers
from inbounds.solvers.linear import redundant_kkt


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def sphere(p):
    return p @ p - 1


def ring(p):
    return ((p[:2] @ p[:2]).sqrt() - 2) ** 2 + p[2] ** 2 - 0.25


def orthogonal(p):
    return (p @ p.T - torch.eye(3, dtype=p.dtype)).flatten()


def hand(q):
    angles = q.cumsum(0)
    return torch.stack([angles.cos().sum(), angles.sin().sum()])


CLOSED = [
    ("Sphere", ib.Implicit(3, eq=sphere), ib.Sphere(3)),
    ("Ball", ib.Implicit(2, ineq=sphere), ib.Ball(2)),
    (
        "Ellipsoid",
        ib.Implicit(3, ineq=lambda p: (p / torch.tensor([1.0, 2, 3]).to(p)).square().sum() - 1),
        ib.Ellipsoid([1.0, 2, 3]),
    ),
    ("Stiefel", ib.Implicit((3, 3), eq=orthogonal), ib.Stiefel(3, 3)),
    ("Sphere twice", ib.Implicit(3, eq=lambda p: torch.stack([sphere(p), 3 * sphere(p), (p @ p) ** 2 - 1])), ib.Sphere(3)),
    ("Halfspace", ib.Implicit(3, ineq=lambda p: p.sum() - 1), ib.Halfspace([1.0, 1, 1], 1.0)),
]


@pytest.mark.parametrize("name, M, truth", CLOSED, ids=[c[0] for c in CLOSED])
def test_the_closed_forms_are_found(name, M, truth):
    for dtype, tol in ((torch.float64, 1e-12), (torch.float32, 2e-5)):
        x = 1.5 * draw(64, *M.shape, seed=2, dtype=dtype)
        s = M.solve(x)
        assert (s.status == OK).all()
        torch.testing.assert_close(s.point, truth.project(x), atol=tol, rtol=tol)
        eq, ineq = M.residuals(s.point)
        assert (ineq <= 0).all() and (eq.abs() <= 8 * torch.finfo(dtype).eps * M._scale(s.point)[:, None]).all()


@pytest.mark.parametrize("name, M, truth", CLOSED, ids=[c[0] for c in CLOSED])
def test_gradients_have_the_curvature(name, M, truth):
    x = 1.5 * draw(16, *M.shape, seed=3).requires_grad_()
    w = draw(16, *M.shape, seed=4)
    (mine,) = torch.autograd.grad(M.project(x), x, w)
    (true,) = torch.autograd.grad(truth.project(x), x, w)
    torch.testing.assert_close(mine, true, atol=1e-8, rtol=1e-8)


def test_gradients_reach_the_context_and_the_parameters():
    class Radius(nn.Module):
        def __init__(self):
            super().__init__()
            self.size = nn.Parameter(torch.tensor(1.5, dtype=torch.float64))

        def forward(self, p, c):
            return (p - c) @ (p - c) - self.size**2

    f = Radius()
    M = ib.Implicit(3, eq=f, context=3)
    assert "eq.size" in dict(M.named_parameters())
    x, c = draw(6, 3).requires_grad_(), 0.3 * draw(6, 3, seed=1).requires_grad_()
    w = draw(6, 3, seed=2)
    grads = torch.autograd.grad(M.project(x, context=c), (x, c, f.size), w)
    x2, c2, r2 = (t.detach().clone().requires_grad_() for t in (x, c, f.size))
    d = x2 - c2
    true = torch.autograd.grad(c2 + r2 * d / d.norm(dim=1, keepdim=True), (x2, c2, r2), w)
    for a, b in zip(grads, true, strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)
    assert M.contains(M.project(x, context=c), context=c).all() and (M.violation(x, context=c) > 0).all()
    t = M.tangent(M.project(x, context=c), w, context=c)
    assert ((t * (M.project(x, context=c) - c)).sum(1).abs() <= 1e-12).all()


def test_a_second_derivative_raises_and_is_not_wrong():
    x = draw(3, 3).requires_grad_()
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(CLOSED[0][1].project(x).sum(), x, create_graph=True)
    torch.autograd.grad(CLOSED[0][1].project(x).sum(), x)


@pytest.mark.parametrize("size", [1e2, 1e4])
def test_coordinates_that_are_centred_on_a_solution(size):
    """A sphere of radius |c| around -c passes through 0, and x is above 0: the point is smaller than the equation is rounded.

    The judge is the closed form in extended precision; the bound is the rounding of p + c, two units for every step of the sum.
    """
    c = draw(3, seed=7)
    c = size * c / c.norm()
    x = torch.linspace(0.5, 1.5, 48, dtype=torch.float64)[:, None] * c / size + 1e-6 * draw(48, 3, seed=2)
    M = ib.Implicit(3, eq=lambda p: (p + c.to(p)).square().sum() - size**2, on_fail="best")
    s = M.solve(x)
    wide = np.longdouble
    middle = x.numpy().astype(wide) + c.numpy().astype(wide)
    true = middle * (wide(size) / np.sqrt((middle * middle).sum(1, keepdims=True))) - c.numpy().astype(wide)
    assert (np.abs(s.point.numpy() - true) <= 8 * 2.2e-16 * size).all()
    assert (s.status == OK).all()


@pytest.mark.parametrize("gap", [1e-6, 1e-8, 1e-10])
def test_a_gap_that_can_be_seen_is_never_taken_for_rounding(gap):
    """Two equations that are `gap` off in opposite directions have no common point, by more than their functions round."""
    x = draw(8, 3, seed=1)
    empty = ib.Implicit(3, eq=lambda p: torch.stack([p[0] - gap, p[0] + gap]), on_fail="best")
    assert (empty.solve(x).status == NOT_CONVERGED).all()
    c = 1e4 * torch.tensor([0.6, 0.8, 0.0], dtype=torch.float64)  # the same in coordinates where the terms are large
    room = max(gap, 1e-8)
    f = lambda p: ((p + c.to(p)).square().sum() - 1e8) / 2e4  # noqa: E731
    empty = ib.Implicit(3, eq=lambda p: torch.stack([f(p) - room, f(p) + room]), on_fail="best")
    assert (empty.solve(0.5 * c / 1e4 + 1e-6 * x).status == NOT_CONVERGED).all()


@pytest.mark.parametrize("M", [CLOSED[0][1], CLOSED[3][1], ib.Implicit(3, eq=ring)], ids=["sphere", "O(3)", "torus"])
def test_singular_starts_and_far_points(M):
    """At 0, where every gradient vanishes or is NaN, and from 1e-20 to 1e20: a point of the set."""
    x = draw(8, *M.shape)
    for z in (0 * x, 1e-20 * x, 1e3 * x, 1e20 * x):
        s = M.solve(z)
        assert s.ok.all() and M.contains(s.point).all()


def test_a_row_does_not_depend_on_a_singular_row_beside_it():
    x = 1.5 * draw(8, 3, seed=6)
    both = CLOSED[0][1].project(torch.cat([x, torch.zeros(1, 3, dtype=x.dtype)]))
    assert (both[:-1] == CLOSED[0][1].project(x)).all()


def test_functions_that_are_nan_somewhere():
    """log(p_0 p_1) = 0 is a hyperbola; off the two quadrants the function is NaN."""
    M = ib.Implicit(2, eq=lambda p: (p[0] * p[1]).log(), on_fail="best")
    s = M.solve(draw(128, 2, seed=5))
    good = s.status == OK
    assert good.double().mean() > 0.9
    assert ((s.point[good].prod(1) - 1).abs() <= 1e-12).all() and torch.isfinite(s.point).all()


def test_a_set_without_points_is_not_converged_and_says_its_gap():
    M = ib.Implicit(2, eq=lambda p: p @ p + 1)
    s = M.solve(draw(5, 2))
    assert (s.status == NOT_CONVERGED).all() and (s.violation > 0).all()
    with pytest.raises(ib.SolveError, match=r"none for 5 of them.*not converged"):
        M.project(draw(5, 2))
    assert torch.isfinite(ib.Implicit(2, eq=lambda p: p @ p + 1, on_fail="best").project(draw(5, 2))).all()


def test_ok_rows_of_an_arm_are_feasible_and_stationary():
    """Six links, limits and a goal, judged in float64 by autograd on the functions themselves."""
    goal = torch.tensor([2.0, 3.0], dtype=torch.float64)
    M = ib.Implicit(6, eq=lambda q: hand(q) - goal.to(q), ineq=lambda q: torch.cat([q - 2, -2 - q]), on_fail="best")
    x = 0.5 + 0.4 * draw(48, 6, seed=1)
    s = M.solve(x)
    good = s.status == OK
    assert good.double().mean() >= 0.95
    for q, z, l in zip(s.point[good], x[good], s.multipliers[good], strict=True):
        q = q.clone().requires_grad_()
        c = torch.cat([hand(q) - goal, q - 2, -2 - q])
        (push,) = torch.autograd.grad((l * c).sum(), q)
        assert (q - z + push).norm() <= 1e-8 and (c[2:] <= 0).all() and c[:2].abs().max() <= 1e-14
        assert (l[2:] >= 0).all() and (l[2:] * c[2:]).abs().max() <= 1e-9


def test_restarts_find_nearer_points():
    """Two circles: from beside the small one, the large one is a stationary answer, and not the nearest."""
    M = {r: ib.Implicit(2, eq=lambda p: (p @ p - 1) * ((p[0] - 3) ** 2 + p[1] ** 2 - 0.25), restarts=r) for r in (0, 4)}
    x = torch.tensor([1.8, 0.0], dtype=torch.float64) + 0.5 * draw(64, 2)
    near, far = M[4].distance(x), M[0].distance(x)
    true = torch.minimum((x.norm(dim=1) - 1).abs(), ((x - torch.tensor([3.0, 0])).norm(dim=1) - 0.5).abs())
    assert (near <= far + 1e-9).all() and (near - true).abs().le(1e-9).double().mean() >= 0.97


def test_the_first_point_found_is_feasible_and_stationary():
    """restarts=None: on convex sets that is the nearest point; rows inside stay, and gradients are those of the projection."""
    x = 2 * draw(64, 3)
    first, usual = (ib.Implicit(3, eq=lambda p: p.sum() - 1, ineq=lambda p: p @ p - 4, restarts=r) for r in (None, 0))
    assert (first.project(x) - usual.project(x)).abs().max() < 1e-9 and "restarts=None" in repr(first)
    inside = usual.project(x)
    assert (first.project(inside) - inside).abs().max() < 1e-12
    assert torch.autograd.gradcheck(first.project, x[:8].clone().requires_grad_())
    twisted = ib.Implicit(3, eq=ring, restarts=None)
    s = twisted.solve(x)
    assert s.ok.all() and twisted.violation(s.point).max() < 1e-12 and s.optimality.max() < 1e-9


def test_the_derivative_of_many_constraints_takes_the_active_ones_alone():
    n, k = 5, 40
    J, g, x = draw(7, k, n), draw(7, n, seed=1), draw(7, n, n, seed=2)
    J = J / J.norm(dim=2, keepdim=True)
    H = torch.eye(n).double() + 0.1 * x @ x.mT
    active = torch.zeros(7, k, dtype=torch.bool)
    for row, few in enumerate(([], [3], [0, 39], [1, 2, 3], [7], [5, 6, 7, 8], [])):
        active[row, few] = True
    v, m = redundant_kkt(H, J, active, g)
    assert (H @ v[:, :, None] + J.mT @ m[:, :, None] - g[:, :, None]).abs().max() < 1e-12
    assert (J @ v[:, :, None])[:, :, 0][active].abs().max() < 1e-12 and (m[~active] == 0).all()


def test_float32_functions_are_computed_in_float32():
    torch.manual_seed(0)
    f = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    M = ib.Implicit(3, eq=lambda p: f(p) - f(torch.zeros(3)).detach(), on_fail="best")
    assert not M.double_precision
    y = M.project(0.3 * draw(8, 3, dtype=torch.float32))
    assert y.dtype == torch.float32 and M.violation(y).max() < 1e-5


def test_compiled_code_gets_an_error_that_names_the_way_out():
    M = CLOSED[0][1]
    with pytest.raises(RuntimeError, match=r"cannot be projected on inside.*Call it outside.*Polytope"):
        torch.func.vmap(M)(draw(4, 3))


@pytest.mark.nightly  # the first laws of the catalogue run on curved sets in make test
@pytest.mark.parametrize("M", [CLOSED[0][1], CLOSED[1][1]], ids=["sphere", "disk"])
def test_the_contract(M):
    ib.check_set(M, points=16)


WRONG = [
    (ValueError, "eq or ineq, got neither", lambda: ib.Implicit(3)),
    (TypeError, "eq as a function of one point, got int", lambda: ib.Implicit(3, eq=1)),
    (ValueError, r"a number or a vector.*got shape \(3, 3\).*flatten", lambda: ib.Implicit((3, 3), eq=lambda p: p @ p.T)),
    (ValueError, "does not depend on it", lambda: ib.Implicit(3, eq=lambda p: torch.ones(()))),
    (ValueError, "does not depend on it", lambda: ib.Implicit(3, eq=lambda p: (p * p).sum().detach())),
    (ValueError, "does not depend on it", lambda: ib.Implicit(3, eq=lambda p: p.detach().round().sum())),
    (TypeError, "return a tensor, got float", lambda: ib.Implicit(3, eq=lambda p: 1.0)),
    (TypeError, r"eq\(p\), a point.*context=\(2,\)", lambda: ib.Implicit(3, eq=lambda p, c: p @ p - c)),
    (TypeError, r"eq\(p, c\).*Leave context out", lambda: ib.Implicit(3, eq=sphere, context=(2,))),
    (ValueError, "restarts >= 0", lambda: ib.Implicit(3, eq=sphere, restarts=-1)),
    (
        TypeError,
        "depends on a context, but none was given",
        lambda: ib.Implicit(3, eq=lambda p, c: p @ p - c, context=()).project(draw(3)),
    ),
    (TypeError, r"Say its shape", lambda: ib.Implicit(3, eq=sphere).project(draw(3), context=draw(2))),
    (
        ValueError,
        r"context of shape \(\*batch, 3\), got \(2,\)",
        lambda: ib.Implicit(3, eq=lambda p, c: p @ c, context=3).project(draw(3), context=draw(2)),
    ),
    (
        ValueError,
        "one context per point",
        lambda: ib.Implicit(3, eq=lambda p, c: p @ c, context=3).project(draw(4, 3), context=draw(5, 3)),
    ),
    (TypeError, "floating point", lambda: ib.Implicit(3, eq=sphere).project(torch.ones(3, dtype=torch.long))),
    (ValueError, r"differentiable function.*rounding", lambda: ib.Implicit(3, eq=lambda p: p.round())),
    (ValueError, r"differentiable function.*numpy", lambda: ib.Implicit(3, eq=lambda p: p.numpy().sum())),
    (ValueError, r"semi_axes > 0", lambda: ib.Ellipsoid([1.0, 0.0])),
    (ValueError, r"Ball\(n, radius", lambda: ib.Ellipsoid(2.0)),
]


@pytest.mark.parametrize("error, pattern, f", WRONG, ids=[f"{i}: {w[1][:30]}" for i, w in enumerate(WRONG)])
def test_bad_input_says_what_to_write(error, pattern, f):
    with pytest.raises(error, match=pattern):
        f()


def test_the_ellipsoid_is_exact_and_differentiable():
    a = torch.tensor([1.0, 2, 3], dtype=torch.float64, requires_grad=True)
    c = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64, requires_grad=True)
    x = (3 * draw(5, 3)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, a, c: ib.Ellipsoid(a, c).project(x), (x, a, c))
    assert torch.autograd.gradgradcheck(lambda x, a, c: ib.Ellipsoid(a, c).project(x), (x, a, c))
    ib.check_set(ib.Ellipsoid([1.0, 2, 3], center=[0.1, 0, 0]))
    assert math.isinf(ib.Ellipsoid([1.0, 2]).reach)


@pytest.mark.parametrize("p", [0, 5])
@pytest.mark.parametrize("k, n", [(18, 30), (40, 6), (90, 12)])
def test_multipliers_of_many_constraints_are_complementary(k, n, p):
    """By working sets with and without a first guess, of all constraints or of those in view; some normals are there twice."""
    V = nn.functional.normalize(draw(7, k, n, seed=k + p), dim=2)
    V[:, -4:] = V[:, -8:-4]
    away, soft = draw(7, n, seed=1), torch.full((7,), 1e-8, dtype=torch.float64)
    room = torch.where(torch.arange(k) < p, 0.0, draw(7, k, seed=2).abs())
    r = (V @ away[:, :, None])[:, :, 0] - room  # a step by -away meets all constraints
    r[:, -4:] = r[:, -8:-4]
    G = V @ V.mT + 1e-8 * torch.eye(k, dtype=torch.float64)
    held = draw(7, k, seed=3) > 1
    found = [complementary(G, r, p), complementary(G, r, p, held), multipliers(V, r, soft, p, held)]
    for l in found:
        s = r - (G @ l[:, :, None])[:, :, 0]
        assert not p or s[:, :p].abs().max() < 1e-9
        assert l[:, p:].min() >= 0 and s[:, p:].max() < 1e-9 and (l * s)[:, p:].abs().max() < 1e-9
        torch.testing.assert_close(V.mT @ l[:, :, None], V.mT @ found[0][:, :, None], atol=1e-7, rtol=1e-7)
    assert not len(complementary(G[:0], r[:0], p)) and not len(multipliers(V[:0], r[:0], soft[:0], p, held[:0]))
