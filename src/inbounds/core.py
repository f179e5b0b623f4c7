"""The contract: `ConstraintSet`, `Manifold`, `LieGroup`.

Public methods check their input once (`_enter`) and call the hook of the same name with an underscore;
a set writes hooks only. Hooks see float32 or float64 tensors, autocast off.

Metrics: `project`, `tangent` and `distance` are ambient (Frobenius) on every set. `inner`, `gradient`, `transport`, `exp`, `log`,
`geodesic_distance`, `log_volume` and `random_tangent` are of the metric that the set names in its docstring and in `M.metric`.
That is the ambient one, but for `Hyperboloid`. Where it is, `exp` agrees with the projection to third order; elsewhere not.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from html import escape
from typing import Any

import torch
from torch import Tensor, nn

from .fingerprint import compare_note, keep_note
from .kernels.derivative import eager, looking
from .kernels.vectors import norm, unit
from .picture import Picture, picture_of


def full_precision(x: Tensor) -> AbstractContextManager[Any]:
    """A context in which matrix products keep x's precision, whatever autocast the caller is in."""
    if x.is_meta or not torch.is_autocast_enabled(x.device.type):
        return nullcontext()
    return torch.autocast(x.device.type, enabled=False)


def skin(x: Tensor, size: int) -> float:
    """Rounding of a norm or dot product of `size` terms, relative to its scale: (4 + size/2) eps.

    A projection acts when a constraint is within one skin of violation and lands two skins inside (`LANDING`);
    a constraint is active within `ACTIVE` skins, so that `tangent` sees the boundary `project` has just landed on.
    """
    return (4 + size / 2) * torch.finfo(x.dtype).eps


Batch = tuple[int, ...]  # the leading dims of a tensor of points
Numbers = Any  # a number, nested lists of numbers, or a tensor
HALF = (torch.float16, torch.bfloat16)
LANDING = 2
FEW = 12  # numbers of a parameter that repr writes out
ACTIVE = 4 * LANDING


def require_finite(x: Tensor, who: Callable[[], str]) -> None:
    """Eager only: raise if x holds NaN or inf. Compiled code maps such rows to NaN instead."""
    if looking(x) and not _all_finite(x) and not torch.isfinite(x).all():
        bad = (~torch.isfinite(x)).nonzero()
        raise ValueError(
            f"{who()} asked for finite numbers, but {len(bad)} of {x.numel()} entries are NaN or inf, the first at "
            f"index {tuple(bad[0].tolist())}. Mend the input, or call .project(x), which maps such rows to NaN."
        )


def _all_finite(x: Tensor) -> bool:
    """True only if every entry is finite, asked where it is cheap: one sum, eager, on the CPU."""
    return eager() and x.is_cpu and math.isfinite(x.detach().sum().item())


