"""How algebraic sets find the nearest point: quadrics in closed form, charts, Newton's method, what training does."""

import math

import pytest
import torch
from scipy.optimize import nnls

import inbounds as ib
from inbounds.learned.balls import smallest_ball
from inbounds.learned.charts import free_directions
from inbounds.learned.christoffel import region
from inbounds.learned.near import CHARTS
from inbounds.learned.nearest import Nearest
from inbounds.learned.polynomials import Monomials, Polynomials
from inbounds.learned.quadric import Quadric

F64 = torch.float64


def normal(*size, seed=0):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=F64)


def of_squares(a, b=None, level=1.0):
    """sum a_j x_j^2 + b_j x_j - level as a polynomial of degree 2."""
    m = Monomials(len(a), 2)
    C = torch.zeros(1, len(m), dtype=F64)
    C[0, 0] = -level
    for j, v in enumerate(a):
        e = [0] * len(a)
        e[j] = 1
        C[0, m.index[tuple(e)]] = b[j] if b else 0.0
        e[j] = 2
        C[0, m.index[tuple(e)]] = v
    return Polynomials(C, m, torch.ones(len(a), dtype=F64))


NONE = Polynomials(torch.zeros(0, 1, dtype=F64), Monomials(3, 0), torch.ones(3, dtype=F64))


def torus(n, seed=0):
    a, b = 2 * math.pi * torch.rand(2, n, dtype=F64, generator=torch.Generator().manual_seed(seed))
    r = 1 + 0.4 * b.cos()
    return torch.stack([r * a.cos(), r * a.sin(), 0.4 * b.sin()], 1)


# --- quadrics --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("a", [(1.0, 1.0, 1.0), (1.0, 4.0, 0.25), (1.0, 1.0, 1e4), (2.0, 3.0, 0.0), (-1.0, -2.0, -1.0)])
def test_the_nearest_point_of_an_ellipsoid(a):
    q = Quadric.of(of_squares(a, (0.3, -0.2, 0.0), math.copysign(1.0, a[0])), NONE, 1)
    x = torch.cat([normal(300, 3), 1e-3 * normal(20, 3), 1e6 * normal(20, 3)])
    y = q.project(x)
    e = of_squares(a, (0.3, -0.2, 0.0), math.copysign(1.0, a[0]))
    g = e.jacobian(y)[:, 0]
    assert (e.values(y)[:, 0].abs() / g.norm(dim=1)).max() < 1e-12
    away = x - y
    turned = away - (away * g).sum(1, keepdim=True) * g / g.square().sum(1, keepdim=True)
    assert (turned.norm(dim=1) / (1 + away.norm(dim=1))).max() < 1e-9
    # and no point of it is nearer
    z = normal(4000, 3, seed=1)
    others = q.project(torch.cat([z, 0.05 * z + y[:300].repeat(14, 1)[:4000]]))
    assert (torch.cdist(x, others).amin(1) >= away.norm(dim=1) * (1 - 1e-9) - 1e-9).all()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("a", [(1.0, 1.0, 1.0), (1.0, 4.0, 0.25), (2.0, 3.0, 0.0), (9.0, 4.0, 1.0)])
def test_centre_and_axes_have_a_nearest_point(a, sign):
    """Whatever the order of the axes, and the sign of the equation."""
    e = of_squares([sign * v for v in a], level=sign)
    x = torch.cat([torch.zeros(1, 3, dtype=F64), *(t * torch.eye(3, dtype=F64) for t in (1e-9, 0.1, 0.5, 1.0, 7.0))])
    y = Quadric.of(e, NONE, 1).project(x)
    assert e.values(y).abs().max() < 1e-13
    others = Quadric.of(e, NONE, 1).project(normal(4000, 3, seed=1))
    assert (torch.cdist(x, others).amin(1) >= (x - y).norm(dim=1) * (1 - 1e-9) - 1e-9).all()


