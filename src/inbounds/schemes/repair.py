"""Proportional repair of bounds and a total (the layers of E2ELR: Chen, Tanneau and Van Hentenryck, 2023)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core import ConstraintSet
from .base import Scheme
from .linear import polytope_of


class Repair(Scheme):
    """y = low + sigmoid(u) (high - low); then, for sum y = total, all move towards high, or all towards low, by one share.

    With s = sum y: y + e (high - y), e = (total - s) / (sum high - s), where s is below the total; else y - e (y - low),
    e = (s - total) / (s - sum low). For sets {low <= y <= high} with at most one equation, sum y = total.
    """

    def enforce(self, M: ConstraintSet, u: Tensor, x: Tensor) -> Tensor:
        low, high, total = _budget(M, u)
        y = low + torch.sigmoid(u.double()) * (high - low)
        if total is None:
            return y.to(u.dtype)
        s = y.sum(-1, keepdim=True)
        short = s < total
        up = (total - s) / torch.where(short, high.sum(-1, keepdim=True) - s, 1.0)
        down = (s - total) / torch.where(short, 1.0, s - low.sum(-1, keepdim=True)).clamp(min=1e-300)
        return torch.where(short, y + up * (high - y), y - down * (y - low)).to(u.dtype)


def _budget(M: ConstraintSet, u: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """low, high and the total (*batch, 1), or None; refuses other constraints."""
    P = polytope_of(M, "Repair")
    parts = P._parts(u)
    E, bounded = parts["E"], "low" in P._given_names and "high" in P._given_names
    plain = E.shape[-2] == 0 or (E.shape[-2] == 1 and bool((E == 1).all()))
    if parts["A"].shape[-2] or not plain or not bounded or not bool(torch.isfinite(parts["high"] - parts["low"]).all()):
        raise TypeError(
            f"Repair needs finite bounds low <= y <= high and at most the equation sum y = total, got {M!r}. Use "
            "Projected(net, M)."
        )
    n = P.shape[0]
    low, high = (t.expand(*t.shape[:-1], n) for t in (parts["low"], parts["high"]))
    return low, high, parts["f"] if E.shape[-2] else None
