"""One unit of work, from wherever it stopped to its result: what every executor calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol as Interface

import torch
from torch import Tensor

from .store import Run, Store, publish_json

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


def work(config: dict, store: Store, open_job: Open, report: Report = lambda event: None) -> None:
    """Run or resume the config to its end; raises Busy if another process is at it.

    With one thread: results do not depend on who ran it.
    """
    torch.set_num_threads(1)
    run = store.run(config)
    if run.done:
        return
    with run.lock():
        if not run.done:
            run.tidy()
            publish_json(run.folder / "config.json", config)
            _run(run, open_job(config, store), report, store.pause)


def _run(run: Run, job: Job, report: Report, pause: float) -> None:
    saved = run.checkpoint()
    seconds, latest = 0.0, {}
    if saved:
        job.restore(saved[0])
        seconds = saved[1]["seconds"]
    resumed_from = job.epoch
    run.cut_metrics(saved[1]["metrics"] if saved else 0)
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
