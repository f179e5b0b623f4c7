"""Files that are there whole or not at all, and tensors with a JSON header and a checksum.

A file of tensors that was cut short, or in which a bit has turned, is refused. Other programs read it as the plain safetensors
that it is. Files of earlier versions have no checksum and are read without.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from pathlib import Path
from typing import Any

from torch import Tensor

from .extras import needed_for

BLANK = "0" * 64  # in the place of the checksum while it is taken


def seal(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """The bytes of a safetensors file that carries a checksum of itself."""
    with needed_for("Keeping tensors in files"):
        from safetensors.torch import save

    data = save({name: t.detach().contiguous() for name, t in tensors.items()}, {**metadata, "sha256": BLANK})
    return data.replace(BLANK.encode(), hashlib.sha256(data).hexdigest().encode(), 1)


def unseal(data: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors, in memory of their own, and metadata. Raises ValueError, which says what is wrong."""
    with needed_for("Keeping tensors in files"):
        from safetensors.torch import load

    try:
        tensors = load(data)
        metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__") or {}
    except Exception as error:  # whatever it is, the bytes are to blame
        raise ValueError(f"its {len(data)} bytes cannot be read, {type(error).__name__}: {error}") from error
    told = metadata.pop("sha256", None)
    if told is not None and told != hashlib.sha256(data.replace(told.encode(), BLANK.encode(), 1)).hexdigest():
        raise ValueError("its checksum does not fit")
    return tensors, metadata


def seal_with_header(tensors: dict[str, Tensor], header: Any, entry: str) -> bytes:
    """The bytes of a safetensors file with a checksum, and with plain JSON under a name of its metadata."""
    return seal(tensors, {entry: json.dumps(header)})


def unseal_with_header(data: bytes, entry: str) -> tuple[dict[str, Tensor], Any]:
    """Tensors and header. Raises ValueError, which says what is wrong; the header is None if there is none of that name."""
    tensors, metadata = unseal(data)
    try:
        return tensors, json.loads(metadata.get(entry, "null"))
    except RecursionError as error:
        raise ValueError(f"its header cannot be read, {error}") from None


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that it is either the old one or the whole new one, also after a power cut."""
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with open(fresh, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
