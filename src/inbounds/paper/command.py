"""`inbounds table`: train what is missing, print the table."""

from __future__ import annotations

import datetime
import math
import os
import socket
import sys
from collections.abc import Collection
from pathlib import Path

import torch

from ..extras import needed_for
from ..train.executors import Event, Executor, Here, Local, Ray, WorkFailed, execute
from ..train.files import StoreError, publish
from ..train.progress import Progress, relative, time_text
from ..train.store import Store, key
from ..train.work import Unit
from .datasets import DATASETS, export_reference, prepare
from .estimate import report
from .jobs import open_job
from .names import named
from .presets import PRESETS, Preset
from .published import OTHER_DATA
from .rows import ROWS
from .table import cells, csv_text, groups, json_text, markdown, show
from .units import UNDEFINED, units

TABLE_ROWS = tuple(row.name for row in ROWS.values() if not row.asked)


class Refused(Exception):
    """Bad request; the message says what was asked, what arrived, what to write."""


def run(args) -> int:
    """`inbounds table`. Returns the exit code: 2 for a bad request, 1 if something failed."""
    try:
        return table(args)
    except (Refused, StoreError, ValueError) as error:
        print(f"inbounds table: {error}", file=sys.stderr)
        return 2 if isinstance(error, Refused | ValueError) else 1
    except KeyboardInterrupt:
        print("\nStopped. Nothing finished is lost: the same command goes on from here.", file=sys.stderr)
        return 130


def table(args) -> int:
    """Make the data, train what is missing, publish the table."""
    with needed_for("inbounds table"):  # what the lab extra brings is missed now, not after an hour
        import numpy  # noqa: F401
        import rich  # noqa: F401
        import safetensors  # noqa: F401

    torch.set_num_threads(1)
    datasets, rows = chosen("--datasets", args.datasets, DATASETS), chosen("--models", args.models, ROWS, TABLE_ROWS)
    preset = named(args.preset, PRESETS).changed(args.seeds, depths(args.depths), args.epochs, decays(args.decays))
    own = user_files(args, datasets)
    reachable(args)
    if all((d, r) in UNDEFINED for d in datasets for r in rows):
        raise Refused("There is no cell to show: Exp rows are undefined on the disk, which has a boundary.")
    store = Store(args.out or f"runs/{preset.name}", args.checkpoint, shipped_runs(args, preset))
    store.prepare()
    references = []
    for name in datasets:
        print(f"data: {name}" + (f" from {own[name]}" if name in own else ""), flush=True)
        references.append(prepare(name, store, preset.large, args.data, args.chains))
        if args.export and name not in own:
            export_reference(references[-1], store, Path(args.export))
    todo = units(preset, references, rows, store)
    missing = [u for u in todo if not store.run(u.config).done]
    if missing and not args.finished and not agreed(args, preset, missing, store):
        return 0
    failure = train(args, todo, store) if missing and not args.finished else None
    other = {d for d in datasets if d in OTHER_DATA or d in own}
    if args.published_data:
        other -= {d for d, source in own.items() if source == args.data}
    publish_table(args, preset, references, rows, store, other)
    if args.finished:
        print(
            "\n".join(f"not finished: {u.title}, {progress_of(u.config, store)}" for u in missing if u.config["kind"] == "stack")
        )
    if failure:
        print(f"\nMissing from the table: {failure}", file=sys.stderr)
    return 1 if failure else 0


SHIPPED = "results/paper"


def shipped_runs(args, preset: Preset) -> str | None:
    """A folder of finished runs: the one asked for; for the paper preset the repository's own, where the command runs in one."""
    if args.shipped is not None and not Path(args.shipped).is_dir() and args.shipped != args.export:
        raise Refused(f"--shipped asked for a folder of finished runs, got {args.shipped!r}, which is not one.")
    return args.shipped or (SHIPPED if preset.long and Path(SHIPPED).is_dir() else None)


def train(args, todo: list[Unit], store: Store) -> WorkFailed | None:
    """Do what is missing; a unit that fails costs its cell, not the table."""
    executor = connect(args, store)
    try:
        with Progress(todo, store, executor.workers) as progress:

            def watch(event: Event, unit: Unit) -> None:
                progress(event, unit)
                if event.kind == "done" and args.export:
                    export(unit, store, Path(args.export))

            execute(todo, store, executor, watch)
    except WorkFailed as failure:
        return failure
    return None


EXPORTED = ("config.json", "weights.safetensors", "metrics.jsonl", "result.json")  # the last one last: it means done


def export(unit: Unit, store: Store, folder: Path) -> None:
    """Copy a finished run to where it is shipped from, under a name that says what it is."""
    run, title = store.run(unit.config), "-".join(unit.title.replace(",", "").split())
    for name in EXPORTED:
        if (run.folder / name).exists():
            publish(folder / f"{title}-{key(unit.config)}" / name, (run.folder / name).read_bytes())


