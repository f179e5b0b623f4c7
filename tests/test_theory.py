"""The paper's theorems on real networks and flows: what holds, what is sharp, and what fails as printed. See docs/errata.md."""

import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import inbounds as ib
from inbounds import theory

F64 = torch.float64
SLIGHTLY = 1 + 1e-9


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=gen(seed), dtype=F64)


def length(M, v):
    return M._flat(v).norm(dim=-1)


def mlp(size_in, size_out, width=32, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(size_in, width), nn.Tanh(), nn.Linear(width, size_out)).double()


class Near(nn.Module):
    """target + scale net(x) for the inputs of one test: a network whose error is known."""

    def __init__(self, target, net, scale=1.0):
        super().__init__()
        self.target, self.net, self.scale = target, net, scale

    def forward(self, x):
        return self.target + self.scale * self.net(x).reshape(self.target.shape)


WORLD = ib.BoxMinusBalls([0.0, 0.0], [4.0, 3.0], [[1.2, 1.9], [1.7, 1.1], [3.0, 0.45]], [0.6, 0.55, 0.6])
SETS = {"sphere": ib.Sphere(3), "small sphere": ib.Sphere(3, radius=0.3), "disk": ib.Ball(2), "SO(3)": ib.SO(3), "world": WORLD}
REACH = {name: M.reach for name, M in SETS.items()}


# --- the reach inequality ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_reach_inequality(name):
    """<z - P z, y - P z> <= |z - P z| / (2 reach) |y - P z|^2 for every z in space and y in M."""
    M = SETS[name]
    scale = 10.0 ** torch.linspace(-3, 1, 200, dtype=F64).reshape(-1, *[1] * len(M.shape))
    z = M.sample(200, generator=gen(), dtype=F64) + scale * randn(200, *M.shape, seed=1)
    y = M.sample(300, generator=gen(2), dtype=F64)
    p = M.project(z)
    v, chord = (z - p)[:, None], y[None] - p[:, None]
    left = M._flat(v * chord).sum(-1)
    right = length(M, v) / (2 * REACH[name]) * length(M, chord) ** 2
    assert (left <= right * SLIGHTLY + 1e-9 * length(M, v)).all()


@pytest.mark.parametrize("radius", [0.2, 1.0, 7.0])
def test_printed_reach_inequality_fails_on_spheres(radius):
    """With inward normals v the inequality is an equality: |v|^2 in place of |v| is too little as soon as |v| < 1."""
    M = ib.Sphere(3, radius=radius)
    x, y = M.sample(2, 100, generator=gen(), dtype=F64)
    for size in (0.5, 0.01):
        v = -size * x / radius
        left, chord2 = (v * (y - x)).sum(-1), (y - x).square().sum(-1)
        torch.testing.assert_close(left, size / (2 * M.reach) * chord2)
        assert (left > size**2 / (2 * M.reach) * chord2).all()


def test_smooth_and_closed_is_not_enough_for_positive_reach():
    """The line y = 0 and the graph of e^-x: smooth, closed, and with two nearest points ever closer to the set."""
    s = torch.linspace(-3, 30, 330_001, dtype=F64)
    graph = torch.stack([s, torch.exp(-s)], -1)
    found = []
    for at in (2.0, 5.0, 10.0):
        low, high = 0.0, math.exp(-at)  # heights nearer to the line, nearer to the graph
        for _ in range(30):
            h = 0.5 * (low + high)
            nearer = (graph - torch.tensor([at, h], dtype=F64)).norm(dim=-1).min() < h
            low, high = (low, h) if nearer else (h, high)
        found.append(h)
    assert all(h <= 0.51 * math.exp(-at) for h, at in zip(found, (2.0, 5.0, 10.0), strict=True)) and found[-1] < 3e-5


# --- Theorem 2.2: flows --------------------------------------------------------------------------------------


class Field(nn.Module):
    """U / sqrt(width) Q tanh(W x + b), with |Q| = 1: no faster than `speed`, Lipschitz with constant `lipschitz`."""

    def __init__(self, size, speed=1.0, lipschitz=1.0, width=16, seed=0):
        super().__init__()
        W, Q = randn(width, size, seed=seed), randn(size, width, seed=seed + 1)
        Q = Q * (speed / math.sqrt(width) / torch.linalg.matrix_norm(Q, 2))
        W = W * (lipschitz / torch.linalg.matrix_norm(W, 2) / torch.linalg.matrix_norm(Q, 2))
        self.W, self.b, self.Q = nn.Parameter(W), nn.Parameter(0.3 * randn(width, seed=seed + 2)), nn.Parameter(Q)

    def forward(self, x):
        flat = x.flatten(1)
        return (torch.tanh(flat @ self.W.mT + self.b) @ self.Q.mT).reshape(x.shape)


class Sum(nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x):
        return sum(part(x) for part in self.parts)


