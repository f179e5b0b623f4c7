"""A projection learned by flow matching: `VelocityNet` v(x, t), the set `Flow` it defines, and its training."""

from __future__ import annotations

import copy
import hashlib
import math
import zlib
from collections.abc import Callable
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.checkpoint import checkpoint

from ..core import ConstraintSet, check_point
from ..kernels.derivative import eager
from ..kernels.vectors import norm

FAR = 1e15  # beyond, LayerNorm's variance overflows in float32; v no longer changes there


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
        h = self._activate(0, F.linear(x, self.first.weight[:, :-1]) + clock)
        for i, layer in enumerate(self.hidden, 1):
            h = self._activate(i, layer(h))
        return self.out(h)

    def _activate(self, i: int, h: Tensor) -> Tensor:
        return F.dropout(F.gelu(self.norms[i](h)), self.dropout, self.training)


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
        z = self._standard(x)
        wants_gradient = torch.is_grad_enabled() and x.requires_grad
        z = self._euler(z) if self.training or wants_gradient or not eager() else self._rk45(z)
        return (z * self.scale).reshape(x.shape)

    def _violation(self, x):
        """|x - P(x)|: how far the flow moves x."""
        return norm(self._flat(x - self._project(x)))

    def _tangent(self, x, v):
        """DP(x) v, of the Euler steps."""
        return torch.func.jvp(lambda x: self._walk(self._standard(x)).reshape(x.shape) * self.scale, (x,), (v,))[1]

    def _standard(self, x: Tensor) -> Tensor:
        return self._flat(x).reshape(-1, self.net.size) / self.scale  # (rows, size)

    # --- the two integrators -----------------------------------------------------------------------------
    def _euler(self, z: Tensor) -> Tensor:
        """Only z is kept for the backward pass; the steps are walked again there."""
        if eager() and torch.is_grad_enabled() and z.requires_grad:
            return checkpoint(self._walk, z, use_reentrant=False, preserve_rng_state=False)
        return self._walk(z)

    def _walk(self, z: Tensor) -> Tensor:
        net, dt = self._net(z.dtype), self.T / self.steps
        times = torch.arange(self.steps, 0, -1, dtype=z.dtype, device=z.device) * dt
        for clock in net.clock(times).unbind():
            z = z.sub(net.at(z.clamp(-FAR, FAR), clock), alpha=dt)
        return z

    @torch.no_grad()
    def _rk45(self, z: Tensor) -> Tensor:
        net = self._net(torch.float64)
        done = [rk45(net, c, self.T, self.rtol, self.atol, self.max_steps) for c in z.double().split(self.CHUNK)]
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


# Dormand and Prince's tableau: stage times, stage weights, weights of the error. The last stage is the solution.
C = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
A = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
E = (-71 / 57600, 0.0, 71 / 16695, -71 / 1920, 17253 / 339200, -22 / 525, 1 / 40)


def rk45(field: Callable[[Tensor, Tensor], Tensor], z: Tensor, T: float, rtol: float, atol: float, max_steps: int) -> Tensor:
    """z(0) from z(T) = z, where dz/dt = field(z (rows, d), t (rows,)): Dormand-Prince with SciPy's step control, row by row.

    Rows that have arrived leave the batch. Rows with a non-finite entry are returned as they came.
    """
    out, rows = z.clone(), torch.isfinite(z).all(-1).nonzero()[:, 0]
    z = z[rows]
    t = torch.full_like(rows, T, dtype=z.dtype)
    f = field(z, t)
    h = _first_step(field, z, f, t, rtol, atol)
    refused = torch.zeros_like(rows, dtype=torch.bool)
    for _ in range(max_steps):
        if not len(rows):
            return out
        h = torch.minimum(h, t)
        k, y = [f], z
        for c, a in zip(C, A, strict=True):
            y = z - h[:, None] * _combine(a, k)
            k.append(field(y, t - c * h))
        error = _rms(h[:, None] * _combine(E, k) / (atol + rtol * torch.maximum(z.abs(), y.abs())))
        ok = error < 1
        factor = (0.9 * error**-0.2).nan_to_num(nan=0.2).clamp(0.2, 10)  # a NaN error refuses the step, too
        t, z, f = torch.where(ok, t - h, t), torch.where(ok[:, None], y, z), torch.where(ok[:, None], k[-1], f)
        h = h * torch.where(refused, factor.clamp(max=1), factor)
        refused = ~ok
        if bool((refused & ~(h >= 10 * torch.finfo(t.dtype).eps * t)).any()):  # h may be NaN
            break
        left = t > 0
        if not bool(left.all()):
            out[rows[~left]] = z[~left]
            rows, t, z, f, h, refused = (s[left] for s in (rows, t, z, f, h, refused))
    if not len(rows):
        return out
    raise RuntimeError(
        f"Flow: {len(rows)} of {len(out)} rows did not reach t = 0 in {max_steps} RK45 steps, or their step shrank to nothing; "
        f"the slowest is at t = {float(t.max()):.3g} of T = {T:.3g}. The field is too steep there: train it longer, loosen "
        f"rtol and atol, raise max_steps, or use the Euler steps: flow.train().project(x)."
    )


