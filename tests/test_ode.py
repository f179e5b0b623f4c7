"""ProjectedODE at observation times."""

import itertools
import math

import pytest
import torch
from torch import nn

import inbounds as ib

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


@pytest.mark.parametrize("horizon", [1.0, -1.0])
@pytest.mark.parametrize("method, order", [("euler", 1), ("heun", 2), ("rk4", 4)])
def test_observations_are_separate_runs_to_the_order_of_the_method(method, order, horizon):
    M = ib.Sphere(3)
    field, x = Bend(M), M.sample(6, generator=seeded(), dtype=D)
    times = horizon * torch.tensor([0.0, 0.13, 0.5, 0.97, 1.0], dtype=D)
    exact = [ib.ProjectedODE(field, M, horizon=float(t), steps=64, method="rk4")(x) for t in times]

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
