"""Speed and violation next to peer packages: forward + backward, float32, one thread. `make bench` runs it.

Times are medians over rounds in which ours and the peers take turns; ratio = best peer / ours, so above 1 ours is faster.
A compiled row is held against the best peer, compiled or eager. Violations are maxima over the batch, in float64.
Only a full run (none of --only, --quick, --float64) writes results/geometry.json.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import importlib
import importlib.metadata
import json
import math
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

import inbounds as ib

Fn = Callable[[Tensor], Tensor]
BATCHES = (512, 4096, 65536)
PEERS = ("cvxpylayers", "geoopt", "kornia", "pypose", "qpth", "roma", "torchlie", "cvxpy", "diffcp")
RESULTS = Path(__file__).parents[1] / "results" / "geometry.json"
SO3, SE3 = ib.SO(3), ib.SE(3)


def same(x: Tensor) -> Tensor:
    return x


@dataclass(frozen=True)
class Entry:
    """One way to compute: `make` imports and builds it; its input is prepare(x), and finish(y) is in our representation."""

    make: Callable[[], Fn]
    prepare: Fn = same
    finish: Fn = same
    compiles: bool = True  # False where torch.compile breaks the graph and gains nothing
    rival: bool = True  # False: other representation, shown but never the best peer
    note: str = ""


@dataclass(frozen=True)
class Target:
    """peer / ours >= at_least from batch `batch` on; against = None is the best peer."""

    at_least: float
    stretch: float = math.inf
    against: str | None = None
    mode: str = "eager"
    batch: int = 0
    cleaner: bool = False  # also at a violation not above the peer's


@dataclass(frozen=True)
class Case:
    name: str
    inputs: Callable[[int], Tensor]
    ours: Entry
    peers: dict[str, Entry]
    violation: Callable[[Tensor, Tensor], Tensor] | None = None  # of input x and output y
    eager: tuple[int, ...] = BATCHES
    compiled: tuple[int, ...] = ()
    targets: tuple[Target, ...] = field(default_factory=tuple)


# --- peers -------------------------------------------------------------------------------------------------------------


def use(module: str):
    return importlib.import_module(module)


def raw_svd(x: Tensor) -> Tensor:
    """U diag(1, .., 1, det(U V^T)) V^T."""
    u, _, vh = torch.linalg.svd(x)
    sign = torch.det((u @ vh).detach())
    return torch.cat([u[..., :-1], u[..., -1:] * sign[..., None, None]], -1) @ vh


def swap(x: Tensor) -> Tensor:
    """(rotation, translation) <-> (translation, rotation): ours and theirs order twists differently."""
    return x.roll(3, -1)


def pose(x: Tensor) -> Tensor:
    """(*batch, 3, 4) -> (*batch, 4, 4)."""
    return torch.cat([x, torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=x.dtype).expand_as(x[..., :1, :])], -2)


def pypose_exp(kind: str, prepare: Fn = same) -> dict[str, Entry]:
    """pypose lives on quaternions; with its own conversion to matrices it computes what we compute."""

    def make(finish: Fn) -> Callable[[], Fn]:
        algebra = kind.lower()
        return lambda: lambda x: finish(getattr(use("pypose"), algebra)(x).Exp())

    to_matrix = lambda q: getattr(use("pypose"), kind)(q).matrix()  # noqa: E731
    quaternion = Entry(make(lambda q: q.tensor()), prepare, to_matrix, compiles=False, rival=False, note="quaternion out")
    return {"pypose": Entry(make(lambda q: q.matrix()), prepare, compiles=False), "pypose quaternion": quaternion}


def pypose_log(kind: str, finish: Fn = same) -> dict[str, Entry]:
    def from_matrix(x: Tensor):
        return getattr(use("pypose"), f"mat2{kind}")(x, check=False)

    def from_quaternion(q: Tensor) -> Tensor:
        return getattr(use("pypose"), kind)(q).Log().tensor()

    to_quaternion = lambda x: from_matrix(x).tensor()  # noqa: E731
    quaternion = Entry(lambda: from_quaternion, to_quaternion, finish, compiles=False, rival=False, note="quaternion in")
    matrix = Entry(lambda: lambda x: from_matrix(x).Log().tensor(), finish=finish, compiles=False)
    return {"pypose": matrix, "pypose quaternion": quaternion}


def kornia(kind: str) -> type:
    return getattr(use("kornia.geometry.liegroup"), kind)


def cvxpylayer(n: int, constraints: Callable) -> Entry:
    """min |y - x|^2 subject to constraints(y), through cvxpylayers' default solver, in one thread."""

    def make():
        cp, layers = use("cvxpy"), use("cvxpylayers.torch")
        x, y = cp.Parameter(n), cp.Variable(n)
        problem = cp.Problem(cp.Minimize(cp.sum_squares(y - x)), constraints(cp, y))
        jobs = {"n_jobs_forward": 1, "n_jobs_backward": 1}
        layer = layers.CvxpyLayer(problem, parameters=[x], variables=[y], solver_args=jobs)
        return lambda p: layer(p)[0]

    return Entry(make)


