"""The table as a picture: the gap against the time of an instance, violation as colour."""

from __future__ import annotations

from pathlib import Path

from ..drawing import BAD, GREY, GRID, INK, LAND, save
from ..extras import needed_for
from .jobs import FEASIBLE
from .table import Cell


def draw(found: list[Cell], out: Path) -> None:
    """Write a panel for every task that has numbers. A gap below 0.01 % is drawn there: infeasible points can cost less."""
    with needed_for("The picture of the table"):
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot as plt

    done = [c for c in found if c.gap_mean is not None]
    tasks = list(dict.fromkeys(c.task for c in done))
    figure, panels = plt.subplots(1, len(tasks), figsize=(5.2 * len(tasks), 4.2), squeeze=False, dpi=120)
    for axes, task in zip(panels[0], tasks, strict=True):
        _panel(axes, [c for c in done if c.task == task], task)
    figure.tight_layout()
    save(figure, out)
    plt.close(figure)


def _panel(axes, mine: list[Cell], task: str) -> None:
    seconds = [c.inference_seconds or 0.0 for c in mine]
    middle = (min(seconds) * max(seconds)) ** 0.5
    for k, c in enumerate(sorted(mine, key=lambda c: c.gap_mean or 0.0)):  # neighbours get their names above and below, by turns
        kept = max(c.equalities_max or 0.0, c.inequalities_max or 0.0) <= FEASIBLE
        place = 1e6 * (c.inference_seconds or 0.0), max(100 * (c.gap_mean or 0.0), 0.01)
        axes.scatter(*place, color=LAND if kept else BAD, marker="o" if kept else "x", s=45, zorder=3)
        side, turn = ("right", -6) if (c.inference_seconds or 0.0) > middle else ("left", 6)
        offset = {"textcoords": "offset points", "xytext": (turn, 4 if k % 2 else -11), "ha": side}
        axes.annotate(c.title, place, fontsize=8, color=INK, **offset)
    axes.set(xscale="log", yscale="log", title=task, xlabel="CPU time of an instance in a batch of 1,000 (us)")
    axes.set_ylabel("mean gap to the solver (%)", color=GREY)
    axes.margins(x=0.4, y=0.12)
    axes.grid(True, color=GRID, zorder=0)
    axes.plot([], [], "o", color=LAND, label=f"violation at most {FEASIBLE:.0e}")
    axes.plot([], [], "x", color=BAD, label="violated")
    axes.legend(fontsize=8, loc="best", frameon=False)
