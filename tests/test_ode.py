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


# --- steps that rows choose for themselves --------------------------------------------------------------------


class Spin(nn.Module):
    """x' = w(t) x turns about an axis, faster and faster: after the time t by the angle t + t^3/3, times |axis|."""

    AXIS = torch.tensor([0.3, -1.0, 0.7], dtype=D)

    def forward(self, t, x):
        w = self.AXIS.to(x.dtype).expand_as(x)
        return (1 + torch.as_tensor(t) ** 2) * torch.linalg.cross(w, x) + x  # what leads off the sphere must not count

    def exact(self, t, x):
        return x @ ib.SO(3).group_exp((t + t**3 / 3) * self.AXIS.to(x.dtype)).mT


def test_the_error_follows_the_tolerance_of_the_row():
    """Rows from the same start with other tolerances: the error falls with each, and stays below ten times it."""
    M, tolerance = ib.Sphere(3), torch.tensor([1e-3, 1e-5, 1e-7, 1e-9], dtype=D)
    x = M.sample(generator=seeded(), dtype=D).expand(4, 3)
    ode = ib.ProjectedODE(Spin(), M, horizon=2.0, method="dopri5")
    error = (ode(x, tolerance=tolerance) - Spin().exact(2.0, x)).norm(dim=-1)
    assert (error <= 10 * tolerance).all() and (error[1:] < error[:-1]).all(), error
    run = ode.solve(x, tolerance=tolerance)
    assert (run.steps[1:] > run.steps[:-1]).all() and (run.status == 0).all() and (run.reached == 2.0).all()


@pytest.mark.parametrize("method, order", [("heun", 2), ("rk4", 4), ("dopri5", None)])
def test_states_in_between_have_the_order_of_the_method(method, order):
    M = ib.Sphere(3)
    x, t = M.sample(5, generator=seeded(), dtype=D), torch.linspace(0, 2, 33, dtype=D)
    exact = torch.stack([Spin().exact(s, x) for s in t], 1)

    def gap(**options):
        seen = ib.ProjectedODE(Spin(), M, horizon=2.0, method=method, **options).solve(x)(t)
        assert M.contains(seen).all()
        return float((seen - exact).norm(dim=-1).max())

    if order is None:
        assert all(gap(tolerance=e) <= 20 * e for e in (1e-4, 1e-6, 1e-8))
    else:
        gaps = [gap(steps=n) for n in (20, 40, 80)]
        assert all(math.log2(a / b) > order - 0.4 for a, b in itertools.pairwise(gaps)), gaps


def test_a_row_does_not_depend_on_the_others():
    M = ib.Ball(2)
    ode = ib.ProjectedODE(Bend(M, size=2.0), M, horizon=2.0, method="dopri5", tolerance=1e-4).requires_grad_(False)
    x = M.sample(4, generator=seeded(), dtype=D)
    times = 2 * torch.rand(4, 4, generator=seeded(), dtype=D).sort(-1).values
    whole, seen = ode.solve(x), ode(x, times=times)
    for i in range(4):
        alone = ode.solve(x[i])
        assert int(alone.steps) == int(whole.steps[i]) and int(alone.refused) == int(whole.refused[i])
        torch.testing.assert_close(alone.end, whole.end[i], atol=1e-11, rtol=0)
        torch.testing.assert_close(ode(x[i], times=times[i]), seen[i], atol=1e-11, rtol=0)
    torch.testing.assert_close(whole(times), seen)
    torch.testing.assert_close(whole(times[0])[0], seen[0])
    torch.testing.assert_close(ode.trajectory(x)[-1], whole.end)


class Constant(nn.Module):
    def __init__(self, *v):
        super().__init__()
        self.v = torch.tensor(v, dtype=D)

    def forward(self, t, x):
        return self.v.to(x.dtype).expand_as(x)


