"""Beyond output layers: optimisers, distributions and hyperbolic space beside geoopt, one thread. `make bench-beyond` runs it.

Times are CPU times of `optimizer.step()` alone, medians over rounds in which ours and geoopt's take turns; ratio = geoopt / ours,
so above 1 ours is faster. Errors are distances to the optimum, which a formula or a solver gives. It writes results/beyond.json.

One rule sets all optimisers, ours and geoopt's, on all problems: the rate begins at a tenth of the length of the start and decays
to a millionth of that within STEPS; the memory of the second moment is a fifth of the time constant of that decay.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import inbounds as ib
from inbounds.distributions import IsotropicSO3, ProjectedNormal, VonMisesFisher, WrappedNormal
from inbounds.distributions.angles import legendre, log_sphere_area
from inbounds.distributions.von_mises_fisher import polar_law
from inbounds.records import head

D = torch.float64
STEPS = 1000
BETAS = (0.9, 1 - 70 / STEPS)
RESULTS = Path(__file__).parents[1] / "results" / "beyond.json"


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=D, generator=torch.Generator().manual_seed(seed))


# --- optimisers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """A function on a set with its minimiser; `theirs` names geoopt's manifold, if it has one."""

    M: ib.ConstraintSet
    loss: Callable[[Tensor], Tensor]
    start: Tensor
    best: Callable[[Tensor], Tensor]  # the error of a point
    theirs: str | None = None

    @property
    def lr(self) -> float:
        return 0.1 * float(self.M._flat(self.M.project(self.start)).norm(dim=-1).mean())


def procrustes() -> Problem:
    M, A, B = ib.Stiefel(20, 5), draw(5, 30), draw(64, 20, 30, seed=1)
    best = M.project(B @ A.mT)
    error = lambda X: (X - best).flatten(1).norm(dim=-1)  # noqa: E731
    return Problem(M, lambda X: (X @ A - B).square().sum(), draw(64, 20, 5, seed=2), error, "EuclideanStiefel")


def averaging() -> Problem:
    M = ib.SO(3)
    R = M.project(M.project(draw(512, 1, 3, 3)) + 0.3 * draw(512, 9, 3, 3, seed=1))
    best = M.project(R.mean(1))
    error = lambda X: (X - best).flatten(1).norm(dim=-1)  # noqa: E731
    return Problem(M, lambda X: (X[:, None] - R).square().sum(), R[:, 0], error, "EuclideanStiefel")


def eigenvector() -> Problem:
    A = draw(64, 20, 20)
    A = A @ A.mT / 20
    top = torch.linalg.eigh(A)[1][..., -1]
    error = lambda x: torch.minimum((x - top).norm(dim=-1), (x + top).norm(dim=-1))  # noqa: E731
    loss = lambda x: -(x[:, None] @ A @ x[..., None]).sum()  # noqa: E731
    return Problem(ib.Sphere(20), loss, top + 0.2 * draw(64, 20, seed=1), error, "Sphere")


def quadratic_on_a_ball() -> Problem:
    Q, b = torch.logspace(0, 1.5, 10, dtype=D), 5 * draw(10)
    low, high = 0.0, 1e3
    for _ in range(200):  # the secular equation |b / (Q + l)| = 1
        l = 0.5 * (low + high)
        low, high = (l, high) if (b / (Q + l)).norm() > 1 else (low, l)
    return Problem(ib.Ball(10), lambda x: (0.5 * Q * x * x - b * x).sum(), draw(10, seed=1), lambda x: (x - b / (Q + l)).norm())


def weighted_covariance() -> Problem:
    import cvxpy as cp  # pyright: ignore[reportMissingImports]

    C, W = draw(6, 6), draw(6, 6, seed=1).abs() + 0.5
    C, W = C + C.T, W + W.T
    X = cp.Variable((6, 6), PSD=True)
    cost = cp.sum_squares(cp.multiply(W.sqrt().numpy(), X - C.numpy()))
    cp.Problem(cp.Minimize(0.5 * cost)).solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    best = torch.tensor(X.value, dtype=D)
    return Problem(ib.PSD(6), lambda X: 0.5 * (W * (X - C).square()).sum(), draw(6, 6, seed=2), lambda X: (X - best).norm())


def obstacles() -> Problem:
    centers = [[1.2, 1.9], [1.7, 1.1], [3, 0.45]]
    M = ib.BoxMinusBalls([0.0, 0.0], [4.0, 3.0], centers, [0.6, 0.55, 0.6])
    goal = torch.tensor([1.5, 1.5], dtype=D)
    error = lambda x: M.tangent(x, 2 * (goal - x)).norm(dim=-1)  # noqa: E731
    return Problem(M, lambda x: (x - goal).square().sum(), 4 * draw(32, 2).abs(), error)


