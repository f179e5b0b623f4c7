"""Douglas-Rachford splitting, a fixed number of steps of it (as in Pi-net: Grontas, Terpin et al., 2025)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..core import ConstraintSet
from .base import Memo, Scheme
from .linear import product, rows_of, shared


class Splitting(Scheme):
    """The nearest point to u by splitting: (y, s) goes back and forth between {E y = f, A y = s} and {s <= b} near u.

    With z the state and w = P(z) on the first set: y <- (2 w_y - z_y + sigma u) / (1 + sigma), s <- min(2 w_s - z_s, b), and
    z <- z + omega ((y, s) - w). The answer is w_y after `steps` steps in training and `test_steps` else: equalities hold,
    inequalities in the limit. Rows of A have unit length. Gradients go through the steps.
    """

    exact = False
    sigma, omega = 1.0, 1.7

    def __init__(self, net: nn.Module, M: ConstraintSet, steps: int = 50, test_steps: int = 200):
        super().__init__(net, M)
        for name, count in (("steps", steps), ("test_steps", test_steps)):
            if not isinstance(count, int) or count < 1:
                raise ValueError(f"Splitting asked for a whole number {name} >= 1, got {count!r}.")
        self.steps, self.test_steps = steps, test_steps
        self._planes = Memo(_planes)

    def enforce(self, M: ConstraintSet, u: Tensor, x: Tensor) -> Tensor:
        rows = rows_of(M, u, "Splitting")
        E = shared(rows.E, "Splitting")
        length = rows.A.norm(dim=-1).clamp(min=1e-300)
        A, b, y = rows.A / length[..., None], rows.b / length, u.double()
        K, m, n = self._system(E, A), A.shape[-2], y.shape[-1]
        across, back = self._planes(K)
        ends = product(back, torch.cat([rows.f, rows.f.new_zeros(*rows.f.shape[:-1], m)], -1))
        z = torch.cat([y, product(A, y)], -1)
        for _ in range(self.steps if self.training else self.test_steps):
            w = product(across, z) + ends
            r = 2 * w - z
            near = (r[..., :n] + self.sigma * y) / (1 + self.sigma)
            z = z + self.omega * (torch.cat([near, torch.minimum(r[..., n:], b)], -1) - w)
        return (product(across, z) + ends)[..., :n].to(u.dtype)

    @staticmethod
    def _system(E: Tensor, A: Tensor) -> Tensor:
        """K with K (y, s) = (E y, A y - s), (*batch, p + m, n + m)."""
        m, batch = A.shape[-2], A.shape[:-2]
        top = torch.cat([E, E.new_zeros(E.shape[0], m)], -1)
        eye = torch.eye(m, dtype=A.dtype, device=A.device)
        bottom = torch.cat([A, -eye.expand(*batch, m, m)], -1)
        return torch.cat([top.expand(*batch, *top.shape), bottom], -2)


def _planes(K: Tensor) -> tuple[Tensor, Tensor]:
    """I - K^+ K and K^+: the nearest point of {w : K w = g} is (I - K^+ K) z + K^+ g."""
    back = torch.linalg.pinv(K)
    return torch.eye(K.shape[-1], dtype=K.dtype, device=K.device) - back @ K, back
