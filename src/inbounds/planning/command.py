"""`inbounds plan`."""

from __future__ import annotations

import csv
import math
import os
import sys
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path as File

import torch
from torch import Tensor

from ..extras import needed_for
from .around import Around
from .learning import Progress, train_direction, train_one_step
from .path import Path, joined, pull_tight
from .planners import Certified, Exact, OneStep, Planner, inflated, roadmap
from .random_worlds import random_worlds
from .roadmap import Roadmap
from .shortest import ShortestPaths
from .sides import load_sides, save_sides, train_sides
from .worlds import World, load_world

NOT_WITH_TRAIN = ("world", "random", "pairs", "through", "radius", "planner", "snap", "tight", "points", "animate", "out")
# errors speak of Python; here one types options
OPTIONS = {"Use Roadmap(world)": "Use --planner roadmap", "pass snap=True": "add --snap", "snap=True": "--snap"}


def run(args) -> int:
    """`inbounds plan`. Returns the exit code."""
    try:
        return train(args) if args.train is not None else plan(args)
    except (ValueError, OSError) as error:
        text = str(error)
        for python, option in OPTIONS.items():
            text = text.replace(python, option)
        print(f"inbounds plan: {text}", file=sys.stderr)
        return 2


def plan(args) -> int:
    """Plan the paths that the options ask for, print what was found, write the files."""
    true = _world(args)
    out = _picture(args, true)
    world = _for_robot(true, args.radius)
    x, y = _pairs(args, world)
    stops = [x, *_through(args.through, world, len(x)), y]
    planner = PLANNERS[args.planner or "sides"](world, args.seed, _progress())
    with warnings.catch_warnings(record=True) as notices:
        warnings.simplefilter("always")
        start = time.perf_counter()
        legs = [planner.plan(a, b, snap=args.snap) for a, b in pairwise(stops)]
        seconds = time.perf_counter() - start
        path = joined(world, [pull_tight(world, leg) for leg in legs] if args.tight else legs)
    for text in dict.fromkeys(str(notice.message) for notice in notices):
        print(f"note: {text}", file=sys.stderr)
    _print(world, path, legs, y, seconds)
    if args.points is not None:
        _write_points(path, File(args.points))
    if out is not None:
        from .drawing import animate, draw

        (animate if args.animate else draw)(true, path, out, targets=y)
        print(f"{out} written.")
    return 0 if bool(path.certified.all()) else 1


def train(args) -> int:
    """The network that is shipped, made again."""
    with needed_for("inbounds plan --train"):
        from safetensors import SafetensorError

    given = {f"--{k}": getattr(args, k) for k in NOT_WITH_TRAIN}
    given |= {"--from": args.start, "--to": args.target}
    beside = [name for name, value in given.items() if value is not None and value is not False]
    if beside:
        raise ValueError(
            f"--train asked for no options but --seed, got {', '.join(beside)}. Train first, then plan without --train."
        )
    file = File(args.train)
    if file.is_dir() or not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        raise ValueError(f"--train asked for a file that can be written, got {args.train!r}: a folder, in none, or not allowed.")
    start = time.perf_counter()
    net = train_sides(seed=args.seed, progress=_progress())
    try:
        save_sides(net, file)
    except SafetensorError as error:
        raise ValueError(f"{file} could not be written: {error}") from None
    print(f"{file} written after {time.perf_counter() - start:.0f} s.")
    return 0


def _sides(world: World, seed: int, progress: Progress | None) -> Planner:
    return Around(world, load_sides(), fallback=roadmap(world, 400, seed))


def _direction(world: World, seed: int, progress: Progress | None) -> Planner:
    net = train_direction(inflated(world)[1], seed=seed, progress=progress)
    return Certified(world, net, fallback=roadmap(world, seed=seed))


# those that learn are trained first, in half a minute
PLANNERS: dict[str, Callable[[World, int, Progress | None], Planner]] = {
    "sides": _sides,
    "direction": _direction,
    "paper": lambda world, seed, progress: OneStep(world, train_one_step(world, seed=seed, progress=progress)),
    "closed-form": lambda world, seed, progress: OneStep(world),
    "roadmap": lambda world, seed, progress: Roadmap(world, 1000, seed),
    "exact": lambda world, seed, progress: Exact(world),
}


def _world(args) -> World:
    if args.random is not None and args.world is not None:
        raise ValueError(f"plan asked for --world or --random, got both: {args.world} and {args.random}. Leave one of them out.")
    return random_worlds(1, seed=args.random)[0] if args.random is not None else load_world(args.world or "rect")


def _for_robot(world: World, radius: float | None) -> World:
    """Where the centre of a robot of that radius may go."""
    if radius is None:
        return world
    if not (math.isfinite(radius) and radius >= 0):
        raise ValueError(f"--radius asked for a number that is not negative, got {radius:g}.")
    try:
        return world.for_robot(radius)
    except ValueError as error:
        raise ValueError(f"--radius asked for a robot that fits into the world, got {radius:g}: {error}") from None


