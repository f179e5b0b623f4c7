"""`LearnedSet`: what all sets fitted to samples share. They work on flat points in float64 and know where they came from."""

from __future__ import annotations

import math
import reprlib
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core import ConstraintSet
from ..extras import needed_for
from ..files import replace_file, seal_with_header, unseal_with_header
from ..kernels.vectors import norm, pulled_in
from .report import Report

EPS = torch.finfo(torch.float64).eps
FORMAT = 1  # of the files; a change that old readers cannot read raises it
FAR = 1e8  # sizes of a set, about 1/sqrt(eps): farther away rounding hides which of its points is nearer, but for the direction
LONGEST = 1e150  # beyond, squares of lengths overflow


class FitWarning(UserWarning):
    """A fitted set should not be relied on without a look; the words say what is doubtful and what to do."""


class LearnedSet(ConstraintSet):
    """A set known through samples. `exact` is False: `violation` is the distance to its own projection.

    A method writes `foot(z, eps)`: the projection of flat points z (rows, d) in float64, differentiable, any number of rows,
    to the precision of eps at least;
    `trusted(z, y)`: the rows whose projection y = foot(z) can be trusted; `sizes` and `spec()`: what else its constructor takes,
    which is all that a copy needs. `info` (plain JSON) is what `fit` found out; `report()` says it.
    """

    exact = False
    method: str  # the name that fit() and files use
    sizes: ClassVar[dict[str, str]] = {}  # the tensors of a copy, a letter for each dim; the same letter is the same size

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.shape = tuple(shape)
        self.info: dict[str, Any] = {}

    @property
    def thickness(self) -> float:
        """By how much points of the set may be moved by another projection, in units of the set: `contains` allows it."""
        return 0.0

    # --- what a method writes ----------------------------------------------------------------------------
    @abstractmethod
    def foot(self, z: Tensor, eps: float = EPS) -> Tensor:
        """The projection of flat points z (rows, d) in float64, to the precision of eps at least."""

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """What a copy needs besides the tensors, as plain JSON."""

    def tensors(self) -> dict[str, Tensor]:
        """The numbers that a copy needs."""
        return {name: getattr(self, name) for name in self.sizes}

    @classmethod
    def from_parts(cls, tensors: dict[str, Tensor], spec: dict[str, Any]) -> LearnedSet:
        """The set that gave these tensors and this spec."""
        parts: dict[str, Any] = {**tensors, **spec}
        return cls(**parts)

    def trusted(self, z: Tensor, y: Tensor) -> Tensor:
        """(rows,): whether the projection y = foot(z) can be trusted."""
        return torch.isfinite(y).all(-1)

    def known(self) -> Tensor:
        """Points of the set, or near it, (k, d): where samples are drawn around."""
        raise NotImplementedError(f"{self!r} keeps no samples to draw from.")

    def leaves(self, z: Tensor) -> Tensor:
        """Which rows the projection leaves where they are, to rounding."""
        return (z - self.foot(z)).square().sum(1) <= 1e-18 * z.square().sum(1).mean()

    # --- the set -----------------------------------------------------------------------------------------
    def _project(self, x):
        return self.foot(self._rows(x), torch.finfo(x.dtype).eps).to(x.dtype).reshape(x.shape)

    def _rows(self, x: Tensor) -> Tensor:
        """x as rows (rows, d) in float64: 0 for those that are not finite, pulled in along their ray beyond LONGEST."""
        z = self._flat(x).reshape(-1, math.prod(self.shape)).double()
        z = torch.where(torch.isfinite(z).all(-1, keepdim=True), z, 0.0)
        return pulled_in(z, LONGEST)

    def _sample(self, batch, generator, dtype, device):
        return self.draw(math.prod(batch), generator).to(device, dtype).reshape(*batch, *self.shape)

    def draw(self, n: int, generator: torch.Generator | None) -> Tensor:
        """(n, d): known points, moved by their own spacing and projected: dense on the set, not uniform."""
        known = self.known()
        few = known[torch.randperm(len(known), generator=generator)[:500]]
        few = few - few.mean(0)  # far from the origin, distances would cancel
        apart = torch.cdist(few, few).fill_diagonal_(math.inf).amin(1).median()
        z = known[torch.randint(len(known), (n,), generator=generator)]
        z = z + apart / math.sqrt(z.shape[1]) * torch.randn(z.shape, generator=generator, dtype=z.dtype)
        return self.foot(z)

    def _contains(self, x, tol):
        return super()._contains(x, tol) | (self.violation(x) <= (self.thickness if tol is None else tol))

    def _violation(self, x):
        return norm(self._flat(x - self._project(x)))

    def _tangent(self, x, v):
        """DP(x) v."""
        return torch.func.jvp(self._project, (x,), (v,))[1]

    def converged(self, x: Tensor) -> Tensor:
        """(*batch,): whether the projection of x can be trusted; where it cannot, it is the nearest point that was found."""
        (x,) = self._enter("converged", x)
        with torch.no_grad():
            z, finite = self._rows(x), torch.isfinite(self._flat(x)).all(-1)
            return finite & self.trusted(z, self.foot(z)).reshape(finite.shape)

    # --- what is known about it --------------------------------------------------------------------------
    def report(self) -> Report:
        """What was found: an object with the numbers as fields, which prints in sentences. Write `print(M.report())`."""
        return Report.of(self.info, self.method, repr(self))

    def save(self, path: str | Path) -> None:
        """One safetensors file: the numbers, and a JSON header with the rest. `inbounds.load(path)` reads it."""
        write(Path(path), self.header(), self.tensors())

    def check(self) -> None:
        """Raise ValueError where the set's own numbers contradict each other, as those of a file may that was tampered with."""

    def header(self) -> dict[str, Any]:
        """Plain JSON: with tensors(), all that a copy needs."""
        kind = {"format": FORMAT, "class": type(self).__name__, "spec": self.spec()}
        return {**kind, "reach": self.reach, "info": self.info}


