"""The table's cells as units of work: velocity networks, stacks of models, tests of the chosen ones."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from ..core import ConstraintSet
from ..data.pairs import Pairs, generator
from ..learned import Flow, FlowTraining, LearnedSet, denoising, fit
from ..learned.flow import VelocityNet
from ..learned.one_step import Distillation, OneStep
from ..learned.storage import assemble
from ..train.layers import unpack
from ..train.store import Store, key
from ..train.training import Member, Problem, Protocol, StackTraining, built, mse
from ..train.work import Job, Unit
from . import models
from .datasets import FLOCKS, open_pairs
from .presets import FIT_ROWS, FLOW_ROWS, UNDEFINED, Preset, Velocity


# --- what there is to do -----------------------------------------------------------------------------------
def units(preset: Preset, references: Sequence[dict], rows: Sequence[str], store: Store | None = None) -> list[Unit]:
    """Everything the table needs, long work first, or last; members that the store has already are not asked for again."""
    todo: list[Unit] = []
    there = Catalogue(store)
    for reference in references:
        velocities = velocity_configs(preset, reference) if set(rows) & set(FLOW_ROWS) else []
        todo += [Unit(c, title=f"{reference['name']} velocity alpha {c['alpha']:g}", cost=_velocity_cost(c)) for c in velocities]
        for row in [r for r in FLOW_ROWS if r in rows]:
            distil = distil_config(preset, reference, row, velocities)
            if distil:
                todo.append(Unit(distil, tuple(velocities), f"{reference['name']} distil for {row}", cost=20.0))
        if set(rows) & set(FIT_ROWS):
            todo.append(Unit(fit_config(reference), title=f"{reference['name']} fit", cost=10.0))
        for row in rows:
            if (reference["name"], row) in UNDEFINED:
                continue
            needs = tuple(learned_configs(preset, reference, row))
            stacks = stack_configs(preset, reference, row, list(needs), there)
            title = f"{reference['name']} {row}"
            todo += [Unit(c, needs, f"{title} {shown(c['members'])}", _stack_cost(c)) for c in stacks]
            test = final_config(preset, reference, row, stacks)
            todo.append(Unit(test, (*needs, *stacks), f"{title} test", _test_cost(test)))
    first = {"velocity": 0, "distil": 0, "fit": 0, "stack": 1, "test": 1}
    if preset.long:
        return sorted(todo, key=lambda u: u.cost)
    return sorted(todo, key=lambda u: (first[u.config["kind"]], -u.cost))


def name_of(config: dict) -> str:
    """What a run is, in words: `sphere regular depths 8,6,4 seeds 0`, `disk velocity alpha 0.5`."""
    dataset, kind = config["data"]["name"], config["kind"]
    if kind == "stack":
        return f"{dataset} {config['row']} {shown(config['members'])} epochs {config['protocol']['epochs']}"
    if kind == "test":
        return f"{dataset} {config['row']} test epochs {config['stacks'][0]['protocol']['epochs']}"
    return f"{dataset} {kind}" + (f" alpha {config['alpha']:g} lr {config['lr']:g}" if kind == "velocity" else "")


def shown(members: list[list]) -> str:
    """`depths 8,6,4 seeds 0`."""
    depths, seeds = ({m[i]: 0 for m in members} for i in (2, 0))
    return f"depths {','.join(map(str, depths))} seeds {','.join(map(str, seeds))}"


class Catalogue:
    """The stacks that a store holds, begun or done, by all of their config but the members."""

    def __init__(self, store: Store | None):
        self.store, self.stacks = store, {}
        for config in [] if store is None else store.configs():
            if config.get("kind") == "stack":
                self.stacks.setdefault(_base(config), []).append(config)

    def cover(self, config: dict) -> list[dict]:
        """Stacks that together have the members of `config`: those that are there, and one for the rest."""
        wanted = config["members"]
        left, used = list(wanted), []
        for there in sorted(self.stacks.get(_base(config), []), key=lambda c: -len(c["members"])):
            here = [m for m in there["members"] if m in left]
            finished = self.store is not None and self.store.run(there).done
            if here and (finished or all(m in wanted for m in there["members"])):
                used.append(there)
                left = [m for m in left if m not in here]
        if left:
            used.append({**config, "members": left})
        return sorted(used, key=key)


def _base(config: dict) -> str:
    return json.dumps({k: v for k, v in config.items() if k != "members"}, sort_keys=True)


def velocity_configs(preset: Preset, reference: dict) -> list[dict]:
    v: Velocity = preset.cs_velocity if reference["name"] in FLOCKS else preset.velocity
    shared = {"epochs": v.epochs, "patience": v.patience, "stop_after": v.stop_after, "batches": v.batches}
    shared |= {"width": v.width, "depth": v.depth, "dropout": v.dropout}
    shared |= {"times": 30, "speed": 0.5, "batch": 256, "clip": 1.0}  # the paper's
    return [
        {"kind": "velocity", "data": reference, "alpha": a, "lr": lr, "weight_decay": wd, **shared}
        for a in v.alphas
        for lr in v.lrs
        for wd in v.decays
    ]


def distil_config(preset: Preset, reference: dict, row: str, velocities: list[dict]) -> dict | None:
    """At the output of an FAA points are near M in the end; between the layers of an IAA they are far from it, too."""
    epochs = (preset.cs_velocity if reference["name"] in FLOCKS else preset.velocity).distil
    if not epochs:
        return None
    shared = {"kind": "distil", "data": reference, "velocities": velocities, "euler": preset.euler, "epochs": epochs}
    return {**shared, "far": 4.0, "points": 40_000} if row == "flow-iaa" else shared


def fit_config(reference: dict) -> dict:
    return {"kind": "fit", "data": reference, "samples": 10_000, "version": 1}


def learned_configs(preset: Preset, reference: dict, row: str) -> list[dict]:
    """The runs that learn the set of a row, if it is learned."""
    if row in FLOW_ROWS:
        velocities = velocity_configs(preset, reference)
        distil = distil_config(preset, reference, row, velocities)
        return velocities + ([distil] if distil else [])
    return [fit_config(reference)] if row in FIT_ROWS else []


def stack_configs(preset: Preset, reference: dict, row: str, learned: list[dict], there: Catalogue | None = None) -> list[dict]:
    """The stacks of a row: one for all depths, decays and seeds, the deepest first; of transformers one for each depth."""
    budget = preset.budget(reference["name"], row)
    members = [[s, wd, d] for d in sorted(budget.depths, reverse=True) for wd in budget.decays for s in range(budget.seeds)]
    flow: dict = {}
    if row in FLOW_ROWS:
        distil = [c for c in learned if c["kind"] == "distil"]
        flow = {"velocities": [c for c in learned if c["kind"] == "velocity"], "euler": preset.euler, "version": 2}
        flow |= {"distil": distil[0]} if distil else {}
    flow |= {"fit": learned[0]} if row in FIT_ROWS else {}
    blocks = models.knobs(reference["name"], row)
    shared = {"kind": "stack", "data": reference, "row": row, "blocks": blocks, **flow, "protocol": asdict(budget.protocol())}
    groups = [[m for m in members if m[2] == d] for d in budget.depths] if reference["name"] in FLOCKS else [members]
    there = there or Catalogue(None)
    return [config for group in groups for config in there.cover({**shared, "members": group})]


def final_config(preset: Preset, reference: dict, row: str, stacks: list[dict]) -> dict:
    flocks = reference["name"] in FLOCKS
    if row in FLOW_ROWS:
        most = preset.cs_flow_test if flocks else preset.flow_test
    else:
        most = preset.flock_test if flocks else None
    budget = preset.budget(reference["name"], row)
    grid = [[d, wd] for d in budget.depths for wd in budget.decays]
    asked = {"grid": grid, "seeds": list(range(budget.seeds))}
    return {"kind": "test", "data": reference, "row": row, "stacks": stacks, "rows": most, **asked}


# --- seconds on one core of 2026, measured with the standard preset; for order and estimates only ------------------
LAYER = {
    "sphere": 0.02e-3,
    "disk": 0.02e-3,
    "so3": 0.05e-3,
    "protein": 0.07e-3,
    "cs": 0.13,
    "flock": 0.035,
}  # 500 rows, one model
CALLS = {"sphere": 1.0e-3, "disk": 1.2e-3, "so3": 1.4e-3, "protein": 1.6e-3}  # of a step, however many models it has
ROW_FACTOR = {"proj-iaa": 3.0, "exp-iaa": 5.0, "prob": 2.2, "proj-faa": 1.4, "exp-faa": 1.7, "wide-faa": 4.0, "wide-iaa": 6.0}
NEWTON = 1e-4  # a projection on a fitted set, one point, forward and backward
PROJECTION = 1.0e-3  # 8 Euler steps of a flow of 8 x 256, one point, forward and backward
DISTILLED = 2e-6  # one evaluation of a distilled network, one point, forward and backward


def _stack_cost(c: dict) -> float:
    """Steps x (calls + models x (depth x seconds of a layer + projections of a learned set))."""
    name, row, p = c["data"]["name"], c["row"], c["protocol"]
    depth = sum(m[2] for m in c["members"]) / len(c["members"])
    steps = p["epochs"] * min(math.ceil(4_000 / p["batch"]), p["batches"] or 10**9)
    factor = (0.4 if "wide" in row and name == "cs" else 1.0) if name in FLOCKS else ROW_FACTOR.get(row, 1.0)
    layer = LAYER[name] * factor * p["batch"] / 500
    points = p["batch"] * (10 if name in FLOCKS else 1)
    each = DISTILLED if "distil" in c else PROJECTION * c.get("euler", 0) / 8
    flow = each * points * (depth + 1 if row == "flow-iaa" else 1) if "euler" in c else 0.0
    newton = NEWTON * points * (depth + 1 if row == "fit-iaa" else 1) if row in FIT_ROWS else 0.0
    return steps * (CALLS.get(name, 0.0) * factor + len(c["members"]) * (layer * depth + flow + newton))


def _velocity_cost(c: dict) -> float:
    full = math.ceil(30 * 4_000 * (10 if c["data"]["name"] in FLOCKS else 1) / c["batch"])
    return c["epochs"] * min(full, c["batches"] or full) * (3e-3 + 29e-3 * _size(c))


def _size(velocity: dict) -> float:
    """Of a velocity network, in units of the paper's."""
    return velocity["depth"] * velocity["width"] ** 2 / (8 * 256**2)


