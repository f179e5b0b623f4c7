"""Table 1 as HTML: a line for each cell, with the value to sort by beside each text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from ..paper.table import SETS, TITLES, Cell, number, percent, share


@dataclass(frozen=True)
class Column:
    """title and what it means; text: what is shown; value: what is sorted by, None sorts last."""

    title: str
    means: str
    text: Callable[[Cell], str]
    value: Callable[[Cell], float | str | None]


def _star(c: Cell) -> str:
    return "*" if c.other_data and c.published_mse is not None else ""


COLUMNS = (
    Column("set", "dataset", lambda c: SETS[c.dataset], lambda c: SETS[c.dataset]),
    Column("row", "architecture", lambda c: TITLES[c.row], lambda c: TITLES[c.row]),
    Column("loss", "test MSE, mean over seeds", lambda c: number(c.mse), lambda c: c.mse),
    Column("published", "test MSE of the paper", lambda c: number(c.published_mse) + _star(c), lambda c: c.published_mse),
    Column("+-", "standard deviation over seeds", lambda c: number(c.mse_spread) if c.seeds > 1 else "", lambda c: c.mse_spread),
    Column("loss on M", "after projecting the prediction on the set", lambda c: number(c.mse_on_set), lambda c: c.mse_on_set),
    Column("violation", "mean distance to the set", lambda c: number(c.violation_mean), lambda c: c.violation_mean),
    Column(
        "published dist.",
        "mean distance of the paper",
        lambda c: number(c.published_distance) + _star(c),
        lambda c: c.published_distance,
    ),
    Column("max", "largest violation of a test point", lambda c: number(c.violation_max), lambda c: c.violation_max),
    Column(
        "in M", "every prediction is a point of the set", lambda c: "yes" if c.feasible else "NO", lambda c: float(c.feasible)
    ),
    Column("depth", "blocks of the chosen network", lambda c: str(c.depth), lambda c: c.depth),
    Column("seeds", "networks in the mean", lambda c: str(c.seeds), lambda c: c.seeds),
    Column("steps", "of training", lambda c: f"{c.steps:,}", lambda c: c.steps),
    Column("of protocol", "training points seen, of the paper's", lambda c: percent(min(share(c), 1.0)), share),
    Column("seconds", "of training, all members of the row", lambda c: f"{c.seconds:,.0f}", lambda c: c.seconds),
)


def table(cells: Sequence[Cell]) -> str:
    """The cells as an HTML table that can be sorted by each of its columns."""
    head = "".join(
        f'<th scope="col" title="{escape(c.means)}"><button type="button">{escape(c.title)}</button></th>' for c in COLUMNS
    )
    body = "\n".join(_line(c) for c in cells)
    return f'<div class="wide"><table class="sortable"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def _line(c: Cell) -> str:
    cells = "".join(f'<td data-value="{_value(col.value(c))}"{_kind(col, c)}>{escape(col.text(c))}</td>' for col in COLUMNS)
    return f"<tr{'' if c.feasible else ' class=outside'}>{cells}</tr>"


def _kind(column: Column, c: Cell) -> str:
    return f' class="{"yes" if c.feasible else "no"}"' if column.title == "in M" else ""


def _value(value: float | str | None) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return escape(str(value))