def misfit(sizes: dict[str, str], tensors: dict[str, Tensor], **known: int) -> str:
    """What is wrong with the first tensor that disagrees with its letters, where broadcasting may hide it; empty if none does."""
    for name, letters in sizes.items():
        shape = tuple(tensors[name].shape)
        wanted = ", ".join(str(known.get(k, k)) for k in letters)
        if len(shape) != len(letters) or any(known.setdefault(k, n) != n for k, n in zip(letters, shape, strict=True)):
            return f"{name} has shape {shape}, not ({wanted})"
    return ""


def check_frame(frame: Tensor) -> None:
    """Raise ValueError unless the columns are orthonormal, to the rounding of float32."""
    off = float((frame.mT @ frame - torch.eye(frame.shape[1], dtype=frame.dtype)).abs().max()) if frame.numel() else 0.0
    if off > 1e-5:
        raise ValueError(f"the columns of frame are not orthonormal: off by {off:.2g}")


HEADER = {"format", "class", "spec", "reach", "info"}
NUMBER = (int, float)  # of plain JSON; types are compared, for True is an int, too, and every comparison with NaN is false
RULES = [  # names of values in a header and in the objects of its spec; what they are; whether a value is that
    ("format", "a whole number > 0", lambda v: type(v) is int and v > 0),
    ("class", "a name", lambda v: type(v) is str),
    ("spec info of net", "an object", lambda v: type(v) is dict),
    ("reach", "null or a number >= 0", lambda v: v is None or (type(v) in NUMBER and v >= 0)),
    ("shape", "a list of whole numbers > 0", lambda v: type(v) is list and all(type(n) is int and n > 0 for n in v)),
    ("degree dim blend size width depth steps max_steps", "a whole number >= 0", lambda v: type(v) is int and v >= 0),
    ("inner", "a degree or a method", lambda v: type(v) is str or (type(v) is int and v >= 0)),
    ("unit t T scale tolerance rtol atol", "a finite number > 0", lambda v: type(v) in NUMBER and 0 < v < math.inf),
    ("thickness margin", "a finite number >= 0", lambda v: type(v) in NUMBER and 0 <= v < math.inf),
]


def check_values(values: dict[str, Any]) -> None:
    """Raise ValueError at the first value, also of an inner object, that is not what its name stands for."""
    for names, wanted, fits in RULES:
        for key in values.keys() & names.split():
            if not fits(values[key]):
                raise ValueError(f"{key} is {reprlib.repr(values[key])}, not {wanted}")
    for key in values.keys() & {"spec", "of", "net"}:
        check_values(values[key])


def need_safetensors() -> None:
    """Miss the package before the work that is to be kept, not after it."""
    with needed_for("Saving and loading sets"):
        import safetensors.torch  # noqa: F401


def check_target(path: Path) -> None:
    """Raise where no set can be saved."""
    need_safetensors()
    if path.is_dir():
        raise IsADirectoryError(f"save asked for a file, got {path}, which is a folder. Write {path / 'set.safetensors'}.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"save asked for a path in an existing folder, got {path}. Make {path.parent} first.")


def write(path: Path, header: dict, tensors: dict[str, Tensor]) -> None:
    """Write a file that `read` reads. It is there whole or not at all."""
    check_target(path)
    replace_file(path, seal_with_header(tensors, header, "inbounds"))


def read(path: Path) -> tuple[dict, dict[str, Tensor]]:
    """The header and the tensors of a file that write() made."""
    need_safetensors()
    wrong = f"load asked for a file that M.save(path) wrote, got {path}"
    if path.is_dir():
        raise IsADirectoryError(f"{wrong}, which is a folder.")
    if not path.is_file():
        raise FileNotFoundError(f"{wrong}, which does not exist.")
    try:
        tensors, header = unseal_with_header(path.read_bytes(), "inbounds")
        if not isinstance(header, dict) or not header.keys() >= HEADER:
            raise ValueError("it is a safetensors file, but without the header of a learned set")
        check_values(header)
    except ValueError as error:
        raise ValueError(f"{wrong}, which is not one: {error}.") from None
    if header["format"] > FORMAT:
        raise ValueError(f"{wrong}, of format {header['format']}; this version reads up to {FORMAT}. Update inbounds.")
    return header, tensors