def _test_cost(c: dict) -> float:
    seeds, rows = len({m[0] for m in c["stacks"][0]["members"]}), c["rows"] or 20_000
    if c["row"] in FLOW_ROWS:  # RK45
        each = 6e-3 * (0.2 + 0.8 * _size(c["stacks"][0]["velocities"][0]))
        return each * rows * seeds * (10 if c["data"]["name"] in FLOCKS else 1) * (9 if c["row"] == "flow-iaa" else 1)
    return seeds * rows * (2e-3 if c["data"]["name"] in FLOCKS else 2e-5)


# --- names become objects here, and nowhere else ---------------------------------------------------------------
def open_job(config: dict, store: Store) -> Job:
    pairs = open_pairs(config["data"], store)
    return {"velocity": VelocityJob, "distil": DistilJob, "fit": FitJob, "stack": StackJob, "test": FinalJob}[config["kind"]](
        config, pairs, store
    )


class VelocityJob(FlowTraining):
    """A velocity network on the inputs of the training split, single agents of flocks."""

    def __init__(self, config: dict, pairs: Pairs, store: Store):
        knobs = {k: v for k, v in config.items() if k not in ("kind", "data")}
        train, val = (pairs[split][0].reshape(-1, *pairs.set.shape) for split in ("train", "val"))
        super().__init__(train, val, **knobs)

    def advance(self) -> dict:  # type: ignore[override]
        return {"epoch": self.epoch + 1, "val": super().advance()}

    def finish(self) -> tuple[dict, dict[str, Tensor]]:
        if not math.isfinite(self.best):
            return {"val": None, "epoch": self.epoch}, {}
        flow = self.flow()
        return {"val": self.best, "epoch": self.best_epoch, "spec": flow.spec(), "radius": self.radius}, flow.tensors()


