"""Rotations as matrices."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import LieGroup, check_size, full_precision, working_dtype
from ..kernels.exponential import longest_exponent, matrix_exp, shortened
from ..kernels.polar import polish, proper_polar, repolish, short_step
from ..kernels.rotation import nearest_rotation
from ..kernels.so3 import so3_exp, so3_log
from ..kernels.stumpff import stumpff
from ..kernels.vectors import norm, unit


class SO(LieGroup):
    """Rotations {R in R^(n x n) : R R^T = I, det R = 1}.

    P(A) = U diag(1, .., 1, det(U V^T)) V^T for A = U S V^T; closed forms without SVD for n = 2, 3. P(0) = I for n <= 3.
    Coordinates: the angle for n = 2, the rotation vector for n = 3, the entries below the diagonal, row by row, beyond.
    `geodesic_distance` is in the Frobenius norm, sqrt(2) times the `angle`: 2.22 for a quarter turn.
    """

    reach = math.sqrt(2)
    basis: Tensor

    def __init__(self, n: int):
        super().__init__()
        check_size("SO", n)
        if n < 2:
            raise ValueError(f"SO asked for n >= 2, got {n}. SO(1) is the single point 1.")
        self.n, self.shape, self.dim = n, (n, n), n * (n - 1) // 2
        self._constant("basis", _basis(n))

    def _project(self, x: Tensor) -> Tensor:
        if self.n == 2:
            x = 0.5 * x
            c, s = x[..., 0, 0] + x[..., 1, 1], x[..., 1, 0] - x[..., 0, 1]
            return turn(unit(torch.stack([c, s], -1)))
        return nearest_rotation(x) if self.n == 3 else proper_polar(x)

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Upper triangle of R R^T - I, then det R - 1."""
        i, j = torch.triu_indices(self.n, self.n, device=x.device)
        gram = x @ x.mT - torch.eye(self.n, dtype=x.dtype, device=x.device)
        return torch.cat([gram[..., i, j], torch.linalg.det(x)[..., None] - 1], -1), x[..., 0, :0]

    def _violation(self, x: Tensor) -> Tensor:
        """|R R^T - I|_F + |det R - 1|, the paper's metric."""
        gram = x @ x.mT - torch.eye(self.n, dtype=x.dtype, device=x.device)
        return gram.flatten(-2).norm(dim=-1) + (torch.linalg.det(x) - 1).abs()

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        return 0.5 * (v - x @ (v.mT @ x))

    def _uniqueness_margin(self, x: Tensor) -> Tensor:
        """(s_{n-1} + sign(det) s_n) / sqrt 2."""
        poison = self._poison(x)
        x = torch.where(poison == 0, x, torch.eye(self.n, dtype=x.dtype, device=x.device))
        s = torch.linalg.svdvals(x)
        sign = torch.linalg.slogdet(x.detach())[0]
        return (s[..., -2] + sign * s[..., -1]) / math.sqrt(2) + poison[..., 0, 0]

    def _exp(self, x: Tensor, v: Tensor) -> Tensor:
        return x @ self._group_exp(self.vee(x.mT @ v))

    def _log(self, x: Tensor, y: Tensor) -> Tensor:
        return x @ self.hat(self._group_log(x.mT @ y))

    def _transport(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """x h (x^T v) h for h half of the way from x to y; the projection where there is no log."""
        if self.n > 3:
            return self._tangent(y, v)
        half = self._group_exp(0.5 * self._group_log(x.mT @ y))
        return x @ (half @ (x.mT @ v) @ half)

    def _log_volume(self, x: Tensor, v: Tensor) -> Tensor:
        """2 log |sin(t/2) / (t/2)| at the angle t for n = 3; 0 for n = 2, which is flat."""
        if self.n > 3:
            return super()._log_volume(x, v)
        half = 0.5 * self.vee(x.mT @ v)
        sinc = stumpff((half * half).sum(-1), 1)[1].abs().clamp(min=torch.finfo(v.dtype).tiny)
        return 2 * (self.n - 2) * sinc.log()

    def angle(self, x: Tensor, y: Tensor) -> Tensor:
        """The angle in radians, 0 to pi, of the rotation that takes x to y, with gradient 0 where x = y. For n = 2, 3."""
        x, y = self._enter("angle", x, y)
        if self.n > 3:
            raise NotImplementedError(
                f"{self!r} has no single angle: its rotations turn several planes. SO(2) and SO(3) have; here use distances."
            )
        with full_precision(x):
            return norm(self._group_log(x.mT @ y))

    def _retract(self, x: Tensor, v: Tensor) -> Tensor:
        near = short_step(x, v)
        return super()._retract(x, v) if near is None else near

    def _refine(self, x: Tensor) -> Tensor:
        return repolish(x, self._project) if self.n > 3 else polish(x)

    def origin(self, like: Tensor) -> Tensor:
        return torch.eye(self.n, dtype=working_dtype(like), device=like.device)

    def hat(self, c: Tensor) -> Tensor:
        with full_precision(c):
            return (c @ self._cast("basis", c)).unflatten(-1, self.shape)

    def vee(self, A: Tensor) -> Tensor:
        """Half of <basis_i, A>: the skew part's coordinates."""
        with full_precision(A):
            return 0.5 * (A.flatten(-2) @ self._cast("basis", A).mT)

    def _group_exp(self, c: Tensor) -> Tensor:
        if self.n == 2:
            return turn(torch.cat([torch.cos(c), torch.sin(c)], -1))
        if self.n == 3:
            return so3_exp(shortened(c))
        return matrix_exp(self.hat(shortened(c, longest_exponent(c.dtype))))

    def _group_log(self, g: Tensor) -> Tensor:
        if self.n == 2:
            return torch.atan2(g[..., 1, 0] - g[..., 0, 1], g[..., 0, 0] + g[..., 1, 1])[..., None]
        if self.n == 3:
            return so3_log(g)
        raise NotImplementedError(
            f"{self!r} has no closed-form log; SO(2) and SO(3) have. Here tangent(x, y - x) agrees with it to second order."
        )

    def _compose(self, g: Tensor, h: Tensor) -> Tensor:
        return g @ h

    def _inverse(self, g: Tensor) -> Tensor:
        return g.mT

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Haar measure."""
        q = haar(torch.randn(*batch, *self.shape, generator=generator, dtype=dtype, device=device))
        sign = torch.where(torch.linalg.det(q) < 0, -1.0, 1.0).to(dtype)
        return torch.cat([q[..., :1] * sign[..., None, None], q[..., 1:]], -1)

    def extra_repr(self) -> str:
        return f"{self.n}"


def turn(cs: Tensor) -> Tensor:
    """(cos, sin) -> the 2x2 rotation."""
    c, s = cs.unbind(-1)
    return torch.stack([c, -s, s, c], -1).unflatten(-1, (2, 2))


def haar(g: Tensor) -> Tensor:
    """Orthonormal columns, uniformly distributed, from a Gaussian matrix: QR with a positive diagonal, polished."""
    q, r = torch.linalg.qr(g)
    sign = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(g.dtype)
    return polish(q * sign[..., None, :])


def _basis(n: int) -> Tensor:
    """(dim, n n): the algebra elements of the coordinate axes."""
    pairs = [(i, j) for i in range(n) for j in range(i)] if n != 3 else [(2, 1), (0, 2), (1, 0)]
    e = torch.zeros(len(pairs), n, n, dtype=torch.float64)
    for k, (i, j) in enumerate(pairs):
        e[k, i, j], e[k, j, i] = 1, -1
    return e.flatten(-2)
