"""What a report is made from: the finished cells of a run store, as the table shows them and as networks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..paper.published import OTHER_DATA
from ..paper.results import TrainedCell, open_cells, open_store
from ..paper.table import Cell, cell_of
from ..train.store import Store


@dataclass(frozen=True)
class Reading:
    """trained: the cells as networks; shown: the same cells as lines of the table; about: how they were asked for, if known."""

    folder: Path
    trained: list[TrainedCell]
    shown: list[Cell]
    about: dict

    @cached_property
    def by_dataset(self) -> dict[str, list[TrainedCell]]:
        """Cells that can predict, those of one dataset together; equal data are opened once."""
        found: dict[str, list[TrainedCell]] = {}
        opened = {}
        for cell in self.trained:
            if seed_with_model(cell) is not None:
                cell.data = opened.setdefault(cell.config["data"]["fingerprint"], cell).data
                found.setdefault(cell.dataset, []).append(cell)
        return found

    def find(self, dataset: str, *rows: str) -> list[TrainedCell]:
        """The cells of these rows that are there, in this order."""
        there = {cell.row: cell for cell in self.by_dataset.get(dataset, [])}
        return [there[row] for row in rows if row in there]


def seed_with_model(cell: TrainedCell) -> int | None:
    """The first seed that did not diverge before its first evaluation."""
    return next((k for k, value in enumerate(cell.result["val"]) if value is not None), None)


def read(folder: str | Path) -> Reading:
    """Raises FileNotFoundError where there is no finished cell."""
    folder = Path(folder)
    trained = open_cells(folder)
    if not trained:
        raise FileNotFoundError(
            f"asked for a run store with finished cells, got {folder}, which has none. Write: inbounds table --out {folder}"
        )
    about, tables = _tables(folder)
    store = open_store(folder)
    return Reading(folder, trained, [_shown(cell, store, tables) for cell in trained], about)


def _tables(folder: Path) -> tuple[dict, list[dict]]:
    """How the table was asked for, and its cells: of table.json, or of the files NAME.json beside shipped runs."""
    files = [folder / "table.json"] if (folder / "table.json").exists() else sorted(folder.glob("*.json"))
    records = [r for r in (json.loads(path.read_text()) for path in files) if isinstance(r, dict) and "cells" in r]
    about = {k: v for k, v in records[0].items() if k != "cells"} if records else {}
    return about, [cell for record in records for cell in record["cells"]]


def _shown(cell: TrainedCell, store: Store, tables: list[dict]) -> Cell:
    """The line of the table. Whether its data are those of the published numbers is known to the command that made the table."""
    fingerprint = cell.config["data"]["fingerprint"]
    told = [c["other_data"] for c in tables if (c["dataset"], c.get("data")) == (cell.dataset, fingerprint)]
    seconds = sum((store.run(stack).result or {}).get("seconds", 0.0) for stack in cell.config["stacks"])
    return cell_of(cell.result, seconds, told[0] if told else cell.dataset in OTHER_DATA, fingerprint)
