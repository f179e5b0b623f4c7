"""Sets fitted by moving least squares and by the heat kernel, against exact projections; the dimension of samples."""

import copy
import json
import math

import pytest
import torch

import inbounds as ib
from inbounds.learned import local
from inbounds.learned.heat import Heat
from inbounds.learned.local import Local
from inbounds.learned.tangents import tangent_dimension

torch.set_num_threads(1)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=rng(seed), dtype=torch.float64)


def samples(M, n, noise=0.0, seed=0):
    x = M.sample(n, generator=rng(seed), dtype=torch.float64).flatten(1)
    return x + noise * randn(*x.shape, seed=seed + 1)


def corrupted(M, sigma, n=300, seed=7):
    return samples(M, n, sigma, seed).reshape(n, *M.shape)


SPHERE, ROTATIONS = ib.Sphere(3), ib.SO(3)


@pytest.fixture(scope="module")
def sphere():
    return Local.fit(samples(SPHERE, 2000), (3,), dim=2, neighbours=30, degree=3)


@pytest.fixture(scope="module")
def rotations():
    return Local.fit(samples(ROTATIONS, 1500, 0.003), (3, 3), dim=3, neighbours=60, degree=3)


@pytest.fixture(scope="module")
def heat():
    return Heat.fit(samples(SPHERE, 2000), (3,), rng())


SETS = ["sphere", "rotations", "heat"]


# --- accuracy ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("M", "dim", "noise", "neighbours", "degree", "wanted"),
    [
        (SPHERE, 2, 0.0, 20, 2, {0.01: 1e-10, 0.1: 1e-10, 0.3: 1e-6}),
        (SPHERE, 2, 0.0, 30, 4, {0.01: 1e-14, 0.1: 1e-13, 0.3: 1e-11}),
        (SPHERE, 2, 0.01, 150, 2, {0.01: 3e-6, 0.1: 3e-6, 0.3: 1e-5}),
        (ROTATIONS, 3, 0.0, 30, 2, {0.01: 1e-7, 0.1: 2e-7, 0.3: 1e-6}),
    ],
)
def test_near_the_exact_projection(M, dim, noise, neighbours, degree, wanted):
    learned = Local.fit(samples(M, 4000, noise), M.shape, dim, neighbours, degree)
    for sigma, error in wanted.items():
        x = corrupted(M, sigma)
        assert (learned.project(x) - M.project(x)).square().mean() < error, sigma
        assert learned.converged(x).double().mean() > 0.98


def test_degree_decides_the_order():
    """Halving the patches divides the error by 2^(degree + 1), and by one power more where the degree is even."""
    for degree, order in ((1, 2), (2, 4), (3, 4)):
        errors = []
        for n in (500, 2000):
            x = corrupted(SPHERE, 0.05)
            y = Local.fit(samples(SPHERE, n), (3,), 2, 30, degree).project(x)
            errors.append(float((y - SPHERE.project(x)).square().mean().sqrt()))
        assert abs(math.log2(errors[0] / errors[1]) - order) < 0.5


def test_projection_is_idempotent(sphere):
    y = sphere.project(corrupted(SPHERE, 0.1))
    assert (sphere.project(y) - y).abs().max() < 1e-5
    assert sphere.violation(y).max() < 1e-5 and sphere.exact is False


def test_continuous_where_neighbours_change(sphere):
    """Along a line of steps of 1e-4, no step of P is longer than the line's, up to 1e-6."""
    t = torch.linspace(0, 0.2, 2001, dtype=torch.float64)[:, None]
    y = sphere.project(torch.tensor([0.8, 0.1, 0.7], dtype=torch.float64) + t * torch.tensor([-1.0, 0.5, 0.3]))
    steps = y.diff(dim=0).norm(dim=1)
    assert steps.diff().abs().max() < 1e-6


def test_hostile_points(sphere, rotations, heat):
    """Finite everywhere, also where squares overflow and where every point is nearest."""
    for M, exact in ((sphere, SPHERE), (rotations, ROTATIONS), (heat, SPHERE)):
        x = randn(20, *M.shape)
        for scale in (0.0, 1e-300, 1.0, 1e6, 1e150, 1e308):
            z = (scale * (x / x.abs().max())).requires_grad_()
            y = M.project(z)
            (g,) = torch.autograd.grad(y.sum(), z)
            assert y.isfinite().all() and g.isfinite().all()
            assert M is heat or exact.distance(y).max() < 0.2  # the mean of a whole sphere is its middle
        assert M.project(torch.full(M.shape, math.nan)).isnan().all()