def check_point(x: Tensor, shape: tuple[int, ...], who: Callable[[], str]) -> None:
    """Raise unless x is a floating tensor of shape (*batch, *shape)."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{who()} asked for a tensor, got {type(x).__name__}. Write torch.as_tensor(x).")
    if not x.dtype.is_floating_point:
        raise TypeError(f"{who()} asked for floating point numbers, got {x.dtype}. Write x.float().")
    if x.shape[x.dim() - len(shape) :] == shape and x.dim() >= len(shape):
        return
    fix = f"Points are the trailing dims; yours would read {tuple(x.shape[: x.dim() - len(shape)])} + {shape}."
    if x.dim() and x.shape[-1] == math.prod(shape):
        fix = f"Put nn.Unflatten(-1, {shape}) before it, or write x.unflatten(-1, {shape})."
    elif shape and math.prod(x.shape[1:]) == math.prod(shape):
        fix = f"Write x.reshape(-1, {', '.join(map(str, shape))})."
    raise ValueError(f"{who()} asked for shape (*batch, {', '.join(map(str, shape))}), got {tuple(x.shape)}. {fix}")


class ConstraintSet(nn.Module, ABC):
    """A closed set M of tensors of shape `shape`. Every method maps over leading batch dims."""

    shape: tuple[int, ...]
    reach: float | None = None
    exact: bool = True
    spreads_nan: bool = False  # whether _project by itself makes a NaN row of every row with a NaN or an infinite entry
    batch: tuple[int, ...] = ()  # the batch dims of the set's parameters: every row of points has a set of its own
    metric: str = "ambient"  # what inner, gradient, transport, exp, log and geodesic_distance measure with

    # --- what a set writes -------------------------------------------------------------------------------
    @abstractmethod
    def _project(self, x: Tensor) -> Tensor:
        """A nearest point of M."""

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError(f"{self!r} does not define residuals: write _residuals(x) -> (equalities, inequalities).")

    def _violation(self, x: Tensor) -> Tensor:
        eq, ineq = self.residuals(x)
        parts = [norm(r) for r in (eq, ineq.clamp(min=0)) if r.shape[-1]]
        return torch.stack(parts).sum(0) if parts else eq.new_zeros(eq.shape[:-1])

    def _scale(self, x: Tensor) -> Tensor | float:
        """What the rounding of the defining equations at x is relative to."""
        return 1.0

    def _isometric(self, v: Tensor) -> Tensor:
        """v in coordinates in which the metric of `project` is the Euclidean one: v itself, but for a weighted `Polytope`."""
        return v

    def _validate(self) -> None:
        """Refuse parameters for which there is no such set; called at construction, and later where they are learnable."""

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        raise NotImplementedError(f"{self!r} does not define tangent: write _tangent(x, v).")

    def _inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        return self._flat(u * v).sum(-1)

    def _gradient(self, x: Tensor, g: Tensor) -> Tensor:
        return -self._tangent(x, -g)

    def _transport(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        return self._tangent(y, v)

    def _random_tangent(self, x: Tensor, noise: Tensor) -> Tensor:
        """A tangent vector from standard normal noise in the shape of x."""
        return self._tangent(x, noise)

    def _retract(self, x: Tensor, v: Tensor) -> Tensor:
        """project(x + v), by a cheaper way where there is one."""
        return self.project(x + v)

    def _contains(self, x: Tensor, tol: float | None) -> Tensor:
        if tol is not None:
            return self.violation(x) <= tol
        unit = 64 * math.sqrt(math.prod(self.shape)) * torch.finfo(x.dtype).eps
        return self.violation(x) <= unit * self._scale(x)

    def _uniqueness_margin(self, x: Tensor) -> Tensor:
        """A point with several projections is at least `reach` away from M, hence at least reach - distance(x) from x."""
        reach = 0.0 if x.is_meta else self.reach or 0.0  # a number, which the meta device does not have
        if reach == math.inf:
            return self._poison(x).reshape(x.shape[: x.dim() - len(self.shape)]) + math.inf
        return (reach - self.distance(x)).clamp(min=0)

    def _given(self, context: Any) -> ConstraintSet:
        raise TypeError(
            f"{self!r} does not depend on a context, but one was given. Leave it out, or use ib.Implicit(..., eq(p, c))."
        )

    def _sample(self, batch: Batch, generator: torch.Generator | None, dtype: torch.dtype, device: torch.device) -> Tensor:
        raise NotImplementedError(f"{self!r} does not define sample: write _sample(batch, generator, dtype, device).")

    # --- what a user calls -------------------------------------------------------------------------------
    def given(self, context: Any) -> ConstraintSet:
        """The set that belongs to a context: M.project(x, context=c) is M.given(c).project(x)."""
        return self._given(context)

    def project(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """A nearest point of M: finite and in M for every finite x. A row with a non-finite entry becomes NaN."""
        if context is not None:
            return self.given(context).project(x)
        (x,) = self._enter("project", x)
        with full_precision(x):
            self._validate_learnt()
            y = self._project(x)
        if y is x:
            y = x.clone()
        return y if self.spreads_nan or _all_finite(x) else y + self._poison(x)

    def violation(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """(*batch,): 0 iff x is in M, from the defining equations; inf where they overflow."""
        if context is not None:
            return self.given(context).violation(x)
        (x,) = self._enter("violation", x)
        with full_precision(x):
            v = self._violation(x)
        poison = self._poison(x).reshape(x.shape[: x.dim() - len(self.shape)])
        return torch.where(v.isnan(), math.inf, v) + poison

    def residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Equalities (*batch, m), smooth, zero on M; inequalities (*batch, k), signed, <= 0 on M."""
        (x,) = self._enter("residuals", x)
        with full_precision(x):
            return self._residuals(x)

    def contains(self, x: Tensor, tol: float | None = None, context: Tensor | None = None) -> Tensor:
        """violation(x) <= tol; by default the rounding of x's dtype, relative to the set's own scale."""
        if context is not None:
            return self.given(context).contains(x, tol)
        (x,) = self._enter("contains", x)
        return self._contains(x, tol)

    def tangent(self, x: Tensor, v: Tensor, context: Tensor | None = None) -> Tensor:
        """Projection of v on the tangent cone of M at the point x of M."""
        if context is not None:
            return self.given(context).tangent(x, v)
        x, v = self._enter("tangent", x, v)
        with full_precision(x):
            return self._tangent(x, v)

    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """(*batch,): the inner product of two tangent vectors at x, in the set's metric."""
        x, u, v = self._enter("inner", x, u, v)
        with full_precision(x):
            return self._inner(x, u, v)

    def gradient(self, x: Tensor, g: Tensor) -> Tensor:
        """The gradient of a function on M at x from its ambient gradient g; minus it is the direction of steepest descent.

        On a manifold, inner(x, gradient(x, g), v) = <g, v> for every tangent vector v. Where M has a boundary it is
        -tangent(x, -g), which is not tangent(x, g): at a minimum on the boundary it is 0.
        """
        x, g = self._enter("gradient", x, g)
        with full_precision(x):
            return self._gradient(x, g)

    def transport(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """The tangent vector v at x, carried to the point y.

        Where M has a log, this is parallel transport along the shortest geodesic. Elsewhere it is tangent(y, v), which agrees
        with parallel transport to first order in |y - x|, and which respects a boundary.
        """
        x, y, v = self._enter("transport", x, y, v)
        with full_precision(x):
            return self._transport(x, y, v)

    def random_tangent(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Standard normal noise in the tangent space at x, in the set's metric; at a boundary, its projection on the cone."""
        (x,) = self._enter("random_tangent", x)
        noise = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
        with full_precision(x):
            return self._random_tangent(x, noise)

    def uniqueness_margin(self, x: Tensor) -> Tensor:
        """A lower bound on the distance from x to the points with several projections; inf for convex sets."""
        (x,) = self._enter("uniqueness_margin", x)
        with full_precision(x):
            return self._uniqueness_margin(x)

    def retract(self, x: Tensor, v: Tensor) -> Tensor:
        """The nearest point of M to x + v: a step along v that stays in M."""
        x, v = self._enter("retract", x, v)
        return self._retract(x, v)

    def distance(self, x: Tensor) -> Tensor:
        """|x - P_M(x)|."""
        return norm(self._flat(x - self.project(x)))

    def sample(
        self, *batch: int, generator: torch.Generator | None = None, dtype: torch.dtype | None = None, device: Any = None
    ) -> Tensor:
        """Points of M of shape (*batch, *shape): uniform where M is compact and a closed form exists."""
        like = torch.empty(0, dtype=dtype or torch.get_default_dtype(), device=device)
        with full_precision(like):
            return self._sample(batch, generator=generator, dtype=working_dtype(like), device=like.device)

    def forward(self, x: Tensor) -> Tensor:
        """P_M(x); in eager mode a non-finite x raises."""
        check_point(x, self.shape, self.__repr__)
        require_finite(x, self.__repr__)
        return self.project(x)

    def plot(self, points: Tensor | None = None) -> Picture:
        """A picture of a set whose points have two or three numbers, and of your points on it: red where they are not in M.

        A notebook shows it, `M.plot(x).save("set.svg")` writes it. The dots are where points outside of M land on it.
        """
        return picture_of(self, points)

    def _repr_html_(self) -> str:
        """What a notebook shows: the constructor, under a picture where one can be drawn."""
        try:
            drawing = self.plot().svg
        except (ValueError, RuntimeError, TypeError, NotImplementedError):
            drawing = ""  # more dimensions, a batch of sets, a context that is not given, a solver without an answer
        return f"{drawing}<pre>{escape(repr(self))}</pre>"

    def right_inverse(self, y: Tensor) -> Tensor:
        """An x with P_M(x) = y, which is y itself; for `torch.nn.utils.parametrize`. A y that is not in M is projected."""
        return self.project(y)

    # --- shared by all sets ------------------------------------------------------------------------------
    def _enter(self, method: str, *points: Tensor) -> tuple[Tensor, ...]:
        for p in points:
            check_point(p, self.shape, lambda: f"{self!r}.{method}")
        if any(p.dtype in HALF for p in points):
            points = tuple(p.float() if p.dtype in HALF else p for p in points)
        return tuple(self._spread(p, method) for p in points) if self.batch else points

    def _spread(self, x: Tensor, method: str) -> Tensor:
        """x repeated over the batch dims of the set's parameters."""
        batch = x.shape[: x.dim() - len(self.shape)]
        for n, m in zip(reversed(batch), reversed(self.batch), strict=False):
            if n != m and n != 1 and m != 1:
                raise ValueError(
                    f"{self!r}.{method} asked for points whose batch dims go with the {tuple(self.batch)} of its parameters, got "
                    f"{tuple(batch)}. {self._mismatch()}"
                )
        return x.expand(*joint_shape(batch, self.batch), *self.shape)

    def _flat(self, x: Tensor) -> Tensor:
        return x.flatten(x.dim() - len(self.shape)) if self.shape else x.unsqueeze(-1)

    def _poison(self, x: Tensor) -> Tensor:
        """0 for finite rows, NaN for the others, broadcastable to x: (*batch, 1, .., 1)."""
        x = x.detach()
        dims = tuple(range(x.dim() - len(self.shape), x.dim()))
        return (x - x).sum(dims, keepdim=True) if dims else x - x

    def _cast(self, name: str, x: Tensor, towards: int = 0) -> Tensor:
        """A parameter of the set in x's dtype, rounded to nearest, or up (towards=1), or down (towards=-1).

        What derives from it is derived after this cast.
        """
        value = getattr(self, name)
        if value.dtype == x.dtype:
            return value
        return self._derived((name, towards), x, (name,), lambda: rounded(value, x.dtype, towards))

    def _derived(self, key: Any, x: Tensor, names: tuple[str, ...], compute: Callable[[], Any]) -> Any:
        """compute(), which may use the parameters `names` and x's dtype and device, and nothing else of x.

        In eager mode the result is kept while those parameters are constants; what may change, because it is learnable or
        depends on a network, is computed every time.
        """
        values = [getattr(self, name) for name in names]
        if not eager() or torch.is_inference_mode_enabled() or any(v.requires_grad or v.is_inference() for v in values):
            return compute()
        kept: dict[Any, Any] = vars(self).setdefault("_kept", {})
        stamp = [(v, v._version) for v in values]
        old, result = kept.get((key, x.dtype, x.device), ((), None))
        if len(old) == len(stamp) and all(a is b and i == j for (a, i), (b, j) in zip(old, stamp, strict=True)):
            return result
        with torch.no_grad():
            result = compute()
        kept[key, x.dtype, x.device] = (stamp, result)
        return result

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if k != "_kept"}

    def _constant(self, name: str, value: Any, dims: int | None = None, finite: bool = True) -> Tensor:
        """Keep a parameter of the set: an nn.Parameter stays learnable, a tensor keeps its graph, a number is exact.

        All but the last `dims` dims are batch dims: each row of points has a set of its own.
        """
        if not isinstance(value, Tensor):
            value = torch.as_tensor(value, dtype=torch.float64)
        if not value.dtype.is_floating_point:
            value = value.double()
        if isinstance(value, nn.Parameter):
            self.register_parameter(name, value)
        else:
            self.register_buffer(name, value, persistent=False)
        if dims is not None:
            self.batch = self._joint_batch(name, value.shape[: max(0, value.dim() - dims)])
        ok = torch.isfinite(value) if finite else ~torch.isnan(value)
        wanted = "finite numbers" if finite else "numbers"
        self._require(ok, lambda: f"{type(self).__name__} asked for {wanted} in {name}, got {value.tolist()}.")
        return value

    def _joint_batch(self, name: str, batch: tuple[int, ...]) -> tuple[int, ...]:
        try:
            return joint_shape(self.batch, batch)
        except RuntimeError:
            raise ValueError(
                f"{type(self).__name__} asked for parameters whose batch dims go together, got {tuple(batch)} for {name} beside "
                f"{self.batch}. Give all of them the same batch dims, or none."
            ) from None

    def _mismatch(self) -> str:
        """What to write instead where the batch dims of points and parameters do not go together."""
        return "Give each row of points its own set, or build the set without batch dims."

    def _require(self, ok: Tensor, message: Callable[[], str]) -> None:
        """Refuse impossible parameters; under compile and vmap their values cannot be looked at."""
        if looking(ok) and not bool(ok.all()):
            raise ValueError(message())

    def _apply(self, fn: Any, recurse: bool = True):
        """Casts of the surrounding model leave the set's parameters at float32 or better."""
        learned = {k: t.data for k, t in self._parameters.items() if t is not None}
        fixed = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, old in learned.items():
            new = self._parameters[name]
            if new is not None and new.dtype in (torch.float16, torch.bfloat16):
                new.data = old.to(new.device)
        for name, old in fixed.items():
            new = self._buffers[name]
            if old is not None and new is not None and new.dtype != old.dtype:
                self._buffers[name] = old.to(new.device)
        return self

    def _validate_learnt(self) -> None:
        """In eager mode, and where looking does not make a device wait, learnable parameters are validated at every use."""
        if self._parameters and eager() and all(p is None or p.device.type == "cpu" for p in self._parameters.values()):
            self._validate()

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        keep_note(self, destination, prefix)

    def _load_from_state_dict(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *rest: Any
    ):
        """Weights that were kept with other constants of the set load, with a warning."""
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)
        compare_note(self, prefix, local_metadata)

    def _learnable(self) -> bool:
        """Whether a parameter of the set may change after construction."""
        return any(p is not None for p in self._parameters.values())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"


