"""Learned projections: the integrators against SciPy, training that resumes with the same bits, a sphere learned from samples."""

import copy
import itertools
import json
import math

import pytest
import torch
from scipy.integrate import solve_ivp

import inbounds as ib
from inbounds.learned import Flow, FlowTraining, VelocityNet, denoising
from inbounds.learned import flow as module
from inbounds.learned.rk45 import rk45


def net(size=3, width=16, depth=2, seed=0, gain=2.0):
    """A small field that bends enough for the steps to matter."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        field = VelocityNet(size, width, depth)
        with torch.no_grad():
            field.out.weight *= gain
    return field.double()


def flow(shape=(3,), **knobs):
    return Flow(net(math.prod(shape)), shape, **{"T": 2.0} | knobs).eval()


def points(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def scipy(field, x, T, rtol=1e-6, atol=1e-8):
    """The oracle: one row, from t = T down to 0."""

    def velocity(t, z):
        with torch.no_grad():
            return field(torch.from_numpy(z), torch.tensor(t, dtype=torch.float64)).numpy()

    return solve_ivp(velocity, (T, 0.0), x.numpy(), method="RK45", rtol=rtol, atol=atol)


# --- the network ---------------------------------------------------------------------------------------------
def test_the_network_reads_x_and_t_concatenated():
    """The layers of the paper, with [x; t] formed by cat."""
    field, x, t = net(3).eval(), points(5, 4, 3), points(4)
    h = torch.cat([x, t.expand(5, 4)[..., None]], -1)
    for layer, norm in zip([field.first, *field.hidden], field.norms, strict=True):
        h = torch.nn.functional.gelu(norm(layer(h)))
    torch.testing.assert_close(field(x, t), field.out(h), rtol=1e-12, atol=1e-12)


def test_the_network_of_the_paper():
    field = VelocityNet(9)
    assert (len(field.hidden), field.first.weight.shape, field.out.weight.shape) == (8, (256, 10), (9, 256))
    assert not torch.equal(field(torch.ones(9), torch.ones(())), field(torch.ones(9), torch.ones(())))  # dropout
    field.eval()
    assert torch.equal(field(torch.ones(9), torch.ones(())), field(torch.ones(9), torch.ones(())))


# --- RK45 ----------------------------------------------------------------------------------------------------
def test_rk45_takes_the_steps_of_scipy():
    M, x, evaluations = flow(), points(8, 3), []
    count = M.net.register_forward_hook(lambda *_: evaluations.append(1))
    for row in x:
        evaluations.clear()
        mine = M.project(row)
        taken = len(evaluations)
        want = scipy(M.net, row, M.T)
        assert want.success and taken == want.nfev
        torch.testing.assert_close(mine, torch.from_numpy(want.y[:, -1]), rtol=0, atol=1e-12)
    count.remove()


@pytest.mark.parametrize("rtol", [1e-3, 1e-8])
def test_rk45_agrees_with_scipy_where_steps_are_refused(rtol):
    """A field that jumps: steps fail their error test, by factors beyond the limit of one correction."""
    evaluations = []

    def field(z, t):
        evaluations.append(len(z))
        return torch.stack([torch.tanh(4000 * (t - 0.7)) * z[..., 1], torch.cos(9 * z[..., 0])], -1)

    x = 2 * points(6, 2)
    mine = rk45(field, x, torch.full((6,), 2.0, dtype=torch.float64), rtol, 1e-8, 10_000)
    taken, evaluated = sum(evaluations), 0
    for row, got in zip(x, mine, strict=True):
        want = scipy(field, row, 2.0, rtol=rtol)
        evaluated += want.nfev
        assert want.nfev > 2 + 6 * (len(want.t) - 1)  # refused at least one
        torch.testing.assert_close(got, torch.from_numpy(want.y[:, -1]), rtol=0, atol=1e-8)
    assert taken == evaluated  # rows that have arrived cost nothing


def test_a_row_does_not_depend_on_its_neighbours():
    M = flow()
    x = points(40, 3) * torch.logspace(-3, 3, 40, dtype=torch.float64)[:, None]
    together = M.project(x)
    alone = torch.stack([M.project(row) for row in x])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
    M.CHUNK = 7
    torch.testing.assert_close(M.project(x), together, rtol=1e-12, atol=1e-12)


def test_one_step_size_for_all_rows_would_be_seen():
    """The law above fails for SciPy on the whole batch, whose error norm mixes the rows."""
    M = flow()
    x = points(40, 3) * torch.logspace(-3, 3, 40, dtype=torch.float64)[:, None]
    batch = scipy(lambda z, t: M.net(z.view(40, 3), t).flatten(), x.flatten(), M.T)
    assert (torch.from_numpy(batch.y[:, -1]).view(40, 3) - M.project(x)).abs().max() > 1e-9


def test_rows_that_are_not_finite_do_not_stop_the_others():
    M, x = flow(), points(4, 3)
    bad = x.clone()
    bad[1, 2] = math.nan
    got = M.project(bad)
    assert got[1].isnan().all()
    torch.testing.assert_close(got[[0, 2, 3]], M.project(x)[[0, 2, 3]], rtol=1e-12, atol=1e-12)
    assert M.project(x[:0]).shape == (0, 3)


@pytest.mark.parametrize("mode", [True, False])
def test_finite_points_stay_finite(mode):
    M = Flow(VelocityNet(3, 16, 2), 3, 1.0).train(mode)
    x = torch.tensor([0.0, 1e-30, 1e10, 1e30])[:, None].expand(4, 3).requires_grad_(mode)
    assert M.project(x).isfinite().all()
    far = torch.full((1, 3), 1e300, dtype=torch.float64)
    assert torch.equal(M.project(far), far)  # the field is at most a few units long


def test_too_few_steps_and_broken_fields_raise():
    with pytest.raises(RuntimeError, match=r"4 of 4 rows did not reach t = 0 in 3 RK45 steps.*max_steps"):
        flow(max_steps=3).project(points(4, 3))
    broken = flow()
    broken.net.out.bias[0] = math.nan
    with pytest.raises(RuntimeError, match="4 of 4 rows"):
        broken.project(points(4, 3))


# --- Euler ---------------------------------------------------------------------------------------------------
def test_euler_converges_to_rk45():
    """Order 1: doubling the steps halves the error."""
    M, x = flow(rtol=1e-10, atol=1e-12), points(20, 3)
    exact, errors = M.project(x), []
    for M.steps in (100, 200, 400):
        errors.append(float((M.train().project(x) - exact).norm()))
        M.eval()
    assert errors[0] < 0.1
    assert all(1.9 < a / b < 2.1 for a, b in itertools.pairwise(errors))


@pytest.mark.parametrize("steps", [1, 4])
def test_euler_steps_start_at_the_given_point_and_time(steps):
    M, x = flow(steps=steps).train(), points(5, 3)
    want, dt = x, M.T / steps
    for i in range(steps):
        want = want - dt * M.net(want, torch.tensor(M.T - i * dt, dtype=torch.float64))
    torch.testing.assert_close(M.project(x), want, rtol=1e-12, atol=1e-12)


def test_gradient_of_the_projection():
    M = flow((2, 2), steps=5, scale=0.7)
    x = points(3, 2, 2).requires_grad_()
    for mode in (True, False):  # in eval mode a gradient is that of the Euler steps
        assert torch.autograd.gradcheck(M.train(mode).project, x)


def test_what_is_frozen_gets_no_gradient():
    M, x = flow().train(), points(5, 3).requires_grad_()
    M.project(x).square().sum().backward()
    assert x.grad is not None and x.grad.abs().min() > 0
    assert all(p.grad is None and not p.requires_grad for p in M.parameters())


def test_the_checkpoint_changes_nothing(monkeypatch):
    M, x, w = flow().train(), points(5, 3).requires_grad_(), points(5, 3, seed=1)
    calls = []

    def counting(f, z, **how):
        calls.append(how)
        return original(f, z, **how)

    original = module.checkpoint
    monkeypatch.setattr(module, "checkpoint", counting)
    monkeypatch.setattr(module, "KEPT", 0)  # as if every walk were too long for the memory
    (kept,) = torch.autograd.grad(M.project(x), x, w)
    assert len(calls) == 1
    monkeypatch.setattr(module, "checkpoint", lambda f, z, **how: f(z))
    (plain,) = torch.autograd.grad(M.project(x), x, w)
    assert torch.equal(kept, plain)


def test_tangent_is_the_derivative():
    M, x, v = flow((2, 2), steps=6, scale=3.0).train(), points(4, 2, 2), points(4, 2, 2, seed=1)
    slope = (M.project(x + 1e-6 * v) - M.project(x - 1e-6 * v)) / 2e-6
    torch.testing.assert_close(M.tangent(x, v), slope, rtol=1e-7, atol=1e-8)


def test_transforms_take_the_euler_steps():
    M, x = flow(), points(4, 3)
    torch.testing.assert_close(torch.func.vmap(M.project)(x), M.train().project(x), rtol=1e-12, atol=1e-12)


# --- a set like the others -----------------------------------------------------------------------------------
def test_scale_is_applied_once_on_each_side():
    """Flow(scale=s) at s x is s times Flow at x, in both modes."""
    x = points(6, 3)
    for mode in (True, False):
        plain, scaled = flow().train(mode), flow(scale=40.0).train(mode)
        torch.testing.assert_close(scaled.project(40 * x), 40 * plain.project(x), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(scaled.violation(40 * x), 40 * plain.violation(x), rtol=1e-8, atol=1e-8)


def test_violation_is_the_distance_to_the_own_projection():
    M, x = flow((2, 2)), points(5, 2, 2)
    torch.testing.assert_close(M.violation(x), (x - M.project(x)).flatten(1).norm(dim=1))
    with pytest.raises(NotImplementedError, match="residuals"):
        M.residuals(x)


def test_dtypes_and_casts():
    M, x = flow(), points(5, 3)
    assert M.project(x.float()).dtype == torch.float32
    torch.testing.assert_close(M.project(x.float()).double(), M.project(x), rtol=1e-5, atol=1e-5)
    before = copy.deepcopy(M.net.state_dict())
    M.bfloat16()
    assert all(torch.equal(w, before[k]) for k, w in M.net.state_dict().items())
    assert {p.dtype for p in M.float().parameters()} == {torch.float32}


def test_dropout_stays_off_whatever_the_model_does():
    M = flow()
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), M).train()
    assert M.training and not M.net.training
    x = points(5, 3)
    assert torch.equal(M.project(x), M.project(x))
    model.eval()
    assert not M.training and not M.net.training


@pytest.mark.parametrize("mode", [True, False])
def test_networks_on_a_learned_set(mode):
    """K models of B points at once are the models one by one."""
    step = ib.Projection(flow(steps=4))
    x = points(2, 5, 3).float()
    for model in (
        ib.IAA([ib.MLPBlock((3,), 3) for _ in range(2)], step),
        ib.FAA(ib.MLPBlock((3,), 3), step),
    ):
        model.train(mode)
        y = model(x)
        assert y.shape == x.shape
        torch.testing.assert_close(y, torch.stack([model(k) for k in x]), rtol=1e-5, atol=1e-6)
        y.square().sum().backward()
        learned = [p for n, p in model.named_parameters() if ".M." not in n]
        assert all(p.grad is not None and p.grad.isfinite().all() for p in learned)
        assert all(p.grad is None for p in step.parameters())
        with torch.no_grad():
            assert model(x).isfinite().all()


def test_to_json_and_back():
    M = flow((2, 2), T=1 / 3, scale=0.1, steps=7)
    again = Flow.load(M.tensors(), json.loads(json.dumps(M.spec())))
    x = points(4, 2, 2)
    assert torch.equal(again.project(x), M.project(x)) and torch.equal(again.train().project(x), M.train().project(x))
    assert again.spec() == M.spec() and not again.net.training
    assert repr(flow((9,), T=2.3)) == "Flow(9, T=2.3)" and repr(M) == "Flow((2, 2), T=0.333333, scale=0.1)"


# --- training ------------------------------------------------------------------------------------------------
def training(n=60, **knobs):
    small = {"width": 16, "depth": 1, "batch": 64, "epochs": 6, "patience": 1, "weight_decay": 1e-2}
    g = torch.Generator().manual_seed(0)
    return FlowTraining(ib.Sphere(3).sample(n, generator=g), ib.Sphere(3).sample(20, generator=g), **small | knobs)


def test_horizon_and_pairs():
    """T = 2 alpha median|x|; the points of an epoch are x_n + v_n t_k with |v_n| = 1/2 on 30 times of [0, T]."""
    x = torch.tensor([[1.0, 0], [0, 2], [3, 0], [0, 40]])
    t = FlowTraining(x, x, alpha=0.25, width=4, depth=1, scale=2.0)
    assert t.T == pytest.approx(2 * 0.25 * 2.5 / 2) and t.radius == pytest.approx(0.5 * t.T * 2)
    y, times, v = t._val
    assert y.shape == (4 * 30, 2) and len(times.unique()) == 30
    torch.testing.assert_close(times.unique(), torch.linspace(0, t.T, 30))
    torch.testing.assert_close(v.norm(dim=1), torch.full((120,), 0.5))
    start = y - v * times[:, None]
    assert torch.cdist(start, x / 2).amin(1).max() < 1e-5
    assert len(v.unique(dim=0)) == 4  # one velocity for all times of a point


def test_big_validation_sets_are_thinned_over_all_times():
    x = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
    t = FlowTraining(x, x, width=4, depth=1)
    assert len(t._val[1]) == FlowTraining.PAIRS and len(t._val[1].unique()) == 30


@pytest.mark.parametrize("knobs", [{}, {"lr": 1.0, "patience": 0}])
def test_a_resumed_run_has_the_bits_of_a_straight_one(knobs):
    straight = training(**knobs)
    losses = [straight.advance() for _ in range(6)]
    first = training(**knobs)
    assert [first.advance() for _ in range(3)] == losses[:3]
    assert first.lr < 1.0  # halved, in the second run
    saved = first.state()
    torch.randn(7)  # the caller's own randomness is no part of it
    second = training(**knobs)
    second.restore(saved)
    assert [second.advance() for _ in range(3)] == losses[3:]
    want, got = straight.state(), second.state()
    assert want.keys() == got.keys() and all(torch.equal(want[k], got[k]) for k in want)
    assert second.done and second.epoch == 6 and second.best == min(losses)


def test_every_part_of_the_state_matters():
    """The test above can fail: without the moments, or with another seed, the bits differ."""
    t = training()
    t.advance()
    saved = t.state()
    after = t.advance()
    broken = training()
    broken.restore({k: torch.zeros_like(s) if k.endswith("exp_avg") else s for k, s in saved.items()})
    assert broken.advance() != after
    with pytest.raises(ValueError, match="same data and arguments"):
        training(seed=1).restore(saved)
    assert training(seed=1).advance() != training().advance()


def test_training_leaves_the_generator_alone_and_the_state_is_separate():
    before = torch.get_rng_state()
    t = training()
    t.advance()
    assert torch.equal(before, torch.get_rng_state())
    saved = t.state()
    copies = {k: s.clone() for k, s in saved.items()}
    t.advance()
    assert all(torch.equal(saved[k], copies[k]) for k in saved)
    assert all(s.is_contiguous() for s in saved.values())
    assert len({s.untyped_storage().data_ptr() for s in saved.values()}) == len(saved)


def test_plateau_stop_and_best():
    t = training(lr=0.0, epochs=50, patience=2, stop_after=4)  # no improvement after the first epoch, ever
    while not t.done:
        t.advance()
    assert (t.epoch, t.best_epoch) == (5, 1)
    t = training(lr=1.0, epochs=30, patience=0)
    losses = []
    while not t.done:
        losses.append(t.advance())
    assert t.best == min(losses) and t.lr < 1.0
    got = t.flow().net
    field, (y, times, v) = got.eval(), t._val
    assert float((field(y, times) - v).square().mean()) == pytest.approx(t.best, rel=1e-4)


def test_epoch_sizes():
    steps = lambda t: t.state()["adam.out.bias.step"].item()  # noqa: E731
    full, capped = training(), training(batches=3)
    full.advance(), capped.advance()
    assert steps(full) == math.ceil(60 * 30 / 64) and steps(capped) == 3


def test_every_epoch_has_new_velocities():
    t, drawn = training(batches=1), []
    draw = t._velocities
    t._velocities = lambda x: drawn.append(draw(x)) or drawn[-1]
    t.advance(), t.advance()
    assert len(drawn) == 2 and not (drawn[0] == drawn[1]).any()


def test_gradients_are_clipped():
    """To nothing: below its eps, Adam does not move."""
    moved = {}
    for clip in (1.0, 1e-15):
        t = training(clip=clip, weight_decay=0.0)
        start = t.state()["net.out.weight"]
        t.advance()
        moved[clip] = float((t.state()["net.out.weight"] - start).abs().max())
    assert moved[1.0] > 1e-3 and moved[1e-15] < 1e-6


@pytest.fixture(scope="module")
def sphere():
    """A small part of the paper's training: 12 epochs of a small network."""
    torch.set_num_threads(1)
    g = torch.Generator().manual_seed(0)
    x = ib.Sphere(3).sample(1000, generator=g)
    t = FlowTraining(x[:800], x[800:], alpha=0.5, lr=3e-3, width=64, depth=2, dropout=0.0, epochs=12, patience=2)
    while not t.done:
        t.advance()
    return t