def chosen_flow(configs: list[dict], pairs: Pairs, store: Store, euler: int) -> tuple[Flow, float]:
    """Of the trained velocity networks the one that best undoes the longest displacements, and how long these are.

    The longest of all candidates: a network is used on points far from M, too. Short ones alone favour a short T, whose flow
    does not bring far points home (mean violation on the sphere 6.5e-2 to 8.8e-2 for T = 0.5, 1.4e-2 to 2.6e-2 for T = 2).
    """
    results = [(store.run(c), store.run(c).result or {}) for c in configs]
    sound = [(run, r) for run, r in results if r.get("val") is not None]
    if not sound:
        raise RuntimeError(f"all {len(configs)} velocity networks of {pairs.name} diverged")
    radius = max(r["radius"] for _, r in sound)
    points = pairs["val"][0].reshape(-1, *pairs.set.shape)[:2_000]
    flows = [Flow.load(run.weights(), {**r["spec"], "steps": euler}) for run, r in sound]
    scores = [denoising(f, points, radius, generator(0, stream=78)) for f in flows]
    return flows[scores.index(min(scores))], radius


class DistilJob(Distillation):
    """The chosen flow in one evaluation of a small network."""

    def __init__(self, config: dict, pairs: Pairs, store: Store):
        flow, radius = chosen_flow(config["velocities"], pairs, store, euler=40)
        knobs = {k: config[k] for k in ("epochs", "far", "points") if k in config}
        super().__init__(flow, pairs["train"][0].reshape(-1, *pairs.set.shape), radius, **knobs)

    def state(self) -> dict[str, Tensor]:
        return {"epoch": torch.tensor(0)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Half a minute of work: nothing is kept half-way."""

    def finish(self) -> tuple[dict, dict[str, Tensor]]:
        net = {k: getattr(self.net, k) for k in ("size", "width", "depth", "dropout")}
        return {"error": self.error, "radius": self.radius, "net": net}, self.net.state_dict()


class FitJob:
    """`inbounds.fit` on the targets of the training split, single agents of flocks."""

    def __init__(self, config: dict, pairs: Pairs, store: Store):
        self.samples = pairs["train"][1].reshape(-1, *pairs.set.shape)[: config["samples"]]
        self.epoch, self.epochs = 0, 1
        self.found: LearnedSet

    @property
    def done(self) -> bool:
        return self.epoch >= self.epochs

    def advance(self) -> dict:
        self.epoch, self.found = 1, fit(self.samples)
        return {"epoch": 1, "title": self.found.info["title"]}

    def state(self) -> dict[str, Tensor]:
        return {"epoch": torch.tensor(0)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Nothing is kept half-way."""

    def finish(self) -> tuple[dict, dict[str, Tensor]]:
        return {"header": self.found.header()}, self.found.tensors()


def learned_set(config: dict, pairs: Pairs, store: Store, test: bool = False) -> ConstraintSet | None:
    """The set a stack's networks project on, where it is learned; test: the flow itself, not what was distilled from it."""
    if config["row"] in FLOW_ROWS:
        if "distil" in config and not test:
            run = store.run(config["distil"])
            net = VelocityNet(**(run.result or {})["net"])
            net.load_state_dict(run.weights())
            return OneStep(net, pairs.set.shape)
        return chosen_flow(config["velocities"], pairs, store, config["euler"])[0]
    if config["row"] in FIT_ROWS:
        run = store.run(config["fit"])
        return assemble((run.result or {})["header"], run.weights())
    return None


COMPILED = 20_000  # steps from which on a minute or two of compilation pays: the steps on SO(3) and SE(3) become six times faster


def compiler() -> str | None:
    """A C++ compiler, which torch.compile needs."""
    return next((path for name in ("g++", "clang++", "c++") if (path := shutil.which(name))), None)


class StackJob(StackTraining):
    """All depths, seeds and weight decays of a row; compile: where it pays, unless told."""

    def __init__(self, config: dict, pairs: Pairs, store: Store, compile: bool | None = None):
        problem = models.problem(config["row"], pairs, flow=learned_set(config, pairs, store))
        members = [Member(seed, wd, depth=depth) for seed, wd, depth in config["members"]]
        protocol = Protocol(**config["protocol"])
        steps = protocol.epochs * min(math.ceil(len(problem.x) / protocol.batch), protocol.batches or 10**9)
        if compile is None:
            compile = not pairs.tokens and steps >= COMPILED and compiler() is not None
        super().__init__(problem, protocol, members, compile=compile)

    def finish(self) -> tuple[dict, dict[str, Tensor]]:
        result = {
            "val": [v if math.isfinite(v) else None for v in self.best.tolist()],
            "epoch": self.best_epoch.tolist(),
            "diverged": self.diverged.tolist(),
            "steps": self.steps,
            "parameters": [sum(t.numel() for t in self.stack.tensors(k).values()) for k in range(len(self.members))],
        }
        return result, {"theta": self.best_theta}


@dataclass(frozen=True)
class Choice:
    """A depth and weight decay, and where its seeds are: (stack, row of its theta)."""

    depth: int
    decay: float
    places: list[tuple[dict, int]]


def choose(config: dict, store: Store) -> Choice:
    """The depth and decay of the lowest mean validation error over seeds; ties go to the shallower."""
    found: dict[tuple, dict[int, tuple[float, dict, int]]] = {}
    for stack in config["stacks"]:
        result = store.run(stack).result
        assert result is not None
        for k, (seed, decay, depth) in enumerate(stack["members"]):
            value = result["val"][k]
            found.setdefault((depth, decay), {})[seed] = (math.inf if value is None else value, stack, k)
    wanted = [tuple(c) for c in config.get("grid", found)]
    seeds = config.get("seeds") or sorted({s for by in found.values() for s in by})
    scores = {c: sum(found[c][s][0] for s in seeds) / len(seeds) for c in sorted(wanted)}
    depth, decay = min(scores, key=lambda c: scores[c])
    return Choice(depth, decay, [found[depth, decay][s][1:] for s in seeds])


def trained_net(problem: Problem, stack: dict, k: int, theta: Tensor) -> torch.nn.Module:
    """Member k of a stack, ready for inference; theta: its row."""
    seed, _, depth = stack["members"][k]
    net = built(lambda: problem.build(depth), seed)
    deepest = net if depth == stack["members"][0][2] else problem.build(stack["members"][0][2])
    net.load_state_dict(unpack(theta, deepest, net), strict=False)
    return net.eval()


class FinalJob:
    """The chosen depth and weight decay on the test split, a seed at a time."""

    METRICS = ("mse", "mse_on_set", "violation_mean", "violation_max")

    def __init__(self, config: dict, pairs: Pairs, store: Store):
        self.config, self.pairs = config, pairs
        self.choice = choose(config, store)
        self.trained = [store.run(stack).result or {} for stack, _ in self.choice.places]
        self.theta = [store.run(stack).weights()["theta"][k] for stack, k in self.choice.places]
        self.epoch, self.epochs = 0, len(self.theta)
        self.found = torch.full((self.epochs, len(self.METRICS)), math.nan, dtype=torch.float64)
        row, stack = config["row"], self.choice.places[0][0]
        self.problem = models.problem(row, pairs, flow=learned_set(stack, pairs, store, test=True))
        self.split = "large" if pairs.synthetic and row not in FLOW_ROWS else "test"
        x, y = pairs[self.split]
        self.x, self.y = x[: config["rows"]], y[: config["rows"]]

    @property
    def done(self) -> bool:
        return self.epoch >= self.epochs

    @torch.no_grad()
    def advance(self) -> dict:
        i, (stack, k) = self.epoch, self.choice.places[self.epoch]
        self.epoch += 1
        if self.trained[i]["val"][k] is None:  # it diverged before its first evaluation: there is no model to test
            return {"epoch": self.epoch}
        net = trained_net(self.problem, stack, k, self.theta[i])
        predicted = torch.cat([self.problem.read(net(x[None]))[0] for x in self.x.split(1_000)])
        self.found[self.epoch - 1] = torch.tensor(self._measure(predicted), dtype=torch.float64)
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
        rows = [k for _, k in self.choice.places]
        stack, trained = self.choice.places[0][0], list(zip(self.trained, rows, strict=True))
        result = {
            "row": self.config["row"],
            "dataset": self.pairs.name,
            "depth": self.choice.depth,
            "weight_decay": self.choice.decay,
            "seeds": [s["members"][k][0] for s, k in self.choice.places],
            "diverged": sum(r["diverged"][k] >= 0 for r, k in trained),
            "val": [r["val"][k] for r, k in trained],
            "epoch": [r["epoch"][k] for r, k in trained],
            "steps": self.trained[0]["steps"],
            "batch": stack["protocol"]["batch"],
            "parameters": self.trained[0]["parameters"][rows[0]],
            "split": self.split,
            "rows": len(self.x),
            **{name: self.found[:, i].tolist() for i, name in enumerate(self.METRICS)},
        }
        return result, {"found": self.found}