class Manifold(ConstraintSet):
    """A set without boundary: every tangent cone is a linear space of dimension `dim`."""

    dim: int

    @abstractmethod
    def _exp(self, x: Tensor, v: Tensor) -> Tensor: ...

    @abstractmethod
    def origin(self, like: Tensor) -> Tensor:
        """A fixed point of M with like's dtype (at least float32) and device."""

    def _log(self, x: Tensor, y: Tensor) -> Tensor:
        raise NotImplementedError(
            f"{self!r} has no closed-form log. Closed forms exist for Sphere, Hyperboloid, Euclidean, Affine, SO(n) and SE(n) "
            f"with n <= 3 and their products; here tangent(x, y - x) agrees with it to second order in |y - x|."
        )

    def _gradient(self, x: Tensor, g: Tensor) -> Tensor:
        return self._tangent(x, g)

    def _geodesic_distance(self, x: Tensor, y: Tensor) -> Tensor:
        return norm(self._flat(self._log(x, y)))

    def _log_volume(self, x: Tensor, v: Tensor) -> Tensor:
        """Half of log det of the Gram matrix of d exp on a basis of the tangent space, less that of the basis itself."""
        basis = tangent_basis(self, x)
        y = self._exp(x, v)
        moved = [torch.func.jvp(lambda w: self._exp(x, w), (v,), (b,))[1] for b in basis]
        return 0.5 * (log_gram(self, y, moved) - log_gram(self, x, basis))

    def log_volume(self, x: Tensor, v: Tensor) -> Tensor:
        """(*batch,): log |det d exp_x| at the tangent vector v, between volumes of the set's metric.

        It is far below 0 at conjugate points, such as the antipode of a sphere, where the determinant is 0.
        """
        x, v = self._enter("log_volume", x, v)
        with full_precision(x):
            return self._log_volume(x, v)

    def exp(self, x: Tensor, v: Tensor) -> Tensor:
        """Where the geodesic of the set's metric from x with velocity v is at time 1. Does not project."""
        x, v = self._enter("exp", x, v)
        with full_precision(x):
            return self._exp(x, v)

    def log(self, x: Tensor, y: Tensor) -> Tensor:
        """The shortest v with exp(x, v) = y; one of them at the cut locus."""
        x, y = self._enter("log", x, y)
        with full_precision(x):
            return self._log(x, y)

    def geodesic_distance(self, x: Tensor, y: Tensor) -> Tensor:
        """|log(x, y)| in the set's metric, the ambient (Frobenius) one but for `Hyperboloid`, with gradient 0 where x = y.

        For rotations this is sqrt(2) times the angle between them: 2.22 for a quarter turn. `SO(n).angle` is the angle.
        """
        x, y = self._enter("geodesic_distance", x, y)
        with full_precision(x):
            return self._geodesic_distance(x, y)

    def refine(self, x: Tensor) -> Tensor:
        """One cheap correction for a point that is in M up to rounding; steps end with it."""
        (x,) = self._enter("refine", x)
        with full_precision(x):
            return self._refine(x)

    def _refine(self, x: Tensor) -> Tensor:
        return self._project(x)


