"""Promises that once did not hold, each with the case that broke it."""

import copy
import math

import pytest
import torch
from catalogue import SETS
from torch import nn

import inbounds as ib

FLOAT = [torch.float32, torch.float64]


def rank_deficient(M, rows, dtype, seed):
    """Points x = u u^T on the boundary of M, nonzero eigenvalues above 1e-3 of the largest, and directions tangent there."""
    g = torch.Generator().manual_seed(seed)
    n = M.shape[0]
    rank = torch.randint(1, n, (rows, 1, 1), generator=g)
    keep = torch.arange(n) < rank
    u, w = (torch.randn(rows, n, n, generator=g, dtype=dtype) * keep for _ in range(2))
    x, d = u @ u.mT, u @ w.mT + w @ u.mT
    if isinstance(M, ib.FixedTracePSD):
        trace = x.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        x = x / trace
        d = d - x * d.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    l = torch.linalg.eigvalsh(x)
    ok = l.gather(-1, n - rank[..., 0])[..., 0] > 1e-3 * l[..., -1]
    return x[ok], d[ok]


@pytest.mark.parametrize("dtype", FLOAT)
@pytest.mark.parametrize("M", [ib.PSD(3), ib.PSD(6), ib.FixedTracePSD(3), ib.FixedTracePSD(6)], ids=repr)
def test_gradients_on_the_boundary_keep_tangent_directions(M, dtype):
    x, d = rank_deficient(M, 500, dtype, seed=0)
    assert len(x) > 300
    for projections in (1, 8):
        z = x.clone().requires_grad_()
        y = z
        for _ in range(projections):
            y = M.project(y)
        (g,) = torch.autograd.grad(y, z, d)
        off = (g - d).flatten(1).norm(dim=-1) / d.flatten(1).norm(dim=-1)
        assert off.max() < (1e-6 if dtype == torch.float64 else 1e-3)


def near_the_medial_axis(dtype):
    """Q diag(s) R^T with Q R^T known, for margins from 64 eps |x| on: near rank one, near reflections, between."""
    eps = torch.finfo(dtype).eps
    m = torch.logspace(math.log10(100 * eps), -0.3, 40, dtype=torch.float64)
    one = torch.ones_like(m)
    spectra = [(one, m, 0.5 * m), (one, one, m - 1), (one, 0.5 * one, m - 0.5), (one, m, -0.3 * m), (one, 2 * m, m)]
    s = torch.cat([torch.stack(k, -1) for k in spectra]).repeat_interleave(20, 0)
    g = torch.Generator().manual_seed(0)
    Q, R = (ib.SO(3).sample(len(s), generator=g, dtype=torch.float64) for _ in range(2))
    margin = (s[:, 1] + s[:, 2]) / math.sqrt(2)
    ok = margin > 64 * eps * s.norm(dim=-1)
    return ((Q * s[:, None, :]) @ R.mT)[ok], (Q @ R.mT)[ok], (64 * eps * s.norm(dim=-1) / margin)[ok]


@pytest.mark.parametrize("how", [lambda f: f, torch.func.vmap], ids=["eager", "vmap"])
@pytest.mark.parametrize("dtype", FLOAT)
def test_rotations_near_the_medial_axis_are_as_right_as_an_svd(dtype, how):
    A, R, bound = near_the_medial_axis(dtype)
    A = A.to(dtype)
    if dtype == torch.float32:  # the nearest rotation of A as it was rounded
        u, _, vh = torch.linalg.svd(A.double())
        last = torch.det(u @ vh).sign()[:, None] * torch.tensor([0.0, 0, 1]) + torch.tensor([1.0, 1, 0])
        R = (u * last[:, None, :].double()) @ vh
    off = (how(ib.SO(3).project)(A).double() - R).flatten(1).norm(dim=-1)
    assert (off <= bound).all(), float((off / bound).max())


