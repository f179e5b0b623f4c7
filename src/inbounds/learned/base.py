"""`LearnedSet`: what all sets fitted to samples share. They work on flat points in float64 and know where they came from."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core import ConstraintSet
from ..kernels.vectors import norm

EPS = torch.finfo(torch.float64).eps
FORMAT = 1  # of the files; a change that old readers cannot read raises it


class LearnedSet(ConstraintSet):
    """A set known through samples. `exact` is False: `violation` is the distance to its own projection.

    A method writes `_foot(z, eps)`: the projection of flat points z (rows, d) in float64, differentiable, any number of rows,
    to the precision of eps at least;
    `_ok(z, y)`: the rows whose projection y = _foot(z) can be trusted; `tensors()`, `spec()` and `from_parts(tensors, spec)`:
    all that a copy needs. `info` (plain JSON) is what `fit` found out; `report()` prints it.
    """

    exact = False
    method: str  # the name that fit() and files use

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.shape = tuple(shape)
        self.info: dict[str, Any] = {}

    # --- what a method writes ----------------------------------------------------------------------------
    @abstractmethod
    def _foot(self, z: Tensor, eps: float = EPS) -> Tensor: ...

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]: ...

    @abstractmethod
    def spec(self) -> dict[str, Any]: ...

    @classmethod
    @abstractmethod
    def from_parts(cls, tensors: dict[str, Tensor], spec: dict[str, Any]) -> LearnedSet: ...

    def _ok(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.isfinite(y).all(-1)

    def _known(self) -> Tensor:
        """Points of the set, or near it, (k, d): where samples are drawn around."""
        raise NotImplementedError(f"{self!r} keeps no samples to draw from.")

    def _inside(self, z: Tensor) -> Tensor:
        """Which rows the projection leaves where they are, to rounding."""
        return (z - self._foot(z)).square().sum(1) <= 1e-18 * z.square().sum(1).mean()

    # --- the set -----------------------------------------------------------------------------------------
    def _project(self, x):
        z = self._flat(x).reshape(-1, math.prod(self.shape)).double()
        finite = torch.isfinite(z).all(-1, keepdim=True)
        foot = self._foot(torch.where(finite, z, 0.0), torch.finfo(x.dtype).eps)
        return foot.to(x.dtype).reshape(x.shape)

    def _sample(self, batch, generator, dtype, device):
        """Known points, moved by their own spacing and projected: dense on the set, not uniform."""
        known, n = self._known(), math.prod(batch)
        few = known[torch.randperm(len(known), generator=generator)[:500]]
        apart = torch.cdist(few, few).fill_diagonal_(math.inf).amin(1).median()
        z = known[torch.randint(len(known), (n,), generator=generator)]
        z = z + apart / math.sqrt(z.shape[1]) * torch.randn(z.shape, generator=generator, dtype=z.dtype)
        return self._foot(z).to(device, dtype).reshape(*batch, *self.shape)

    def _violation(self, x):
        return norm(self._flat(x - self._project(x)))

    def _tangent(self, x, v):
        """DP(x) v."""
        return torch.func.jvp(self._project, (x,), (v,))[1]

    def converged(self, x: Tensor) -> Tensor:
        """(*batch,): whether the projection of x can be trusted; where it cannot, it is the nearest point that was found."""
        (x,) = self._enter("converged", x)
        z = self._flat(x).reshape(-1, math.prod(self.shape)).double()
        with torch.no_grad():
            return self._ok(z, self._foot(z)).reshape(x.shape[: x.dim() - len(self.shape)])

    # --- what is known about it --------------------------------------------------------------------------
    def report(self) -> None:
        """Print what was found, in words and numbers."""
        print(self.info.get("text", f"{self!r}: made by hand, nothing was fitted."))

    def save(self, path: str | Path) -> None:
        """One safetensors file: the numbers, and a JSON header with the rest. `inbounds.load(path)` reads it."""
        write(Path(path), self.header(), self.tensors())

    def header(self) -> dict[str, Any]:
        """Plain JSON: with tensors(), all that a copy needs."""
        kind = {"format": FORMAT, "class": type(self).__name__, "spec": self.spec()}
        return {**kind, "reach": self.reach, "info": self.info}


def write(path: Path, header: dict, tensors: dict[str, Tensor]) -> None:
    """Whole or not at all: written beside the path, then renamed."""
    save_file = _safetensors().save_file
    if not path.parent.is_dir():
        raise FileNotFoundError(f"save asked for a path in an existing folder, got {path}. Make {path.parent} first.")
    beside = path.with_name(path.name + ".part")
    try:
        save_file({k: t.detach().contiguous() for k, t in tensors.items()}, beside, {"inbounds": json.dumps(header)})
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def read(path: Path) -> tuple[dict, dict[str, Tensor]]:
    """The header and the tensors of a file that write() made."""
    safetensors = _safetensors()
    if not path.is_file():
        raise FileNotFoundError(f"load asked for a file that M.save(path) wrote, got {path}, which does not exist.")
    wrong = f"load asked for a file that M.save(path) wrote, got {path}"
    try:
        with safetensors.safe_open(path, "pt") as file:
            header = json.loads((file.metadata() or {}).get("inbounds", "null"))
            tensors = {k: file.get_tensor(k).clone() for k in file.keys()}
    except (safetensors.Error, json.JSONDecodeError) as error:
        raise ValueError(f"{wrong}, which is not one: {error}.") from None
    if not isinstance(header, dict) or not {"format", "class", "spec", "reach", "info"} <= header.keys():
        raise ValueError(f"{wrong}: a safetensors file, but without the header of a learned set.")
    if header["format"] > FORMAT:
        raise ValueError(f"{wrong}, of format {header['format']}; this version reads up to {FORMAT}. Update inbounds.")
    return header, tensors


class _safetensors:
    """The functions of safetensors that are used here, loaded when they are."""

    def __init__(self):
        try:
            from safetensors import SafetensorError, safe_open
            from safetensors.torch import save_file
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "Saving and loading sets needs safetensors. Install it with: pip install 'inbounds[lab]'", name=error.name
            ) from None
        self.save_file, self.safe_open, self.Error = save_file, safe_open, SafetensorError
