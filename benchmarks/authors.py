"""Our schemes next to their authors' code on the same inputs: how far they are apart. `make bench-authors` runs it.

From the package index: rayen, qpth (OptNet), pinet-hcnn (in jax, in an environment of its own). DC3, HardNet-Aff and E2ELR's
repair are on no index: with `--checkouts DIR` their functions are taken, as they are, from the repositories locuslab/DC3,
azizanlab/hardnet and AI4OPT/ML4OPF in that folder; without it those rows are left out, which is printed.

A difference is max |ours - theirs| / max |theirs|, in float64, of outputs and of the gradients of sum(g * y) for a random g with
respect to the raw outputs. CLOSED and SOLVER are what they may be; they were set before the first run.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import datetime
import importlib.metadata
import io
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import inbounds as ib
from inbounds import problems, schemes
from inbounds.problems.quadratic import dependent_variables, drawn
from inbounds.records import machine
from inbounds.schemes.linear import nullspace
from inbounds.train.work import commit

ROOT = Path(__file__).parents[1]
JAX = ROOT / ".venv-equations-jax" / "bin" / "python"
CLOSED, SOLVER = 1e-9, 1e-6  # formulas that differ by rounding; two iterations that end near the same point
POINTS = 50


@dataclass(frozen=True)
class Row:
    """One scheme on one set."""

    scheme: str
    authors: str
    where: str
    outputs: float
    gradients: float | None
    bound: float
    to_differences: tuple[float, float] | None = None  # where gradients are apart: how far each is from central differences

    @property
    def met(self) -> bool:
        return max(self.outputs, self.gradients or 0.0) <= self.bound


def apart(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max())


def both(ours: Callable[..., Tensor], theirs: Callable[..., Tensor], *raw: Tensor) -> tuple[float, float]:
    """The differences of outputs and of gradients with respect to everything in `raw`."""
    kept = [], []
    for function, into in zip((ours, theirs), kept, strict=True):
        leaves = [u.clone().requires_grad_() for u in raw]
        y = function(*leaves)
        g = torch.randn(y.shape, generator=torch.Generator().manual_seed(9), dtype=y.dtype)
        into += [y.detach(), torch.cat([d.flatten() for d in torch.autograd.grad((g * y).sum(), leaves)])]
    return apart(kept[0][0], kept[1][0]), apart(kept[0][1], kept[1][1])


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def version(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


def rayen_layer(y0: Tensor, **constraints: Any) -> Any:
    """RAYEN's module about a point that is given, with its linear equations as (E, f)."""
    from rayen.constraint_module import ConstraintModule  # pyright: ignore[reportMissingImports]
    from rayen.constraints import ConvexConstraints  # pyright: ignore[reportMissingImports]

    with contextlib.redirect_stdout(io.StringIO()):
        cone = ConvexConstraints(**constraints, y0=y0[:, None].numpy(), do_preprocessing_linear=False)
        layer = ConstraintModule(cone, create_map=False)
    return layer


def rayen_rows() -> Iterator[Row]:
    """Linear constraints of DC3's size, and curved ones of ten variables."""
    from rayen.constraints import (  # pyright: ignore[reportMissingImports]
        ConvexQuadraticConstraint,
        LinearConstraint,
        SOCConstraint,
    )

    for name, task in (
        ("DC3's QP", problems.quadratic()),
        ("QCQP", problems.curved(False, 10, 4, 5, 40)),
        ("SOCP", problems.curved(True, 10, 4, 5, 40)),
    ):
        x = task.x[:1]
        M: Any = task.M.given(x)
        assert task.center is not None
        c = task.center(x)[0]
        if isinstance(M, ib.Polytope):
            E = M.E
            rules = {"lc": LinearConstraint(*(t.numpy() for t in (M.A, M.b[:, None], E, x[0][:, None])))}
        else:
            E, curves = M.planes.E, M.planes.curves
            rules = {"lc": LinearConstraint(None, None, E.numpy(), x[0][:, None].numpy())}
            if name == "QCQP":
                parts = zip(curves.H, curves.g, curves.h, strict=True)
                rules["qcs"] = [
                    ConvexQuadraticConstraint(H.diag().numpy(), g[:, None].numpy(), -h[None, None].numpy()) for H, g, h in parts
                ]
            else:
                parts = zip(curves.G, curves.k, curves.g, curves.h, strict=True)
                rules["socs"] = [
                    SOCConstraint(*(t.numpy() for t in (G, k[:, None], g[:, None], h[None, None]))) for G, k, g, h in parts
                ]
        layer = rayen_layer(c, **rules)
        turn = nullspace(E).mT @ layer.NA_E.double()  # from their coordinates of the planes to ours
        mine = schemes.Rayen(nn.Identity(), M, lambda x, c=c: c.expand(len(x), -1))
        v = 5 * draw(POINTS, turn.shape[1], seed=1)
        inputs = x.expand(POINTS, -1)
        M = task.M.given(inputs)
        found = both(
            lambda v, m=mine, M=M, i=inputs, t=turn: m.enforce(M, v @ t.mT, i), lambda v, l=layer: l(v[:, :, None])[:, :, 0], v
        )
        yield Row("RAYEN", version("rayen"), name, *found, CLOSED)