def test_bounds_are_kept_as_given_when_rechecked_in_float64():
    g = torch.Generator().manual_seed(0)
    low, high = -torch.rand(50, generator=g, dtype=torch.float64) * math.pi, torch.rand(50, generator=g, dtype=torch.float64) / 3
    x = 10 * torch.randn(200, 50, generator=g)
    for M in (ib.Box(low, high), ib.Box([-math.pi], [math.pi]), ib.Box([-0.1, -math.inf], [0.1, 1e-50])):
        y = M.project(x[:, : M.shape[0]]).double()
        assert (y >= M.low).all() and (y <= M.high).all()
    walls = ib.BoxMinusBalls([-0.1, -0.2], [0.1, math.pi], [[0.0, 1.0]], [0.05])
    y = walls.project(x[:, :2]).double()
    assert (y >= walls.low).all() and (y <= walls.high).all() and (walls.residuals(y)[1] <= 0).all()
    for r in torch.rand(50, generator=g, dtype=torch.float64).tolist():
        assert (ib.Ball(3, radius=r).project(x[:, :3]).double().norm(dim=-1) <= r).all()
        halfspace = ib.Halfspace([1.0, 0.0, 0.0], r)
        assert (halfspace.project(x[:, :3]).double()[:, 0] <= r).all()
        angle = torch.acos(ib.SphereMinusCaps([[1.0, 0, 0]], [r]).project(x[:, :3]).double()[:, 0])
        assert (angle >= r).all()
        capped = ib.CappedSimplex(8, 0.125 + r)
        assert (capped.project(x[:, :8]).double() <= 0.125 + r).all()
    semi = 0.1 + torch.rand(3, generator=g, dtype=torch.float64)
    assert ((ib.Ellipsoid(semi).project(x[:, :3]).double() / semi).norm(dim=-1) <= 1).all()
    floor = ib.PSD(3, minimum=math.pi / 10)
    assert (torch.linalg.eigvalsh(floor.project(x[:, :9].unflatten(1, (3, 3))).double()) >= math.pi / 10).all()


def test_caps_that_just_hold_the_total_are_rounded_to_nearest():
    M = ib.CappedSimplex(3, 1 / 3)
    y = M.project(torch.randn(20, 3, generator=torch.Generator().manual_seed(0)))
    assert torch.allclose(y, torch.full_like(y, 1 / 3)) and (M.violation(y) <= 4e-7).all()


def test_a_box_narrower_than_its_dtype_is_rounded_to_nearest():
    M = ib.Box([0.1, 0.3], [0.1, 0.3])
    assert torch.equal(M.project(torch.randn(5, 2)), torch.tensor([0.1, 0.3]).expand(5, 2))


def test_gradients_pass_straight_through_rounded_bounds():
    high = nn.Parameter(torch.tensor([math.pi], dtype=torch.float64))
    M = ib.Box([-math.pi], high)
    M.project(torch.tensor([[5.0], [6.0], [0.0]])).sum().backward()
    assert high.grad.item() == 2


def test_ill_conditioned_equations_keep_their_tangent_space():
    M = ib.Affine([[1.0, 1, 1, 1], [1, 1, 1, 1.001]], [1.0, 1.0])
    ib.check_set(M)
    p, v = (
        M.sample(200, generator=torch.Generator().manual_seed(0)),
        torch.randn(200, 4, generator=torch.Generator().manual_seed(1)),
    )
    off = (M.A.float().double() @ M.tangent(p, v).double()[..., None])[..., 0]
    assert off.abs().max() < 16 * torch.finfo(torch.float32).eps * 2 * v.norm(dim=-1).max()


