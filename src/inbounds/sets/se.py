"""Rigid motions as matrices."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import LieGroup, check_size, working_dtype
from ..kernels.exponential import longest_exponent, matrix_exp, shortened
from ..kernels.se3 import se3_exp, se3_log
from ..kernels.stumpff import stumpff
from ..kernels.vectors import norm
from .so import SO


class SE(LieGroup):
    """Rigid motions: matrices [[R, t], [0, 1]] of shape (n+1, n+1), R in SO(n).

    `exp` is the geodesic of the ambient metric (R turns, t moves straight); `group_exp` is the matrix exponential
    (a screw motion). They are different maps. Coordinates are (rotation, translation).
    `geodesic_distance` is sqrt(2 angle^2 + |t - s|^2), in the Frobenius norm; `angle` is that of the rotations alone.
    """

    reach = math.sqrt(2)

    def __init__(self, n: int):
        super().__init__()
        check_size("SE", n)
        if n < 2:
            raise ValueError(f"SE asked for n >= 2, got {n}. Motions of a line are Euclidean(1).")
        self.n, self.shape = n, (n + 1, n + 1)
        self.rotation = SO(n)
        self.dim = self.rotation.dim + n

    def split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """R (*batch, n, n) and t (*batch, n, 1)."""
        return x[..., : self.n, : self.n], x[..., : self.n, self.n :]

    def join(self, R: Tensor, t: Tensor, corner: float = 1.0) -> Tensor:
        """The matrix of a rotation and a translation."""
        top = torch.cat([R, t], -1)
        last = torch.zeros_like(top[..., :1, :])
        last = torch.cat([last[..., :-1], last[..., -1:] + corner], -1)
        return torch.cat([top, last], -2)

    def _project(self, x: Tensor) -> Tensor:
        R, t = self.split(x)
        return self.join(self.rotation._project(R), t)

    def _last_row(self, x: Tensor) -> Tensor:
        return torch.cat([x[..., self.n, : self.n], x[..., self.n, self.n :] - 1], -1)

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        eq, none = self.rotation._residuals(self.split(x)[0])
        return torch.cat([eq, self._last_row(x)], -1), none

    def _violation(self, x: Tensor) -> Tensor:
        """|R R^T - I|_F + |det R - 1| + max |last row - (0, .., 0, 1)|, the paper's metric."""
        return self.rotation._violation(self.split(x)[0]) + self._last_row(x).abs().amax(-1)

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        (R, _), (vR, vt) = self.split(x), self.split(v)
        return self.join(self.rotation._tangent(R, vR), vt, 0.0)

    def _uniqueness_margin(self, x: Tensor) -> Tensor:
        return self.rotation.uniqueness_margin(self.split(x)[0]) + self._poison(x)[..., 0, 0]

    def _exp(self, x: Tensor, v: Tensor) -> Tensor:
        (R, t), (vR, vt) = self.split(x), self.split(v)
        return self.join(self.rotation._exp(R, vR), t + vt)

    def _log(self, x: Tensor, y: Tensor) -> Tensor:
        (R, t), (S, s) = self.split(x), self.split(y)
        return self.join(self.rotation._log(R, S), s - t, 0.0)

    def _transport(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        (R, _), (S, _), (vR, vt) = self.split(x), self.split(y), self.split(v)
        return self.join(self.rotation._transport(R, S, vR), vt, 0.0)

    def _log_volume(self, x: Tensor, v: Tensor) -> Tensor:
        return self.rotation._log_volume(self.split(x)[0], self.split(v)[0])

    def angle(self, x: Tensor, y: Tensor) -> Tensor:
        """The angle in radians, 0 to pi, between the rotations of x and y, with gradient 0 where they are equal. For n = 2, 3."""
        x, y = self._enter("angle", x, y)
        return self.rotation.angle(self.split(x)[0], self.split(y)[0])

    def _refine(self, x: Tensor) -> Tensor:
        R, t = self.split(x)
        return self.join(self.rotation._refine(R), t)

    def origin(self, like: Tensor) -> Tensor:
        return torch.eye(self.n + 1, dtype=working_dtype(like), device=like.device)

    def hat(self, c: Tensor) -> Tensor:
        k = self.rotation.dim
        return self.join(self.rotation.hat(c[..., :k]), c[..., k:, None], 0.0)

    def vee(self, A: Tensor) -> Tensor:
        R, t = self.split(A)
        return torch.cat([self.rotation.vee(R), t[..., 0]], -1)

    def _group_exp(self, c: Tensor) -> Tensor:
        k = self.rotation.dim
        w, v = c[..., :k], c[..., k:]
        if self.n == 3:
            short = shortened(w)
            return se3_exp(c if short is w else torch.cat([short, v], -1))
        if self.n == 2:
            w = shortened(w)
            _, c1, c2 = stumpff(w * w, 2)
            side = torch.stack([-v[..., 1], v[..., 0]], -1)
            return self.join(self.rotation._group_exp(w), (c1 * v + c2 * w * side)[..., None])
        # the translation is linear in v: a large v must not cost the rotation its digits
        w, size = shortened(w, longest_exponent(c.dtype)), norm(v.detach()).clamp(min=1)[..., None]
        R, t = self.split(matrix_exp(self.hat(torch.cat([w, v / size], -1))))
        return self.join(R, t * size[..., None])

    def _group_log(self, g: Tensor) -> Tensor:
        if self.n == 3:
            return se3_log(g)
        if self.n > 3:
            raise NotImplementedError(
                f"{self!r} has no closed-form log; SE(2) and SE(3) have. Here tangent(x, y - x) agrees with log to second order."
            )
        R, t = self.split(g)
        w = self.rotation._group_log(R)
        v = t[..., 0]
        _, c1, c2 = stumpff(w * w, 2)
        side = torch.stack([v[..., 1], -v[..., 0]], -1)
        return torch.cat([w, c1 / (2 * c2) * v + 0.5 * w * side], -1)

    def _compose(self, g: Tensor, h: Tensor) -> Tensor:
        return g @ h

    def _inverse(self, g: Tensor) -> Tensor:
        R, t = self.split(g)
        return self.join(R.mT, -(R.mT @ t))

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Haar rotations, standard normal translations."""
        R = self.rotation._sample(batch, generator, dtype, device)
        return self.join(R, torch.randn(*batch, self.n, 1, generator=generator, dtype=dtype, device=device))

    def extra_repr(self) -> str:
        return f"{self.n}"