class Constant(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = nn.Parameter(value)

    def forward(self, x):
        return self.value.expand_as(x)


def end(field, M, x, horizon, steps=60):
    with torch.no_grad():
        return ib.ProjectedODE(field, M, horizon=horizon, steps=steps, method="rk4", time=False)(x)


def starts(M, n):
    """Half of them in M at random, half noise projected, so that bodies with a boundary have starts on it."""
    noise = M.project(M.sample(n, generator=gen(1), dtype=F64) + randn(n, *M.shape))
    return torch.cat([M.sample(n, generator=gen(), dtype=F64), noise])


@pytest.mark.parametrize("delta", [0.1, 1e-3])
@pytest.mark.parametrize("name", ["sphere", "disk", "SO(3)"])
def test_flows_of_networks_obey_the_bound(name, delta):
    M, horizon, speed, lipschitz = SETS[name], 1.0, 1.0, 1.0
    size = math.prod(M.shape)
    F = Field(size, speed - delta, lipschitz)
    f = Sum(F, Field(size, delta, 1.0, seed=7))  # |F - f| <= delta, |f| <= speed
    x, steps = starts(M, 60), (60, 120) if name == "disk" else (15, 30)  # first order where a boundary is met
    u, v = F(x), f(x)
    assert length(M, u - v).max() <= delta and max(length(M, u).max(), length(M, v).max()) <= speed
    ends = [[end(field, M, x, horizon, n) for n in steps] for field in (F, f)]
    unsure = sum(float(length(M, a - b).max()) for a, b in ends)  # what the solver still changes
    error = float(length(M, ends[0][1] - ends[1][1]).max())
    bound = theory.flow_bound(delta, horizon, lipschitz, speed, M.reach)
    assert unsure < 0.05 * bound and error + 2 * unsure <= bound
    assert error >= bound / 10  # the bound says something
    assert bound <= theory.flow_bound_young(delta, horizon, lipschitz, speed, M.reach)


E = torch.eye(3, dtype=F64)
# A start, the direction of a constant wind against the curvature there, and a tangent direction of largest curvature.
STAGNATION = {
    "Sphere(3)": (ib.Sphere(3), -E[0], E[0], E[1]),
    "Sphere(2, radius=0.1)": (ib.Sphere(2, radius=0.1), -0.1 * E[0, :2], E[0, :2], E[1, :2]),
    "SO(3)": (ib.SO(3), E, -torch.diag(E[0] + E[1]) / math.sqrt(2), ib.SO(3).hat(E[2]) / math.sqrt(2)),
    "disc of radius 0.2": (
        ib.BoxMinusBalls([-1.0, -1.0], [1.0, 1.0], [[0.0, 0.0]], [0.2]),
        -0.2 * E[0, :2],
        E[0, :2],
        E[1, :2],
    ),
}


def two_winds(name, speed, angle, horizon):
    """|F - f| and |Phi_F(x) - Phi_f(x)|, exact, for two constant fields of one speed, `angle` apart; checked against the solver.

    F keeps x where it is. Under f the point moves on a circle of radius r = reach, at an angle a to f with a' = (U / r) sin a.
    """
    M, x, normal, side = STAGNATION[name]
    turned = 2 * math.atan(math.tan(angle / 2) * math.exp(speed * horizon / M.reach)) - angle
    exact = 2 * M.reach * math.sin(turned / 2)
    F, f = Constant(speed * normal), Constant(speed * (math.cos(angle) * normal + math.sin(angle) * side))
    a, b = (end(field, M, x[None], horizon)[0] for field in (F, f))
    tolerance = 1e-4 if isinstance(M, ib.Manifold) else 0.05  # first order along a boundary
    assert math.isclose((a - b).norm(), exact, rel_tol=tolerance)
    return 2 * speed * math.sin(angle / 2), exact


@pytest.mark.parametrize("name", STAGNATION)
def test_flow_bound_is_sharp(name):
    """L = 0: all growth comes from U / reach, and reaches it. Two per cent less would be a false theorem."""
    M, speed = STAGNATION[name][0], 0.5
    horizon = 3 * M.reach / speed
    delta, error = two_winds(name, speed, 1e-3, horizon)
    assert error <= theory.flow_bound(delta, horizon, 0.0, speed, M.reach) <= 1.001 * error
    assert error > theory.flow_bound(delta, horizon, 0.0, 0.98 * speed, M.reach)
    assert error > theory.flow_bound(delta, horizon, 0.0, speed, 1.02 * M.reach)


def printed_flow_bound(delta, horizon, lipschitz, speed, reach, exponent=lambda z: math.exp(z - 1)):
    a = 2 * (lipschitz + speed**2 / reach + 0.5)
    return math.sqrt(delta**2 / a * exponent(a * horizon))


def test_printed_theorem_fails_by_its_exponent():
    """exp(aT - 1) for e^{aT} - 1: at rest or in a wind delta on the disk, T = 2, the ends are 2 delta apart: > sqrt(e) delta."""
    M, delta, horizon = ib.Ball(2), 0.1, 2.0
    x = torch.zeros(1, 2, dtype=F64)
    wind = Constant(delta * E[:1, :2])
    error = float((end(wind, M, x, horizon) - end(Constant(0 * E[:1, :2]), M, x, horizon)).norm())
    for lipschitz in (0.1, 1e-6):  # the theorem asks for L > 0; rest is Lipschitz with every L
        assert error > printed_flow_bound(delta, horizon, lipschitz, delta, M.reach)
        assert error <= theory.flow_bound(delta, horizon, lipschitz, delta, M.reach) * SLIGHTLY
        assert error <= theory.flow_bound_young(delta, horizon, lipschitz, delta, M.reach)


def test_printed_theorem_fails_by_its_square():
    """U^2 / reach for U / reach, the exponent mended: on a small sphere the error is many times the printed bound."""
    name, speed, horizon = "Sphere(2, radius=0.1)", 0.25, 2.0
    reach = STAGNATION[name][0].reach
    delta, error = two_winds(name, speed, 1e-4, horizon)
    assert error > 5 * printed_flow_bound(delta, horizon, 1e-6, speed, reach, math.expm1)
    assert error <= theory.flow_bound(delta, horizon, 1e-6, speed, reach)


def test_printed_theorem_depends_on_the_unit_of_length():
    """Lengths in another unit: every bound must scale with them. U / reach does not change, U^2 / reach does."""
    for unit in (1e-3, 1e3):
        for bound in (theory.flow_bound, theory.flow_bound_young):
            assert math.isclose(bound(0.1 * unit, 1.0, 0.5, 2 * unit, unit), unit * bound(0.1, 1.0, 0.5, 2.0, 1.0))
    assert printed_flow_bound(1e-4, 1.0, 0.5, 2e-3, 1e-3) < 0.1 * 1e-3 * printed_flow_bound(0.1, 1.0, 0.5, 2.0, 1.0)


class OutsideWedge(ib.ConstraintSet):
    """{(x, y) : |y| >= x}: the plane without a wedge whose tip is 0. Reach 0: every (h, 0), h > 0, has two nearest points."""

    shape, reach = (2,), 0.0

    def _project(self, z):
        x, y = z.unbind(-1)
        m = 0.5 * (x + y.abs())
        return torch.where((y.abs() < x)[..., None], torch.stack([m, torch.where(y < 0, -m, m)], -1), z)

    def _residuals(self, z):
        return z[..., :0], (z[..., :1] - z[..., 1:].abs())

    def _tangent(self, z, v):
        """Clarke's cone: a half-plane on the edges; at the tip {|v_y| <= -v_x}, where both half-planes meet."""
        x, y = z.unbind(-1)
        edge = y.abs() <= x + 1e-12
        normal = torch.stack([torch.ones_like(y), -torch.where(y < 0, -1.0, 1.0).to(y)], -1) / math.sqrt(2)
        outward = (normal * v).sum(-1, keepdim=True).clamp(min=0)
        return torch.where(edge[..., None], v - outward * normal, v)


def test_without_reach_nearby_fields_lead_far_apart():
    """At the tip of a wedge the sign of delta decides; the distance of the ends does not shrink with delta."""
    M, x = OutsideWedge(), torch.tensor([[-1.0, 0.0]], dtype=F64)
    apart = []
    for delta in (1e-1, 1e-3, 1e-6):
        up, down = (end(Constant(torch.tensor([1.0, s * delta], dtype=F64)), M, x, 2.0, steps=20) for s in (1, -1))
        assert M.contains(up, tol=1e-9) and M.contains(down, tol=1e-9)
        apart.append(float((up - down).norm()))
        assert theory.flow_bound(2 * delta, 2.0, 0.0, 1.0 + delta, M.reach) == math.inf
        flat = ib.Halfspace(E[0, :2])  # the same winds against a convex set
        a, b = (end(Constant(torch.tensor([1.0, s * delta], dtype=F64)), flat, x, 2.0, steps=20) for s in (1, -1))
        assert float((a - b).norm()) <= theory.flow_bound(2 * delta, 2.0, 0.0, 1.0 + delta, flat.reach) * SLIGHTLY
    assert min(apart) > 0.9  # each slides for one second at speed cos 45 degrees: 2 (1/2) apart


def test_the_cone_belongs_to_the_moving_point():
    """y' projected on the cone at another point x(t), as printed, leaves the sphere; at y(t) it stays."""
    M, x = ib.Sphere(3), ib.Sphere(3).sample(20, generator=gen(), dtype=F64)
    F = Field(3)
    y, other = x.clone(), M.sample(20, generator=gen(5), dtype=F64)
    with torch.no_grad():
        for _ in range(200):
            y, other = y + 0.005 * M.tangent(other, F(y)), M.retract(other, 0.005 * M.tangent(other, F(other)))
    assert M.violation(y).max() > 0.1 and M.contains(end(F, M, x, 1.0)).all()


# --- Theorems 3.1 and 3.2: projected outputs -----------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_projected_networks_obey_the_output_bound(name):
    """|F - P f| <= output_bound(|F - f|, reach) at every input, for networks near M and networks that cross the medial axis."""
    M = SETS[name]
    size = math.prod(M.shape)
    x = randn(400, 5)
    with torch.no_grad():
        F = M.sample(generator=gen(3), dtype=F64) + mlp(5, size, seed=1)(x).reshape(-1, *M.shape)
        F = M.project(F)
        regimes = set()
        for noise in (0.03, 0.3, 3.0, 30.0):
            net = Near(F, mlp(5, size, seed=2), noise)
            eps, error = length(M, F - net(x)), length(M, F - ib.FAA(net, ib.Projection(M))(x))
            assert (error <= 2 * eps * SLIGHTLY).all()
            bound = torch.tensor([theory.output_bound(e, REACH[name]) for e in eps.tolist()], dtype=F64)
            assert (error <= bound * SLIGHTLY + 1e-12).all()
            assert error.max() <= theory.output_bound(eps.max(), REACH[name]) * SLIGHTLY + 1e-12
            regimes |= set((eps < REACH[name]).tolist())
    assert regimes == ({True} if REACH[name] == math.inf else {True, False})


def test_output_bound_is_sharp():
    """Circles attain it at every eps < reach, at the foot of F on the ray at angle asin(eps / reach); and 2 eps at the centre."""
    M = ib.Sphere(2, radius=0.5)
    p = torch.tensor([0.5, 0.0], dtype=F64)
    for eps in (1e-6, 0.1, 0.3, 0.4999):
        phi = math.asin(eps / 0.5)
        z = 0.5 * math.cos(phi) * torch.tensor([math.cos(phi), math.sin(phi)], dtype=F64)
        assert math.isclose((z - p).norm(), eps, rel_tol=1e-9)
        assert math.isclose((M.project(z) - p).norm(), theory.output_bound(eps, M.reach), rel_tol=1e-9)
    centre = torch.zeros(2, dtype=F64)
    assert math.isclose((M.project(centre) + p).norm(), theory.output_bound(0.5, M.reach))  # P(0) = e_1 / 2, F = -e_1 / 2


def test_beyond_the_reach_only_continuity_is_lost():
    """Inputs 2h apart on both sides of a point with two projections: the projections stay 2 reach apart as h -> 0."""
    block = torch.diag(torch.tensor([1.0, 0.5, -0.5], dtype=F64))  # s_2 + sign(det) s_3 = 0
    turned = torch.diag(torch.tensor([0.0, 1.0, 1.0], dtype=F64))
    for M, z, step in ((ib.Sphere(3), 0 * E[0], E[0]), (ib.SO(3), block, turned)):
        assert M.uniqueness_margin(z) < 1e-12
        for h in (1e-2, 1e-6, 1e-10):
            jump = M.project(z + h * step) - M.project(z - h * step)
            assert math.isclose(jump.norm(), 2 * M.reach, rel_tol=1e-4)
    assert theory.projection_lipschitz(1.0, 1.0) == math.inf


@pytest.mark.parametrize("name", ["sphere", "small sphere", "SO(3)"])
def test_slope_of_the_projection_is_reach_over_margin(name):
    """|DP(z)| = reach / uniqueness_margin(z): finite wherever the margin is positive, also outside the reach."""
    M = SETS[name]
    size = math.prod(M.shape)
    z = randn(100, *M.shape)
    J = torch.func.vmap(torch.func.jacrev(M.project))(z).reshape(100, size, size)
    margin = M.uniqueness_margin(z)
    assert (margin > 0).all()
    torch.testing.assert_close(torch.linalg.matrix_norm(J, 2), M.reach / margin, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", SETS)
def test_projection_is_lipschitz_inside_the_reach(name):
    """|P z - P w| <= reach / (reach - d) |z - w| for all pairs at most d from M."""
    M, reach = SETS[name], REACH[name]
    near = min(reach, 1.0)
    base = M.sample(200, generator=gen(), dtype=F64)
    z = base + near * randn(200, *M.shape, seed=1) / math.sqrt(math.prod(M.shape))
    z = z[M.distance(z) < 0.99 * near]
    d, p = M.distance(z), M.project(z)
    assert len(z) > 30
    for i in range(len(z)):
        slope = [theory.projection_lipschitz(max(d[i], other), reach) for other in d.tolist()]
        assert (length(M, p[i] - p) <= torch.tensor(slope, dtype=F64) * length(M, z[i] - z) * SLIGHTLY + 1e-12).all()


@pytest.mark.parametrize("name", ["sphere", "SO(3)"])
def test_a_random_shift_makes_the_projection_unique(name):
    """A ReLU network that is exactly 0 on a quarter of its inputs, where all of M (SO(3): several points) is nearest."""
    M = SETS[name]
    size, mass = math.prod(M.shape), 7.0  # mu: mass 7 spread over the samples

    def norm2(v):
        return float((mass * length(M, v).square().mean()).sqrt())

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, size)).double()
    with torch.no_grad():
        net[0].bias.zero_(), net[2].bias.zero_(), net[0].weight.copy_(torch.eye(2))
    x, F = randn(300, 2), M.sample(300, generator=gen(1), dtype=F64)
    faa = ib.FAA(net, ib.Projection(M))
    with torch.no_grad():
        f = net(x).reshape(F.shape)
        eps = norm2(F - f)
        lost = M.uniqueness_margin(f) == 0
        assert 0.1 < lost.double().mean() < 0.5
        for seed in range(20):
            shift = randn(size, seed=seed)
            for eta in (1.0, 1e-3):
                v = shift / shift.norm() * theory.largest_shift(eta, mass)
                net[2].bias.copy_(v)
                assert (M.uniqueness_margin(net(x).reshape(F.shape)) > 0).all()
                error = norm2(F - faa(x))
                assert error <= theory.output_bound_l2(eps, v.norm(), mass) <= (2 * eps + eta) * SLIGHTLY


