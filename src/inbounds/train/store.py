"""Runs on disk: content-addressed folders whose files appear whole or not at all.

store/runs/<key>/config.json              what is run; key = digest of it
                 checkpoint.safetensors   everything needed to go on, replaced by one rename
                 metrics.jsonl            one line per evaluation; lines after the checkpoint are cut off on resume
                 weights.safetensors      the finished model(s), with a copy of the result
                 result.json              written last: its presence means done
                 last.safetensors         where a finished training stood, so that a longer one can go on from there
                 lock                     held by the process at work; the system frees it when that process dies
                 *.aside                  damaged files, set aside by `Run.mend`; nothing reads them
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from .files import Damaged, disk, publish, publish_record, publish_tensors, read_record, read_tensors, set_aside, strict
from .lock import acquire

PROTOCOL = 1  # of training and file formats: a change makes every run a new one


def key(config: dict) -> str:
    """Digest of a JSON config and the protocol version."""
    text = json.dumps({"protocol": PROTOCOL, **config}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


class Run:
    """One folder of the store."""

    def __init__(self, folder: Path):
        self.folder = folder

    @property
    def result(self) -> dict | None:
        """None without a file, and for a damaged one: such a run is not done, and `mend` takes care of it."""
        try:
            return read_record(self.folder / "result.json")
        except (FileNotFoundError, Damaged):
            return None

    @property
    def done(self) -> bool:
        """Whether there is a result."""
        return self.result is not None

    @property
    def whole(self) -> bool:
        """Done, with weights that can be read."""
        return self.done and self._weights() is not None

    def weights(self) -> dict[str, Tensor]:
        """Raises Damaged; `mend` takes care of it."""
        return read_tensors(self.folder / "weights.safetensors")[0]

    def _weights(self) -> tuple[dict[str, Tensor], dict] | None:
        try:
            return read_tensors(self.folder / "weights.safetensors")
        except (FileNotFoundError, Damaged):
            return None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Exclusive among processes; raises Busy at once if another has it."""
        with disk(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            release = acquire(self.folder / "lock")
        try:
            yield
        finally:
            release()

    def mend(self) -> list[str]:
        """Set damaged files aside and say so, a sentence each; afterwards the run is whole, or not done and ready to go on.

        Only while holding the lock. A lost result is read from the header of the weights, which has a copy of it. A result
        without weights is of no use to the runs that need it: it goes aside, too, and the run is done again.
        """
        kept, said = self._weights(), []
        if self.done and kept is None:
            said.append(self._aside("result.json", "the weights beside it are lost", damaged=False))
        elif not self.done and (self.folder / "result.json").exists():
            copy = kept[1].get("result") if kept else None
            said.append(self._aside("result.json", "weights.safetensors has a copy of it" if copy else "this run is done again"))
            if copy:
                publish_record(self.folder / "result.json", copy)
        if kept is None and (said or (self.folder / "weights.safetensors").exists()):
            said.append(self._aside("weights.safetensors", "this run is done again"))
        if not self.done:
            try:
                self.checkpoint()
            except Damaged:
                said.append(self._aside("checkpoint.safetensors", "this run starts again"))
        return said

    def _aside(self, name: str, then: str, damaged: bool = True) -> str:
        path = self.folder / name
        if not path.exists():
            return f"{path} is missing: {then}."
        aside = set_aside(path).name
        return f"{path} {'is damaged and ' if damaged else ''}was set aside as {aside}: {then}."

    def checkpoint(self) -> tuple[dict[str, Tensor], dict] | None:
        """None if there is none. Raises Damaged."""
        path = self.folder / "checkpoint.safetensors"
        return read_tensors(path) if path.exists() else None

    def forget_checkpoint(self, reason: str) -> str:
        """Set aside a checkpoint that can be read but does not belong to this run; says so."""
        path = self.folder / "checkpoint.safetensors"
        return f"{path} does not fit ({reason}) and was set aside as {set_aside(path).name}: this run starts again."

    def save_checkpoint(self, state: dict[str, Tensor], header: dict) -> None:
        """Publish where the run stands, and how long its metrics are."""
        lines = self.folder / "metrics.jsonl"
        size = lines.stat().st_size if lines.exists() else 0
        publish_tensors(self.folder / "checkpoint.safetensors", state, {**header, "metrics": size})

    def cut_metrics(self, size: int) -> None:
        """Forget lines written after the checkpoint, and a last line that is not whole."""
        lines = self.folder / "metrics.jsonl"
        if lines.exists():
            with disk(lines):
                os.truncate(lines, lines.read_bytes()[:size].rfind(b"\n") + 1)

    def tidy(self) -> None:
        """Remove what a killed process was writing; only while holding the lock."""
        for rest in self.folder.glob(".*.tmp"):
            rest.unlink(missing_ok=True)

    def add_metrics(self, line: dict) -> None:
        """Append a line to the run's metrics."""
        path = self.folder / "metrics.jsonl"
        with disk(path), open(path, "a") as f:
            f.write(json.dumps(strict(line)) + "\n")

    def finish(self, result: dict, weights: dict[str, Tensor]) -> None:
        """Publish weights and result, and drop the checkpoint."""
        publish_tensors(self.folder / "weights.safetensors", weights, {"result": strict(result)})
        publish_record(self.folder / "result.json", result)
        (self.folder / "checkpoint.safetensors").unlink(missing_ok=True)


class Store:
    """A folder of runs. `pause`: seconds of work between checkpoints.

    shipped: a folder of finished runs, NAME-KEY each, that were made elsewhere; they are read, never written or run again.
    """

    def __init__(self, folder: str | Path, pause: float = 20.0, shipped: str | Path | None = None):
        self.folder, self.pause = Path(folder), pause
        self.shipped = None if shipped is None else Path(shipped)

    def run(self, config: dict) -> Run:
        """The run of a config: the store's own, or a finished one that is shipped."""
        name = key(config)
        own = Run(self.folder / "runs" / name)
        if self.shipped is not None and not own.done:
            for folder in self.shipped.glob(f"*-{name}"):
                return Run(folder)
        return own

    def configs(self) -> list[dict]:
        """The configs of all runs that are here, begun or done, in the order of their keys."""
        here = list(self.folder.glob("runs/*/config.json"))
        here += [] if self.shipped is None else list(self.shipped.glob("*/config.json"))
        found = {p.parent.name[-20:]: json.loads(p.read_text()) for p in here}
        return [found[k] for k in sorted(found)]

    def prepare(self) -> None:
        """Fail now, with a clear message, rather than after an hour."""
        probe = self.folder / f".probe.{os.getpid()}"
        publish(probe, b"x")
        probe.unlink(missing_ok=True)
