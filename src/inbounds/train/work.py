"""One unit of work, from wherever it stopped to its result: what every executor calls."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol as Interface

import torch
from torch import Tensor

from .files import publish_json
from .store import Run, Store

REPORT_SECONDS = 0.5


class Job(Interface):
    """Something that advances epoch by epoch and can be put away after any of them."""

    epoch: int
    epochs: int

    @property
    def done(self) -> bool: ...
    def advance(self) -> dict | None: ...
    def state(self) -> dict[str, Tensor]: ...
    def restore(self, state: dict[str, Tensor]) -> None: ...
    def finish(self) -> tuple[dict, dict[str, Tensor]]: ...


@dataclass(frozen=True)
class Unit:
    """A JSON config, whose digest is the run's name; the configs it needs done first; how it is shown; a guess of its seconds."""

    config: dict
    needs: tuple[dict, ...] = ()
    title: str = ""
    cost: float = 1.0


Open = Callable[[dict, Store], Job]
Report = Callable[[dict], None]


def warn(event: dict) -> None:
    """A report that shows notes, sentences about damaged files, as warnings, and passes progress over."""
    if "note" in event:
        warnings.warn(event["note"], stacklevel=4)


def work(config: dict, store: Store, open_job: Open, report: Report = warn) -> None:
    """Run or resume the config to its end; raises Busy if another process is at it.

    With one thread: results do not depend on who ran it. Damaged files of the run are set aside and reported as notes.
    """
    torch.set_num_threads(1)
    run = store.run(config)
    if run.whole:
        return
    with run.lock():
        for note in run.mend():
            report({"note": note})
        if not run.done:
            run.tidy()
            publish_json(run.folder / "config.json", config)
            _run(run, lambda: open_job(config, store), report, store.pause)


def _opened(run: Run, open_job: Callable[[], Job], report: Report) -> tuple[Job, float, int]:
    """The job where its checkpoint left it, else at its start; the seconds it took and the size of its metrics until there."""
    job, saved = open_job(), run.checkpoint()
    if saved is None:
        return job, 0.0, 0
    try:
        job.restore(saved[0])
        return job, float(saved[1]["seconds"]), int(saved[1]["metrics"])
    except (KeyError, IndexError, RuntimeError, TypeError, ValueError) as error:  # whole, but not of this job
        report({"note": run.forget_checkpoint(f"{type(error).__name__}: {error}")})
    return open_job(), 0.0, 0


def _run(run: Run, open_job: Callable[[], Job], report: Report, pause: float) -> None:
    job, seconds, metrics = _opened(run, open_job, report)
    resumed_from, latest = job.epoch, {}
    run.cut_metrics(metrics)
    began, kept, told = time.monotonic(), time.monotonic(), 0.0
    while not job.done:
        line = job.advance()
        now = time.monotonic()
        if line is not None:
            run.add_metrics(line)
            latest = {"line": line}
        if now - told > REPORT_SECONDS:
            report({"epoch": job.epoch, "epochs": job.epochs, **latest})
            told = now
        if now - kept > pause:
            run.save_checkpoint(job.state(), {"seconds": seconds + now - began, "resumed_from": resumed_from})
            kept = now
    result, weights = job.finish()
    run.finish({**result, "seconds": seconds + time.monotonic() - began, "resumed_from": resumed_from}, weights)
