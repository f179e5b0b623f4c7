"""A projection learned by flow matching: `VelocityNet` v(x, t) and the set `Flow` it defines."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ..kernels.derivative import eager
from ..kernels.vectors import norm
from .base import EPS, LearnedSet
from .rk45 import rk45

KEPT = 2**26  # numbers that a walk may keep for its backward pass: 256 MB in float32
LARGEST = 1e15  # entries are cut there: beyond, LayerNorm's variance overflows in float32; v no longer changes there
SPEED = 0.5  # |v_n| of the paper: a point that left M at time 0 is at most SPEED t away
MARGIN = 2.0  # an own time is this much longer than the straight way back takes


class VelocityNet(nn.Module):
    """v(x, t) in R^size: 1 + depth times Linear, LayerNorm, GELU, Dropout on [x; t], then Linear."""

    def __init__(self, size: int, width: int = 256, depth: int = 8, dropout: float = 0.1):
        super().__init__()
        self.size, self.width, self.depth, self.dropout = size, width, depth, dropout
        self.first = nn.Linear(size + 1, width)
        self.hidden = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(depth + 1)])
        self.out = nn.Linear(width, size)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """x: (*batch, size); t: broadcastable to batch."""
        return self.at(x, self.clock(t))

    def clock(self, t: Tensor) -> Tensor:
        """What t adds to the first layer, W_t t + b: (*t, width). W [x; t] + b = W_x x + clock(t)."""
        return t.unsqueeze(-1) * self.first.weight[:, -1] + self.first.bias

    def at(self, x: Tensor, clock: Tensor) -> Tensor:
        """The velocity at x, where `clock` is what the first layer makes of the time."""
        h = F.linear(x.clamp(-LARGEST, LARGEST), self.first.weight[:, :-1]) + clock
        for scaled, layer in zip(self.norms, [*self.hidden, self.out], strict=True):
            h = layer(F.dropout(F.gelu(scaled(h)), self.dropout, self.training))
        return h


class Flow(LearnedSet):
    """The set that samples were drawn from; P(x) = x(0) where dx/dt = v(x, t) and x(t0) = x. Approximate: not in M exactly.

    The field points away from M, and time runs down from t0, so a step is x - dt v(x, t): the paper's dx/ds = -v, s = t0 - t.
    In training mode, and wherever a gradient is asked for (in eval mode too) or values cannot be looked at (compile, vmap):
    `steps` Euler steps. In eval mode without gradient: RK45 in float64, every row with its own steps, so that a row's
    projection does not depend on its neighbours.

    As in the paper, t0 = T for every x. With `samples` (n, *shape) of the set, x sets out at its own time: seen from x at time t,
    the mean of the points of M it may come from is x - t v(x, t), so t |v(x, t)| estimates the distance to M, and

        t0 = min(t1, 2 t1 |v(x, t1)| / speed),  t1 = min(T, 2 d / speed),  d the distance to the nearest sample,

    2 being a margin: too late a start falls short of M, too early a one drifts along it. All of it is differentiated, t0 too.

    T is in units of x/scale, which is what the network sees. Owns `net`: freezes it, and keeps its dropout off.
    """

    method = "flow"
    samples: Tensor | None
    CHUNK = 2048  # rows integrated at once by RK45: bounds the memory

    def __init__(
        self,
        net: VelocityNet,
        shape: int | tuple[int, ...],
        T: float,
        scale: float = 1.0,
        steps: int = 40,
        rtol: float = 1e-6,
        atol: float = 1e-8,
        max_steps: int = 10_000,
        samples: Tensor | None = None,
    ):
        super().__init__((shape,) if isinstance(shape, int) else shape)
        if math.prod(self.shape) != net.size:
            raise ValueError(
                f"Flow asked for a network of {math.prod(self.shape)} numbers for points of shape {self.shape}, got {net.size}. "
                f"Write VelocityNet({math.prod(self.shape)})."
            )
        for name, value in {"T": T, "scale": scale, "steps": steps}.items():
            if not 0 < value < math.inf:
                raise ValueError(f"Flow asked for a finite {name} > 0, got {value}.")
        self.net = net.requires_grad_(False).eval()
        self.T, self.scale, self.steps = float(T), float(scale), int(steps)
        self.rtol, self.atol, self.max_steps = float(rtol), float(atol), int(max_steps)
        self.register_buffer("samples", None, persistent=False)
        if samples is not None:
            self._constant("samples", samples.detach().reshape(len(samples), -1).double())

    # --- the set -----------------------------------------------------------------------------------------
    def _project(self, x):
        """In x's dtype, where the other learned sets take float64: networks are trained on flows in float32."""
        return self.foot(self._flat(x).reshape(-1, self.net.size)).reshape(x.shape)

    def foot(self, z, eps=EPS):
        return self._integrate(z / self.scale) * self.scale

    def known(self):
        return super().known() if self.samples is None else self.samples

    def trusted(self, z, y):
        """Moved no further than the paper's displacements, and, where samples are kept, set out within them of a sample."""
        near = torch.isfinite(y).all(-1) & (norm(z - y) <= SPEED * self.T * self.scale)
        return near if self.samples is None else near & (self._gap(z / self.scale) <= SPEED * self.T)

    # --- the two integrators, of rows in units of scale --------------------------------------------------
    def _integrate(self, z: Tensor) -> Tensor:
        """Where the walk would fill the memory, only z is kept for the backward pass, and the steps are walked again there."""
        wants_gradient = torch.is_grad_enabled() and z.requires_grad
        if eager() and not self.training and not wants_gradient:
            return self._rk45(z)
        kept = 3 * len(z) * self.steps * (self.net.depth + 1) * self.net.width  # a layer's input, normalised form, GELU's input
        if eager() and wants_gradient and kept > KEPT:
            return checkpoint(self._walk, z, use_reentrant=False, preserve_rng_state=False)
        return self._walk(z)

    def _walk(self, z: Tensor) -> Tensor:
        """Euler steps: of T/steps, for which all clocks are read at once, or of t0/steps, each row's own."""
        net = self._net(z.dtype)
        if self.samples is None:
            dt = self.T / self.steps
            times = torch.arange(self.steps, 0, -1, dtype=z.dtype, device=z.device) * dt
            for clock in net.clock(times).unbind():
                z = z.sub(net.at(z, clock), alpha=dt)
            return z
        dt = self._start(net, z) / self.steps
        for k in range(self.steps, 0, -1):
            z = z - dt[:, None] * net(z, k * dt)
        return z

    @torch.no_grad()
    def _rk45(self, z: Tensor) -> Tensor:
        net, how = self._net(torch.float64), (self.rtol, self.atol, self.max_steps)
        done = [rk45(net, rows, self._start(net, rows), *how) for rows in z.double().split(self.CHUNK)]
        return torch.cat(done).to(z.dtype)

    def _start(self, net: VelocityNet, z: Tensor) -> Tensor:
        """(rows,): t0, the time at which each row sets out."""
        if self.samples is None:
            return z.new_full((len(z),), self.T)
        latest = (self._gap(z) * (MARGIN / SPEED)).clamp(max=self.T)
        back = norm(latest[:, None] * net(z, latest))
        return torch.minimum(latest, back * (MARGIN / SPEED))

    def _gap(self, z: Tensor) -> Tensor:
        """(rows,): the distance to the nearest sample. Which one that is takes float64."""
        assert self.samples is not None
        known = self.samples / self.scale
        half = known.square().sum(-1) / 2
        nearest = [(half - rows.double() @ known.mT).argmin(-1) for rows in z.detach().split(self.CHUNK)]
        return norm(z - known[torch.cat(nearest)].to(z.dtype))

    @torch.no_grad()
    def walked(self, z: Tensor) -> Tensor:
        """P of rows z (rows, d) by Euler steps, whatever the mode."""
        return torch.cat([self._walk(rows / self.scale) * self.scale for rows in z.split(self.CHUNK)])

    def _net(self, dtype: torch.dtype) -> VelocityNet:
        """The network in another precision. Its casts by `.to` are refused inside torch.func's transforms (torch 2.13)."""
        if self.net.out.weight.dtype == dtype:
            return self.net
        net = copy.deepcopy(self.net)
        for layer in net.modules():
            cast: dict[str, Any] = {k: p.to(dtype) for k, p in layer._parameters.items() if p is not None}
            layer._parameters.update(cast)
        return net

    # --- a module that is not trained with its surroundings -----------------------------------------------
    def train(self, mode: bool = True):
        super().train(mode)
        self.net.eval()
        return self

    def _apply(self, fn, recurse=True):
        """As for every set's parameters: casts of the surrounding model leave them at float32 or better."""
        before = [p.data for p in self.net.parameters()]
        super()._apply(fn, recurse)
        for p, old in zip(self.net.parameters(), before, strict=True):
            if p.dtype in (torch.float16, torch.bfloat16):
                p.data = old.to(p.device)
        return self

    # --- to disk and back --------------------------------------------------------------------------------
    def tensors(self) -> dict[str, Tensor]:
        own = {} if self.samples is None else {"samples": self.samples}
        return {f"net.{k}": w.detach().clone().contiguous() for k, w in self.net.state_dict().items()} | own

    def spec(self) -> dict[str, Any]:
        net = {k: getattr(self.net, k) for k in ("size", "width", "depth", "dropout")}
        own = {k: getattr(self, k) for k in ("T", "scale", "steps", "rtol", "atol", "max_steps")}
        return {"net": net, "shape": list(self.shape), **own}

    @classmethod
    def from_parts(cls, tensors: dict[str, Tensor], spec: dict[str, Any]) -> Flow:
        """The flow, in eval mode. The weights of the paper's stored runs are named without the `net.` of files."""
        weights = {k.removeprefix("net."): w for k, w in tensors.items() if k != "samples"}
        net = VelocityNet(**spec["net"]).to(weights["out.weight"].dtype)
        net.load_state_dict(weights)
        own = {k: v for k, v in spec.items() if k not in ("net", "shape")}
        return cls(net, tuple(spec["shape"]), **own, samples=tensors.get("samples")).eval()

    load = from_parts  # the name that callers of Flow know

    def extra_repr(self):
        shape = self.shape[0] if len(self.shape) == 1 else self.shape
        scale = "" if self.scale == 1 else f", scale={self.scale:g}"
        return f"{shape}, T={self.T:g}{scale}" + ("" if self.samples is None else ", own time")
