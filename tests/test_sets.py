"""Laws over every set x batch shape x dtype."""

import copy
import math

import pytest
import torch
from catalogue import CURVED, DEAR, OVERLAP, PLANE, POLYHEDRA, SETS, SOLVED, hard_points

import inbounds as ib
from inbounds.testing import Case
from inbounds.testing.values import is_idempotent, keeps_bad_rows_apart, lands_in_the_set, tangent_kills_the_normal

BATCHES = [(), (1,), (3, 1, 2)]
DTYPES = [torch.float32, torch.float64]
EVERY = SETS | SOLVED


def affordable(names, nightly=(DEAR,)):
    """All of them, those that cost too much in make test-all only."""
    return [pytest.param(n, marks=pytest.mark.nightly) if n in nightly else n for n in names]


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_contract(name, seed):
    ib.check_set(SETS[name](), seed=seed)


# one polyhedron for each way of the solver: faces alone, with equalities, with a weight, in an intersection with a fitted set
WAYS = ("Polytope", "Polytope, equalities", "Polytope, weight", "fitted square and Affine")


@pytest.mark.parametrize("name", affordable(SOLVED, nightly=SOLVED.keys() - set(WAYS)))
def test_contract_of_solved_sets(name):
    """Polyhedra take a second or two each; a curved set takes ten to thirty seconds, which is for `make test-all`."""
    ib.check_set(SOLVED[name](), points=12)


@pytest.mark.parametrize("name", affordable(CURVED))
def test_first_laws_of_curved_sets(name):
    """The laws that need one or two projections each: the others are too dear for `make test`."""
    case = Case.of(CURVED[name](), torch.float64, seed=0, points=12)
    for law in (lands_in_the_set, is_idempotent, tangent_kills_the_normal, keeps_bad_rows_apart):
        law(case)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SOLVED)
@pytest.mark.parametrize("seed", [0, 1])
def test_contract_of_solved_sets_at_more_points(name, seed):
    ib.check_set(SOLVED[name](), seed=seed)


SHAPES = [(name, batch, dtype) for name in EVERY for batch in BATCHES for dtype in DTYPES]


@pytest.mark.parametrize(
    ("name", "batch", "dtype"),
    [
        s
        if s[0] not in CURVED or (s[0] != DEAR and s[1:] == ((3, 1, 2), torch.float32))
        else pytest.param(*s, marks=pytest.mark.nightly)
        for s in SHAPES
    ],
)
def test_shapes(name, batch, dtype):
    M = EVERY[name]()
    g = torch.Generator().manual_seed(0)
    x = torch.randn(*batch, *M.shape, generator=g, dtype=dtype)
    p, v = M(x), torch.randn(*batch, *M.shape, generator=g, dtype=dtype)
    points = [p, M.tangent(p, v), M.retract(p, v), M.sample(*batch, generator=g, dtype=dtype)]
    if isinstance(M, ib.Manifold):
        points += [M.exp(p, M.tangent(p, v)), M.refine(p)]
        assert M.origin(x).dtype == dtype and M.origin(x).shape == M.shape
    for y in points:
        assert y.shape == x.shape and y.dtype == dtype and torch.isfinite(y).all()
    for row in (M.violation(x), M.distance(x), M.uniqueness_margin(x), M.contains(p)):
        assert row.shape == batch
    assert M.contains(p).all() and not M.violation(x).isnan().any()
    assert M.exact is False or all(r.shape[:-1] == batch for r in M.residuals(x))
    moved = M.retract(p, v)
    assert M.contains(moved).all()


def as_cast(M, dtype):
    """The set with its parameters rounded to dtype, usable in float64."""
    M = copy.deepcopy(M)
    for module in M.modules():
        for name, t in module._buffers.items():
            module._buffers[name] = t.to(dtype).double()
    return M


