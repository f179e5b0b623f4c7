"""A user's own data: one .npz per dataset with X_train, Y_train, X_val, Y_val, X_test, Y_test. Never pickle."""

from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path

import torch
from torch import Tensor

from ..core import ConstraintSet
from ..extras import needed_for
from ..sets import SE
from .pairs import Pairs, ranges, unit_scale

SPLITS = ("train", "val", "test")
FAR = 0.1  # a row this far off the set is broken, not rounded
TOO_MANY = 0.05  # share of broken rows above which the file is not about this set


def load_npz(path: str | Path, name: str, M: ConstraintSet, tokens: bool = False) -> Pairs:
    """The pairs of a file: points of M, flat or in their shape, (N, tokens, ...) for flocks; projected once, broken rows dropped.

    Translations of SE(3) are divided by the standard deviation of X_train's.
    """
    path = Path(path)
    arrays = {a: _points(path, a, raw, M, tokens) for a, raw in _arrays(path).items()}
    kept, notes = {}, {"source": path.name}
    for split in SPLITS:
        x, y = arrays[f"X_{split}"], arrays[f"Y_{split}"]
        if x.shape != y.shape:
            raise ValueError(
                f"{path}: X_{split} and Y_{split} asked for the same shape, got {tuple(x.shape)} and {tuple(y.shape)}."
            )
        kept[split] = _sound(path, split, x, y, M, notes)
    groups = {s: tuple(kept[s][0].shape[1:]) for s in SPLITS}
    if len(set(groups.values())) > 1:
        raise ValueError(f"{path} asked for the same number of agents in every split, got points of {groups}.")
    splits = ranges({s: len(kept[s][0]) for s in SPLITS})
    x, y = (torch.cat([kept[s][i] for s in SPLITS]) for i in (0, 1))
    scale = unit_scale(M).double()
    if isinstance(M, SE):
        n = M.shape[0] - 1
        std = x[splits["train"], ..., :n, n].std()
        if not std > 0:
            raise ValueError(f"{path}: X_train asked for translations that differ, got the same in every row.")
        scale[:n, n] = std
    flat = tuple(range(1, x.dim()))
    moved = torch.cat([(M.project(p) - p).square().sum(flat).sqrt() for p in (x, y)])
    notes["projection"] = f"moved the points by {moved.mean():.1e} on average, {moved.max():.1e} at most"
    x, y = (M.project((M.project(p) / scale).float()) for p in (x, y))
    return Pairs(name, M, x, y, splits, scale.float(), notes)


def _arrays(path: Path) -> dict:
    wanted = [f"{a}_{s}" for s in SPLITS for a in "XY"]
    with _open(path) as file:
        missing = [a for a in wanted if a not in file]
        if missing:
            raise ValueError(f"{path} asked for arrays {', '.join(wanted)}; missing: {', '.join(missing)}; has {sorted(file)}.")
        return {a: _array(path, file, a) for a in wanted}


def _open(path: Path):
    with needed_for("load_npz"):
        import numpy as np

    try:
        file = np.load(path, allow_pickle=False)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}).") from error
    except (zipfile.BadZipFile, ValueError, EOFError):
        file = None
    if not isinstance(file, np.lib.npyio.NpzFile):
        raise ValueError(
            f"{path} asked for a .npz file, got something else. Write it with numpy.savez({path.name!r}, X_train=...)."
        )
    return file


def _array(path: Path, file, name: str):
    try:
        return file[name]
    except ValueError as error:
        raise ValueError(
            f"{path}: {name} asked for plain numbers, got an array of objects, which only pickle can read. "
            f"Save it with .astype('float64')."
        ) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise ValueError(f"{path}: {name} is damaged ({error}). Write the file again.") from error


def _points(path: Path, name: str, raw, M: ConstraintSet, tokens: bool) -> Tensor:
    """(N, [tokens], *M.shape) in float64."""
    if raw.dtype.kind not in "fiu":
        raise ValueError(f"{path}: {name} asked for real numbers, got {raw.dtype}.")
    x = torch.as_tensor(raw.astype("float64"))
    size, lead = math.prod(M.shape), 2 if tokens else 1
    if x.dim() == lead + 1 and x.shape[-1] == size:
        x = x.unflatten(-1, M.shape)
    if x.dim() != lead + len(M.shape) or x.shape[lead:] != M.shape or not x.numel():
        rows = "(N, agents" if tokens else "(N"
        raise ValueError(
            f"{path}: {name} asked for points of {M!r}, {rows}, {size}) or {rows}, {', '.join(map(str, M.shape))}), "
            f"got {raw.shape}."
        )
    bad = (~torch.isfinite(x.float())).nonzero()
    if len(bad):
        raise ValueError(
            f"{path}: {name} asked for finite float32 numbers; {len(bad)} are not, the first in row {int(bad[0, 0])}."
        )
    return x


def _sound(path: Path, split: str, x: Tensor, y: Tensor, M: ConstraintSet, notes: dict) -> tuple[Tensor, Tensor]:
    """Rows whose points are all near M."""
    near = torch.stack([(M.violation(p) < FAR).reshape(len(p), -1).all(1) for p in (x, y)]).all(0)
    lost = len(x) - int(near.sum())
    if lost > TOO_MANY * len(x):
        raise ValueError(
            f"{path}: X_{split}, Y_{split} asked for points of {M!r}; {lost} of {len(x)} rows are further than {FAR} from it."
        )
    if lost:
        notes[f"dropped in {split}"] = f"{lost} rows further than {FAR} from {M!r}"
    return x[near], y[near]