class LieGroup(Manifold):
    """A manifold with a smooth product. Coordinates c of the Lie algebra are flat: (*batch, dim)."""

    @abstractmethod
    def hat(self, c: Tensor) -> Tensor:
        """Coordinates (*batch, dim) -> algebra element (*batch, *shape)."""

    @abstractmethod
    def vee(self, A: Tensor) -> Tensor:
        """Inverse of hat; reads only the algebra part of A."""

    @abstractmethod
    def _group_exp(self, c: Tensor) -> Tensor: ...

    @abstractmethod
    def _group_log(self, g: Tensor) -> Tensor: ...

    @abstractmethod
    def _compose(self, g: Tensor, h: Tensor) -> Tensor: ...

    @abstractmethod
    def _inverse(self, g: Tensor) -> Tensor: ...

    def group_exp(self, c: Tensor) -> Tensor:
        """exp(hat(c)), the matrix exponential; on SE(n) this is not the geodesic `exp`."""
        check_point(c, (self.dim,), lambda: f"{self!r}.group_exp")
        c = c.to(working_dtype(c))
        with full_precision(c):
            return self._group_exp(c)

    def group_log(self, g: Tensor) -> Tensor:
        """The shortest coordinates c with group_exp(c) = g; one of them where there are several."""
        (g,) = self._enter("group_log", g)
        with full_precision(g):
            return self._group_log(g)

    def compose(self, g: Tensor, h: Tensor) -> Tensor:
        """The product g h of the group: first h, then g."""
        g, h = self._enter("compose", g, h)
        with full_precision(g):
            return self._compose(g, h)

    def inverse(self, g: Tensor) -> Tensor:
        """The element that undoes g."""
        (g,) = self._enter("inverse", g)
        with full_precision(g):
            return self._inverse(g)


