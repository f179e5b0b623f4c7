"""Convex hulls: against non-negative least squares and a QP, the laws of all sets, derivatives on faces, edges, corners."""

import math
import sys

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, nnls
from scipy.spatial import Delaunay

import inbounds as ib
from inbounds.learned.base import read
from inbounds.learned.facets import foot
from inbounds.learned.hull import Hull
from inbounds.learned.within import Within


def points(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def cube(d):
    """Corners and other points of [-1, 1]^d; its faces are cut into triangles that lie in one plane."""
    grid = torch.tensor([-1.0, -0.3, 1.0], dtype=torch.float64)
    return torch.cartesian_prod(*[grid] * d)


CASES = {
    "plane": points(30, 2),
    "triangle": points(3, 2),
    "space": points(40, 3),
    "tetrahedron": points(4, 3),
    "square": cube(2),
    "cube": cube(3),
    "needle": points(50, 3) * torch.tensor([1.0, 1e-4, 1e-4], dtype=torch.float64) + 3.0,
}


def in_hull(p, x):
    """How far p is from a convex combination of the samples x, by non-negative least squares."""
    A = np.vstack([x.T, np.ones(len(x))])
    return nnls(A, np.append(p, 1.0))[1]


def program(V, y):
    """argmin |w V - y|^2 over weights w of the simplex, times V."""
    one = {"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like}
    cost, slope = lambda w: 0.5 * np.sum((w @ V - y) ** 2), lambda w: V @ (w @ V - y)
    start, options = np.full(len(V), 1 / len(V)), {"ftol": 1e-13, "maxiter": 300}
    return minimize(cost, start, jac=slope, bounds=[(0, 1)] * len(V), constraints=one, options=options).x @ V


# --- the projection ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", CASES)
def test_the_projection_has_its_certificate(name):
    """P is nearest iff P is a convex combination of the samples and <y - P, x - P> <= 0 for all of them."""
    x = CASES[name]
    y = x.mean(0) + x.std(0) * 3 * points(40, x.shape[1], seed=1)
    p = Hull.fit(x).project(y)
    size = float(x.abs().max())
    assert max(in_hull(q.numpy(), x.numpy()) for q in p) <= 1e-12 * size
    products = ((y - p)[:, None] * (x - p[:, None])).sum(-1)
    assert float(products.max()) <= 1e-12 * size * float(y.abs().max())


@pytest.mark.parametrize("name", ["plane", "space"])
def test_the_projection_solves_the_quadratic_program(name):
    x = CASES[name]
    H = Hull.fit(x)
    for y in 2 * points(4, x.shape[1], seed=2):
        torch.testing.assert_close(H.project(y), torch.from_numpy(program(x.numpy(), y.numpy())), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_points_inside_stay(name):
    x = CASES[name]
    H, w = Hull.fit(x), torch.distributions.Dirichlet(torch.ones(len(x), dtype=torch.float64)).sample((50,))
    assert torch.equal(H.project(w @ x), w @ x)
    assert torch.equal(H.project(x), x)
    assert H.converged(5 * x).all() and (H.violation(x) == 0).all()
    p = H.project(x.mean(0) + 5 * (x - x.mean(0)))
    assert torch.equal(H.project(p), p)


@pytest.mark.parametrize("name", CASES)
def test_laws_of_every_set(name):
    ib.check_set(Hull.fit(CASES[name]))


def test_disk_and_ball():
    for d, most in ((2, 1e-3), (3, 1e-2)):
        H = Hull.fit(ib.Ball(d).sample(2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
        y = 1.5 * points(300, d)
        assert float((H.project(y) - ib.Ball(d).project(y)).square().mean()) < most
        assert (ib.Ball(d).violation(H.project(y)) == 0).all() and H.reach == math.inf
        far = H.project(1e18 * y)
        support = (y @ H.facets.reshape(-1, d).mT).amax(1)
        torch.testing.assert_close((far * y).sum(1), support, rtol=0, atol=1e-7)


def test_chunks_do_not_matter(monkeypatch):
    H, y = Hull.fit(CASES["space"]), 3 * points(50, 3)
    whole = H.project(y)
    monkeypatch.setattr(Hull, "ROWS", 7)
    monkeypatch.setattr(Hull, "FACETS", 5)
    torch.testing.assert_close(H.project(y), whole, rtol=0, atol=1e-14)
    assert H.project(y[:0]).shape == (0, 3)


def test_finite_for_every_finite_point():
    for d in (2, 3):
        H, y = Hull.fit(CASES["plane" if d == 2 else "space"]), points(40, d)
        y = y / y.abs().amax(1, keepdim=True)
        far = H(torch.finfo(y.dtype).max * y)
        torch.testing.assert_close((far * y).sum(1), (y @ H.facets.reshape(-1, d).mT).amax(1), rtol=0, atol=1e-7)
        assert torch.isfinite(H(1.7e308 * torch.ones(1, d, dtype=torch.float64))).all()


# --- samples -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", CASES)
def test_samples_are_uniform(name):
    """The mean and the covariance are those of the hull, from its simplices: E x = sum v m, E x x^T by the same."""
    x, n = CASES[name], 20_000
    H = Hull.fit(x)
    s = H.sample(n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert (H.violation(s) == 0).all()
    V = torch.from_numpy(Delaunay(x.numpy()).simplices).long()
    T = x[V]  # (simplices, d + 1, d)
    v = torch.linalg.det(T[:, 1:] - T[:, :1]).abs()
    v, mid, d = v / v.sum(), T.mean(1), x.shape[1]
    mean = v @ mid
    second = ((T.mT @ T) + (d + 1) ** 2 * mid[:, :, None] * mid[:, None]) / ((d + 1) * (d + 2))
    cov = (v[:, None, None] * second).sum(0) - mean[:, None] * mean
    whiten = torch.linalg.inv(torch.linalg.cholesky(cov))
    w = (s - mean) @ whiten.mT
    torch.testing.assert_close(w.mean(0), torch.zeros(d, dtype=w.dtype), rtol=0, atol=5 / math.sqrt(n))
    torch.testing.assert_close(w.mT @ w / n, torch.eye(d, dtype=w.dtype), rtol=0, atol=10 / math.sqrt(n))


def test_samples_of_a_fitted_square_are_dense():
    """fit places its hulls in subspaces."""
    x = torch.rand(1000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    M = Within(Hull.fit(2 * x - 1), (2,), torch.full((2,), 0.5).double(), torch.eye(2).double(), 0.5)
    s = M.sample(2000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    grid = torch.cartesian_prod(*[torch.linspace(0.05, 0.95, 10, dtype=torch.float64)] * 2)
    assert float(torch.cdist(grid, s).amin(1).max()) < 0.05
    cells = torch.histogramdd(s, [5, 5], range=[0.0, 1, 0, 1]).hist
    assert 45 < float(cells.min()) and float(cells.max()) < 125
    assert M.violation(s).max() < 1e-14


def test_sampling_takes_the_generator_the_dtype_and_the_batch():
    H = Hull.fit(CASES["space"])
    a, b = (H.sample(2, 5, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(a, b) and a.shape == (2, 5, 3) and a.dtype == torch.float32
    assert H.sample().shape == (3,) and H.sample(0).shape == (0, 3)


# --- derivatives ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["plane", "space", "cube"])
def test_gradients(name):
    H, y = Hull.fit(CASES[name]), 2 * points(12, CASES[name].shape[1], seed=3)
    assert torch.autograd.gradcheck(H.project, y.requires_grad_())
    assert torch.autograd.gradgradcheck(H.project, y[:3].detach().requires_grad_())


def test_the_derivative_is_the_projection_on_the_face_the_edge_or_the_corner():
    H = Hull.fit(cube(3))
    y = torch.tensor([[0.2, 0.5, 0.1], [2, 0.1, 0.3], [2, 3, 0.3], [2, 3, -4]], dtype=torch.float64)
    J = torch.stack([torch.autograd.functional.jacobian(H.project, row) for row in y])
    want = torch.diag_embed(torch.tensor([[1.0, 1, 1], [0, 1, 1], [0, 0, 1], [0, 0, 0]], dtype=torch.float64))
    torch.testing.assert_close(J, want, rtol=0, atol=1e-14)
    assert [round(float(t)) for t in torch.linalg.matrix_rank(J)] == [3, 2, 1, 0]


def test_the_tangent_cone_of_a_cube():
    """Signs that point out of the cube are cut off."""
    H, v = Hull.fit(cube(3)), points(20, 3)
    for corner in ([1.0, 1, 1], [1, -0.3, 0.2], [1, -1, 0.5], [0, 0, 0]):
        x = torch.tensor(corner, dtype=torch.float64)
        out = (x.abs() == 1) & (x * v > 0)
        torch.testing.assert_close(H.tangent(x.expand(20, 3), v), torch.where(out, 0.0, v), rtol=0, atol=1e-10)


def test_transforms():
    H, y = Hull.fit(CASES["space"]), 2 * points(10, 3)
    torch.testing.assert_close(torch.func.vmap(H.project)(y), H.project(y), rtol=0, atol=1e-14)
    J = torch.func.vmap(torch.func.jacrev(H.project))(y)
    rows = torch.stack([torch.autograd.functional.jacobian(H.project, row) for row in y])
    torch.testing.assert_close(J, rows, rtol=0, atol=1e-14)
    torch.testing.assert_close(torch.func.vmap(torch.func.jacfwd(H.project))(y), rows, rtol=0, atol=1e-14)


def test_triangles_without_area_have_finite_feet():
    corners = torch.tensor([[0.0, 0, 0], [1, 0, 0], [1, 0, 0]], dtype=torch.float64)
    y = points(5, 3).requires_grad_()
    p = foot(y, corners, torch.tensor([0.0, 0, 1], dtype=torch.float64))
    assert torch.isfinite(torch.autograd.grad(p.sum(), y)[0]).all()
    torch.testing.assert_close(p[:, 0], y[:, 0].clamp(0, 1))


# --- to disk and back, dtypes, errors --------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["plane", "space"])
def test_round_trip(name, tmp_path):
    H, y = Hull.fit(CASES[name]), 2 * points(9, CASES[name].shape[1])
    H.info = {"text": "a hull"}
    H.save(tmp_path / "hull.safetensors")
    header, tensors = read(tmp_path / "hull.safetensors")
    again = Hull.from_parts(tensors, header["spec"])
    assert torch.equal(again.project(y), H.project(y)) and header["class"] == "Hull" and header["info"] == H.info
    assert repr(again) == repr(H) == f"Hull({y.shape[1]}, facets={len(H.facets)})"


def test_dtypes():
    H, y = Hull.fit(CASES["space"].float()), 2 * points(9, 3)
    assert H.project(y.float()).dtype == torch.float32
    torch.testing.assert_close(H.project(y.float()).double(), H.project(y), rtol=0, atol=1e-6)
    assert H.bfloat16().facets.dtype == torch.float64


@pytest.mark.parametrize(
    ("samples", "kind", "message"),
    [
        (points(10, 4), ValueError, r"\(N, 2\) or \(N, 3\), got \(10, 4\)\. Reduce the dimension"),
        (points(10), ValueError, r"got \(10,\)"),
        (points(0, 2), ValueError, r"3 or more points that span R\^2, got 0 that span 0 of 2"),
        (points(3, 3), ValueError, r"4 or more points that span R\^3, got 3 that span 2 of 3.*Hull\.fit\(x @ basis\)"),
        (points(10, 1).expand(10, 2), ValueError, r"span 1 of 2.*ib\.Box"),
        (torch.ones(10, 2), ValueError, "one point"),
        (points(30, 2) @ points(2, 3) + 100, ValueError, r"span 2 of 3"),
        (torch.full((5, 2), math.nan), ValueError, r"5 of 5 rows hold NaN or inf"),
        (torch.ones(5, 2, dtype=torch.int64), TypeError, r"floating point tensor, got torch.int64"),
        ([[0.0, 1.0]], TypeError, "got list"),
    ],
)
def test_errors_say_what_to_do(samples, kind, message):
    with pytest.raises(kind, match=message):
        Hull.fit(samples)


def test_parts_that_do_not_fit_together():
    with pytest.raises(ValueError, match=r"facets \(F, d, d\).*Write Hull\.fit\(samples\)"):
        Hull(points(5, 3, 3), points(4, 3), points(5))


def test_without_scipy(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.spatial", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'inbounds\[lab\]'"):
        Hull.fit(points(10, 2))