def qpth(n: int, G: Tensor, h: Tensor, A: Tensor | None = None, b: Tensor | None = None) -> Entry:
    """min |y|^2 / 2 - x.y subject to G y <= h, A y = b."""

    def make():
        solve = use("qpth.qp").QPFunction(verbose=-1)
        none = torch.empty(0)
        fixed = (G, h, none if A is None else A, none if b is None else b)
        return lambda x: solve(torch.eye(n), -x, *fixed)

    return Entry(make)


# --- cases -------------------------------------------------------------------------------------------------------------


def on(M: ib.ConstraintSet) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: M.violation(y)


def round_trip(G: ib.LieGroup) -> Callable[[Tensor, Tensor], Tensor]:
    """max |expm(hat(log g)) - g|."""
    return lambda g, c: (torch.matrix_exp(G.hat(c)) - g).flatten(1).abs().amax(-1)


def nearest_rotation() -> Case:
    peers = {
        "roma": Entry(lambda: use("roma").special_procrustes, note="closed form (Horn)"),
        "roma svd": Entry(lambda: lambda x: use("roma").special_procrustes(x, method="svd"), compiles=False),
        "torchlie": Entry(lambda: use("torchlie.functional").SO3.normalize),
        "geoopt": Entry(lambda: use("geoopt").EuclideanStiefel().projx, note="leaves det = -1"),
        "raw svd": Entry(lambda: raw_svd),
    }
    targets = Target(3.5, 5, batch=4096), Target(5, 10, mode="compiled", batch=4096)
    gaussian = lambda b: torch.randn(b, 3, 3)  # noqa: E731
    return Case("SO(3) project", gaussian, Entry(lambda: SO3.project), peers, on(SO3), compiled=BATCHES, targets=targets)


def so3_exp() -> Case:
    peers = {
        "roma": Entry(lambda: use("roma").rotvec_to_rotmat),
        "torchlie": Entry(lambda: use("torchlie.functional").SO3.exp),
        **pypose_exp("SO3"),
        "kornia": Entry(lambda: lambda x: kornia("So3").exp(x).matrix()),
        "matrix_exp": Entry(lambda: lambda x: torch.matrix_exp(SO3.hat(x)), note="with our hat"),
    }
    rotvec = lambda b: torch.randn(b, 3)  # noqa: E731
    return Case("SO(3) exp", rotvec, Entry(lambda: SO3.group_exp), peers, on(SO3), compiled=(4096,))


def so3_log() -> Case:
    peers = {
        "roma": Entry(lambda: use("roma").rotmat_to_rotvec),
        "torchlie": Entry(lambda: use("torchlie.functional").SO3.log),
        **pypose_log("SO3"),
        "kornia": Entry(lambda: lambda x: kornia("So3").from_matrix(x).log()),
    }
    return Case("SO(3) log", SO3.sample, Entry(lambda: SO3.group_log), peers, round_trip(SO3), compiled=(4096,))