def test_shift_as_long_as_eta_is_too_long():
    """f = F, so eps = 0, on a line in the plane: v along it, |v| < eta, moves the output by |v| sqrt(mu(Omega)) > eta."""
    M, mass, eta = ib.Affine(torch.tensor([[0.0, 1.0]]), torch.zeros(1)), 9.0, 0.1
    F = M.sample(50, generator=gen(), dtype=F64)

    def error(size):
        moved = M.project(F + torch.tensor([size, 0.0], dtype=F64))
        return float((mass * (F - moved).square().sum(-1).mean()).sqrt())

    assert error(0.9 * eta) > eta
    assert error(theory.largest_shift(eta, mass)) <= eta


# --- Theorem 3.3: exponential outputs ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sphere", "small sphere", "SO(3)"])
@pytest.mark.parametrize("noise", [1e-3, 0.5, 20.0])
def test_exponential_networks_obey_the_bound(name, noise):
    """Lipschitz constant 1 in the ambient metric, also past the cut locus. Targets all over M."""
    M = SETS[name]
    size = math.prod(M.shape)
    x = randn(500, 4)
    F = M.sample(500, generator=gen(1), dtype=F64)
    p = M.sample(generator=gen(2), dtype=F64)
    f = M.log(p.expand_as(F), F)
    net = mlp(4, size, seed=3)
    with torch.no_grad():
        net[2].weight.mul_(noise), net[2].bias.mul_(noise)
        faa = ib.FAA(Near(f, net), ib.Exponential(M), base=p)
        delta = length(M, M.tangent(p.expand_as(F), net(x).reshape(F.shape)))
        error = M.geodesic_distance(F, faa(x))
    lipschitz = theory.exp_lipschitz(0.0)
    assert (error <= theory.exponential_bound(1.0, lipschitz) * delta + 1e-7).all()  # log has half the digits at antipodes
    l2, d2 = (float(v.square().mean().sqrt()) for v in (error, delta))
    assert l2 <= theory.exponential_bound(d2, lipschitz) * SLIGHTLY
    assert noise > 1e-2 or l2 > 0.3 * d2


