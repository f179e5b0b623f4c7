"""FlowMatching: paths, losses, samples in the set."""

import math

import pytest
import torch
from torch import nn

import inbounds as ib
from inbounds.distributions import UniformOn, WrappedNormal
from inbounds.generative import Pressed, Straight, path_of

D = torch.float64
MIXED = ib.Product(ib.SO(3), ib.Ball(2))
NO_LOG = [ib.Stiefel(4, 2), ib.SO(4), ib.Product(ib.Stiefel(3, 1), ib.Ball(2))]
PATHS = [ib.Sphere(3), ib.SO(3), ib.SE(3), ib.Hyperboloid(3), ib.Ball(2), ib.Simplex(3), MIXED, *NO_LOG]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


class Field(nn.Module):
    def __init__(self, M, width=16):
        super().__init__()
        self.size = math.prod(M.shape)
        self.layers = nn.Sequential(nn.Linear(self.size + 1, width), nn.Tanh(), nn.Linear(width, self.size))

    def forward(self, t, x):
        flat = x.reshape(-1, self.size)
        t = t.expand(x.shape)[..., :1].reshape(len(flat), -1)[:, :1]
        return self.layers(torch.cat([flat, t], -1)).reshape(x.shape)


@pytest.mark.parametrize("M", PATHS, ids=repr)
def test_a_path_leads_through_the_set_and_its_velocity_is_its_derivative(M):
    path, x0, x1 = path_of(M), M.sample(5, generator=seeded(0), dtype=D), M.sample(5, generator=seeded(1), dtype=D)
    t = torch.linspace(0.1, 0.9, 5, dtype=D).reshape(5, *[1] * len(M.shape))
    (x, v), (derivative, _) = torch.func.jvp(lambda t: path(x0, x1, t), (t,), (torch.ones_like(t),))
    assert M.contains(x).all()
    torch.testing.assert_close(v, derivative)
    for end, point in ((0.0, x0), (1.0, x1)):
        torch.testing.assert_close(path(x0, x1, torch.full_like(t, end))[0], point)


@pytest.mark.parametrize("M", [ib.Sphere(3), ib.SO(3), ib.Ball(2), ib.Simplex(3), MIXED, NO_LOG[0]], ids=repr)
def test_samples_and_all_states_are_in_the_set(M):
    """Also with a field that has learned nothing and pushes against the boundary."""
    torch.manual_seed(0)
    net = Field(M)
    with torch.no_grad():
        net.layers[-1].bias += 5 * torch.randn(net.size)
    model = ib.FlowMatching(net, M, steps=8)
    y = model.sample(50)
    assert y.shape == (50, *M.shape) and M.contains(y).all() and not y.requires_grad
    assert M.contains(model.ode.trajectory(model.start((4, 3)))).all()
    model.loss(M.sample(10)).backward()
    assert all(torch.isfinite(p.grad).all() and p.grad.abs().max() > 0 for p in net.parameters())


class Upwards(nn.Module):
    def __init__(self, height):
        super().__init__()
        self.height = height

    def forward(self, t, x):
        return torch.tensor([0.0, self.height]).expand_as(x)


class Origin:
    event_shape = (2,)

    def sample(self, shape):
        return torch.zeros(*shape, 2)


@pytest.mark.parametrize("height, method, close", [(0.8, "heun", 1e-5), (1.0, "heun", 1 / 20), (1.0, "dopri5", 1e-4)])
def test_the_loss_is_zero_for_the_velocity_of_the_only_path(height, method, close):
    """From the centre of the disk to a point inside; and to one on the rim, which the last step meets to order 1, and chosen
    steps to their tolerance."""
    model = ib.FlowMatching(Upwards(height), ib.Ball(2), source=Origin(), method=method)
    x1 = torch.tensor([[0.0, height]]).expand(20, 2)
    assert model.loss(x1) <= 1e-10 and model.loss(-x1) > 3.9 * height**2
    assert (model.sample(3) - x1[:3]).abs().max() <= close


def test_log_prob_is_the_density_of_the_flow():
    torch.manual_seed(0)
    M = ib.Sphere(3)
    model = ib.FlowMatching(Field(M), M, steps=4)
    x = M.sample(6)
    assert torch.equal(model.log_prob(x), model.ode.log_density(x, UniformOn(M)))
    with pytest.raises(TypeError, match=r"A density needs a Manifold \(no boundary\), got Ball\(2\)"):
        ib.FlowMatching(Field(ib.Ball(2)), ib.Ball(2)).log_prob(torch.zeros(1, 2))