def tangent_basis(M: Manifold, x: Tensor) -> list[Tensor]:
    """dim tangent vectors at x, each (*batch, *shape), orthonormal in the ambient metric."""
    n = math.prod(M.shape)
    axes = torch.eye(n, dtype=x.dtype, device=x.device).reshape(n, *[1] * (x.dim() - len(M.shape)), *M.shape)
    at = x.detach()
    P = torch.stack([M._flat(M._tangent(at, e.expand_as(at))) for e in axes], -1)  # (*batch, n, n), a projection
    top = torch.linalg.eigh(0.5 * (P + P.mT))[1][..., n - M.dim :]
    return [top[..., k].reshape(x.shape) for k in range(M.dim)]


def log_gram(M: Manifold, x: Tensor, vectors: list[Tensor]) -> Tensor:
    """log det of the inner products of tangent vectors at x."""
    rows = [torch.stack([M._inner(x, u, v) for v in vectors], -1) for u in vectors]
    return torch.linalg.slogdet(torch.stack(rows, -2))[1]


def rounded(value: Tensor, dtype: torch.dtype, towards: int) -> Tensor:
    """value in dtype: to nearest, or to a neighbour that is not below (towards=1) or not above (towards=-1) the value.

    The gradient passes straight through. 0.6 eps |y| is between 0.6 and 1.2 units in the last place, which is one neighbour.
    """
    y = value.to(dtype)
    if not towards or value.dtype == dtype:
        return y
    info = torch.finfo(dtype)
    fixed = y.detach()
    wrong = (value.detach() - fixed.to(value.dtype)) * towards > 0
    step = torch.where(torch.isfinite(fixed), 0.6 * info.eps * fixed.abs() + info.smallest_normal * info.eps, 0.0)
    return y + towards * torch.where(wrong, step, 0.0)


