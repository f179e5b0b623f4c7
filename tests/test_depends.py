"""Sets that depend on the network's input, and steps without dead gradients."""

import pytest
import torch
from torch import nn

import inbounds as ib


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Room(nn.Module):
    """A box around the input, of learnable size."""

    shape = (3,)

    def __init__(self):
        super().__init__()
        self.size = nn.Parameter(torch.tensor(0.5))

    def forward(self, z):
        return ib.Box(z - self.size, z + self.size)


class Balance(nn.Module):
    """Nonnegative flows that add up to what the input asks for, with learnable capacities."""

    shape = (3,)

    def __init__(self):
        super().__init__()
        self.capacity = nn.Parameter(torch.ones(3))

    def forward(self, z):
        total = z.abs().sum(-1, keepdim=True).clamp(max=2.0)
        return ib.Polytope(E=torch.ones(1, 3), f=total, low=torch.zeros(3), high=self.capacity)


@pytest.mark.parametrize("make", [Room, Balance])
def test_every_network_takes_a_set_that_depends_on_its_input(make):
    torch.manual_seed(0)
    x = draw(5, 3)
    for build in (
        lambda M: ib.FAA(nn.Linear(3, 3), ib.Projection(M)),
        lambda M: ib.IAA([ib.MLPBlock(3, 3) for _ in range(2)], ib.Projection(M)),
        lambda M: ib.ProjectedODE(nn.Linear(3, 3), M, steps=3, time=False),
    ):
        module = make()
        net = build(ib.Depends(module))
        y = net(x)
        assert module(x).contains(y).all()
        assert {n.split(".")[-1] for n, _ in net.named_parameters()} & {"size", "capacity"}
        (y * draw(5, 3, seed=1)).sum().backward()
        (own,) = module.parameters()
        assert own.grad is not None and own.grad.abs().max() > 0
        assert isinstance(net.M if isinstance(net, ib.ProjectedODE) else net.step.M, ib.Depends)  # the network is left as it was
    states = ib.IAA([ib.MLPBlock(3, 3)], ib.Projection(ib.Depends(make()))).states(x)
    assert all(make()(x).contains(h).all() for h in states)


NETWORKS = {
    "FAA": lambda M: ib.FAA(nn.Linear(3, 3), ib.Projection(M)),
    "IAA": lambda M: ib.IAA([ib.MLPBlock(3, 3)], ib.Projection(M)),
    "ProjectedODE": lambda M: ib.ProjectedODE(nn.Linear(3, 3), M, steps=2, time=False),
}
FOUR = {
    "Box": lambda: ib.Box(-torch.ones(4, 3), torch.ones(4, 3)),
    "Polytope": lambda: ib.Polytope(torch.ones(4, 1, 3), torch.ones(4, 1)),
    "CappedSimplex": lambda: ib.CappedSimplex(3, torch.ones(4, 3)),
    "Simplex": lambda: ib.Simplex(3, total=torch.ones(4)),
    "Ellipsoid": lambda: ib.Ellipsoid(torch.ones(4, 3)),
    "Box and Affine": lambda: ib.Intersection(ib.Box(-torch.ones(4, 3), torch.ones(4, 3)), ib.Affine([[1.0, 1, 1]], [0.5])),
}


class Four(nn.Module):
    """Sets for a batch of four, whatever the input."""

    shape = (3,)

    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, z):
        return self.make()


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("make", FOUR.values(), ids=FOUR)
def test_batch_sizes_that_disagree_are_named_with_the_set(network, make):
    net = NETWORKS[network](ib.Depends(Four(make)))
    assert make().contains(net(draw(4, 3))).all()
    with pytest.raises(ValueError, match=rf"{type(make()).__name__}\(.*\(4,\).*got.*\(5.*(Give|Write)"):
        net(draw(5, 3))


