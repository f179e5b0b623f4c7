"""A closed form for independent linear constraints (HardNet-Aff: Min and Azizan, 2024)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from ..core import ConstraintSet
from .base import Memo, Scheme
from .linear import completion, free_variables, polytope_of, product, shared


class HardNet(Scheme):
    """z + C^+ (relu(l - C z) - relu(C z - h)) for l <= C z <= h; it is not the nearest point.

    Equations are taken out first, as the authors do: they give the `dependent` variables, as in DC3. The rows of C that are left
    must be linearly independent, so there are no more of them than free variables.
    """

    def __init__(self, net: nn.Module, M: ConstraintSet, dependent: Sequence[int] | None = None):
        super().__init__(net, M)
        self._completion, self._inverse = Memo(partial(completion, dependent=dependent)), Memo(_right_inverse)

    def size(self, M: ConstraintSet) -> int:
        return free_variables(M, "HardNet")

    def enforce(self, M: ConstraintSet, u: Tensor, x: Tensor) -> Tensor:
        P = polytope_of(M, "HardNet")
        parts, z = P._parts(u), u.double()
        solve, lift = self._completion(shared(parts["E"], "HardNet"))
        start = product(solve, parts["f"])
        rows, low, high = two_sided(parts, P.shape[0])
        C, at = rows @ lift, product(rows, start + product(lift, z))
        z = z + product(self._inverse(C), (low - at).relu() - (at - high).relu())
        return (start + product(lift, z)).to(u.dtype)


def two_sided(parts: dict[str, Tensor], n: int) -> tuple[Tensor, Tensor, Tensor]:
    """C (*batch, m, n), low and high (*batch, m): the inequalities of a polytope, with one row for both sides of a bound."""
    rows = [(parts["A"], torch.full_like(parts["b"], -math.inf), parts["b"])]
    if parts["low"].numel() or parts["high"].numel():
        free = torch.full((n,), math.inf, dtype=torch.float64)
        low, high = (t if t.numel() else end for t, end in ((parts["low"], -free), (parts["high"], free)))
        low, high, _ = torch.broadcast_tensors(low, high, free)
        rows.append((torch.eye(n, dtype=torch.float64), low, high))
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
            f"HardNet needs linearly independent constraints, got {m} rows of {n} free variables of which some depend on "
            "others. Use Projected(net, M), which takes any number of them."
        )
    return torch.linalg.pinv(C)