@pytest.mark.parametrize("a", [(1.0, 4.0, 0.25), (2.0, 3.0, 0.0)])
def test_derivatives_on_an_ellipsoid(a):
    q = Quadric.of(of_squares(a, (0.3, -0.2, 0.0)), NONE, 1)
    x = normal(6, 3).requires_grad_()
    assert torch.autograd.gradcheck(q.project, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(q.project, x)


def test_a_solid_ellipsoid_leaves_what_is_inside():
    f = Polynomials(
        torch.tensor([[0.1, 1.0, 0, 0], [0, 0, 2.0, 0], [0, 0, 0, 3.0]], dtype=F64), Monomials(3, 1), torch.ones(3, dtype=F64)
    )
    q = Quadric.of(Polynomials(torch.zeros(0, 1, dtype=F64), Monomials(3, 0), f.scale), f, 0)
    x = normal(200, 3)
    y, inside = q.project(x), f.values(x).square().sum(1) <= 1
    assert 0 < int(inside.sum()) < 200
    assert torch.equal(x[inside], y[inside])
    assert (f.values(y[~inside]).square().sum(1) - 1).abs().max() < 1e-13
    assert torch.autograd.gradcheck(q.project, x[:8].requires_grad_())


@pytest.mark.parametrize(("a", "b", "level"), [((1.0, 1.0, -1.0), None, 1.0), ((1.0, 1.0, 0.0), (0.0, 0.0, 1.0), 1.0)])
def test_other_quadrics_are_left_to_newton(a, b, level):
    assert Quadric.of(of_squares(a, b, level), NONE, 1) is None


def test_on_a_thin_ellipsoid_newton_from_the_nearest_sample_is_not_nearer():
    s = ib.Sphere(3).sample(1000, dtype=F64, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 0.5, 0.05])
    M = ib.fit(s, method="algebraic")
    x = s[:500] + 0.2 * normal(500, 3)
    y = M.project(x)
    M._quadric = None
    gained = (x - M.project(x)).norm(dim=1) - (x - y).norm(dim=1)
    assert gained.min() > -1e-9
    assert gained.median() < 1e-9


# --- balls -------------------------------------------------------------------------------------------------------
GRID = torch.stack(torch.meshgrid(*[torch.arange(4.0, dtype=F64)] * 3, indexing="ij"), -1).reshape(-1, 3)


@pytest.mark.parametrize(
    "w",
    [
        normal(20, 1),
        normal(30, 2),
        normal(3000, 3),
        normal(40, 12),
        normal(10, 12),
        GRID,
        GRID[:, :2],
        ib.Sphere(3).sample(500, dtype=F64, generator=torch.Generator().manual_seed(0)),
    ],
    ids=lambda w: f"{len(w)}x{w.shape[1]}",
)
def test_the_smallest_ball(w):
    """A ball around points is the smallest if its centre is a mean, with weights >= 0, of those that touch it."""
    c, r = smallest_ball(w)
    d = (w - c).norm(dim=1)
    assert d.max() <= r * (1 + 1e-14)
    touching = w[d >= r * (1 - 1e-7)]
    A = torch.cat([touching, torch.ones(len(touching), 1, dtype=F64)], 1).mT
    assert nnls(A.numpy(), torch.cat([c, torch.ones(1, dtype=F64)]).numpy())[1] < 1e-6 * r


@pytest.mark.parametrize(("n", "thin", "round_"), [(2, 1.0, True), (2, 0.98, False), (5, 1.0, True), (5, 0.97, False)])
def test_samples_of_a_ball_give_a_ball_and_others_do_not(n, thin, round_):
    s = ib.Ball(n).sample(4000, dtype=F64, generator=torch.Generator().manual_seed(2))
    s[:, 0] *= thin
    F = region(s, 1, s.abs().amax(0))
    q = Quadric.of(
        Polynomials(torch.zeros(0, 1, dtype=F64), Monomials(n, 0), torch.ones(n, dtype=F64)),
        Polynomials(F, Monomials(n, 1), s.abs().amax(0)),
        0,
    )
    axes = q.a.rsqrt()
    assert (axes.max() - axes.min() < 1e-9) == round_
    assert (axes - torch.tensor([thin] + [1.0] * (n - 1), dtype=F64).sort(descending=True).values).abs().max() < 0.01
    assert (torch.cat([torch.ones(len(s), 1), s / s.abs().amax(0)], 1) @ F.mT).square().sum(1).max() <= 1 + 1e-12


