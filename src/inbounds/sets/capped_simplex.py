"""Shares with a total, each with a cap of its own."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import ConstraintSet, Numbers, check_size, rounded, shown, sized
from ..kernels.capped import capped
from .polytope import nearest_point


class CappedSimplex(ConstraintSet):
    """{x in R^n : 0 <= x <= cap, sum x = total}: portfolios with a largest position. cap: a number or (*batch, n)."""

    reach = math.inf
    cap: Tensor
    total: Tensor

    def __init__(self, n: int, cap: Numbers, total: Numbers = 1.0):
        super().__init__()
        check_size("CappedSimplex", n)
        if n < 1:
            raise ValueError(f"CappedSimplex asked for n >= 1 entries, got {n}.")
        self.shape = (n,)
        c, t = self._constant("cap", cap, dims=1), self._constant("total", total, dims=0)
        if c.dim() and c.shape[-1] not in (1, n):
            raise ValueError(
                f"CappedSimplex({n}) asked for a cap that is a number or of shape (*batch, {n}), got {tuple(c.shape)}."
            )
        self._require(
            (c >= 0).all() & (t >= 0).all(), lambda: "CappedSimplex asked for cap >= 0 and total >= 0, got negative ones."
        )
        room = c.detach().double().expand(*c.shape[:-1], n).sum(-1) if c.dim() else n * c.detach().double()
        self._require(
            room >= t * (1 - 1e-6),
            lambda: (
                f"CappedSimplex asked for caps that can hold the total, got a sum of caps {float(room.min()):g} below the total "
                f"{float(t.max()):g}. Raise cap to at least total / n."
            ),
        )

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """cap (*batch, n) or (1,), rounded down unless it could not hold the total then, and total (*batch, 1)."""

        def compute() -> Tensor:
            cap = self.cap if self.cap.dim() else self.cap[None]
            down, nearest = rounded(cap, x.dtype, -1), cap.to(x.dtype)
            room = down.detach().double().expand(*cap.shape[:-1], self.shape[0]).sum(-1, keepdim=True)
            return torch.where(room >= self.total.detach().to(x.dtype).double()[..., None], down, nearest)

        return self._derived("cap", x, ("cap", "total"), compute), self._cast("total", x)[..., None]

    def _project(self, x: Tensor) -> Tensor:
        return capped(torch.where(torch.isfinite(x), x, 0.0), *self._parts(x))

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        cap, total = self._parts(x)
        off = (x.double().sum(-1, keepdim=True) - total).to(x.dtype)
        over = torch.cat(torch.broadcast_tensors(-x, x - cap), -1)
        batch = torch.broadcast_shapes(off.shape[:-1], over.shape[:-1])
        return off.expand(*batch, 1), over.expand(*batch, over.shape[-1])

    def _scale(self, x: Tensor) -> Tensor | float:
        return self._parts(x)[1][..., 0].clamp(min=torch.finfo(x.dtype).tiny)

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        """Sum 0, >= 0 where x = 0, <= 0 where x = cap."""
        cap, total = self._parts(x)
        n, dtype, tol = self.shape[0], x.dtype, 16 * torch.finfo(x.dtype).eps
        batch = torch.broadcast_shapes(x.shape, v.shape, cap.shape)
        x, v, cap = (t.expand(batch).double().reshape(-1, n) for t in (x, v, cap))
        scale = total.double().expand(*batch[:-1], 1).reshape(-1, 1)
        low, high = x <= tol * scale, x >= cap - tol * scale
        eye = torch.eye(n, dtype=x.dtype, device=x.device)
        b = torch.where(torch.cat([low, high], -1), 0.0, math.inf).to(x.dtype)
        ones, zero = torch.ones_like(eye[:1]), torch.zeros_like(eye[:1, 0])
        w, _ = nearest_point(v, torch.cat([-eye, eye]), b, ones, zero, eye[:0, :0], 0, torch.finfo(torch.float64).eps, 0.0)
        return w.to(dtype).reshape(batch)

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Projected: a uniform point of the simplex, moved to the caps."""
        u = torch.rand(*batch, *self.shape, generator=generator, dtype=dtype, device=device)
        e = -torch.log1p(-u)
        return self._project(e / e.sum(-1, keepdim=True).clamp(min=torch.finfo(dtype).tiny) * self._parts(e)[1])

    def extra_repr(self) -> str:
        cap = shown("cap", self.cap) if self.cap.numel() == 1 else f", cap={sized(self.cap)}"
        return f"{self.shape[0]}" + cap + shown("total", self.total, 1.0)
