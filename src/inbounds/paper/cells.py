"""The table's cells as units of work: velocity networks, stacks of models, tests of the chosen ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict

import torch
from torch import Tensor

from ..data.pairs import Pairs, generator
from ..learned.flow import Flow, FlowTraining, denoising
from ..train.store import Store, read_tensors
from ..train.training import Member, Protocol, StackTraining, built, mse
from ..train.work import Job, Unit
from . import models
from .datasets import FLOCKS, open_pairs
from .presets import FLOW_ROWS, UNDEFINED, Preset, Velocity


# --- what there is to do -----------------------------------------------------------------------------------
def units(preset: Preset, references: Sequence[dict], rows: Sequence[str]) -> list[Unit]:
    """Everything the table needs, long work first."""
    todo: list[Unit] = []
    for reference in references:
        velocities = velocity_configs(preset, reference) if set(rows) & set(FLOW_ROWS) else []
        todo += [Unit(c, title=f"{reference['name']} velocity", cost=_velocity_cost(c)) for c in velocities]
        for row in rows:
            if (reference["name"], row) in UNDEFINED:
                continue
            stacks = stack_configs(preset, reference, row, velocities)
            title = f"{reference['name']} {row}"
            needs = tuple(velocities) if row in FLOW_ROWS else ()
            todo += [Unit(c, needs, f"{title} depth {c['depth']}", _stack_cost(c)) for c in stacks]
            test = test_config(preset, reference, row, stacks)
            todo.append(Unit(test, (*needs, *stacks), f"{title} test", _test_cost(test)))
    first = {"velocity": 0, "stack": 1, "test": 1}
    return sorted(todo, key=lambda u: (first[u.config["kind"]], -u.cost))


def velocity_configs(preset: Preset, reference: dict) -> list[dict]:
    v: Velocity = preset.cs_velocity if reference["name"] in FLOCKS else preset.velocity
    shared = {"epochs": v.epochs, "patience": v.patience, "stop_after": v.stop_after, "batches": v.batches}
    return [
        {"kind": "velocity", "data": reference, "alpha": a, "lr": lr, "weight_decay": wd, **shared}
        for a in v.alphas
        for lr in v.lrs
        for wd in v.decays
    ]


def stack_configs(preset: Preset, reference: dict, row: str, velocities: list[dict]) -> list[dict]:
    budget = preset.budget(reference["name"], row)
    members = [[seed, wd] for wd in budget.decays for seed in range(budget.seeds)]
    flow = {"velocities": velocities, "euler": preset.euler} if row in FLOW_ROWS else {}
    shared = {"kind": "stack", "data": reference, "row": row, "members": members, **flow}
    return [{**shared, "depth": d, "protocol": asdict(budget.protocol())} for d in budget.depths]


def test_config(preset: Preset, reference: dict, row: str, stacks: list[dict]) -> dict:
    flocks = reference["name"] in FLOCKS
    if row in FLOW_ROWS:
        most = preset.cs_flow_test if flocks else preset.flow_test
    else:
        most = preset.flock_test if flocks else None
    return {"kind": "test", "data": reference, "row": row, "stacks": stacks, "rows": most}


# --- seconds on one core of the machine the README names; for order and estimates only -------------------------
STEP_SECONDS = {"regular": 0.4e-3, "proj-iaa": 1.6e-3, "exp-iaa": 1.6e-3, "prob": 1.2e-3, "proj-faa": 0.6e-3, "exp-faa": 0.6e-3}


def _stack_cost(c: dict) -> float:
    """Epochs x steps x models x depth x seconds of a layer."""
    name, row, depth = c["data"]["name"], c["row"], c["depth"]
    steps = c["protocol"]["epochs"] * min(math.ceil(4_000 / c["protocol"]["batch"]), c["protocol"]["batches"] or 10**9)
    share = c["protocol"]["batch"] / 500
    if name in FLOCKS:
        layer = {"cs": 0.13, "flock": 0.03}[name] if "wide" not in row else 0.03
    else:
        layer = {"sphere": 0.08e-3, "disk": 0.08e-3, "so3": 0.2e-3, "protein": 0.25e-3}[name] * (4 if "wide" in row else 1)
    points = share * (10 if name in FLOCKS else 1)
    flow = 2.7e-3 * c.get("euler", 0) * points * 5
    return steps * len(c["members"]) * (layer * share * depth + flow * ((depth + 1) if row == "flow-iaa" else 1))


def _velocity_cost(c: dict) -> float:
    full = math.ceil(30 * 4_000 * (10 if c["data"]["name"] in FLOCKS else 1) / 256)
    return c["epochs"] * min(full, c["batches"] or full) * 9e-3


def _test_cost(c: dict) -> float:
    return 2.0 if c["rows"] is None else 0.05 * c["rows"] * (10 if c["data"]["name"] in FLOCKS else 1)


# --- names become objects here, and nowhere else ---------------------------------------------------------------
def open_job(config: dict, store: Store) -> Job:
    pairs = open_pairs(config["data"], store)
    return {"velocity": VelocityJob, "stack": StackJob, "test": TestJob}[config["kind"]](config, pairs, store)


class VelocityJob(FlowTraining):
    """A velocity network on the inputs of the training split, single agents of flocks."""

    def __init__(self, config: dict, pairs: Pairs, store: Store):
        knobs = {k: v for k, v in config.items() if k not in ("kind", "data")}
        self.points = pairs["val"][0].reshape(-1, *pairs.set.shape)
        super().__init__(pairs["train"][0].reshape(-1, *pairs.set.shape), self.points, **knobs)

    def advance(self) -> dict:  # type: ignore[override]
        return {"epoch": self.epoch + 1, "val": super().advance()}

    def finish(self) -> tuple[dict, dict[str, Tensor]]:
        flow = self.flow()
        return {"val": self.best, "epoch": self.best_epoch, "spec": flow.spec(), "radius": self.radius}, flow.tensors()


def chosen_flow(configs: list[dict], pairs: Pairs, store: Store, euler: int) -> Flow:
    """Of the trained velocity networks the one that best undoes displacements that all of them were trained on."""
    runs = [store.run(c) for c in configs]
    results = [r.result for r in runs]
    radius = min(r["radius"] for r in results if r)
    points = pairs["val"][0].reshape(-1, *pairs.set.shape)[:2_000]
    flows = [Flow.load(run.weights(), {**r["spec"], "steps": euler}) for run, r in zip(runs, results, strict=True) if r]
    scores = [denoising(f, points, radius, generator(0, stream=78)) for f in flows] if len(flows) > 1 else [0.0]
    return flows[scores.index(min(scores))]


class StackJob(StackTraining):
    """All seeds and weight decays of a row at one depth."""

    def __init__(self, config: dict, pairs: Pairs, store: Store):
        row = config["row"]
        flow = chosen_flow(config["velocities"], pairs, store, config["euler"]) if row in FLOW_ROWS else None
        problem = models.problem(row, pairs, config["depth"], flow)
        super().__init__(problem, Protocol(**config["protocol"]), [Member(*m) for m in config["members"]])

    def finish(self) -> tuple[dict, dict[str, Tensor]]:
        result = {
            "val": [v if math.isfinite(v) else None for v in self.best.tolist()],
            "epoch": self.best_epoch.tolist(),
            "diverged": self.diverged.tolist(),
            "steps": self.steps,
            "parameters": self.stack.theta.shape[1],
        }
        return result, {"theta": self.best_theta}


def choose(config: dict, store: Store) -> tuple[dict, float, list[int]]:
    """(stack, weight decay, rows of its members): the lowest mean validation error over seeds; ties go to the shallower."""
    best = None
    for stack in config["stacks"]:
        result = store.run(stack).result
        assert result is not None
        for wd in dict.fromkeys(m[1] for m in stack["members"]):
            rows = [k for k, m in enumerate(stack["members"]) if m[1] == wd]
            score = sum(result["val"][k] if result["val"][k] is not None else math.inf for k in rows) / len(rows)
            if best is None or score < best[0]:
                best = (score, stack, wd, rows)
    assert best is not None
    return best[1:]


class TestJob:
    """The chosen depth and weight decay on the test split, a seed at a time."""

    METRICS = ("mse", "mse_on_set", "violation_mean", "violation_max")

    def __init__(self, config: dict, pairs: Pairs, store: Store):
        self.config, self.pairs = config, pairs
        self.stack, self.decay, self.rows = choose(config, store)
        self.trained = store.run(self.stack).result or {}
        self.epoch, self.epochs = 0, len(self.rows)
        self.found = torch.full((len(self.rows), len(self.METRICS)), math.nan, dtype=torch.float64)
        row = config["row"]
        flow = chosen_flow(self.stack["velocities"], pairs, store, self.stack["euler"]) if row in FLOW_ROWS else None
        self.problem = models.problem(row, pairs, self.stack["depth"], flow)
        self.theta = read_tensors(store.run(self.stack).folder / "weights.safetensors")[0]["theta"]
        self.split = "large" if pairs.synthetic and row not in FLOW_ROWS else "test"
        x, y = pairs[self.split]
        self.x, self.y = x[: config["rows"]], y[: config["rows"]]

    @property
    def done(self) -> bool:
        return self.epoch >= self.epochs

    @torch.no_grad()
    def advance(self) -> dict:
        k = self.rows[self.epoch]
        net = built(self.problem.build, self.stack["members"][k][0])
        with torch.no_grad():
            torch.nn.utils.vector_to_parameters(self.theta[k], [p for p in net.parameters() if p.requires_grad])
        net.eval()
        predicted = torch.cat([self.problem.read(net(x[None]))[0] for x in self.x.split(1_000)])
        self.found[self.epoch] = torch.tensor(self._measure(predicted), dtype=torch.float64)
        self.epoch += 1
        return {"epoch": self.epoch, **dict(zip(self.METRICS, self.found[self.epoch - 1].tolist(), strict=True))}

    def _measure(self, predicted: Tensor) -> list[float]:
        """In float64, on the float32 prediction."""
        p, y, M = predicted.double(), self.y.double(), self.pairs.set
        violation = M.violation(p)
        return [float(v) for v in (mse(p[None], y[None]), mse(M.project(p)[None], y[None]), violation.mean(), violation.max())]

    def state(self) -> dict[str, Tensor]:
        return {"found": self.found, "epoch": torch.tensor(self.epoch)}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.found, self.epoch = state["found"].clone(), int(state["epoch"])

    def finish(self) -> tuple[dict, dict[str, Tensor]]:
        result = {
            "row": self.config["row"],
            "dataset": self.pairs.name,
            "depth": self.stack["depth"],
            "weight_decay": self.decay,
            "seeds": [self.stack["members"][k][0] for k in self.rows],
            "diverged": sum(self.trained["diverged"][k] >= 0 for k in self.rows),
            "val": [self.trained["val"][k] for k in self.rows],
            "steps": self.trained["steps"],
            "batch": self.stack["protocol"]["batch"],
            "parameters": self.trained["parameters"],
            "split": self.split,
            "rows": len(self.x),
            **{name: self.found[:, i].tolist() for i, name in enumerate(self.METRICS)},
        }
        return result, {"found": self.found}
