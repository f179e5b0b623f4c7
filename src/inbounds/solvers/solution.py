"""What a solver says about its answer, row by row."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

OK, FLAT, EMPTY, NOT_CONVERGED = range(4)
NAMES = ("ok", "flat", "empty", "not converged")


@dataclass(frozen=True)
class Solution:
    """The answer of `M.solve(x)`. Every field is a tensor whose leading dims are the batch dims of x.

    point: the projection, or the best point that was found, (*batch, *shape).
    violation: the largest violation of a constraint at the point, each divided by the length of its gradient; <= 0 inside.
    optimality: the length of what is left of x - point after the normals of the active constraints, relative to |x| + |point|.
    multipliers: one number per equality, then one number >= 0 per inequality, (*batch, constraints).
    active: which of them hold with equality, (*batch, constraints).
    status: 0 ok, 1 flat, 2 empty, 3 not converged, (*batch,); `statuses()` gives the words.
    iterations: rounds of the solver that the row took part in, (*batch,).

    `ok` means that the point is feasible and stationary. It is the nearest point of all where the set is convex.
    `flat` means the same where the set has no interior: an inequality may be positive by rounding.
    `empty` means that no point satisfies the constraints, with a certificate.
    `not converged` means that the point cannot be trusted.
    """

    point: Tensor
    violation: Tensor
    optimality: Tensor
    multipliers: Tensor
    active: Tensor
    status: Tensor
    iterations: Tensor

    @property
    def ok(self) -> Tensor:
        """Rows whose point can be trusted: ok or flat, (*batch,)."""
        return self.status <= FLAT

    def statuses(self) -> list[str]:
        """The status of every row in words, the batch flattened."""
        return [NAMES[int(s)] for s in self.status.flatten()]

    def __repr__(self) -> str:
        counts = [(int((self.status == i).sum()), name) for i, name in enumerate(NAMES)]
        rows = ", ".join(f"{count} {name}" for count, name in counts if count)
        return f"Solution({rows or 'no rows'})"