def _first_step(field, z: Tensor, f: Tensor, T: Tensor, rtol: float, atol: float) -> Tensor:
    """Hairer, Norsett, Wanner, Solving ODEs I, II.4, as SciPy has it: (rows,)."""
    scale = atol + rtol * z.abs()
    d0, d1 = _rms(z / scale), _rms(f / scale)
    small = (d0 < 1e-5) | (d1 < 1e-5)
    h0 = torch.minimum(torch.where(small, 1e-6, 0.01 * d0 / torch.where(small, 1.0, d1)), T)
    d2 = _rms((field(z - h0[:, None] * f, T - h0) - f) / scale) / h0
    flat = (d1 <= 1e-15) & (d2 <= 1e-15)
    h1 = torch.where(flat, (1e-3 * h0).clamp(min=1e-6), (0.01 / torch.where(flat, 1.0, torch.maximum(d1, d2))) ** 0.2)
    return torch.minimum(torch.minimum(100 * h0, h1), T)


def _rms(e: Tensor) -> Tensor:
    return e.square().mean(-1).sqrt()


def _combine(weights: tuple[float, ...], k: list[Tensor]) -> Tensor:
    total = weights[0] * k[0]
    for w, s in zip(weights[1:], k[1:], strict=True):
        total = total.add(s, alpha=w) if w else total
    return total


