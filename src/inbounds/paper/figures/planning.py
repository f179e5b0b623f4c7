"""`inbounds figure planning`: the paper's two panels, and the same pairs planned with certified paths."""

from __future__ import annotations

import csv
from pathlib import Path as File

import torch
from torch import Tensor

from ...drawing import BAD, FREE
from ...extras import needed_for
from ...planning import Around, OneStep, Path, Planner, Roadmap, ShortestPaths, World, load_sides, load_world, train_one_step
from ...planning.drawing import panel, paths

PAIRS = {"rect": 8, "sphere": 7}
LAM = 9.0  # weight of a step's length against the way that is left, the paper's


def west_east(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Starts west, targets east of a cap of 0.6 around (1, 0, 0); about half of them do not see each other."""
    g = torch.Generator().manual_seed(seed)
    longitude = (40 + 40 * torch.rand(2, count, generator=g, dtype=torch.float64)) * torch.tensor([[-1.0], [1.0]])
    latitude = 120 * torch.rand(2, count, generator=g, dtype=torch.float64) - 60
    a, b = torch.deg2rad(longitude), torch.deg2rad(latitude)
    points = torch.stack([b.cos() * a.cos(), b.cos() * a.sin(), b.sin()], -1)
    return points[0], points[1]


def pairs(name: str, count: int, seed: int = 0) -> tuple[World, Tensor, Tensor]:
    """A world of the paper's figure, and starts and targets in it."""
    world = load_world(name)
    if name == "sphere":
        return world, *west_east(count, seed)
    g = torch.Generator().manual_seed(seed)
    return world, world.sample(count, generator=g), world.sample(count, generator=g)


def planners(world: World) -> dict[str, Planner]:
    """The planners of the figure by their titles."""
    return {
        "the paper's planner": OneStep(world, train_one_step(world, LAM)),
        "certified": Around(world, load_sides(), fallback=lambda w: Roadmap(w, 400)),
    }


def run(args) -> int:
    """`inbounds figure planning`. Returns the exit code."""
    with needed_for("inbounds figure planning"):
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as plt
        from matplotlib.lines import Line2D

    out = File(args.out)
    out.mkdir(parents=True, exist_ok=True)
    figure = plt.figure(figsize=(11, 9.2))
    rows = []
    for column, (name, count) in enumerate(PAIRS.items()):
        world, x, y = pairs(name, count, seed=3)
        for row, (title, planner) in enumerate(planners(world).items()):
            path = planner.plan(x, y)
            colliding = int((path.clearance < 0).any(-1).sum())
            axes = panel(figure, 221 + 2 * row + column, world, f"{title}: {colliding} of {count} paths collide")
            paths(axes, world, path, y)
            rows += _rows(name, title, world, path, y)
    key = [
        Line2D([], [], marker="o", color="black", mfc="white", ls="", label="start"),
        Line2D([], [], marker="x", color="black", ls="", label="target"),
        Line2D([], [], marker="x", color=BAD, ls="", label="target not reached"),
        Line2D([], [], color=FREE, label="free segment"),
        Line2D([], [], color=BAD, lw=2.2, label="segment that collides"),
    ]
    figure.legend(handles=key, loc="lower center", ncol=5, frameon=False)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.savefig(out / "planning.png", dpi=150)
    plt.close(figure)
    with open(out / "planning.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["world", "planner", "pair", "reached", "colliding segments", "length", "shortest"])
        writer.writerows(rows)
    print(f"{out / 'planning.png'} and planning.csv written.")
    return 0


def _rows(name: str, title: str, world: World, path: Path, y: Tensor) -> list[list]:
    """`shortest` is the exact length from the start to the target y, also for paths that stop short of it. inf: no way."""
    shortest = ShortestPaths(world).distance(path.points[:, 0], y).tolist()
    return [
        [name, title, k, bool(path.reached[k]), int((path.clearance[k] < 0).sum()), round(float(path.length[k]), 6), round(s, 6)]
        for k, s in enumerate(shortest)
    ]