@pytest.mark.parametrize("network", NETWORKS)
def test_training_moves_the_set_of_every_network(network):
    """The box is too small for what is asked: its size grows, and the loss falls."""
    torch.manual_seed(0)
    module = Room()
    net = NETWORKS[network](ib.Depends(module))
    optimizer = torch.optim.Adam(net.parameters(), 0.05)
    x, losses = draw(32, 3), []
    for _ in range(40):
        losses.append((net(x) - (x + 1.5)).square().mean())
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert module.size.detach() > 0.8 and losses[-1].item() < 0.5 * losses[0].item()


def test_a_named_context():
    class Block(nn.Module):
        def forward(self, h, limits):
            return 3 * h

    net = ib.IAA([Block()], ib.Projection(ib.Depends(Room(), name="limits")))
    x, z = draw(4, 3), draw(4, 3, seed=2)
    assert Room()(z).contains(net(x, limits=z)).all()
    with pytest.raises(TypeError, match=r"asked for the keyword argument limits in the call, got none. Write net\(x, limits=z\)"):
        net(x)


def test_alone_it_takes_a_context():
    M, x, z = ib.Depends(Room()), draw(4, 3), draw(4, 3, seed=1)
    torch.testing.assert_close(M.project(x, context=z), Room()(z).project(x))
    assert M.contains(M.project(x, context=z), context=z).all()


class Wrong(nn.Module):
    shape = (3,)

    def forward(self, z):
        return z


class Fixed(nn.Module):
    shape = (2,)

    def forward(self, z):
        return ib.Polytope(draw(4, 5, 2), draw(4, 5).abs())


WRONG = [
    (TypeError, r"needs an nn.Module.*bare function would train nothing", lambda: ib.Depends(lambda x: ib.Ball(3))),
    (TypeError, r"shape of one point.*shape=\(4,\)", lambda: ib.Depends(nn.Identity())),
    (
        TypeError,
        r"asked its module for a set, got Tensor",
        lambda: ib.FAA(nn.Linear(3, 3), ib.Projection(ib.Depends(Wrong())))(draw(2, 3)),
    ),
    (
        ValueError,
        r"points of shape \(2,\), got Box",
        lambda: ib.FAA(nn.Linear(3, 2), ib.Projection(ib.Depends(Room(), shape=2)))(draw(2, 3)),
    ),
    (TypeError, r"is no set until it knows the input", lambda: ib.Depends(Room()).project(draw(3))),
    (
        ValueError,
        r"batch of shape \(4,\), got points of shape \(5, 2\)",
        lambda: ib.FAA(nn.Linear(3, 2), ib.Projection(ib.Depends(Fixed())))(draw(5, 3)),
    ),
    (TypeError, r"Exponential needs a Manifold", lambda: ib.Exponential(ib.Depends(Room()))),
    (TypeError, r"RayScaling needs a convex set, got Sphere\(3\). Use Projection", lambda: ib.RayScaling(ib.Sphere(3))),
    (ValueError, r"asked for a center inside", lambda: ib.RayScaling(ib.Halfspaces([[1.0, 0]], [1.0]))),
    (ValueError, r"strictly inside", lambda: ib.RayScaling(ib.Ball(2), center=[1.0, 0.0])),
]


@pytest.mark.parametrize("error, pattern, f", WRONG, ids=[w[1][:40] for w in WRONG])
def test_bad_input_says_what_to_write(error, pattern, f):
    with pytest.raises(error, match=pattern):
        f()


RAYS = [
    ib.RayScaling(ib.Box([0.0, -1.0], [1.0, 2.0])),
    ib.RayScaling(ib.Ball(3, radius=2.0)),
    ib.RayScaling(ib.Ball(3), center=[0.3, 0.1, -0.2]),
    ib.RayScaling(ib.Ellipsoid([1.0, 2.0, 3.0])),
    ib.RayScaling(ib.Simplex(4), center=[0.25] * 4),
    ib.RayScaling(ib.Polytope([[1.0, 1.0], [-1.0, 0.5], [0.0, -1.0]], [1.0, 1.0, 1.0]), center=[0.0, 0.0]),
]


