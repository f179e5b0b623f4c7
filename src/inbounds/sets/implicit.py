"""Sets that are given by functions: equations and inequalities of one point."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core import eager
from ..solvers import NOT_CONVERGED, Solution
from ..solvers.implicit import nearest_implicit
from ..solvers.jets import Constraints, derivatives, joined, lengths
from ..solvers.landing import Answer
from ..solvers.linear import redundant_kkt
from .polytope import nearest_point
from .solved import SolvedSet, refuse_second_derivatives

Function = Callable[..., Tensor]
PROBES = (-7.0, -1.0, 1.0, 3.0, 30.0)  # sizes of points at which a function is tried whose gradient is 0 at an ordinary one
ACTIVE = 256  # units of rounding: landing goes up to 128 inside


class Implicit(SolvedSet):
    """{p : eq(p) = 0, ineq(p) <= 0} for plain torch functions of one point, or of a point and its context: eq(p, c).

    Each function takes one point of shape `shape` and returns a number or a vector; it is vmapped inside. context: the shape of
    one context; then write M.project(x, context=c). Gradients reach x, the context and the parameters inside the functions; there
    is no second derivative. `ok` means feasible and stationary; it is the nearest point of all if the set is convex. On other
    sets more `restarts` find nearer points, and restarts=None takes the first point that is found, which is faster. `sample`
    projects noise: it is not uniform. Functions are computed in float64 where they allow it.
    """

    def __init__(
        self,
        shape: int | tuple[int, ...],
        eq: Function | None = None,
        ineq: Function | None = None,
        context: int | tuple[int, ...] | None = None,
        restarts: int | None = 0,
        on_fail: str = "raise",
    ):
        super().__init__(on_fail)
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.context_shape = (context,) if isinstance(context, int) else None if context is None else tuple(context)
        if eq is None and ineq is None:
            raise ValueError("Implicit asked for eq or ineq, got neither. The whole space is Euclidean(*shape).")
        for name, f in (("eq", eq), ("ineq", ineq)):
            if f is not None and not callable(f):
                raise TypeError(
                    f"Implicit asked for {name} as a function of one point, got {type(f).__name__}. Write lambda p: p @ p - 1."
                )
        if restarts is not None and (not isinstance(restarts, int) or restarts < 0):
            raise ValueError(f"Implicit asked for restarts >= 0, a whole number, or None, got {restarts!r}.")
        self.eq, self.ineq, self.restarts = eq, ineq, restarts
        self.both: Callable[..., tuple[Tensor, ...]] | None = None  # eq and ineq in one call, where they share work
        self.batched = False  # whether `both` maps over leading batch dims by itself
        self.context: Tensor | None = None
        self.double_precision = self._allows_double()
        self.counts = self._try_out()

    # --- the functions -----------------------------------------------------------------------------------
    def _allows_double(self) -> bool:
        """Whether the functions take float64: those that hold float32 parameters do not."""
        if not eager():
            return True
        for f in (self.eq, self.ineq):
            tensors = [t for t in f.parameters()] + [t for t in f.buffers()] if isinstance(f, torch.nn.Module) else []
            if any(t.dtype == torch.float32 for t in tensors):
                return False
        point, context = self._probe(torch.float64)
        for f in (self.eq, self.ineq):
            try:
                if f is not None and torch.as_tensor(self._call(f, point, context)).dtype != torch.float64:
                    return False
            except RuntimeError as error:
                if "dtype" not in str(error) and "Float" not in str(error):
                    raise
                return False
        return True

    def _probe(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """An ordinary point, and a context."""
        g = torch.Generator().manual_seed(0)
        point = 0.5 + 0.1 * torch.randn(self.shape, generator=g, dtype=torch.float64)
        if self.context_shape is None:
            return point.to(dtype), None
        return point.to(dtype), (0.5 + 0.1 * torch.randn(self.context_shape, generator=g, dtype=torch.float64)).to(dtype)

    def _call(self, f: Function, point: Tensor, context: Tensor | None) -> Tensor:
        try:
            return f(point) if context is None else f(point, context)
        except TypeError as error:
            if "positional argument" not in str(error):
                raise
            name = "eq" if f is self.eq else "ineq"
            wanted = f"{name}(p, c), a point and its context" if context is not None else f"{name}(p), a point"
            fix = "Leave context out" if context is not None else "Say the shape of one context: context=(2,)"
            raise TypeError(f"Implicit asked for {wanted}, got a function with other arguments: {error}. {fix}.") from None

    def _try_out(self) -> tuple[int, int]:
        """How many equalities and inequalities there are; refuses functions that cannot be used."""
        if not eager():
            return 0, 0
        dtype = torch.float64 if self.double_precision else torch.float32
        counts = []
        for name, f in (("eq", self.eq), ("ineq", self.ineq)):
            if f is None:
                counts.append(0)
                continue
            point, context = self._probe(dtype)
            with torch.enable_grad():
                point = point.requires_grad_()
                try:
                    value = self._call(f, point, context)
                except RuntimeError as error:
                    if "numpy()" not in str(error):
                        raise
                    raise self._not_differentiable(name) from None
            if not isinstance(value, Tensor):
                raise TypeError(
                    f"Implicit asked for {name} to return a tensor, got {type(value).__name__}. Write torch.stack([...])."
                )
            if value.dim() > 1:
                raise ValueError(
                    f"Implicit asked for {name} to return a number or a vector for one point of shape {self.shape}, got shape "
                    f"{tuple(value.shape)}. Flatten it: {name}=lambda p: f(p).flatten(). Batches are made inside, by vmap."
                )
            slope: Tensor | None = torch.autograd.grad(value.sum(), point, allow_unused=True)[0] if value.requires_grad else None
            if slope is None or (not slope.any() and self._jumps(f, point.detach(), context)):
                raise self._not_differentiable(name)
            counts.append(value.numel())
        return counts[0], counts[1]

    def _not_differentiable(self, name: str) -> ValueError:
        return ValueError(
            f"Implicit asked for {name} to be a differentiable function of the point, got one that does not depend on it "
            f"(or leaves torch, by .item(), numpy or rounding). Write it with torch operations on p."
        )

    def _jumps(self, f: Function, point: Tensor, context: Tensor | None) -> bool:
        """Whether the values change from point to point while every gradient is 0: rounding, or comparisons."""
        values, slopes = [], []
        for scale in PROBES:
            with torch.enable_grad():
                p = (scale * point).requires_grad_()
                value = self._call(f, p, context)
                weight = torch.linspace(1, 2, value.numel(), dtype=value.dtype)  # gradients may cancel in a plain sum
                total = (weight * value.reshape(-1)).sum()
                slope = torch.autograd.grad(total, p, allow_unused=True, materialize_grads=True)[0]
            values.append(value.detach())
            slopes.append(bool(slope.any()))
        return not any(slopes) and not all(torch.equal(v, values[0]) for v in values)

    def _given(self, context: Tensor) -> Implicit:
        """The set of a context (*batch, *context): one context per point."""
        if self.context_shape is None:
            raise TypeError(
                f"{self!r} does not depend on a context, but one was given. Say its shape: Implicit(..., context=(2,))."
            )
        d = len(self.context_shape)
        if context.shape[context.dim() - d :] != self.context_shape:
            raise ValueError(
                f"{self!r} asked for a context of shape (*batch, {', '.join(map(str, self.context_shape))}), got "
                f"{tuple(context.shape)}."
            )
        other = copy.copy(self)
        other.context = context
        return other

    def _rows(self, x: Tensor) -> tuple[torch.Size, Tensor, Tensor | None]:
        """The batch shape, x as (R, n), the context as (R, *context), in the dtype the functions are computed in."""
        dtype = torch.float64 if self.double_precision else torch.float32
        if self.context_shape is None:
            batch, c = x.shape[: x.dim() - len(self.shape)], None
        else:
            if self.context is None:
                raise TypeError(f"{self!r} depends on a context, but none was given. Write M.project(x, context=c).")
            d = len(self.context_shape)
            own, mine = x.shape[: x.dim() - len(self.shape)], self.context.shape[: self.context.dim() - d]
            try:
                batch = torch.broadcast_shapes(own, mine)
            except RuntimeError:
                raise ValueError(
                    f"{self!r} asked for one context per point, got points of shape {tuple(x.shape)} and a context of shape "
                    f"{tuple(self.context.shape)}. Their batch dims must broadcast."
                ) from None
            c = self.context.to(dtype).expand(*batch, *self.context_shape).reshape(math.prod(batch), *self.context_shape)
        rows = x.to(dtype).expand(*batch, *self.shape).reshape(math.prod(batch), math.prod(self.shape))
        return batch, rows, c

    def _parts(self, y: Tensor, context: Tensor | None) -> list[Tensor]:
        """(R, n) -> (R, equalities), (R, inequalities), those that there are."""
        if not len(y):
            return [y[:, :1].expand(0, k) for k in self.counts if k]
        points = (y.reshape(len(y), *self.shape),) if context is None else (y.reshape(len(y), *self.shape), context)
        values = self._of_one_point(*points) if self.batched else torch.func.vmap(self._of_one_point, randomness="same")(*points)
        return [v[:, None] if v.dim() == 1 else v for v in values]

    def _of_one_point(self, *point: Tensor) -> tuple[Tensor, ...]:
        if self.both is not None:
            return self.both(*point)
        return tuple(f(*point) for f in (self.eq, self.ineq) if f is not None)

    def _values(self, y: Tensor, context: Tensor | None) -> Tensor:
        """(R, n) -> (R, k): equalities, then inequalities."""
        return joined(self._parts(y, context))

    def _constraints(self, context: Tensor | None) -> Constraints:
        fixed = None if context is None else context.detach()

        def parts(y: Tensor, rows: Tensor) -> list[Tensor]:
            return self._parts(y, None if fixed is None else fixed.index_select(0, rows))

        return Constraints(parts, self.counts[0])

    # --- projection --------------------------------------------------------------------------------------
    def _answer(self, x: Tensor) -> tuple[torch.Size, Tensor, Tensor | None, Answer]:
        if not eager():
            raise RuntimeError(
                f"{self!r} cannot be projected on inside torch.compile(fullgraph=True), vmap, export or ONNX: its solver "
                f"looks at values. Call it outside of them; it takes any batch dims itself. Polytope and the closed-form sets "
                f"can be used inside."
            )
        batch, rows, context = self._rows(x)
        with torch.no_grad():
            answer = nearest_implicit(rows.detach(), self._constraints(context), self.restarts, torch.finfo(x.dtype).eps)
        return batch, rows, context, answer

    def _nearest(self, x: Tensor):
        batch, rows, context, a = self._answer(x)
        y = a.y
        if torch.is_grad_enabled():
            y = self._linked(rows, context, a)
        return y.to(x.dtype).reshape(*batch, *self.shape), a.status.reshape(batch)

    def _linked(self, x: Tensor, context: Tensor | None, a: Answer) -> Tensor:
        """The point with its derivative: y - x + sum l_i grad c_i = 0 and c_A = 0, differentiated in x and what c depends on."""
        l = torch.where(a.active, a.l, 0.0)
        push = torch.zeros_like(a.y)
        free = torch.zeros_like(l)
        learns = self._learns(a.y, context)
        if not (x.requires_grad or learns):
            return a.y
        if learns:
            free = self._values(a.y, context)  # a graph that ends at the context and the parameters
            y = a.y.detach().requires_grad_()
            (push,) = torch.autograd.grad((l * self._values(y, context)).sum(), y, create_graph=True)
        slope = lengths(a.J).clamp(min=1e-30)
        H = a.H + torch.eye(a.H.shape[1], dtype=a.H.dtype)
        active = a.active & (a.status != NOT_CONVERGED)[:, None]
        return Link.apply(x, push, free, a.y, H, a.J / slope[:, :, None], slope, active)  # pyright: ignore[reportReturnType]

    def _learns(self, y: Tensor, context: Tensor | None) -> bool:
        """Whether the values depend on something with a gradient other than the point: the context, or parameters."""
        if not len(y):
            return False
        points = (y[0].reshape(self.shape),) if context is None else (y[0].reshape(self.shape), context[0])
        return any(v.requires_grad for v in self._of_one_point(*points))

    def _solve(self, x: Tensor):
        batch, rows, _, a = self._answer(x)
        k = sum(self.counts)
        point = torch.where(torch.isfinite(rows).all(1, keepdim=True), a.y, math.nan)
        return Solution(
            point.to(x.dtype).reshape(*batch, *self.shape),
            a.violation.reshape(batch),
            a.error.reshape(batch),
            a.l.reshape(*batch, k),
            a.active.reshape(*batch, k),
            a.status.reshape(batch),
            a.steps.reshape(batch),
        )

    # --- the rest of the contract ------------------------------------------------------------------------
    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        batch, rows, context = self._rows(x)
        c = self._values(rows, context).to(x.dtype).reshape(*batch, sum(self.counts))
        return c[..., : self.counts[0]], c[..., self.counts[0] :]

    def _jacobian(self, rows: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        """Values and Jacobian, differentiable where somebody asks for it."""
        create = torch.is_grad_enabled() and (rows.requires_grad or self._values(rows, context).requires_grad)
        with torch.enable_grad():
            y = rows if rows.requires_grad else rows.detach().requires_grad_()
            c = self._values(y, context)
            J = derivatives(c, y, create=create)
        return (c, J) if create else (c.detach(), J.detach())

    def _scale(self, x: Tensor) -> Tensor | float:
        batch, rows, context = self._rows(x.detach())
        _, J = self._jacobian(rows, None if context is None else context.detach())
        slope = torch.where(torch.isfinite(J), J, 0.0).norm(dim=2).amax(1).detach()
        return (slope * (rows.norm(dim=1) + 1)).to(x.dtype).reshape(batch)

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        batch, rows, context = self._rows(x)
        p, eps = self.counts[0], torch.finfo(x.dtype).eps
        c, J = (t.double() for t in self._jacobian(rows, context))
        slope = J.detach().norm(dim=2).clamp(min=1e-30)
        N = J / slope[:, :, None]
        active = c.detach()[:, p:] / slope[:, p:] > -ACTIVE * eps * (rows.detach().double().norm(dim=1, keepdim=True) + 1e-30)
        zero = torch.where(active, 0.0, math.inf).to(N.dtype)
        u = v.expand(*batch, *self.shape).reshape(rows.shape).double()
        w, _ = nearest_point(u, N[:, p:], zero, N[:, :p], N.new_zeros(len(u), p), N.new_zeros(0, 0), fine=0, eps=eps, land=0.0)
        return w.to(x.dtype).reshape(*batch, *self.shape)

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        z = torch.randn(*batch, *self.shape, generator=generator, dtype=dtype, device=device)
        with torch.no_grad():
            return self._project(z)

    def extra_repr(self) -> str:
        shape = self.shape[0] if len(self.shape) == 1 else self.shape
        parts = [f"{self.counts[0]} equations"] if self.eq is not None else []
        parts += [f"{self.counts[1]} inequalities"] if self.ineq is not None else []
        parts += [f"context={self.context_shape}"] if self.context_shape is not None else []
        parts += [f"restarts={self.restarts}"] if self.restarts != 0 else []
        return f"{shape}, {', '.join(parts)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"


class Link(torch.autograd.Function):
    """The point y, with the derivative of the conditions y - x + push = 0, free_A = 0. Differentiating twice raises."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, push: Tensor, free: Tensor, y: Tensor, H: Tensor, N: Tensor, slope: Tensor, active: Tensor):
        ctx.save_for_backward(H, N, slope, active)
        return y.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        refuse_second_derivatives()
        H, N, slope, active = ctx.saved_tensors
        v, m = redundant_kkt(H, N, active, g)
        return v, -v, -torch.where(active, m / slope, 0.0), None, None, None, None, None
