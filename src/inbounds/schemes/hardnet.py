"""A closed form for independent linear constraints (HardNet-Aff: Min and Azizan, 2024)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..core import ConstraintSet
from .base import Memo, Scheme
from .linear import polytope_of, product


class HardNet(Scheme):
    """u + C^+ (relu(l - C u) - relu(C u - h)) for l <= C y <= h; equations are rows with l = h. It is not the nearest point.

    The rows of C must be linearly independent, so there are no more of them than variables.
    """

    def __init__(self, net: nn.Module, M: ConstraintSet):
        super().__init__(net, M)
        self._inverse = Memo(_right_inverse)

    def enforce(self, M: ConstraintSet, u: Tensor, x: Tensor) -> Tensor:
        C, low, high = two_sided(M, u)
        y = u.double()
        at = product(C, y)
        return (y + product(self._inverse(C), (low - at).relu() - (at - high).relu())).to(u.dtype)


def two_sided(M: ConstraintSet, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """C (*batch, m, n), low and high (*batch, m): the constraints with one row for both sides of a bound."""
    P = polytope_of(M, "HardNet")
    parts, n = P._parts(u), P.shape[0]
    rows = [(parts["A"], torch.full_like(parts["b"], -math.inf), parts["b"]), (parts["E"], parts["f"], parts["f"])]
    if parts["low"].numel() or parts["high"].numel():
        everywhere = [
            parts[k] if parts[k].numel() else torch.full((n,), s * math.inf).double() for k, s in (("low", -1), ("high", 1))
        ]
        low, high = torch.broadcast_tensors(*everywhere, torch.zeros(n).double())[:2]
        rows.append((torch.eye(n, dtype=low.dtype), low, high))
    C = _stacked([r[0] for r in rows], -2)
    return C, _stacked([r[1] for r in rows], -1), _stacked([r[2] for r in rows], -1)


def _stacked(parts: list[Tensor], dim: int) -> Tensor:
    """torch.cat along dim, with the batch dims in front broadcast."""
    batch = torch.broadcast_shapes(*(p.shape[:dim] for p in parts))
    return torch.cat([p.expand(*batch, *p.shape[dim:]) for p in parts], dim)


def _right_inverse(C: Tensor) -> Tensor:
    """C^+ with C C^+ = I; refuses rows that depend on each other."""
    m, n = C.shape[-2:]
    if m > n or bool((torch.linalg.matrix_rank(C) < m).any()):
        raise TypeError(
            f"HardNet needs linearly independent constraints, got {m} rows of {n} variables of which some depend on others. Use "
            "Projected(net, M), which takes any number of them."
        )
    return torch.linalg.pinv(C)