def optnet_row() -> Row:
    """The program with a learned W; the gradients are those of the raw output and of the triangle."""
    from qpth.qp import QPFunction  # pyright: ignore[reportMissingImports]

    task = problems.quadratic()
    x = task.x[:20]
    M: Any = task.M.given(x)
    scheme = schemes.OptNet(nn.Identity(), M)

    def mine(u: Tensor, triangle: Tensor) -> Tensor:
        return torch.func.functional_call(Around(scheme, M, x), {"scheme.triangle": triangle}, (u,))

    def theirs(u: Tensor, triangle: Tensor) -> Tensor:
        L = triangle.tril()
        W = L @ L.mT + 1e-4 * torch.eye(100, dtype=torch.float64)
        every = W.expand(len(u), -1, -1)  # a W that is shared would get the mean of the rows' gradients from qpth, not their sum
        return QPFunction(verbose=-1, check_Q_spd=False, maxIter=50)(every, u, M.A, M.b, M.E, x)

    raw = draw(20, 100, seed=3), torch.eye(100, dtype=torch.float64) + 0.05 * draw(100, 100, seed=2).tril()
    far = differences(mine, raw), differences(theirs, raw)
    return Row("OptNet", version("qpth"), "DC3's QP", *both(mine, theirs, *raw), SOLVER, far)


def differences(function: Callable[..., Tensor], raw: tuple[Tensor, ...], step: float = 1e-6) -> float:
    """The relative difference of a derivative in a random direction from central differences of the same function."""
    leaves = [u.clone().requires_grad_() for u in raw]
    way = [draw(*u.shape, seed=20 + k).tril() if k else draw(*u.shape, seed=20) for k, u in enumerate(raw)]
    g = draw(len(raw[0]), raw[0].shape[1], seed=9)
    slopes = torch.autograd.grad((g * function(*leaves)).sum(), leaves)
    mine = sum(float((d * w).sum()) for d, w in zip(slopes, way, strict=True))
    with torch.no_grad():
        ahead, back = (function(*(u + t * w for u, w in zip(raw, way, strict=True))) for t in (step, -step))
    true = float((g * (ahead - back)).sum()) / (2 * step)
    return abs(mine - true) / abs(true)


class Around(nn.Module):
    """A scheme as a function of the raw output, so that its parameters can be given from outside."""

    def __init__(self, scheme: schemes.Scheme, M: ib.ConstraintSet, x: Tensor):
        super().__init__()
        self.scheme, self.given = scheme, (M, x)

    def forward(self, u: Tensor) -> Tensor:
        M, x = self.given
        return self.scheme.enforce(M, u, x)