def se3_exp() -> Case:
    peers = {
        "torchlie": Entry(lambda: use("torchlie.functional").SE3.exp, swap, pose, note="3x4 out"),
        **pypose_exp("SE3", swap),
        "kornia": Entry(lambda: lambda x: kornia("Se3").exp(x).matrix(), swap),
        "matrix_exp": Entry(lambda: lambda x: torch.matrix_exp(SE3.hat(x)), note="with our hat"),
    }
    twist = lambda b: torch.randn(b, 6)  # noqa: E731
    return Case("SE(3) exp", twist, Entry(lambda: SE3.group_exp), peers, on(SE3), compiled=(4096,))


def se3_log() -> Case:
    top = lambda x: x[..., :3, :].contiguous()  # noqa: E731
    peers = {
        "torchlie": Entry(lambda: use("torchlie.functional").SE3.log, top, swap, note="3x4 in"),
        **pypose_log("SE3", swap),
        "kornia": Entry(lambda: lambda x: kornia("Se3").from_matrix(x).log(), finish=swap),
    }
    return Case("SE(3) log", SE3.sample, Entry(lambda: SE3.group_log), peers, round_trip(SE3), compiled=(4096,))


def so10() -> Case:
    peers = {"raw svd": Entry(lambda: raw_svd), "roma": Entry(lambda: use("roma").special_procrustes)}
    targets = Target(1, against="raw svd"), Target(10, against="roma")
    M = ib.SO(10)
    gaussian = lambda b: torch.randn(b, 10, 10)  # noqa: E731
    return Case("SO(10) project", gaussian, Entry(lambda: M.project), peers, on(M), eager=(512,), targets=targets)


def sphere() -> Case:
    M = ib.Sphere(3)
    peers = {
        "geoopt": Entry(lambda: use("geoopt").Sphere().projx),
        "F.normalize": Entry(lambda: nn.functional.normalize),
        "ours without checks": Entry(lambda: M._project, rival=False, note="the formula alone: what the checks of project cost"),
    }
    gaussian = lambda b: torch.randn(b, 3)  # noqa: E731
    return Case("Sphere(3) project", gaussian, Entry(lambda: M.project), peers, on(M), compiled=(4096,))


def convex(name: str, M: ib.ConstraintSet, peers: dict[str, Entry]) -> Case:
    n = M.shape[0]
    targets = (Target(100, against="cvxpylayers", cleaner=True),)
    return Case(name, lambda b: 2 * torch.randn(b, n), Entry(lambda: M.project), peers, on(M), eager=(256,), targets=targets)


def ball() -> Case:
    return convex("Ball(2) project", ib.Ball(2), {"cvxpylayers": cvxpylayer(2, lambda cp, y: [cp.norm(y) <= 1])})


def box() -> Case:
    n = 10
    eye = torch.eye(n)
    peers = {
        "cvxpylayers": cvxpylayer(n, lambda cp, y: [y >= -1, y <= 1]),
        "qpth": qpth(n, torch.cat([eye, -eye]), torch.ones(2 * n)),
        "torch.clamp": Entry(lambda: lambda x: torch.clamp(x, -1, 1), note="the floor"),
    }
    return convex("Box, n = 10, project", ib.Box([-1.0] * n, [1.0] * n), peers)


def simplex() -> Case:
    n = 10
    peers = {
        "cvxpylayers": cvxpylayer(n, lambda cp, y: [y >= 0, cp.sum(y) == 1]),
        "qpth": qpth(n, -torch.eye(n), torch.zeros(n), torch.ones(1, n), torch.ones(1)),
    }
    return convex("Simplex(10) project", ib.Simplex(n), peers)


class Unconstrained(nn.Module):
    """ib.IAA without its geometry: h <- h + dt_l block_l(h)."""

    def __init__(self, blocks: list[nn.Module], shape: tuple[int, ...]):
        super().__init__()
        self.blocks, self.shape = nn.ModuleList(blocks), shape
        self.dt = nn.Parameter(torch.ones(len(blocks)))

    def forward(self, h: Tensor) -> Tensor:
        for i, block in enumerate(self.blocks):
            h = h + (self.dt[i] * block(h)).unflatten(-1, self.shape)
        return h


class RawSVD(ib.SO):
    """SO(n) as one would write it in a line: gradients are NaN at rotations."""

    def _project(self, x: Tensor) -> Tensor:
        return raw_svd(x)