# --- where to start ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [1, 64, 65, 1000])
def test_the_nearest_sample(n):
    s, x = normal(n, 5), normal(700, 5, seed=1)
    assert torch.equal(Nearest(s)(x), torch.cdist(x.float(), s.float()).argmin(1))


def test_free_directions():
    cylinder = of_squares((1.0, 1.0, 0.0))
    assert free_directions(cylinder, normal(50, 3)).abs().allclose(torch.tensor([[0.0], [0.0], [1.0]], dtype=F64), atol=1e-12)
    assert free_directions(of_squares((1.0, 1.0, 1.0)), normal(50, 3)).shape == (3, 0)
    M = ib.fit(ib.SE(3).sample(800, dtype=F64, generator=torch.Generator().manual_seed(0)), method="algebraic")
    assert M._charts.free.shape[1] == 3


@pytest.fixture(scope="module")
def rotations():
    return ib.fit(ib.SO(3).sample(3000, dtype=F64, generator=torch.Generator().manual_seed(0)), method="algebraic")


def on_charts(M, x):
    """x in M's own coordinates, its starting samples, and its foot on their charts."""
    w = M._lower(x.reshape(len(x), -1))
    i = M._nearest(w)
    return w, i, M._charts.foot(w, i)[0]


def test_charts_are_of_second_order(rotations):
    """A tenth of the way from the sample, a thousandth of the error."""
    M, t = rotations, rotations._charts
    i = torch.arange(200)
    u, b = 0.3 * normal(200, 1, 3), 0.1 * normal(200, 1, 6, seed=1)

    def error(h):
        x = t.samples[i] + (h * u @ t.T[i].mT + b @ t.N[i].mT)[:, 0]
        exact = M._lower(M.project((M.center + M.unit * x @ M.frame.mT).reshape(-1, 3, 3)).reshape(-1, 9))
        return (t.foot(x, i)[0] - exact).norm(dim=1).median()

    assert error(1.0) < 0.02
    assert error(0.1) < 3e-3 * error(1.0)


def test_the_derivative_of_a_chart(rotations):
    w, i, _ = on_charts(
        rotations, ib.SO(3).sample(5, dtype=F64, generator=torch.Generator().manual_seed(4)) + 0.1 * normal(5, 3, 3)
    )
    t, h = rotations._charts, 1e-6
    g = normal(5, 9, seed=2)
    numeric = (t.foot(w + h * g, i)[0] - t.foot(w - h * g, i)[0]) / (2 * h)
    y = t.foot(w, i)[0]
    assert (t.derivative(w, y, g, i) - numeric).abs().max() < 1e-3  # two steps of Newton are not all
    assert torch.allclose((t.derivative(w, y, g, i) * w).sum(), (t.derivative(w, y, w, i) * g).sum())


# --- compiled ----------------------------------------------------------------------------------------------------
@pytest.mark.nightly
@pytest.mark.parametrize("more", [False, True], ids=["ellipse", "curve"])
def test_compiled_in_one_graph_with_gradients(more):
    t = 2 * math.pi * torch.rand(300, 1, dtype=F64, generator=torch.Generator().manual_seed(0))
    M = ib.fit(torch.cat([t.cos(), 2 * t.sin(), t.cos() ** 2], 1)[:, : 2 + more])
    x = normal(5, 2 + more).requires_grad_()
    v = normal(5, 2 + more, seed=1)
    torch._dynamo.reset()
    y, exact = torch.compile(M, fullgraph=True, backend="aot_eager")(x), M(x)
    assert torch.allclose(y, exact, atol=1e-12)
    assert torch.allclose(*(torch.autograd.grad((z * v).sum(), x)[0] for z in (y, exact)), atol=1e-10)


