"""Linear inequalities, equations and bounds, in any positive definite metric."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..core import Batch, Numbers, eager, sized
from ..kernels.derivative import looking
from ..kernels.vectors import norm
from ..solvers import FLAT, NOT_CONVERGED, Solution
from ..solvers.faces import on_these_faces
from ..solvers.operator import nearest_in_polyhedron
from ..solvers.polyhedron import LAND, Held, Pure, purify
from .affine import times
from .box import bounds_inwards
from .solved import SolvedSet


class Polytope(SolvedSet):
    """{x in R^n : A x <= b, E x = f, low <= x <= high}; the nearest point y minimises (y - x)^T W (y - x), W = `weight` or I.

    A (*batch, m, n), b (*batch, m), E (*batch, p, n), f (*batch, p), low and high (*batch, n), weight (*batch, n, n) positive
    definite; all of them optional. Batch dims are those of x: every row may have its own constraints. Redundant constraints are
    welcome. `sample` is hit-and-run: approximately uniform where the polytope is bounded.
    """

    reach = math.inf
    A: Tensor
    b: Tensor
    E: Tensor
    f: Tensor
    low: Tensor
    high: Tensor
    weight: Tensor

    def __init__(
        self,
        A: Numbers = None,
        b: Numbers = None,
        E: Numbers = None,
        f: Numbers = None,
        low: Numbers = None,
        high: Numbers = None,
        weight: Numbers = None,
        on_fail: str = "raise",
    ):
        super().__init__(on_fail)
        given = {"A": A, "b": b, "E": E, "f": f, "low": low, "high": high, "weight": weight}
        self._given_names = [k for k, v in given.items() if v is not None]
        values = {k: self._constant(k, v, finite=k in ("A", "E", "f", "weight")) for k, v in given.items() if v is not None}
        n = self._size(values)
        self.shape = (n,)
        empty = {"A": (0, n), "b": (0,), "E": (0, n), "f": (0,), "low": (0,), "high": (0,), "weight": (0, 0)}
        for name, shape in empty.items():
            if name not in values:
                self.register_buffer(name, torch.zeros(shape, dtype=torch.float64), persistent=False)
        self._check(values)
        self._low, self._high = (self._finite_bounds(k) for k in ("low", "high"))
        self.shared = not any(self._batch_of(k) for k in values)  # one set of constraints for all points

    def _size(self, values: dict[str, Tensor]) -> int:
        """n, from whichever argument tells it; every other one must agree."""
        who = type(self).__name__
        for matrix, vector in (("A", "b"), ("E", "f")):
            if (matrix in values) != (vector in values):
                raise ValueError(f"{who} asked for {matrix} and {vector} together, got only one of them.")
            if matrix not in values:
                continue
            M, v = values[matrix], values[vector]
            if M.dim() < 2:
                raise ValueError(
                    f"{who} asked for {matrix} of shape (*batch, m, n), one row per constraint, got {tuple(M.shape)}. "
                    f"Write {matrix}[None] for a single row."
                )
            if v.dim() < 1 or v.shape[-1] != M.shape[-2]:
                raise ValueError(
                    f"{who} asked for {vector} of shape (*batch, {M.shape[-2]}), one number per row of {matrix} "
                    f"{tuple(M.shape)}, got {tuple(v.shape)}."
                )
        sizes = {k: values[k].shape[-1] for k in ("A", "E", "weight") if k in values}
        sizes |= {k: values[k].shape[-1] for k in ("low", "high") if k in values and values[k].dim()}
        if not sizes:
            raise ValueError(f"{who} asked for at least one of A, E, low, high with a last dim n, got none. Use Euclidean(n).")
        if len(set(sizes.values())) > 1:
            raise ValueError(f"{who} asked for constraints on one number of variables, got {sizes}.")
        return next(iter(sizes.values()))

    def _check(self, values: dict[str, Tensor]) -> None:
        who, n = type(self).__name__, self.shape[0]
        try:
            torch.broadcast_shapes(*(self._batch_of(k) for k in values))
        except RuntimeError:
            shapes = {k: tuple(v.shape) for k, v in values.items()}
            raise ValueError(
                f"{who} asked for batch dims that broadcast, got {shapes}. Give every argument the batch dims of x, or none."
            ) from None
        if "b" in values:
            self._require(values["b"] > -math.inf, lambda: f"{who} asked for b > -inf, got {values['b'].tolist()}.")
        if "low" in values and "high" in values:
            low, high = values["low"], values["high"]
            self._require(low <= high, lambda: f"{who} asked for low <= high, got low={low.tolist()}, high={high.tolist()}.")
        if "weight" in values:
            W = values["weight"]
            if W.dim() < 2 or W.shape[-2] != n:
                raise ValueError(f"{who} asked for a weight of shape (*batch, {n}, {n}), got {tuple(W.shape)}.")
            if eager() and not W.is_meta:
                same = (W - W.mT).abs().amax((-2, -1)) <= 1e-5 * W.abs().amax((-2, -1))
                good = torch.linalg.cholesky_ex(W.detach().double())[1] == 0
                self._require(
                    good & same,
                    lambda: f"{who} asked for a symmetric positive definite weight, got one that is not. Add to its diagonal.",
                )

    def _batch_of(self, name: str) -> torch.Size:
        t = getattr(self, name)
        own = 2 if name in ("A", "E", "weight") else 1
        return t.shape[: max(0, t.dim() - own)]

    def _finite_bounds(self, name: str) -> Tensor | None:
        """Indices of the coordinates that are bounded in some row; all of them where values cannot be looked at."""
        t = getattr(self, name)
        if name not in self._given_names:
            return torch.zeros(0, dtype=torch.long)
        index = torch.arange(self.shape[0])
        if not eager() or t.is_meta or name in self._parameters:
            return index
        finite = torch.isfinite(t.detach()).reshape(-1, t.shape[-1] if t.dim() else 1).any(0).expand(self.shape[0])
        return index[finite.cpu()]

    # --- the constraints as one list ---------------------------------------------------------------------
    def _parts(self, x: Tensor) -> dict[str, Tensor]:
        """The arguments as they are in x's dtype, in float64."""
        both = self.low.numel() and self.high.numel()  # an absent bound has no entries
        low, high = bounds_inwards(self, x) if both else (self._cast("low", x, towards=1), self._cast("high", x, towards=-1))
        rest = {k: self._cast(k, x).double() for k in ("A", "b", "E", "f", "weight")}
        return {**rest, "low": low.double(), "high": high.double()}

    def _faces(self, parts: dict[str, Tensor]) -> tuple[Tensor, Tensor, int]:
        """A (*batch, m, n), b (*batch, m) with the bounds as last rows, and how many bounds there are."""
        n = self.shape[0]
        A, b = parts["A"], parts["b"]
        eye = torch.eye(n, dtype=A.dtype, device=A.device)
        rows, ends = [], []
        for name, index, sign in (("low", self._low, -1.0), ("high", self._high, 1.0)):
            if index is not None and len(index):
                index = index.to(A.device)
                bound = parts[name]
                bound = bound.expand(*bound.shape[:-1], n) if bound.dim() else bound.expand(n)
                rows.append(sign * eye[index])
                ends.append(sign * bound[..., index])
        if not rows:
            return A, b, 0
        extra = torch.cat(rows)
        A = torch.cat([A, extra.expand(*A.shape[:-2], *extra.shape)], -2)
        batch = torch.broadcast_shapes(b.shape[:-1], *(e.shape[:-1] for e in ends))
        return A, torch.cat([e.expand(*batch, e.shape[-1]) for e in (b, *ends)], -1), len(extra)

    def _flatten(self, x: Tensor, *parts: tuple[Tensor, int]) -> tuple[torch.Size, list[Tensor]]:
        """The batch shape, x as (R, n), and every part shared, or with R rows."""
        own = [t.shape[: t.dim() - d] for t, d in parts]
        try:
            batch = torch.broadcast_shapes(x.shape[:-1], *own)
        except RuntimeError:
            raise ValueError(
                f"{self!r} has constraints for a batch of shape {tuple(torch.broadcast_shapes(*own))}, got points of shape "
                f"{tuple(x.shape)}. Give one point per set of constraints."
            ) from None
        rows = [x.expand(*batch, x.shape[-1]).reshape(math.prod(batch), x.shape[-1])]
        for (t, d), b in zip(parts, own, strict=True):
            tail = t.shape[t.dim() - d :]
            shared = math.prod(b) == 1 and (not b or batch != b or math.prod(batch) != 1)
            rows.append(t.reshape(tail) if shared else t.expand(*batch, *tail).reshape(math.prod(batch), *tail))
        return batch, rows

    def _problem(self, x: Tensor):
        """The batch shape; x and the constraints as rows; how many of them are bounds; and what follows from constant ones."""
        if self.shared and not any(getattr(self, k).requires_grad for k in self._given_names):
            rows, fine, pure = self._derived("problem", x, tuple(self._given_names), lambda: self._shared_problem(x))
            return x.shape[:-1], [x.double().reshape(-1, x.shape[-1]), *rows], fine, pure
        parts = self._parts(x)
        A, b, fine = self._faces(parts)
        batch, rows = self._flatten(x.double(), (A, 2), (b, 1), (parts["E"], 2), (parts["f"], 1), (parts["weight"], 2))
        return batch, rows, fine, None

    def _shared_problem(self, x: Tensor):
        """The constraints, how many of them are bounds, and their turned form where values can be looked at."""
        parts = self._parts(x)
        A, b, fine = self._faces(parts)
        rows = (A, b, parts["E"], parts["f"], parts["weight"])
        return rows, fine, purify(*rows) if looking(x) else None

    # --- projection --------------------------------------------------------------------------------------
    def _nearest(self, x: Tensor):
        batch, rows, fine, pure = self._problem(x)
        y, status = nearest_point(*rows, fine=fine, eps=torch.finfo(x.dtype).eps, land=LAND + self.shape[0] / 32, pure=pure)
        return y.to(x.dtype).reshape(*batch, *self.shape), status.reshape(batch)

    def _solve(self, x: Tensor):
        batch, rows, fine, pure = self._problem(x)
        eps = torch.finfo(x.dtype).eps
        answer, _ = nearest_in_polyhedron(*rows, fine=fine, eps=eps, land=LAND + self.shape[0] / 32, pure=pure)
        point, l, J, chosen, _, status, count, optimality = answer
        z, A, b, E, f, W = rows
        R, m = len(z), A.shape[-2]
        faces = z.new_zeros(R, m + 1).scatter(1, J, l)[:, :m]
        push = (W @ (z - point)[:, :, None])[:, :, 0] if W.numel() else z - point
        push = push - (faces[:, None] @ A.expand(R, m, -1))[:, 0]
        kept = torch.where(chosen[..., None], E, 0.0).expand(R, *E.shape[-2:])
        equal = (torch.linalg.pinv(kept.mT) @ push[:, :, None])[:, :, 0]
        active = torch.zeros(R, m + 1, dtype=torch.bool).scatter(1, J, True)[:, :m]
        over = (times(A, point) - b) / norm(A).clamp(min=1e-300)
        off = (times(E, point) - f).abs() / norm(E).clamp(min=1e-300)
        worst = torch.cat([over, off.expand(R, E.shape[-2]), z.new_full((R, 1), -math.inf)], 1).amax(1)
        lost = ~torch.isfinite(z).all(1)
        status = torch.where(lost, NOT_CONVERGED, status)
        point = torch.where(lost[:, None], math.nan, point)
        wide = self._wide_faces(faces, active, fine)
        return Solution(
            point.to(x.dtype).reshape(*batch, *self.shape),
            worst.reshape(batch),
            optimality.reshape(batch),
            torch.cat([equal, wide[0]], 1).reshape(*batch, -1) if R else wide[0].reshape(*batch, E.shape[-2] + wide[0].shape[1]),
            torch.cat([torch.ones_like(equal, dtype=torch.bool), wide[1]], 1).reshape(*batch, E.shape[-2] + wide[1].shape[1]),
            status.reshape(batch),
            count.reshape(batch),
        )

    def _wide_faces(self, l: Tensor, active: Tensor, fine: int) -> tuple[Tensor, Tensor]:
        """One column per row of A, then one per entry of low and of high, also of the infinite ones."""
        n, own = self.shape[0], self.A.shape[-2]
        columns = [torch.arange(own)]
        total = own
        for name, index in (("low", self._low), ("high", self._high)):
            if index is not None and name in self._given_names:
                columns.append(total + index)
                total += n
        at = torch.cat(columns).to(l.device).expand(len(l), -1)
        return (l.new_zeros(len(l), total).scatter(1, at, l), active.new_zeros(len(l), total).scatter(1, at, active))

    # --- the rest of the contract ------------------------------------------------------------------------
    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """In float64, then rounded: an inequality that holds is not turned by the rounding of a long sum."""
        parts, z = self._parts(x), x.double()
        eq = times(parts["E"], z) - parts["f"]
        ineq = [times(parts["A"], z) - parts["b"]]
        ineq += [parts["low"] - z] if "low" in self._given_names else []
        ineq += [z - parts["high"]] if "high" in self._given_names else []
        batch = torch.broadcast_shapes(eq.shape[:-1], *(r.shape[:-1] for r in ineq))
        return eq.expand(*batch, eq.shape[-1]).to(x.dtype), torch.cat([r.expand(*batch, r.shape[-1]) for r in ineq], -1).to(
            x.dtype
        )

    def _isometric(self, v: Tensor) -> Tensor:
        """L^T v, where L L^T = W: its Euclidean length is the length of v in the metric of `weight`."""
        if "weight" not in self._given_names:
            return v
        return times(torch.linalg.cholesky(self._cast("weight", v).double()).mT, v.double()).to(v.dtype)

    def _units(self, parts: dict[str, Tensor], A: Tensor, b: Tensor, z: Tensor) -> Tensor:
        """|A_i||x| + |b_i|: what the rounding of A x - b is relative to, (*batch, m)."""
        return norm(A) * norm(z)[..., None] + torch.where(torch.isfinite(b), b.abs(), 0.0)

    def _scale(self, x: Tensor) -> Tensor | float:
        parts, z = self._parts(x), x.double()
        A, b, _ = self._faces(parts)
        units = [self._units(parts, A, b, z), self._units(parts, parts["E"], parts["f"], z)]
        batch = torch.broadcast_shapes(*(u.shape[:-1] for u in units))
        return torch.cat([u.expand(*batch, u.shape[-1]) for u in units], -1).amax(-1).to(x.dtype)

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        """The nearest w to v with A_i w <= 0 for the active faces and E w = 0."""
        parts, z = self._parts(x), x.double()
        A, b, _ = self._faces(parts)
        skin = 4 * (LAND + self.shape[0] / 32) * torch.finfo(x.dtype).eps
        active = (b - times(A, z)).detach() <= skin * self._units(parts, A, b, z).detach()
        zero = torch.where(active, 0.0, math.inf).to(z.dtype)
        f = torch.zeros_like(parts["f"])
        batch, rows = self._flatten(v.double(), (A, 2), (zero, 1), (parts["E"], 2), (f, 1), (parts["weight"], 2))
        y, _ = nearest_point(*rows, fine=0, eps=torch.finfo(x.dtype).eps, land=0.0)
        return y.to(x.dtype).reshape(*batch, *self.shape)

    def _sample(self, batch: Batch, generator: torch.Generator | None, dtype: torch.dtype, device: torch.device) -> Tensor:
        like = torch.empty(*batch, *self.shape, dtype=dtype, device=device)
        with torch.no_grad():
            return self._project(hit_and_run(self, like, generator))

    def extra_repr(self) -> str:
        shown = [f"{k}={sized(getattr(self, k))}" if k not in ("A", "b") else sized(getattr(self, k)) for k in self._given_names]
        return ", ".join(shown)


