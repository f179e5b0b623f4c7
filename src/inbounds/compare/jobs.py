"""The two kinds of work behind the table: optimal points by a solver, and a scheme trained and judged beside them."""

from __future__ import annotations

import copy
import math
import time
from typing import cast

import torch
from torch import Tensor

from ..data.pairs import generator
from ..problems import Task
from ..schemes import Projected, Scheme
from ..schemes.linear import product
from ..sets import Polytope
from ..sets.intersection import polyhedral
from ..sets.solved import SolvedSet
from ..solvers import OK
from ..train.store import Store
from ..train.work import Job, Unit
from .rows import AUTHORS, SCHEMES, Row, open_task

CHUNK = 20  # steps of training, or solved problems, between two looks at the clock
BATCH, RATE = 200, 1e-3  # rows a step, unless the task says fewer, and Adam's rate: the same for every scheme
FEASIBLE = 1e-6  # an output whose violation is larger counts as infeasible


def reference_config(task: str, rows: int) -> dict:
    """The optimal points of the last `rows` test inputs."""
    return {"kind": "reference", "task": task, "rows": rows}


def scheme_config(task: str, row: Row, seed: int, steps: int, rows: int) -> dict:
    """A scheme trained for so many steps from a seed, judged beside the optimal points; authors' settings have their own."""
    known = open_task(task)
    knobs = {"steps": steps, "batch": known.batch or BATCH, "rate": RATE, "rows": rows}
    if known.start is not None:
        knobs["scale"] = known.scale
    if known.pull and row.name == "projection":
        knobs["pull"] = known.pull
    if row.how is not None:
        per_epoch = len(known.part("train")) // row.how.batch
        knobs |= {"steps": row.how.epochs * per_epoch, "batch": row.how.batch, "rate": row.how.rate, "constant": True}
    return {
        "kind": "scheme",
        "task": task,
        "scheme": row.name,
        "seed": seed,
        **knobs,
        **({"form": row.form} if row.form > 1 else {}),
    }


def units(tests: dict[str, int], rows: list[Row], seeds: int, steps: int) -> list[Unit]:
    """What the table needs; the solver first, then scheme by scheme. tests: how many inputs of each task are solved."""
    todo = []
    for task, test in tests.items():
        reference = reference_config(task, test)
        todo.append(Unit(reference, title=f"{task} solver", cost=0.02 * test))
        for row, seed in ((row, seed) for seed in range(seeds) for row in rows):
            if row.how is None or seed == 0:  # authors' settings are long: one seed
                config = scheme_config(task, row, seed, steps, test)
                todo.append(Unit(config, (reference,), f"{task} {row.name} seed {seed}", 0.01 * row.cost * config["steps"]))
    return todo


class Reference:
    """The solver, one problem after the other, with the time it takes."""

    def __init__(self, config: dict):
        self.task = open_task(config["task"])
        self.x = self.task.part("test")[-config["rows"] :]
        self.y = torch.zeros(0, *self.task.M.shape, dtype=torch.float64)
        self.seconds = 0.0
        self.epochs = math.ceil(len(self.x) / CHUNK)

    @property
    def epoch(self) -> int:
        """The number of chunks that are done."""
        return math.ceil(len(self.y) / CHUNK)

    @property
    def done(self) -> bool:
        """Whether every problem is solved."""
        return len(self.y) == len(self.x)

    def advance(self) -> dict:
        """One chunk more."""
        began = time.process_time()
        found = [self.task.solve(x) for x in self.x[len(self.y) :][:CHUNK]]
        self.seconds += time.process_time() - began
        self.y = torch.cat([self.y, torch.stack(found)])
        return {"epoch": self.epoch}

    def state(self) -> dict[str, Tensor]:
        return {"y": self.y, "seconds": torch.tensor(self.seconds, dtype=torch.float64)}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.y, self.seconds = state["y"].clone(), float(state["seconds"])

    def finish(self) -> tuple[dict, dict[str, Tensor]]:
        best = self.task.objective(self.x, self.y)
        return {"objective": float(best.mean()), "rows": len(self.x), "cpu_seconds": self.seconds}, {"y": self.y}