def test_the_end_of_the_samples():
    """Beyond the end of a curve the last patches go on for one and a half radii, and `converged` says no."""
    t = torch.rand(1000, generator=rng(), dtype=torch.float64)[:, None]
    arc = torch.cat([t.cos(), t.sin()], 1)
    M = Local.fit(arc, (2,), dim=1, neighbours=20, degree=2)
    angle = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.5], dtype=torch.float64)
    x = 1.1 * torch.stack([angle.cos(), angle.sin()], 1)
    y = M.project(x)
    assert M.converged(x).tolist() == [True, True, True, False, False]
    assert torch.cdist(y, arc).amin(1).max() < 0.1 and (y[:3] - x[:3] / 1.1).abs().max() < 1e-4


def test_few_centres_among_many_samples(monkeypatch):
    monkeypatch.setattr(local, "CENTRES", 500)
    M = Local.fit(samples(SPHERE, 4000), (3,), dim=2, neighbours=60, degree=4)
    x = corrupted(SPHERE, 0.1)
    assert len(M.graphs) == 500 and (M.project(x) - SPHERE.project(x)).square().mean() < 1e-10


def test_more_coordinates_than_neighbours():
    """A circle in R^40, turned."""
    Q = torch.linalg.qr(randn(40, 40)).Q
    t = 2 * math.pi * torch.rand(500, generator=rng(), dtype=torch.float64)[:, None]
    M = Local.fit(torch.cat([t.cos(), t.sin()], 1) @ Q[:2], (40,), dim=1, neighbours=12, degree=3)
    x = torch.tensor([[1.1, 0.3], [-0.5, 0.9]], dtype=torch.float64) @ Q[:2] + 0.1 * Q[2]
    y = x @ Q[:2].mT
    assert (M.project(x) - y / y.norm(dim=1, keepdim=True) @ Q[:2]).abs().max() < 1e-6


# --- derivatives and transforms ------------------------------------------------------------------------------
@pytest.mark.parametrize("name", SETS)
def test_gradcheck(name, request):
    M = request.getfixturevalue(name)
    x = corrupted(ROTATIONS if name == "rotations" else SPHERE, 0.1, 2).requires_grad_()
    assert torch.autograd.gradcheck(M.project, (x,), eps=1e-6, atol=1e-6, rtol=1e-6)


def test_jacobian_of_the_exact_projection(sphere):
    x = corrupted(SPHERE, 0.1, 8)
    got, want = (torch.func.vmap(torch.func.jacrev(M.project))(x) for M in (sphere, SPHERE))
    assert (got - want).abs().max() < 1e-2


