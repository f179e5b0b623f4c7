"""`Within`: a learned set of R^n placed in an affine subspace of R^d."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .alpha import AlphaShape
from .base import EPS, LearnedSet, check_frame
from .heat import Heat
from .hull import Hull
from .local import Local

INNER: dict[str, type[LearnedSet]] = {c.method: c for c in (AlphaShape, Heat, Hull, Local)}


class Within(LearnedSet):
    """{center + unit frame w : w in inner}; the projection is the one on the subspace, then inner's."""

    center: Tensor
    frame: Tensor
    inner: LearnedSet

    def __init__(self, inner: LearnedSet, shape: tuple[int, ...], center: Tensor, frame: Tensor, unit: float = 1.0):
        super().__init__(shape)
        self.unit = float(unit)
        self.part, self.method, self.reach = inner, inner.method, inner.reach
        self._constant("center", center)
        self._constant("frame", frame)

    @property
    def thickness(self) -> float:
        """That of the set inside, in the units around it."""
        return self.unit * self.part.thickness

    def foot(self, z, eps=EPS):
        return self.center + self.unit * self.part.foot(self._lower(z), eps) @ self.frame.mT

    def _lower(self, z: Tensor) -> Tensor:
        return (z - self.center) @ self.frame / self.unit

    def trusted(self, z, y):
        return self.part.trusted(self._lower(z), self._lower(y))

    def draw(self, n, generator):
        return self.center + self.unit * self.part.draw(n, generator) @ self.frame.mT

    def known(self):
        return self.center + self.unit * self.part.known() @ self.frame.mT

    def leaves(self, z):
        return self.part.leaves(self._lower(z))

    @property
    def dim(self) -> int:
        """The dimension of the set inside."""
        return int(getattr(self.part, "dim", self.frame.shape[1]))

    def check(self) -> None:
        check_frame(self.frame)
        self.part.check()

    def tensors(self) -> dict[str, Tensor]:
        return {"center": self.center, "frame": self.frame, **{f"inner.{k}": t for k, t in self.part.tensors().items()}}

    def spec(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "inner": self.part.method, "unit": self.unit, "of": self.part.spec()}

    @classmethod
    def from_parts(cls, tensors, spec):
        own = {k.removeprefix("inner."): t for k, t in tensors.items() if k.startswith("inner.")}
        inner = INNER[spec["inner"]].from_parts(own, spec["of"])
        return cls(inner, tuple(spec["shape"]), tensors["center"], tensors["frame"], spec["unit"])

    def extra_repr(self):
        return f"{self.shape[0] if len(self.shape) == 1 else self.shape}, {self.part!r}"
