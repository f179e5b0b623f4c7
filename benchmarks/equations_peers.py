"""The peers of benchmarks/equations.py, each as a function of a batch of points: made for one case in one dtype."""

from __future__ import annotations

import contextlib
import io
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

Fn = Callable[[Tensor], Tensor]
ROOT = Path(__file__).parents[1]
JAX = ROOT / ".venv-equations-jax" / "bin" / "python"
JAX_PEERS = ("pinet 50", "pinet 1000", "qpax")  # Pi-net with so many iterations, forwards and backwards


@dataclass(frozen=True)
class Linear:
    """{A y <= b, E y = f}"""

    A: Tensor
    b: Tensor
    E: Tensor
    f: Tensor

    def to(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        return tuple(t.to(dtype) for t in (self.A, self.b, self.E, self.f))


@dataclass(frozen=True)
class Curved:
    """{eq(p) = 0, ineq(p) <= 0}: functions of the last dim, so that they take one point or a batch of them."""

    eq: Fn | None = None
    ineq: Fn | None = None


def qpth(case: Linear, dtype: torch.dtype) -> Fn:
    from qpth.qp import QPFunction  # pyright: ignore[reportMissingImports]

    A, b, E, f = case.to(dtype)
    Q, none = torch.eye(A.shape[1], dtype=dtype), torch.empty(0, dtype=dtype)
    solve = QPFunction(verbose=-1, check_Q_spd=False)
    return lambda x: solve(Q, -x, A, b, E if len(E) else none, f if len(E) else none)


def proxsuite(case: Linear, dtype: torch.dtype) -> Fn:
    from proxsuite.torch.qplayer import QPFunction  # pyright: ignore[reportMissingImports]

    A, b, E, f = (t.double() for t in case.to(dtype))
    Q, low = torch.eye(A.shape[1], dtype=torch.float64), torch.full_like(b, -1e20)
    solve = QPFunction(structural_feasibility=True, omp_parallel=False)
    return lambda x: solve(Q, -x.double(), E, f, A, low, b)[0].to(dtype)


def cvxpy_layer(n: int, rules: Callable[[Any, Any], list]) -> Fn:
    """min |y - x|^2 subject to rules(cvxpy, y), in one thread."""
    import cvxpy as cp  # pyright: ignore[reportMissingImports]
    from cvxpylayers.torch import CvxpyLayer  # pyright: ignore[reportMissingImports]

    y, p = cp.Variable(n), cp.Parameter(n)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(y - p)), rules(cp, y))
    jobs = {"n_jobs_forward": 1, "n_jobs_backward": 1}
    layer = CvxpyLayer(problem, parameters=[p], variables=[y], solver_args=jobs)
    return lambda x: layer(x)[0]


def cvxpylayers(case: Linear, dtype: torch.dtype) -> Fn:
    A, b, E, f = (t.double().numpy() for t in case.to(dtype))
    return cvxpy_layer(A.shape[1], lambda cp, y: [A @ y <= b] + ([E @ y == f] if len(E) else []))


def rayen(case: Linear, dtype: torch.dtype) -> Fn:
    """Ray scaling from an interior point: feasible, and not a projection."""
    from rayen.constraint_module import ConstraintModule  # pyright: ignore[reportMissingImports]
    from rayen.constraints import ConvexConstraints, LinearConstraint  # pyright: ignore[reportMissingImports]

    A, b, E, f = (t.double().numpy() for t in case.to(dtype))
    equal = (E, f[:, None]) if len(E) else (None, None)
    old = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            cone = ConvexConstraints(lc=LinearConstraint(A, b[:, None], *equal), do_preprocessing_linear=False)
            layer = ConstraintModule(cone, create_map=False).to(dtype)
    finally:
        torch.set_default_dtype(old)
    return lambda x: layer(((x[:, :, None] - layer.yp).mT @ layer.NA_E - layer.z0.mT)[:, 0, :, None])[:, :, 0]


def enforce(case: Curved, n: int, dtype: torch.dtype) -> Fn:
    """Implicit differentiation, W = I, which makes it nearest to a projection, mean residual 1e-6."""
    from enforce.core.config import ENFORCEConfig  # pyright: ignore[reportMissingImports]
    from enforce.core.fb_inequality_constraints import (  # pyright: ignore[reportMissingImports]
        FischerBurmeisterReformulation as FB,
    )
    from enforce.core.model import ENFORCE, _ProjectionIFT  # pyright: ignore[reportMissingImports]

    eq, ineq = case.eq, case.ineq
    k = 0 if ineq is None else wide(ineq(torch.zeros(1, n, dtype=dtype))).shape[1]
    fb = FB(n, [lambda x, y: y[:, 0]] * k) if k else None

    def constraints(x: Tensor, y: Tensor) -> Tensor:
        point, slack = y[:, :n], y[:, n:]
        parts = [] if eq is None else [wide(eq(point))]
        if ineq is not None and fb is not None:  # the Fischer-Burmeister function, all inequalities at once
            g = wide(ineq(point))
            parts.append((slack**2 + g**2 + fb.eps).sqrt() - slack + g)
        return torch.cat(parts, 1)

    scale = (torch.zeros(n + k), torch.ones(n + k))
    config = ENFORCEConfig(output_neurons=n + k, training_tolerance=1e-6, max_it=100, ift_backward=True)
    model = ENFORCE((torch.zeros(1), torch.ones(1)), scale, constraints, config, fb=fb, weighting_option=1)

    def project(x: Tensor) -> Tensor:
        raw = torch.cat([x, x.new_zeros(len(x), k)], 1)
        with contextlib.redirect_stdout(io.StringIO()):
            return _ProjectionIFT.apply(raw, model, x.new_zeros(len(x), 1), "mean", 1e-6, 100)[:, :n]  # pyright: ignore

    return project


def wide(c: Tensor) -> Tensor:
    """(R,) or (R, k) -> (R, k)"""
    return c[:, None] if c.dim() == 1 else c


def in_jax(peers: list[str], case: Linear, x: Tensor, rounds: int) -> dict[str, np.ndarray]:
    """The times, the points and the errors of peers in the other environment: "qpax, ms", "qpax, y", "qpax, error"."""
    if not JAX.exists():
        return {f"{peer}, error": np.array("not installed: make .venv-equations-jax/done") for peer in peers}
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.npz", Path(folder) / "out.npz"
        parts: dict[str, Any] = dict(zip("AbEf", (t.numpy() for t in case.to(x.dtype)), strict=True))
        np.savez(source, x=x.numpy(), peers=np.array(peers), rounds=np.array(rounds), **parts)
        command = [str(JAX), str(Path(__file__).with_name("equations_jax.py")), str(source), str(target)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return {f"{peer}, error": np.array(done.stderr.strip().splitlines()[-1][:160]) for peer in peers}
        return dict(np.load(target))