def test_rotation_vectors_cost_a_factor_sqrt_2():
    """|hat(w)| = sqrt 2 |w|: in coordinates exp is sqrt 2-Lipschitz, near the identity no less."""
    G = ib.SO(3)
    w = G.group_log(G.sample(500, generator=gen(), dtype=F64))
    for size, sharp in ((1e-4, 0.99), (0.3, 0.0)):
        c = size * randn(500, 3, seed=1)
        delta = c.norm(dim=-1)
        for at in (w, 1e-3 * w):
            step = ib.GroupExponential(G)
            error = G.geodesic_distance(G.group_exp(at), step(None, at + c))
            assert (error <= theory.exponential_bound(1.0, math.sqrt(2)) * delta * (1 + 1e-6)).all()
        assert (error >= sharp * math.sqrt(2) * delta).all()


def test_slope_of_the_exponential():
    """|D exp_p(v)| is 1 along v and |sin s| / s across it, s = |v| / r: r the radius, on SO(3) r = 2 sqrt 2 (curvature 1/8)."""
    for M, r in ((ib.Sphere(3, radius=0.7), 0.7), (ib.SO(3), 2 * math.sqrt(2))):
        size = math.prod(M.shape)
        p = M.sample(60, generator=gen(), dtype=F64)
        v = M.tangent(p, 2 * randn(60, *M.shape, seed=1))
        v = (
            v
            * torch.linspace(0.01, 5 * r, 60, dtype=F64).reshape(-1, *[1] * len(M.shape))
            / length(M, v).reshape(-1, *[1] * len(M.shape))
        )
        J = torch.func.vmap(torch.func.jacrev(lambda v, p, M=M: M.exp(p, M.tangent(p, v))))(v, p).reshape(60, size, size)
        s = torch.linalg.svdvals(J)[:, : M.dim]
        angle = length(M, v) / r
        torch.testing.assert_close(s[:, 0], torch.ones(60, dtype=F64), atol=1e-8, rtol=0)
        torch.testing.assert_close(s[:, -1], (torch.sin(angle) / angle).abs(), atol=1e-8, rtol=0)


