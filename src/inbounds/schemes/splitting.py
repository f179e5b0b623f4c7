"""Douglas-Rachford splitting, a fixed number of steps of it (as in Pi-net: Grontas, Terpin et al., 2025)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..core import ConstraintSet
from .base import Memo, Scheme
from .linear import nullspace, product, rows_of, shared


class Splitting(Scheme):
    """The nearest point to u by splitting: (y, s) goes back and forth between {E y = f, A y = s} and {s <= b} near u.

    With z the state and w = P(z) on the first set: y <- (2 w_y - z_y + sigma u) / (1 + sigma), s <- min(2 w_s - z_s, b), and
    z <- z + omega ((y, s) - w). The answer is w_y after `steps` steps in training and `test_steps` else: equalities hold,
    inequalities in the limit. Rows of A have unit length. Gradients go through the steps.

    All y on the planes are E^+ f + N t with orthonormal columns in N. What z_y has across the planes never reaches w, so the
    steps are taken in t: they are the same steps, in fewer variables.
    """

    exact = False
    sigma, omega = 1.0, 1.7

    def __init__(self, net: nn.Module, M: ConstraintSet, steps: int = 50, test_steps: int = 200):
        super().__init__(net, M)
        for name, count in (("steps", steps), ("test_steps", test_steps)):
            if not isinstance(count, int) or count < 1:
                raise ValueError(f"Splitting asked for a whole number {name} >= 1, got {count!r}.")
        self.steps, self.test_steps = steps, test_steps
        self._planes, self._graph = Memo(_planes), Memo(_onto_graph)

    def enforce(self, M: ConstraintSet, u: Tensor, x: Tensor) -> Tensor:
        rows = rows_of(M, u, "Splitting")
        back, N = self._planes(shared(rows.E, "Splitting"))
        start, y = product(back, rows.f), u.double()
        length = rows.A.norm(dim=-1).clamp(min=1e-300)
        A, b = rows.A / length[..., None], rows.b / length
        t = self._steps(product(N.mT, y - start), product(A, y - start), A @ N, b - product(A, start))
        return (start + product(N, t)).to(u.dtype)

    def _steps(self, t: Tensor, s: Tensor, A: Tensor, room: Tensor) -> Tensor:
        """The point near t with A t <= room, after the steps from (t, s)."""
        k, across = t.shape[-1], self._graph(A)
        near, free = t * (self.sigma / (1 + self.sigma)), torch.full_like(t, math.inf)
        pull = torch.cat([near, torch.zeros_like(s)], -1)
        top = torch.cat([free.expand(*s.shape[:-1], k), room.expand(s.shape)], -1)
        share = torch.cat([2 * t.new_ones(k) / (1 + self.sigma), 2 * t.new_ones(s.shape[-1])])
        z = torch.cat([t, s], -1)
        for _ in range(self.steps if self.training else self.test_steps):
            w = product(across, z)
            r = torch.sub(w, z, alpha=0.5)  # half of the reflection 2 w - z
            z = torch.add(z, torch.minimum(torch.addcmul(pull, r, share), top) - w, alpha=self.omega)
        return product(across, z)[..., :k]


def _planes(E: Tensor) -> tuple[Tensor, Tensor]:
    """E^+ and an orthonormal basis of {v : E v = 0}."""
    return torch.linalg.pinv(E), nullspace(E)


def _onto_graph(A: Tensor) -> Tensor:
    """The orthogonal projection on {(t, s) : s = A t}: B (I + A^T A)^-1 B^T with B = (I, A)."""
    k, batch = A.shape[-1], A.shape[:-2]
    eye = torch.eye(k, dtype=A.dtype, device=A.device)
    B = torch.cat([eye.expand(*batch, k, k), A], -2)
    return B @ torch.linalg.solve(eye + A.mT @ A, B.mT)
