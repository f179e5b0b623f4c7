"""ProjectedODE: states at observation times, densities."""

import itertools
import math
from functools import cache

import pytest
import torch
from torch import nn

import inbounds as ib
from inbounds.core import log_gram, tangent_basis
from inbounds.distributions import IsotropicSO3, UniformOn

D = torch.float64


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


class Bend(nn.Module):
    """A smooth field that depends on time and place; its part across the set must not matter."""

    def __init__(self, M, seed=0, size=1.0):
        super().__init__()
        n = math.prod(M.shape)
        self.shape = M.shape
        self.A = nn.Parameter(size * torch.randn(n, n, generator=seeded(seed), dtype=D))
        self.b = nn.Parameter(size * torch.randn(n, generator=seeded(seed + 1), dtype=D))

    def forward(self, t, x):
        flat = x.flatten(x.dim() - len(self.shape))
        wave = torch.sin(flat @ self.A + self.b).reshape(x.shape)
        return (1 + t) * wave + x


# --- observation times ---------------------------------------------------------------------------------------


@cache
@torch.no_grad()
def fine_end(t):
    """Where six points of the sphere are at time t, by many steps of the best method."""
    M = ib.Sphere(3)
    return ib.ProjectedODE(Bend(M), M, horizon=t, steps=64, method="rk4")(M.sample(6, generator=seeded(), dtype=D))


@pytest.mark.parametrize("horizon", [1.0, -1.0])
@pytest.mark.parametrize("method, order", [("euler", 1), ("heun", 2), ("rk4", 4)])
def test_observations_are_separate_runs_to_the_order_of_the_method(method, order, horizon):
    M = ib.Sphere(3)
    field, x = Bend(M), M.sample(6, generator=seeded(), dtype=D)
    times = horizon * torch.tensor([0.0, 0.13, 0.5, 0.97, 1.0], dtype=D)
    exact = [fine_end(float(t)) for t in times]

    def gap(steps):
        seen = ib.ProjectedODE(field, M, horizon=horizon, steps=steps, method=method)(x, times=times)
        assert seen.shape == (6, 5, 3) and M.contains(seen).all()
        return float((seen - torch.stack(exact, 1)).abs().max().detach())

    gaps = [gap(n) for n in (8, 16, 32)]
    assert all(math.log2(a / b) > order - 0.4 for a, b in itertools.pairwise(gaps)), gaps


def test_times_per_row_are_the_rows_of_shared_times():
    """A row depends neither on the other rows nor on the other times; at the horizon it is the whole run."""
    M = ib.SO(3)
    ode = ib.ProjectedODE(Bend(M), M, steps=7, method="rk4")
    x, times = M.sample(2, 3, generator=seeded(), dtype=D), torch.rand(2, 3, 4, generator=seeded(), dtype=D).sort(-1).values
    seen = ode(x, times=times)
    assert seen.shape == (2, 3, 4, 3, 3)
    for i, j, k in itertools.product(range(2), range(3), range(4)):
        alone = ode(x[i, j], times=times[i, j, k : k + 1])[0]
        torch.testing.assert_close(seen[i, j, k], alone, atol=1e-12, rtol=0)
    ends = ode(x, times=[0, 1])
    torch.testing.assert_close(ends[:, :, 0], x)
    torch.testing.assert_close(ends[:, :, 1], ode(x), atol=1e-12, rtol=0)
    nodes = ode(x, times=torch.arange(8) / 7)
    torch.testing.assert_close(nodes.movedim(2, 0), ode.trajectory(x), atol=1e-6, rtol=0)  # 1/7 of the float32 times


@pytest.mark.parametrize(
    "M", [ib.Ball(2), ib.Simplex(3), ib.BoxMinusBalls([0.0, 0.0], [4.0, 3.0], [[2.0, 1.5]], [0.6])], ids=repr
)
def test_every_observation_is_in_a_set_with_boundary(M):
    x = M.sample(20, generator=seeded())
    times = torch.rand(20, 6, generator=seeded()).sort(-1).values
    ode = ib.ProjectedODE(Bend(M, size=4.0).float(), M, steps=10)
    for t in (times, times[0]):
        assert M.contains(ode(x, times=t)).all()


