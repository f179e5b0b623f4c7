"""Riemannian optimisers reach the constrained optimum, with and without a boundary, and keep their state without the set."""

import io

import pytest
import torch
from catalogue import DEAR, OVERLAP, PLANE, SETS, SOLVED
from torch import nn
from torch.nn.utils import parametrize

import inbounds as ib

D = torch.float64


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=D, generator=torch.Generator().manual_seed(seed))


def rule(steps, start, M):
    """One rule for every problem below, and for those of benchmarks/beyond.py: nothing is chosen problem by problem.

    The rate begins at a tenth of the length of the start and decays to a millionth of that, so its time constant is steps/13.8.
    The memory of the second moment, 1/(1 - beta), is a fifth of that: a longer one still knows the steep beginning at the end.
    """
    lr = 0.1 * float(M._flat(start).norm(dim=-1).mean())
    return lr, (0.9, 1 - 70 / steps), 1e-6 ** (1 / steps)


def optimise(M, loss, start, steps=500, lr=None, make=ib.optim.RiemannianAdam, **options):
    """The last point of a run by the rule; every point on the way is in M. SGD has a constant rate, below 2 / curvature."""
    p = nn.Parameter(M.project(start))
    first, betas, decay = rule(steps, p.detach(), M)
    if make is ib.optim.RiemannianAdam and "betas" not in options:
        lr, options = first, {**options, "betas": betas}
    opt = make([{"params": [p], "manifold": M}], lr=lr, **options)
    slower = torch.optim.lr_scheduler.ExponentialLR(opt, decay if make is ib.optim.RiemannianAdam else 1.0)
    for _ in range(steps):
        opt.zero_grad()
        loss(p).sum().backward()
        opt.step()
        slower.step()
        assert M.contains(p.detach()).all()
    return p.detach()


MAKERS = [ib.optim.RiemannianAdam, ib.optim.RiemannianSGD]


@pytest.mark.parametrize("move", ["retract", "exp"])
@pytest.mark.parametrize("make", MAKERS)
def test_procrustes_on_a_stiefel_manifold(make, move):
    """min |X A - B| over orthonormal columns is the polar factor of B A^T."""
    M, A, B = ib.Stiefel(5, 2), draw(2, 6), draw(5, 6, seed=1)
    x = optimise(M, lambda X: (X @ A - B).square().sum(), draw(5, 2, seed=2), make=make, lr=0.02, move=move)
    torch.testing.assert_close(x, M.project(B @ A.T), atol=1e-5, rtol=0)


@pytest.mark.parametrize("move", ["retract", "exp"])
def test_the_average_of_rotations(move):
    """The sum of squared distances is least at the projection of the mean; three problems at once, each with its own moment."""
    M = ib.SO(3)
    R = M.project(M.sample(3, 1, generator=torch.Generator().manual_seed(0), dtype=D) + 0.3 * draw(3, 7, 3, 3))
    x = optimise(M, lambda X: (X[:, None] - R).square().sum(), draw(3, 3, 3, seed=3), move=move)
    torch.testing.assert_close(x, M.project(R.mean(1)), atol=1e-6, rtol=0)


def test_the_leading_eigenvector_on_a_sphere():
    V = torch.linalg.qr(draw(6, 6))[0]
    A = V @ torch.diag(torch.tensor([5.0, 3.0, 2.0, 1.0, 0.5, 0.1], dtype=D)) @ V.T
    x = optimise(ib.Sphere(6), lambda x: -(x @ A @ x), draw(6, seed=4))
    assert 1 - (x @ V[:, 0]).abs() <= 1e-10


def test_a_quadratic_on_a_ball_by_its_secular_equation():
    Q, b = torch.diag(torch.tensor([1.0, 4.0, 10.0], dtype=D)), torch.tensor([3.0, -4.0, 8.0], dtype=D)
    low, high = 0.0, 100.0
    for _ in range(100):  # |(Q + l I)^-1 b| = 1
        l = 0.5 * (low + high)
        best = torch.linalg.solve(Q + l * torch.eye(3, dtype=D), b)
        low, high = (l, high) if best.norm() > 1 else (low, l)
    x = optimise(ib.Ball(3), lambda x: 0.5 * x @ Q @ x - b @ x, draw(3, seed=5))
    torch.testing.assert_close(x, best, atol=1e-5, rtol=0)