def scales(M, y):
    """What rounding of each equality is relative to."""
    if isinstance(M, ib.Affine | ib.Polytope):
        A, b = (M.A, M.b) if isinstance(M, ib.Affine) else (M.E, M.f)
        return A.abs().norm(dim=-1) * y.norm(dim=-1, keepdim=True) + b.abs()
    if isinstance(M, ib.Hyperboloid):
        return y.norm(dim=-1, keepdim=True)
    if isinstance(M, ib.Product) and M.metric != "ambient":
        return torch.cat([scales(part, p) * torch.ones_like(y[..., :1]) for part, p in zip(M.sets, M.split(y), strict=True)], -1)
    if isinstance(M, ib.Implicit | ib.Intersection):
        return torch.as_tensor(M._worker()._scale(y) if isinstance(M, ib.Intersection) else M._scale(y))[..., None]
    own = {ib.Sphere: "radius", ib.FixedTracePSD: "trace", ib.Simplex: "total", ib.CappedSimplex: "total"}
    return getattr(M, own[type(M)]).double() if type(M) in own else torch.tensor(1.0)


def units(M):
    """How many units of rounding an equality may be off.

    A closed form ends with its last operation, and stays within 16 units. What `Implicit` finds by Newton's method on functions
    of the user is accepted as ok at 64 units: the rounding of a function is not known to it, and near a place where the gradient
    is small, a unit of rounding of the point is several units of the function. Fitted sets have no equations to be judged by.
    """
    size = math.prod(M.shape)
    by_newton = isinstance(M, ib.Implicit) or (isinstance(M, ib.Intersection) and isinstance(M.way, ib.Implicit))
    return 64 if by_newton else 16 if size <= 16 else 64 * math.sqrt(size)


def assert_feasible(M, y):
    """The feasibility contract for projected points y, in y's dtype and re-checked in float64."""
    if not M.exact:
        assert M.contains(y, tol=1e-3).all()
        return
    exact = as_cast(M, y.dtype)
    eq, ineq = exact.residuals(y.double())
    bound = units(M) * torch.finfo(y.dtype).eps
    assert (ineq <= 0).all() and (M.residuals(y)[1] <= 0).all()
    assert (eq.abs() <= bound * scales(exact, y.double())).all(), float((eq.abs() / scales(exact, y.double())).max() / bound)


@pytest.mark.parametrize("name", SETS)
def test_a_hundred_thousand_hard_points(name):
    check_hard_points(SETS[name](), 100_000, 20_000)


@pytest.mark.nightly
@pytest.mark.parametrize("name", SETS)
def test_a_million_hard_points(name):
    check_hard_points(SETS[name](), 1_000_000, 50_000)


@pytest.mark.parametrize("name", affordable(SOLVED))
def test_hard_points_of_solved_sets(name):
    check_hard_points(SOLVED[name](), *((640, 320) if name in POLYHEDRA else (160, 80)))


@pytest.mark.nightly
@pytest.mark.parametrize("name", SOLVED)
def test_more_hard_points_of_solved_sets(name):
    check_hard_points(SOLVED[name](), 10_000, 5_000)


