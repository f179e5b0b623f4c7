"""The angle between rotations: what `geodesic_distance` is sqrt(2) times of."""

import math

import pytest
import torch

import inbounds as ib

# from nothing over tiny to a half turn, exactly and nearly
ANGLES = torch.tensor(
    [0.0, 1e-12, 1e-6, 1e-3, 0.5, math.pi / 2, 2.0, 3.0, math.pi - 1e-3, math.pi - 1e-6, math.pi], dtype=torch.float64
)


def turns(n, angles):
    """Rotations by the angles about random axes, through the matrix exponential."""
    g = torch.Generator().manual_seed(1)
    w = torch.randn(len(angles), 3, generator=g, dtype=torch.float64)
    w = angles[:, None] * (w / w.norm(dim=1, keepdim=True) if n == 3 else torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))
    hat = torch.zeros(len(angles), 3, 3, dtype=torch.float64)
    hat[:, 2, 1], hat[:, 0, 2], hat[:, 1, 0] = w.T
    hat[:, 1, 2], hat[:, 2, 0], hat[:, 0, 1] = -w.T
    return torch.matrix_exp(hat)[:, :n, :n]


def pairs(n, dtype):
    g = torch.Generator().manual_seed(0)
    x = ib.SO(n).sample(len(ANGLES), generator=g, dtype=torch.float64)
    return x.to(dtype), (x @ turns(n, ANGLES)).to(dtype)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_angle_is_right_from_zero_to_a_half_turn(n, dtype):
    x, y = pairs(n, dtype)
    M = ib.SO(n)
    error = (M.angle(x, y).double() - ANGLES).abs()
    assert error.max() <= 16 * torch.finfo(dtype).eps
    assert torch.allclose(M.angle(y, x), M.angle(x, y), rtol=0, atol=16 * torch.finfo(dtype).eps)
    assert torch.allclose(M.geodesic_distance(x, y), math.sqrt(2) * M.angle(x, y), rtol=1e-6, atol=16 * torch.finfo(dtype).eps)


def test_a_quarter_turn_is_far_by_222_and_its_angle_is_157():
    x, y = torch.eye(3), turns(3, torch.tensor([math.pi / 2], dtype=torch.float64))[0].float()
    assert float(ib.SO(3).geodesic_distance(x, y)) == pytest.approx(2.2214, abs=1e-4)
    assert float(ib.SO(3).angle(x, y)) == pytest.approx(math.pi / 2, abs=1e-6)
    for M in (ib.Manifold, ib.SO, ib.SE):
        assert "sqrt(2" in (M.geodesic_distance if M is ib.Manifold else M).__doc__


@pytest.mark.parametrize("n", [2, 3])
def test_poses_have_the_angle_of_their_rotations(n):
    x, y = pairs(n, torch.float64)
    g = torch.Generator().manual_seed(2)
    t, s = torch.randn(2, len(ANGLES), n, 1, generator=g, dtype=torch.float64)
    M = ib.SE(n)
    a, b = M.join(x, t), M.join(y, s)
    assert torch.equal(M.angle(a, b), ib.SO(n).angle(x, y))
    far = (2 * M.angle(a, b) ** 2 + (t - s).square().sum((1, 2))).sqrt()
    assert torch.allclose(M.geodesic_distance(a, b), far)


@pytest.mark.parametrize("M", [ib.SO(2), ib.SO(3), ib.SE(2), ib.SE(3)], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_is_zero_at_equality_and_finite_everywhere(M, dtype):
    x = M.sample(1000, generator=torch.Generator().manual_seed(0), dtype=dtype).requires_grad_()
    (grad,) = torch.autograd.grad(M.angle(x, x.detach()).sum(), x)
    assert (grad == 0).all()
    n = M.n
    R = torch.eye(M.shape[0], dtype=dtype)
    half = R.clone()
    half[0, 0] = half[1, 1] = -1  # a half turn
    x = R.expand(1000, *M.shape).clone().requires_grad_()
    (grad,) = torch.autograd.grad(M.angle(x, half.expand_as(x)).sum(), x)
    assert torch.isfinite(grad).all() and grad[:, :n, :n].flatten(1).norm(dim=1).max() < 2


@pytest.mark.parametrize("n", [2, 3])
def test_the_derivative_is_that_of_finite_differences(n):
    x, y = pairs(n, torch.float64)
    keep = (ANGLES > 1e-4) & (ANGLES < 3.1)
    M, w = ib.SO(n), torch.randn(int(keep.sum()), ib.SO(n).dim, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def moved(t):
        return M.angle(x[keep] @ M.group_exp(t * w), y[keep])

    slope = torch.func.jvp(moved, (torch.tensor(0.0, dtype=torch.float64),), (torch.tensor(1.0, dtype=torch.float64),))[1]
    assert torch.allclose(slope, (moved(1e-6) - moved(-1e-6)) / 2e-6, atol=1e-6)


def test_beyond_three_dimensions_there_is_no_single_angle():
    with pytest.raises(NotImplementedError, match=r"SO\(4\) has no single angle"):
        ib.SE(4).angle(torch.eye(5), torch.eye(5))
    with pytest.raises(ValueError, match=r"SO\(3\)\.angle asked for shape"):
        ib.SO(3).angle(torch.eye(2), torch.eye(2))