# --- the functions themselves --------------------------------------------------------------------------------


def test_bounds_at_their_limits():
    b = theory
    assert b.flow_bound(0.1, 2.0, 0.0) == 0.2 and b.flow_bound(0.1, 0.0, 1.0, reach=0.0) == 0.0
    assert math.isclose(b.flow_bound(0.1, 2.0, 1e-12), 0.2) and math.isclose(b.flow_bound(0.1, 2.0, -1e-12), 0.2)
    assert math.isclose(b.flow_bound(0.1, math.inf, -2.0), 0.05)  # a contraction forgets
    assert b.flow_bound(0.1, 1.0, 1e6) == math.inf == b.flow_bound_young(0.1, 1.0, 1e6)
    assert b.flow_bound(0.0, 1.0, 1e6) == 0.0 and b.flow_bound(0.0, 1.0, 1.0, 1.0, reach=0.0) == math.inf
    assert b.growth_rate(1.0, 0.0, 0.0) == 1.0 and b.growth_rate(1.0, math.inf, math.inf) == 1.0
    assert b.growth_rate(1.0, 3.0, 2.0) == 2.5 and b.growth_rate(1.0, reach=2.0) == math.inf
    assert b.output_bound(0.3) == 0.6 and b.output_bound(0.3, math.inf) == 0.3 and b.output_bound(2.0, 2.0) == 4.0
    assert math.isclose(b.output_bound(2.0 - 1e-12, 2.0), 2 * math.sqrt(2), rel_tol=1e-5)
    assert math.isclose(b.output_bound(1e-9, 1.0), 1e-9) and b.output_bound(torch.tensor(0.5), math.inf) == 0.5
    assert math.isclose(b.output_bound_l2(1.0, 0.5, 4.0), 4.0) and b.output_bound_l2(1.0, 0.0, math.inf) == 2.0
    assert b.largest_shift(1.0, 4.0) == 0.25 and b.largest_shift(1.0, 0.0) == math.inf
    assert b.projection_lipschitz(0.5, 1.0) == 2.0 and b.projection_lipschitz(9.0, math.inf) == 1.0
    assert b.exp_lipschitz(2.0) == 1.0 and b.exp_lipschitz(-1.0) == math.inf and b.exp_lipschitz(-1.0, 0.0) == 1.0
    assert math.isclose(b.exp_lipschitz(-4.0, 0.5), math.sinh(1.0)) and b.exponential_bound(0.1, 2.0) == 0.2