class FlowTraining:
    """Flow matching as in the paper: v(x_n + v_n t_k, t_k) = v_n in the mean, v_n of length `speed` in random directions.

    T = 2 alpha median |x_n|, of the training points divided by `scale`; t_k = `times` uniform points of [0, T]. New v_n every
    epoch, the same for validation. Halves lr after `patience` epochs without improvement, stops after `stop_after`, keeps the
    best. `batches` caps the minibatches of an epoch.

        training = FlowTraining(train, val)
        while not training.done:
            training.advance()
        M = training.flow()

    On the CPU, in float32. Randomness comes from (seed, epoch) alone: state(), restore() and further epochs give the same bits
    as an uninterrupted run.
    """

    PAIRS = 24_000  # validation pairs at most

    def __init__(
        self,
        train: Tensor,
        val: Tensor,
        *,
        alpha: float = 0.5,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        epochs: int = 2000,
        batch: int = 256,
        patience: int = 100,
        stop_after: int = 1000,
        times: int = 30,
        speed: float = 0.5,
        width: int = 256,
        depth: int = 8,
        dropout: float = 0.1,
        clip: float = 1.0,
        seed: int = 0,
        batches: int | None = None,
        scale: float = 1.0,
    ):
        _check_samples("train", train)
        _check_samples("val", val)
        check_point(val, tuple(train.shape[1:]), lambda: "FlowTraining's val")
        self.shape, self.scale, self.seed = tuple(train.shape[1:]), float(scale), seed
        self.epochs, self.batch, self.batches, self.stop_after = epochs, batch, batches, stop_after
        self.speed, self.clip = speed, clip
        self._x = self._standard(train)
        self.T = 2 * alpha * float(norm(self._x.double()).quantile(0.5))
        if not self.T > 0:
            raise ValueError(
                f"FlowTraining asked for T = 2 alpha median|x| > 0, got {self.T} with alpha={alpha}. "
                f"Half of the points or more are at the origin: shift the data."
            )
        self._times = torch.linspace(0, self.T, times)
        with self._randomness("start"):
            self._net = VelocityNet(self._x.shape[1], width, depth, dropout)
        with self._randomness("validation"):
            self._val = self._pairs(self._standard(val), self.PAIRS)
        self._adam = torch.optim.AdamW(self._net.parameters(), lr=lr, weight_decay=weight_decay, fused=True)
        self._plateau = ReduceLROnPlateau(self._adam, factor=0.5, patience=patience)
        self._best_net = copy.deepcopy(self._net)
        self.epoch, self.best_epoch, self.loss, self.best = 0, 0, math.inf, math.inf
        knobs = (alpha, lr, weight_decay, batch, patience, times, speed, width, depth, dropout, clip, seed, batches, scale)
        self._key = zlib.crc32(repr((*knobs, tuple(train.shape), tuple(val.shape), f"{self.T:.5g}")).encode())

    @property
    def done(self) -> bool:
        diverged = self.epoch > 0 and not math.isfinite(self.loss)
        return self.epoch >= self.epochs or self.epoch - self.best_epoch >= self.stop_after or diverged

    @property
    def lr(self) -> float:
        return self._adam.param_groups[0]["lr"]

    @property
    def radius(self) -> float:
        """The longest displacement trained on, in units of the data: speed T scale."""
        return self.speed * self.T * self.scale

    def advance(self) -> float:
        """One epoch; the validation loss after it."""
        if self.done:
            raise RuntimeError(f"FlowTraining is done after {self.epoch} epochs. Call flow(), or start one with more epochs.")
        with self._randomness(self.epoch):
            self._train()
        self.epoch, self.loss = self.epoch + 1, self._validate()
        self._plateau.step(self.loss)
        if self.loss < self.best:
            self.best, self.best_epoch = self.loss, self.epoch
            self._best_net.load_state_dict(self._net.state_dict())
        return self.loss

    def flow(self) -> Flow:
        """The set of the best epoch, in eval mode."""
        if not math.isfinite(self.best):
            raise RuntimeError(f"FlowTraining has no finite validation loss after {self.epoch} epochs. Call advance() first.")
        return Flow(copy.deepcopy(self._best_net), self.shape, self.T, self.scale).eval()

    # --- an epoch ----------------------------------------------------------------------------------------
    def _train(self) -> None:
        self._net.train()
        times = len(self._times)
        v = self._velocities(self._x)
        pairs = torch.randperm(len(v) * times).split(self.batch)  # pair i is point i // times at time i % times
        for pair in pairs[: self.batches]:
            n, t = pair // times, self._times[pair % times]
            target = v[n]
            loss = F.mse_loss(self._net(torch.addcmul(self._x[n], target, t[:, None]), t), target)
            self._adam.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self._net.parameters(), self.clip)
            self._adam.step()

    @torch.no_grad()
    def _validate(self) -> float:
        self._net.eval()
        chunks = zip(*(s.split(2048) for s in self._val), strict=True)
        return sum(float((self._net(y, t) - v).double().square().sum()) for y, t, v in chunks) / self._val[2].numel()

    def _velocities(self, x: Tensor) -> Tensor:
        u = torch.randn_like(x)
        return self.speed * u / (norm(u)[:, None] + 1e-8)

    def _pairs(self, x: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
        """(y, t, v) of all pairs, or of a random `most` of them: a stride could meet the same few times only."""
        times, v = len(self._times), self._velocities(x)
        pair = torch.randperm(len(x) * times)[:most]
        n, t = pair // times, self._times[pair % times]
        return x[n] + v[n] * t[:, None], t, v[n]

    def _standard(self, x: Tensor) -> Tensor:
        return (x.detach().cpu().double() / self.scale).float().reshape(len(x), -1)

    @contextmanager
    def _randomness(self, what: int | str):
        """torch's generator, dropout's too, is a function of (seed, what) inside and untouched outside."""
        digest = hashlib.sha256(f"{self.seed}/{what}".encode()).digest()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int.from_bytes(digest[:7]))
            yield

    # --- to disk and back --------------------------------------------------------------------------------
    NUMBERS = ("epoch", "best_epoch", "loss", "best")

    def state(self) -> dict[str, Tensor]:
        """All that restore() needs to go on with the same bits; ready for safetensors."""
        state = {f"net.{k}": w for k, w in self._net.state_dict().items()}
        state |= {f"best.{k}": w for k, w in self._best_net.state_dict().items()}
        for name, p in self._net.named_parameters():
            state |= {f"adam.{name}.{k}": s for k, s in self._adam.state[p].items()}
        numbers = {k: getattr(self, k) for k in self.NUMBERS} | {"lr": self.lr, "key": self._key}
        numbers |= {"plateau.best": self._plateau.best, "plateau.bad": self._plateau.num_bad_epochs}
        state |= {k: torch.tensor(n, dtype=torch.int64 if isinstance(n, int) else torch.float64) for k, n in numbers.items()}
        return {k: s.detach().clone().contiguous() for k, s in state.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on where state() was taken; the arguments must be the same, except epochs and stop_after."""
        if int(state["key"]) != self._key:
            raise ValueError(
                "FlowTraining.restore asked for a state of the same data and arguments (epochs and stop_after may differ), got "
                "another one's. Construct FlowTraining as the run that made it."
            )
        self._net.load_state_dict(_under("net.", state))
        self._best_net.load_state_dict(_under("best.", state))
        for name, p in self._net.named_parameters():
            self._adam.state[p] = {k: s.clone() for k, s in _under(f"adam.{name}.", state).items()}
        for k in self.NUMBERS:
            setattr(self, k, state[k].item())
        self._adam.param_groups[0]["lr"] = state["lr"].item()
        self._plateau.best, self._plateau.num_bad_epochs = state["plateau.best"].item(), int(state["plateau.bad"])


def _under(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): s for k, s in state.items() if k.startswith(prefix)}


def _check_samples(name: str, x: Tensor) -> None:
    if not isinstance(x, Tensor) or not x.dtype.is_floating_point:
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(
            f"FlowTraining asked for a floating point tensor in {name}, got {kind}. Write torch.as_tensor(x).float()."
        )
    if x.dim() < 2 or not x.numel():
        raise ValueError(
            f"FlowTraining asked for samples of shape (N, *shape), N >= 1, in {name}, got {tuple(x.shape)}. "
            f"Numbers of a line are x[:, None]."
        )
    if not torch.isfinite(x).all():
        bad = int((~torch.isfinite(x)).flatten(1).any(1).sum())
        raise ValueError(
            f"FlowTraining asked for finite samples in {name}, but {bad} of {len(x)} rows hold NaN or inf. "
            f"Drop them: x[x.flatten(1).isfinite().all(1)]."
        )


@torch.no_grad()
def denoising(flow: Flow, points: Tensor, radius: float, generator: torch.Generator | None = None) -> float:
    """mean |P(x + r u) - x|^2 over points x of M; r uniform on [0, radius], u a random direction; P by Euler steps.

    Compares flows of different T, whose losses are not comparable, on displacements all of them were trained on:
    radius = min(training.radius for training in candidates), the same generator seed for each.
    """
    check_point(points, flow.shape, lambda: f"denoising with {flow!r}")
    x = flow._flat(points).reshape(-1, flow.net.size)
    u = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
    r = radius * torch.rand(len(x), 1, generator=generator, dtype=x.dtype, device=x.device)
    noisy = x + r * u / norm(u)[:, None]
    total = sum(
        float((flow._walk(y / flow.scale) * flow.scale - c).double().square().sum())
        for y, c in zip(noisy.split(flow.CHUNK), x.split(flow.CHUNK), strict=True)
    )
    return total / len(x)
