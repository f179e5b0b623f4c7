"""Kernels against naive twins, and their derivatives in every mode."""

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from inbounds.kernels.polar import polar, proper_polar
from inbounds.kernels.rotation import nearest_rotation
from inbounds.kernels.se3 import se3_exp, se3_log
from inbounds.kernels.simplex import simplex
from inbounds.kernels.so3 import so3_exp, so3_log
from inbounds.kernels.spectral import density, positive_part, spectral_level, sym
from inbounds.kernels.stumpff import stumpff
from inbounds.kernels.sylvester import sylvester
from inbounds.kernels.vectors import pulled_in

F64 = torch.float64


def randn(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# --- naive twins ---------------------------------------------------------------------------------------------


def naive_rotation(A):
    """U diag(1, .., 1, det UV^T) V^T and the signed singular values, by SVD."""
    U, s, Vh = torch.linalg.svd(A)
    d = torch.det(U @ Vh)
    one = torch.ones_like(s)
    one[..., -1] = d
    return (U * one[..., None, :]) @ Vh, s * one


def naive_hat(w):
    x, y, z = w.unbind(-1)
    o = torch.zeros_like(x)
    return torch.stack([o, -z, y, z, o, -x, -y, x, o], -1).unflatten(-1, (3, 3))


def naive_simplex(x):
    """Bisection on the shift."""
    low, high = x.amin(-1, keepdim=True) - 1, x.amax(-1, keepdim=True)
    for _ in range(200):
        mid = (low + high) / 2
        above = (x - mid).clamp(min=0).sum(-1, keepdim=True) > 1
        low, high = torch.where(above, mid, low), torch.where(above, high, mid)
    return (x - low).clamp(min=0)


def naive_positive(x):
    l, q = torch.linalg.eigh(x)
    return (q * l.clamp(min=0)[..., None, :]) @ q.mT


# --- values --------------------------------------------------------------------------------------------------

rotations = naive_rotation(randn(20_000, 3, 3, seed=5))[0]
others = naive_rotation(randn(20_000, 3, 3, seed=6))[0]


def of_spectrum(*s):
    return rotations @ torch.diag(torch.tensor(s, dtype=F64)) @ others


MATRICES = {
    "Gaussian": randn(20_000, 3, 3),
    "rotations": rotations,
    "near rotations": rotations + 0.1 * randn(20_000, 3, 3),
    "rank one": of_spectrum(1, 0, 0),
    "rank one, noise": of_spectrum(1, 0, 0) + 1e-3 * randn(20_000, 3, 3),
    "rank two": of_spectrum(1, 0.5, 0),
    "reflections": -rotations,
    "reflections, noise": -rotations + 1e-2 * randn(20_000, 3, 3),
    "reflections, little noise": -rotations + 1e-5 * randn(20_000, 3, 3),
    "small gap, det < 0": of_spectrum(1, 0.5, -0.499),
    "tiny gap, det < 0": of_spectrum(1, 0.5, -0.5 + 1e-6),
    "diagonals": torch.stack(
        [torch.diag(torch.tensor([a, b, c], dtype=F64)) for a in (-1, 0, 2) for b in (-1, 0, 1) for c in (-1, 0.5)]
    ),
}


@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e20])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("name", MATRICES)
def test_nearest_rotation(name, dtype, scale):
    """Suboptimality at rounding, 1e-5 |x| where the margin is small; error at rounding / relative margin."""
    A = (scale * MATRICES[name]).to(dtype)
    R = nearest_rotation(A).double()
    best, s = naive_rotation(A.double())
    size = s[:, 0].clamp(min=1e-300)
    gap = (s[:, 1] + s[:, 2]) / size
    eps = torch.finfo(dtype).eps
    loss = ((best - R) * A.double()).sum((-2, -1)) / size
    assert (R @ R.mT - torch.eye(3)).abs().max() <= 16 * eps
    clear = gap > 1e-2
    assert (loss <= 1e-5).all() and (loss[clear] <= 64 * eps).all()
    error = (R - best).abs().amax((-2, -1))
    assert (error * gap)[clear].le(128 * eps).all()


def test_exponentials_are_matrix_exponentials():
    for scale in (0.0, 1e-9, 1e-4, 1.0, 3.0, 40.0):
        c = scale * randn(200, 6)
        top = torch.cat([naive_hat(c[:, :3]), c[:, 3:, None]], -1)
        algebra = torch.cat([top, torch.zeros(200, 1, 4, dtype=F64)], -2)
        torch.testing.assert_close(so3_exp(c[:, :3]), torch.matrix_exp(naive_hat(c[:, :3])), atol=1e-12, rtol=0)
        torch.testing.assert_close(se3_exp(c), torch.matrix_exp(algebra), atol=1e-11, rtol=1e-11)
        single = se3_exp(c.float()).double()
        assert (single - se3_exp(c.float().double())).abs().max() <= 2e-6 * max(1, scale)


