"""Laws at points that Hypothesis chooses: any finite entries from denormals to 1e20, the same ones in every run of `make test`,
new and many more of them in `make test-all`."""

import math

import numpy as np
import pytest
import torch
from catalogue import CURVED, SETS, SOLVED
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from test_sets import assert_feasible

DTYPES = {np.float32: torch.float32, np.float64: torch.float64}
NICE = [0.0, 1.0, -1.0, 0.5, 2.0, 3.0, 1e-3, 1e-8, -1e-8, 1e20, -1e20, 1e-20]


def entries(width: int):
    """Numbers that geometry stumbles over, and any others up to 1e20."""
    exact = [float(np.float32(v)) for v in NICE] if width == 32 else NICE
    big = float(np.float32(1e20)) if width == 32 else 1e20
    return st.sampled_from(exact) | st.floats(-4, 4, width=width) | st.floats(-big, big, width=width)


@st.composite
def points(draw, shape):
    kind = draw(st.sampled_from([np.float32, np.float64]))
    x = draw(arrays(kind, (draw(st.integers(1, 4)), *shape), elements=entries(32 if kind is np.float32 else 64)))
    return torch.from_numpy(x.copy())


# solvers take a hundred times as long for the few rows of an example
NAMES = [*SETS, *(pytest.param(name, marks=pytest.mark.nightly) for name in SOLVED)]
EVERY = SETS | SOLVED


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_projection_is_finite_feasible_settled_and_nearest(name, data):
    M = EVERY[name]()
    x = data.draw(points(M.shape)).requires_grad_()
    y = M.project(x)
    (g,) = torch.autograd.grad(y, x, torch.ones_like(y))
    y = y.detach()
    assert torch.isfinite(y).all() and torch.isfinite(g).all()
    assert_feasible(M, y)
    assert M.contains(y).all() and M.contains(M.project(y)).all()
    if name in CURVED and M.reach != math.inf:  # a solver promises a stationary point there, not the nearest of all
        return
    rivals = M.sample(64, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    far = M._flat(M._isometric(x.detach()[:, None].double() - rivals.double())).norm(dim=-1).amin(1)
    near = M._flat(M._isometric(x.detach().double() - y.double())).norm(dim=-1)
    room = 256 * torch.finfo(x.dtype).eps * (near + M._flat(y).double().norm(dim=-1))
    assert (near <= far + room).all(), (near - far, room)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_the_tangent_cone_takes_a_projection_of_itself_for_itself(name, data):
    """P_T is the projection on a cone: idempotent, homogeneous, never longer than what it projects."""
    M = EVERY[name]()
    x = M.project(data.draw(points(M.shape)).clamp(-100, 100).double())
    v = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 9))))
    t = M.tangent(x, v)
    size = M._flat(M._isometric(v)).norm(dim=-1)
    assert (M._flat(M.tangent(x, t) - t).norm(dim=-1) <= 1e-9 * size).all()
    assert (M._flat(M.tangent(x, 2 * v) - 2 * t).norm(dim=-1) <= 1e-9 * size).all()
    assert (M._flat(M._isometric(t)).norm(dim=-1) <= (1 + 1e-9) * size).all()
