"""`inbounds compare`: train what is missing, print one table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from ..extras import needed_for
from ..paper.command import Refused, chosen
from ..records import head
from ..train.executors import Executor, Here, Local, Ray, WorkFailed, execute
from ..train.files import StoreError, publish
from ..train.progress import Progress, relative
from ..train.store import Store
from ..train.work import Unit
from .drawing import draw
from .jobs import open_job, units
from .rows import AUTHORS, SCHEMES, TASKS, USUAL, Row, open_task, solved
from .table import Cell, beside, cells, csv_text, json_text, markdown


def run(args) -> int:
    """`inbounds compare`. Returns the exit code: 2 for a bad request, 1 if something failed."""
    try:
        return compare(args)
    except (Refused, StoreError) as error:
        print(f"inbounds compare: {error}", file=sys.stderr)
        return 2 if isinstance(error, Refused) else 1
    except KeyboardInterrupt:
        print("\nStopped. Nothing finished is lost: the same command goes on from here.", file=sys.stderr)
        return 130


def compare(args) -> int:
    """Solve, train what is missing, publish the table."""
    with needed_for("inbounds compare"):  # what the extras bring is missed now, not after an hour
        import clarabel  # noqa: F401
        import matplotlib  # noqa: F401
        import numpy  # noqa: F401
        import rich  # noqa: F401
        import safetensors  # noqa: F401

    torch.set_num_threads(1)
    tasks = chosen("--problems", args.problems, TASKS, USUAL)
    rows = [(SCHEMES | AUTHORS)[name] for name in chosen("--schemes", args.schemes, SCHEMES | AUTHORS, tuple(SCHEMES))]
    tests = solved(tasks, args.rows)
    for name, count in tests.items():
        most = len(open_task(name).part("test"))
        if count > most:
            raise Refused(f"--rows asked for at most {most} test instances, which is all there are of {name}, got {count}.")
    refused = misfits(tasks, rows)
    store = Store(args.out, args.checkpoint)
    store.prepare()
    todo = [u for u in units(tests, rows, args.seeds, args.steps) if (u.config["task"], u.config.get("scheme")) not in refused]
    missing = [u for u in todo if not store.run(u.config).done]
    failure = train(args, todo, store) if missing and not args.finished else None
    publish_table(args, store, cells(tests, rows, refused, args.seeds, args.steps, store))
    if failure:
        print(f"\nMissing from the table: {failure}", file=sys.stderr)
    return 1 if failure else 0


def misfits(tasks: list[str], rows: list[Row]) -> dict[tuple[str, str], str]:
    """(task, scheme) -> why the scheme does not fit, in its own words."""
    found = {}
    for name in tasks:
        for row in rows:
            try:
                row.build(open_task(name), 0)
            except (TypeError, ValueError) as error:  # ValueError: the gauge map on a set without bounds
                found[name, row.name] = str(error)
    return found


def train(args, todo: list[Unit], store: Store) -> WorkFailed | None:
    """Do what is missing; a unit that fails costs its cell, not the table."""
    executor = connect(args, store)
    try:
        with Progress(todo, store, executor.workers) as progress:
            execute(todo, store, executor, progress)
    except WorkFailed as failure:
        return failure
    return None


def connect(args, store: Store) -> Executor:
    """Where the work is done: processes of this machine, a Ray cluster, or this process."""
    if args.executor == "ray":
        return Ray(store, open_job, args.address)
    return Here(store, open_job) if args.executor == "here" else Local(store, open_job, args.workers)


def publish_table(args, store: Store, found: list[Cell]) -> None:
    """Write the table as JSON, CSV, Markdown and a picture, and print it."""
    about = head(args.line) | {"times": "CPU seconds of one thread"}
    for name, text in (
        ("compare.json", json_text(found, about)),
        ("compare.csv", csv_text(found)),
        ("compare.md", markdown(found)),
    ):
        publish(store.folder / name, text.encode())
    drawn(found, store.folder / "compare.png")
    for task in dict.fromkeys(c.task for c in found) if args.results else ():
        publish_task(task, [c for c in found if c.task == task], about, Path(args.results))
    print(markdown(found))
    print(f"Written to {relative(store.folder.resolve())}: compare.md, .csv, .json and .png; the runs are in runs/.")


def publish_task(task: str, mine: list[Cell], about: dict, folder: Path) -> None:
    """Write the table of one task beside the rows that are stored there; without new numbers only its picture is drawn anew."""
    file, new = folder / f"{task}.json", any(c.gap_mean is not None for c in mine)
    if file.exists():
        try:
            mine, about = beside(mine, about, json.loads(file.read_text()))
        except ValueError as error:
            raise Refused(f"--results {folder}: {error}") from None
    if new or not file.exists():
        publish(file, json_text(mine, about).encode())
    drawn(mine, folder / f"{task}.png")


def drawn(found: list[Cell], out: Path) -> None:
    """Draw the cells, if one of them has numbers."""
    if any(c.gap_mean is not None for c in found):
        draw(found, out)