def check_hard_points(M, singles, doubles):
    """Finite, feasible, with finite gradients, at so many points of float32 and of float64."""
    for dtype, count in ((torch.float32, singles), (torch.float64, doubles)):
        for part in range(-(-count // 50_000)):
            x = hard_points(M, min(count, 50_000), dtype, seed=part).requires_grad_()
            y = M.project(x)
            (g,) = torch.autograd.grad(y, x, torch.randn(y.shape, dtype=dtype, generator=torch.Generator().manual_seed(part)))
            assert torch.isfinite(y).all() and torch.isfinite(g).all()
            assert_feasible(M, y.detach())
    assert not M.violation(x.detach()).isnan().any()


def test_violation_is_the_papers_metric():
    g = torch.Generator().manual_seed(0)
    x, d = torch.randn(9, 3, generator=g), torch.randn(9, 2, generator=g)
    R, T = torch.randn(9, 3, 3, generator=g), torch.randn(9, 4, 4, generator=g)

    def so3(R):
        return torch.linalg.matrix_norm(R @ R.mT - torch.eye(3)) + (torch.det(R) - 1).abs()

    row = (T[:, 3] - torch.tensor([0.0, 0, 0, 1])).abs().amax(-1)
    torch.testing.assert_close(ib.Sphere(3).violation(x), (x.norm(dim=-1) - 1).abs())
    torch.testing.assert_close(ib.Ball(2).violation(d), (d.norm(dim=-1) - 1).clamp(min=0))
    torch.testing.assert_close(ib.SO(3).violation(R), so3(R))
    torch.testing.assert_close(ib.SE(3).violation(T), so3(T[:, :3, :3]) + row)


def test_log_and_distance_are_safe_everywhere():
    """At 0, at pi, at the antipode: right values, finite gradients."""
    for M, angle in ((ib.Sphere(3), 1.0), (ib.SO(2), math.sqrt(2)), (ib.SO(3), math.sqrt(2)), (ib.SE(3), math.sqrt(2))):
        x = M.sample(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        far = _opposite(M, x)
        for y, d in ((x, 0.0), (far, math.pi * angle)):
            a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
            v = M.log(a, b)
            dist = M.geodesic_distance(a, b)
            torch.testing.assert_close(dist, torch.full((50,), d, dtype=dist.dtype), atol=1e-7, rtol=0)
            torch.testing.assert_close(M.exp(x, v.detach()), y, atol=1e-7, rtol=0)
            grads = torch.autograd.grad((v.sum() + dist.sum()), (a, b))
            assert all(torch.isfinite(g).all() for g in grads)


def _opposite(M, x):
    if isinstance(M, ib.Sphere):
        return -x
    if isinstance(M, ib.SO) and M.n == 2:
        return -x
    y = x.clone()
    y[..., :2, :3] *= -1  # half a turn about the third axis
    return y


def test_no_closed_form_log_names_what_does():
    for M in (ib.SO(4), ib.SE(4), ib.Stiefel(4, 2)):
        x = M.sample(2)
        with pytest.raises(NotImplementedError, match="closed"):
            M.log(x, x)


def test_group_and_ambient_exponential_differ_on_se3():
    """exp moves the translation straight; group_exp turns it."""
    G = ib.SE(3)
    c = torch.tensor([0.0, 0.0, 1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    eye = G.origin(c)
    straight, screw = G.exp(eye, G.hat(c)), G.group_exp(c)
    torch.testing.assert_close(straight[:3, 3], c[3:])
    torch.testing.assert_close(screw, torch.matrix_exp(G.hat(c)))
    assert (straight - screw).abs().max() > 0.1


def test_margins_are_the_closed_forms():
    g = torch.Generator().manual_seed(0)
    A = torch.randn(40, 3, 3, generator=g, dtype=torch.float64)
    s = torch.linalg.svdvals(A)
    expected = (s[:, 1] + torch.sign(torch.det(A)) * s[:, 2]) / math.sqrt(2)
    torch.testing.assert_close(ib.SO(3).uniqueness_margin(A), expected)
    torch.testing.assert_close(ib.Stiefel(3, 3).uniqueness_margin(A), s[:, 2])
    torch.testing.assert_close(ib.Sphere(9).uniqueness_margin(A.flatten(1)), A.flatten(1).norm(dim=-1))
    assert ib.Ball(2).uniqueness_margin(torch.randn(3, 2)).isinf().all()


def test_margin_is_the_distance_to_a_point_with_two_projections():
    """Moving A by exactly the margin, in the direction of s_2 and s_3, makes the nearest rotation ambiguous."""
    A = torch.randn(20, 3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    u, s, vh = torch.linalg.svd(A)
    sign = torch.sign(torch.det(A))
    half = (s[:, 1] + sign * s[:, 2]) / 2
    moved = torch.stack([s[:, 0], s[:, 1] - half, s[:, 2] - sign * half], -1)
    B = u @ torch.diag_embed(moved) @ vh
    torch.testing.assert_close((A - B).flatten(1).norm(dim=-1), ib.SO(3).uniqueness_margin(A))
    assert ib.SO(3).uniqueness_margin(B).abs().max() < 1e-12


def test_learnable_parameters_get_gradients():
    for make in (
        lambda r: ib.Sphere(3, radius=r),
        lambda r: ib.Ball(3, radius=r),
        lambda r: ib.FixedTracePSD(3, trace=r),
        lambda r: ib.BoxMinusBalls(*PLANE, OVERLAP[0], r * torch.tensor(OVERLAP[1])),
    ):
        r = torch.nn.Parameter(torch.tensor(1.0))
        M = make(r)
        M.project(torch.linspace(0.3, 2, math.prod(M.shape) * 20).reshape(20, *M.shape)).sum().backward()
        assert r.grad is not None and torch.isfinite(r.grad)
    assert "radius" in dict(ib.Sphere(3, radius=torch.nn.Parameter(torch.tensor(1.0))).named_parameters())


def test_parameters_batch_with_the_points():
    """A set built from tensors gives each row its own constraint."""
    g = torch.Generator().manual_seed(0)
    x, r = 3 * torch.randn(5, 2, generator=g), torch.rand(5, generator=g) + 0.5
    c, radii = torch.rand(5, 3, 2, generator=g) * 4, torch.rand(5, 3, generator=g) * torch.tensor([1.0, 0.5, 0.0])
    low, high = torch.zeros(5, 2), torch.full((5, 2), 4.0)
    batched = {
        ib.Sphere: lambda i: ib.Sphere(2, radius=r[i]),
        ib.Ball: lambda i: ib.Ball(2, radius=r[i], center=c[i, ..., 0, :]),
        ib.Box: lambda i: ib.Box(low[i] - r[i][..., None], low[i] + r[i][..., None]),
        ib.Halfspace: lambda i: ib.Halfspace(c[i, ..., 0, :], r[i]),
        ib.BoxMinusBalls: lambda i: ib.BoxMinusBalls(low[i], high[i], c[i], radii[i]),
    }
    for make in batched.values():
        whole = make(slice(None)).project(x)
        rows = torch.stack([make(i).project(x[i]) for i in range(5)])
        torch.testing.assert_close(whole, rows)


def test_casting_the_model_leaves_the_set_alone():
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), ib.Sphere(3, radius=0.1)).bfloat16()
    assert net[1].radius.dtype == torch.float64
    y = net(torch.randn(4, 3, dtype=torch.bfloat16))
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.norm(dim=-1), torch.full((4,), 0.1))
    learnable = ib.Ball(3, radius=torch.nn.Parameter(torch.tensor(1.0)))
    assert learnable.half().radius.dtype == torch.float32 and learnable.double().radius.dtype == torch.float64


def test_product_splits_joins_and_is_the_strongest_class():
    G = ib.Product(ib.SO(3), ib.Euclidean(3))
    assert isinstance(G, ib.Product) and isinstance(G, ib.LieGroup) and G.dim == 6
    assert isinstance(ib.Product(ib.Sphere(3), ib.SO(2)), ib.Manifold)
    assert not isinstance(ib.Product(ib.Sphere(3), ib.SO(2)), ib.LieGroup)
    assert not isinstance(ib.Product(ib.Sphere(3), ib.Ball(2)), ib.Manifold)
    x = torch.randn(4, 12)
    R, a = G.split(x)
    assert R.shape == (4, 3, 3) and a.shape == (4, 3)
    assert torch.equal(G.join(R, a), x)
    torch.testing.assert_close(G.violation(x), ib.SO(3).violation(R))
    assert type(copy.deepcopy(G)) is type(G)


def test_reprs_print_the_constructor():
    assert repr(ib.Ball(2, radius=0.5)) == "Ball(2, radius=0.5)"
    assert repr(ib.Sphere(3)) == "Sphere(3)"
    assert repr(ib.Product(ib.SO(3), ib.Euclidean(3))) == "Product(SO(3), Euclidean(3))"
    assert repr(ib.GroupExponential(ib.SE(3), side="right")) == 'GroupExponential(SE(3), side="right")'


def test_sampling_is_reproducible_and_uniform():
    for name in EVERY.keys() - {DEAR}:
        M = EVERY[name]()
        a, b = (M.sample(7, generator=torch.Generator().manual_seed(3)) for _ in range(2))
        assert torch.equal(a, b)
    for M in (ib.Sphere(3), ib.SO(3), ib.Ball(2)):
        x = M.sample(200_000, generator=torch.Generator().manual_seed(0))
        assert x.mean(0).abs().max() < 0.01
    assert abs(float((ib.Ball(2).sample(200_000).norm(dim=-1) ** 2).mean()) - 0.5) < 0.01


def test_contains_is_not_fooled_by_a_large_free_entry():
    pose = torch.eye(4)
    pose[:3, :3] *= 2
    pose[0, 3] = 1e6
    assert not ib.SE(3).contains(pose)
    assert not ib.Product(ib.Sphere(3), ib.Euclidean(1)).contains(torch.tensor([2.0, 0, 0, 1e6]))
    assert not ib.Box([0.0, 0.0], [1.0, 1e7]).contains(torch.tensor([-5.0, 1e7]))
    assert not ib.Sphere(3, radius=1e-6).contains(torch.zeros(3))
    steep = ib.Affine([[1e6, 2e6, -1e6]], [1e6])
    assert steep.contains(steep.project(torch.randn(1000, 3))).all()


def test_learnable_obstacles_stay_exact_when_they_move():
    c = torch.nn.Parameter(torch.tensor([[1.0, 1.0], [3.0, 1.0]]))
    M = ib.BoxMinusBalls([0.0, 0], [4.0, 2.0], c, [0.5, 0.5])
    c.data = torch.tensor([[1.0, 1.0], [1.6, 1.0]])  # they overlap now
    x = 4 * torch.rand(500, 2, generator=torch.Generator().manual_seed(0))
    assert (M.violation(M.project(x)) == 0).all()
    a = torch.nn.Parameter(torch.tensor([0.3, 0.3]))
    S = ib.SphereMinusCaps([[1.0, 0, 0], [0, 1.0, 0]], a)
    a.data = torch.tensor([1.0, 1.0])
    assert (S.residuals(S.project(torch.randn(500, 3, generator=torch.Generator().manual_seed(0))))[1] <= 0).all()


def test_tangent_of_psd_sets_can_be_trained_through():
    class Field(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(9, 9)

        def forward(self, x):
            return self.linear(x.flatten(-2)).unflatten(-1, (3, 3))

    for M in (ib.PSD(3), ib.FixedTracePSD(3)):
        ode = ib.ProjectedODE(Field(), M, steps=3, time=False)
        ode(torch.randn(5, 3, 3, generator=torch.Generator().manual_seed(0))).square().sum().backward()
        assert all(torch.isfinite(p.grad).all() for p in ode.parameters())
        x = M.project(torch.randn(4, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
        v = torch.randn(4, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True)
        assert torch.autograd.gradcheck(lambda v, x=x, M=M: M.tangent(x, v), (v,))


def test_fixed_trace_samples_are_uniform():
    """FixedTracePSD(2) is a disc: the mean squared distance from its centre is half the squared radius."""
    X = ib.FixedTracePSD(2).sample(100_000, generator=torch.Generator().manual_seed(0))
    a, b = X[:, 0, 0] - X[:, 1, 1], 2 * X[:, 0, 1]
    assert abs(float((a * a + b * b).mean()) - 0.5) < 0.01


def test_empty_batches():
    for name in EVERY:
        M = EVERY[name]()
        x = torch.zeros(0, *M.shape, requires_grad=True)
        M(x).sum().backward()
        assert M.violation(x).shape == (0,) and M.tangent(x, x).shape == x.shape and M.sample(0).shape == x.shape


def test_moreau_at_corners():
    """v - Tv is orthogonal to Tv, and T is idempotent: T is the projection on a closed convex cone."""
    for name in EVERY.keys() - {DEAR}:
        M = EVERY[name]()
        g, count = torch.Generator().manual_seed(0), 300 if name in SETS else 30
        p = M.project(2 * torch.randn(count, *M.shape, generator=g, dtype=torch.float64))
        v = torch.randn(count, *M.shape, generator=g, dtype=torch.float64)
        t = M.tangent(p, v)
        assert M._flat(M._isometric(t) * M._isometric(v - t)).sum(-1).abs().max() < 1e-9
        assert (M.tangent(p, t) - t).abs().max() < 1e-9
