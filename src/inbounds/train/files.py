"""Files that appear whole or not at all, and that are known to be damaged if they are.

Tensors and records carry a checksum of their own: a file that is not what was written raises `Damaged`, which names it. Files of
earlier versions have no checksum and are read as they are.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from ..files import replace_file, seal_with_header, unseal_with_header


class StoreError(OSError):
    """The disk refused; the message says what to do."""


class Damaged(ValueError):
    """A file of the store is not what was written; the message names it."""

    def __init__(self, path: Path, reason: object):
        self.path, self.reason = path, str(reason).rstrip(".")
        super().__init__(f"{path} is damaged ({self.reason}). Run the same command again: it is set aside and made anew.")


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
    """`replace_file` in a folder that is made if it is missing. Raises StoreError, which says what to do."""
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)


def publish_json(path: Path, value: Any) -> None:
    """Write plain data as JSON, with null for NaN and infinities."""
    publish(path, (json.dumps(strict(value), indent=1, sort_keys=True) + "\n").encode())


def strict(value: Any) -> Any:
    """The value with None for NaN and infinities, which JSON does not know."""
    if isinstance(value, dict):
        return {k: strict(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [strict(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def publish_tensors(path: Path, tensors: dict[str, Tensor], header: dict | None = None) -> None:
    """safetensors with a JSON header and a checksum."""
    publish(path, seal_with_header(tensors, header or {}, "header"))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict]:
    """Tensors and JSON header; the file may be replaced afterwards. Raises Damaged."""
    try:
        tensors, header = unseal_with_header(path.read_bytes(), "header")
    except ValueError as error:
        raise Damaged(path, error) from error
    if header is None:
        raise Damaged(path, "it has no header of a run store")
    return tensors, header


def publish_record(path: Path, record: dict) -> None:
    """A JSON object with a checksum of the rest."""
    publish_json(path, {**record, "sha256": _digest(record)})


def read_record(path: Path) -> dict:
    """What publish_record wrote. Raises Damaged."""
    data = path.read_bytes()
    try:
        record = json.loads(data)
        told = record.pop("sha256", None)
    except Exception as error:  # whatever it is, the file is to blame
        raise Damaged(path, f"{len(data)} bytes that are not a JSON object, {type(error).__name__}: {error}") from error
    if told is not None and told != _digest(record):
        raise Damaged(path, "its checksum does not fit")
    return record


def _digest(record: dict) -> str:
    return hashlib.sha256(json.dumps(strict(record), sort_keys=True).encode()).hexdigest()


def aside(path: Path) -> Path:
    """A name beside the path that nothing reads and nothing has."""
    names = (path.with_name(f"{path.name}.aside{n if n > 1 else ''}") for n in itertools.count(1))
    return next(name for name in names if not name.exists())


def set_aside(path: Path) -> Path:
    """Rename a file so that nothing reads it any more; returns its new name."""
    with disk(path):
        return path.rename(aside(path))