class SchemeTraining:
    """Adam with a rate that falls to 0 as a cosine, or stays; the last weights count. Time is CPU time of the training steps."""

    def __init__(self, config: dict, store: Store):
        self.config = config
        self.task = open_task(config["task"])
        self.scheme = (SCHEMES | AUTHORS)[config["scheme"]].build(self.task, config["seed"])
        self.parameters, self.buffers = list(self.scheme.parameters()), list(self.scheme.net.buffers())
        self.noisy = any(isinstance(m, torch.nn.Dropout) for m in self.scheme.net.modules())
        self.optimizer = torch.optim.Adam(self.parameters, lr=config["rate"])
        self.x, self.steps, self.step = self.task.part("train"), config["steps"], 0
        self.seconds, self.diverged = 0.0, False
        self.epochs = math.ceil(self.steps / CHUNK)
        self.best = store.run(reference_config(config["task"], config["rows"])).weights()["y"]

    @property
    def epoch(self) -> int:
        """The number of chunks that are done."""
        return math.ceil(self.step / CHUNK)

    @property
    def done(self) -> bool:
        """Whether all steps are done, or the loss is not a number any more."""
        return self.step >= self.steps or self.diverged

    def advance(self) -> dict:
        """One chunk of steps; every tenth chunk is judged on validation rows."""
        self.scheme.train()
        began = time.process_time()
        for _ in range(min(CHUNK, self.steps - self.step)):
            self._step()
        self.seconds += time.process_time() - began
        line = {"epoch": self.epoch, "train": self.loss}
        return line if self.epoch % 10 else {**line, "val": self._validation()}

    def _step(self) -> None:
        per_epoch = len(self.x) // self.config["batch"]
        epoch, i = divmod(self.step, per_epoch)
        order = torch.randperm(len(self.x), generator=generator(self.config["seed"], stream=1_000 + epoch))
        x = self.x[order[i * self.config["batch"] : (i + 1) * self.config["batch"]]]
        for group in self.optimizer.param_groups if "constant" not in self.config else ():
            group["lr"] = 0.5 * self.config["rate"] * (1 + math.cos(math.pi * self.step / self.steps))
        loss = self._loss(x)
        self.optimizer.zero_grad()
        loss.backward()
        self.step, self.loss = self.step + 1, float(loss.detach())
        self.diverged = self.diverged or not math.isfinite(self.loss)
        if not self.diverged:
            self.optimizer.step()

    def _loss(self, x: Tensor) -> Tensor:
        """The loss; what dropout draws depends on the seed and the step, so that a stopped training goes on the same way."""
        if not self.noisy:
            return self.scheme.loss(x, self.task.objective)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1_000_003 * (self.config["seed"] + 1) + self.step)
            return self.scheme.loss(x, self.task.objective)

    @torch.no_grad()
    def _validation(self) -> float:
        self.scheme.eval()
        x = self.task.part("val")
        return float(self.task.objective(x, self.scheme(x)).mean())

    def state(self) -> dict[str, Tensor]:
        moments = self.optimizer.state_dict()["state"]
        tensors = {f"{name}.{i}": t for i, s in moments.items() for name, t in s.items()}
        numbers = {"step": torch.tensor(self.step), "seconds": torch.tensor(self.seconds, dtype=torch.float64)}
        return tensors | numbers | self._weights()

    def _weights(self) -> dict[str, Tensor]:
        """Parameters, and the running means of the backbone where it has them."""
        kept = {f"theta.{i}": p.detach().clone() for i, p in enumerate(self.parameters)}
        return kept | {f"buffer.{i}": b.clone() for i, b in enumerate(self.buffers)}

    def restore(self, state: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for i, p in enumerate(self.parameters):
                p.copy_(state[f"theta.{i}"])
            for i, b in enumerate(self.buffers):
                b.copy_(state[f"buffer.{i}"])
        kept = self.optimizer.state_dict()
        names = ("step", "exp_avg", "exp_avg_sq")
        kept["state"] = {i: {n: state[f"{n}.{i}"].clone() for n in names} for i in range(len(self.parameters))}
        self.optimizer.load_state_dict(kept)
        self.step, self.seconds = int(state["step"]), float(state["seconds"])

    def finish(self) -> tuple[dict, dict[str, Tensor]]:
        self.scheme.eval()
        x = self.task.part("test")
        y, seconds = timed(self.scheme, x)
        result = {
            **{k: self.config[k] for k in ("task", "scheme", "seed", "steps", "batch")},
            **judge(self.task, x, y, self.best),
            **self._statuses(x),
            **in_float32(self.task, self.scheme, x),
            "diverged": self.diverged,
            "parameters": sum(p.numel() for p in self.parameters),
            "cpu_seconds": self.seconds,
            "inference_seconds": seconds,
        }
        return result, self._weights()

    @torch.no_grad()
    def _statuses(self, x: Tensor) -> dict:
        """Of a projection by an iterative solver: the share of rows with status ok, and the largest residuals among them."""
        M = self.task.M.given(x[:0])
        if not isinstance(self.scheme, Projected) or not isinstance(M, SolvedSet) or isinstance(M, Polytope):
            return {}
        M = cast(SolvedSet, self.task.M.given(x))
        found = M.solve(self.scheme.net(x))
        ok = found.status == OK
        eq, ineq = (r[ok] for r in M.residuals(found.point))
        worst = {"ok_equalities_max": eq.abs(), "ok_inequalities_max": ineq}
        return {"ok": float(ok.double().mean()), **{k: float(r.max()) for k, r in worst.items() if r.numel()}}


@torch.no_grad()
def in_float32(task: Task, scheme: Scheme, x: Tensor) -> dict:
    """The same network in float32, judged in float64 by the linear constraints as they are in float32; nothing for curved ones.

    Equations are in units of eps (|E_i||y| + |f_i|), the rounding of one product.
    """
    if polyhedral(task.M.given(x)) is None:
        return {}
    inputs = x.float()
    M = task.M.given(inputs)
    faces = {k: t.float().double() for k, t in (polyhedral(M) or {}).items()}
    u = copy.deepcopy(scheme.net).float()(inputs)
    y = scheme.enforce(M, u, inputs.double()).double()  # the input is only asked for a point inside here
    over = [product(faces["A"], y) - faces["b"]] if "A" in faces else []
    over += [faces["low"] - y] if "low" in faces else []
    over += [y - faces["high"]] if "high" in faces else []
    result = {"float32_inequalities_max": max(float(o.max()) for o in over)} if over else {}
    if "E" in faces:
        scale = faces["E"].norm(dim=-1) * y.norm(dim=-1, keepdim=True) + faces["f"].abs()
        off = (product(faces["E"], y) - faces["f"]).abs() / (torch.finfo(torch.float32).eps * scale)
        result["float32_equalities_eps"] = float(off.max())
    return result


@torch.no_grad()
def timed(scheme: torch.nn.Module, x: Tensor) -> tuple[Tensor, float]:
    """The outputs for one batch, and the CPU seconds of a row: the best of three."""
    spent, y = [], scheme(x)
    for _ in range(3):
        began = time.process_time()
        scheme(x)
        spent.append(time.process_time() - began)
    return y, min(spent) / len(x)


def judge(task: Task, x: Tensor, y: Tensor, best: Tensor) -> dict:
    """Gap and violations in float64: violations of all rows, the gap of the last, which have a `best` point.

    gap = (objective - optimum) / max(1, |optimum|), equalities are relative to 1 + |y|.
    """
    y, k = y.double(), len(best)
    value, optimum = task.objective(x, y), task.objective(x[-k:], best)
    gap = (value[-k:] - optimum) / optimum.abs().clamp(min=1.0)
    eq, ineq = task.M.given(x).residuals(y)
    nothing = y.new_full((len(y), 1), -math.inf)
    equal = torch.cat([eq.abs(), 0 * nothing.exp()], -1).amax(-1) / (1 + y.norm(dim=-1))
    over = torch.cat([ineq, nothing], -1).amax(-1)
    bad = ~(torch.maximum(equal, over) <= FEASIBLE)
    return {
        "objective": float(value[-k:].mean()),
        "gap_mean": float(gap.mean()),
        "gap_p95": float(gap.quantile(0.95)),
        "equalities_max": float(equal.max()),
        "inequalities_max": float(over.max()),
        "infeasible": float(bad.double().mean()),
    }


def open_job(config: dict, store: Store) -> Job:
    """The work that a config describes."""
    return Reference(config) if config["kind"] == "reference" else SchemeTraining(config, store)
