"""Alpha shapes: the inside against a triangulation, the projection against a dense boundary, all laws, and the choice."""

import math
import warnings

import pytest
import torch

import inbounds as ib
from inbounds.learned.alpha import AlphaShape, boundary, filled, most_held


def uniform(*shape, seed=0):
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def ell(n, seed=0):
    """Uniform in the square of side 2 without its upper right quarter."""
    x = 2 * uniform(2 * n, 2, seed=seed)
    return x[(x < 1).any(1)][:n]


def on_ell(y):
    """The nearest point of the L: of its two rectangles'."""
    flat = torch.stack([y[:, 0].clamp(0, 2), y[:, 1].clamp(0, 1)], 1)
    tall = torch.stack([y[:, 0].clamp(0, 1), y[:, 1].clamp(0, 2)], 1)
    nearer = (flat - y).square().sum(1) <= (tall - y).square().sum(1)
    return torch.where(nearer[:, None], flat, tall)


def bitten(n, d=3, seed=0):
    """A ball of radius 1 without the ball of radius 0.6 around (1, 0, 0)."""
    x = 2 * uniform(6 * n, d, seed=seed) - 1
    bite = torch.eye(d, dtype=x.dtype)[0]
    return x[(x.square().sum(1) < 1) & ((x - bite).square().sum(1) > 0.36)][:n]


SHAPES = {"plane": ell(400), "space": bitten(500)}


def inside_some_simplex(x, z):
    """By the barycentric coordinates of the simplices that the shape is made of."""
    T = x[filled(x)]
    lam = torch.linalg.solve((T[:, 1:] - T[:, :1]).mT, (z[:, None] - T[None, :, 0])[..., None])[..., 0]
    return ((lam >= 0).all(-1) & (lam.sum(-1) <= 1)).any(1)


# --- the projection ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", SHAPES)
def test_inside_is_inside_a_simplex(name):
    x = SHAPES[name]
    M, z = AlphaShape.fit(x), x.mean(0) + 3 * (uniform(500, x.shape[1], seed=1) - 0.5)
    assert torch.equal(~M.outside(z), inside_some_simplex(x, z))
    assert 0.1 < float(M.outside(z).double().mean()) < 0.9


@pytest.mark.parametrize("name", SHAPES)
def test_the_projection_is_the_nearest_point(name):
    """No point of the facets, drawn densely, is nearer than the foot, which lies in the set."""
    x = SHAPES[name]
    M, z = AlphaShape.fit(x), x.mean(0) + 3 * (uniform(60, x.shape[1], seed=2) - 0.5)
    w = torch.distributions.Dirichlet(torch.ones(x.shape[1], dtype=torch.float64)).sample((40,))
    dense = (w @ M.facets).flatten(0, 1)
    out = M.outside(z)
    away = (M.project(z) - z).norm(dim=1)
    assert torch.equal(M.project(z)[~out], z[~out]) and bool((away[out] <= torch.cdist(z[out], dense).amin(1) + 1e-12).all())
    assert float(M.violation(M.project(z)).max()) < 1e-12


@pytest.mark.parametrize("name", SHAPES)
def test_laws_of_every_set(name):
    ib.check_set(AlphaShape.fit(SHAPES[name]))


@pytest.mark.parametrize("name", SHAPES)
def test_derivatives_and_transforms(name):
    M, y = AlphaShape.fit(SHAPES[name]), 2 * uniform(8, SHAPES[name].shape[1], seed=3)
    assert torch.autograd.gradcheck(M.project, y.requires_grad_())
    y = y.detach()
    torch.testing.assert_close(torch.func.vmap(M.project)(y), M.project(y), rtol=0, atol=1e-14)


def test_finite_for_every_finite_point():
    M, y = AlphaShape.fit(SHAPES["plane"]), uniform(20, 2) - 0.5
    assert torch.isfinite(M(1e308 * y)).all() and (M.distance(1e8 * y) > 1e6).all()


def test_the_boundary_of_two_triangles_is_a_square():
    x = torch.tensor([[0.0, 0], [1, 0], [1, 1], [0, 1]], dtype=torch.float64)
    facets, normals = boundary(x, torch.tensor([[0, 1, 2], [0, 2, 3]]))
    assert len(facets) == 4 and sorted(map(tuple, normals.abs().tolist())) == [(0.0, 1.0)] * 2 + [(1.0, 0.0)] * 2
    M, y = AlphaShape(facets, normals, x), 3 * uniform(50, 2) - 1
    torch.testing.assert_close(M.project(y), y.clamp(0, 1))


