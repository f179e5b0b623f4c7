"""Steps and networks."""

import copy
import itertools
import math

import pytest
import torch
from torch import nn

import inbounds as ib

STEPS = {
    "Projection(SO(3))": lambda: ib.Projection(ib.SO(3)),
    "Exponential(SO(3))": lambda: ib.Exponential(ib.SO(3)),
    "GroupExponential(SO(3))": lambda: ib.GroupExponential(ib.SO(3)),
    "GroupExponential(SE(3), right)": lambda: ib.GroupExponential(ib.SE(3), side="right"),
    "Projection(SE(3))": lambda: ib.Projection(ib.SE(3)),
    "Exponential(SE(3))": lambda: ib.Exponential(ib.SE(3)),
    "Projection(Sphere(3))": lambda: ib.Projection(ib.Sphere(3)),
    "Exponential(Sphere(3))": lambda: ib.Exponential(ib.Sphere(3)),
    "Exponential(Stiefel(4, 2))": lambda: ib.Exponential(ib.Stiefel(4, 2)),
    "Projection(Ball(2))": lambda: ib.Projection(ib.Ball(2)),
    "GroupExponential(Product)": lambda: ib.GroupExponential(ib.Product(ib.SO(3), ib.Euclidean(3))),
    "Exponential(Product)": lambda: ib.Exponential(ib.Product(ib.Sphere(3), ib.SO(2))),
}


def iaa(step, layers=3, seed=0):
    torch.manual_seed(seed)
    return ib.IAA([ib.MLPBlock(step.M.shape, step.size) for _ in range(layers)], step)


@pytest.mark.parametrize("name", STEPS)
def test_every_hidden_state_is_in_the_set(name):
    step = STEPS[name]()
    net = iaa(step)
    x = torch.randn(4, 5, *step.M.shape)
    states = net.states(x)
    assert len(states) == 4 and torch.equal(states[-1], net(x))
    for h in states:
        assert h.shape == x.shape and step.M.contains(h).all()
    net(x).square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters())
    assert net.dt.requires_grad and net.dt.shape == (3,)


@pytest.mark.parametrize("name", STEPS)
def test_a_zero_update_stays_and_still_learns(name):
    """u = 0: the point stays, and the gradient with respect to u is the derivative, not zero and not NaN."""
    step = STEPS[name]()
    x = step.M.sample(6, generator=torch.Generator().manual_seed(0))
    u = torch.zeros(6, step.size, requires_grad=True)
    y = step(x, u)
    torch.testing.assert_close(y, x, atol=2e-6, rtol=0)
    (g,) = torch.autograd.grad(y, u, torch.randn(y.shape, generator=torch.Generator().manual_seed(1)))
    assert torch.isfinite(g).all() and g.abs().amax() > 1e-3


@pytest.mark.parametrize("name", STEPS)
def test_steps_take_flat_and_shaped_outputs(name):
    step = STEPS[name]()
    x, u = step.M.sample(6), torch.randn(6, step.size)
    flat = step(x, u)
    assert step.M.contains(flat).all() and step.M.contains(step(None, u)).all()
    if step.size == math.prod(step.M.shape):
        torch.testing.assert_close(step(x, u.reshape(6, *step.M.shape)), flat)


def test_group_sides():
    """left: exp(u) x, right: x exp(u)."""
    G = ib.SE(3)
    x, u = G.sample(5, dtype=torch.float64), torch.randn(5, 6, dtype=torch.float64)
    torch.testing.assert_close(ib.GroupExponential(G)(x, u), G.group_exp(u) @ x)
    torch.testing.assert_close(ib.GroupExponential(G, side="right")(x, u), x @ G.group_exp(u))


LONG = [
    n
    for n in STEPS
    if any(M in n for M in ("(SO(3))", "(SE(3)", "(Sphere(3))")) and n not in ("Projection(SE(3))", "Exponential(SE(3))")
]