# --- in training -------------------------------------------------------------------------------------------------
def test_training_far_beyond_the_focus_is_as_good_as_evaluation():
    """No chart reaches there; a paraboloid's samples, moved by five times its size."""
    u = 2 * torch.rand(2000, 2, dtype=F64, generator=torch.Generator().manual_seed(0)) - 1
    s = torch.cat([u, u.square().sum(1, keepdim=True)], 1)
    M = ib.fit(s, method="algebraic")
    x, v = (s[:1000] + 5 * normal(1000, 3)).requires_grad_(), normal(1000, 3, seed=3)
    exact = M.project(x)
    (wanted,) = torch.autograd.grad((exact * v).sum(), x)
    y = M.train().project(x)
    (got,) = torch.autograd.grad((y * v).sum(), x)
    assert (y - exact).norm(dim=1).max() < 10 * CHARTS * M.unit
    assert (got - wanted).norm(dim=1).max() < 0.1 * wanted.norm(dim=1).max()


@pytest.mark.parametrize("name", ["so3", "se3", "torus"])
def test_training_is_near_and_everything_else_exact(name):
    g = torch.Generator().manual_seed(0)
    E = {"so3": ib.SO(3), "se3": ib.SE(3)}.get(name)
    s = E.sample(2500, dtype=F64, generator=g) if E else torus(2500)
    M = ib.fit(s, method="algebraic")
    x = s[:500] + 0.1 * normal(*s[:500].shape)
    v = normal(*x.shape, seed=3)
    exact = M.project(x)
    (wanted,) = torch.autograd.grad((M.project(x.requires_grad_()) * v).sum(), x)
    M.train()
    y = M.project(x)
    (got,) = torch.autograd.grad((y * v).sum(), x)
    assert 0 < float((y.detach() - exact).flatten(1).norm(dim=1).max()) < 10 * CHARTS * M.unit
    assert M.violation(y.detach()).mean() < 0.2 * CHARTS * M.unit
    assert (got - wanted).norm() < 0.02 * wanted.norm()
    with torch.no_grad():
        assert torch.equal(M.project(x), exact)
    assert torch.equal(M.project(x.detach()), exact)
    assert torch.equal(M.eval().project(x), exact)


def test_points_far_from_all_samples_leave_the_charts():
    """Half of a torus tells all of it; the other half is far from every sample."""
    s = torus(2500)
    s = s[s[:, 0] > 0.5]
    M = ib.fit(s, method="algebraic").train()
    x = (torus(2000, seed=1) + 0.02 * normal(2000, 3)).requires_grad_()
    y = M.project(x)
    far = M.p.values(M._lower(y.detach())).abs()[:, 0]
    assert float(far.max()) < 0.02


# --- what auto takes ---------------------------------------------------------------------------------------------
@pytest.mark.nightly
def test_samples_that_crowd_along_a_curve_of_the_sphere_tell_the_sphere():
    g = torch.Generator().manual_seed(0)
    a = 2 * math.pi * torch.rand(3000, 1, generator=g, dtype=F64) ** 3
    s = torch.cat([a.cos(), a.sin(), torch.zeros_like(a)], 1) + 0.05 * normal(3000, 3)
    M = ib.fit(torch.nn.functional.normalize(s, dim=1))
    x = normal(200, 3)
    assert (M.project(x) - torch.nn.functional.normalize(x, dim=1)).abs().max() < 1e-8


@pytest.mark.nightly
def test_a_disk_with_half_of_the_samples_on_its_rim_is_a_disk():
    s = 1.5 * ib.Ball(2).sample(1000, dtype=F64, generator=torch.Generator().manual_seed(0))
    M = ib.fit(ib.Ball(2).project(s))
    x = normal(500, 2)
    assert (M.project(x) - ib.Ball(2).project(x)).norm(dim=1).max() < 1e-3