def joint_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that all of them broadcast to. torch.broadcast_shapes imports sympy when first called: half a second."""
    known = [tuple(s) for s in shapes if len(s)]
    if not torch.compiler.is_compiling() and all(s == known[0] for s in known):
        return known[0] if known else ()
    return tuple(torch.broadcast_shapes(*shapes))


def check_size(who: str, *sizes: Any) -> None:
    """Raise unless every size is a whole number."""
    for n in sizes:
        if not isinstance(n, int) or isinstance(n, bool):
            raise TypeError(f"{who} asked for whole numbers as sizes, got {n!r}. Write {who}({', '.join('3' for _ in sizes)}).")


def shown(name: str, value: Tensor, default: float | None = None) -> str:
    """`, name=value` for repr; nothing for the default."""
    if looking(value) and value.numel() == 1:
        number = float(value.detach())
        return "" if number == default else f", {name}={number:g}"
    return f", {name}={sized(value)}"


def sized(value: Tensor) -> str:
    """A tensor for repr: its numbers in brackets if they are few, else its shape."""
    if looking(value) and value.numel() <= FEW:
        return _bracketed(value.detach().tolist())
    return f"<{'x'.join(map(str, value.shape))}>"


def _bracketed(value: Any) -> str:
    return f"[{', '.join(map(_bracketed, value))}]" if isinstance(value, list) else f"{value:g}"


def working_dtype(like: Tensor) -> torch.dtype:
    """like's dtype, at least float32."""
    return torch.float32 if like.dtype in HALF else like.dtype


def direction(x: Tensor) -> tuple[Tensor, Tensor]:
    """(x/|x|, |x|) over the last dim, (*batch, n) and (*batch, 1); at 0: (e_1, 0) with zero gradient."""
    return unit(x), norm(x)[..., None]