def pinet_rows(python: Path) -> Iterator[Row]:
    """The same number of steps from the same start. Pi-net differentiates the limit, so only converged gradients are compared."""
    task = problems.quadratic(20, 8, 10, 40)
    x = task.x[:1]
    M: Any = task.M.given(x)
    length = M.A.norm(dim=1)
    A, b = M.A / length[:, None], M.b / length
    u, g = 5 * draw(POINTS, 20, seed=4), draw(POINTS, 20, seed=9)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.npz", Path(folder) / "out.npz"
        parts = {"A": A, "b": b, "E": M.E, "f": x[0], "u": u, "g": g}
        np.savez(source, **{k: t.numpy() for k, t in parts.items()}, steps=np.array([50, 5_000]))
        command = [str(python), str(Path(__file__).with_name("authors_jax.py")), str(source), str(target)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        found = dict(np.load(target))
    for steps in (50, 5_000):
        scheme = schemes.Splitting(nn.Identity(), M, steps=steps, test_steps=steps)
        v = u.clone().requires_grad_()
        y = scheme.enforce(task.M.given(x.expand(POINTS, -1)), v, x)
        (slope,) = torch.autograd.grad((g * y).sum(), v)
        gradients = apart(slope, torch.from_numpy(found[f"slope {steps}"])) if steps > 50 else None
        outputs = apart(y.detach(), torch.from_numpy(found[f"y {steps}"]))
        bound = CLOSED if gradients is None else SOLVER
        yield Row(
            "splitting", f"pinet-hcnn {found['version']}", f"QP of 20 variables, {steps:,} steps", outputs, gradients, bound
        )


def taken(path: Path, *names: str) -> dict[str, Any]:
    """Classes and functions of a file, executed alone: its imports are of packages that are not needed for them."""
    from typing import Optional

    parts = [n for n in ast.parse(path.read_text()).body if getattr(n, "name", None) in names]
    if len(parts) != len(names):
        raise SystemExit(f"{path} was asked for {', '.join(names)}, got {len(parts)} of them.")
    scope: dict[str, Any] = {"torch": torch, "nn": nn, "np": np, "Optional": Optional, "Tensor": Tensor}
    exec(compile(ast.Module(parts, []), str(path), "exec"), scope)
    return scope


def author_data(order: str) -> list[Any]:
    """Q, p, E, x, A, b as arrays; the next draw of numpy's generator is that of the authors' dependent variables."""
    np.random.seed(17)
    Q, p, E, x, A = drawn(np.random, 100, 50, 50, 10_000, order)
    return [np.diag(Q), p, E, x, A, np.abs(A @ np.linalg.pinv(E)).sum(1)]


def dc3_rows(folder: Path) -> Iterator[Row]:
    """With the authors' rate, which moves next to nothing, and with one that moves."""
    Q, p, E, X, A, b = author_data("dc3")
    data = taken(folder / "utils.py", "SimpleProblem")["SimpleProblem"](Q, p, E, A, b, X)
    theirs = taken(folder / "method.py", "grad_steps", "total_loss")
    others = data.other_vars.tolist()
    assert others == dependent_variables(), "the dependent variables are not those of the authors"
    task = problems.quadratic()
    x = task.x[:POINTS]
    M = task.M.given(x)
    z, order = 2 * draw(POINTS, 50, seed=5), data.partial_vars.argsort()  # their free variables are shuffled, ours are sorted
    for rate in (1e-7, 1e-4):
        args = {"corrLr": rate, "corrTrainSteps": 10, "corrMomentum": 0.5, "corrMode": "partial", "softWeight": 10}
        args |= {"useTrainCorr": True, "useCompl": True, "softWeightEqFrac": 0.5}
        scheme = schemes.DC3(nn.Identity(), M, rate=rate, dependent=others)

        def points(z: Tensor, args: dict = args) -> Tensor:
            return theirs["grad_steps"](data, x, data.complete_partial(x, z), args)

        found = both(lambda z, s=scheme: s.enforce(M, z[:, order], x), points, z)
        yield Row("DC3", "locuslab/DC3, utils.py and method.py", f"DC3's QP, rate {rate:.0e}", *found, CLOSED)
    fixed = schemes.DC3(Given(z[:, order]), M, rate=1e-4, dependent=others)
    ours = fixed.loss(x, task.objective)
    loss = theirs["total_loss"](data, x, points(z), args).mean()
    yield Row("DC3", "locuslab/DC3, utils.py and method.py", "DC3's QP, the loss", apart(ours, loss), None, CLOSED)


class Given(nn.Module):
    """A backbone that gives the same raw outputs for every input."""

    def __init__(self, u: Tensor):
        super().__init__()
        self.u = u

    def forward(self, x: Tensor) -> Tensor:
        return self.u


def hardnet_row(folder: Path) -> Row:
    Q, p, E, X, A, b = author_data("hardnet")
    problem = taken(folder / "datasets" / "nonconvex" / "nonconvex_problem.py", "NonconvexProblem")["NonconvexProblem"]
    data = problem(Q, p, A, b, E, X)
    move = taken(folder / "hardnet_aff.py", "HardNetAff")["HardNetAff"].apply_projection
    layer = SimpleNamespace(_args={"probType": "nonconvex"})
    others = data.other_vars.tolist()
    assert others == dependent_variables("hardnet"), "the dependent variables are not those of the authors"
    task = problems.quadratic(sine=True, order="hardnet")
    x = task.x[:POINTS]
    M = task.M.given(x)

    def theirs(z: Tensor) -> Tensor:
        return data.complete_partial(x, move(layer, z, *data.get_Ab_effective(x)))

    scheme = schemes.HardNet(nn.Identity(), M, dependent=others)
    order = data.partial_vars.argsort()  # their free variables are shuffled, ours are sorted
    found = both(lambda z: scheme.enforce(M, z[:, order], x), theirs, 5 * draw(POINTS, 50, seed=6))
    return Row("HardNet-Aff", "azizanlab/hardnet, hardnet_aff.py", "HardNet's QP", *found, CLOSED)


def repair_row(folder: Path) -> Row:
    """A sigmoid for the bounds, then their hypersimplex layer."""
    layer = taken(folder / "ml4opf" / "layers" / "hypersimplex_repair.py", "HyperSimplexRepair")["HyperSimplexRepair"]()
    task = problems.dispatch()
    x = task.x[:POINTS]
    M: Any = task.M.given(x)
    low, high = torch.zeros(30, dtype=torch.float64), M.cap
    scheme = schemes.Repair(nn.Identity(), M)
    found = both(
        lambda u: scheme.enforce(M, u, x),
        lambda u: layer(low + u.sigmoid() * (high - low), low, high, x[:, 0]),
        draw(POINTS, 30, seed=7),
    )
    return Row("E2ELR repair", "AI4OPT/ML4OPF, layers/hypersimplex_repair.py", "dispatch", *found, CLOSED)


def rows(checkouts: Path | None, python: Path) -> Iterator[Row]:
    yield from rayen_rows()
    yield optnet_row()
    if python.exists():
        yield from pinet_rows(python)
    else:
        print(f"left out: Pi-net, for {python} does not exist. Write: make .venv-equations-jax/done")
    if checkouts is None:
        print("left out: DC3, HardNet and E2ELR, for there is no folder with their repositories. Write: --checkouts DIR")
        return
    yield from dc3_rows(checkouts / "DC3")
    yield hardnet_row(checkouts / "hardnet")
    yield repair_row(checkouts / "ML4OPF")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--checkouts", type=Path, metavar="DIR", help="clones of DC3, hardnet and ML4OPF")
    parser.add_argument("--jax", type=Path, default=JAX, metavar="PYTHON", help="an interpreter with pinet-hcnn")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "compare" / "authors.json", metavar="FILE")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)  # as the authors do
    found = list[Row]()
    for row in rows(args.checkouts, args.jax):
        gradients = "-" if row.gradients is None else f"{row.gradients:.1e}"
        verdict = "" if row.met else f"  MISSED {row.bound:.0e}"
        if row.to_differences:
            verdict += "  from central differences: ours {:.1e}, theirs {:.1e}".format(*row.to_differences)
        print(f"{row.scheme:13} {row.where:34} outputs {row.outputs:.1e} gradients {gradients}{verdict}", flush=True)
        found.append(row)
    about = {
        "command": "python benchmarks/authors.py" + (" --checkouts DIR" if args.checkouts else ""),
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
    }
    args.out.write_text(json.dumps({**about, "rows": [{**asdict(r), "met": r.met} for r in found]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
