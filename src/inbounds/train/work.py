"""One unit of work, from wherever it stopped to its result: what every executor calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol as Interface

import torch
from torch import Tensor

from .store import Run, Store, publish, publish_json, publish_tensors, read_tensors

REPORT_SECONDS = 0.5
LAST = "last.safetensors"


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
            _run(run, open_job(config, store), report, store.pause, shorter(config, store))


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


def _run(run: Run, job: Job, report: Report, pause: float, before: Run | None) -> None:
    saved = run.checkpoint()
    if saved is None and before is not None:
        saved = read_tensors(before.folder / LAST)
        publish(run.folder / "metrics.jsonl", (before.folder / "metrics.jsonl").read_bytes())
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


def commit() -> str | None:
    """The commit of the checkout that this package runs from; None outside of one."""
    import subprocess

    try:
        where = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
        done = subprocess.run(where, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
