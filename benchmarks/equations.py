"""Sets from equations next to peer packages: forward + backward, one thread. `make bench-equations` runs it.

Times are of the processor, so that other programs on the machine matter less; medians over rounds in which ours and the peers
take turns (those in jax run in a process of their own, right after). ratio = peer / ours at the same dtype, so above 1 ours is
faster. A call of more than `ENOUGH` seconds is not repeated, and a peer that takes more than `SLOW` ms at batch 256 is left
out at batch 4096, which is printed. Violations are maxima over the batch, re-checked in float64, with the parameters in the dtype
of the input.

The distance is to the true projection, by a judge that knows nothing of the solver:
- linear constraints: `Polytope` in float64, whose own error is bounded by scipy's nnls, an active-set method: for a feasible y,
  |y - P(x)| is at most the distance of x - y from the cone of the normals at y;
- a closed form where there is one; Dykstra's method for other convex sets;
- elsewhere the nearest of many restarts.

Gradients are compared with central differences in float64. Targets that are missed are printed as MISSED. Only a full run
writes results/equations.json, after every case: one that is stopped leaves what it has, and says so. `--again NAMES` measures
cases anew, or for the first time, and puts their rows in the place of the stored ones, which the file then says.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import math
import statistics
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from equations_peers import (
    JAX_PEERS,
    Curved,
    Fn,
    Linear,
    cvxpy_layer,
    cvxpylayers,
    enforce,
    in_jax,
    proxsuite,
    qpth,
    rayen,
    wide,
)
from torch import Tensor

import inbounds as ib
from inbounds.records import machine

RESULTS = Path(__file__).parents[1] / "results" / "equations.json"
PEERS = ("enforce-nn", "cvxpylayers", "proxsuite", "qpth", "rayen", "scipy")
ENOUGH = 0.5  # seconds of a first call that is not repeated
SLOW = 600.0  # ms of a peer at batch 256
LARGE = 100  # variables of a cone program that is given to cvxpylayers
ROUNDS = 3000  # of Dykstra's method
JUDGED = 64  # rows that slow judges look at
NEAR_SHARE, GRADIENT, STATIONARY = 0.99, 1e-6, 1e-9  # what must be reached
Make = Callable[[torch.dtype], Fn]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@dataclass(frozen=True)
class Case:
    """A set with points x(batch), (R, n), to project; ours and its peers are made for a dtype and map (R, n) to (R, n).

    violation(y, dtype): the largest inequality, and the largest |equality| in units of rounding of the dtype.
    truth(x, dtype): the projection in float64 of some of the first rows. must: the least ratio for (peer, batch).
    """

    name: str
    x: Callable[[int], Tensor]
    ours: Make
    violation: Callable[[Tensor, torch.dtype], tuple[float, float]]
    truth: Callable[[Tensor, torch.dtype], Tensor]
    peers: dict[str, Make] = field(default_factory=dict)
    linear: Linear | None = None
    implicit: Callable[[int], ib.Implicit] | None = None
    must: dict[tuple[str, int], float] = field(default_factory=dict)
    batches: tuple[int, ...] = (256, 4096)
    study: bool = False  # of restarts
    near: bool = False  # most of its points must be nearest without restarts


# --- linear constraints ------------------------------------------------------------------------------------------------
def random_faces(n: int, m: int, p: int) -> Linear:
    """Unit normals, an inner point 0.1 to 1.1 away from every face."""
    A, E, inner = draw(m, n, seed=1), draw(p, n, seed=2), 0.1 * draw(n, seed=3)
    A = A / A.norm(dim=1, keepdim=True)
    room = torch.rand(m, generator=torch.Generator().manual_seed(4), dtype=torch.float64) + 0.1
    return Linear(A, A @ inner + room, E, E @ inner)


def shares(n: int, cap: float, sectors: int, limit: float) -> Linear:
    """n shares of at most `cap` with sum 1, in sectors of at most `limit`; no sectors if 0."""
    eye, one = torch.eye(n, dtype=torch.float64), torch.ones(1, n, dtype=torch.float64)
    groups = torch.eye(sectors, dtype=torch.float64).repeat_interleave(n // max(sectors, 1), 1) if sectors else one[:0]
    b = torch.tensor([0.0] * n + [cap] * n + [limit] * sectors, dtype=torch.float64)
    return Linear(torch.cat([-eye, eye, groups]), b, one, one[:, 0])


def box_and_planes(n: int, p: int) -> Linear:
    eye = torch.eye(n, dtype=torch.float64)
    E = draw(p, n, seed=2)
    return Linear(torch.cat([-eye, eye]), torch.ones(2 * n, dtype=torch.float64), E, E @ (0.3 * draw(n, seed=3).tanh()))


def polytope(case: Linear, dtype: torch.dtype) -> ib.Polytope:
    A, b, E, f = case.to(dtype)
    return ib.Polytope(A, b, *((E, f) if len(E) else (None, None)))


def linear_violation(case: Linear, y: Tensor, dtype: torch.dtype) -> tuple[float, float]:
    A, b, E, f = (t.double() for t in case.to(dtype))
    unit = torch.finfo(dtype).eps * (E.norm(dim=1) * y.norm(dim=1, keepdim=True) + f.abs())
    return float((y @ A.mT - b).max()), float(((y @ E.mT - f).abs() / unit).max()) if len(E) else 0.0


def linear_truth(case: Linear, x: Tensor, dtype: torch.dtype) -> Tensor:
    cast = Linear(*(t.double() for t in case.to(dtype)))
    return polytope(cast, torch.float64).project(x)


def linear_case(
    name: str, faces: Linear, spread: float = 1.0, must=None, ours: Make | None = None, batches=(256, 4096), cone: bool = False
) -> Case:
    """cone: with cvxpylayers, which takes seconds for a batch of 256."""
    peers = {"qpth": partial(qpth, faces), "proxsuite": partial(proxsuite, faces), "rayen": partial(rayen, faces)}
    if cone:
        peers["cvxpylayers"] = partial(cvxpylayers, faces)
    return Case(
        name,
        lambda batch: spread * draw(batch, faces.A.shape[1], seed=5),
        ours or (lambda dtype: polytope(faces, dtype).project),
        partial(linear_violation, faces),
        partial(linear_truth, faces),
        peers,
        linear=faces,
        must=must or {},
        batches=batches,
    )


def certified(case: Linear, x: Tensor, y: Tensor) -> float:
    """A bound of |y - P(x)| / (1 + |x|) for feasible y, by nnls."""
    from scipy.optimize import nnls

    worst, size = 0.0, case.A.norm(dim=1)
    for a, p in zip(x[:JUDGED], y[:JUDGED], strict=True):
        near = (case.A @ p - case.b) / size >= -1e-10 * (1 + float(p.norm()))
        normals = torch.cat([(case.A / size[:, None])[near], case.E, -case.E]).mT.numpy()
        rest = nnls(normals, (a - p).numpy())[1] if normals.shape[1] else float((a - p).norm())
        worst = max(worst, rest / (1 + float(a.norm())))
    return worst


def conditioned(case: Linear, x: Tensor, dtype: torch.dtype) -> Tensor:
    """The condition number k of the unit normals of the faces that hold, for the first rows."""
    cast = Linear(*(t.double() for t in case.to(dtype)))
    active = polytope(cast, torch.float64).solve(x[:JUDGED]).active[:, len(cast.E) :]
    A, E = cast.A / cast.A.norm(dim=1, keepdim=True), cast.E / cast.E.norm(dim=1, keepdim=True)
    values = [torch.linalg.svdvals(torch.cat([A[a], E])) for a in active]
    return torch.stack([v.max() / v[v > 1e-10].min() if len(v) else torch.ones((), dtype=v.dtype) for v in values])


# --- sets given by functions -------------------------------------------------------------------------------------------
def hand(q: Tensor) -> Tensor:
    """Where an arm with links of length 1 and joint angles q ends."""
    a = q.cumsum(-1)
    return torch.stack([a.cos().sum(-1), a.sin().sum(-1)], -1)


def arm(x: float, y: float, limit: float) -> Curved:
    goal = torch.tensor([x, y], dtype=torch.float64)
    return Curved(lambda q: hand(q) - goal.to(q), lambda q: torch.cat([q - limit, -limit - q], -1))


def square(p: Tensor) -> Tensor:
    return (p * p).sum(-1)


def orthogonal(p: Tensor) -> Tensor:
    m = p.unflatten(-1, (5, 5))
    return (m @ m.mT - torch.eye(5, dtype=p.dtype)).flatten(-2)


def discs(p: Tensor) -> Tensor:
    """Six discs of radius 0.4 on a circle of radius 1.5."""
    angles = torch.arange(6, dtype=p.dtype) * (math.pi / 3)
    centres = 1.5 * torch.stack([angles.cos(), angles.sin()], -1)
    return (square(p[..., None, :] - centres) - 0.16).amin(-1)


def nearest_disc(p: Tensor) -> Tensor:
    angles = torch.arange(6, dtype=p.dtype) * (math.pi / 3)
    away = p[:, None, :] - 1.5 * torch.stack([angles.cos(), angles.sin()], -1)
    d = away.norm(dim=2)
    best, i = d.min(1)
    step = away.gather(1, i[:, None, None].expand(-1, 1, 2))[:, 0] / best[:, None]
    return p - step * (best - 0.4).clamp(min=0)[:, None]


def nearest_on_torus(p: Tensor) -> Tensor:
    flat = p[:, :2].norm(dim=1, keepdim=True)
    core = torch.cat([2 * p[:, :2] / flat, torch.zeros_like(flat)], 1)
    return core + 0.5 * (p - core) / (p - core).norm(dim=1, keepdim=True)


def polar(p: Tensor) -> Tensor:
    u, _, vh = torch.linalg.svd(p.unflatten(-1, (5, 5)))
    return (u @ vh).flatten(-2)


def slopes(f: Fn, y: Tensor) -> tuple[Tensor, Tensor]:
    """Values (R, k) and the lengths of their gradients, (R, k)."""
    y = y.clone().requires_grad_()
    c = wide(f(y))
    rows = [torch.autograd.grad(c[:, i].sum(), y, retain_graph=True)[0].norm(dim=1) for i in range(c.shape[1])]
    return c.detach(), torch.stack(rows, 1)


def curved_violation(case: Curved, y: Tensor, dtype: torch.dtype) -> tuple[float, float]:
    over = float(case.ineq(y).max()) if case.ineq is not None else -math.inf
    if case.eq is None:
        return over, 0.0
    c, slope = slopes(case.eq, y)
    return over, float((c.abs() / (torch.finfo(dtype).eps * slope * y.norm(dim=1, keepdim=True))).max())


def curved_case(
    name: str, case: Curved, n: int, spread: float, shift: float = 0.0, truth: Fn | None = None, count: int = 1, **more
) -> Case:
    def implicit(restarts: int) -> ib.Implicit:
        return ib.Implicit(n, case.eq, case.ineq, restarts=restarts, on_fail="best")

    def restarted(x: Tensor, dtype: torch.dtype) -> Tensor:
        return implicit(16).project(x[:JUDGED])

    goal = {("enforce", 256): 2 / 3 if count == 1 else 1.0, ("enforce", 4096): 2 / 3 if count == 1 else 1.0}
    return Case(
        name,
        lambda batch: spread * draw(batch, n, seed=6) + shift,
        lambda dtype: implicit(0).project,
        partial(curved_violation, case),
        restarted if truth is None else lambda x, dtype: truth(x),
        {"enforce": partial(enforce, case, n)},
        implicit=implicit,
        must=goal,
        **more,
    )


# --- intersections -----------------------------------------------------------------------------------------------------
def dykstra(planes: Fn, cone: Fn, x: Tensor, dtype: torch.dtype) -> Tensor:
    """The nearest point of two convex sets from their projections, for a few rows: slow, sure, and another method than ours."""
    y = x[: JUDGED // 4]
    rest = torch.zeros_like(y)
    for _ in range(ROUNDS):
        z = planes(y)
        y = cone(z + rest)
        rest = z + rest - y
    return planes(y)


def convex_case(name: str, ours: Make, n: int, rules, violation, x: Callable[[int], Tensor], batches, truth) -> Case:
    def layer(dtype: torch.dtype) -> Fn:
        if n > LARGE:
            raise RuntimeError(f"left out, not tried with more than {LARGE} variables, got {n}")
        return cvxpy_layer(n, rules)

    peers: dict[str, Make] = {"cvxpylayers": layer}
    return Case(name, x, ours, violation, truth, peers, batches=batches)


def correlation(n: int, batches: tuple[int, ...]) -> Case:
    def rules(cp, y) -> list:
        Y = cp.reshape(y, (n, n), order="C")
        return [cp.bmat([[Y]]) >> 0, cp.diag(Y) == 1, Y == Y.T]

    def violation(y: Tensor, dtype: torch.dtype) -> tuple[float, float]:
        Y = y.unflatten(-1, (n, n))
        off = (Y.diagonal(dim1=-2, dim2=-1) - 1).abs().max() / torch.finfo(dtype).eps
        return -float(torch.linalg.eigvalsh(0.5 * (Y + Y.mT)).min()), float(off)

    def points(batch: int) -> Tensor:
        u = 0.7 * draw(batch, n, n, seed=7)
        return (0.5 * (u + u.mT) + torch.eye(n)).flatten(1)

    M = ib.Correlation(n)
    ours: Make = lambda dtype: lambda x: M.project(x.unflatten(-1, (n, n))).flatten(1)  # noqa: E731
    truth = partial(dykstra, lambda y: with_ones(y, n), lambda y: positive(y, n))
    return convex_case(f"correlation matrices, n = {n}", ours, n * n, rules, violation, points, batches, truth)


def with_ones(y: Tensor, n: int) -> Tensor:
    return torch.where(torch.eye(n, dtype=torch.bool).flatten(), 1.0, y)


def positive(y: Tensor, n: int) -> Tensor:
    e, v = torch.linalg.eigh(y.unflatten(-1, (n, n)))
    return ((v * e.clamp(min=0)[:, None, :]) @ v.mT).flatten(1)


def in_cone(y: Tensor) -> Tensor:
    """The nearest (t, x) with |x| <= t."""
    t, v = y[:, :1], y[:, 1:]
    size = v.norm(dim=1, keepdim=True)
    half = 0.5 * (t + size).clamp(min=0)
    outer = torch.cat([half, half * v / size], 1)
    return torch.where(size <= t, y, torch.where(size <= -t, 0.0, outer))


def cone_and_planes(n: int = 10, p: int = 3) -> Case:
    E = draw(p, n, seed=2)
    f = E @ torch.cat([torch.ones(1, dtype=torch.float64), 0.1 * draw(n - 1, seed=3)])
    inverse = torch.linalg.pinv(E)

    def violation(y: Tensor, dtype: torch.dtype) -> tuple[float, float]:
        unit = torch.finfo(dtype).eps * (E.norm(dim=1) * y.norm(dim=1, keepdim=True) + f.abs())
        return float((y[:, 1:].norm(dim=1) - y[:, 0]).max()), float(((y @ E.mT - f).abs() / unit).max())

    def rules(cp, y) -> list:
        return [cp.SOC(y[0], y[1:]), E.numpy() @ y == f.numpy()]

    M = ib.Intersection(ib.SecondOrderCone(n), ib.Affine(E, f))
    x = lambda batch: draw(batch, n, seed=5)  # noqa: E731
    truth = partial(dykstra, lambda y: y - (y @ E.mT - f) @ inverse.mT, in_cone)
    return convex_case("second-order cone and planes", lambda dtype: M.project, n, rules, violation, x, (256,), truth)


def sphere_and_half_space() -> Case:
    a = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)
    case = Curved(lambda p: square(p) - 1, lambda p: p @ a.to(p) - 0.5)
    M = ib.Intersection(ib.Sphere(3), ib.Halfspace(a, 0.5))
    whole = curved_case("sphere and half-space", case, 3, 1.5, count=2)
    return Case(whole.name, whole.x, lambda dtype: M.project, whole.violation, whole.truth, whole.peers, must=whole.must)


def cases() -> list[Case]:
    small = {("qpth", 256): 8.0, ("qpth", 4096): 20.0, ("proxsuite", 256): 5.0, ("proxsuite", 4096): 12.0}
    small |= {("cvxpylayers", 256): 50.0}
    dc3 = {("qpth", 256): 40.0, ("proxsuite", 256): 20.0}
    axes = torch.tensor([1.0, 4.0, 9.0], dtype=torch.float64)
    ellipsoid = Curved(ineq=lambda p: torch.stack([(p * p / axes.to(p)).sum(-1) - 1, p.sum(-1) - 1], -1))
    torus = Curved(lambda p: (square(p[..., :2]).sqrt() - 2) ** 2 + p[..., 2] ** 2 - 0.25)
    ball = lambda p: p / p.norm(dim=1, keepdim=True)  # noqa: E731
    simplex = lambda dtype: ib.CappedSimplex(20, 0.1).project  # noqa: E731
    return [
        linear_case("10 variables, 30 faces", random_faces(10, 30, 0), must=small, cone=True),
        linear_case("DC3's size: 100 variables, 50 + 50", random_faces(100, 50, 50), must=dc3),
        linear_case("shares with caps and sectors", shares(20, 0.1, 5, 0.3), 0.3, cone=True),
        linear_case("shares with caps", shares(20, 0.1, 0, 0.0), 0.3, ours=simplex),
        linear_case("box in 50 dimensions and 10 planes", box_and_planes(50, 10), batches=(256,)),
        curved_case(
            "disk", Curved(ineq=lambda p: square(p) - 1), 2, 1.5, truth=lambda p: torch.where(square(p)[:, None] > 1, ball(p), p)
        ),
        curved_case(
            "outside a ball",
            Curved(ineq=lambda p: 1 - square(p)),
            3,
            1.0,
            truth=lambda p: torch.where(square(p)[:, None] < 1, ball(p), p),
        ),
        curved_case("sphere", Curved(lambda p: square(p) - 1), 3, 1.5, truth=ball),
        curved_case("torus", torus, 3, 1.5, truth=nearest_on_torus, study=True, near=True),
        curved_case("six discs", Curved(ineq=discs), 2, 1.5, truth=nearest_disc, study=True, near=True),
        curved_case("ellipsoid and half-space", ellipsoid, 3, 2.0, count=2),
        curved_case("O(5) as 25 equations", Curved(orthogonal), 25, 1.0, truth=polar, count=25, batches=(256,)),
        curved_case("2-link arm", arm(1.2, 0.5, 2.5), 2, 1.0, 0.5, count=6, batches=(256,), study=True),
        curved_case("6-link arm, near", arm(2.0, 3.0, 2.0), 6, 0.5, 0.5, count=14, near=True, study=True),
        curved_case("6-link arm, far", arm(2.0, 3.0, 2.0), 6, 2.0, 0.5, count=14, batches=(256,), study=True),
        correlation(5, (256,)),
        correlation(20, (64,)),
        cone_and_planes(),
        sphere_and_half_space(),
        linear_case("20 variables, 200 faces", random_faces(20, 200, 0)),
        linear_case("100 variables, 100 faces", random_faces(100, 100, 0), batches=(256,)),
    ]


# --- measuring ---------------------------------------------------------------------------------------------------------
def timed(f: Fn, x: Tensor) -> tuple[float, Tensor]:
    x = x.clone().requires_grad_()
    start = time.process_time()
    y = f(x)
    torch.autograd.grad(y, x, torch.ones_like(y))
    return 1e3 * (time.process_time() - start), y.detach()


def in_turns(ways: dict[str, Fn], x: Tensor, rounds: int) -> tuple[dict[str, float], dict[str, Tensor], dict[str, str]]:
    """Medians in ms, points, and what went wrong, by name."""
    times: dict[str, list[float]] = {}
    points, errors, first = {}, {}, {}
    for name, f in ways.items():
        try:
            timed(f, x[:4])  # imports and caches
            first[name], points[name] = timed(f, x)
            times[name] = [first[name]] if first[name] > 1e3 * ENOUGH else []
        except Exception as error:  # a peer that fails must not end the run
            errors[name] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    for _ in range(rounds):
        for name in [k for k in times if first[k] <= 1e3 * ENOUGH]:
            times[name].append(timed(ways[name], x)[0])
    return {k: statistics.median(t) for k, t in times.items()}, points, errors


def gradient_error(f: Fn, x: Tensor, rows: int = 32) -> float:
    """The median over rows of |autograd - central differences| in a random direction, relative."""
    x = x[:rows]
    w, d, h = draw(*x.shape, seed=8), draw(*x.shape, seed=9), 1e-6
    z = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(f(z), z, w)
    true = ((f(x + h * d) - f(x - h * d)).detach() * w).sum(1) / (2 * h)
    return float((((g * d).sum(1) - true).abs() / (1 + true.abs())).median())


@dataclass
class Row:
    """What was measured for one case, batch and dtype; by name of the package, `inbounds` first."""

    case: str
    batch: int
    dtype: str
    ms: dict[str, float]
    ratio: dict[str, float]
    violation: dict[str, tuple[float, float]]
    distance: dict[str, float]
    errors: dict[str, str]
    facts: dict[str, float] = field(default_factory=dict)
    met: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def demand(self, what: str, good: bool) -> None:
        (self.met if good else self.missed).append(what)


def measure(case: Case, batch: int, dtype: torch.dtype, rounds: int, before: dict[str, float]) -> Row:
    """before: ms of the peers at a smaller batch."""
    x = case.x(batch).to(dtype)
    slow = {k: f"left out, {t:.0f} ms at batch 256" for k, t in before.items() if t > SLOW and k != "inbounds"}
    makers = {"inbounds": case.ours} | {k: m for k, m in case.peers.items() if k not in slow}
    ways, errors = {}, {}
    for name, make in makers.items():
        try:
            ways[name] = make(dtype)
        except Exception as error:  # reported, not left out silently
            errors[name] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    ms, points, failed = in_turns(ways, x, rounds)
    if case.linear is not None:
        ask_jax(case.linear, x, rounds, slow, ms, points, failed)
    truth = case.truth(x.double(), dtype)
    distance = {k: distances(y, truth, x) for k, y in points.items()}
    row = Row(
        case.name,
        batch,
        str(dtype).removeprefix("torch."),
        ms,
        {k: t / ms["inbounds"] for k, t in ms.items()},
        {k: case.violation(y.double(), dtype) for k, y in points.items()},
        {k: float(d.max()) for k, d in distance.items()},
        errors | failed | slow,
    )
    judge(case, row, x, points["inbounds"], truth, distance["inbounds"], dtype)
    return row


def distances(y: Tensor, truth: Tensor, x: Tensor) -> Tensor:
    """|y - P(x)| / (1 + |x|) for the rows whose truth is known."""
    k = len(truth)
    return (y[:k].double() - truth).norm(dim=1) / (1 + x[:k].double().norm(dim=1))


def ask_jax(faces: Linear, x: Tensor, rounds: int, slow: dict, ms: dict, points: dict, errors: dict) -> None:
    """Adds what the peers in jax say. qpax is asked in float64 only; float32 was not tried."""
    peers = [p for p in JAX_PEERS if p not in slow and (p != "qpax" or x.dtype == torch.float64)]
    out = in_jax(peers, faces, x, rounds)
    for peer in peers:
        if f"{peer}, error" in out:
            errors[peer] = str(out[f"{peer}, error"])
        else:
            ms[peer], points[peer] = statistics.median(out[f"{peer}, ms"].tolist()), torch.from_numpy(out[f"{peer}, y"])


def judge(case: Case, row: Row, x: Tensor, y: Tensor, truth: Tensor, distance: Tensor, dtype: torch.dtype) -> None:
    """Adds facts about ours, and which targets are met and missed."""
    eps = torch.finfo(dtype).eps
    s = case.implicit(0).solve(x) if case.implicit is not None else None
    over, equal = case.violation(y.double() if s is None else y[s.ok].double(), dtype)  # of the rows that are not flagged
    row.demand(f"inequalities {over:+.1e} <= 0", over <= 0)
    if case.linear is not None:
        own = certified(Linear(*(t.double() for t in case.linear.to(dtype))), x.double(), truth)
        room = 32 * conditioned(case.linear, x.double(), dtype)
        share = float(((distance[:JUDGED] + own) / (eps * room)).max())
        row.facts["judge's bound"] = own
        row.demand(f"distance {share:.2g} of 32 eps k (|x| + 1)", share <= 1 and own <= 2.3e-16 * float(room.min()))
    if s is not None:
        row.demand(f"equations {equal:.1f} of 8 eps |grad||x|", equal <= 8)
        row.facts |= {"ok": int(s.ok.sum()), "stationary": float(s.optimality[s.ok].max())}
        if dtype == torch.float64:
            row.demand(f"KKT {row.facts['stationary']:.1e} of {STATIONARY:g}", row.facts["stationary"] <= STATIONARY)
    if dtype == torch.float64:
        row.facts["gradient"] = gradient_error(case.ours(dtype), x)
        row.demand(f"gradient {row.facts['gradient']:.1e} of {GRADIENT:g}", row.facts["gradient"] <= GRADIENT)
    for (peer, batch), least in case.must.items():
        if batch == row.batch and peer in row.ratio:
            row.demand(f"{peer} x{row.ratio[peer]:.3g} of x{least:.3g}", row.ratio[peer] >= least)


def study(case: Case, rows: int) -> dict:
    """The share of points that are nearest with 0, 4 and 16 restarts; the truth is the nearest of them and of 32."""
    assert case.implicit is not None
    x = case.x(rows)
    found = {}
    for restarts in (0, 4, 16, 32):
        s = case.implicit(restarts).solve(x)
        found[restarts] = torch.where(s.ok, (s.point - x).norm(dim=1), math.inf)
    best = torch.stack(list(found.values())).amin(0)
    share = {str(k): float((d <= best * (1 + 1e-6) + 1e-9).double().mean()) for k, d in found.items() if k < 32}
    feasible = {str(k): float(d.isfinite().double().mean()) for k, d in found.items() if k < 32}
    word = "" if not case.near else "met" if share["0"] >= NEAR_SHARE else "MISSED"
    return {"case": case.name, "rows": rows, "nearest": share, "ok": feasible, "from near, 99 %": word}


# --- reporting ---------------------------------------------------------------------------------------------------------
def show(row: Row) -> None:
    print(f"{row.case}, batch {row.batch}, {row.dtype}: " + ", ".join(f"{k} {v:.2g}" for k, v in row.facts.items()))
    for k, ms in row.ms.items():
        over, equal = row.violation[k]
        facts = f"inequality {over:+.1e}  equations {equal:8.2g} eps  distance {row.distance[k]:.1e}"
        print(f"  {k:12} {ms:9.1f} ms  x{row.ratio[k]:<7.3g} {facts}")
    for k, error in row.errors.items():
        print(f"  {k:12} {error}")
    print(f"  met: {'; '.join(row.met) or 'none'}")
    for what in row.missed:
        print(f"  MISSED {what}")
    print(end="", flush=True)


def rows_of(case: Case, rounds: int, quick: bool) -> Iterator[Row]:
    """float64, and float32 where there are targets."""
    for dtype in (torch.float64, torch.float32) if case.must and not quick else (torch.float64,):
        before: dict[str, float] = {}
        for batch in (32,) if quick else case.batches:
            row = measure(case, batch, dtype, rounds, before)
            before = row.ms
            yield row


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def commit() -> str:
    out = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=RESULTS.parent, capture_output=True, text=True)
    return out.stdout.strip() or "unknown"


def header(rounds: int, minutes: float) -> dict:
    return {
        "command": "make bench-equations",
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "machine": machine() | {"threads": torch.get_num_threads()},
        "clock": "CPU time",
        "rounds": rounds,
        "minutes": round(minutes, 1),
        "versions": {p: version(p) for p in PEERS} | {"pinet-hcnn, qpax": "see benchmarks/equations-jax.txt"},
    }


def plain(value: Any) -> Any:
    """Numbers of three digits, so that the stored file stays short."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return (float(f"{value:.3g}") if math.isfinite(value) else str(value)) if isinstance(value, float) else value