def test_the_sharp_bound_is_below_youngs():
    """By Cauchy-Schwarz, at least by sqrt(1 - e^{-T})."""
    for horizon in (1e-3, 0.1, 1.0, 5.0):
        for lipschitz in (-3.0, -0.5, 0.0, 1.0, 20.0):
            for reach in (0.1, 1.0, math.inf):
                args = (0.1, horizon, lipschitz, 2.0, reach)
                assert theory.flow_bound(*args) <= math.sqrt(-math.expm1(-horizon)) * theory.flow_bound_young(*args) * SLIGHTLY


@pytest.mark.parametrize(
    "error, words, call",
    [
        (ValueError, "delta >= 0, got -1", lambda: theory.flow_bound(-1.0, 1.0, 1.0)),
        (ValueError, "horizon >= 0, got nan", lambda: theory.flow_bound(1.0, math.nan, 1.0)),
        (ValueError, "reach >= 0", lambda: theory.output_bound(1.0, reach=-1.0)),
        (ValueError, "one-sided", lambda: theory.growth_rate(-math.inf)),
        (TypeError, "eps as one number", lambda: theory.output_bound(torch.ones(3))),
        (TypeError, "reach as one number", lambda: theory.projection_lipschitz(1.0, None)),
    ],
)
def test_bounds_refuse_what_is_not_a_size(error, words, call):
    with pytest.raises(error, match=words):
        call()