def blocks(shape: tuple[int, ...]) -> list[nn.Module]:
    torch.manual_seed(1)
    return [ib.MLPBlock(shape, math.prod(shape)) for _ in range(8)]


def constrained(M: ib.ConstraintSet) -> Entry:
    return Entry(lambda: ib.IAA(blocks(M.shape), ib.Projection(M)))


def unconstrained(shape: tuple[int, ...]) -> Entry:
    return Entry(lambda: Unconstrained(blocks(shape), shape))


def network(M: ib.ConstraintSet, target: Target) -> Case:
    peers = {"unconstrained": unconstrained(M.shape)}
    name = f"8-layer IAA on {M!r}, cost"
    inputs = lambda b: torch.randn(b, *M.shape)  # noqa: E731
    return Case(name, inputs, constrained(M), peers, on(M), eager=(500,), compiled=(500,), targets=(target,))


def so3_network() -> Case:
    return network(SO3, Target(1 / 4, 1 / 2, against="unconstrained", mode="compiled"))


def sphere_network() -> Case:
    return network(ib.Sphere(3), Target(1 / 1.3, against="unconstrained", mode="compiled"))


def so3_network_svd() -> Case:
    svd = constrained(RawSVD(3))
    targets = (Target(3, against="raw svd"),)
    inputs = lambda b: torch.randn(b, 3, 3)  # noqa: E731
    return Case("8-layer IAA on SO(3)", inputs, constrained(SO3), {"raw svd": svd}, on(SO3), eager=(4096,), targets=targets)


CASES = (
    nearest_rotation,
    so3_exp,
    so3_log,
    se3_exp,
    se3_log,
    so10,
    sphere,
    ball,
    box,
    simplex,
    so3_network,
    sphere_network,
    so3_network_svd,
)


# --- measuring ---------------------------------------------------------------------------------------------------------


def compiled(fn: Fn) -> Fn:
    return torch.compile(fn, dynamic=False)


def once(fn: Fn, x: Tensor) -> tuple[Callable[[], None], Tensor]:
    """A closure for one forward + backward pass, already warm, and its output."""
    x = x.detach().clone().requires_grad_()
    leaves = [x, *(fn.parameters() if isinstance(fn, nn.Module) else ())]
    y = fn(x)
    g = torch.randn(y.shape)

    def run() -> None:
        torch.autograd.grad(fn(x), leaves, g)

    run()
    return run, y.detach()


def seconds(run: Callable[[], None], loops: int) -> float:
    start = time.perf_counter()
    for _ in range(loops):
        run()
    return (time.perf_counter() - start) / loops