def test_a_learned_sphere_pulls_noisy_points_in(sphere):
    M, g = sphere.flow(), torch.Generator().manual_seed(1)
    x = ib.Sphere(3).sample(500, generator=g)
    noisy = x * (1 + 0.3 * (2 * torch.rand(500, 1, generator=g) - 1))
    before, after = (ib.Sphere(3).distance(p).mean() for p in (noisy, M.project(noisy)))
    assert after < before / 3
    M.steps = 8
    assert ib.Sphere(3).distance(M.train().project(noisy)).mean() < before / 3


def test_denoising_prefers_the_trained_flow(sphere):
    M, x = sphere.flow(), ib.Sphere(3).sample(300, generator=torch.Generator().manual_seed(2))
    score = lambda M: denoising(M, x, sphere.radius, torch.Generator().manual_seed(3))  # noqa: E731
    raw = VelocityNet(3, 64, 2)
    raw.out.weight.data.zero_(), raw.out.bias.data.zero_()
    still = Flow(raw, 3, sphere.T)
    assert score(still) == pytest.approx(sphere.radius**2 / 3, rel=0.2)  # E r^2, r uniform
    assert score(M) < score(still)
    assert score(M) == score(M)
    big = Flow(copy.deepcopy(M.net), 3, M.T, scale=10.0)
    assert denoising(big, 10 * x, 10 * sphere.radius, torch.Generator().manual_seed(3)) == pytest.approx(100 * score(M), rel=1e-3)