# --- other formulas of the paper -----------------------------------------------------------------------------


def test_printed_projections_on_rotations():
    """det(Y) U V^T is not a rotation; det(U V^T) U V^T is not the nearest one in odd dimensions, and none in even."""
    for n in (3, 4):
        M, Y = ib.SO(n), randn(300, n, n)
        U, _, Vh = torch.linalg.svd(Y)
        Q = U @ Vh
        scaled, signed, ours = torch.det(Y)[:, None, None] * Q, torch.det(Q)[:, None, None] * Q, M.project(Y)
        reflected = torch.det(Y) < 0
        assert 100 < reflected.sum() < 200 and M.contains(ours).all()
        assert (M.violation(scaled) > 1e-3).double().mean() > 0.98
        torch.testing.assert_close(signed[~reflected], ours[~reflected], atol=1e-8, rtol=0)
        further = length(M, Y - signed) - length(M, Y - ours)
        if n == 3:
            assert M.contains(signed).all() and (further[reflected] > 1e-3).all()
        else:
            assert not M.contains(signed[reflected]).any()
        rivals = M.sample(2000, generator=gen(1), dtype=F64)
        assert (length(M, Y[:, None] - rivals) >= length(M, Y - ours)[:, None] - 1e-12).all()


def test_printed_exponential_is_not_the_geodesic_of_se3():
    """exp(X g^-1) g is the ambient geodesic on SO(3); on SE(3) it is longer than the geodesic `exp` to the same end."""
    t = torch.linspace(0, 1, 2001, dtype=F64).reshape(-1, 1, 1, 1)
    for G, geodesic in ((ib.SO(3), True), (ib.SE(3), False)):
        g = G.sample(20, generator=gen(), dtype=F64)
        X = G.tangent(g, randn(20, *G.shape, seed=1))
        X = 3 * X / length(G, X)[:, None, None]
        printed = torch.matrix_exp(t * (X @ torch.linalg.inv(g))) @ g
        chords = (printed[1:] - printed[:-1]).flatten(2).norm(dim=-1)
        gap = (printed[-1] - G.exp(g, X)).flatten(1).norm(dim=-1)
        assert G.contains(printed[-1], tol=1e-9).all()
        if geodesic:
            assert gap.max() < 1e-9 and (chords.sum(0) - 3).abs().max() < 1e-5
        else:
            assert gap.median() > 0.05
            way = length(G, G.log(g, printed[-1]))  # the length of the geodesic to the same end
            assert (chords.sum(0) > way * (1 - 1e-6)).all() and (chords.sum(0) / way).max() > 1.02


def test_heat_kernel_gradient_on_the_circle():
    """exp(-|x-y|^2 / 4t): x + 2t grad log u -> P(x), and the printed x + t grad log u stops half way. With 2t, t is right."""
    s = torch.linspace(0, 2 * math.pi, 20_001, dtype=F64)[:-1]
    circle = torch.stack([torch.cos(s), torch.sin(s)], -1)
    x = (0.4 + 1.2 * torch.rand(20, 1, generator=gen(), dtype=F64)) * circle[::1000]
    p = ib.Sphere(2).project(x)
    for t in (1e-2, 1e-3):
        for width, factor in ((4 * t, 2 * t), (2 * t, t)):
            z = x.clone().requires_grad_()
            (g,) = torch.autograd.grad(torch.logsumexp(-(z[:, None] - circle).square().sum(-1) / width, -1).sum(), z)
            assert ((x + factor * g - p).norm(dim=-1) < 6 * t).all()  # curvature: O(t)
            if width == 4 * t:
                assert ((x + t * g - 0.5 * (x + p)).norm(dim=-1) < 6 * t).all()


@pytest.mark.parametrize("lam", [0.0, 1.0, 9.0])
def test_one_step_planning_loss_has_a_formula(lam):
    """argmin over z in M of |z - y|^2 + lam |z - x|^2 is P_M((y + lam x) / (1 + lam)), against every point of a fine grid."""
    for M, low, high in ((ib.Ball(2), (-1, -1), (1, 1)), (WORLD, (0, 0), (4, 3))):
        axes = [torch.linspace(a, b, 161, dtype=F64) for a, b in zip(low, high, strict=True)]
        grid = torch.cartesian_prod(*axes)
        grid = grid[M.violation(grid) == 0]
        x, y = M.sample(2, 40, generator=gen(), dtype=F64)

        def loss(z, x=x, y=y):
            return (z - y).square().sum(-1) + lam * (z - x).square().sum(-1)

        best = loss(M.project((y + lam * x) / (1 + lam)))
        brute = loss(grid[:, None]).amin(0)
        assert (best <= brute + 1e-9).all() and (brute - best).max() < 0.1 * (1 + lam)