def test_gradients_reach_the_field_the_start_and_the_times():
    M = ib.Sphere(3)
    field = Bend(M)
    x, w = M.sample(2, generator=seeded(), dtype=D), torch.randn(2, 3, 3, generator=seeded(1), dtype=D)

    ode = ib.ProjectedODE(field, M, steps=4)

    def run(x, times, b):
        return (w * torch.func.functional_call(ode, {"field.b": b}, (x,), {"times": times})).sum()

    times = torch.tensor([[0.1, 0.4, 0.9], [0.2, 0.3, 0.95]], dtype=D)
    inputs = (x, times, field.b.detach().clone())
    torch.autograd.gradcheck(run, [p.requires_grad_() for p in inputs])


@pytest.mark.parametrize(
    "times, horizon, words",
    [
        (torch.tensor([0.5, 0.2]), 1.0, r"times that increase along the last dim, got others\. Write times\.sort\(-1\)\.values"),
        (torch.tensor([-0.2, -0.1]), -1.0, r"times that decrease .* Write times\.sort\(-1, True\)\.values"),
        (
            torch.tensor([0.5, 1.2]),
            1.0,
            r"between 0 and its horizon 1, got 0\.5 to 1\.2\. .* write ProjectedODE\(\.\.\., horizon",
        ),
        (torch.tensor([-0.1, 0.2]), 1.0, r"between 0 and its horizon 1, got -0\.1 to 0\.2"),
        (torch.tensor([0.1, math.nan]), 1.0, r"between 0 and its horizon 1, got nan"),
        (torch.rand(3, 2), 1.0, r"shape \(k,\), shared by all rows, or \(5, k\), .* got \(3, 2\)\. Write times=torch\.linspace"),
        (0.5, 1.0, r"got \(\)"),
        ([], 1.0, r"got \(0,\)"),
    ],
)
def test_wrong_times_are_refused_with_the_fix(times, horizon, words):
    ode = ib.ProjectedODE(Bend(ib.Sphere(3)).float(), ib.Sphere(3), horizon=horizon)
    with pytest.raises(ValueError, match=words):
        ode(ib.Sphere(3).sample(5), times=times)


def test_the_horizon_is_met_up_to_rounding():
    """0.1 in float32 is larger than 0.1."""
    M = ib.Sphere(3)
    ode = ib.ProjectedODE(Bend(M).float(), M, horizon=0.1, steps=3)
    x = M.sample(4, generator=seeded())
    torch.testing.assert_close(ode(x, times=torch.tensor([0.1]))[:, 0], ode(x))


# --- densities -----------------------------------------------------------------------------------------------


class Turn(nn.Module):
    """dR/dt = hat(w) R: all rotations are turned about one axis."""

    def forward(self, t, x):
        return ib.SO(3).hat(torch.tensor([0.3, -1.0, 0.7], dtype=x.dtype)) @ x


def sphere_grid(n):
    """Points of the unit sphere with the weights of a product rule: Gauss in the height, equal steps in the angle."""
    off = torch.arange(1, n, dtype=D)
    height, vectors = torch.linalg.eigh(
        torch.diag(off / (4 * off**2 - 1).sqrt(), 1) + torch.diag(off / (4 * off**2 - 1).sqrt(), -1)
    )
    angle = 2 * math.pi * torch.arange(2 * n, dtype=D) / (2 * n)
    z, a = torch.meshgrid(height, angle, indexing="ij")
    r = (1 - z**2).sqrt()
    weights = (2 * vectors[0] ** 2)[:, None].expand_as(z) * math.pi / n
    return torch.stack([r * a.cos(), r * a.sin(), z], -1).flatten(0, 1), weights.flatten()


def test_a_density_on_the_sphere_integrates_to_one():
    M = ib.Sphere(3)
    x, weights = sphere_grid(24)
    assert abs(float(weights.sum()) - 4 * math.pi) <= 1e-12
    ode = ib.ProjectedODE(Bend(M, size=0.5), M, horizon=0.4, steps=4, method="rk4")
    with torch.no_grad():
        log_p = ode.log_density(x, UniformOn(M))
    assert log_p.max() - log_p.min() > 0.5  # it is not the uniform density that it began as
    assert abs(float((weights * log_p.exp()).sum()) - 1) <= 1e-4


