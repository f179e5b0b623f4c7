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
    for axes, task in zip(panels[0], tasks, strict=True):
        _name(axes, [c for c in done if c.task == task])
    save(figure, out)
    plt.close(figure)


def _place(c: Cell) -> tuple[float, float]:
    return 1e6 * (c.inference_seconds or 0.0), max(100 * (c.gap_mean or 0.0), 0.01)


def _panel(axes, mine: list[Cell], task: str) -> None:
    for c in mine:
        kept = max(c.equalities_max or 0.0, c.inequalities_max or 0.0) <= FEASIBLE
        axes.scatter(*_place(c), color=LAND if kept else BAD, marker="o" if kept else "x", s=45, zorder=3)
    axes.set(xscale="log", yscale="log", title=task, xlabel="CPU time of an instance in a batch (us)")
    axes.set_ylabel("mean gap to the solver (%)", color=GREY)
    axes.margins(x=0.3, y=0.18)
    for axis, values in zip((axes.xaxis, axes.yaxis), zip(*map(_place, mine), strict=True), strict=True):
        axis.set_major_formatter("{x:g}")
        wide = max(values) > 5 * min(values)  # less than a decade has few powers of ten
        axis.set_minor_formatter(lambda x, _, wide=wide: "" if wide or f"{x:e}"[0] not in "25" else f"{x:g}")
    axes.grid(True, color=GRID, zorder=0)
    axes.plot([], [], "o", color=LAND, label=f"violation at most {FEASIBLE:.0e}")
    axes.plot([], [], "x", color=BAD, label="violated")
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, frameon=False)


SIDES = [(x, y, side) for y in (-3, 9, -15, 21, -27, 33, -39, 45) for x, side in ((8, "left"), (-8, "right"))]  # in points
NEXT = 9  # points up to which a name is next to its point and needs no line
ALONG = [i / 20 for i in range(21)]  # where a line is looked at


def _name(axes, mine: list[Cell]) -> None:
    """A name at the first place beside its point where neither it nor its line covers anything; a name next to it has no line."""
    figure = axes.figure
    figure.draw_without_rendering()
    frame, points = axes.get_window_extent(), [axes.transData.transform(_place(c)) for c in mine]
    taken, lines = [], []
    for c, point in sorted(zip(mine, points, strict=True), key=lambda pair: -pair[1][1]):
        for x, y, side in SIDES:
            how = {"textcoords": "offset points", "ha": side, "fontsize": 8, "color": INK}
            text = axes.annotate(c.title, _place(c), xytext=(x, y), **how)
            box = text.get_window_extent().padded(1)
            begin = box.x0 if side == "left" else box.x1, (box.y0 + box.y1) / 2
            line = _line(begin, point) if abs(y) > NEXT else []
            hit = any(box.overlaps(other) for other in taken) or any(box.padded(8).contains(*p) for p in points if p is not point)
            hit = hit or any(other.contains(*q) for other in taken for q in line) or any(box.contains(*q) for q in lines)
            if not hit and frame.x0 < box.x0 and box.x1 < frame.x1 and frame.y0 < box.y0 and box.y1 < frame.y1:
                break
            if (x, y, side) != SIDES[-1]:
                text.remove()
        if line:
            arrow = {"arrowstyle": "-", "color": GREY, "lw": 0.5, "shrinkA": 0, "shrinkB": 4}
            height = (begin[1] - point[1]) * 72 / figure.dpi
            axes.annotate("", _place(c), xytext=(x, height), textcoords="offset points", arrowprops=arrow)
        taken.append(box)
        lines += line


def _line(begin, end) -> list[tuple[float, float]]:
    """Points along the line between two of them."""
    return [(begin[0] + t * (end[0] - begin[0]), begin[1] + t * (end[1] - begin[1])) for t in ALONG]
