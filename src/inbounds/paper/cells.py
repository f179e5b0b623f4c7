"""A trained cell of the table out of the store: the set it learned, the depth and decay it chose, its networks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import ConstraintSet
from ..data.pairs import Pairs, generator
from ..learned import Flow, VelocityNet, denoising
from ..learned.storage import assemble
from ..train.layers import unpack
from ..train.store import Store
from ..train.training import Problem, built
from .distil import OneStep


def chosen_flow(configs: list[dict], pairs: Pairs, store: Store, euler: int) -> tuple[Flow, float]:
    """The one of the trained velocity networks that best undoes the longest displacements, and how long these are.

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


def learned_set(config: dict, pairs: Pairs, store: Store, test: bool = False) -> ConstraintSet | None:
    """The set that a stack's networks project on, where it is learned. test: the flow itself, not what was distilled from it."""
    if "velocities" in config:
        if "distil" in config and not test:
            run = store.run(config["distil"])
            net = VelocityNet(**(run.result or {})["net"])
            net.load_state_dict(run.weights())
            return OneStep(net, pairs.set.shape)
        return chosen_flow(config["velocities"], pairs, store, config["euler"])[0]
    if "fit" in config:
        run = store.run(config["fit"])
        return assemble((run.result or {})["header"], run.weights())
    return None


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
