"""Distributions on sets: densities integrate to one, moments and gradients are those of expectations."""

import math

import pytest
import torch
from torch.distributions import kl_divergence
from torch.special import i0, i1

import inbounds as ib
from inbounds.distributions import IsotropicSO3, ProjectedNormal, UniformOn, VonMisesFisher, WrappedNormal
from inbounds.distributions.angles import legendre, log_sphere_area

D = torch.float64


def point(*entries):
    return torch.tensor(entries, dtype=D)


def grid(low, high, count=400):
    """Nodes and weights of a quadrature that the distributions do not use themselves: composite, on a fixed interval."""
    x, w = legendre(10)
    edges = torch.linspace(low, high, count // 10 + 1, dtype=D)
    h = edges[1] - edges[0]
    return (edges[:-1, None] + h * x).flatten(), (h * w.exp()).repeat(count // 10)


def axis(n, k=0):
    return torch.eye(n, dtype=D)[k]


def circle_of_latitude(n, t):
    """A point at the angle t from e_1."""
    x = torch.zeros(*t.shape, n, dtype=D)
    x[..., 0], x[..., 1] = t.cos(), t.sin()
    return x


@pytest.mark.parametrize("n", [2, 3, 5, 40])
@pytest.mark.parametrize("k", [0.0, 0.1, 10.0, 1e4])
def test_von_mises_fisher_is_normalised(n, k):
    t, w = grid(0, min(math.pi, 2 * (math.sqrt(n) + 8) / math.sqrt(max(k, 1e-9))))
    p = VonMisesFisher(axis(n), k).log_prob(circle_of_latitude(n, t)).exp()
    total = (w * p * t.sin() ** (n - 2)).sum() * math.exp(log_sphere_area(n - 1))
    assert abs(float(total) - 1) <= 1e-6


def test_von_mises_fisher_is_the_textbook_density():
    """n = 2: exp(k cos)/(2 pi I_0); n = 3: k/(4 pi sinh k) exp(k cos); the mean of the circle is I_1/I_0."""
    k, t = point(0.3, 2.0, 20.0), point(0.1, 1.0, 2.5)
    circle, ball = VonMisesFisher(axis(2), k), VonMisesFisher(axis(3), k)
    expected = k * t.cos() - (2 * math.pi * i0(k)).log()
    torch.testing.assert_close(circle.log_prob(circle_of_latitude(2, t)), expected)
    expected = k * t.cos() + (k / (4 * math.pi * k.sinh())).log()
    torch.testing.assert_close(ball.log_prob(circle_of_latitude(3, t)), expected)
    torch.testing.assert_close(circle.mean[:, 0], i1(k) / i0(k))
    torch.testing.assert_close(ball.mean[:, 0], 1 / k.tanh() - 1 / k)
    torch.testing.assert_close(ball.entropy(), -(k * (1 / k.tanh() - 1 / k) + (k / (4 * math.pi * k.sinh())).log()))


@pytest.mark.parametrize("size", [0.0, 0.5, 5.0, 50.0])
@pytest.mark.parametrize("n", [2, 3, 6])
def test_projected_normal_is_normalised(n, size):
    t, w = grid(0, min(math.pi, 40 / max(size, 1e-9) + 0.5))
    p = ProjectedNormal(size * axis(n)).log_prob(circle_of_latitude(n, t)).exp()
    total = (w * p * t.sin() ** (n - 2)).sum() * math.exp(log_sphere_area(n - 1))
    assert abs(float(total) - 1) <= 1e-6


@pytest.mark.parametrize("scale", [1e-3, 0.2, 1.0, 1.09, 1.1, 3.0, 20.0])
def test_isotropic_rotations_are_normalised(scale):
    w, weight = grid(0, min(math.pi, 12 * scale))
    rotations = ib.SO(3).group_exp(w[:, None] * axis(3, 2))
    p = IsotropicSO3(torch.eye(3, dtype=D), scale).log_prob(rotations).exp()
    density = p * 16 * math.sqrt(2) * math.pi**2 * (1 - w.cos()) / math.pi  # of the angle
    assert abs(float((weight * density).sum()) - 1) <= 1e-6


def test_isotropic_rotations_are_the_heat_kernel():
    """d/dt p = (Laplacian p)/2 with t = scale^2 and the Frobenius Laplacian p'' + cot(w/2) p' over 2, in both series."""
    for scale in (0.6, 1.05, 1.12, 2.0):
        w = torch.linspace(0.3, 2.9, 9, dtype=D, requires_grad=True)
        t = torch.full((9,), scale**2, dtype=D, requires_grad=True)
        from inbounds.distributions.isotropic_so3 import log_heat

        p = log_heat(w, t / 4).exp()
        slope, rate = torch.autograd.grad(p.sum(), (w, t), create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), w)
        torch.testing.assert_close(rate, 0.25 * (bend + slope / (0.5 * w).tan()), atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("scale", [0.1, 0.7, 2.0])
def test_wrapped_normals_are_normalised(scale):
    """On the circle, the sphere, SO(2), SO(3) and the hyperbolic plane; sums over preimages where geodesics close."""
    o = ib.Hyperboloid(3).origin(axis(1))
    d, w = grid(0, 7 * scale)
    far = ib.Hyperboloid(3).exp(o.expand(len(d), 3), d[:, None] * axis(3, 1))
    p = WrappedNormal(ib.Hyperboloid(3), o, scale).log_prob(far).exp()
    assert abs(float((w * p * 2 * math.pi * d.sinh()).sum()) - 1) <= 1e-6
    t, w = grid(0, math.pi, 2000)
    for n in (2, 3):
        p = WrappedNormal(ib.Sphere(n, radius=0.8), 0.8 * axis(n), scale).log_prob(0.8 * circle_of_latitude(n, t)).exp()
        total = (w * p * (0.8 * t.sin()) ** (n - 2)).sum() * 0.8 * math.exp(log_sphere_area(n - 1))
        assert abs(float(total) - 1) <= 1e-6
    turns = ib.SO(2).group_exp(t[:, None])
    p = WrappedNormal(ib.SO(2), torch.eye(2, dtype=D), scale).log_prob(turns).exp()
    assert abs(float((w * p).sum()) * 2 * math.sqrt(2) - 1) <= 1e-6
    turns = ib.SO(3).group_exp(t[:, None] * axis(3))
    p = WrappedNormal(ib.SO(3), torch.eye(3, dtype=D), scale).log_prob(turns).exp()
    total = (w * p * 16 * math.sqrt(2) * math.pi * (1 - t.cos())).sum()
    assert abs(float(total) - 1) <= 1e-6


def test_wrapped_normals_factor_over_products_and_poses():
    loc, x = (ib.SE(3).sample(4, generator=torch.Generator().manual_seed(k), dtype=D) for k in (0, 1))
    whole = WrappedNormal(ib.SE(3), loc, 0.8).log_prob(x)
    turned = WrappedNormal(ib.SO(3), loc[:, :3, :3], 0.8).log_prob(x[:, :3, :3])
    moved = torch.distributions.Normal(loc[:, :3, 3], 0.8).log_prob(x[:, :3, 3]).sum(-1)
    torch.testing.assert_close(whole, turned + moved)
    M = ib.Product(ib.SO(3), ib.Euclidean(3))
    parts = [M.join(p[:, :3, :3], p[:, :3, 3]) for p in (loc, x)]
    torch.testing.assert_close(WrappedNormal(M, parts[0], 0.8).log_prob(parts[1]), whole)


VOLUMES = {
    "circle": (ib.Sphere(2, radius=3.0), 6 * math.pi),
    "sphere": (ib.Sphere(3), 4 * math.pi),
    "SO(2)": (ib.SO(2), 2 * math.pi * math.sqrt(2)),
    "SO(3)": (ib.SO(3), 16 * math.sqrt(2) * math.pi**2),
    "O(3)": (ib.Stiefel(3, 3), 32 * math.sqrt(2) * math.pi**2),
    "one column": (ib.Stiefel(3, 1), 4 * math.pi),
    "disk": (ib.Ball(2, radius=2.0), 4 * math.pi),
    "triangle": (ib.Simplex(3), math.sqrt(3) / 2),
    "box": (ib.Box([0.0, 1.0], [2.0, 4.0]), 6.0),
    "cylinder": (ib.Product(ib.Sphere(2), ib.Box([0.0], [3.0])), 6 * math.pi),
}


@pytest.mark.parametrize("name", VOLUMES)
def test_uniform_densities_are_one_over_the_volume(name):
    M, volume = VOLUMES[name]
    p = UniformOn(M)
    x = p.sample((5,))
    assert p.support.check(x).all() and x.shape == (5, *M.shape)
    torch.testing.assert_close(p.log_prob(x), torch.full((5,), -math.log(volume)))
    torch.testing.assert_close(p.entropy(), torch.tensor(math.log(volume)))


def test_haar_volume_is_what_geodesic_balls_say():
    """The share of draws within a small distance of a point is the volume of a ball over that of the set."""
    torch.manual_seed(0)
    M, radius = ib.SO(3), 0.8  # the ball has volume 4 pi int_0^r (sin(s/(2 sqrt 2)) 2 sqrt 2)^2 ds
    s, w = grid(0, radius)
    ball = 4 * math.pi * (w * (8 * (s / math.sqrt(8)).sin().square())).sum()
    x = UniformOn(M).sample((100_000,))
    share = (M.geodesic_distance(torch.eye(3), x) < radius).double().mean()
    expected = ball * float(UniformOn(M).log_prob(torch.eye(3)).exp())
    assert (share - expected).abs() <= 5 * (expected / 100_000).sqrt()


# --- gradients of rsample against derivatives of expectations --------------------------------------------------------
def assert_unbiased(make, theta, statistic, exact, parts=40, draws=500):
    """The mean gradient of statistic(rsample) is the derivative of exact(theta), within five standard errors."""
    torch.manual_seed(0)
    each = torch.full((parts,), theta, dtype=D, requires_grad=True)
    (g,) = torch.autograd.grad(statistic(make(each).rsample((draws,))).mean(0).sum(), each)
    h = 1e-4
    expected = (exact(theta + h) - exact(theta - h)) / (2 * h)
    error = g.std() / math.sqrt(parts)
    assert (g.mean() - expected).abs() <= 5 * error + 1e-9, (float(g.mean()), float(expected), float(error))


@pytest.mark.parametrize("n, k", [(2, 3.0), (4, 1.0), (5, 10.0), (10, 100.0)])
def test_von_mises_fisher_samples_have_unbiased_gradients(n, k):
    """Of E cos^2 t, in the concentration; for the circle, too, whose angle has two sides."""

    def exact(k):
        t, w = grid(0, math.pi)
        p = torch.exp(k * (t.cos() - 1)) * t.sin() ** (n - 2)
        return float((w * p * t.cos() ** 2).sum() / (w * p).sum())

    assert_unbiased(lambda c: VonMisesFisher(axis(n), c), k, lambda x: x[..., 0].square(), exact)


def test_isotropic_rotations_have_unbiased_gradients():
    from inbounds.distributions.isotropic_so3 import log_heat

    def exact(scale):
        w, weight = grid(0, math.pi)
        p = log_heat(w, torch.full_like(w, scale**2 / 4)).exp() * (1 - w.cos())
        return float((weight * p * (1 + 2 * w.cos())).sum() / (weight * p).sum())

    for scale in (0.5, 1.5):
        eye = torch.eye(3, dtype=D)
        trace = exact(scale)
        assert abs(trace - 3 * math.exp(-(scale**2) / 2)) <= 1e-9  # the first character decays with l(l + 1)/4 = 1/2
        assert_unbiased(lambda s, e=eye: IsotropicSO3(e, s), scale, lambda x: x.diagonal(dim1=-2, dim2=-1).sum(-1), exact)


def test_locations_get_unbiased_gradients():
    """Turning loc by the angle a turns the mean: d E<e_2, x>/da = the length of the mean, for every distribution with a loc."""
    torch.manual_seed(0)
    a = torch.zeros(40, dtype=D, requires_grad=True)
    loc = torch.stack([a.cos(), a.sin(), 0 * a], -1)
    for p in (VonMisesFisher(loc, 4.0), WrappedNormal(ib.Sphere(3), loc, 0.5), ProjectedNormal(2 * loc)):
        x = p.rsample((500,)).mean(0)
        (g,) = torch.autograd.grad(x[:, 1].sum(), a, retain_graph=True)
        assert (g.mean() - x[:, 0].mean()).abs() <= 5 * (g.std() + x[:, 0].std()) / math.sqrt(40)


def test_moments():
    torch.manual_seed(0)
    k = point(0.5, 50.0)
    x = VonMisesFisher(axis(4), k).sample((20_000,))
    assert (x.mean(0) - VonMisesFisher(axis(4), k).mean).abs().max() <= 0.02
    M, sigma = ib.Hyperboloid(4), 0.7
    loc = M.sample(2, dtype=D)
    y = WrappedNormal(M, loc, sigma).sample((20_000,))
    d2 = M.geodesic_distance(loc.expand_as(y), y).square().mean(0)
    assert (d2 / (3 * sigma**2) - 1).abs().max() <= 0.05
    R = IsotropicSO3(torch.eye(3, dtype=D), 0.1).sample((20_000,))
    assert abs(float(ib.SO(3).geodesic_distance(torch.eye(3, dtype=D), R).square().mean()) / 0.03 - 1) <= 0.05


def test_divergences_are_expectations():
    """E_p (log p - log q) over draws, within five standard errors; gradients of the formula against finite differences."""
    torch.manual_seed(0)
    p, q = VonMisesFisher(axis(4), point(6.0)), VonMisesFisher(circle_of_latitude(4, point(1.0)), point(3.0))
    uniform, turned = UniformOn(ib.Sphere(4)), IsotropicSO3(torch.eye(3, dtype=D), point(0.9))
    haar = UniformOn(ib.SO(3))
    for a, b in ((p, q), (p, uniform), (uniform, p), (turned, haar), (haar, turned)):
        x = a.sample((20_000,))
        gap = a.log_prob(x) - b.log_prob(x)
        assert (gap.mean() - kl_divergence(a, b)).abs().max() <= 5 * gap.std() / math.sqrt(20_000)
    assert kl_divergence(p, p).abs().max() <= 1e-12 and kl_divergence(uniform, uniform).abs().max() == 0
    k = torch.tensor([0.5, 8.0], dtype=D, requires_grad=True)
    torch.autograd.gradcheck(lambda k: kl_divergence(VonMisesFisher(axis(5), k), UniformOn(ib.Sphere(5))).double(), k)
    torch.autograd.gradcheck(lambda s: kl_divergence(IsotropicSO3(torch.eye(3, dtype=D), s), UniformOn(ib.SO(3))), k)
    torch.autograd.gradcheck(lambda k: kl_divergence(UniformOn(ib.Sphere(5)), VonMisesFisher(axis(5), k)), k)
    torch.autograd.gradcheck(lambda s: kl_divergence(UniformOn(ib.SO(3)), IsotropicSO3(torch.eye(3, dtype=D), s)), k)
    for a, b in ((p, UniformOn(ib.Sphere(3))), (UniformOn(ib.Sphere(3)), p), (haar, VonMisesFisher(axis(3), 1.0))):
        with pytest.raises(NotImplementedError, match="same set"):
            kl_divergence(a, b)


# --- torch's conventions -------------------------------------------------------------------------------------------
def every(dtype=torch.float32):
    eye = torch.eye(3, dtype=dtype)
    yield VonMisesFisher(eye[:2], torch.tensor([1.0, 30.0], dtype=dtype))
    yield ProjectedNormal(3 * eye[:2])
    yield IsotropicSO3(eye.expand(2, 3, 3), torch.tensor([0.3, 2.0], dtype=dtype))
    for M in (ib.Sphere(3), ib.SO(3), ib.SE(3), ib.Hyperboloid(3), ib.Euclidean(2)):
        yield WrappedNormal(M, M.sample(2, dtype=dtype), 0.5)
    yield UniformOn(ib.Ball(2, radius=torch.tensor([1.0, 2.0], dtype=dtype)))


@pytest.mark.parametrize("p", list(every()), ids=lambda p: f"{type(p).__name__} on {p.M!r}")
def test_conventions(p, monkeypatch):
    """Shapes, support, expand, float32 in and out, log_prob differentiable in the value, no gradient through sample."""
    # Dynamo turns the checks of all distributions off when it first compiles something in a process
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    x = p.rsample((5,))
    assert x.shape == (5, 2, *p.event_shape) and x.dtype == torch.float32 and p.support.check(x).all()
    assert p.log_prob(x).shape == (5, 2) and torch.isfinite(p.log_prob(x)).all() and p.log_prob(x).dtype == torch.float32
    wide = p.expand((4, 2))
    assert wide.batch_shape == (4, 2) and type(wide) is type(p) and wide.sample().shape == (4, 2, *p.event_shape)
    torch.testing.assert_close(wide.log_prob(x[0]), p.log_prob(x[0]).expand(4, 2))
    assert not p.sample((3,)).requires_grad and repr(p).startswith(type(p).__name__)
    z = x.detach().clone().requires_grad_()
    if p.log_prob(z).requires_grad:
        (g,) = torch.autograd.grad(p.log_prob(z).sum(), z)
        assert torch.isfinite(g).all()
    if not isinstance(p, WrappedNormal) or not isinstance(p.M, ib.Euclidean):
        with pytest.raises(ValueError, match="support"):
            p.log_prob(3 * x.detach())


@pytest.mark.parametrize("make", [lambda k: VonMisesFisher(axis(5), k), lambda k: ProjectedNormal(k * axis(5))])
def test_densities_have_the_derivatives_of_finite_differences(make):
    x = ib.Sphere(5).sample(3, generator=torch.Generator().manual_seed(0), dtype=D)
    k = torch.tensor([0.1, 3.0, 40.0], dtype=D, requires_grad=True)
    torch.autograd.gradcheck(lambda k: make(k[:, None] if isinstance(make(k[0]), ProjectedNormal) else k).log_prob(x), k)


def test_a_second_derivative_of_a_sample_is_refused():
    k = torch.tensor(3.0, dtype=D, requires_grad=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(VonMisesFisher(axis(3), k).rsample()[0], k, create_graph=True)


def test_wrong_use_names_the_fix():
    for call, error, words in (
        (lambda: VonMisesFisher(2 * axis(3), 1.0), ValueError, r"loc in Sphere\(3\), got violation 1\.0e\+00\. Write loc="),
        (lambda: VonMisesFisher(axis(3), -1.0), ValueError, "concentration >= 0"),
        (lambda: IsotropicSO3(torch.eye(3), 0.0), ValueError, "scale > 0, got 0"),
        (lambda: WrappedNormal(ib.Stiefel(4, 2), ib.Stiefel(4, 2).sample(), 1.0), TypeError, r"got Stiefel\(4, 2\)"),
        (lambda: WrappedNormal(ib.SO(4), torch.eye(4), 1.0), TypeError, r"got SO\(4\)"),
        (lambda: UniformOn(ib.Euclidean(2)), TypeError, r"got Euclidean\(2\)"),
        (lambda: UniformOn(ib.Box([0.0], [math.inf])), TypeError, "finite bounds"),
    ):
        with pytest.raises(error, match=words):
            call()


def test_the_uniform_density_of_a_simplex_knows_its_total():
    """Shares of 2 are a triangle with sides 2 sqrt 2."""
    M = ib.Simplex(3, total=2.0)
    x = M.sample(4, dtype=torch.float64)
    torch.testing.assert_close(UniformOn(M).log_prob(x), torch.full((4,), -math.log(2 * math.sqrt(3)), dtype=torch.float64))


def test_sets_that_differ_in_numbers_their_names_leave_out_are_not_the_same():
    low, high = torch.zeros(20), torch.ones(20)
    other = high.clone()
    other[10] = 2.0
    with pytest.raises(NotImplementedError, match="same set"):
        kl_divergence(UniformOn(ib.Box(low, high)), UniformOn(ib.Box(low, other)))
    assert kl_divergence(UniformOn(ib.Box(low, high)), UniformOn(ib.Box(low, high))) == 0


def test_a_normal_that_wraps_too_often_is_refused():
    x = ib.Sphere(3).sample(2)
    with pytest.raises(ValueError, match=r"at most 100 times.*UniformOn"):
        WrappedNormal(ib.Sphere(3), x, 1e4).log_prob(x)