def test_moments_of_single_coordinates_would_move_the_optimum():
    """The same problem with torch's Adam and a projection after every step stops elsewhere: what the scalar moment is for."""
    Q, b = torch.diag(torch.tensor([1.0, 4.0, 10.0], dtype=D)), torch.tensor([3.0, -4.0, 8.0], dtype=D)
    M, ends = ib.Ball(3), []
    for scalar in (True, False):
        p = nn.Parameter(torch.zeros(3, dtype=D))
        group = [{"params": [p], "manifold": M}] if scalar else [p]
        opt = (ib.optim.RiemannianAdam if scalar else torch.optim.Adam)(group, lr=0.1, betas=(0.9, 1 - 70 / 500))
        decay = torch.optim.lr_scheduler.ExponentialLR(opt, 1e-6 ** (1 / 500))
        for _ in range(500):
            opt.zero_grad()
            (0.5 * p @ Q @ p - b @ p).backward()
            opt.step()
            decay.step()
            p.data = M.project(p.data)
        ends.append(float(M.tangent(p.detach(), b - Q @ p.detach()).norm()))
    assert ends[0] <= 1e-4 and ends[1] >= 0.1


def test_a_weighted_nearest_covariance_has_the_certificate_of_its_optimum():
    """Convex: X is optimal iff the gradient G is positive semidefinite and <G, X> = 0."""
    C, W = draw(4, 4), draw(4, 4, seed=1).abs() + 0.5
    C, W = C + C.T, W + W.T
    x = optimise(ib.PSD(4), lambda X: 0.5 * (W * (X - C).square()).sum(), draw(4, 4, seed=2), steps=1000)
    G = W * (x - C)
    assert torch.linalg.eigvalsh(G)[0] >= -1e-5 and (G * x).sum().abs() <= 1e-5
    assert torch.linalg.eigvalsh(x)[0] <= 1e-8  # the cone is what holds it


def test_a_stationary_point_among_obstacles():
    M, goal = ib.BoxMinusBalls(*PLANE, *OVERLAP), torch.tensor([1.5, 1.5], dtype=D)  # inside of an obstacle
    x = optimise(M, lambda x: (x - goal).square().sum(), 4 * draw(8, 2).abs())
    assert M._flat(M.tangent(x, 2 * (goal - x))).norm(dim=-1).max() <= 1e-5


def test_hyperbolic_means_need_the_hyperbolic_gradient():
    """At the mean of points the sum of their logarithms is 0."""
    M = ib.Hyperboloid(3)
    points = M.sample(5, generator=torch.Generator().manual_seed(0), dtype=D)
    for make in MAKERS:
        x = optimise(M, lambda x: M.geodesic_distance(x, points).square().sum(), draw(3, seed=1), make=make, lr=0.05)
        assert M.log(x.expand_as(points), points).sum(0).norm() <= 1e-5


def test_a_product_has_one_moment_for_each_factor():
    """A steep factor does not slow down a flat one: both move as they would alone."""
    parts = [ib.Sphere(3), ib.Product(ib.Ball(2), ib.SO(2))]
    M, g = ib.Product(*parts), torch.Generator().manual_seed(0)
    start = M.sample(2, generator=g, dtype=D)
    pull = draw(2, 9) * torch.tensor([1e4] * 3 + [1.0] * 2 + [1e-4] * 4, dtype=D)
    few = {"steps": 5, "lr": 0.2, "betas": (0.9, 0.99)}
    whole = optimise(M, lambda x: x * pull, start, **few)
    sets, at = [parts[0], *parts[1].sets], 0
    for s in sets:
        n = s.shape[0] ** len(s.shape)
        own = optimise(
            s, lambda x, a=at, n=n: x.flatten(1) * pull[:, a : a + n], start[:, at : at + n].reshape(-1, *s.shape), **few
        )
        torch.testing.assert_close(own.flatten(1), whole[:, at : at + n])
        at += n


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_parameters_without_a_set_get_what_torch_gives_them(momentum):
    pairs = [
        (ib.optim.RiemannianAdam, torch.optim.Adam, {"betas": (momentum, 0.99)}),
        (ib.optim.RiemannianSGD, torch.optim.SGD, {"momentum": momentum}),
    ]
    for ours, theirs, options in pairs:
        ends = []
        for make in (ours, theirs):
            torch.manual_seed(0)
            net, p = nn.Linear(3, 2), nn.Parameter(ib.Sphere(3).sample(4, generator=torch.Generator().manual_seed(1)))
            groups = [{"params": net.parameters()}]
            if make is ours:
                groups.append({"params": [p], "manifold": ib.Sphere(3)})
            opt = make(groups, lr=0.1, **options)
            for _ in range(5):
                opt.zero_grad()
                net(p if make is theirs else p.detach()).square().sum().backward()
                opt.step()
                if make is ours:
                    assert ib.Sphere(3).contains(p).all()
            ends.append(net.weight.detach())
            p.grad = None
        torch.testing.assert_close(*ends)


