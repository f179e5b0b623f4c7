"""One linear inequality, or a batch of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import ACTIVE, LANDING, ConstraintSet, Numbers, shown, sized, skin
from ..kernels.vectors import norm


class Halfspace(ConstraintSet):
    """{x in R^n : a.x <= b}, a of shape (*batch, n), b of shape (*batch,).

    A matrix of normals is a batch of half-spaces, one for each row of the points, and not the intersection of its faces.
    """

    reach = math.inf
    a: Tensor
    b: Tensor

    def __init__(self, a: Numbers, b: Numbers = 0.0):
        super().__init__()
        normal, _ = self._constant("a", a, dims=1), self._constant("b", b, dims=0)
        if normal.dim() == 0 or normal.shape[-1] == 0:
            raise ValueError(
                f"Halfspace asked for a normal a of shape (*batch, n), got {tuple(normal.shape)}. Write Halfspace([1.0], b)."
            )
        self.shape = (normal.shape[-1],)
        self._validate()

    def _validate(self) -> None:
        size = self.a.abs().amax(-1)
        self._require(size > 0, lambda: "Halfspace asked for a nonzero normal a, got a = 0. Use Euclidean(n).")

    def _parts(self, x: Tensor):
        """Unit normal, signed distance to the boundary (*batch, 1), and the rounding of that distance at x."""
        a, b = self._cast("a", x), self._cast("b", x, towards=-1)[..., None]
        size = norm(a)[..., None]
        n, b = a / size, b / size
        shrink = 2 * math.sqrt(self.shape[0])  # so that the length of the largest x does not overflow
        tol = skin(x, self.shape[0]) * shrink * (norm(x / shrink)[..., None] + b.abs() / shrink)
        return n, (n * x).sum(-1, keepdim=True) - b, tol

    def _project(self, x: Tensor) -> Tensor:
        n, over, tol = self._parts(x)
        near = x - over * n
        # a plane through 0 and x along its normal: what is left is rounding, and 0 is the foot
        lost = (self._cast("b", x, towards=-1)[..., None] == 0) & (norm(near)[..., None] <= tol)
        near = torch.where(lost, near - near.detach(), near)
        _, rest, fine = self._parts(near)  # a far x lands near: the skin is that of the landing point
        return torch.where(over > -tol, near - (rest + LANDING * fine.detach()) * n, x)

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self._cast("a", x), self._cast("b", x, towards=-1)
        return x[..., :0], ((a * x).sum(-1) - b)[..., None]

    def _scale(self, x: Tensor) -> Tensor | float:
        return norm(self._cast("a", x)) * norm(x) + self._cast("b", x, towards=-1).abs()

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        n, over, tol = self._parts(x)
        outward = (n * v).sum(-1, keepdim=True).clamp(min=0)
        return torch.where(over >= -ACTIVE * tol, v - outward * n, v)

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return self._project(torch.randn(*batch, *self.shape, generator=generator, dtype=dtype, device=device))

    def extra_repr(self) -> str:
        if not self.batch:
            return sized(self.a) + shown("b", self.b)
        return f"a batch of {'x'.join(map(str, self.batch))} in R^{self.shape[0]}"

    def _mismatch(self) -> str:
        return f"For the points that satisfy all {self.batch[-1]} inequalities write Polytope(a, b)."
