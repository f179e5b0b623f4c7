"""`inbounds learn` and `inbounds project`: sets from files of samples, points through them."""

from __future__ import annotations

import io
import math
import sys
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch

from ..files import replace_file
from ..kernels.vectors import norm
from .base import check_target
from .fit import fit
from .storage import load

POINTS = (".npy", ".npz", ".csv")  # the files that points are read from and written to
WRONG = (ValueError, TypeError, OSError, RuntimeError, ModuleNotFoundError)  # said in a line, without traceback


def learn(args) -> int:
    """`inbounds learn`. Returns the exit code."""
    try:
        _check_out(Path(args.out), (".safetensors",))
        if not -(2**63) <= args.seed < 2**64:
            raise ValueError(f"asked for --seed from -2^63 to 2^64 - 1, got {args.seed}.")
        x = torch.as_tensor(read_points(Path(args.points), args.array))
        x = x if args.shape is None else _shaped(x, args.shape)
        M = fit(x, args.method, args.support, torch.Generator().manual_seed(args.seed))
        M.save(args.out)
    except WRONG as error:
        print(f"inbounds learn: {error}", file=sys.stderr)
        return 2
    print(M.report())
    print(f"saved: {args.out}")
    return 0


def project(args) -> int:
    """`inbounds project`. Returns the exit code."""
    try:
        _check_out(Path(args.out), POINTS)
        M = load(args.set)
        x = torch.as_tensor(read_points(Path(args.points), args.array))
        flat = x.shape[x.dim() - len(M.shape) :] != M.shape and x[0].numel() == math.prod(M.shape)
        y = x.reshape(-1, *M.shape) if flat else x
        with torch.no_grad():
            p = M(y)
            ok = M.converged(y)
        write_points(Path(args.out), p.reshape(x.shape).numpy())
    except WRONG as error:
        print(f"inbounds project: {error}", file=sys.stderr)
        return 2
    moved = norm(M._flat(p - y))
    print(f"{moved.numel()} points on {M!r}: moved by {float(moved.mean()):.3g} in the mean, {float(moved.max()):.3g} at most")
    if not bool(ok.all()):
        print(f"{int((~ok).sum())} of them did not converge; there the result is the nearest point that was found")
    print(f"saved: {args.out}")
    return 0


def read_points(path: Path, array: str | None = None) -> np.ndarray:
    """A row per point, floating point. Never a pickle."""
    if path.suffix not in POINTS:
        raise ValueError(f"asked for points in a .npy, .npz or .csv file, got {path}.")
    if not path.is_file():
        raise FileNotFoundError(f"asked for points in {path}, which does not exist.")
    try:
        if path.suffix == ".csv":
            x = np.loadtxt(path, delimiter=",", ndmin=2)
        else:
            x = np.load(path, allow_pickle=False)
            x = x if isinstance(x, np.ndarray) else x[_name(x.files, path, array)]
    except (ValueError, EOFError, BadZipFile) as error:
        raise ValueError(f"asked for numbers in {path}, got something else: {error}") from None
    if x.dtype.kind not in "fiu" or x.ndim < 2 or not x.size:
        raise ValueError(f"asked for an array (N, *point) of numbers in {path}, got {x.dtype} of shape {x.shape}.")
    return x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)


def _name(names: list[str], path: Path, name: str | None) -> str:
    found = names if name is None else [n for n in names if n == name]
    if len(found) != 1:
        asked = "one array" if name is None else f"the array {name!r}"
        raise FileNotFoundError(f"asked for {asked} of {path}, which holds {', '.join(names)}. Write --array NAME.")
    return found[0]


def write_points(path: Path, y: np.ndarray) -> None:
    """Write points as .csv, .npz or .npy. The file is there whole or not at all."""
    file = io.BytesIO()
    if path.suffix == ".csv":
        np.savetxt(file, y.reshape(len(y), -1), delimiter=",", fmt="%.17g")
    elif path.suffix == ".npz":
        np.savez(file, points=y)
    else:
        np.save(file, y)
    replace_file(path, file.getvalue())


def _shaped(x: torch.Tensor, text: str) -> torch.Tensor:
    try:
        shape = tuple(int(n) for n in text.split(","))
        return x.reshape(len(x), *shape)
    except (ValueError, RuntimeError):
        raise ValueError(f"asked for --shape of {x[0].numel()} numbers, e.g. 3,3, got {text!r}.") from None


def _check_out(path: Path, endings: tuple[str, ...]) -> None:
    if path.suffix not in endings:
        raise ValueError(f"asked for an output file ending in {', '.join(endings)}, got {path}.")
    check_target(path)
