"""Sets that depend on the input of a network."""

from __future__ import annotations

import copy
from typing import Any, NoReturn, TypeVar

from torch import Tensor, nn

from ..core import ConstraintSet

Net = TypeVar("Net", bound=nn.Module)


class Depends(ConstraintSet):
    """The set that a module makes of the network's input: FAA(net, Projection(Depends(module))).

    module(x) returns a set, built from tensors with the batch dims of x; its parameters are registered and train. shape: that of
    one point, by default module.shape. name: the keyword argument of the network's call that the set depends on, instead of its
    input: with Depends(module, name="limits") write net(x, limits=z). Alone, M.project(x, context=z) is module(z).project(x).
    """

    def __init__(self, module: nn.Module, shape: int | tuple[int, ...] | None = None, name: str | None = None):
        super().__init__()
        if not isinstance(module, nn.Module):
            raise TypeError(
                f"Depends needs an nn.Module that maps the input to a set (a bare function would train nothing), got "
                f"{type(module).__name__}."
            )
        shape = getattr(module, "shape", None) if shape is None else shape
        if shape is None:
            raise TypeError("Depends asked for the shape of one point, got none. Write Depends(module, shape=(4,)).")
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.module, self.name = module, name

    def _given(self, context: Any) -> ConstraintSet:
        """The set that belongs to an input."""
        M = self.module(context)
        if not isinstance(M, ConstraintSet):
            raise TypeError(f"{self!r} asked its module for a set, got {type(M).__name__}. Return Box(low, high), for example.")
        if M.shape != self.shape:
            raise ValueError(
                f"{self!r} asked its module for a set of points of shape {self.shape}, got {M!r} of shape {M.shape}."
            )
        return M

    def _unbound(self, *_) -> NoReturn:
        raise TypeError(
            f"{self!r} is no set until it knows the input. Use it in FAA, IAA or ProjectedODE, or write M.project(x, context=z)."
        )

    def _project(self, x: Tensor) -> Tensor:
        self._unbound()

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self._unbound()

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        self._unbound()

    def __repr__(self) -> str:
        name = f", name={self.name!r}" if self.name else ""
        return f"Depends({type(self.module).__name__}{name})"


def bound(net: Net, x: Tensor, keywords: dict[str, Any]) -> Net:
    """The network with the set that belongs to its input in the place of Depends; the network itself if it has none."""
    step = getattr(net, "step", None)
    M = step.M if step is not None else getattr(net, "M", None)
    if not isinstance(M, Depends):
        return net
    if M.name is not None and M.name not in keywords:
        got = ", ".join(keywords) or "none"
        raise TypeError(f"{M!r} asked for the keyword argument {M.name} in the call, got {got}. Write net(x, {M.name}=z).")
    own = M.given(x if M.name is None else keywords[M.name])
    return replaced(net, "M", own) if step is None else replaced(net, "step", replaced(step, "M", own))


def replaced(module: Any, name: str, part: nn.Module) -> Any:
    """A shallow copy of a module with another submodule; the original is left alone."""
    other = copy.copy(module)
    other._modules = {**module._modules, name: part}
    return other