# --- errors --------------------------------------------------------------------------------------------------
X = torch.ones(5, 3)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: flow().project(torch.ones(4)), ValueError, r"Flow\(3, T=2\)\.project asked for shape \(\*batch, 3\)"),
        (lambda: flow()(torch.tensor([1.0, math.nan, 0])), ValueError, "finite"),
        (lambda: Flow(VelocityNet(3), (3, 3), 1.0), ValueError, r"VelocityNet\(9\)"),
        (lambda: Flow(VelocityNet(3), 3, 0.0), ValueError, "finite T > 0"),
        (lambda: Flow(VelocityNet(3), 3, 1.0, scale=math.nan), ValueError, "finite scale > 0"),
        (lambda: FlowTraining(X[:0], X), ValueError, r"\(N, \*shape\), N >= 1, in train, got \(0, 3\)"),
        (lambda: FlowTraining(X, X[0]), ValueError, r"in val, got \(3,\)"),
        (lambda: FlowTraining(X, X[:, :2]), ValueError, r"val asked for shape \(\*batch, 3\)"),
        (lambda: FlowTraining(X / 0, X), ValueError, r"5 of 5 rows hold NaN or inf.*Drop them"),
        (lambda: FlowTraining(X.long(), X), TypeError, r"floating point.*\.float\(\)"),
        (lambda: FlowTraining(0 * X, X), ValueError, "origin"),
        (lambda: training().flow(), RuntimeError, r"Call advance\(\) first"),
        (lambda: training(epochs=0).advance(), RuntimeError, r"done after 0 epochs"),
        (lambda: denoising(flow(), torch.ones(2, 4), 1.0), ValueError, "denoising with Flow"),
    ],
)
def test_errors_say_what_to_do(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
