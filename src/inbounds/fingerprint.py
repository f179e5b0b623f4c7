"""A note about a set's constants in the metadata of a state_dict, so that weights which meet another set do not do so silently.

Constants (bounds, centres, radii) are no entries of a state_dict: those would break strict loading, and averages and files of its
tensors. The note travels where torch keeps the versions of modules: through `load_state_dict`, `torch.save`, `torch.load` (with
`weights_only=True`, too) and `copy.deepcopy`. It is lost where only the tensors are kept, as in safetensors files; then, and with
a state_dict of an earlier version, nothing is compared and nothing is said.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .kernels.derivative import eager

KEY = "inbounds"
FEW = 8  # constants of so many numbers are written out


def raw(t: Tensor) -> bytes:
    """The numbers of a tensor as they are in memory; numpy is not needed."""
    t = t.detach().cpu().contiguous()
    return ctypes.string_at(t.data_ptr(), t.nbytes) if t.numel() else b""


def keep_note(M: nn.Module, state_dict: Any, prefix: str) -> None:
    """Put the note of M into the metadata of a state_dict that has some."""
    note = _note(M)
    if note is not None and hasattr(state_dict, "_metadata"):
        state_dict._metadata[prefix[:-1]][KEY] = note


def compare_note(M: nn.Module, prefix: str, metadata: dict[str, Any]) -> None:
    """Warn if the metadata of a state_dict have the note of another set."""
    was, now = metadata.get(KEY), _note(M)
    if not isinstance(was, dict) or now is None or was == now:
        return
    names = sorted(was.keys() | now.keys())
    told = "; ".join(f"{name} was {was.get(name)}, is {now.get(name)}" for name in names if was.get(name) != now.get(name))
    warnings.warn(
        f"load_state_dict: these weights were kept with another set at {prefix[:-1] or 'the top'} ({told}). The set stays {M!r}. "
        f"Build the set that the weights were trained with, or ignore this warning if the change is meant.",
        stacklevel=_caller(),
    )


def _caller() -> int:
    """The stacklevel of whoever called load_state_dict, which calls itself for every level of a model."""
    inside, frame, level = (str(Path(__file__).parent), nn.modules.module.__file__), sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame, level = frame.f_back, level + 1
    return level


def _note(M: nn.Module) -> dict[str, str] | None:
    """Kind, shape and constants, to float32 precision; None where values cannot be looked at."""
    fixed = {name: M._buffers[name] for name in sorted(M._non_persistent_buffers_set)}
    constants = {name: t for name, t in fixed.items() if t is not None}
    plain = all(type(t) is Tensor and not t.is_meta for t in constants.values())
    if not plain or not eager() or torch._C._len_torch_dispatch_stack():
        return None
    shape: Any = M.shape
    return {"kind": type(M).__name__, "shape": str(tuple(shape)), **{name: _text(t) for name, t in constants.items()}}


def _text(t: Tensor) -> str:
    t = t.detach().float() + 0.0  # 0 for -0
    if t.numel() <= FEW:
        return str(t.tolist())
    return f"<{'x'.join(map(str, t.shape))}> {hashlib.sha256(raw(t)).hexdigest()[:12]}"