@pytest.mark.parametrize("dtype", [torch.float32, D])
def test_along_a_curved_boundary_steps_stay_as_long_as_the_tolerance_allows(dtype):
    """From the centre of the disk to its rim and along it: tan(angle/2) decays as e^-t, which a formula gives."""
    M, x = ib.Ball(2), torch.tensor([[0.6, 0.0], [0.0, 0.0], [0.0, -1.0]], dtype=dtype)
    run = ib.ProjectedODE(Constant(0.0, 1.0), M, horizon=3.0, method="dopri5", tolerance=1e-5).solve(x)
    assert (run.status == 0).all() and (run.steps <= 60).all()
    start = math.acos(0.8)  # from the top, where (0.6, 0) meets the rim, after the time 0.8
    angle = 2 * math.atan(math.tan(start / 2) * math.exp(-(3.0 - 0.8)))
    exact = torch.tensor([[math.sin(angle), math.cos(angle)], [0.0, 1.0], [0.0, 1.0]], dtype=dtype)
    torch.testing.assert_close(run.end, exact, atol=1e-4, rtol=0)
    seen = run(torch.linspace(0, 3, 50, dtype=dtype))
    assert M.contains(seen).all() and (M.residuals(seen)[1] <= 0).all()


@pytest.mark.parametrize("checkpoint", [False, True])
def test_gradients_are_those_of_the_steps_that_were_chosen(checkpoint):
    """With the steps held fixed; and, since the choice matters to the tolerance only, near those of many small steps."""
    M = ib.Sphere(3)
    x, w = M.sample(2, generator=seeded(), dtype=D), torch.randn(2, 3, generator=seeded(1), dtype=D)
    grads = []
    for options in ({"method": "dopri5", "tolerance": 1e-9, "checkpoint": checkpoint}, {"method": "rk4", "steps": 100}):
        field, start = Bend(M), x.clone().requires_grad_()
        ode = ib.ProjectedODE(field, M, **options)
        times = torch.tensor([0.3, 0.7], dtype=D, requires_grad=True)
        loss = (w * ode(start)).sum() + (w[:, None] * ode(start, times=times)).sum()
        grads.append(torch.autograd.grad(loss, [start, times, field.A, field.b]))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("method", ["heun", "dopri5"])
def test_checkpoints_keep_less_and_give_the_same_gradients(method):
    M = ib.SO(3)
    y, kept, grads = M.sample(2, generator=seeded(), dtype=D), [], []
    for checkpoint in (False, True):
        options = {"method": method, "steps": 4, "tolerance": 0.1, "checkpoint": checkpoint}
        ode = ib.ProjectedODE(Bend(M, size=0.3), M, horizon=0.5, **options)
        sizes = {}

        def keep(t, sizes=sizes):
            sizes[t.data_ptr()] = t.numel()
            return t

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            loss = ode.log_density(y, UniformOn(M)).sum() + ode(y).sum()
        kept.append(sum(sizes.values()))
        grads.append(torch.autograd.grad(loss, list(ode.parameters())))
    assert kept[1] <= 0.1 * kept[0], kept
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)


