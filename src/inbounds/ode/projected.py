"""The networks of this room: a field, followed in a set."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..core import ConstraintSet, check_point, require_finite
from ..kernels.derivative import looking
from ..kernels.runge_kutta import METHODS
from ..nets import half_of
from ..sets.depends import bound
from .adaptive import OK, Chosen, Steps, choose, equal_steps
from .methods import Motion, Time
from .solution import Nodes, ODESolution, require_arrival, run
from .volume import directions, divergence, metric_volume, require_manifold

HOLD = 0.1  # of the tolerance: how far stage points may be moved back to a boundary; small beside the error that is allowed


class ProjectedODE(nn.Module):
    """dx/dt = P_{T_x M} field(t, x) on [0, horizon] by a Runge-Kutta method with stage points projected on M.

    Away from the boundary of M the methods have order 1 (euler), 2 (heun), 4 (rk4), 5 (dopri5); where the solution runs into or
    along a boundary its velocity jumps, and all of them have order 1.

    The first three make `steps` equal steps. "dopri5" is adaptive: every row of the batch chooses its own steps, so that the
    estimated error of each, divided by max(1, |x|), is at most `tolerance`, and no row depends on the others. Gradients are
    those of the steps that were chosen: the run is made once to choose them, and again where gradients or states in between are
    asked for. A row that cannot go on, or that takes more than `limit` steps, is an error; `solve` says which row instead. The
    field gets t in a shape that broadcasts against x. Points that depend on each other, such as the tokens of an attention
    block, must share their steps: tokens=1 says that the last batch dim holds them.

    ode(x) is the state at the horizon. ode(x, times=t) are the states at observation times between 0 and the horizon, of shape
    (*batch, k, *shape), for times (k,) that all rows share or (*batch, k) of their own. With equal steps each is one step of the
    method, of the length that is missing, from the last of the `steps` states before it, and so has the method's order; with
    "dopri5" it is the polynomial of `ODESolution`. It depends neither on the other times nor on the other rows.

    checkpoint=True keeps the states of a run and nothing else for the backward pass, which makes every step again: memory
    for one step of the field instead of all of them, at the price of one more run.

    A negative horizon runs the clock backwards: y(s) = x(-s) solves dy/ds = P_{T_y M}(-field(-s, y)) for 0 <= s <= |horizon|.
    On the boundary of M that is not the inverse of running forwards, which forgets where a path came from.
    """

    def __init__(
        self,
        field: nn.Module,
        M: ConstraintSet,
        horizon: float = 1.0,
        steps: int = 20,
        method: str = "heun",
        time: bool = True,
        tolerance: float = 1e-5,
        limit: int = 10_000,
        tokens: int = 0,
        checkpoint: bool = False,
    ):
        super().__init__()
        if not isinstance(field, nn.Module):
            raise TypeError(
                f"ProjectedODE needs field as an nn.Module (a bare function would train nothing), got {type(field).__name__}."
            )
        if not isinstance(M, ConstraintSet):
            raise TypeError(f"ProjectedODE needs a set, got {type(M).__name__}. Write ProjectedODE(field, Ball(2)).")
        if method not in METHODS:
            raise ValueError(f"ProjectedODE asked for a method among {', '.join(METHODS)}, got {method!r}.")
        for name, value, least in (("steps", steps, 1), ("limit", limit, 1), ("tokens", tokens, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"ProjectedODE asked for a whole number of {name} >= {least}, got {value!r}.")
        if not math.isfinite(horizon):
            raise ValueError(f"ProjectedODE asked for a finite horizon, got {horizon}. Write horizon=1.0.")
        if not isinstance(tolerance, float | int) or not 0 < tolerance < math.inf:
            raise ValueError(
                f"ProjectedODE asked for a number above 0 as tolerance, got {tolerance!r}. For rows that differ write "
                "ode(x, tolerance=torch.tensor([..]))."
            )
        _require_arguments(field, time)
        self.field, self.M, self.horizon, self.steps, self.method, self.time = field, M, float(horizon), steps, method, time
        self.tolerance, self.limit, self.tokens, self.checkpoint = float(tolerance), limit, tokens, checkpoint

    def forward(self, x: Tensor, *context: Any, times: Any = None, tolerance: Any = None, **keywords: Any) -> Tensor:
        self = bound(self, x, keywords)
        motion, x = self._motion(context, keywords), self._start(x)
        if times is not None and not self.adaptive:
            return self._observed(run(motion, x, self._equal(), save=self.checkpoint).points, times, motion)
        if times is not None:
            return self._solved(motion, x, tolerance, strict=True)(times)
        return self._run(motion, x, tolerance).points[-1]

    def trajectory(self, x: Tensor, *context: Any, tolerance: Any = None, **keywords: Any) -> Tensor:
        """The states at the ends of `steps` equal steps, start included, whatever the method: (steps + 1, *batch, *shape)."""
        self = bound(self, x, keywords)
        motion, x = self._motion(context, keywords), self._start(x)
        if not self.adaptive:
            return self._run(motion, x, tolerance).points
        seen = self._solved(motion, x, tolerance, strict=True)(torch.linspace(0, self.horizon, self.steps + 1, dtype=x.dtype))
        return seen.movedim(x.dim() - len(self.M.shape), 0)

    def solve(self, x: Tensor, *context: Any, tolerance: Any = None, **keywords: Any) -> ODESolution:
        """The whole run: solution(times) are its states at any times, solution.status says which rows reached the horizon.

        tolerance: a number, or (*rows,) one for each row, in place of the one that the network was built with.
        """
        self = bound(self, x, keywords)
        return self._solved(self._motion(context, keywords), self._start(x), tolerance)

    def log_density(
        self,
        y: Tensor,
        source: Any,
        *context: Any,
        probes: int | None = None,
        generator: torch.Generator | None = None,
        tolerance: Any = None,
        **keywords: Any,
    ) -> Tensor:
        """(*batch,): the log-density at y of the law of ode(x), for x from the distribution `source`, which has a log_prob.

        Densities are with respect to the volume of the set's metric. It is source.log_prob at the point that the run leads to y
        from, less the log_volume of the run; the options are explained there. M is a manifold without boundary.
        """
        options = {"probes": probes, "generator": generator, "tolerance": tolerance}
        x, change = self.log_volume(y, *context, back=True, **options, **keywords)
        return source.log_prob(x) + change

    def log_volume(
        self,
        x: Tensor,
        *context: Any,
        probes: int | None = None,
        generator: torch.Generator | None = None,
        back: bool = False,
        tolerance: Any = None,
        **keywords: Any,
    ) -> tuple[Tensor, Tensor]:
        """ode(x), and log |det d ode(x)| between volumes of the set's metric, (*batch,), as the integral of the divergence.

        The divergence is the trace of P DV P, for the velocity V and the projection P on the tangent space. It takes one
        directional derivative per number in a point. With `probes` it is an unbiased estimate by this many random directions,
        which stay the same along the run. back=True runs from the horizon to time 0, which undoes the run. An adaptive method
        keeps the error of the logarithm below the tolerance, too.
        """
        M = require_manifold(self.M)
        if self.tokens:
            raise ValueError(
                "ProjectedODE asked for points that do not depend on each other, got tokens: their density is a joint one. Write "
                "ProjectedODE(field, ib.Product(M, M, ...)), whose points hold all tokens."
            )
        start = self._start(x)
        plain = self._motion(context, keywords, back)
        noise, weight = directions(M, start, probes, generator)
        counted = divergence(M, plain.rate, noise, weight)
        nodes = self._run(replace(plain, growth=counted), start, tolerance)
        assert nodes.grown is not None
        end = nodes.points[-1]
        return end, nodes.grown + metric_volume(M, end) - metric_volume(M, start)

    @property
    def adaptive(self) -> bool:
        """Whether rows choose their own steps."""
        return bool(METHODS[self.method].error)

    # --- how a run is made -------------------------------------------------------------------------------
    def _start(self, x: Tensor) -> Tensor:
        check_point(x, self.M.shape, lambda: f"ProjectedODE on {self.M!r}")
        require_finite(x, lambda: f"ProjectedODE on {self.M!r}")
        if x.dim() - len(self.M.shape) < self.tokens:
            raise ValueError(f"ProjectedODE asked for {self.tokens} batch dims of tokens, got points of shape {tuple(x.shape)}.")
        return self.M.project(x)

    def _motion(self, context: tuple[Any, ...], keywords: dict[str, Any], back: bool = False) -> Motion:
        """The run in the time s >= 0 that has passed: field(s, x) forwards, and minus the field where the clock runs back."""
        forwards = (self.horizon >= 0) != back
        sign, origin = (1 if forwards else -1), (self.horizon if back else 0.0)
        same, half = forwards and not origin, half_of(self.field)

        def field(s: Time, x: Tensor) -> Tensor:
            p = (torch.as_tensor(s if same else origin + sign * s, dtype=x.dtype, device=x.device), x) if self.time else (x,)
            v = self.field(*(p if half is None else (q.to(half) for q in p)), *context, **keywords)
            v = v.reshape(x.shape).to(x.dtype)
            return v if forwards else -v

        return Motion(METHODS[self.method], self.M, field, self.tokens + len(self.M.shape))

    def _equal(self) -> Steps:
        return equal_steps(abs(self.horizon), self.steps)

    def _run(self, motion: Motion, x: Tensor, tolerance: Any) -> Nodes:
        """All states of the run, or where steps are chosen and no gradient is asked for, the last one alone."""
        if not self.adaptive:
            self._require_no(tolerance)
            return run(motion, x, self._equal(), save=self.checkpoint)
        motion, chosen = self._choose(motion, x, tolerance)
        require_arrival(chosen.status, chosen.reached, abs(self.horizon))
        if _has_gradient(motion, x):
            return run(motion, x, chosen.steps, save=self.checkpoint)
        return Nodes(chosen.end[None], chosen.grown)

    def _solved(self, motion: Motion, x: Tensor, tolerance: Any, strict: bool = False) -> ODESolution:
        rows = motion.rows(x)
        if self.adaptive:
            motion, chosen = self._choose(motion, x, tolerance)
        else:
            self._require_no(tolerance)
            full = torch.full(rows, self.steps, device=x.device)
            far = torch.full(rows, abs(self.horizon), dtype=torch.float64, device=x.device)
            chosen = Chosen(self._equal(), x, None, torch.full_like(full, OK), full, 0 * full, far)
        if strict:
            require_arrival(chosen.status, chosen.reached, abs(self.horizon))
        steps = chosen.steps if chosen.steps.starts else equal_steps(0.0, 1)
        nodes = run(motion, x, steps, dense=True, save=self.checkpoint)
        numbers = chosen.status, chosen.accepted, chosen.refused, chosen.reached
        return ODESolution(nodes.points[-1], *numbers, nodes, steps, motion, self._passed)

    def _choose(self, motion: Motion, x: Tensor, tolerance: Any) -> tuple[Motion, Chosen]:
        """The steps of the run, and the run that knows its tolerance."""
        if not _has_values(x):
            raise RuntimeError(
                f"ProjectedODE with method={self.method!r} chooses its steps by looking at numbers, which compile, export and "
                'vmap do not show. Write method="rk4" there.'
            )
        allowed = self._allowed(tolerance, motion.rows(x), x)
        motion = replace(motion, hold=HOLD * allowed)
        return motion, choose(motion, x, abs(self.horizon), allowed, self.limit)

    def _allowed(self, tolerance: Any, rows: torch.Size, like: Tensor) -> Tensor:
        """The tolerance of every row, (*rows,), in float64."""
        t = torch.as_tensor(self.tolerance if tolerance is None else tolerance, dtype=torch.float64, device=like.device).detach()
        if t.dim() and t.shape != rows:
            raise ValueError(
                f"ProjectedODE asked for a number as tolerance, or one for each row, {tuple(rows)}, got {tuple(t.shape)}."
            )
        least = 32 * torch.finfo(like.dtype).eps
        if not bool(((t >= least) & (t < math.inf)).all()):
            raise ValueError(
                f"ProjectedODE asked for tolerances of at least {least:.1e}, which {like.dtype} can meet, got "
                f"{float(t.min()):.1e}. "
                + ("Write ode.double()(x.double())." if like.dtype == torch.float32 else "Write tolerance=1e-9.")
            )
        return t.expand(rows)

    def _require_no(self, tolerance: Any) -> None:
        if tolerance is not None:
            raise ValueError(
                f"ProjectedODE asked for no tolerance with method={self.method!r}, whose steps are equal, got one. Write "
                'ProjectedODE(..., method="dopri5").'
            )

    # --- observation times -------------------------------------------------------------------------------
    def _observed(self, nodes: Tensor, times: Any, motion: Motion) -> Tensor:
        """The states at the observation times, (*batch, k, *shape), from those of a run with equal steps."""
        s, dt = self._passed(times, nodes[0]), abs(self.horizon) / self.steps
        seen = []
        for t in s.unbind(-1):
            t = motion.spread(t, nodes) if t.dim() else t
            i = ((t.detach() / dt if dt else 0 * t).ceil() - 1).clamp(0, self.steps - 1)
            node = nodes.take_along_dim(i.long().expand(1, *nodes.shape[1:]), 0)[0]
            seen.append(motion.step(i * dt, t - i * dt, node).end)
        return torch.stack(seen, nodes.dim() - 1 - len(self.M.shape))

    def _passed(self, times: Any, like: Tensor) -> Tensor:
        """Observation times as the time since the start, in the dtype of the points, or an error that says what is wrong."""
        rows = like.shape[: like.dim() - len(self.M.shape) - self.tokens]
        t = torch.as_tensor(times, dtype=like.dtype, device=like.device)
        if not t.dim() or not t.shape[-1] or (t.dim() > 1 and t.shape[:-1] != rows):
            own = f"({', '.join(map(str, (*rows, 'k')))})"
            raise ValueError(
                f"ProjectedODE asked for times of shape (k,), shared by all rows, or {own}, a row of times for each point, got "
                f"{tuple(t.shape)}. Write times=torch.linspace(0, {self.horizon:g}, 5), for example."
            )
        if looking(t):
            self._require_order(t.detach())
        return t if self.horizon >= 0 else -t

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


def _has_gradient(motion: Motion, x: Tensor) -> bool:
    """Whether the velocity depends on something that asks for a gradient; one evaluation of the field tells."""
    if not torch.is_grad_enabled() or x.requires_grad:
        return torch.is_grad_enabled()
    zero = torch.zeros(motion.rows(x), dtype=x.dtype, device=x.device)
    return motion.rate(motion.spread(zero, x), x).requires_grad


def _has_values(x: Tensor) -> bool:
    """Whether the numbers of x can be looked at: not in a compiled or exported graph, nor under vmap."""
    return not (torch.compiler.is_compiling() or x.is_meta or torch._C._functorch.is_batchedtensor(x))  # pyright: ignore[reportAttributeAccessIssue]
