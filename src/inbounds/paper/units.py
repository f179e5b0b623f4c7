"""What the table needs done: velocity networks, fitted sets, stacks of models, tests of the chosen ones, as JSON configs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from ..core import Manifold
from ..train.store import Store, key
from ..train.work import Unit
from .costs import stack_cost, test_cost, velocity_cost
from .datasets import DATASETS, Dataset
from .names import named
from .presets import Budget, Preset, Velocity
from .rows import ROWS, Row, Source

UNDEFINED = {  # the disk has a boundary: no exponential map
    (d.name, r.name) for d in DATASETS.values() for r in ROWS.values() if r.needs_manifold and not isinstance(d.set(), Manifold)
}
FIRST = ("velocity", "distil", "fit")  # kinds of units that others wait for


def budget_of(preset: Preset, dataset: Dataset, row: Row) -> Budget:
    """How long a row is trained on a dataset."""
    return dataset.budget(row.budget(preset))


def units(preset: Preset, references: Sequence[dict], rows: Sequence[str], store: Store | None = None) -> list[Unit]:
    """Everything the table needs. What others wait for comes first, then the longest; of a long preset the shortest comes first.

    Members that the store has already are not asked for again.
    """
    todo: list[Unit] = []
    there, chosen = Catalogue(store), [named(row, ROWS) for row in rows]
    for reference in references:
        todo += learning_units(preset, reference, chosen)
        for row in chosen:
            if (reference["name"], row.name) not in UNDEFINED:
                todo += row_units(preset, reference, row, there)
    if preset.long:
        return sorted(todo, key=lambda u: u.cost)
    return sorted(todo, key=lambda u: (u.config["kind"] not in FIRST, -u.cost))


def learning_units(preset: Preset, reference: dict, rows: Sequence[Row]) -> list[Unit]:
    """What learns the sets of these rows on a dataset."""
    name, todo = reference["name"], []
    flows = sorted((r for r in rows if r.source is Source.FLOW), key=lambda r: not r.each_layer)
    velocities = velocity_configs(preset, reference) if flows else []
    todo += [Unit(c, title=f"{name} velocity alpha {c['alpha']:g}", cost=velocity_cost(c)) for c in velocities]
    for row in flows:
        distil = distil_config(preset, reference, row, velocities)
        if distil:
            todo.append(Unit(distil, tuple(velocities), f"{name} distil for {row.name}", cost=20.0))
    if any(r.source is Source.FIT for r in rows):
        todo.append(Unit(fit_config(reference), title=f"{name} fit", cost=10.0))
    return todo


def row_units(preset: Preset, reference: dict, row: Row, there: Catalogue) -> list[Unit]:
    """The stacks of a row on a dataset, and the test of the model that they choose."""
    needs = tuple(learned_configs(preset, reference, row))
    stacks = stack_configs(preset, reference, row, list(needs), there)
    test, title = final_config(preset, reference, row, stacks), f"{reference['name']} {row.name}"
    todo = [Unit(c, needs, f"{title} {shown(c['members'])}", stack_cost(c)) for c in stacks]
    return [*todo, Unit(test, (*needs, *stacks), f"{title} test", test_cost(test))]


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


def _velocity(preset: Preset, reference: dict) -> Velocity:
    return preset.cs_velocity if named(reference["name"], DATASETS).flock else preset.velocity


def velocity_configs(preset: Preset, reference: dict) -> list[dict]:
    """The velocity networks of a dataset, one of which is chosen: every alpha, learning rate and weight decay."""
    v = _velocity(preset, reference)
    shared = {"epochs": v.epochs, "patience": v.patience, "stop_after": v.stop_after, "batches": v.batches}
    shared |= {"width": v.width, "depth": v.depth, "dropout": v.dropout}
    shared |= {"times": 30, "speed": 0.5, "batch": 256, "clip": 1.0}  # the paper's
    return [
        {"kind": "velocity", "data": reference, "alpha": a, "lr": lr, "weight_decay": wd, **shared}
        for a in v.alphas
        for lr in v.lrs
        for wd in v.decays
    ]


def distil_config(preset: Preset, reference: dict, row: Row, velocities: list[dict]) -> dict | None:
    """The network of one evaluation that learns the chosen flow, for presets that train rows through such a network.

    At the output of an FAA points are near M in the end. Between the layers of an IAA they are far from it, too, so that such
    points are part of what the network learns from.
    """
    epochs = _velocity(preset, reference).distil
    if not epochs:
        return None
    shared = {"kind": "distil", "data": reference, "velocities": velocities, "euler": preset.euler, "epochs": epochs}
    return {**shared, "far": 4.0, "points": 40_000} if row.each_layer else shared


def fit_config(reference: dict) -> dict:
    """The fit of a set to the training targets of a dataset."""
    return {"kind": "fit", "data": reference, "samples": 10_000, "version": 1}


def learned_configs(preset: Preset, reference: dict, row: Row) -> list[dict]:
    """The runs that learn the set of a row, if it is learned."""
    if row.source is Source.FLOW:
        velocities = velocity_configs(preset, reference)
        distil = distil_config(preset, reference, row, velocities)
        return velocities + ([distil] if distil else [])
    return [fit_config(reference)] if row.source is Source.FIT else []


def stack_configs(preset: Preset, reference: dict, row: Row, learned: list[dict], there: Catalogue | None = None) -> list[dict]:
    """The stacks of a row: one for all depths, decays and seeds, the deepest first; of transformers one for each depth."""
    dataset = named(reference["name"], DATASETS)
    budget = budget_of(preset, dataset, row)
    members = [[s, wd, d] for d in sorted(budget.depths, reverse=True) for wd in budget.decays for s in range(budget.seeds)]
    flow: dict = {}
    if row.source is Source.FLOW:
        distil = [c for c in learned if c["kind"] == "distil"]
        flow = {"velocities": [c for c in learned if c["kind"] == "velocity"], "euler": preset.euler, "version": 2}
        flow |= {"distil": distil[0]} if distil else {}
    flow |= {"fit": learned[0]} if row.source is Source.FIT else {}
    what = {"kind": "stack", "data": reference, "row": row.name, "blocks": row.knobs(dataset.name)}
    shared = {**what, **flow, "protocol": asdict(budget.protocol())}
    groups = [[m for m in members if m[2] == d] for d in budget.depths] if dataset.flock else [members]
    there = there or Catalogue(None)
    return [config for group in groups for config in there.cover({**shared, "members": group})]


def final_config(preset: Preset, reference: dict, row: Row, stacks: list[dict]) -> dict:
    """The test of the model that these stacks choose."""
    dataset = named(reference["name"], DATASETS)
    if row.source is Source.FLOW:
        most = preset.cs_flow_test if dataset.flock else preset.flow_test
    else:
        most = preset.flock_test if dataset.flock else None
    budget = budget_of(preset, dataset, row)
    grid = [[d, wd] for d in budget.depths for wd in budget.decays]
    asked = {"grid": grid, "seeds": list(range(budget.seeds))}
    return {"kind": "test", "data": reference, "row": row.name, "stacks": stacks, "rows": most, **asked}