def test_batched_parameters_broadcast_against_single_points():
    g = torch.Generator().manual_seed(0)
    centers, radii = 4 * torch.rand(7, 3, 2, generator=g), 1.5 * torch.rand(7, 3, generator=g)
    caps, angles = torch.randn(7, 3, 3, generator=g), torch.rand(7, 3, generator=g)
    for M, one in (
        (
            ib.BoxMinusBalls([0.0, 0], [4.0, 4.0], centers, radii),
            lambda i: ib.BoxMinusBalls([0.0, 0], [4.0, 4.0], centers[i], radii[i]),
        ),
        (ib.SphereMinusCaps(caps, angles), lambda i: ib.SphereMinusCaps(caps[i], angles[i])),
        (ib.Ball(3, radius=angles), None),
        (ib.Product(ib.Sphere(2), ib.Ball(3, radius=angles[:, 0])), None),
    ):
        x = torch.randn(*(1,) * len(M.batch), *M.shape, generator=g)
        y = M.project(x)
        assert y.shape == (*M.batch, *M.shape) and M.contains(y).all()
        assert M.violation(x).shape == M.batch and M.tangent(y, x).shape == y.shape
        if one:
            torch.testing.assert_close(y, torch.stack([one(i).project(x[0]) for i in range(7)]))


def test_a_matrix_of_normals_is_a_batch_and_says_so():
    M = ib.Halfspace(torch.eye(4), torch.ones(4))
    assert "batch of 4" in repr(M)
    with pytest.raises(ValueError, match=r"batch.*\(4,\).*got.*\(5,\).*Polytope"):
        M.project(torch.randn(5, 4))
    with pytest.raises(ValueError, match="batch dims"):
        ib.Ball(3, radius=torch.rand(4), center=torch.rand(5, 3))


STEPS = {
    "SO(3)": ib.SO(3),
    "SO(5)": ib.SO(5),
    "SE(2)": ib.SE(2),
    "SE(3)": ib.SE(3),
    "SE(4)": ib.SE(4),
    "Stiefel(5, 2)": ib.Stiefel(5, 2),
    "Stiefel(3, 3)": ib.Stiefel(3, 3),
    "Stiefel(40, 2)": ib.Stiefel(40, 2),
    "Sphere(3)": ib.Sphere(3),
}


@pytest.mark.parametrize("dtype", FLOAT)
@pytest.mark.parametrize("name", STEPS)
def test_exponential_steps_of_any_size_stay_in_the_set(name, dtype):
    M = STEPS[name]
    g = torch.Generator().manual_seed(0)
    for step in [ib.Exponential(M)] + ([ib.GroupExponential(M)] if isinstance(M, ib.LieGroup) else []):
        for size in (1e-20, 1e2, 1e4, 1e7, 1e10, 1e15, 1e19, 1e20):
            x = M.sample(50, generator=g, dtype=dtype).requires_grad_()
            u = size * nn.functional.normalize(torch.randn(50, step.size, generator=g, dtype=dtype), dim=-1)
            u.requires_grad_()
            for f in (step, torch.func.vmap(step)):
                y = f(x, u)
                assert M.contains(y.detach()).all(), f"{step} at {size:g}"
                assert all(torch.isfinite(t).all() for t in torch.autograd.grad(y.sum(), (x, u)))