def test_logarithms_invert_up_to_pi():
    axis = torch.nn.functional.normalize(randn(500, 3), dim=-1)
    for angle in (0.0, 1e-12, 1e-7, 1e-3, 1.0, 3.0, math.pi - 1e-3, math.pi - 1e-7):
        w = angle * axis
        torch.testing.assert_close(so3_log(so3_exp(w)), w, atol=1e-8, rtol=0)
        c = torch.cat([w, randn(500, 3, seed=1)], -1)
        torch.testing.assert_close(se3_log(se3_exp(c)), c, atol=1e-7, rtol=0)
    turned = so3_exp(math.pi * axis)
    torch.testing.assert_close(so3_exp(so3_log(turned)), turned, atol=1e-12, rtol=0)


def test_simplex_against_bisection():
    x = torch.cat([randn(500, 7), 10 * randn(500, 7), 1e-3 * randn(500, 7)])
    torch.testing.assert_close(simplex(x), naive_simplex(x), atol=1e-12, rtol=0)
    assert torch.equal(simplex(torch.tensor([1e20, 0.0, -1e20])), torch.tensor([1.0, 0.0, 0.0]))


def test_spectral_maps_against_eigh():
    x = sym(randn(300, 4, 4))
    torch.testing.assert_close(positive_part(x), naive_positive(x), atol=1e-13, rtol=0)
    l, q = torch.linalg.eigh(x)
    torch.testing.assert_close(density(x), (q * naive_simplex(l)[..., None, :]) @ q.mT, atol=1e-13, rtol=0)


def test_polar_factor_against_svd():
    A, B = randn(200, 5, 3), randn(200, 6, 6)
    U, _, Vh = torch.linalg.svd(A, full_matrices=False)
    torch.testing.assert_close(polar(A), U @ Vh, atol=1e-12, rtol=0)
    torch.testing.assert_close(proper_polar(B), naive_rotation(B)[0], atol=1e-11, rtol=0)


def test_sylvester_solves_its_equation():
    h, c = randn(50, 4, 4), randn(50, 4, 4)
    h = h @ h.mT
    y = sylvester(h, c)
    torch.testing.assert_close(h @ y + y @ h, c, atol=1e-9, rtol=0)


def test_stumpff_functions():
    """Recurrence c_k = 1/k! - s c_{k+2}, and the slope at 0."""
    s = torch.tensor([0.0, 1e-12, 1e-3, 1.0, 3.99, 4.01, 9.0, 30.0], dtype=F64, requires_grad=True)
    c = stumpff(s, 6)
    torch.testing.assert_close(c[0], torch.cos(s.sqrt()))
    for k in range(5):
        torch.testing.assert_close(c[k], 1 / math.factorial(k) - s * c[k + 2], atol=1e-14, rtol=1e-12)
        (slope,) = torch.autograd.grad(c[k].sum(), s, retain_graph=True)
        torch.testing.assert_close(slope, 0.5 * (k * c[k + 2] - c[k + 1]), atol=1e-13, rtol=1e-9)


# --- derivatives ---------------------------------------------------------------------------------------------


def on_so3(f):
    return lambda a: f(nearest_rotation(a))


def on_se3(x):
    R = nearest_rotation(x[..., :3])
    last = torch.tensor([0, 0, 0, 1.0], dtype=x.dtype).expand(*x.shape[:-2], 1, 4)
    return se3_log(torch.cat([torch.cat([R, x[..., 3:]], -1), last], -2))


