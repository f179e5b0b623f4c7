"""Runs on disk: content-addressed folders whose files appear whole or not at all.

store/runs/<key>/config.json              what is run; key = digest of it
                 checkpoint.safetensors   everything needed to go on, replaced by one rename
                 metrics.jsonl            one line per evaluation; lines after the checkpoint are cut off on resume
                 weights.safetensors      the finished model(s)
                 result.json              written last: its presence means done
                 last.safetensors         where a finished training stood, so that a longer one can go on from there
                 lock                     held (flock) by the process at work; the kernel frees it when that process dies
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

PROTOCOL = 1  # of training and file formats: a change makes every run a new one


class StoreError(OSError):
    """The disk refused; the message says what to do."""


class Busy(Exception):
    """Another process is at work on this run."""


def key(config: dict) -> str:
    """Digest of a JSON config and the protocol version."""
    text = json.dumps({"protocol": PROTOCOL, **config}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@contextmanager
def disk(path: Path) -> Iterator[None]:
    """Errors of the disk with what is lost (nothing finished) and what to do."""
    advice = {
        errno.ENOSPC: "The disk is full: free some space",
        errno.EDQUOT: "The disk quota is used up: free some space",
        errno.EFBIG: "Files may not grow that large here (ulimit -f): raise the limit",
        errno.EROFS: "The file system is read-only: choose another folder with --out",
        errno.EACCES: "No permission to write there: choose another folder with --out",
        errno.EPERM: "No permission to write there: choose another folder with --out",
        errno.ENOTDIR: "Part of that path is a file: choose another folder with --out",
        errno.EEXIST: "Part of that path is a file: choose another folder with --out",
    }
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        fix = advice.get(error.errno or 0, "Choose another folder with --out")
        what = f"Cannot write {path} ({error.strerror}). {fix} and run the same command; finished runs are kept."
        raise StoreError(what) from error


def publish(path: Path, data: bytes) -> None:
    """Write a file so that it is either the old one or the whole new one, also after a power cut."""
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            with open(fresh, "wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
            os.replace(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)


def publish_json(path: Path, value) -> None:
    publish(path, (json.dumps(strict(value), indent=1, sort_keys=True) + "\n").encode())


def strict(value):
    """With None for NaN and infinities, which JSON does not know."""
    if isinstance(value, dict):
        return {k: strict(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [strict(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def publish_tensors(path: Path, tensors: dict[str, Tensor], header: dict | None = None) -> None:
    """safetensors with a JSON header."""
    from safetensors.torch import save

    whole = {name: t.detach().contiguous() for name, t in tensors.items()}
    publish(path, save(whole, {"header": json.dumps(header or {})}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict]:
    """Tensors and JSON header."""
    from safetensors import safe_open

    with safe_open(path, "pt") as f:
        tensors = {name: f.get_tensor(name) for name in f.keys()}
        return tensors, json.loads((f.metadata() or {}).get("header", "{}"))


class Run:
    """One folder of the store."""

    def __init__(self, folder: Path):
        self.folder = folder

    @property
    def result(self) -> dict | None:
        try:
            return json.loads((self.folder / "result.json").read_text())
        except FileNotFoundError:
            return None

    @property
    def done(self) -> bool:
        return (self.folder / "result.json").exists()

    def weights(self) -> dict[str, Tensor]:
        return read_tensors(self.folder / "weights.safetensors")[0]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Exclusive among processes; raises Busy at once if another has it."""
        with disk(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            f = open(self.folder / "lock", "a")
        try:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(str(self.folder)) from None
            yield
        finally:
            f.close()

    def checkpoint(self) -> tuple[dict[str, Tensor], dict] | None:
        path = self.folder / "checkpoint.safetensors"
        return read_tensors(path) if path.exists() else None

    def save_checkpoint(self, state: dict[str, Tensor], header: dict) -> None:
        lines = self.folder / "metrics.jsonl"
        size = lines.stat().st_size if lines.exists() else 0
        publish_tensors(self.folder / "checkpoint.safetensors", state, {**header, "metrics": size})

    def cut_metrics(self, size: int) -> None:
        """Forget lines written after the checkpoint."""
        lines = self.folder / "metrics.jsonl"
        if lines.exists():
            with disk(lines):
                os.truncate(lines, min(size, lines.stat().st_size))

    def tidy(self) -> None:
        """Remove what a killed process was writing; only while holding the lock."""
        for rest in self.folder.glob(".*.tmp"):
            rest.unlink(missing_ok=True)

    def add_metrics(self, line: dict) -> None:
        path = self.folder / "metrics.jsonl"
        with disk(path), open(path, "a") as f:
            f.write(json.dumps(strict(line)) + "\n")

    def finish(self, result: dict, weights: dict[str, Tensor]) -> None:
        publish_tensors(self.folder / "weights.safetensors", weights)
        publish_json(self.folder / "result.json", result)
        (self.folder / "checkpoint.safetensors").unlink(missing_ok=True)


class Store:
    """A folder of runs. `pause`: seconds of work between checkpoints.

    shipped: a folder of finished runs, NAME-KEY each, that were made elsewhere; they are read, never written or run again.
    """

    def __init__(self, folder: str | Path, pause: float = 20.0, shipped: str | Path | None = None):
        self.folder, self.pause = Path(folder), pause
        self.shipped = None if shipped is None else Path(shipped)

    def run(self, config: dict) -> Run:
        name = key(config)
        own = Run(self.folder / "runs" / name)
        if self.shipped is not None and not own.done:
            for folder in self.shipped.glob(f"*-{name}"):
                return Run(folder)
        return own

    def configs(self) -> list[dict]:
        """Of all runs that are here, begun or done, in the order of their keys."""
        here = list(self.folder.glob("runs/*/config.json"))
        here += [] if self.shipped is None else list(self.shipped.glob("*/config.json"))
        found = {p.parent.name[-20:]: json.loads(p.read_text()) for p in here}
        return [found[k] for k in sorted(found)]

    def prepare(self) -> None:
        """Fail now, with a clear message, rather than after an hour."""
        probe = self.folder / f".probe.{os.getpid()}"
        publish(probe, b"x")
        probe.unlink(missing_ok=True)