@pytest.mark.parametrize("name", SETS)
def test_vmap_and_both_modes(name, request):
    M = request.getfixturevalue(name)
    x, v = corrupted(ROTATIONS if name == "rotations" else SPHERE, 0.1, 6), randn(6, *M.shape)
    torch.testing.assert_close(torch.func.vmap(M.project)(x), M.project(x), rtol=0, atol=1e-10)
    torch.testing.assert_close(M.project(x.reshape(2, 3, *M.shape)).reshape(x.shape), M.project(x), rtol=0, atol=1e-14)
    forward, reverse = torch.func.jacfwd(M.project)(x[0]), torch.func.jacrev(M.project)(x[0])
    torch.testing.assert_close(forward, reverse, rtol=0, atol=1e-10)
    along = (forward.reshape(v[0].numel(), -1) @ v[0].flatten()).reshape(M.shape)
    torch.testing.assert_close(M.tangent(x, v)[0], along, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", SETS)
def test_rows_do_not_depend_on_their_neighbours(name, request, monkeypatch):
    M = request.getfixturevalue(name)
    x = corrupted(ROTATIONS if name == "rotations" else SPHERE, 0.1, 20)
    y = M.project(x)
    monkeypatch.setattr(f"inbounds.learned.{M.method}.BLOCK", 1)  # one row at a time
    torch.testing.assert_close(M.project(x), y, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", SETS)
def test_float32(name, request):
    M = request.getfixturevalue(name)
    x = corrupted(ROTATIONS if name == "rotations" else SPHERE, 0.1, 20).float()
    y = M.project(x)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, M.project(x.double()).float(), rtol=0, atol=0)
    assert M.float().half().project(x.double()).dtype == torch.float64 and next(M.buffers()).dtype == torch.float64


def test_search_without_a_tree(sphere, monkeypatch):
    """Without scipy, projecting goes on by all distances; fitting says what is missing."""
    x = corrupted(SPHERE, 0.1)
    y = sphere.project(x)
    again = Local.from_parts(sphere.tensors(), sphere.spec())
    monkeypatch.setattr(local, "find_spec", lambda name: None)
    torch.testing.assert_close(again.project(x), y, rtol=0, atol=1e-12)
    monkeypatch.setitem(__import__("sys").modules, "scipy.spatial", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'inbounds\[lab\]'"):
        Local.fit(samples(SPHERE, 50), (3,), 2, 20, 2)


@pytest.mark.parametrize("name", SETS)
def test_to_parts_and_back(name, request):
    M = request.getfixturevalue(name)
    x = corrupted(ROTATIONS if name == "rotations" else SPHERE, 0.1, 20)
    again = type(M).from_parts(M.tensors(), json.loads(json.dumps(M.spec())))
    for other in (again, copy.deepcopy(M)):
        assert torch.equal(other.project(x), M.project(x)) and torch.equal(other.converged(x), M.converged(x))
    assert again.spec() == M.spec() and repr(again) == repr(M)
    assert json.loads(json.dumps(M.info)) == M.info


# --- the heat kernel -----------------------------------------------------------------------------------------
def test_heat_is_the_identity_of_the_theorem(heat):
    """P(x) = x + t grad log u_t(x), u_t(x) = sum_i exp(-|x - x_i|^2 / 2t)."""
    x = corrupted(SPHERE, 0.2, 50).requires_grad_()
    log_u = torch.logsumexp(-(x[:, None] - heat.samples).square().sum(-1) / (2 * heat.t), 1)
    (g,) = torch.autograd.grad(log_u.sum(), x)
    torch.testing.assert_close(heat.project(x), x + heat.t * g, rtol=0, atol=1e-12)
    x = x[:3].detach().requires_grad_()
    assert torch.autograd.gradgradcheck(heat.project, (x,))


def test_heat_bandwidth(heat):
    """The chosen t is inside of its grid, and scales with the square of the set."""
    scores = list(heat.info["denoising"].values())
    assert min(scores) not in (scores[0], scores[-1])
    big = Heat.fit(10 * samples(SPHERE, 2000) + 100, (3,), rng())
    assert big.t == pytest.approx(100 * heat.t, rel=1e-6)
    x = corrupted(SPHERE, 0.1)
    assert (heat.project(x) - SPHERE.project(x)).square().mean() < 5e-4


def test_heat_far_from_the_origin():
    near, far = (Heat(samples(SPHERE, 100) + a, 0.01, (3,)) for a in (0.0, 1e6))
    x = corrupted(SPHERE, 0.1, 20)
    torch.testing.assert_close(far.project(x + 1e6) - 1e6, near.project(x), rtol=0, atol=1e-6)


# --- the dimension -------------------------------------------------------------------------------------------
def circle(n):
    t = 2 * math.pi * torch.rand(n, generator=rng(), dtype=torch.float64)
    return torch.stack([t.cos(), t.sin()], 1)


def helix(n):
    t = 4 * math.pi * torch.rand(n, generator=rng(), dtype=torch.float64)
    return torch.stack([t.cos(), t.sin(), t / 10], 1)


def torus(n):
    a, b = (2 * math.pi * torch.rand(2, n, generator=rng(), dtype=torch.float64)).unbind()
    return torch.stack([(1 + 0.4 * b.cos()) * a.cos(), (1 + 0.4 * b.cos()) * a.sin(), 0.4 * b.sin()], 1)


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.01])
@pytest.mark.parametrize(
    ("dim", "draw"),
    [
        (1, circle),
        (1, helix),
        (2, torus),
        (2, lambda n: samples(SPHERE, n)),
        (2, lambda n: samples(ib.Ball(2), n)),
        (3, lambda n: samples(ib.Ball(3), n)),
        (3, lambda n: samples(ROTATIONS, n)),
        (3, lambda n: samples(ib.Simplex(4), n)),
        (5, lambda n: randn(n, 5)),
        (7, lambda n: samples(ib.Stiefel(5, 2), n)),
    ],
    ids="circle helix torus sphere disk ball SO(3) simplex gauss Stiefel".split(),
)
def test_dimension(dim, draw, noise):
    x = draw(1500)
    assert tangent_dimension(x + noise * randn(*x.shape, seed=3), rng()) == dim


def test_dimension_of_doubles():
    assert tangent_dimension(samples(SPHERE, 300).repeat(10, 1), rng()) == 2


# --- errors --------------------------------------------------------------------------------------------------
X = randn(50, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Local.fit(X, (3,), 3, 20, 2), r"1 <= dim < 3 of a set in R\^3, got 3"),
        (lambda: Local.fit(X, (3,), 2, 20, 5), r"degree of 1 to 4, got 5"),
        (lambda: Local.fit(X, (3,), 2, 6, 2), r"7 <= neighbours <= 50.*got 6"),
        (lambda: Local.fit(X, (3,), 2, 51, 2), r"got 51"),
        (lambda: Local(X[None], (3,), 2, 2, 4), r"graphs \(n, 6, 3\), got \(1, 50, 3\)"),
        (lambda: Heat(X, 0.0, (3,)), r"finite time t > 0, got 0"),
        (lambda: Heat(X, 1.0, (4,)), r"samples \(N, 4\), N >= 1, got \(50, 3\)"),
        (lambda: Heat.fit(X[:1], (3,)), r"at least 2 samples, got 1"),
    ],
)
def test_errors_say_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()
