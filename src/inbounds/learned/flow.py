"""A projection learned by flow matching: `VelocityNet` v(x, t) and the set `Flow` it defines."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ..core import ConstraintSet
from ..kernels.derivative import eager
from ..kernels.vectors import norm
from .rk45 import rk45

KEPT = 2**26  # numbers that a walk may keep for its backward pass: 256 MB in float32
LARGEST = 1e15  # entries are cut there: beyond, LayerNorm's variance overflows in float32; v no longer changes there


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
        h = self._activate(0, F.linear(x, self.first.weight[:, :-1]) + clock)
        for i, layer in enumerate(self.hidden, 1):
            h = self._activate(i, layer(h))
        return self.out(h)

    def _activate(self, i: int, h: Tensor) -> Tensor:
        return F.dropout(F.gelu(self.norms[i](h)), self.dropout, self.training)


Start = Callable[[VelocityNet, Tensor], Tensor]  # (net, z (rows, size)) -> (rows,): when each row sets out, in [0, T]


class Flow(ConstraintSet):
    """The set that samples were drawn from; P(x) = x(0) where dx/dt = v(x, t) and x(T) = x. Approximate: not in M exactly.

    The field points away from M, and time runs down from T, so a step is x - dt v(x, t): the paper's dx/ds = -v, s = T - t.
    In training mode, and wherever a gradient is asked for (in eval mode too) or values cannot be looked at (compile, vmap):
    `steps` Euler steps. In eval mode without gradient: RK45 in float64, every row with its own steps, so that a row's
    projection does not depend on its neighbours.

    T is in units of x/scale, which is what the network sees. Owns `net`: freezes it, and keeps its dropout off.
    """

    exact = False
    reach = None
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
    ):
        super().__init__()
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
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

    # --- the set -----------------------------------------------------------------------------------------
    def _project(self, x):
        return (self._integrate(self._standard(x)) * self.scale).reshape(x.shape)

    def _violation(self, x):
        """|x - P(x)|: how far the flow moves x."""
        return norm(self._flat(x - self._project(x)))

    def _tangent(self, x, v):
        """DP(x) v, of the Euler steps."""
        return torch.func.jvp(lambda x: self._walk(self._standard(x)).reshape(x.shape) * self.scale, (x,), (v,))[1]

    def _standard(self, x: Tensor) -> Tensor:
        return self._flat(x).reshape(-1, self.net.size) / self.scale  # (rows, size)

    # --- the two integrators -----------------------------------------------------------------------------
    def _integrate(self, z: Tensor, start: Start | None = None) -> Tensor:
        wants_gradient = torch.is_grad_enabled() and z.requires_grad
        by_euler = self.training or wants_gradient or not eager()
        return self._euler(z, start) if by_euler else self._rk45(z, start)

    def _euler(self, z: Tensor, start: Start | None = None) -> Tensor:
        """Where the walk would fill the memory, only z is kept for the backward pass, and the steps are walked again there."""
        if eager() and torch.is_grad_enabled() and z.requires_grad and self._kept(len(z)) > KEPT:
            return checkpoint(lambda z: self._walk(z, start), z, use_reentrant=False, preserve_rng_state=False)
        return self._walk(z, start)

    def _kept(self, rows: int) -> int:
        """Numbers that a walk keeps for its backward pass: of every layer the input, its normalised form and GELU's input."""
        return 3 * rows * self.steps * (self.net.depth + 1) * self.net.width

    def _walk(self, z: Tensor, start: Start | None = None) -> Tensor:
        net, dt = self._net(z.dtype), self.T / self.steps
        if start is not None:
            return self._walk_from(start(net, z), net, z)
        times = torch.arange(self.steps, 0, -1, dtype=z.dtype, device=z.device) * dt
        for clock in net.clock(times).unbind():
            z = z.sub(net.at(z.clamp(-LARGEST, LARGEST), clock), alpha=dt)
        return z

    def _walk_from(self, t0: Tensor, net: VelocityNet, z: Tensor) -> Tensor:
        """Each row from its own time t0 (rows,), in steps of t0/steps."""
        dt = t0 / self.steps
        for k in range(self.steps, 0, -1):
            z = z - dt[:, None] * net(z.clamp(-LARGEST, LARGEST), k * dt)
        return z

    @torch.no_grad()
    def _rk45(self, z: Tensor, start: Start | None = None) -> Tensor:
        net = self._net(torch.float64)
        how = (self.rtol, self.atol, self.max_steps)
        done = [rk45(net, c, self.T if start is None else start(net, c), *how) for c in z.double().split(self.CHUNK)]
        return torch.cat(done).to(z.dtype)

    def _net(self, dtype: torch.dtype) -> VelocityNet:
        same = self.net.out.weight.dtype == dtype
        return self.net if same else copy.deepcopy(self.net).to(dtype)

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
        """The weights, ready for safetensors; with spec(), all that `load` needs."""
        return {k: w.detach().clone().contiguous() for k, w in self.net.state_dict().items()}

    def spec(self) -> dict:
        """Plain numbers, ready for JSON."""
        net = {k: getattr(self.net, k) for k in ("size", "width", "depth", "dropout")}
        own = {k: getattr(self, k) for k in ("T", "scale", "steps", "rtol", "atol", "max_steps")}
        return {"net": net, "shape": list(self.shape), **own}

    @classmethod
    def load(cls, tensors: dict[str, Tensor], spec: dict) -> Flow:
        """The flow, in eval mode, that tensors() and spec() describe."""
        net = VelocityNet(**spec["net"]).to(tensors["out.weight"].dtype)
        net.load_state_dict(tensors)
        own = {k: v for k, v in spec.items() if k not in ("net", "shape")}
        return cls(net, tuple(spec["shape"]), **own).eval()

    def extra_repr(self):
        shape = self.shape[0] if len(self.shape) == 1 else self.shape
        scale = "" if self.scale == 1 else f", scale={self.scale:g}"
        return f"{shape}, T={self.T:g}{scale}"