def test_long_exponentials_are_right_as_far_as_their_dtype_knows_the_angle():
    c = torch.tensor([[0.3, -0.4, 1.2]], dtype=torch.float64)
    turns = 2 * math.pi * 1000 * c / c.norm()
    torch.testing.assert_close(ib.SO(3).group_exp(c + turns), ib.SO(3).group_exp(c), atol=1e-9, rtol=0)
    A = ib.SO(4).hat(torch.randn(5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    torch.testing.assert_close(ib.SO(4).group_exp(1e3 * ib.SO(4).vee(A)), torch.matrix_exp(1e3 * A), atol=1e-9, rtol=0)


def test_projections_outside_the_promised_range_are_right_or_nan():
    for name, make in SETS.items():
        M = make()
        for size in (1e-44, 1e-30, 1e25, 1e30, 1e35, 1e38):
            g = torch.Generator().manual_seed(0)
            x = (size * torch.randn(100, *M.shape, generator=g, dtype=torch.float64).clamp(-3, 3)).float()
            y, right = M.project(x).double(), M.project(x.double())
            known = ~y.flatten(1).isnan().any(-1)
            assert M.contains(y.float())[known].all(), f"{name} at {size:g}"
            d, best = ((x.double() - p).flatten(1).norm(dim=-1) for p in (y, right))
            room = 1e-4 * (best + right.flatten(1).norm(dim=-1)) + 1e-5
            assert (d <= best + room)[known].all(), f"{name} at {size:g}"


class Constant(nn.Module):
    def __init__(self, *v):
        super().__init__()
        self.v = nn.Parameter(torch.tensor(v))

    def forward(self, t, x):
        return self.v.expand_as(x) * (1 + 0 * t)


class Clock(nn.Module):
    def forward(self, t, x):
        return t.expand_as(x)


def test_a_negative_horizon_runs_the_clock_backwards():
    """From 1 on [0, 1], dx/dt = 1 run backwards is dy/ds = -1: it leaves the wall."""
    M = ib.Box([0.0], [1.0])
    for method in ("euler", "heun", "rk4"):
        y = ib.ProjectedODE(Constant(1.0), M, horizon=-0.5, method=method)(torch.ones(1, 1))
        torch.testing.assert_close(y, torch.full((1, 1), 0.5))
        stuck = ib.ProjectedODE(Constant(-1.0), M, horizon=-1.0, method=method)(torch.ones(1, 1))
        torch.testing.assert_close(stuck, torch.ones(1, 1))
        # dx/dt = t: x(-1) = x(0) + 1/2
        free = ib.ProjectedODE(Clock(), ib.Euclidean(1), horizon=-1.0, steps=200, method=method)(torch.zeros(1, 1))
        torch.testing.assert_close(free, torch.full((1, 1), 0.5), atol=5e-3, rtol=0)


def test_impossible_horizons_steps_and_fields_are_refused():
    M = ib.Ball(2)
    for horizon in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="finite horizon"):
            ib.ProjectedODE(Clock(), M, horizon=horizon)
    for steps in (2.5, 0, -3, True):
        with pytest.raises(ValueError, match="whole number of steps"):
            ib.ProjectedODE(Clock(), M, steps=steps)
    with pytest.raises(TypeError, match="time=False"):
        ib.ProjectedODE(nn.Linear(2, 2), M)
    assert ib.ProjectedODE(nn.Linear(2, 2), M, time=False)(torch.zeros(3, 2)).shape == (3, 2)


def test_blocks_refuse_context_they_would_ignore():
    block = ib.MLPBlock(3, 3)
    x = torch.randn(2, 5, 3)
    assert block(x, key_padding_mask=torch.zeros(2, 5, dtype=torch.bool)).shape == x.shape
    with pytest.raises(TypeError, match="takes no context"):
        block(x, torch.randn(2, 5))
    with pytest.raises(TypeError, match="takes no context"):
        ib.IAA([block], ib.Projection(ib.Sphere(3)))(x, torch.randn(2, 5))
    with pytest.raises(TypeError, match="weather"):
        block(x, weather=torch.randn(2, 5))


def test_learnt_parameters_that_leave_their_range_are_refused():
    x = torch.randn(4, 3)
    for M, bad in (
        (ib.Ball(3, radius=nn.Parameter(torch.tensor(1.0))), -1.0),
        (ib.Sphere(3, radius=nn.Parameter(torch.tensor(1.0))), 0.0),
        (ib.Box(nn.Parameter(torch.zeros(3)), torch.ones(3)), 2.0),
        (ib.Halfspace(nn.Parameter(torch.ones(3))), 0.0),
    ):
        M.project(x)
        next(iter(M.parameters())).data.fill_(bad)
        with pytest.raises(ValueError, match="asked for"):
            M.project(x)
    trace = ib.FixedTracePSD(3, trace=nn.Parameter(torch.tensor(1.0)))
    trace.trace.data.fill_(-1.0)
    with pytest.raises(ValueError, match="trace > 0"):
        trace.project(torch.randn(3, 3))


@pytest.mark.parametrize("name", SETS)
def test_every_set_step_and_network_runs_where_its_tensors_are(name):
    """On the meta device nothing can look at a value, and a tensor made on another device is an error: as strict as a GPU."""
    M = SETS[name]().to("meta")
    x = torch.empty(5, *M.shape, device="meta", requires_grad=True)
    points = [M(x), M.tangent(x, x), M.retract(x, x), M.sample(5, device="meta")]
    rows = [M.violation(x), M.contains(x), M.distance(x), M.uniqueness_margin(x)]
    steps: list[ib.Projection | ib.Exponential | ib.GroupExponential] = [ib.Projection(M)]
    if isinstance(M, ib.Manifold):
        points += [M.exp(x, x), M.refine(x), M.origin(x).expand(5, *M.shape)]
        steps.append(ib.Exponential(M))
    if isinstance(M, ib.LieGroup):
        points += [M.compose(x, x), M.inverse(x), M.group_exp(torch.empty(5, M.dim, device="meta"))]
        steps.append(ib.GroupExponential(M))
    for step in steps:
        points.append(ib.IAA([ib.MLPBlock(M.shape, step.size)], step).to("meta")(x))
        points.append(ib.FAA(nn.Linear(3, step.size), step).to("meta")(torch.empty(5, 3, device="meta")))
    methods = ("euler", "heun", "rk4") if name == "Sphere(3)" else ("euler",)  # how steps are combined is the same for all sets
    points += [ib.ProjectedODE(Clock(), M, steps=1, method=method)(x) for method in methods]
    points[0].sum().backward()
    assert all(p.is_meta and p.shape == x.shape for p in points) and all(r.is_meta and r.shape == (5,) for r in rows)
    assert x.grad.is_meta and all(r.is_meta for r in M.residuals(x))
    assert repr(M)


def test_networks_cast_to_half_precision_keep_float32_states():
    M = ib.SO(3)
    x = M.sample(6, generator=torch.Generator().manual_seed(0))
    step = ib.Projection(M)
    for net in (
        ib.IAA([ib.MLPBlock((3, 3), 9) for _ in range(3)], step),
        ib.IAA([ib.MLPBlock((3, 3), 9) for _ in range(3)], step, head=nn.Linear(9, 9)),
        ib.IAA([ib.AttentionBlock((3, 3), 9) for _ in range(2)], ib.Exponential(M)),
        ib.IAA([ib.MLPBlock((3, 3), 3)], ib.GroupExponential(M)),
    ):
        states = net.bfloat16().states(x)
        assert all(h.dtype == torch.float32 and M.contains(h).all() for h in states)
        net(x).sum().backward()
        assert all(p.grad.dtype == torch.bfloat16 for p in net.parameters() if p.grad is not None)


def test_projections_are_new_tensors():
    for name, make in SETS.items():
        M = make()
        p = M.sample(3, generator=torch.Generator().manual_seed(0))
        before = p.clone()
        M.project(p).add_(1)
        assert torch.equal(p, before), name


def test_constants_are_cast_once_and_anew_when_they_change():
    M = ib.Sphere(3, radius=torch.tensor(2.0, dtype=torch.float64))
    x = torch.randn(4, 3)
    assert torch.allclose(M.project(x).norm(dim=-1), torch.tensor(2.0))
    M.radius.fill_(3.0)
    assert torch.allclose(M.project(x).norm(dim=-1), torch.tensor(3.0))
    M.radius = torch.tensor(4.0, dtype=torch.float64)
    assert torch.allclose(M.project(x).norm(dim=-1), torch.tensor(4.0))
    with torch.inference_mode():
        ib.Box([-0.1], [0.1]).project(torch.randn(3, 1))
    y = torch.randn(3, 3, requires_grad=True)
    with torch.inference_mode():
        M.project(x)
    M.project(y).sum().backward()
    assert torch.isfinite(y.grad).all()
    assert "_kept" not in copy.deepcopy(M).__dict__