@pytest.mark.parametrize("step", RAYS, ids=repr)
def test_ray_scaling_is_inside_reaches_everything_and_has_full_rank(step):
    M, n = step.M, step.size
    u = torch.cat([draw(64, n), 1e3 * draw(16, n, seed=1), 1e-6 * draw(8, n, seed=2)])
    y = step(None, u)
    assert M.contains(y).all() and (M.residuals(y)[1] <= 0).all()
    z = 3 * draw(1, n, seed=3).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: step(None, z), (z,), atol=1e-5)
    J = torch.autograd.functional.jacobian(lambda z: step(None, z), z.detach()[0])
    assert torch.linalg.svdvals(J)[n - 2 if isinstance(M, ib.Simplex) else n - 1] > 1e-4
    # onto: the ray through an inner point p is stretched by 1 / (1 - k(p))
    p = 0.5 * M.sample(8, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5 * step.center
    v = p - step.center
    k = step._gauge(v, step.center)
    torch.testing.assert_close(step(None, v / (1 - k)), p, atol=1e-9, rtol=0)


def fit_from_outside(step, penalty=0.0):
    """A network whose outputs start far outside the box, asked for a point inside: the last loss, and the first gradient."""
    torch.manual_seed(0)
    net = nn.Linear(2, 2)
    nn.init.constant_(net.bias, 5.0)
    x, goal = draw(64, 2), torch.tensor([0.3, 0.6])
    optimizer = torch.optim.Adam(net.parameters(), 0.05)
    start = None
    for _ in range(500):
        raw = net(x)
        loss = (step(None, raw) - goal).square().mean()
        optimizer.zero_grad()
        (loss + penalty * step.M.distance(raw).mean()).backward()
        start = float(net.bias.grad.abs().max()) if start is None else start
        optimizer.step()
    return float(loss.detach()), start


def test_projection_stalls_where_ray_scaling_and_the_penalty_do_not():
    box = ib.Box([0.0, 0.0], [1.0, 1.0])
    stalled, nothing = fit_from_outside(ib.Projection(box))
    assert nothing == 0.0 and stalled > 0.3
    assert fit_from_outside(ib.RayScaling(box))[0] < 0.05
    assert fit_from_outside(ib.Projection(box), penalty=0.1)[0] < 0.05


def compiled(step, backend):
    """The compiled step in one graph, forwards and backwards, is the step; and its points are inside."""
    u = torch.cat([draw(16, step.size), 1e3 * draw(4, step.size, seed=1)])
    torch._dynamo.reset()
    f = torch.compile(lambda z: step(None, z), fullgraph=True, backend=backend)
    for dtype in (torch.float32, torch.float64):
        x, z = (u.to(dtype).clone().requires_grad_() for _ in range(2))
        y, true = f(x), step(None, z)
        assert (step.M.residuals(y.detach())[1] <= 0).all()
        torch.testing.assert_close(y, true, atol=1e-5, rtol=1e-5)
        w = draw(*y.shape, seed=2).to(dtype)
        torch.testing.assert_close(torch.autograd.grad(y, x, w), torch.autograd.grad(true, z, w), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("step", [RAYS[0], pytest.param(RAYS[2], marks=pytest.mark.nightly), RAYS[5]], ids=repr)
def test_ray_scaling_in_one_graph(step):
    compiled(step, "aot_eager")


@pytest.mark.inductor_all
@pytest.mark.parametrize("step", RAYS, ids=repr)
def test_ray_scaling_under_inductor(step):
    compiled(step, "inductor")


@pytest.mark.parametrize("step", [RAYS[0], pytest.param(RAYS[2], marks=pytest.mark.nightly), RAYS[5]], ids=repr)
def test_ray_scaling_is_vmapped_and_exported(step):
    u = draw(6, step.size)
    torch.testing.assert_close(torch.func.vmap(lambda z: step(None, z))(u), step(None, u))
    net = ib.FAA(nn.Linear(step.size, step.size), step)
    program = torch.export.export(net, (u,), dynamic_shapes=[{0: torch.export.Dim("batch", min=2, max=64)}])
    more = draw(9, step.size, seed=1)
    torch.testing.assert_close(program.module()(more), net(more))