DERIVATIVES = {
    "nearest rotation": (nearest_rotation, randn(2, 3, 3)),
    "nearest rotation at I": (nearest_rotation, torch.eye(3, dtype=F64)[None].clone()),
    "nearest rotation, det < 0": (nearest_rotation, torch.diag(torch.tensor([2.0, 1.0, -0.5], dtype=F64))[None].clone()),
    "nearest rotation, rank two": (nearest_rotation, torch.diag(torch.tensor([2.0, 1.0, 0.0], dtype=F64))[None].clone()),
    "so3 exp": (so3_exp, randn(3, 3)),
    "so3 exp at 0": (so3_exp, torch.zeros(1, 3, dtype=F64)),
    "so3 exp, large": (so3_exp, 3 * randn(3, 3)),
    "so3 log": (on_so3(so3_log), randn(2, 3, 3)),
    "so3 log at I": (on_so3(so3_log), torch.eye(3, dtype=F64)[None].clone()),
    "se3 exp": (se3_exp, randn(2, 6)),
    "se3 exp at 0": (se3_exp, torch.zeros(1, 6, dtype=F64)),
    "se3 log": (on_se3, randn(2, 3, 4)),
    "se3 log at I": (on_se3, torch.eye(3, 4, dtype=F64)[None].clone()),
    "polar 5x3": (polar, randn(2, 5, 3)),
    "polar at orthonormal": (polar, torch.eye(4, 2, dtype=F64)[None].clone()),
    "proper polar 4x4": (proper_polar, randn(2, 4, 4)),
    "proper polar at I": (proper_polar, torch.eye(4, dtype=F64)[None].clone()),
    "simplex": (simplex, randn(3, 5)),
    "positive part": (lambda x: positive_part(sym(x)), randn(2, 4, 4)),
    "positive part, repeated eigenvalues": (
        lambda x: positive_part(sym(x)),
        torch.diag(torch.tensor([1.0, 1, -1, -1], dtype=F64))[None].clone(),
    ),
    "density": (lambda x: density(sym(x)), randn(2, 4, 4)),
    "spectral level": (lambda x: spectral_level(sym(x)), randn(2, 4, 4)),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives(name):
    """Backward, forward mode and double backward against finite differences, also at repeated singular values."""
    f, x = DERIVATIVES[name]
    x = x.clone().requires_grad_()
    assert gradcheck(f, (x,), check_forward_ad=True)
    assert gradgradcheck(f, (x,), atol=1e-4)


@pytest.mark.parametrize("name", [n for n in DERIVATIVES if n != "spectral level"])
def test_jacobians_agree(name):
    """jacrev and jacfwd, which vmap over the custom derivatives."""
    f, x = DERIVATIVES[name]
    a, b = torch.func.jacrev(f)(x[0]), torch.func.jacfwd(f)(x[0])
    torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


def test_undetermined_directions_have_zero_derivative():
    """At rank one the nearest rotation may turn freely about one axis: DP is zero there and right in the others."""
    x = torch.diag(torch.tensor([2.0, 0.0, 0.0], dtype=F64))
    J = torch.func.jacrev(nearest_rotation)(x).reshape(9, 9)
    torch.testing.assert_close(J, J.mT)
    torch.testing.assert_close(torch.linalg.eigvalsh(J), torch.tensor([0.0] * 7 + [1.0, 1.0], dtype=F64), atol=1e-12, rtol=0)
    J = torch.func.jacrev(nearest_rotation)(torch.zeros(3, 3, dtype=F64))
    assert torch.equal(J, torch.zeros_like(J))


def test_gradient_does_not_fade_near_the_set():
    """float32 gradient of P(R + delta N): raw SVD gives NaN at 0 and noise below 1e-5; ours is right at every delta."""
    R, N, G = (t.float() for t in (rotations[:2000], randn(2000, 3, 3, seed=1), randn(2000, 3, 3, seed=2)))
    for delta in (0.0, 1e-7, 1e-5, 1e-3, 1e-1):
        x = (R + delta * N).requires_grad_()
        (g,) = torch.autograd.grad(nearest_rotation(x), x, G)
        x64 = x.detach().double().requires_grad_()
        (exact,) = torch.autograd.grad(nearest_rotation(x64), x64, G.double())
        assert ((g - exact).flatten(1).norm(dim=-1) / exact.flatten(1).norm(dim=-1)).max() < 1e-4


@pytest.mark.parametrize("center", [0.0, 0.5])
def test_far_points_are_pulled_in_along_their_ray(center):
    """Near points stay, far ones end at the limit in their own direction, from as far as numbers go; derivatives are those."""
    g = torch.Generator().manual_seed(0)
    u = torch.nn.functional.normalize(torch.randn(8, 3, generator=g, dtype=torch.float64), dim=-1)
    near, far = center + 1.9 * u, center + torch.logspace(0.5, 308, 8, dtype=torch.float64)[:, None] * u / u.abs().amax()
    assert pulled_in(near, 2.0, center) is near
    assert torch.equal(pulled_in(torch.cat([near, far]), 2.0, center)[:8], near)
    assert (pulled_in(far, 2.0, center) - (center + 2 * u)).abs().max() < 1e-12
    largest = torch.full((1, 3), torch.finfo(torch.float64).max, dtype=torch.float64)  # its length is not a number
    assert (pulled_in(largest, 2.0) - 2 / 3**0.5).abs().max() < 1e-12
    x = torch.cat([near, center + 7 * u]).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: pulled_in(x, 2.0, center), x)