@pytest.mark.parametrize("make", MAKERS)
def test_the_state_is_kept_without_the_set_and_a_run_goes_on_where_it_was(make):
    """Saved after five steps and loaded with weights_only=True, the next five are those of a run of ten."""
    M, target = ib.Sphere(3), torch.tensor([0.0, 0.6, 0.8])

    def optimiser(p, M=M):
        return make([{"params": [p], "manifold": M}], lr=0.1, **({"momentum": 0.9} if make is MAKERS[1] else {}))

    def run(opt, p, steps):
        for _ in range(steps):
            opt.zero_grad()
            (p - target).square().sum().backward()
            opt.step()

    start = M.project(torch.tensor([1.0, 2.0, -3.0]))
    whole, half = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    run(optimiser(whole), whole, 10)
    first = optimiser(half)
    run(first, half, 5)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    again = optimiser(half)
    again.load_state_dict(torch.load(file, weights_only=True))
    assert again.param_groups[0]["manifold"] is M
    run(again, half, 5)
    torch.testing.assert_close(half, whole, rtol=0, atol=0)
    other = optimiser(nn.Parameter(0.5 * start), ib.Ball(3))
    with pytest.warns(UserWarning, match=r"kept with Sphere\(3\) and has Ball\(3\)"):
        other.load_state_dict(first.state_dict())


@pytest.mark.parametrize("M", [ib.SO(3), ib.SO(5), ib.Stiefel(6, 3)], ids=repr)
def test_short_steps_are_projections(M):
    """Where no derivative is asked for, a retraction by a short v is found without an SVD: the same point, to rounding."""
    for dtype, size in ((D, 1e-3), (D, 0.29), (torch.float32, 0.29), (D, 2.0)):
        x = M.sample(50, generator=torch.Generator().manual_seed(0), dtype=dtype)
        v = draw(50, *M.shape).to(dtype)
        v = size * v / v.flatten(1).norm(dim=-1)[:, None, None]
        y = M.retract(x, v)
        assert M.contains(y).all()
        torch.testing.assert_close(y, M.project(x + v), atol=100 * torch.finfo(dtype).eps, rtol=0)


def test_a_closure_is_called_once_and_its_value_returned():
    p = nn.Parameter(ib.Sphere(3).origin(torch.zeros(1)))
    opt = ib.optim.RiemannianSGD([{"params": [p], "manifold": ib.Sphere(3)}], lr=0.1)

    def closure():
        opt.zero_grad()
        loss = p.sum()
        loss.backward()
        return loss

    assert float(opt.step(closure).detach()) == 1.0 and p[1] < 0


def test_wrong_use_names_the_fix():
    M, p = ib.Ball(2), nn.Parameter(torch.zeros(2))
    adam = ib.optim.RiemannianAdam
    for groups, options, error, words in (
        ([{"params": [p], "manifold": "ball"}], {}, TypeError, r'asked for a set as "manifold", got str\. Write'),
        ([{"params": [p], "manifold": M}], {"move": "exp"}, TypeError, r'needs a Manifold .*Ball\(2\)\. Use move="retract"'),
        ([{"params": [nn.Parameter(torch.ones(2))], "manifold": M}], {}, ValueError, r"violation 4\.1e-01\. Write p\.data"),
        ([{"params": [nn.Parameter(torch.zeros(3))], "manifold": M}], {}, ValueError, r"asked for shape \(\*batch, 2\)"),
        ([{"params": [nn.Parameter(torch.zeros(2).half())], "manifold": M}], {}, TypeError, r"Write p\.float\(\)"),
        ([{"params": [p], "manifold": ib.Ball(2, radius=torch.ones(3))}], {}, ValueError, "a point of its own"),
        ([p], {"move": "fly"}, ValueError, "move="),
        ([p], {"lr": -1.0}, ValueError, "lr >= 0"),
        ([p], {"betas": (0.9, 1.0)}, ValueError, "betas < 1"),
    ):
        with pytest.raises(error, match=words):
            adam(groups, **options)
    with pytest.raises(ValueError, match="momentum < 1"):
        ib.optim.RiemannianSGD([p], momentum=1.0)


# --- torch.nn.utils.parametrize ------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [n for n in SETS | SOLVED if n != DEAR])
def test_every_set_constrains_a_weight(name):
    """The weight is in M after registration, after an assignment, which is kept to rounding, and after a step of training."""
    M = (SETS | SOLVED)[name]()
    holder = nn.Module()
    holder.weight = nn.Parameter(draw(2, *M.shape).float())
    parametrize.register_parametrization(holder, "weight", M)
    assert M.contains(holder.weight).all()
    y = M.sample(2, generator=torch.Generator().manual_seed(1))
    holder.weight = y
    torch.testing.assert_close(holder.weight, y, atol=1e-5, rtol=1e-5)
    opt = torch.optim.SGD(holder.parameters(), lr=0.1)
    (holder.weight * draw(2, *M.shape, seed=2).float()).sum().backward()
    opt.step()
    assert M.contains(holder.weight).all()
    parametrize.remove_parametrizations(holder, "weight")
    assert isinstance(holder.weight, nn.Parameter) and M.contains(holder.weight).all()
