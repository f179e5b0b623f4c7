"""Differential equations whose solutions stay in M, at every time."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .core import ConstraintSet, Manifold, check_point, log_gram, require_finite, tangent_basis
from .kernels.derivative import looking
from .nets import in_dtype_of
from .sets.depends import bound

Time = float | Tensor  # a number, or one number per row that broadcasts against the points
Rate = Callable[[Time, Tensor], Tensor]  # the velocity of the run at a time and a point


def _require_arguments(field: nn.Module, time: bool) -> None:
    """Raise unless field(t, x), or field(x) without time, can be called."""
    try:
        inspect.signature(field.forward).bind_partial(*(None,) * (1 + time))
    except TypeError:
        raise TypeError(
            f"ProjectedODE calls field(t, x), but {type(field).__name__} takes one argument. For a field that does not depend on "
            "time write ProjectedODE(field, M, time=False)."
            if time
            else f"ProjectedODE with time=False calls field(x), but {type(field).__name__} takes no argument."
        ) from None


class ProjectedODE(nn.Module):
    """dx/dt = P_{T_x M} field(t, x) on [0, horizon] by a Runge-Kutta method with stage points projected on M.

    Away from the boundary of M the methods have order 1 (euler), 2 (heun), 4 (rk4); where the solution runs into or along a
    boundary its velocity jumps, and all of them have order 1.

    ode(x) is the state at the horizon. ode(x, times=t) are the states at observation times between 0 and the horizon, of shape
    (*batch, k, *shape), for times (k,) that all rows share or (*batch, k) of their own. Each is one step of the method, of the
    length that is missing, from the last of the `steps` states before it, and so has the method's order. It depends neither on
    the other times nor on the other rows. With times per row the field gets t in a shape that broadcasts against x.

    A negative horizon runs the clock backwards: y(s) = x(-s) solves dy/ds = P_{T_y M}(-field(-s, y)) for 0 <= s <= |horizon|.
    On the boundary of M that is not the inverse of running forwards, which forgets where a path came from.
    """

    # stages (c_i, a_i) with stage point x + h a_i k_{i-1} at time t + c_i h, and weights
    METHODS: ClassVar = {
        "euler": (((0.0, 0.0),), (1.0,)),
        "heun": (((0.0, 0.0), (1.0, 1.0)), (0.5, 0.5)),
        "rk4": (((0.0, 0.0), (0.5, 0.5), (0.5, 0.5), (1.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6)),
    }

    def __init__(
        self, field: nn.Module, M: ConstraintSet, horizon: float = 1.0, steps: int = 20, method: str = "heun", time: bool = True
    ):
        super().__init__()
        if not isinstance(field, nn.Module):
            raise TypeError(
                f"ProjectedODE needs field as an nn.Module (a bare function would train nothing), got {type(field).__name__}."
            )
        if not isinstance(M, ConstraintSet):
            raise TypeError(f"ProjectedODE needs a set, got {type(M).__name__}. Write ProjectedODE(field, Ball(2)).")
        if method not in self.METHODS:
            raise ValueError(f"ProjectedODE asked for a method among {', '.join(self.METHODS)}, got {method!r}.")
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise ValueError(f"ProjectedODE asked for a whole number of steps >= 1, got {steps!r}.")
        if not math.isfinite(horizon):
            raise ValueError(f"ProjectedODE asked for a finite horizon, got {horizon}. Write horizon=1.0.")
        _require_arguments(field, time)
        self.field, self.M, self.horizon, self.steps, self.method, self.time = field, M, float(horizon), steps, method, time

    def forward(self, x: Tensor, *context: Any, times: Any = None, **keywords: Any) -> Tensor:
        self = bound(self, x, keywords)
        rate = self._rate(context, keywords)
        if times is not None:
            return self._observed(self._nodes(x, rate), times, rate)
        x = self._start(x)
        for i in range(self.steps):
            x = self._advance(rate, i, x)
        return x

    def trajectory(self, x: Tensor, *context: Any, **keywords: Any) -> Tensor:
        """Every point, start included: (steps + 1, *batch, *shape)."""
        self = bound(self, x, keywords)
        return self._nodes(x, self._rate(context, keywords))

    def log_density(
        self,
        y: Tensor,
        source: Any,
        *context: Any,
        probes: int | None = None,
        generator: torch.Generator | None = None,
        **keywords: Any,
    ) -> Tensor:
        """(*batch,): the log-density at y of the law of ode(x), for x from the distribution `source`, which has a log_prob.

        Densities are with respect to the volume of the set's metric. It is source.log_prob at the point that the run leads to y
        from, less the log_volume of the run; `probes` and `generator` are explained there. M is a manifold without boundary.
        """
        x, change = self.log_volume(y, *context, probes=probes, generator=generator, back=True, **keywords)
        return source.log_prob(x) + change

    def log_volume(
        self,
        x: Tensor,
        *context: Any,
        probes: int | None = None,
        generator: torch.Generator | None = None,
        back: bool = False,
        **keywords: Any,
    ) -> tuple[Tensor, Tensor]:
        """ode(x), and log |det d ode(x)| between volumes of the set's metric, (*batch,), as the integral of the divergence.

        The divergence is the trace of P DV P, for the velocity V and the projection P on the tangent space. It takes one
        directional derivative per number in a point. With `probes` it is an unbiased estimate by this many random directions,
        which stay the same along the run. back=True runs from the horizon to time 0, which undoes the run.
        """
        M = self._manifold()
        rate = self._rate(context, keywords, back)
        x = start = self._start(x)
        noise, weight = self._directions(x, probes, generator)
        dt = self.horizon / self.steps
        total = torch.zeros(x.shape[: x.dim() - len(self.M.shape)], dtype=x.dtype, device=x.device)
        for i in range(self.steps):
            stages: list[Tensor] = []
            t, sign = (self.horizon - i * dt, -1) if back else (i * dt, 1)
            x = self._step(self._counting(rate, noise, stages), t, sign * dt, x, back)
            for w, g in zip(self.METHODS[self.method][1], stages, strict=True):
                total = total + (w * weight * abs(dt)) * g
        return x, total + metric_volume(M, x) - metric_volume(M, start)

    def _counting(self, rate: Rate, noise: list[Tensor], found: list[Tensor]) -> Rate:
        """The same rate, which appends the sum of <b, DV b> over the directions b = tangent(x, z) to a list."""

        def counted(t: Time, x: Tensor) -> Tensor:
            v, growth = torch.zeros_like(x), 0.0
            for z in noise:
                b = self.M.tangent(x, z)
                v, dv = torch.func.jvp(lambda p: rate(t, p), (x,), (b,))[:2]
                growth = growth + self.M._flat(b * dv).sum(-1)
            found.append(torch.as_tensor(growth))
            return v

        return counted

    def _directions(self, x: Tensor, probes: int | None, generator: torch.Generator | None) -> tuple[list[Tensor], float]:
        """Vectors z with the weight for which the sum of z z^T is the identity, exactly or in expectation."""
        if probes is None:
            axes = torch.eye(math.prod(self.M.shape), dtype=x.dtype, device=x.device)
            return [e.reshape(self.M.shape).expand_as(x) for e in axes], 1.0
        if isinstance(probes, bool) or not isinstance(probes, int) or probes < 1:
            raise ValueError(
                f"ProjectedODE asked for a whole number of probes >= 1, or None for the exact trace, got {probes!r}."
            )
        draw = [torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device) for _ in range(probes)]
        return draw, 1 / probes

    def _manifold(self) -> Manifold:
        """The set, refused where it may have a boundary."""
        if isinstance(self.M, Manifold):
            return self.M
        raise TypeError(
            f"A density needs a Manifold (no boundary), got {self.M!r}: a flow presses mass on a boundary, where it has no "
            "density, and the run cannot be undone. ode(x) and ode.trajectory(x) work on every set."
        )

    def _start(self, x: Tensor) -> Tensor:
        check_point(x, self.M.shape, lambda: f"ProjectedODE on {self.M!r}")
        require_finite(x, lambda: f"ProjectedODE on {self.M!r}")
        return self.M.project(x)

    def _nodes(self, x: Tensor, rate: Rate) -> Tensor:
        points = [self._start(x)]
        for i in range(self.steps):
            points.append(self._advance(rate, i, points[-1]))
        return torch.stack(points)

    def _rate(self, context: tuple[Any, ...], keywords: dict[str, Any], back: bool = False) -> Rate:
        """The velocity of the run: of the field, or of its negative where the clock runs backwards."""
        forwards = (self.horizon >= 0) != back

        def rate(t: Time, x: Tensor) -> Tensor:
            time = (torch.as_tensor(t, dtype=x.dtype, device=x.device),) if self.time else ()
            v = self.field(*(in_dtype_of(self.field, p) for p in (*time, x)), *context, **keywords)
            v = v.reshape(x.shape).to(x.dtype)
            return self.M.tangent(x, v if forwards else -v)

        return rate

    def _advance(self, rate: Rate, i: int, x: Tensor) -> Tensor:
        dt = self.horizon / self.steps
        return self._step(rate, i * dt, dt, x)

    def _step(self, rate: Rate, t: Time, dt: Time, x: Tensor, back: bool = False) -> Tensor:
        """The point at time t + dt from the point x at time t, by one step of the method."""
        stages, weights = self.METHODS[self.method]
        h = dt if (self.horizon >= 0) != back else -dt
        total, k = torch.zeros_like(x), torch.zeros_like(x)
        for (c, a), w in zip(stages, weights, strict=True):
            stage = self.M.project(x + (h * a) * k) if a else x
            k = rate(t + c * dt, stage)
            total = total + w * k
        return self.M.project(x + h * total)

    def _observed(self, nodes: Tensor, times: Any, rate: Rate) -> Tensor:
        """The states at the observation times, (*batch, k, *shape), from those of the whole run."""
        batch = nodes.shape[1 : nodes.dim() - len(self.M.shape)]
        times, dt = self._checked(times, nodes, batch), self.horizon / self.steps
        seen = []
        for t in times.unbind(-1):
            t = t.reshape(t.shape + (1,) * len(self.M.shape)) if t.dim() else t
            i = ((t.detach() / dt if dt else 0 * t).ceil() - 1).clamp(0, self.steps - 1)
            node = nodes.take_along_dim(i.long().expand(1, *nodes.shape[1:]), 0)[0]
            seen.append(self._step(rate, i * dt, t - i * dt, node))
        return torch.stack(seen, len(batch))

    def _checked(self, times: Any, like: Tensor, batch: tuple[int, ...]) -> Tensor:
        """Observation times as a tensor in the dtype of the points, or an error that says what is wrong with them."""
        t = torch.as_tensor(times, dtype=like.dtype, device=like.device)
        if not t.dim() or not t.shape[-1] or (t.dim() > 1 and t.shape[:-1] != batch):
            own = f"({', '.join(map(str, (*batch, 'k')))})"
            raise ValueError(
                f"ProjectedODE asked for times of shape (k,), shared by all rows, or {own}, a row of times for each point, got "
                f"{tuple(t.shape)}. Write times=torch.linspace(0, {self.horizon:g}, 5), for example."
            )
        if looking(t):
            self._require_order(t.detach())
        return t

    def _require_order(self, t: Tensor) -> None:
        """Raise unless the times run from 0 to the horizon; the horizon itself is met up to the rounding of the dtype."""
        along = t if self.horizon >= 0 else -t
        last = abs(self.horizon) * (1 + 8 * torch.finfo(t.dtype).eps)
        if not bool(((along >= 0) & (along <= last)).all()):
            raise ValueError(
                f"ProjectedODE asked for times between 0 and its horizon {self.horizon:g}, got {float(t.min()):g} to "
                f"{float(t.max()):g}. The start is at time 0; for later times write ProjectedODE(..., horizon=...)."
            )
        if bool((along.diff(dim=-1) < 0).any()):
            word, fix = (
                ("increase", "times.sort(-1).values") if self.horizon >= 0 else ("decrease", "times.sort(-1, True).values")
            )
            raise ValueError(f"ProjectedODE asked for times that {word} along the last dim, got others. Write {fix}.")


def metric_volume(M: Manifold, x: Tensor) -> Tensor | float:
    """(*batch,): the log of the volume of the set's metric at x, per volume of the ambient metric; 0 where they are the same."""
    if M.metric == "ambient":
        return 0.0
    basis = [M.tangent(x, b) for b in tangent_basis(M, x)]
    flat = torch.stack([M._flat(b) for b in basis], -2)
    return 0.5 * (log_gram(M, x, basis) - torch.linalg.slogdet(flat @ flat.mT)[1])