def optimiser(p: Problem, x: nn.Parameter, ours: bool) -> torch.optim.Optimizer:
    if ours:
        return ib.optim.RiemannianAdam([{"params": [x], "manifold": p.M}], lr=p.lr, betas=BETAS)
    import geoopt  # pyright: ignore[reportMissingImports]

    return geoopt.optim.RiemannianAdam([x], lr=p.lr, betas=BETAS)


def parameter(p: Problem, ours: bool) -> nn.Parameter:
    start = p.M.project(p.start)
    if ours:
        return nn.Parameter(start)
    import geoopt  # pyright: ignore[reportMissingImports]

    return geoopt.ManifoldParameter(start, manifold=getattr(geoopt, p.theirs or "")())


def optimise(problem: Problem, steps: int) -> dict:
    """Both optimisers on one problem, in turns of ten steps; the rate decays to 1e-6 of its start."""
    runs = {}
    for name in ("ours", "geoopt") if problem.theirs else ("ours",):
        x = parameter(problem, name == "ours")
        opt = optimiser(problem, x, name == "ours")
        runs[name] = x, opt, torch.optim.lr_scheduler.ExponentialLR(opt, 1e-6 ** (1 / steps)), []
    for _ in range(steps // 10):
        for x, opt, decay, times in runs.values():
            spent = 0.0
            for _ in range(10):
                opt.zero_grad()
                problem.loss(x).backward()
                began = time.process_time()
                opt.step()
                spent += time.process_time() - began
                decay.step()
            times.append(100 * spent)  # milliseconds a step
    found = {}
    for name, (x, _, _, times) in runs.items():
        at = x.detach().as_subclass(Tensor)
        found[name] = {
            "error": float(problem.best(at).max()),
            "violation": float(problem.M.violation(at).max()),
            "ms_per_step": statistics.median(times),
        }
    if "geoopt" in found:
        found["ratio"] = found["geoopt"]["ms_per_step"] / found["ours"]["ms_per_step"]
    return found


# --- distributions -----------------------------------------------------------------------------------------------------


def grid(low: float, high: float, count: int = 2000) -> tuple[Tensor, Tensor]:
    """Composite quadrature of its own, which no distribution uses."""
    x, w = legendre(10)
    edges = torch.linspace(low, high, count // 10 + 1, dtype=D)
    h = edges[1] - edges[0]
    return (edges[:-1, None] + h * x).flatten(), (h * w.exp()).repeat(count // 10)


def at_angle(n: int, t: Tensor) -> Tensor:
    return torch.cat([t.cos()[:, None], t.sin()[:, None], torch.zeros(len(t), n - 2, dtype=D)], -1)


def normalisation() -> dict[str, float]:
    """The largest |integral of the density - 1| over dimensions and parameters."""
    t, w = grid(0, math.pi)
    eye = torch.eye(3, dtype=D)
    turns = ib.SO(3).group_exp(t[:, None] * eye[0])
    measure = {n: w * t.sin() ** (n - 2) * math.exp(log_sphere_area(n - 1)) for n in (2, 3, 5, 10)}
    haar = w * 16 * math.sqrt(2) * math.pi * (1 - t.cos())
    plane = ib.Hyperboloid(3)
    o = plane.origin(eye)
    r, wr = grid(0, 14)
    far = plane.exp(o.expand(len(r), 3), r[:, None] * eye[1])
    misses: dict[str, list[Tensor]] = {
        name: [] for name in ("VonMisesFisher", "ProjectedNormal", "IsotropicSO3", "WrappedNormal")
    }
    for n, m in measure.items():
        x, e = at_angle(n, t), torch.eye(n, dtype=D)[0]
        for k in (0.0, 0.5, 5.0, 50.0):
            misses["VonMisesFisher"].append((m * VonMisesFisher(e, k).log_prob(x).exp()).sum() - 1)
            misses["ProjectedNormal"].append((m * ProjectedNormal(k * e).log_prob(x).exp()).sum() - 1)
    for s in (0.1, 0.5, 1.0, 2.0):
        misses["IsotropicSO3"].append((haar * IsotropicSO3(eye, s).log_prob(turns).exp()).sum() - 1)
        misses["WrappedNormal"].append((haar * WrappedNormal(ib.SO(3), eye, s).log_prob(turns).exp()).sum() - 1)
        misses["WrappedNormal"].append(
            (measure[3] * WrappedNormal(ib.Sphere(3), eye[0], s).log_prob(at_angle(3, t)).exp()).sum() - 1
        )
        p = WrappedNormal(plane, o, s).log_prob(far).exp()
        misses["WrappedNormal"].append((wr * p * 2 * math.pi * r.sinh()).sum() - 1)
    return {name: max(abs(float(m)) for m in found) for name, found in misses.items()}


def rejected(n: int, k: Tensor, count: int) -> Tensor:
    """<loc, x> of the rejection sampler of 1994, differentiated along the accepted path."""
    b = (n - 1) / (2 * k + (4 * k * k + (n - 1) ** 2).sqrt())
    x0 = (1 - b) / (1 + b)
    c = k * x0 + (n - 1) * (1 - x0 * x0).log()
    half = torch.tensor((n - 1) / 2, dtype=D)
    kept: list[Tensor] = []
    while sum(map(len, kept)) < count:
        z = torch.distributions.Beta(half, half).sample((count,))
        w = (1 - (1 + b) * z) / (1 - (1 - b) * z)
        ok = (k * w + (n - 1) * (1 - x0 * w).log() - c >= torch.rand(count, dtype=D).log()).detach()
        kept.append(w[ok])
    return torch.cat(kept)[:count]


def vmf_gradients(draws: int, parts: int = 50) -> list[dict]:
    """d/dk E<loc, x> by rsample and by the rejection sampler: how many standard errors they are off the variance of <loc, x>."""
    rows = []
    for n in (4, 5, 10):
        for kappa in (1.0, 10.0, 100.0):
            torch.manual_seed(0)
            law = polar_law(n, torch.tensor(kappa, dtype=D))
            mean = law.mean(torch.cos)
            exact = float(law.mean(lambda t, m=mean: (torch.cos(t) - m).square()))
            row: dict = {"n": n, "kappa": kappa, "exact": exact}
            loc = torch.eye(n, dtype=D)[0]
            ways = {
                "ours": lambda k, loc=loc: VonMisesFisher(loc, k, validate_args=False).rsample((draws // parts,))[:, 0],
                "rejection": lambda k, n=n: rejected(n, k, draws // parts),
            }
            for name, way in ways.items():
                each = []
                for _ in range(parts):
                    k = torch.tensor(kappa, dtype=D, requires_grad=True)
                    each.append(torch.autograd.grad(way(k).mean(), k)[0])
                g = torch.stack(each)
                error = float(g.std() / math.sqrt(parts))
                row[name] = {"mean": float(g.mean()), "standard_errors_off": abs(float(g.mean()) - exact) / error}
            rows.append(row)
    return rows


# --- hyperbolic space --------------------------------------------------------------------------------------------------


def tree(depth: int, edge: float) -> tuple[Tensor, Tensor, Tensor]:
    """Distances, depth and an angle for every node of a balanced binary tree.

    Child and parent differ by an angle that shrinks with the depth as fast as circles of the hyperbolic plane grow.
    """
    count = 2 ** (depth + 1) - 1
    levels = torch.tensor([(k + 1).bit_length() - 1 for k in range(count)])
    paths = [{k, *(((k + 1) >> s) - 1 for s in range(1, int(levels[k]) + 1))} for k in range(count)]
    apart = torch.tensor([[len(a ^ b) for b in paths] for a in paths], dtype=D)
    turn = torch.zeros(count, dtype=D)
    for k in range(1, count):
        turn[k] = turn[(k - 1) // 2] + (0.5 - k % 2) * math.pi * math.exp(-edge * (int(levels[k]) - 1))
    return apart, levels.to(D), turn


def embed(kind: str, steps: int, edge: float = 1.7) -> dict:
    """A tree of depth 6 in two dimensions, distances edge times those of the tree; the distortion is the mean |d / target - 1|.

    The Euclidean embedding may choose its scale afterwards. All are in float32 but for "geoopt, float64".
    """
    apart, level, turn = tree(6, edge)
    i, j = torch.triu_indices(len(apart), len(apart), 1)
    target = edge * apart[i, j]
    flat = (edge * level)[:, None] * torch.stack([turn.cos(), turn.sin()], -1)
    H = ib.Hyperboloid(3)
    start = H.exp(H.origin(flat).expand(len(flat), 3), torch.cat([0 * flat[:, :1], flat], -1))
    start = start if "64" in kind else start.float()
    if kind.startswith("geoopt"):
        import geoopt  # pyright: ignore[reportMissingImports]

        L = geoopt.Lorentz()
        x = geoopt.ManifoldParameter(L.projx(start), manifold=L)
        opt, distance = geoopt.optim.RiemannianAdam([x], lr=0.05), L.dist
    elif kind == "ours":
        x = nn.Parameter(start)
        opt, distance = ib.optim.RiemannianAdam([{"params": [x], "manifold": H}], lr=0.05), H.geodesic_distance
    else:
        x = nn.Parameter(flat.float())
        opt = ib.optim.RiemannianAdam([{"params": [x], "manifold": ib.Euclidean(2)}], lr=0.3)
        distance = ib.Euclidean(2).geodesic_distance
    decay = torch.optim.lr_scheduler.ExponentialLR(opt, 1e-3 ** (1 / steps))
    for _ in range(steps):
        opt.zero_grad()
        ratio = distance(x[i], x[j]) / target.to(x.dtype)
        (ratio if kind != "euclidean" else ratio / ratio.mean()).sub(1).square().mean().backward()
        opt.step()
        decay.step()
    at = x.detach().as_subclass(Tensor).double()
    d = (ib.Euclidean(2) if kind == "euclidean" else H).geodesic_distance(at[i], at[j]) / target
    d = d / d.mean() if kind == "euclidean" else d
    return {"distortion": float((d - 1).abs().mean()), "finite": bool(torch.isfinite(at).all())}


def drift(steps: int) -> dict:
    """Points at the distance 10 from the origin after many float32 steps: the worst error of float32 distances.

    The reference is the distance of the same y, in float64, on the sheet. geoopt's points have a time of their own, which has
    left the sheet: for them it is the distance between the points over the same y.
    """
    import geoopt  # pyright: ignore[reportMissingImports]

    H, L = ib.Hyperboloid(3), geoopt.Lorentz()
    around = torch.linspace(0, 2 * math.pi, 17, dtype=D)[:16]
    o = H.origin(around)
    ray = torch.stack([0 * around, around.cos(), around.sin()], -1)
    start = H.exp(o.expand(16, 3), 10 * ray).float()
    goal = H.exp(o.expand(16, 3), 10 * ray.roll(1, 0)).float()
    found = {}
    for name in ("ours", "geoopt"):
        M = H if name == "ours" else L
        distance = H.geodesic_distance if name == "ours" else L.dist
        x = nn.Parameter(start.clone()) if name == "ours" else geoopt.ManifoldParameter(start.clone(), manifold=M)
        make = ib.optim.RiemannianAdam if name == "ours" else geoopt.optim.RiemannianAdam
        opt = make([{"params": [x], "manifold": H}] if name == "ours" else [x], lr=1e-3)
        for _ in range(steps):
            opt.zero_grad()
            (distance(x, o.float().expand_as(x)) - 10).square().sum().add(1e-2 * distance(x, goal).sum()).backward()
            opt.step()
        at = x.detach().as_subclass(Tensor)
        a, b = at[:, None].expand(16, 16, 3), at[None].expand(16, 16, 3)
        exact = H.geodesic_distance(H.refine(a.double()), H.refine(b.double()))
        gap = (distance(a, b).double() - exact).abs()
        found[name] = {
            "worst_error": float(gap.nan_to_num(math.inf).max()),
            "radius": float(H.geodesic_distance(at.double(), o.expand_as(at)).mean()),
            "violation": float((H.violation(at) / at[:, 0]).max()),
        }
    return found


def known(found: Any) -> Any:
    """The same with None for numbers that are not finite, which JSON does not have."""
    if isinstance(found, dict):
        return {key: known(value) for key, value in found.items()}
    if isinstance(found, list):
        return [known(value) for value in found]
    return None if isinstance(found, float) and not math.isfinite(found) else found


def optimisers(share: int) -> dict:
    found = {}
    for problem in (procrustes, averaging, eigenvector, quadratic_on_a_ball, weighted_covariance, obstacles):
        found[problem.__name__] = optimise(problem(), STEPS // share)
        print(problem.__name__, json.dumps(found[problem.__name__]), flush=True)
    return {"optimisers": found}


def others(share: int) -> dict:
    found: dict = {"tree": {kind: embed(kind, 300 // share) for kind in ("ours", "geoopt", "geoopt, float64", "euclidean")}}
    found["drift"] = drift(10_000 // share)
    found["normalisation"] = normalisation()
    found["vmf_gradients"] = vmf_gradients(1_000_000 // share)
    for name, rows in found.items():
        print(name, json.dumps(rows), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, printed and not stored")
    args = parser.parse_args()
    torch.set_num_threads(1)
    about = head("python benchmarks/beyond.py")
    share = 10 if args.quick else 1
    results = optimisers(share) | others(share)
    if not args.quick:
        RESULTS.write_text(json.dumps({**about, "results": known(results)}, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
