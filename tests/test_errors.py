"""Bad input: what was asked, what arrived, what to write instead."""

import math
import re

import pytest
import torch
from torch import nn

import inbounds as ib

net = nn.Linear(3, 3)


def wrong(error, pattern, f):
    return pytest.param(error, pattern, f, id=pattern[:50])


CASES = [
    # shapes and dtypes
    wrong(ValueError, r"Sphere\(3\).*asked for shape \(\*batch, 3\), got \(5, 4\)", lambda: ib.Sphere(3)(torch.randn(5, 4))),
    wrong(ValueError, r"SO\(3\).*got \(5, 9\).*nn\.Unflatten\(-1, \(3, 3\)\)", lambda: ib.SO(3)(torch.randn(5, 9))),
    wrong(ValueError, r"SO\(3\)\.project.*nn\.Unflatten", lambda: ib.SO(3).project(torch.randn(9))),
    wrong(ValueError, r"SO\(3\)\.tangent.*got \(3,\)", lambda: ib.SO(3).tangent(torch.eye(3), torch.randn(3))),
    wrong(
        TypeError,
        r"Ball\(2\).*floating point.*torch\.int64.*x\.float\(\)",
        lambda: ib.Ball(2)(torch.ones(3, 2, dtype=torch.long)),
    ),
    wrong(TypeError, r"floating point.*torch\.complex64", lambda: ib.Ball(2).project(torch.ones(3, 2, dtype=torch.complex64))),
    wrong(TypeError, r"asked for a tensor, got list.*torch\.as_tensor", lambda: ib.Ball(2).project([1.0, 2.0])),
    wrong(ValueError, r"SE\(3\)\.group_exp.*\(\*batch, 6\), got \(2, 3\)", lambda: ib.SE(3).group_exp(torch.randn(2, 3))),
    # non-finite rows
    wrong(
        ValueError,
        r"Sphere\(3\) asked for finite numbers, but 1 of 6 entries.*index \(1, 0\).*\.project",
        lambda: ib.Sphere(3)(torch.tensor([[0.0, 1, 2], [math.nan, 1, 2]])),
    ),
    wrong(
        ValueError,
        r"IAA on Sphere\(3\) asked for finite",
        lambda: ib.IAA([ib.MLPBlock(3, 3)], ib.Projection(ib.Sphere(3)))(torch.full((2, 3), math.inf)),
    ),
    wrong(
        ValueError,
        r"FAA on Sphere\(3\) asked for finite",
        lambda: ib.FAA(net, ib.Projection(ib.Sphere(3)))(torch.full((2, 3), math.nan)),
    ),
    wrong(
        ValueError,
        r"ProjectedODE on Ball\(3\) asked for finite",
        lambda: ib.ProjectedODE(net, ib.Ball(3), time=False)(torch.full((2, 3), math.nan)),
    ),
    # impossible parameters
    wrong(ValueError, r"Sphere asked for radius > 0, got -1", lambda: ib.Sphere(3, radius=-1.0)),
    wrong(ValueError, r"Sphere asked for an ambient size n >= 2, got 1", lambda: ib.Sphere(1)),
    wrong(ValueError, r"Sphere asked for finite numbers in radius, got inf", lambda: ib.Sphere(3, radius=math.inf)),
    wrong(ValueError, r"Ball asked for finite numbers in center", lambda: ib.Ball(2, center=[math.nan, 0.0])),
    wrong(ValueError, r"Box asked for numbers in low", lambda: ib.Box([math.nan], [1.0])),
    wrong(ValueError, r"Box asked for low and high of one length, got \(2,\) and \(3,\)", lambda: ib.Box([0.0, 0], [1.0, 1, 1])),
    wrong(TypeError, r"Sphere asked for whole numbers as sizes, got 3\.0\. Write Sphere\(3\)", lambda: ib.Sphere(3.0)),
    wrong(TypeError, r"IAA asked for nn\.Module blocks", lambda: ib.IAA([torch.sin], ib.Projection(ib.Sphere(3)))),
    wrong(ValueError, r"Ball asked for radius > 0, got 0", lambda: ib.Ball(2, radius=0.0)),
    wrong(
        ValueError, r"Ball\(2\) asked for a center of shape \(\*batch, 2\), got \(3,\)", lambda: ib.Ball(2, center=[0.0, 0, 0])
    ),
    wrong(ValueError, r"Box asked for low <= high", lambda: ib.Box([0.0, 2.0], [1.0, 1.0])),
    wrong(ValueError, r"Box asked for bounds of shape.*Box\(\[0\.0\] \* n", lambda: ib.Box(0.0, 1.0)),
    wrong(ValueError, r"Simplex asked for n >= 1", lambda: ib.Simplex(0)),
    wrong(ValueError, r"nonzero normal", lambda: ib.Halfspace([0.0, 0.0], 1.0)),
    wrong(ValueError, r"Affine asked for A of shape", lambda: ib.Affine([1.0, 2.0], [1.0])),
    wrong(ValueError, r"contradicting equations", lambda: ib.Affine([[1.0, 1.0], [1.0, 1.0]], [0.0, 1.0])),
    wrong(ValueError, r"SecondOrderCone asked for n >= 2", lambda: ib.SecondOrderCone(1)),
    wrong(ValueError, r"SO asked for n >= 2, got 1", lambda: ib.SO(1)),
    wrong(ValueError, r"SE asked for n >= 2, got 1", lambda: ib.SE(1)),
    wrong(ValueError, r"Stiefel asked for 1 <= k <= n, got n=2, k=3.*Stiefel\(3, 2\)", lambda: ib.Stiefel(2, 3)),
    wrong(ValueError, r"FixedTracePSD asked for trace > 0", lambda: ib.FixedTracePSD(3, trace=-1.0)),
    wrong(ValueError, r"radii >= 0", lambda: ib.BoxMinusBalls([0.0, 0], [1.0, 1], [[0.5, 0.5]], [-0.1])),
    wrong(ValueError, r"low < high", lambda: ib.BoxMinusBalls([0.0, 2], [1.0, 1], [[0.5, 0.5]], [0.1])),
    wrong(ValueError, r"centers \(\*batch, m, n\)", lambda: ib.BoxMinusBalls([0.0, 0], [1.0, 1], [0.5, 0.5], [0.1])),
    wrong(ValueError, r"cover the box", lambda: ib.BoxMinusBalls([0.0, 0], [1.0, 1], [[0.5, 0.5]], [2.0])),
    wrong(
        ValueError,
        r"dimension 3.*one ball that encloses",
        lambda: ib.BoxMinusBalls([0.0] * 3, [1.0] * 3, [[0.4] * 3, [0.6] * 3], [0.3, 0.3]),
    ),
    wrong(ValueError, r"angles in \[0, pi\)", lambda: ib.SphereMinusCaps([[1.0, 0, 0]], [4.0])),
    wrong(ValueError, r"nonzero centers", lambda: ib.SphereMinusCaps([[0.0, 0, 0]], [0.4])),
    wrong(ValueError, r"cover the sphere", lambda: ib.SphereMinusCaps([[1.0, 0, 0], [-1.0, 0, 0]], [2.0, 2.0])),
    wrong(ValueError, r"R\^4.*one cap that encloses", lambda: ib.SphereMinusCaps([[1.0, 0, 0, 0], [0.9, 0.1, 0, 0]], [0.5, 0.5])),
    wrong(TypeError, r"Product asked for sets, got Linear", lambda: ib.Product(net)),
    # wrong pairings
    wrong(
        TypeError,
        r"^Exponential needs a Manifold \(no boundary\), got Ball\(2\)\. Use Projection\(Ball\(2\)\)\.$",
        lambda: ib.Exponential(ib.Ball(2)),
    ),
    wrong(
        TypeError,
        r"GroupExponential needs a LieGroup, got Sphere\(3\)\. Use Exponential\(Sphere\(3\)\)",
        lambda: ib.GroupExponential(ib.Sphere(3)),
    ),
    wrong(
        TypeError,
        r"GroupExponential needs a LieGroup, got Ball\(2\)\. Use Projection\(Ball\(2\)\)",
        lambda: ib.GroupExponential(ib.Ball(2)),
    ),
    wrong(TypeError, r"Projection needs a set, got Linear", lambda: ib.Projection(net)),
    wrong(ValueError, r'side "left" or "right", got \'up\'', lambda: ib.GroupExponential(ib.SO(3), side="up")),
    wrong(TypeError, r"FAA needs a step, got the set Sphere\(3\).*Projection\(Sphere\(3\)\)", lambda: ib.FAA(net, ib.Sphere(3))),
    wrong(TypeError, r"IAA needs a step, got Linear", lambda: ib.IAA([net], net)),
    wrong(ValueError, r"at least one block", lambda: ib.IAA([], ib.Projection(ib.Sphere(3)))),
    wrong(TypeError, r"FAA needs an nn\.Module", lambda: ib.FAA(torch.sin, ib.Projection(ib.Sphere(3)))),
    wrong(
        TypeError,
        r"field as an nn\.Module \(a bare function would train nothing\), got function",
        lambda: ib.ProjectedODE(lambda x: x, ib.Ball(2)),
    ),
    wrong(ValueError, r"among euler, heun, rk4, dopri5, got 'rk5'", lambda: ib.ProjectedODE(net, ib.Ball(3), method="rk5")),
    wrong(ValueError, r"steps >= 1, got 0", lambda: ib.ProjectedODE(net, ib.Ball(3), steps=0)),
    wrong(
        ValueError,
        r"6 numbers per point.*got \(2, 5\).*output of size 6",
        lambda: ib.GroupExponential(ib.SE(3))(None, torch.randn(2, 5)),
    ),
    wrong(ValueError, r"heads that divide the embedding size 9, got 2", lambda: ib.AttentionBlock((3, 3), 9, heads=2)),
    wrong(ValueError, r"no token dim", lambda: ib.AttentionBlock((3, 3), 9, heads=3)(torch.randn(3, 3))),
]


@pytest.mark.parametrize("error, pattern, f", CASES)
def test_message(error, pattern, f):
    with pytest.raises(error) as caught:
        f()
    assert re.search(pattern, str(caught.value)), str(caught.value)


def test_half_precision_is_computed_in_float32():
    for dtype in (torch.float16, torch.bfloat16):
        y = ib.SO(3)(torch.randn(5, 3, 3).to(dtype))
        assert y.dtype == torch.float32 and ib.SO(3).violation(y).max() < 2e-6


def test_project_keeps_bad_rows_in_their_row():
    for M in (ib.SO(3), ib.SO(5), ib.PSD(3), ib.Simplex(4), ib.SphereMinusCaps([[1.0, 0, 0]], [0.5])):
        x = torch.randn(4, *M.shape)
        x[1] = math.inf
        x[(2, *[0] * len(M.shape))] = math.nan
        y = M.project(x)
        assert y[1:3].isnan().all() and M.contains(y[[0, 3]]).all()
        assert M.violation(x)[1:3].isnan().all()
