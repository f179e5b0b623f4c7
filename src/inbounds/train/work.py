"""One unit of work, from wherever it stopped to its result: what every executor calls."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol as Interface

import torch
from torch import Tensor

from ..records import commit
from .files import Damaged, publish, publish_json, publish_tensors, read_tensors
from .store import Run, Store

REPORT_SECONDS = 0.5  # between two reports of a run
LAST = "last.safetensors"


class Job(Interface):
    """Something that advances epoch by epoch and can be put away after any of them."""

    @property
    def epoch(self) -> int:
        """The number of epochs that are done."""
        ...

    @property
    def epochs(self) -> int:
        """The number of epochs at most."""
        ...

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do but to finish."""
        ...

    def advance(self) -> dict | None:
        """Do one epoch; what it measured, if it measured something, becomes a line of the run's metrics."""
        ...

    def state(self) -> dict[str, Tensor]:
        """All that `restore` needs to go on from here with the same bits."""
        ...

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` gave."""
        ...

    def finish(self) -> tuple[dict, dict[str, Tensor]]:
        """The result, plain JSON, and the weights."""
        ...


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
            _run(run, lambda: open_job(config, store), report, store.pause, shorter(config, store))


def shorter(config: dict, store: Store) -> Run | None:
    """A finished run of the same training with fewer epochs, the longest there is: the new one goes on from its end.

    Its last evaluation must be one that the longer run makes, too.
    """
    protocol = config.get("protocol")
    if protocol is None:
        return None
    every, best = protocol["every"], None
    for epochs in range(protocol["epochs"] - protocol["epochs"] % every, 0, -every):
        if epochs < protocol["epochs"]:
            run = store.run({**config, "protocol": {**protocol, "epochs": epochs}})
            if run.done and (run.folder / LAST).exists():
                best = run
                break
    return best


def _end_of(before: Run | None, run: Run) -> tuple[dict[str, Tensor], dict] | None:
    """Where a shorter training stood at its end, with its metrics copied into the run; None if there is none that is sound."""
    if before is None:
        return None
    try:
        saved = read_tensors(before.folder / LAST)
    except Damaged:
        return None
    publish(run.folder / "metrics.jsonl", (before.folder / "metrics.jsonl").read_bytes())
    return saved


def _opened(run: Run, open_job: Callable[[], Job], report: Report, before: Run | None) -> tuple[Job, float, int]:
    """The job where its checkpoint, or a shorter run, left it, else at its start; its seconds and size of metrics until there."""
    job, saved = open_job(), run.checkpoint() or _end_of(before, run)
    if saved is None:
        return job, 0.0, 0
    try:
        job.restore(saved[0])
        return job, float(saved[1]["seconds"]), int(saved[1]["metrics"])
    except (KeyError, IndexError, RuntimeError, TypeError, ValueError) as error:  # whole, but not of this job
        report({"note": run.forget_checkpoint(f"{type(error).__name__}: {error}")})
    return open_job(), 0.0, 0


def _run(run: Run, open_job: Callable[[], Job], report: Report, pause: float, before: Run | None) -> None:
    job, seconds, metrics = _opened(run, open_job, report, before)
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
    spent = {"seconds": seconds + time.monotonic() - began, "resumed_from": resumed_from}
    if getattr(job, "extensible", False):
        lines = run.folder / "metrics.jsonl"
        size = lines.stat().st_size if lines.exists() else 0
        publish_tensors(run.folder / LAST, job.state(), {**spent, "metrics": size})
    run.finish({**result, **spent, "made_by": made_by()}, weights)


def made_by() -> dict:
    """Versions of what computed a result."""
    import platform

    from .. import __version__

    return {"inbounds": __version__, "commit": commit(), "torch": torch.__version__, "python": platform.python_version()}