def publish_table(args, preset: Preset, references: list[dict], rows, store: Store, other: set[str]) -> None:
    """Write the table as JSON, CSV and Markdown, and print it."""
    found = cells(preset, references, rows, store, other)
    about = {
        "command": args.line,
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, torch {torch.__version__.split('+')[0]}",
        "preset": preset.name,
    }
    for name, text in {
        "table.json": json_text(found, about),
        "table.csv": csv_text(found),
        "table.md": markdown(found, preset),
    }.items():
        publish(store.folder / name, text.encode())
    for name, members in groups(found).items() if args.results else ():
        publish(Path(args.results) / f"{name}.json", json_text(members, about).encode())
    show(found, preset)
    print(f"\nWritten to {relative(store.folder.resolve())}: table.md, table.csv, table.json; the runs are in runs/.")


def progress_of(config: dict, store: Store) -> str:
    """How far an unfinished stack came."""
    saved, whole = store.run(config).checkpoint(), config["protocol"]["epochs"]
    return f"{int(saved[0]['epoch']) if saved else 0:,} of {whole:,} epochs"


def connect(args, store: Store) -> Executor:
    """Where the work is done: processes of this machine, a Ray cluster, or this process."""
    if args.executor == "ray":
        return Ray(store, open_job, args.address)
    if args.executor == "here":
        return Here(store, open_job)
    return Local(store, open_job, args.workers)


def reachable(args) -> None:
    """Refuse an address where nobody listens: Ray itself would try for minutes."""
    if args.workers and args.executor == "here":
        raise Refused(
            f"--workers {args.workers} asked for processes, got --executor here, which starts none. Leave one of them out."
        )
    if args.address and args.executor != "ray":
        raise Refused(f"--address {args.address} asked for a Ray cluster, got --executor {args.executor}. Write --executor ray.")
    host, colon, port = (args.address or "").rpartition(":")
    if not colon or "//" in host or not port.isdigit():
        return  # "auto", "local" and ray:// are Ray's to understand
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise Refused(f"--address {args.address} asked for a Ray cluster; {error}. Start one with: ray start --head") from error


def agreed(args, preset: Preset, missing: list[Unit], store: Store) -> bool:
    """The long preset says how long it will take and waits for --yes."""
    if not preset.long:
        return True
    if args.yes:
        guess = sum(u.cost for u in missing) / (args.workers or os.cpu_count() or 1)
        print(
            f"Estimated time: {time_text(guess)}, a guess; without --yes it is measured. It can be stopped at any time.",
            flush=True,
        )
        return True
    print("\n".join(report(missing, store, args.workers or os.cpu_count() or 1)))
    print("Add --yes to start.")
    return False


def chosen(option: str, text: str | None, known: Collection[str], default: tuple[str, ...] | None = None) -> list[str]:
    """The names that an option asks for, all of them known. Without text it is the default, or all."""
    names = [t.strip() for t in text.split(",") if t.strip()] if text else list(default or known)
    unknown = [n for n in names if n not in known]
    if unknown or not names:
        raise Refused(f"{option} asked for names among {','.join(known)}, got {text!r}.")
    return list(dict.fromkeys(names))


def depths(text: str | None) -> tuple[int, ...] | None:
    """The depths that --depths asks for."""
    if text is None:
        return None
    try:
        numbers = tuple(int(t) for t in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise Refused(f"--depths asked for whole numbers >= 1 such as 4,6,8, got {text!r}.")
    return tuple(dict.fromkeys(numbers))


def decays(text: str | None) -> tuple[float, ...] | None:
    """The weight decays that --decays asks for."""
    if text is None:
        return None
    try:
        numbers = tuple(float(t) for t in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or not all(0 <= n < math.inf for n in numbers):
        raise Refused(f"--decays asked for numbers >= 0 such as 0,1e-4, got {text!r}.")
    return tuple(dict.fromkeys(numbers))


def user_files(args, datasets: list[str]) -> dict[str, str]:
    """Where each dataset that is the user's own comes from."""
    found = {}
    if args.chains is not None:
        if not Path(args.chains).exists():
            raise Refused(
                f"--chains asked for a folder of PDB, mmCIF or ProteinNet files, got {args.chains!r}, which is not there."
            )
        if "protein" not in datasets:
            raise Refused("--chains asked for protein among the datasets. Write --datasets protein.")
        found["protein"] = args.chains
    if args.data is None:
        if args.published_data:
            raise Refused("--published-data says whose files --data has. Write --data DIR, too.")
        return found
    if not Path(args.data).is_dir():
        raise Refused(f"--data asked for a folder with files such as sphere.npz, got {args.data!r}, which is not a folder.")
    files = {d: args.data for d in datasets if (Path(args.data) / f"{d}.npz").exists()}
    if not files:
        raise Refused(f"--data {args.data} asked for at least one of {', '.join(f'{d}.npz' for d in datasets)}; there is none.")
    return found | files
