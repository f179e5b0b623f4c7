"""Safetensors with a checksum of themselves: a file that was cut short, or in which a bit has turned, is refused.

Other programs read them as the plain safetensors that they are. Files of earlier versions have no checksum and are read without.
"""

from __future__ import annotations

import hashlib
import json

from torch import Tensor

from .extras import needed_for

BLANK = "0" * 64  # in the place of the checksum while it is taken


def seal(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """The bytes of a file."""
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