def test_chosen_steps_keep_the_error_of_a_density_below_the_tolerance():
    M = ib.Sphere(3)
    field, y = Bend(M, size=0.5), M.sample(4, generator=seeded(), dtype=D)
    fine = ib.ProjectedODE(field, M, horizon=0.5, steps=20, method="rk4")
    ode = ib.ProjectedODE(field, M, horizon=0.5, method="dopri5", tolerance=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(ode.log_density(y, UniformOn(M)), fine.log_density(y, UniformOn(M)), atol=1e-5, rtol=0)
        end, change = ode.log_volume(y)
        back, undone = ode.log_volume(end, back=True)
    torch.testing.assert_close(back, y, atol=1e-5, rtol=0)
    torch.testing.assert_close(undone, -change, atol=1e-5, rtol=0)


class Wall(nn.Module):
    """By the row's second number: x' = 1, x' = x^2, a field that is not finite beyond 1, and one that never rests."""

    def forward(self, t, x):
        kind = x[..., 1:]
        square, broken = x[..., :1].square(), torch.where(x[..., :1] < 1, 1.0, torch.nan)
        v = torch.where(kind == 1, square, torch.where(kind == 2, broken, torch.ones_like(kind)))
        return torch.cat([torch.where(kind == 3, torch.sin(1e6 * t), v), 0 * kind], -1)


def test_rows_that_cannot_go_on_say_so_and_the_others_arrive():
    M, x = ib.Euclidean(2), torch.tensor([[0.0, 0.0], [2.0, 1.0], [0.0, 2.0], [0.0, 3.0]], dtype=D)
    ode = ib.ProjectedODE(Wall(), M, horizon=2.0, method="dopri5", limit=300)
    run = ode.solve(x)
    assert run.status.tolist() == [0, 1, 3, 2] and float(run.end[0, 0]) == pytest.approx(2.0)
    assert (
        abs(float(run.reached[1]) - 0.5) <= 1e-3 and abs(float(run.reached[2]) - 1) <= 1e-3
    )  # 1/(1/2 - t) has no values after 1/2
    seen = run([0.2, 1.9])
    assert torch.isfinite(seen[:3, 0]).all() and torch.isnan(seen[1:3, 1]).all() and torch.isfinite(seen[0]).all()
    with pytest.raises(RuntimeError, match=r"3 of 4 rows stopped before the end, .* 1 because their steps became too short"):
        ode(x)
    assert "1 of 4 rows at the horizon" in repr(run)


class Attention(nn.Module):
    """Points that pull each other: none of them can be followed alone."""

    def forward(self, t, x):
        return (1 + t) * (x.mean(-2, keepdim=True) - x) + torch.roll(x, 1, -1)


def test_tokens_share_their_steps():
    M = ib.Sphere(3)
    x = M.sample(3, 4, generator=seeded(), dtype=D)
    ode = ib.ProjectedODE(Attention(), M, method="dopri5", tolerance=1e-8, tokens=1)
    exact = ib.ProjectedODE(Attention(), M, method="rk4", steps=200)(x)
    torch.testing.assert_close(ode(x), exact, atol=1e-6, rtol=0)
    run, times = ode.solve(x), torch.tensor([[0.1, 0.5]] * 3, dtype=D)
    assert run.steps.shape == (3,) and run(times).shape == (3, 4, 2, 3)
    torch.testing.assert_close(run(times), run(times[0]))
    with pytest.raises(ValueError, match=r"their density is a joint one\. Write"):
        ode.log_density(x, UniformOn(M))
    with pytest.raises(ValueError, match=r"asked for 1 batch dims of tokens"):
        ode(x[0, 0])


def test_wrong_use_of_tolerances_names_the_fix():
    M = ib.Sphere(3)
    ode, equal = ib.ProjectedODE(Spin(), M, method="dopri5"), ib.ProjectedODE(Spin(), M)
    x = M.sample(5)
    for call, error, words in (
        (lambda: ib.ProjectedODE(Spin(), M, tolerance=0.0), ValueError, r"a number above 0 as tolerance, got 0\.0"),
        (lambda: ode(x, tolerance=1e-8), ValueError, r"at least 3\.8e-06, which torch\.float32 can meet.*Write ode\.double"),
        (lambda: ode(x, tolerance=torch.ones(3)), ValueError, r"one for each row, \(5,\), got \(3,\)"),
        (lambda: equal(x, tolerance=1e-3), ValueError, r'whose steps are equal, got one\. Write .*method="dopri5"'),
        (lambda: ib.ProjectedODE(Spin(), M, limit=0), ValueError, r"whole number of limit >= 1, got 0"),
        (lambda: torch.func.vmap(ode)(x), RuntimeError, r'vmap do not show\. Write method="rk4"'),
    ):
        with pytest.raises(error, match=words):
            call()


@pytest.mark.parametrize("horizon", [0.0, -2.0])
def test_chosen_steps_run_the_clock_backwards_and_stand_still(horizon):
    M = ib.Sphere(3)
    x = M.sample(4, generator=seeded(), dtype=D)
    ode = ib.ProjectedODE(Spin(), M, horizon=horizon, method="dopri5", tolerance=1e-8)
    torch.testing.assert_close(ode(x), Spin().exact(horizon, x), atol=1e-6, rtol=0)
    middle = ode(x, times=torch.tensor([horizon / 2, horizon], dtype=D))
    torch.testing.assert_close(middle[:, 0], Spin().exact(horizon / 2, x), atol=1e-6, rtol=0)
