"""What the distributions on sets share."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..core import ConstraintSet


class InSet(constraints.Constraint):
    """The constraint of torch.distributions that a value is in the set M, up to the rounding of its dtype."""

    def __init__(self, M: ConstraintSet):
        self.M, self._event_dim = M, len(M.shape)

    @property
    def event_dim(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of dims of one point."""
        return self._event_dim

    def check(self, value: Tensor) -> Tensor:
        """(*batch,): whether each point is in M."""
        return self.M.contains(value)

    def __repr__(self) -> str:
        return f"InSet({self.M!r})"


class OnSet(Distribution):
    """A distribution on a set M: `event_shape` is M.shape, `support` is InSet(M).

    A subclass names its parameters in `dims`, each with the number of dims of its event.
    """

    M: ConstraintSet
    dims: ClassVar[dict[str, int]] = {}
    has_rsample = True

    def __init__(self, M: ConstraintSet, parameters: dict[str, Tensor], batch: tuple[int, ...] = (), validate_args: Any = None):
        batches = [p.shape[: p.dim() - self.dims[name]] for name, p in parameters.items()]
        shape = torch.broadcast_shapes(batch, *batches)
        for name, p in parameters.items():
            setattr(self, name, p.expand(shape + p.shape[p.dim() - self.dims[name] :]))
        self.M = M
        super().__init__(shape, torch.Size(M.shape), validate_args=validate_args)

    @property
    def support(self) -> InSet:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The set itself."""
        return InSet(self.M)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution, repeated over batch dims."""
        new: Any = self._get_checked_instance(type(self), _instance)
        for name, dims in self.dims.items():
            p = getattr(self, name)
            setattr(new, name, p.expand(torch.Size(batch_shape) + p.shape[p.dim() - dims :]))
        new.M = self.M
        Distribution.__init__(new, torch.Size(batch_shape), self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _checked(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.M!r}, batch_shape={tuple(self.batch_shape)})"


def as_tensors(*values: Any) -> list[Tensor]:
    """Numbers and tensors as tensors of one floating dtype."""
    known = [v.dtype for v in values if isinstance(v, Tensor) and v.dtype.is_floating_point]
    dtype = known[0] if known else torch.get_default_dtype()
    for other in known:
        dtype = torch.promote_types(dtype, other)
    return [torch.as_tensor(v, dtype=dtype) for v in values]


def require_point(M: ConstraintSet, loc: Tensor, who: str) -> None:
    """Raise unless loc is in M."""
    if not bool(M.contains(loc.detach()).all()):
        worst = float(M.violation(loc.detach()).max())
        raise ValueError(f"{who} asked for loc in {M!r}, got violation {worst:.1e}. Write loc=M.project(loc).")


def require_scale(value: Tensor, name: str, who: str, zero: bool = False) -> None:
    """Raise unless all numbers are positive and finite; zero says that 0 is one of them."""
    v = value.detach()
    if not bool(((v >= 0 if zero else v > 0) & torch.isfinite(v)).all()):
        bound = ">= 0" if zero else "> 0"
        raise ValueError(f"{who} asked for {name} {bound}, got {float(v.min()):g}. Write nn.functional.softplus(raw).")