def nearest_point(
    x: Tensor,
    A: Tensor,
    b: Tensor,
    E: Tensor,
    f: Tensor,
    W: Tensor,
    fine: int,
    eps: float,
    land: float,
    pure: Pure | None = None,
) -> tuple[Tensor, Tensor]:
    """The nearest point (R, n) in float64, differentiable in every tensor, and the status (R,)."""
    (point, _, J, chosen, Q, status, _, _), held = nearest_in_polyhedron(x, A, b, E, f, W, fine, eps, land, pure)
    args = (x, A, b, E, f, W)
    plain = not torch._C._are_functorch_transforms_active() and forward_ad._current_level < 0
    if plain and not (torch.is_grad_enabled() and any(t.requires_grad for t in args)):
        return point, status
    constant = plain and not any(t.requires_grad for t in (A, E, W))
    if constant and held is not None and not (b.requires_grad or f.requires_grad):
        return Attached.apply(x, point, held), status  # pyright: ignore[reportReturnType]
    J = torch.where((status > FLAT)[:, None], A.shape[-2], J)
    x = torch.where(torch.isfinite(x).all(1, keepdim=True), x, 0.0)
    path = on_these_faces(x, A, b, E, f, W, J, chosen, Q, constant)
    return point + (path - path.detach()), status


