"""Where the rows of a batch ended."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from .jets import Jet


@dataclass
class Ends:
    """Point (R, n), multipliers (R, k), errors of the conditions and of the constraints (R,), steps (R,); and at the last point
    that was looked at, which is the end to rounding, values c (R, k), gradients J (R, k, n), curvature sum l_i Hess c_i."""

    y: Tensor
    l: Tensor
    error: Tensor
    violation: Tensor
    steps: Tensor
    c: Tensor
    J: Tensor
    H: Tensor

    @classmethod
    def nowhere(cls, y: Tensor, jet: Jet) -> Ends:
        """Ends that say of every row that it has not arrived."""
        never = y.new_full((len(y),), math.inf)
        steps = torch.zeros(len(y), dtype=torch.long, device=y.device)
        l = torch.zeros_like(jet.c)
        return cls(y.clone(), l, never, never.clone(), steps, jet.c.clone(), jet.J.clone(), jet.H.clone())

    def of(self, rows: Tensor) -> Ends:
        """The ends of these rows."""
        return Ends(*(getattr(self, field.name)[rows] for field in fields(self)))

    def put(self, rows: Tensor, new: Ends) -> None:
        """The new ends in these rows."""
        for field in fields(self):
            getattr(self, field.name)[rows] = getattr(new, field.name)