def test_turning_leaves_densities_on_rotations_unchanged():
    M = ib.SO(3)
    ode = ib.ProjectedODE(Turn(), M, steps=6, method="rk4")
    y = M.sample(5, generator=seeded(), dtype=D)
    torch.testing.assert_close(ode.log_density(y, UniformOn(M)), UniformOn(M).log_prob(y), atol=1e-9, rtol=0)
    source = IsotropicSO3(torch.eye(3, dtype=D), torch.tensor(1.0, dtype=D))
    back = M.group_exp(-torch.tensor([0.3, -1.0, 0.7], dtype=D)) @ y
    torch.testing.assert_close(ode.log_density(y, source), source.log_prob(M.project(back)), atol=1e-4, rtol=0)


def discrete_log_volume(ode, x):
    """log |det| of the autograd Jacobian of the run as it is computed, on bases of the tangent spaces."""
    M, basis = ode.M, tangent_basis(ode.M, x)
    moved = [torch.func.jvp(ode, (x,), (b,))[1] for b in basis]
    return 0.5 * (log_gram(M, ode(x), moved) - log_gram(M, x, basis))


@pytest.mark.parametrize("M", [ib.Sphere(3, radius=2.0), ib.SO(3), ib.Hyperboloid(3), ib.Stiefel(3, 1)], ids=repr)
@torch.no_grad()
def test_the_log_volume_is_that_of_the_discrete_flow_map(M):
    """Also where the metric is not the ambient one; and running back undoes both the run and its volume."""
    ode = ib.ProjectedODE(Bend(M, size=0.4), M, horizon=0.5, steps=8, method="rk4")
    x = M.sample(3, generator=seeded(), dtype=D)
    y, change = ode.log_volume(x)
    torch.testing.assert_close(y, ode(x))
    torch.testing.assert_close(change, discrete_log_volume(ode, x), atol=2e-4, rtol=0)
    assert change.abs().max() > 0.02
    again, undone = ode.log_volume(y, back=True)
    torch.testing.assert_close(again, x, atol=1e-4, rtol=0)
    torch.testing.assert_close(undone, -change, atol=2e-4, rtol=0)


def test_probes_are_unbiased_and_the_trace_is_not_the_ambient_one():
    M = ib.Sphere(3)
    ode = ib.ProjectedODE(Bend(M), M, horizon=0.1, steps=1, method="euler")
    x = M.sample(generator=seeded(), dtype=D)
    with torch.no_grad():
        exact = ode.log_volume(x)[1]
        draws = ode.log_volume(x.expand(4000, 3), probes=2, generator=seeded(1))[1]
        ambient = 0.1 * torch.func.jacfwd(lambda p: M.tangent(p, ode.field(torch.tensor(0.0, dtype=D), p)))(x).trace()
    assert abs(float(draws.mean() - exact)) <= 4 * float(draws.std()) / 4000**0.5 and draws.std() > 0
    assert abs(float(ambient - exact)) > 0.05


def test_a_density_has_gradients_in_the_field_and_the_point():
    M = ib.Sphere(3)
    ode = ib.ProjectedODE(Bend(M, size=0.5), M, steps=2)
    y = M.sample(2, generator=seeded(), dtype=D)
    v = M.random_tangent(y, generator=seeded(1))

    def run(s, b):
        return torch.func.functional_call(Density(ode), {"ode.field.b": b}, (M.project(y + s * v),))

    torch.autograd.gradcheck(run, [torch.zeros((), dtype=D).requires_grad_(), ode.field.b.detach().clone().requires_grad_()])


class Density(nn.Module):
    def __init__(self, ode):
        super().__init__()
        self.ode = ode

    def forward(self, y):
        return self.ode.log_density(y, UniformOn(self.ode.M))


def test_a_density_is_refused_where_there_is_a_boundary():
    ode = ib.ProjectedODE(nn.Linear(2, 2), ib.Ball(2), time=False)
    with pytest.raises(TypeError, match=r"needs a Manifold \(no boundary\), got Ball\(2\): a flow presses mass on a boundary"):
        ode.log_density(torch.zeros(3, 2), UniformOn(ib.Ball(2)))
    sphere = ib.ProjectedODE(nn.Linear(3, 3), ib.Sphere(3), time=False)
    with pytest.raises(ValueError, match=r"whole number of probes >= 1, or None for the exact trace, got 0"):
        sphere.log_volume(ib.Sphere(3).sample(2), probes=0)