def test_wrong_use_names_the_fix():
    with pytest.raises(TypeError, match=r"asked for a source on Hyperboloid\(3\), whose volume is infinite or not known\. Write"):
        ib.FlowMatching(Field(ib.Hyperboloid(3)), ib.Hyperboloid(3))
    world = ib.BoxMinusBalls([0.0, 0.0], [4.0, 3.0], [[2.0, 1.5]], [0.6])
    with pytest.raises(TypeError, match=r"a convex set, a manifold without boundary .* got BoxMinusBalls.* path=\.\.\."):
        ib.FlowMatching(Field(world), world, source=UniformOn(ib.Box([0.0, 0.0], [4.0, 3.0])))
    with pytest.raises(TypeError, match=r"source with sample\(\(n,\)\) of points of shape \(3,\)"):
        ib.FlowMatching(Field(ib.Sphere(3)), ib.Sphere(3), source=UniformOn(ib.Sphere(2)))
    with pytest.raises(ValueError, match=r"asked for points of Sphere\(3\), got violation 1\.0e\+00\. Write M\.project\(x1\)"):
        ib.FlowMatching(Field(ib.Sphere(3)), ib.Sphere(3)).loss(torch.tensor([[2.0, 0.0, 0.0]]))
    M = ib.Hyperboloid(3)
    source = WrappedNormal(M, M.origin(torch.zeros(1)), torch.tensor(0.5))
    assert M.contains(ib.FlowMatching(Field(M), M, source=source).sample(4)).all()


def on_boundary(M, x):
    """Where a motion and its opposite are not both free."""
    z = torch.randn(x.shape, dtype=D, generator=seeded(3))
    return (M.tangent(x, z) + M.tangent(x, -z)).norm(dim=-1) > 1e-6


@pytest.mark.parametrize("M", [ib.Ball(2), ib.Simplex(3), ib.Box([0.0, 0.0], [1.0, 2.0])], ids=repr)
def test_pressed_paths_reach_the_boundary_before_the_end_and_leave_other_data_alone(M):
    torch.manual_seed(0)
    rim = M.project(5 * torch.randn(200, *M.shape, dtype=D))
    rim = rim[on_boundary(M, rim)]
    path, x0 = Pressed(M, 0.5), M.sample(len(rim), generator=seeded(0), dtype=D)
    t = torch.full((len(rim), 1), 0.97, dtype=D)
    assert len(rim) > 100 and not on_boundary(M, Straight(M)(x0, rim, t)[0]).any()
    torch.testing.assert_close(path(x0, rim, 0 * t)[0], x0)
    torch.testing.assert_close(path(x0, rim, 0 * t + 1)[0], rim)
    x = path(x0, rim, t)[0]
    assert M.contains(x).all() and on_boundary(M, x).double().mean() > 0.8
    inside = M.sample(len(rim), generator=seeded(2), dtype=D)
    for mine, straight in zip(path(x0, inside, t), Straight(M)(x0, inside, t), strict=True):
        torch.testing.assert_close(mine, straight)


def test_the_velocity_of_a_pressed_path_is_its_derivative():
    M, x0, x1 = ib.Ball(2), torch.zeros(50, 2, dtype=D), ib.Sphere(2).sample(50, generator=seeded(0), dtype=D)
    path, start = Pressed(M, 0.5), 0.3 * torch.tensor([1.0, 0.0], dtype=D)
    for share in (0.1, 0.6, 0.99):
        t = torch.full((50, 1), share, dtype=D)
        ends = []
        for s in (t - 1e-6, t, t + 1e-6):
            torch.manual_seed(0)
            ends.append(path(x0 + start, x1, s))
        gap = (ends[2][0] - ends[0][0]) / 2e-6 - ends[1][1]
        assert (gap.norm(dim=-1) < 1e-6).double().mean() > 0.95  # but where the path meets the rim just then


def test_a_pressed_path_needs_a_convex_set_and_a_distance():
    with pytest.raises(TypeError, match=r"Pressed asked for a convex set, got Sphere\(3\)"):
        Pressed(ib.Sphere(3), 0.2)
    with pytest.raises(ValueError, match=r"Pressed asked for a distance press >= 0, got -1"):
        Pressed(ib.Ball(2), -1)
