"""`inbounds plan`."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path as File

import torch
from torch import Tensor

from .learning import Progress, train_direction, train_one_step
from .path import Path, pull_tight
from .planners import Certified, Exact, OneStep, Planner, roadmap
from .random_worlds import random_worlds
from .roadmap import Roadmap
from .shortest import ShortestPaths
from .sides import Around, load_sides, save_sides, train_sides
from .worlds import World, load_world

PLANNERS = ("sides", "direction", "paper", "closed-form", "roadmap", "exact")


def run(args) -> int:
    if args.train:
        return train(args)
    try:
        world = _world(args)
        x, y = _pairs(args, world)
        planner = make(args.planner, world, args.seed, _progress())
        with warnings.catch_warnings(record=True) as notices:
            warnings.simplefilter("always")
            start = time.perf_counter()
            path = planner.plan(x, y, snap=args.snap)
            seconds = time.perf_counter() - start
            if args.tight:
                path = pull_tight(world, path)
        for notice in notices:
            print(f"note: {notice.message}", file=sys.stderr)
        _print(world, path, seconds)
        if args.out:
            from .drawing import animate, draw

            (animate if args.animate else draw)(world, path, File(args.out))
            print(f"{args.out} written.")
    except (ValueError, FileNotFoundError, OSError) as error:
        print(f"inbounds plan: {error}", file=sys.stderr)
        return 2
    return 0 if bool((path.reached & path.certified).all()) else 1


def train(args) -> int:
    """The network that is shipped, made again."""
    start = time.perf_counter()
    net = train_sides(seed=args.seed, progress=_progress())
    save_sides(net, args.train)
    print(f"{args.train} written after {time.perf_counter() - start:.0f} s.")
    return 0


def make(name: str, world: World, seed: int = 0, progress: Progress | None = None) -> Planner:
    """A planner by name; those that learn are trained first, in half a minute."""
    if name == "sides":
        return Around(world, load_sides(), fallback=lambda w: Roadmap(w, 400, seed))
    if name == "direction":
        inner = Certified(world, lambda x, y: x).inner
        return Certified(world, train_direction(inner, seed=seed, progress=progress), fallback=roadmap(world, seed=seed))
    made: dict[str, Callable[[], Planner]] = {
        "paper": lambda: OneStep(world, train_one_step(world, seed=seed, progress=progress)),
        "closed-form": lambda: OneStep(world),
        "roadmap": lambda: Roadmap(world, 1000, seed),
        "exact": lambda: Exact(world),
    }
    return made[name]()


def _world(args) -> World:
    return random_worlds(1, seed=args.random)[0] if args.random is not None else load_world(args.world)


def _pairs(args, world: World) -> tuple[Tensor, Tensor]:
    if (args.start is None) != (args.target is None):
        raise ValueError("plan asked for both --from and --to, or neither; got one of them.")
    if args.start is not None:
        return _point(args.start, world, "--from"), _point(args.target, world, "--to")
    g = torch.Generator().manual_seed(args.seed)
    return world.sample(args.pairs, generator=g), world.sample(args.pairs, generator=g)


def _point(text: str, world: World, name: str) -> Tensor:
    try:
        numbers = [float(t) for t in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} asked for numbers like 0.5,2, got {text}.") from None
    if len(numbers) != world.dim:
        raise ValueError(f"{name} asked for {world.dim} numbers in this world, got {len(numbers)}: {text}.")
    return torch.tensor([numbers], dtype=torch.float64)


def _print(world: World, path: Path, seconds: float) -> None:
    shortest = ShortestPaths(world).distance(path.points[:, 0], path.points[:, -1]) if world.is_surface else None
    for k in range(len(path.points)):
        a, b = (", ".join(f"{v:.3f}" for v in p.tolist()) for p in (path.points[k, 0], path.points[k, -1]))
        if not bool(path.reached[k]):
            print(f"({a}): no way found")
            continue
        ratio = f", {float(path.length[k] / shortest[k].clamp(min=1e-12)):.4f} of the shortest" if shortest is not None else ""
        least = float(path.clearance[k].min())
        free = f"free by {least:.2g}" if least >= 0 else f"COLLIDES, {-least:.2g} deep"
        note = ", by the roadmap" if bool(path.fallback[k]) else ""
        print(f"({a}) -> ({b}): length {float(path.length[k]):.4f}{ratio}; {free}{note}")
    print(f"{len(path.points)} paths in {seconds:.2f} s; {int((path.reached & path.certified).sum())} arrive and are certified.")


def _progress() -> Progress | None:
    if not sys.stderr.isatty():
        return None

    def show(what: str, step: int, of: int, loss: float) -> None:
        end = "\n" if step == of else ""
        print(f"\r{what}: {step}/{of}, loss {loss:.4f}   ", end=end, file=sys.stderr, flush=True)

    return show