@pytest.mark.parametrize("name", LONG)  # projection and geodesics on SE(3) are those on SO(3)
@pytest.mark.parametrize("updates", [1_000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_float32_updates_do_not_drift(name, updates):
    step = STEPS[name]()
    g = torch.Generator().manual_seed(0)
    x, states = step.M.sample(4, generator=g), []
    with torch.no_grad():
        for v in 0.1 * torch.randn(updates, 4, step.size, generator=g):
            x = step(x, v)
            states.append(x)
        assert step.M.violation(torch.stack(states).double()).max() < 2e-6


def test_faa_bases():
    G = ib.SE(3)
    net = nn.Linear(5, 6)
    x, pose = torch.randn(7, 5), G.sample()
    step = ib.GroupExponential(G)
    torch.testing.assert_close(ib.FAA(net, step)(x), step(None, net(x)))
    torch.testing.assert_close(ib.FAA(net, step, base=pose)(x), step(pose.expand(7, 4, 4), net(x)))
    poses = torch.randn(7, 4, 4)
    residual = ib.FAA(nn.Sequential(nn.Flatten(), nn.Linear(16, 6)), step, base=nn.Identity())
    assert G.contains(residual(poses)).all()
    assert G.contains(ib.FAA(nn.Linear(5, 16), ib.Projection(G))(x)).all()
    assert G.contains(ib.FAA(nn.Linear(5, 16), ib.Projection(G), base=pose)(x)).all()
    with pytest.raises(ValueError, match=r"base=M.project\(point\)"):
        ib.FAA(net, step, base=torch.ones(4, 4))


def test_faa_takes_any_module_and_context():
    class Net(nn.Module):
        def forward(self, tokens, scale, shift=0.0):
            return tokens.float() * scale + shift

    faa = ib.FAA(Net(), ib.Projection(ib.Sphere(3)))
    y = faa(torch.randint(5, (4, 3)), torch.tensor(2.0), shift=1.0)
    assert ib.Sphere(3).contains(y).all()


def test_head():
    """Projection: P_M(head(h + dt block(h))). Exponentials: step(h, dt head(block(h)))."""
    M, head = ib.Sphere(3), nn.Linear(3, 3)
    net = ib.IAA([ib.MLPBlock(3, 3)], ib.Projection(M), dt=0.5, head=head)
    x = torch.randn(4, 3)
    torch.testing.assert_close(net(x), M(head(M(x) + 0.5 * net.blocks[0](M(x)))))
    G, head = ib.SO(3), nn.Linear(9, 3)
    net = ib.IAA([ib.MLPBlock((3, 3), 3), ib.MLPBlock((3, 3), 9)], ib.GroupExponential(G), head=head)
    R = torch.randn(4, 3, 3)
    h = net.states(R)[1]
    torch.testing.assert_close(net(R), net.step(h, net.dt[1] * head(net.blocks[1](h))))


# --- blocks --------------------------------------------------------------------------------------------------


def test_attention_block_is_relu_of_torchs_encoder_layer():
    block = ib.AttentionBlock((3, 3), 9, heads=3, width=32)
    torch_layer = nn.TransformerEncoderLayer(9, 3, 32, 0.0, batch_first=True)
    torch_layer.load_state_dict(block.encoder.state_dict())
    x = torch.randn(2, 4, 10, 3, 3)  # two batch dims, ten tokens
    mask = torch.zeros(2, 4, 10, dtype=torch.bool)
    mask[..., 7:] = True
    expected = torch.relu(torch_layer(x.reshape(8, 10, 9), src_key_padding_mask=mask.reshape(8, 10))).reshape(2, 4, 10, 9)
    torch.testing.assert_close(block(x, key_padding_mask=mask)[..., :7, :], expected[..., :7, :])
    torch.testing.assert_close(block(x[0, 0]), torch.relu(torch_layer(x[0, 0].flatten(1)[None]))[0])
    assert ib.AttentionBlock((3, 3), 3, heads=4, dim=16)(x).shape == (2, 4, 10, 3)


def test_padding_does_not_reach_other_tokens():
    step = ib.Projection(ib.SO(3))
    net = ib.IAA([ib.AttentionBlock((3, 3), 9, heads=3) for _ in range(2)], step)
    x, mask = torch.randn(2, 6, 3, 3), torch.zeros(2, 6, dtype=torch.bool)
    mask[:, 4:] = True
    other = x.clone()
    other[:, 4:] = torch.randn(2, 2, 3, 3)
    a, b = net(x, key_padding_mask=mask), net(other, key_padding_mask=mask)
    torch.testing.assert_close(a[:, :4], b[:, :4])
    mlp = ib.IAA([ib.MLPBlock((3, 3), 9)], step)
    torch.testing.assert_close(mlp(x, key_padding_mask=mask), mlp(x))


def test_a_stack_of_networks_under_vmap():
    """K models at once: stack_module_state + functional_call + vmap, attention included."""
    nets = [ib.IAA([ib.AttentionBlock((3, 3), 9, heads=3, width=18)], ib.Projection(ib.SO(3))) for _ in range(3)]
    params, buffers = torch.func.stack_module_state(nets)
    skeleton = copy.deepcopy(nets[0]).to("meta")
    x = torch.randn(2, 5, 3, 3)

    def run(p, b, x):
        return torch.func.functional_call(skeleton, (p, b), (x,))

    y = torch.func.vmap(run, in_dims=(0, 0, None))(params, buffers, x)
    torch.testing.assert_close(y, torch.stack([net(x) for net in nets]), atol=1e-5, rtol=1e-5)


# --- projected ODE -------------------------------------------------------------------------------------------


class Spin(nn.Module):
    """x' = t w x x: turns by |w| t^2 / 2 about w."""

    def forward(self, t, x):
        w = torch.tensor([0.3, -1.0, 0.7], dtype=x.dtype)
        return t * torch.linalg.cross(w.expand_as(x), x) + 0.5 * x  # the normal part must not matter


class Push(nn.Module):
    """A constant wind: runs into the boundary of the disk and slides along it to (1, 0)."""

    def forward(self, x):
        return torch.tensor([1.0, 0.0], dtype=x.dtype).expand_as(x)


def errors(make, exact, x):
    return [float((make(n)(x) - exact).norm(dim=-1).max()) for n in (20, 40, 80)]


@pytest.mark.parametrize("method, order", [("euler", 1), ("heun", 2), ("rk4", 4)])
def test_order_without_boundary_contact(method, order):
    x = ib.Sphere(3).sample(20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    turn = ib.SO(3).group_exp(torch.tensor([0.3, -1.0, 0.7], dtype=torch.float64) * 2.0)  # t^2 / 2 at t = 2
    e = errors(lambda n: ib.ProjectedODE(Spin(), ib.Sphere(3), horizon=2.0, steps=n, method=method), x @ turn.mT, x)
    rates = [math.log2(a / b) for a, b in itertools.pairwise(e)]
    assert all(abs(r - order) < 0.35 for r in rates), (e, rates)


@pytest.mark.parametrize("method", ["euler", "heun", "rk4"])
def test_order_one_with_boundary_contact(method):
    """From (0, s) the wind reaches the circle at angle asin s after sqrt(1 - s^2), then slides: d angle/dt = -sin angle."""
    s = torch.linspace(0.2, 0.9, 15, dtype=torch.float64)
    x = torch.stack([0 * s, s], -1)
    rest = 1.5 - (1 - s * s).sqrt()
    angle = 2 * torch.atan(torch.tan(torch.asin(s) / 2) * torch.exp(-rest))
    exact = torch.stack([torch.cos(angle), torch.sin(angle)], -1)
    errs = [
        float(
            (ib.ProjectedODE(Push(), ib.Ball(2), horizon=1.5, steps=n, method=method, time=False)(x) - exact).norm(dim=-1).max()
        )
        for n in (50, 200, 800)
    ]
    rates = [math.log(a / b, 4) for a, b in itertools.pairwise(errs)]
    assert all(0.7 < r for r in rates) and errs[-1] < 4e-3, (errs, rates)
    assert rates[-1] < 1.6 or errs[-1] < 1e-6, (errs, rates)


def test_trajectory_stays_in_the_set():
    world = ib.BoxMinusBalls([0.0, 0.0], [4.0, 3.0], [[2.0, 1.5]], [0.6])
    ode = ib.ProjectedODE(nn.Linear(2, 2), world, steps=15, method="rk4", time=False)
    x = world.sample(8)
    path = ode.trajectory(x)
    assert path.shape == (16, 8, 2) and torch.equal(path[-1], ode(x))
    assert (world.violation(path) == 0).all()
    path[-1].sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in ode.parameters())


# --- plain modules -------------------------------------------------------------------------------------------


def test_state_dict_and_copies():
    a, b = iaa(ib.Projection(ib.SO(3)), seed=0), iaa(ib.Projection(ib.SO(3)), seed=1)
    x = torch.randn(4, 3, 3)
    b.load_state_dict(a.state_dict())
    assert torch.equal(a(x), b(x)) and torch.equal(copy.deepcopy(a)(x), a(x))
    y = copy.deepcopy(a).double()(x.double())
    assert y.dtype == torch.float64 and ib.SO(3).violation(y).max() < 1e-14


@pytest.mark.parametrize("name", STEPS)
def test_geometry_keeps_float32_under_autocast(name):
    step = STEPS[name]()
    net = iaa(step)
    x = torch.randn(64, *step.M.shape)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        states = net.states(x)
        direct = step.M.violation(states[-1])
    for h in states:
        assert h.dtype == torch.float32
        assert step.M.contains(h).all() and step.M.violation(h.double()).max() < 2e-6
    assert direct.max() < 2e-6


def test_training_reaches_a_small_loss_inside_the_set():
    """A network that must learn a rotation: the loss falls, every output is a rotation all along."""
    torch.manual_seed(0)
    M = ib.SO(3)
    target = M.sample(generator=torch.Generator().manual_seed(3))
    net = iaa(ib.Projection(M), layers=2)
    x = M.sample(128, generator=torch.Generator().manual_seed(4))
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    first = last = None
    for _ in range(300):
        y = net(x)
        loss = (y - target @ x).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        last = float(loss.detach())
        first = last if first is None else first
        assert M.contains(y).all()
    assert last < 0.1 * first


# --- geometric deep networks ------------------------------------------------------------------------------------------
PAIRS = {
    "rotation to vector": lambda: (ib.SO(3), ib.Sphere(3)),
    "vector to pose": lambda: (ib.Sphere(4), ib.SE(3)),
    "hyperbolic to Stiefel": lambda: (ib.Hyperboloid(3), ib.Stiefel(4, 2)),
    "product to flat": lambda: (ib.Product(ib.SO(3), ib.Euclidean(2)), ib.Euclidean(3)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_geometric_network_is_exp_after_the_network_after_log(name):
    M, N = PAIRS[name]()
    net = nn.Linear(math.prod(M.shape), math.prod(N.shape))
    model = ib.GDN(net, M, N)
    assert model.M_in is M and model.M_out is N and len(list(model.parameters())) == 2
    x = M.sample(4, 5, generator=torch.Generator().manual_seed(0))
    y = model(x)
    assert y.shape == (4, 5, *N.shape) and N.contains(y).all()
    o, p = M.origin(x).expand_as(x), N.origin(x).expand_as(y)
    u = net(M.log(o, x).flatten(2)).reshape(y.shape)
    torch.testing.assert_close(y, N.refine(N.exp(p, N.tangent(p, u))), atol=1e-5, rtol=1e-5)
    y.square().sum().backward()
    at_origin = model(M.origin(x))  # a logarithm of 0 still learns
    at_origin.sum().backward()
    assert all(torch.isfinite(q.grad).all() for q in model.parameters())


def test_a_geometric_network_that_copies_the_logarithm_is_the_identity():
    M = ib.SO(3)
    x = M.sample(20, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ib.GDN(nn.Identity(), M, M)(x), x, atol=2e-5, rtol=0)


def test_a_wrong_geometric_network_names_the_fix():
    net = nn.Linear(3, 3)
    for M, N, field, words in (
        (ib.Ball(3), ib.Sphere(3), net, r"logarithm as M_in, got Ball\(3\)\. Use FAA"),
        (ib.Stiefel(3, 1), ib.Sphere(3), net, r"logarithm as M_in, got Stiefel\(3, 1\)"),
        (ib.Sphere(3), ib.Ball(3), net, r"as M_out, got Ball\(3\)\. Use FAA\(net, Projection"),
        (ib.Sphere(3), "sphere", net, "as M_out, got str"),
        (ib.Sphere(3), ib.Sphere(3), torch.tanh, "bare function"),
    ):
        with pytest.raises(TypeError, match=words):
            ib.GDN(field, M, N)
    with pytest.raises(ValueError, match=r"asked for shape \(\*batch, 3\)"):
        ib.GDN(net, ib.Sphere(3), ib.Sphere(3))(torch.zeros(4))
    with pytest.raises(ValueError, match="asked for 3 numbers per point"):
        ib.GDN(nn.Linear(3, 2), ib.Sphere(3), ib.Sphere(3))(torch.ones(4, 3))