def _through(file: str | None, world: World, rows: int) -> list[Tensor]:
    """The points of a file, one after the other, for every row."""
    if file is None:
        return []
    if not File(file).is_file():
        raise ValueError(f"--through asked for a file with a point in every line, got {file}, which does not exist.")
    try:
        lines = [line.partition("#")[0].strip() for line in File(file).read_text().splitlines()]
    except UnicodeDecodeError:
        raise ValueError(f"--through asked for a text file with lines like 0.5,2, got {file}, which is not text.") from None
    found = [_point(line, world, f"Line {k} of {file}") for k, line in enumerate(lines, 1) if line]
    if not found:
        raise ValueError(f"--through asked for a file with a point in every line, got {file}, which has none.")
    return [p.expand(rows, -1) for p in found]


def _write_points(path: Path, file: File) -> None:
    """One line for every way point; copies at the end of shorter paths are left out."""
    names = "xyz" if path.points.shape[-1] <= 3 else [f"x{k}" for k in range(1, path.points.shape[-1] + 1)]
    with open(file, "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["path", "point", *names[: path.points.shape[-1]]])
        for row, points in enumerate(path.points.tolist()):
            different = [points[0], *(q for p, q in pairwise(points) if p != q)]
            writer.writerows([row, k, *p] for k, p in enumerate(different))
    print(f"{file} written.")


def _picture(args, world: World) -> File | None:
    """Where it goes; None if there is none to draw."""
    out = args.out if args.out is not None else "path.gif" if args.animate else "path.png"
    if not out:
        return None
    if not world.is_surface:
        if args.out is not None or args.animate:
            raise ValueError(
                f"Pictures asked for the plane or the sphere, got a box of dimension {world.dim}. Leave out -o, --animate."
            )
        print(f"note: no picture, the world has dimension {world.dim}.", file=sys.stderr)
        return None
    if args.animate and File(out).suffix.lower() != ".gif":
        raise ValueError(f"--animate asked for a file that ends in .gif, got {out}. Write -o {File(out).with_suffix('.gif')}.")
    return File(out)


def _pairs(args, world: World) -> tuple[Tensor, Tensor]:
    if (args.start is None) != (args.target is None):
        raise ValueError("plan asked for both --from and --to, or neither; got one of them.")
    if args.start is not None:
        if args.pairs is not None:
            raise ValueError("plan asked for --from and --to, or for --pairs; got both. Leave one of them out.")
        return _point(args.start, world, "--from"), _point(args.target, world, "--to")
    g, count = torch.Generator().manual_seed(args.seed), args.pairs or 8
    return world.sample(count, generator=g), world.sample(count, generator=g)


def _point(text: str, world: World, name: str) -> Tensor:
    try:
        numbers = [float(t) for t in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} asked for numbers like 0.5,2, got {text}.") from None
    if len(numbers) != world.dim:
        raise ValueError(f"{name} asked for {world.dim} numbers in this world, got {len(numbers)}: {text}.")
    return torch.tensor([numbers], dtype=torch.float64)


def _print(world: World, path: Path, legs: list[Path], y: Tensor, seconds: float) -> None:
    """Lengths are compared with the shortest way to the target, or to where a planner that never quite gets there ended."""
    shortest = []
    if world.is_surface:
        solver = ShortestPaths(world)
        each = [solver.distance(leg.points[:, 0], leg.points[:, -1]) for leg in legs]
        shortest = torch.stack(each).sum(0).tolist()
    for k in range(len(path.points)):
        end = path.points[k, -1] if bool(path.reached[k]) else y[k]
        a, b = (", ".join(f"{v:.4g}" for v in p.tolist()) for p in (path.points[k, 0], end))
        if not bool(path.reached[k]):
            print(f"({a}) -> ({b}): no way found")
            continue
        length, least = float(path.length[k]), float(path.clearance[k].min())
        ratio = f", {length / shortest[k] if shortest[k] else 1:.4f} of the shortest" if shortest else ""
        free = f"free by {least:.2g}" if least >= 0 else f"COLLIDES, {-least:.2g} deep"
        note = ", by the roadmap" if bool(path.fallback[k]) else ""
        print(f"({a}) -> ({b}): length {length:.5g}{ratio}; {free}{note}")
    print(f"{len(path.points)} paths in {seconds:.2f} s; {int(path.certified.sum())} arrive and are certified.")


def _progress() -> Progress | None:
    if not sys.stderr.isatty():
        return None

    def show(what: str, step: int, of: int, loss: float) -> None:
        end = "\n" if step == of else ""
        print(f"\r{what}: {step}/{of}, loss {loss:.4f}   ", end=end, file=sys.stderr, flush=True)

    return show