@pytest.mark.parametrize("name", SHAPES)
def test_the_wider_region_is_all_that_is_near_and_its_projection_is_the_nearest_point(name):
    x = SHAPES[name]
    R, M = AlphaShape.fit(x), AlphaShape.fit(x).widened(len(x))
    z = x.mean(0) + 3 * (uniform(200, x.shape[1], seed=2) - 0.5)
    assert 0.01 < M.margin < 0.2
    torch.testing.assert_close(M.distance(z), (R.distance(z) - M.margin).clamp(min=0), rtol=0, atol=1e-12)
    assert torch.equal(M.leaves(z), R.distance(z) <= M.margin) and bool(M.leaves(M.project(z)).all())


@pytest.mark.nightly
@pytest.mark.parametrize("name", SHAPES)
def test_laws_of_every_set_hold_for_wider_regions(name):
    ib.check_set(AlphaShape.fit(SHAPES[name]).widened(len(SHAPES[name])))


# --- what is learned -----------------------------------------------------------------------------------------
def test_balls_are_as_empty_as_chance_leaves_them():
    """Gamma(d): in the plane P(t) = e^-t (1 + t). Of uniform samples few simplices inside are dropped, at the stated level."""
    t = most_held(2, 1000)
    assert abs(1000 * math.exp(-t) * (1 + t) - 0.05) < 1e-9
    middle = 0.6 * uniform(4000, 2, seed=8) + 0.2
    lost = [float(AlphaShape.fit(uniform(1000, 2, seed=s)).outside(middle).double().mean()) for s in range(10)]
    assert sum(share > 0 for share in lost) <= 3


def test_new_samples_lie_outside_as_often_as_samples_are_corners():
    """Efron: the share that a region leaves out is that of its corners; the margin brings back most of it."""
    new = uniform(20_000, 2, seed=9)
    R = [AlphaShape.fit(uniform(500, 2, seed=s)) for s in range(8)]
    corners = sum(len(M.facets.flatten(0, 1).unique(dim=0)) for M in R) / (8 * 500)
    outside = sum(float(M.outside(new).double().mean()) for M in R) / 8
    wider = sum(float((~M.widened(500).leaves(new)).double().mean()) for M in R) / 8
    assert abs(corners / outside - 1) < 0.3 and wider < 0.6 * outside


def test_a_straight_side_is_straight_and_a_bay_stays_open():
    """What large balls add is taken where it holds no room: at the sides of the L, and not in its bay."""
    M, a = AlphaShape.fit(ell(2000)), 2 * uniform(500, seed=7)
    side = torch.stack([a, torch.full_like(a, 0.01)], 1)
    bay = 1.15 + 0.85 * uniform(500, 2, seed=8)
    assert float(M.outside(side).double().mean()) < 0.1 and bool(M.outside(bay).all())


def test_the_error_falls_with_the_number_of_samples():
    y = 3 * uniform(1000, 2, seed=5) - 0.5
    errors = [float((AlphaShape.fit(ell(n)).project(y) - on_ell(y)).square().sum(1).mean()) for n in (200, 1600, 12_800)]
    assert errors[1] < errors[0] / 2.5 and errors[2] < errors[1] / 2.5


def test_a_fit_finds_the_bay_of_an_ell():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ib.FitWarning)
        M = ib.fit(ell(1000))
    assert not any("hole or a bay" in str(w.message) for w in said)
    y = ell(500, seed=5) + 0.3 * (uniform(500, 2, seed=6) - 0.5)
    error = (M.project(y) - on_ell(y)).square().sum(1).mean()
    assert M.info["method"] == "alpha" and M.exact is False and M.info["dimension"] == 2
    nearest = ell(1000)[torch.cdist(y, ell(1000)).argmin(1)]
    assert float(error) < 0.5 * float((nearest - on_ell(y)).square().sum(1).mean())


def test_simple_regions_stay_simple():
    disk = ib.Ball(2).sample(800, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert ib.fit(disk).info["title"] == "inequality of degree 2"
    assert ib.fit(uniform(800, 2)).info["title"] == "convex hull"


def test_by_name_to_disk_and_back(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ib.FitWarning)
        M = ib.fit(ell(300), "alpha")
    y = 3 * uniform(50, 2, seed=5) - 0.5
    M.save(tmp_path / "set.safetensors")
    again = ib.load(tmp_path / "set.safetensors")
    assert torch.equal(again.project(y), M.project(y)) and again.method == "alpha"
    assert torch.equal(M.float().project(y.float()), M.project(y.float()))


def test_in_more_dimensions_it_says_what_to_do():
    with pytest.raises(ValueError, match="Reduce the dimension"):
        ib.fit(uniform(200, 5), "alpha")
