"""A stack of K models equals K separate runs; it stops and goes on bit for bit; a diverged model harms no other."""

import math
from functools import cache

import pytest
import torch
from torch import nn

import inbounds as ib
from inbounds.learned import Flow
from inbounds.learned.flow import VelocityNet
from inbounds.nets import Flat, simplex_error
from inbounds.train import Member, Problem, Protocol, Stack, StackTraining, mse
from inbounds.train.stack import batchable
from inbounds.train.training import built

MEMBERS = [Member(0), Member(1, 0.3, lr=1e-2), Member(2, 1e-2)]
TWO = MEMBERS[:2]
PROTOCOL = Protocol(epochs=25, batch=8, lr=3e-3, every=2, patience=4)  # 8 steps an epoch
SHORT = Protocol(epochs=7, batch=16, lr=3e-3, every=1, patience=1)  # 4 steps an epoch


def rotations(n, seed=0, tokens=()):
    return ib.SO(3).sample(n, *tokens, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def turned(x):
    return ib.SO(3).compose(ib.SO(3).group_exp(torch.tensor([0.5, -0.3, 0.8], dtype=x.dtype)), x)


def plain(*layers):
    """A module that no rule of the batched path knows."""

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(*(layer() for layer in layers))
            self.gain = nn.Parameter(torch.ones(9))

        def forward(self, x):
            return (x.flatten(-2) * self.gain + self.layers(x.flatten(-2))).unflatten(-1, (3, 3))

    return Own


def body(depth, size):
    """Layers in Euclidean space, then a linear map."""
    layers = ib.IAA([ib.MLPBlock((3, 3), 9) for _ in range(depth)], ib.Projection(ib.Euclidean(3, 3)))
    return nn.Sequential(layers, Flat((3, 3)), nn.Linear(9, size))


def problem(kind):
    tokens = (4,) if "attention" in kind else ()
    velocity = built(lambda: VelocityNet(9, width=8, depth=2), seed=5)
    flow = Flow(velocity.double(), (3, 3), T=0.3, steps=3)
    x, xv = rotations(64, 0, tokens), rotations(20, 1, tokens)
    y, yv = turned(x), turned(xv)
    builds = {
        "regular": lambda: ib.IAA([ib.MLPBlock((3, 3), 9) for _ in range(2)], ib.Projection(ib.Euclidean(3, 3))),
        "proj-iaa": lambda: ib.IAA([ib.MLPBlock((3, 3), 9) for _ in range(2)], ib.Projection(ib.SO(3))),
        "exp-iaa": lambda: ib.IAA([ib.MLPBlock((3, 3), 3) for _ in range(2)], ib.GroupExponential(ib.SO(3))),
        "faa-mlp": lambda: ib.FAA(
            ib.IAA([ib.MLPBlock((3, 3), 9) for _ in range(2)], ib.Projection(ib.Euclidean(3, 3))),
            ib.Projection(ib.SO(3)),
        ),
        "exponential": lambda: ib.IAA([ib.MLPBlock((3, 3), 9)], ib.Exponential(ib.SO(3))),
        "exp-faa": lambda: ib.FAA(body(2, 3), ib.GroupExponential(ib.SO(3)), base=nn.Identity()),
        "prob-layers": lambda: body(2, 30),
        "flow-iaa": lambda: ib.IAA([ib.MLPBlock((3, 3), 9) for _ in range(2)], ib.Projection(flow)),
        "faa": lambda: ib.FAA(
            nn.Sequential(nn.Flatten(-2), nn.Linear(9, 16), nn.Tanh(), nn.Linear(16, 9)), ib.Projection(ib.SO(3))
        ),
        "own": plain(lambda: nn.Linear(9, 12), nn.ReLU, lambda: nn.Linear(12, 9)),
        "prob": lambda: nn.Sequential(ib.MLPBlock((3, 3), 20), nn.ReLU(), nn.Linear(20, 30)),
        "attention": lambda: ib.IAA(
            [ib.AttentionBlock((3, 3), 9, heads=3, width=16) for _ in range(2)], ib.Projection(ib.SO(3)), head=nn.Linear(9, 9)
        ),
        "attention-flow": lambda: ib.IAA([ib.AttentionBlock((3, 3), 9, width=16) for _ in range(2)], ib.Projection(flow)),
    }

    def build():
        return builds[kind]().double()

    if kind.startswith("prob"):
        mixture = ib.AnchorMixture(nn.Identity(), y[:30])

        def loss(logits, label):
            return simplex_error(logits, label).flatten(1).mean(1)

        return Problem(build, x, mixture.label(y), xv, yv, loss, mixture.read)
    return Problem(build, x, y, xv, yv, mse, lambda output: output)


def separate(p, protocol, member):
    """The same run by torch's own optimiser and schedule, one model by itself: the naive twin."""
    net = built(p.build, member.seed)
    trained = [q for q in net.parameters() if q.requires_grad]
    adam = torch.optim.AdamW(trained, lr=member.lr or protocol.lr, weight_decay=member.weight_decay)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(adam, factor=0.5, patience=protocol.patience // protocol.every)
    best, best_state = math.inf, None
    for epoch in range(protocol.epochs):
        g = torch.Generator().manual_seed(1_000_003 * member.seed + 1_000 + epoch)
        for rows in torch.randperm(len(p.x), generator=g).split(protocol.batch):
            adam.zero_grad()
            p.loss(net(p.x[rows])[None], p.target[rows][None]).sum().backward()
            adam.step()
        if (epoch + 1) % protocol.every == 0 or epoch + 1 == protocol.epochs:
            with torch.no_grad():
                val = float(mse(p.read(net(p.x_val))[None], p.y_val[None]))
            if val < best:
                best, best_state = val, torch.nn.utils.parameters_to_vector(trained).detach().clone()
            if (epoch + 1) % protocol.every == 0:
                schedule.step(val)
    return torch.nn.utils.parameters_to_vector(trained).detach(), best, best_state, adam.param_groups[0]["lr"]


@cache
def twin(kind, protocol, member):
    """The separate run, which does not depend on how a stack computes: made once."""
    return separate(problem(kind), protocol, member)


HOW = [
    ("regular", "layered"),
    ("proj-iaa", "layered"),
    ("exp-iaa", "layered"),
    ("prob-layers", "layered"),
    ("faa-mlp", "layered"),
    ("exp-faa", "layered"),
    ("exponential", "layered"),
    ("flow-iaa", "layered"),
    ("regular", "batched"),
    ("proj-iaa", "batched"),
    ("exp-iaa", "batched"),
    ("prob", "batched"),
    ("faa-mlp", "batched"),
    ("exponential", "batched"),
    ("faa", "vmapped"),
    ("own", "vmapped"),
    ("proj-iaa", "vmapped"),
    ("attention", "vmapped"),
    ("attention", "looped"),
    ("attention-flow", "vmapped"),
]


@pytest.mark.parametrize("protocol", [SHORT, pytest.param(PROTOCOL, marks=pytest.mark.nightly)], ids=["28 steps", "200 steps"])
@pytest.mark.parametrize(("kind", "how"), HOW)
def test_a_stack_of_models_equals_separate_runs(kind, how, protocol):
    p = problem(kind)
    training = StackTraining(p, protocol, TWO, how)
    while not training.done:
        training.advance()
    assert training.steps == protocol.epochs * 64 // protocol.batch
    for k, member in enumerate(TWO):
        theta, best, best_theta, lr = twin(kind, protocol, member)
        assert (training.stack.theta[k] - theta).abs().max() < 1e-9
        assert (training.best_theta[k] - best_theta).abs().max() < 1e-9
        assert abs(float(training.best[k]) - best) < 1e-9
        assert float(training.optimizer.lr[k]) == pytest.approx(lr)


def of_depth(kind):
    """A problem whose network has the depth asked for."""
    rows = {
        "regular": lambda d: ib.IAA(blocks(d, 9), ib.Projection(ib.Euclidean(3, 3))),
        "proj-iaa": lambda d: ib.IAA(blocks(d, 9), ib.Projection(ib.SO(3))),
        "exp-iaa": lambda d: ib.IAA(blocks(d, 3), ib.GroupExponential(ib.SO(3))),
        "proj-faa": lambda d: ib.FAA(ib.IAA(blocks(d, 9), ib.Projection(ib.Euclidean(3, 3))), ib.Projection(ib.SO(3))),
        "exp-faa": lambda d: ib.FAA(body(d, 3), ib.GroupExponential(ib.SO(3)), base=nn.Identity()),
        "prob": lambda d: body(d, 30),
        "wide-iaa": lambda d: ib.IAA(blocks(d, 9, width=16, depth=2), ib.Projection(ib.SO(3))),
    }

    def build(depth):
        return rows[kind](depth).double()

    p = problem("prob" if kind == "prob" else "regular")
    return Problem(build, p.x, p.target, p.x_val, p.y_val, p.loss, p.read)


def blocks(number, size, **how):
    return [ib.MLPBlock((3, 3), size, **how) for _ in range(number)]


DEEP = [Member(0, depth=4), Member(1, 1e-2, depth=4), Member(0, 0.3, lr=1e-2, depth=3), Member(2, depth=1)]


@pytest.mark.parametrize("kind", ["regular", "proj-iaa", "exp-iaa", "proj-faa", "exp-faa", "prob", "wide-iaa"])
def test_members_of_different_depths_in_one_stack_equal_separate_runs(kind):
    p, protocol = of_depth(kind), SHORT
    training = StackTraining(p, protocol, DEEP)
    assert training.stack.how == "layered"
    while not training.done:
        training.advance()
    for k, m in enumerate(DEEP):
        alone = Problem(**{**vars(p), "build": lambda m=m: p.build(m.depth)})
        theta, best, best_theta, lr = separate(alone, protocol, m)
        mine, mine_best = (
            torch.cat([t.reshape(-1) for t in training.stack.tensors(k, from_).values()]) for from_ in (None, training.best_theta)
        )
        assert (mine - theta).abs().max() < 1e-9
        assert (mine_best - best_theta).abs().max() < 1e-9
        assert abs(float(training.best[k]) - best) < 1e-9
        assert float(training.optimizer.lr[k]) == pytest.approx(lr)


def test_a_shallow_member_has_nothing_beyond_its_depth():
    """No weight, no gradient, no decay there; its own model comes out with its own depth."""
    training = StackTraining(of_depth("proj-iaa"), Protocol(epochs=3, batch=8, every=1), DEEP)
    while not training.done:
        training.advance()
    beyond = [n for n in training.stack.names if any(f"blocks.{i}." in n for i in (1, 2, 3))]
    theta, grad = training.stack._named(training.stack.theta), training.stack._named(training.stack.grad)
    assert all((theta[n][3] == 0).all() and (grad[n][3] == 0).all() for n in beyond)
    assert (theta["dt"][3, 1:] == 0).all()
    assert len(training.model(3).blocks) == 1
    assert all((theta[n][0] != 0).any() for n in beyond)


def test_the_deepest_members_come_first():
    with pytest.raises(ValueError, match=r"deepest models first, got depths \[1, 4\]"):
        StackTraining(of_depth("regular"), PROTOCOL, [DEEP[3], DEEP[0]])


@pytest.mark.parametrize(
    ("kind", "how"),
    [("regular", "batched"), ("faa", "vmapped"), ("own", "vmapped"), ("attention", "looped"), ("attention-flow", "vmapped")],
)
def test_the_path_is_chosen_by_the_model(kind, how):
    assert Stack([problem(kind).build()]).how == how


def test_flatten_is_not_batched():
    """nn.Flatten(1) would swallow the stack's own dim: such models go through vmap."""
    assert not batchable(nn.Sequential(nn.Flatten(1), nn.Linear(9, 9)))
    assert batchable(nn.Sequential(nn.Linear(9, 9), nn.ReLU(), ib.Sphere(9)))


def test_the_schedule_was_exercised():
    """Without progress lr halves: the comparison above saw more than a constant."""
    training = StackTraining(problem("regular"), Protocol(epochs=25, batch=8, lr=0.3, every=2, patience=4), TWO)
    twin = separate(training.problem, training.protocol, TWO[0])
    while not training.done:
        training.advance()
    assert float(training.optimizer.lr[0]) == twin[3] < 0.3


@pytest.mark.parametrize(
    ("kind", "how"), [("proj-iaa", "layered"), ("proj-iaa", "batched"), ("own", "vmapped"), ("attention", "looped")]
)
def test_resumes_bit_for_bit(kind, how):
    p = problem(kind)
    whole, first, second = (StackTraining(p, SHORT, MEMBERS, how) for _ in range(3))
    for _ in range(5):
        whole.advance()
    for _ in range(2):
        first.advance()
    second.restore({name: t.clone() for name, t in first.state().items()})
    for _ in range(3):
        second.advance()
    for name, t in whole.state().items():
        assert torch.equal(t, second.state()[name]), name


@pytest.mark.parametrize("how", ["layered", "batched", "vmapped"])
def test_a_diverged_model_is_frozen_and_the_others_go_on(how):
    p = problem("regular")

    def sick():
        net = p.build()
        if torch.initial_seed() == 1:
            with torch.no_grad():
                next(net.parameters()).fill_(1e200)
        return net

    healthy = StackTraining(p, PROTOCOL, [MEMBERS[0], MEMBERS[2]], how)
    mixed = StackTraining(Problem(**{**vars(p), "build": sick}), PROTOCOL, MEMBERS, how)
    for _ in range(6):
        healthy.advance()
        mixed.advance()
    assert mixed.diverged.tolist() == [-1, 0, -1]
    assert math.isinf(float(mixed.best[1]))
    assert not mixed.done
    assert torch.allclose(mixed.stack.theta[[0, 2]], healthy.stack.theta, rtol=0, atol=1e-12)
    assert torch.equal(mixed.best[[0, 2]].isfinite(), torch.tensor([True, True]))


def test_a_model_of_the_stack_stands_by_itself():
    p = problem("proj-iaa")
    training = StackTraining(p, Protocol(epochs=6, batch=50, every=2), MEMBERS)
    while not training.done:
        training.advance()
    net = training.model(1)
    with torch.no_grad():
        assert float(mse(net(p.x_val)[None], p.y_val[None])) == pytest.approx(float(training.best[1]), rel=1e-12)


def test_members_differ_and_seeds_repeat():
    p = problem("regular")
    a, b = StackTraining(p, PROTOCOL, MEMBERS), StackTraining(p, PROTOCOL, [Member(2), Member(0)])
    assert not torch.equal(a.stack.theta[0], a.stack.theta[1])
    assert torch.equal(a.stack.theta[2], b.stack.theta[0])
    torch.manual_seed(5)
    before = torch.rand(1)
    torch.manual_seed(5)
    StackTraining(p, PROTOCOL, MEMBERS).advance()
    assert torch.equal(before, torch.rand(1))  # the caller's random numbers are left alone


@pytest.mark.parametrize("bad", [{"epochs": 0}, {"batch": 2.5}, {"lr": 0.0}, {"every": 0}])
def test_bad_protocols_say_what_to_write(bad):
    with pytest.raises(ValueError, match="Protocol asked for"):
        Protocol(**bad)


def frozen_features():
    first = nn.Linear(3, 8).requires_grad_(False)
    return nn.Sequential(first, nn.ReLU(), nn.Linear(8, 3))


def tied():
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.ReLU(), layer)


@pytest.mark.parametrize(
    ("build", "how"),
    [(frozen_features, "looped"), (tied, "vmapped"), (lambda: nn.Linear(3, 3), "vmapped")],
    ids=["frozen", "tied", "root"],
)
def test_odd_models_stack_correctly(build, how):
    """Frozen parts that differ by seed, tied weights, a bare layer: what is validated is the model that comes out."""
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    p = Problem(build, x, x.flip(1), x[:20], x[:20].flip(1), mse, lambda output: output)
    training = StackTraining(p, Protocol(epochs=3, batch=16, every=1), MEMBERS)
    assert training.stack.how == how
    while not training.done:
        training.advance()
    for k in range(3):
        with torch.no_grad():
            again = float(mse(training.model(k)(p.x_val)[None], p.y_val[None]))
        assert again == pytest.approx(float(training.best[k]), rel=1e-5)


def test_dropout_resumes_bit_for_bit():
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))

    def build():
        return nn.Sequential(nn.Linear(3, 16), nn.Dropout(0.5), nn.Linear(16, 3))

    p = Problem(build, x, x, x, x, mse, lambda output: output)
    whole, first, second = (StackTraining(p, Protocol(epochs=9, batch=16, every=1), MEMBERS) for _ in range(3))
    for _ in range(4):
        whole.advance()
    for _ in range(2):
        first.advance()
    second.restore(first.state())
    for _ in range(2):
        second.advance()
    assert torch.equal(whole.stack.theta, second.stack.theta)


