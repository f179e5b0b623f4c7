"""Curved sets that break solvers: every row is right, by a judge that knows nothing of the solver, or it is flagged.

`test_polytope.py` has the same for polyhedra.
"""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, nnls

import inbounds as ib
from inbounds.solvers import FLAT, OK


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


AXES = torch.tensor([1.0, 4.0, 9.0], dtype=torch.float64)
CORNERS = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * 3)


def sphere(p):
    return p @ p - 1


def ellipsoid(p):
    return (p * p / AXES.to(p)).sum() - 1


def torus(p):
    return ((p[:2] @ p[:2]).sqrt() - 2) ** 2 + p[2] ** 2 - 0.25


# name, eq, ineq, the least share of rows that must be ok or flat
CASES = [
    (
        "one face three times, scaled",
        None,
        lambda p: torch.stack([p.sum() - 1, 1e3 * (p.sum() - 1), 1e-3 * (p.sum() - 1)]),
        1,
    ),
    ("near-parallel faces", None, lambda p: torch.stack([p.sum() - 1, p.sum() + 1e-7 * p[0] - 1]), 1),
    ("a curved and a flat face that nearly agree", None, lambda p: torch.stack([1e-6 * (p @ p) + p[0], p[0]]), 1),
    ("a polyhedral cone", None, lambda p: torch.stack([p[0] + p[1], p[0] - p[1], p[0] + p[2]]), 1),
    ("the l1 ball as faces", None, lambda p: CORNERS.to(p) @ p - 1, 1),
    ("the l1 ball as one function with kinks", None, lambda p: p.abs().sum() - 1, 0),
    ("a round cone", None, lambda p: p[1:].square().sum() - p[0].clamp(min=0) ** 2 - 1e-3, 0.5),
    ("a flat disc", None, lambda p: torch.stack([p[0], -p[0], sphere(p)]), 1),
    ("ellipsoid and half-space", None, lambda p: torch.stack([ellipsoid(p), p.sum() - 1]), 1),
    ("redundant equations", lambda p: torch.stack([sphere(p), 3 * sphere(p), -sphere(p)]), None, 1),
    ("a circle as two surfaces", lambda p: torch.stack([sphere(p), p.sum()]), None, 1),
    ("torus", torus, None, 1),
    ("a region without numbers", None, lambda p: torch.stack([0.1 - p[0].log(), sphere(p - 2)]), 0.5),
]


def judge(x, y, eq, ineq, slack):
    """The largest violation at y, and how far x - y is from the cone of the normals there, both relative to lengths."""

    def of(f):
        if f is None:
            return np.zeros(0), np.zeros((0, 3))
        value = f(y).reshape(-1)
        J = torch.autograd.functional.jacobian(lambda p: f(p).reshape(-1), y)
        return value.numpy(), J.numpy()

    (e, E), (h, A) = of(eq), of(ineq)
    size = float(x.norm() + y.norm()) + 1e-300
    steep = np.linalg.norm(np.concatenate([E, A]), axis=1)
    steep = np.where(steep > 1e-30, steep, 1.0)
    off = np.concatenate([np.abs(e), h]) / steep
    near = h / steep[len(e) :] >= -slack * size
    normals = (
        np.concatenate([E, -E, A[near]]) / np.concatenate([steep[: len(e)], steep[: len(e)], steep[len(e) :][near]])[:, None]
    )
    push = (x - y).numpy()
    rest = nnls(normals.T, push)[1] if len(normals) else np.linalg.norm(push)
    return off.max() / size, rest / size


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("case", CASES, ids=[c[0] for c in CASES])
def test_every_row_is_right_or_flagged(case, dtype):
    """Near and far points, 0, axes; on convex sets, where stationary points are nearest, this says that they are nearest."""
    name, eq, ineq, share = case
    eps = torch.finfo(dtype).eps
    x = torch.cat([draw(6, 3), 1e3 * draw(2, 3, seed=1), 1e8 * draw(2, 3, seed=2), torch.zeros(1, 3), 2 * torch.eye(3)]).to(dtype)
    s = ib.Implicit(3, eq=eq, ineq=ineq, on_fail="best").solve(x)
    assert s.ok.double().mean() >= share, s
    assert torch.isfinite(s.point).all()
    for i in s.ok.nonzero()[:, 0].tolist():
        off, rest = judge(x[i].double(), s.point[i].double(), eq, ineq, 512 * eps)
        room = 1e-15 if s.status[i] == OK and eq is None else 64 * eps  # log of one number may differ from that of a batch
        assert off <= room and rest <= max(512 * eps, 1e-9), (name, x[i], s.point[i], off, rest)


def test_convex_rows_are_nearest_by_another_solver():
    """scipy's SLSQP from several starts finds nothing nearer."""
    _, eq, ineq, _ = next(c for c in CASES if c[0] == "ellipsoid and half-space")
    x = 2 * draw(6, 3, seed=3)
    y = ib.Implicit(3, eq=eq, ineq=ineq).project(x)
    for a, b in zip(x.numpy(), y.numpy(), strict=True):
        rules = [{"type": "ineq", "fun": lambda p: -ineq(torch.from_numpy(p)).numpy()}]
        found = min(minimize(lambda p: ((p - a) ** 2).sum(), z, constraints=rules, tol=1e-12).fun for z in (a / 4, 0 * a))  # noqa: B023
        assert ((b - a) ** 2).sum() <= found + 1e-7


def test_singular_starts():
    """Where the gradient of an equation is 0 and every point is nearest, one of them is found."""
    s = ib.Implicit(3, eq=sphere).solve(torch.zeros(1, 3, dtype=torch.float64))
    assert (s.status == OK).all() and abs(float(s.point.norm()) - 1) <= 1e-14
    s = ib.Implicit((3, 3), eq=lambda p: (p @ p.T - torch.eye(3).to(p)).flatten()).solve(
        torch.zeros(1, 3, 3, dtype=torch.float64)
    )
    assert (s.status == OK).all() and (s.point[0] @ s.point[0].T - torch.eye(3)).abs().max() <= 1e-13


def test_points_a_thousand_sizes_away_converge_on_curved_sets():
    for f in (ellipsoid, torus):
        x = 1e3 * draw(16, 3, seed=4)
        s = ib.Implicit(3, eq=f).solve(x)
        assert (s.status == OK).all()
    truth = ib.Ellipsoid(AXES.sqrt().tolist())
    s = ib.Implicit(3, ineq=ellipsoid).solve(x)
    torch.testing.assert_close(s.point, truth.project(x), atol=1e-9, rtol=0)
    assert math.isfinite(float(s.optimality.max())) and int(s.status.max()) <= FLAT