class Attached(torch.autograd.Function):
    """The point, with the derivative `held` in x, which is a symmetric matrix that does not depend on x nearby."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, point: Tensor, held: Held) -> Tensor:
        ctx.held = held
        return point.view_as(point)

    @staticmethod
    def backward(ctx: Any, g: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        return ctx.held(g), None, None


def hit_and_run(M: Polytope, like: Tensor, generator: torch.Generator | None, steps: int | None = None) -> Tensor:
    """Random lines through the polytope, a uniform point on each in turn; where a line is unbounded, an exponential step."""
    n = M.shape[0]
    how: dict[str, Any] = {"generator": generator, "device": like.device, "dtype": torch.float64}
    parts = M._parts(like)
    (A, b, _), E = M._faces(parts), parts["E"]
    inverse = torch.linalg.pinv(E)
    size = float(torch.where(torch.isfinite(b), b.abs(), 0.0).max()) if b.numel() else 1.0
    start = M.project((1 + size) * torch.randn(2 * n + 2, *like.shape, **how)).mean(0)
    y = start.double()
    if not A.shape[-2]:
        return start.to(like.dtype)
    for _ in range(steps or 8 * n + 16):
        v = torch.randn(like.shape, **how)
        v = v - times(inverse, times(E, v))
        v = v / norm(v).clamp(min=1e-300)[..., None]
        speed, room = times(A, v), (b - times(A, y)).clamp(min=0)
        tiny = speed.abs() <= 1e-12
        up = torch.where(~tiny & (speed > 0), room / torch.where(tiny, 1.0, speed), math.inf).amin(-1)
        down = torch.where(~tiny & (speed < 0), room / torch.where(tiny, -1.0, -speed), math.inf).amin(-1)
        u = torch.rand(like.shape[:-1], **how)
        tail = -(1 + size) * torch.log1p(-torch.rand(like.shape[:-1], **how))
        up, down = torch.minimum(up, tail), torch.minimum(down, tail)
        y = y + (u * (up + down) - down)[..., None] * v
    return y.to(like.dtype)


class Halfspaces(Polytope):
    """{x in R^n : A x <= b}, A (*batch, m, n): m faces of one set. Halfspace(a, b) is a batch of sets with one face."""

    def __init__(self, A: Numbers, b: Numbers, on_fail: str = "raise"):
        super().__init__(A=A, b=b, on_fail=on_fail)