def test_problems_that_cannot_be_learned_are_refused():
    x = torch.randn(8, 3)
    good = dict(build=lambda: nn.Linear(3, 1), x=x, target=x[:, :1], x_val=x, y_val=x[:, :1], loss=mse, read=lambda o: o)
    StackTraining(Problem(**good), PROTOCOL, TWO).advance()
    with pytest.raises(ValueError, match=r"outputs of the targets' shape"):
        StackTraining(Problem(**{**good, "target": x[:, 0]}), PROTOCOL, TWO).advance()
    with pytest.raises(ValueError, match="as many training inputs as targets"):
        StackTraining(Problem(**{**good, "target": x[:4, :1]}), PROTOCOL, TWO)
    with pytest.raises(ValueError, match="at least one, got 0"):
        StackTraining(Problem(**{**good, "x_val": x[:0], "y_val": x[:0, :1]}), PROTOCOL, TWO)
    with pytest.raises(ValueError, match="at least one model"):
        StackTraining(Problem(**good), PROTOCOL, [])
    with pytest.raises(ValueError, match=r"Use nn\.LayerNorm"):
        StackTraining(Problem(**{**good, "build": lambda: nn.Sequential(nn.Linear(3, 1), nn.BatchNorm1d(1))}), PROTOCOL, TWO)


def test_models_of_different_shape_do_not_stack():
    with pytest.raises(ValueError, match="equal shape"):
        Stack([nn.Linear(2, 2), nn.Linear(2, 3)])
    with pytest.raises(ValueError, match="how = auto"):
        Stack([nn.Linear(2, 2)], "fast")
    with pytest.raises(ValueError, match="parameters to train"):
        Stack([nn.ReLU()])
