"""The formulas that training uses on planes are those of the steps: same points, same derivatives."""

import pytest
import torch

import inbounds as ib
from inbounds.train.planes import rule_of

STEPS = [
    ib.Projection(ib.Euclidean(3, 3)),
    ib.Projection(ib.Sphere(3)),
    ib.Projection(ib.Ball(2)),
    ib.Projection(ib.Ball(3, radius=0.5)),
    ib.Projection(ib.SO(3)),
    ib.Projection(ib.SE(3)),
    ib.Exponential(ib.Sphere(3)),
    ib.GroupExponential(ib.SO(3)),
    ib.GroupExponential(ib.SE(3)),
]


def points(step, size, dtype=torch.float64):
    """h in M and updates u, as points (2, 50, *shape)."""
    g = torch.Generator().manual_seed(0)
    h = step.M.sample(2, 50, generator=g, dtype=dtype)
    u = size * torch.randn(2, 50, step.size, generator=g, dtype=dtype)
    u[0, 0] = 0  # no update at all
    return h, u


def planes(x):
    return x.flatten(2).mT.contiguous()


@pytest.mark.parametrize("size", [0.0, 1e-4, 0.3, 4.0])
@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_value_and_slope_are_the_steps_own(step, size):
    h, u = points(step, size)
    h.requires_grad_()
    u.requires_grad_()
    y = step(h, u)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    gh, gu = torch.autograd.grad(y, (h, u), g)
    rule = rule_of(step)
    with torch.no_grad():
        value = rule.value(planes(h), planes(u))
        found = rule.slope(planes(h), planes(u), value, planes(g))
    assert (value - planes(y)).abs().max() < 1e-13
    assert (found[1] - planes(gu)).abs().max() < 1e-11 * (1 + size)
    # a shift of h along the normal of M is no movement in M: only the tangent part of its gradient is ever used
    assert (_tangent(step, h, found[0]) - _tangent(step, h, planes(gh))).abs().max() < 1e-11 * (1 + size)


def _tangent(step, h, g):
    if isinstance(step.M, ib.Ball):
        return g  # full dimension
    return planes(step.M.tangent(h.detach(), g.mT.reshape(h.shape)))


@pytest.mark.parametrize("step", STEPS, ids=repr)
def test_in_float32_they_stay_in_the_set(step):
    h, u = points(step, 1.0, torch.float32)
    y = rule_of(step).value(planes(h), planes(u)).mT.reshape(2, 50, *step.M.shape)
    assert step.M.contains(y).all()


def test_the_centre_of_the_sphere_is_not_a_number_that_is_missing():
    rule, h = rule_of(ib.Projection(ib.Sphere(3))), planes(torch.tensor([[[1.0, 0.0, 0.0]]]))
    y = rule.value(h, -h)
    assert torch.equal(y, h)
    assert all((g == 0).all() for g in rule.slope(h, -h, y, torch.ones_like(h)))


@pytest.mark.parametrize(
    "step",
    [
        ib.Projection(ib.Sphere(3, radius=2.0)),
        ib.Projection(ib.Ball(2, center=torch.ones(2))),
        ib.Projection(ib.SO(4)),
        ib.GroupExponential(ib.SO(3), side="right"),
        ib.Projection(ib.Simplex(3)),
    ],
    ids=repr,
)
def test_other_steps_have_no_rule(step):
    assert rule_of(step) is None


def test_without_a_compiler_a_compiled_step_is_the_step_and_says_so(monkeypatch):
    """A compiler that is not there: inductor fails as it does on such a machine."""
    import torch._inductor.config as inductor

    from inbounds.train.layers import compiled

    monkeypatch.setattr(inductor.cpp, "cxx", ("/nowhere/c++",))
    monkeypatch.setattr(inductor, "fx_graph_cache", False)
    torch._dynamo.reset()

    def step(h, v):
        return torch.sin(h) + 3.25 * v

    fast, h, v = compiled(step), torch.randn(2, 3, 50), torch.randn(2, 3, 50)
    with pytest.warns(UserWarning, match="training goes on without it"):
        assert torch.equal(fast(h, v), step(h, v))
    assert torch.equal(fast(h, v), step(h, v))