@dataclass
class Stored:
    """What results/equations.json holds: a head, rows, studies of restarts."""

    head: dict = field(default_factory=dict)
    rows: list[dict] = field(default_factory=list)
    restarts: list[dict] = field(default_factory=list)
    start: float = field(default_factory=time.monotonic)

    @classmethod
    def load(cls) -> Stored:
        record = json.loads(RESULTS.read_text())
        rows, restarts = record.pop("rows"), record.pop("restarts")
        return cls(record, rows, restarts)

    def forget(self, case: str) -> None:
        self.rows = [r for r in self.rows if r["case"] != case]
        self.restarts = [r for r in self.restarts if r["case"] != case]

    def missed(self) -> list[str]:
        few = [s for s in self.restarts if s["from near, 99 %"] == "MISSED"]
        rows = [f"{r['case']}, batch {r['batch']}, {r['dtype']}: {what}" for r in self.rows for what in r["missed"]]
        return rows + [f"{s['case']}: nearest {s['nearest']['0']:.3f} without restarts" for s in few]

    def write(self, rounds: int, again: str) -> None:
        new = header(rounds, (time.monotonic() - self.start) / 60)
        if again:
            self.head["again"] = self.head.get("again", {}) | {again: {"commit": new["commit"], "date": new["date"]}}
        else:
            self.head = new
        self.head["complete"] = {r["case"] for r in self.rows} == {c.name for c in cases()}
        record = self.head | {"missed": self.missed(), "rows": self.rows, "restarts": self.restarts}
        RESULTS.write_text(json.dumps(record, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="batch 32, float64, one round, nothing written")
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose name contains this; nothing written")
    parser.add_argument(
        "--again", default="", metavar="NAMES", help="measure these cases anew in the stored file, separated by ;"
    )
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rounds = 1 if args.quick else args.rounds
    chosen = [c for c in cases() if args.only in c.name and (not args.again or c.name in args.again.split(";"))]
    if args.quick and not args.only:  # one of each kind
        chosen = [
            c for c in chosen if c.name.split(",")[0] in ("10 variables", "shares with caps and sectors", "sphere", "2-link arm")
        ]
    stored = Stored.load() if args.again else Stored()
    for case in chosen:
        stored.forget(case.name)
        for row in rows_of(case, rounds, args.quick):
            show(row)
            stored.rows.append(plain(vars(row)))
        if case.study:
            stored.restarts.append(plain(study(case, 8 if args.quick else 100)))
            print("  restarts:", json.dumps(stored.restarts[-1]), flush=True)
        if not args.quick and not args.only:
            stored.write(rounds, case.name if args.again else "")
    missed = stored.missed()
    print(
        f"{sum(len(r['met']) for r in stored.rows)} targets met, {len(missed)} missed"
        + "".join(f"\n  MISSED {m}" for m in missed)
    )


if __name__ == "__main__":
    main()