def medians(runs: dict[str, Callable[[], None]], rounds: int, at_least: float = 0.02) -> dict[str, float]:
    """Milliseconds per pass: every round times each run in turn, for at least `at_least` seconds."""
    loops = {name: math.ceil(at_least / min(seconds(run, 1) for _ in range(3))) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    gc.collect()
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(1e3 * seconds(run, loops[name]))
    return {name: statistics.median(t) for name, t in times.items()}


def worst(case: Case, entry: Entry, x: Tensor, y: Tensor) -> float | None:
    if case.violation is None:
        return None
    return float(case.violation(x.double(), entry.finish(y).double()).max())


def measure(case: Case, batch: int, mode: str, rounds: int) -> dict:
    """One row: times, violations and errors of every entry at this batch and mode."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    x = case.inputs(batch)
    entries = {"ours": case.ours, **{k: e for k, e in case.peers.items() if mode == "eager" or e.compiles}}
    runs, violation, errors = {}, {}, {}
    for name, entry in entries.items():
        try:
            fn = entry.make()
            runs[name], y = once(compiled(fn) if mode == "compiled" else fn, entry.prepare(x))
            violation[name] = worst(case, entry, x, y)
        except Exception as error:  # a peer that is missing or fails must not end the run
            errors[name] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    ms = medians(runs, rounds)
    notes = {name: entry.note for name, entry in entries.items() if entry.note}
    ours = ms.pop("ours", None)
    return dict(
        case=case.name, batch=batch, mode=mode, ours_ms=ours, peers_ms=ms, violation=violation, notes=notes, errors=errors
    )


def verdict(row: dict, target: Target) -> dict:
    peer = target.against or row["best_peer"]
    got = row["peers_ms"].get(peer, math.nan) / row["ours_ms"]
    dirty = target.cleaner and not row["violation"]["ours"] <= row["violation"].get(peer, math.nan)
    word = "MISSED" if not got >= target.at_least or dirty else "stretch" if got >= target.stretch else "met"
    stretch = None if math.isinf(target.stretch) else target.stretch
    return dict(against=peer, at_least=target.at_least, stretch=stretch, got=got, verdict=word)


def judge(case: Case, row: dict, eager: dict | None) -> dict:
    """Adds the best peer, the ratio and the verdicts; a compiled row also competes with the peers' eager times."""
    if eager and row["mode"] == "compiled":
        row["peers_ms"] |= {f"{name}, eager": t for name, t in eager["peers_ms"].items()}
    rivals = [name for name in row["peers_ms"] if case.peers[name.removesuffix(", eager")].rival]
    best = min(rivals, key=row["peers_ms"].get, default=None)
    usable = best is not None and row["ours_ms"] is not None
    row |= dict(best_peer=best, ratio=row["peers_ms"][best] / row["ours_ms"] if usable else None, targets=[])
    if usable:
        wanted = [t for t in case.targets if t.mode == row["mode"] and row["batch"] >= t.batch]
        row["targets"] = [verdict(row, t) for t in wanted]
    return row


def rows_of(case: Case, rounds: int) -> Iterator[dict]:
    eager = {}
    for batch in case.eager:
        eager[batch] = judge(case, measure(case, batch, "eager", rounds), None)
        yield eager[batch]
    for batch in case.compiled:
        yield judge(case, measure(case, batch, "compiled", rounds), eager.get(batch))


# --- reporting ---------------------------------------------------------------------------------------------------------


def number(x: float | None) -> str:
    return "-" if x is None else f"{x:.3g}"


def show(row: dict) -> None:
    head = (
        f"{row['case']:32} {row['batch']:6} {row['mode']:9} ours {number(row['ours_ms']):>7} ms  ratio {number(row['ratio']):>6}"
    )
    goals = [f"{t['verdict']}: {t['got']:.3g} of {t['at_least']:.3g} against {t['against']}" for t in row["targets"]]
    print(f"{head}  {'; '.join(goals)}")
    print("    ms:        " + ", ".join(f"{k} {number(v)}" for k, v in sorted(row["peers_ms"].items(), key=lambda kv: kv[1])))
    print("    violation: " + ", ".join(f"{k} {number(v)}" for k, v in row["violation"].items()))
    for name, error in row["errors"].items():
        print(f"    failed:    {name}: {error}")
    print(end="", flush=True)


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def header(rounds: int) -> dict:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return dict(
        command="make bench",
        date=datetime.date.today().isoformat(),
        machine=dict(cpu=cpu_model(), cores=os.cpu_count(), memory_gib=round(memory, 1), threads=torch.get_num_threads()),
        versions={name: version(name) for name in ("torch", "inbounds", *PEERS)},
        python=platform.python_version(),
        dtype="float32",
        rounds=rounds,
        compiled="torch.compile(dynamic=False), networks as a whole",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and violation next to peer packages.", allow_abbrev=False)
    parser.add_argument("--only", default="", metavar="PATTERN", help="cases whose name contains this, e.g. SE(3)")
    parser.add_argument("--quick", action="store_true", help="three rounds instead of seven")
    parser.add_argument("--float64", action="store_true", help="in float64; printed, not stored")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_default_dtype(torch.float64 if args.float64 else torch.float32)
    torch.set_num_threads(1)
    rounds = 3 if args.quick else 7
    rows = []
    for case in (make() for make in CASES):
        for row in rows_of(case, rounds) if args.only in case.name else ():
            show(row)
            rows.append(row)
    missed = [row for row in rows if any(t["verdict"] == "MISSED" for t in row["targets"])]
    print(
        f"{len(rows)} rows, {len(missed)} with a MISSED target"
        + "".join(f"\n    {r['case']}, {r['batch']}, {r['mode']}" for r in missed)
    )
    if not (args.only or args.quick or args.float64):
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({**header(rounds), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