def test_feasible_waypoints_do_not_make_feasible_paths():
    """The exact minimiser, iterated past a disc: every waypoint is free, a segment between two of them is not."""
    M = ib.BoxMinusBalls([-2.0, -2.0], [2.0, 2.0], [[0.0, 0.0]], [0.6])
    x, y, path = torch.tensor([-1.5, 0.1], dtype=F64), torch.tensor([1.5, 0.0], dtype=F64), []
    for _ in range(60):
        path.append(x)
        x = M.project((y + 9 * x) / 10)
    path = torch.stack(path)
    between = 0.5 * (path[1:] + path[:-1])
    assert (M.violation(path) == 0).all() and (path[-1] - y).norm() < 0.1 and M.violation(between).max() > 1e-3


# --- what published numbers can show -------------------------------------------------------------------------


def test_losses_of_guessing_a_rotation():
    """Per entry, targets uniform on SO(3): 1/3 for the zero matrix, 2/3 for every rotation that does not know the target."""
    G = ib.SO(3)
    R = G.sample(40_000, generator=gen(), dtype=F64)
    assert math.isclose(R.square().mean(), 1 / 3)
    for guess in (G.origin(R), G.sample(generator=gen(1), dtype=F64), G.sample(40_000, generator=gen(2), dtype=F64)):
        assert abs(float((R - guess).square().mean()) - 2 / 3) < 0.01


def test_the_best_feasible_prediction_costs_the_distance_of_the_mean():
    """E|Y - z|^2 = E|Y - m|^2 + |z - m|^2: off the set wins by dist(m, M)^2, and P(m) is the best prediction in M."""
    for M in (ib.SO(3), ib.Sphere(3)):
        Y = M.project(M.sample(generator=gen(), dtype=F64) + 0.5 * randn(500, *M.shape))
        m = Y.mean(0)
        free, best = (length(M, Y - z).square().mean() for z in (m, M.project(m)))
        torch.testing.assert_close(best - free, M.distance(m) ** 2)
        rivals = M.sample(2000, generator=gen(1), dtype=F64)
        assert best - free > 1e-3 and (length(M, Y[:, None] - rivals).square().mean(0) >= best - 1e-12).all()


def test_unit_fields_on_the_sphere_jump():
    """A tangent field has a zero; made of length 1, its flow tears the sphere there: starts 2h apart end 2 sin(T) apart."""

    class Unit(nn.Module):
        def forward(self, x):
            v = ib.Sphere(3).tangent(x, E[2].expand_as(x))
            return v / v.norm(dim=-1, keepdim=True)

    for h in (1e-3, 1e-6):
        x = ib.Sphere(3).project(torch.tensor([[h, 0, -1.0], [-h, 0, -1.0]], dtype=F64))
        a, b = end(Unit(), ib.Sphere(3), x, 1.0)
        assert abs(float((a - b).norm()) - 2 * math.sin(1.0)) < 0.01


# --- where the reference implementation departs --------------------------------------------------------------


def test_projecting_before_the_residual_sum_leaves_the_set():
    M = ib.SO(3)
    h, u = M.sample(50, generator=gen(), dtype=F64), randn(50, 3, 3)
    assert (M.violation(h + M.project(u)) > 0.1).all() and M.contains(ib.Projection(M)(h, u)).all()


def test_lie_algebra_coordinates_of_both_signs():
    """Attention ends in ReLU; behind it a linear map, so that every direction of the algebra can be reached."""
    torch.manual_seed(0)
    G = ib.SO(3)
    with torch.no_grad():
        c = ib.AttentionBlock(G.shape, G.dim, heads=3)(G.sample(64, 10, generator=gen()))
    assert (c.flatten(0, 1).amin(0) < 0).all() and (c.flatten(0, 1).amax(0) > 0).all()


def test_left_multiplication_keeps_the_error_of_its_input():
    """A pose off SE(3) by e stays off by e under exact group updates; IAA projects its input once."""
    G, x = ib.SE(3), ib.SE(3).sample(64, generator=gen(), dtype=F64)
    x[:, :3, :3] += 5e-3 * randn(64, 3, 3)
    moved = G.compose(G.group_exp(randn(64, 6, seed=1)), x)
    torch.testing.assert_close(G.violation(moved), G.violation(x), rtol=1e-9, atol=0)
    assert G.violation(x).mean() > 5e-3
    net = ib.IAA([ib.MLPBlock((4, 4), 6).double()], ib.GroupExponential(G))
    assert all(G.contains(h).all() for h in net.states(x))


def test_every_test_the_errata_name_exists():
    root = Path(__file__).parents[1]
    named = set(re.findall(r"`(test_\w+)`", (root / "docs" / "errata.md").read_text()))
    defined = {
        name for file in (root / "tests").glob("test_*.py") for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)
    }
    assert len(named) > 20 and named <= defined, named - defined
