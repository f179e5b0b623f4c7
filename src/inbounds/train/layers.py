"""K layered networks, shallow and deep ones together, evaluated and differentiated by one sweep over planes.

Layered: an IAA of MLPBlocks, then perhaps a linear map, then perhaps the step of an FAA. The members come deepest first. At
layer i only the members that have it take part; those that are finished wait for the end, so that a shallow member meets no
layer that is not its own. Its places in theta beyond its depth are zero and stay so: no gradient, nothing to decay.

Points are (K, components, rows), see planes.py. The reverse sweep is written out: no graph is recorded but for steps without a
rule (learned sets), whose derivative is asked of autograd.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..learned.flow import Flow
from ..nets import FAA, IAA, Flat, MLPBlock
from ..steps import Projection, Step
from .planes import Rule, rule_of

Loss = Callable[[Tensor, Tensor], Tensor]  # (K, rows, ...) outputs and targets -> (K,)


@dataclass(frozen=True)
class Parts:
    """A layered network: its body, and the names of what follows it."""

    body: IAA
    prefix: str  # of the body's parameters
    out: str | None = None  # the linear map
    final: Step | None = None
    based: bool = False  # the final step sets out from the input


def parts(model: nn.Module) -> Parts | None:
    """The parts of a layered network; None for others."""
    if isinstance(model, FAA):
        inner = parts(model.net)
        based = isinstance(model.base, nn.Identity)
        sound = model.point is None and (based or (model.base is None and isinstance(model.step, Projection)))
        if inner is None or inner.final is not None or not sound or _trains(model.step):
            return None
        out = None if inner.out is None else f"net.{inner.out}"
        return Parts(inner.body, f"net.{inner.prefix}", out, model.step, based)
    if type(model) is nn.Sequential and len(model) == 3:
        body, flat, out = model
        inner = parts(body)
        plain = type(flat) is Flat and type(out) is nn.Linear and out.bias is not None
        return Parts(inner.body, f"0.{inner.prefix}", "2.") if inner and inner.out is None and plain else None
    if isinstance(model, IAA) and model.head is None and all(_plain(b) for b in model.blocks) and not _trains(model.step):
        return Parts(model, "")
    return None


def _plain(block: nn.Module) -> bool:
    return type(block) is MLPBlock and all(type(m) in (nn.Linear, nn.ReLU) for m in block.layers)


def _trains(step: Step) -> bool:
    return any(p.requires_grad for p in step.parameters())


def layered(models: Sequence[nn.Module]) -> bool:
    """Whether these models make a LayeredStack."""
    return all(parts(m) is not None and all(p.requires_grad for p in _own(m)) for m in models)


def _own(model: nn.Module) -> list[nn.Parameter]:
    """Parameters outside of steps: a learned set inside a step is frozen."""
    inside = {id(p) for m in model.modules() if isinstance(m, Step) for p in m.parameters()}
    return [p for p in model.parameters() if id(p) not in inside]


class LayeredStack:
    """K layered networks, deepest first. `theta` (K, P) holds their parameters; write into it in place.

    compile: the rules of heavy steps are compiled (a C++ compiler is needed; it takes a minute once).
    """

    how = "layered"

    def __init__(self, models: Sequence[nn.Module], compile: bool = False):
        self.models, found, self._mode = list(models), [parts(m) for m in models], None
        self.parts = [p for p in found if p is not None]
        if len(self.parts) < len(self.models) or not self.models:
            raise ValueError("A layered stack asked for IAA networks of MLPBlocks, perhaps inside FAA, got another network.")
        self.depths = [len(p.body.blocks) for p in self.parts]
        if self.depths != sorted(self.depths, reverse=True):
            raise ValueError(f"A layered stack asked for its deepest models first, got depths {self.depths}. Sort them.")
        self.top = self.parts[0]
        self.active = [sum(d > i for d in self.depths) for i in range(self.depths[0])]
        named = [(n, p) for n, p in self.models[0].named_parameters() if p.requires_grad]
        self.names, self.shapes = [n for n, _ in named], [p.shape for _, p in named]
        self.theta = torch.zeros(len(models), sum(math.prod(s) for s in self.shapes), dtype=named[0][1].dtype)
        self.grad = torch.zeros_like(self.theta)
        self._fill()
        self._bind(compile)

    def __len__(self) -> int:
        return len(self.models)

    def _places(self) -> dict[str, slice]:
        ends = torch.tensor([0] + [math.prod(s) for s in self.shapes]).cumsum(0).tolist()
        return {n: slice(a, b) for n, a, b in zip(self.names, ends, ends[1:], strict=False)}

    def _fill(self) -> None:
        places = self._places()
        for row, model in zip(self.theta, self.models, strict=True):
            for name, p in model.named_parameters():
                if p.requires_grad:
                    shape = self.shapes[self.names.index(name)] if name in places else None
                    if shape is None or p.shape[1:] != shape[1:] or (p.shape != shape and p.dim() > 1):
                        raise ValueError(f"A layered stack asked for models that differ in depth alone, got {name}.")
                    start = places[name].start
                    row[start : start + p.numel()] = p.detach().reshape(-1)

    def _bind(self, compile: bool) -> None:
        """Views of theta and grad: for every linear map its weight (n, out, in) and bias (n, out), n the members that have it."""
        theta, grad = self._named(self.theta), self._named(self.grad)

        def linear(name: str, n: int) -> Linear:
            return Linear(*(t[n0][:n] for n0 in (f"{name}weight", f"{name}bias") for t in (theta, grad)))

        self.blocks = []
        for i, block in enumerate(self.top.body.blocks):
            assert isinstance(block, MLPBlock)
            inner = [f"{self.top.prefix}blocks.{i}.layers.{j}." for j, m in enumerate(block.layers) if type(m) is nn.Linear]
            self.blocks.append([linear(name, self.active[i]) for name in inner])
        dt = f"{self.top.prefix}dt"
        self.dt, self.dt_grad = theta[dt], grad[dt]  # (K, depth)
        self.out = linear(self.top.out, len(self)) if self.top.out else None
        self.step = Move(self.top.body.step, compile)
        self.final = Move(self.top.final, compile) if self.top.final else None

    def _named(self, flat: Tensor) -> dict[str, Tensor]:
        return {
            n: flat[:, place].unflatten(1, s) if len(s) > 1 else flat[:, place]
            for (n, place), s in zip(self._places().items(), self.shapes, strict=True)
        }

    def train(self, mode: bool = True) -> None:
        """Learned flows keep their training solver: their evaluation solver is for the finished model."""
        if self._mode == mode:
            return  # asked every epoch, and modules are many
        self._mode = mode
        self.models[0].train(mode)
        for m in self.models[0].modules():
            if isinstance(m, Flow):
                m.train()

    # --- forward -------------------------------------------------------------------------------------------
    @torch.no_grad()
    def prepare(self, x: Tensor) -> tuple[Tensor, ...]:
        """What a sweep sets out from, as planes (components, rows): h0, and the base of the final step where it has one."""
        h0 = self.top.body._start(x)
        base = (self.top.final.M.project(x),) if self.top.final is not None and self.top.based else ()
        shape = self.top.body.step.M.shape
        return tuple(t.reshape(-1, math.prod(shape)).mT.contiguous() for t in (h0, *base))

    @torch.no_grad()
    def outputs(self, x: Tensor) -> Tensor:
        """x (K, rows, ...) -> (K, rows, ...)."""
        starts = [self.prepare(row) for row in (x[:1] if x.stride(0) == 0 else x)]
        planes = tuple(torch.stack(p).expand(len(self), -1, -1) for p in zip(*starts, strict=True))
        return self._shaped(self._forward(planes, [])[0])

    def _shaped(self, y: Tensor) -> Tensor:
        """Planes as points (K, rows, *shape): a view."""
        if self.final is not None:
            return y.mT.unflatten(-1, self.final.step.M.shape)
        return y.mT if self.out is not None else y.mT.unflatten(-1, self.step.step.M.shape)

    def _forward(self, start: tuple[Tensor, ...], tape: list) -> tuple[Tensor, Any]:
        """Outputs (K, size, rows); what the reverse sweep needs goes on the tape and into the second value."""
        h, finished = start[0], []
        for i, block in enumerate(self.blocks):
            n = self.active[i]
            if n < h.shape[0]:
                finished.append(h[n:])
                h = h[:n]
            inputs, u = [], h
            for j, layer in enumerate(block):
                inputs.append(u)
                u = layer(u)
                u = u.relu_() if j + 1 < len(block) else u
            v = u * self.dt[:n, i, None, None]
            y, memory = self.step(h, v)
            tape.append((inputs, u, memory))
            h = y
        h = torch.cat([h, *finished[::-1]]) if finished else h
        y = h if self.out is None else self.out(h)
        if self.final is None:
            return y, (h, None)
        y, memory = self.final(start[1] if self.top.based else None, y)
        return y, (h, memory)

    # --- backward ------------------------------------------------------------------------------------------
    @torch.no_grad()
    def gradients(self, x: tuple[Tensor, ...], target: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
        """Losses (K,) and their gradients (K, P); x: prepared planes (K, components, rows)."""
        tape: list = []
        y, (h, memory) = self._forward(x, tape)
        with torch.enable_grad():
            y.requires_grad_()
            value = loss(self._shaped(y), target)
            (g,) = torch.autograd.grad(value.sum(), y)
        if self.final is not None:
            g = self.final.slope(memory, g)[1]
        if self.out is not None:
            g = self.out.slope(h, g)
        self._backward(tape, g)
        return value.detach(), self.grad

    def _backward(self, tape: list, gradient: Tensor) -> None:
        g = gradient[: self.active[-1]]
        for i in range(len(self.blocks) - 1, -1, -1):
            n = self.active[i]
            if g.shape[0] < n:
                g = torch.cat([g, gradient[g.shape[0] : n]])
            inputs, u, memory = tape.pop()
            gh, gv = self.step.slope(memory, g)
            torch.sum(gv * u, (1, 2), out=self.dt_grad[:n, i])
            g = gv * self.dt[:n, i, None, None]
            for j in range(len(inputs) - 1, 0, -1):
                g = self.blocks[i][j].slope(inputs[j], g)
                g = torch.ops.aten.threshold_backward(g, inputs[j], 0)
            g = self.blocks[i][0].slope(inputs[0], g, gh if i else None, wanted=i > 0)

    # --- out again -----------------------------------------------------------------------------------------
    def tensors(self, k: int, theta: Tensor | None = None) -> dict[str, Tensor]:
        """Model k's parameters by name, in the shapes of its own depth, copied."""
        return unpack((self.theta if theta is None else theta)[k], self.models[0], self.models[k])


def unpack(row: Tensor, deepest: nn.Module, own: nn.Module) -> dict[str, Tensor]:
    """The parameters of `own` by name, from a row of a stack's theta, which is laid out as the deepest model's."""
    named = [(n, p) for n, p in deepest.named_parameters() if p.requires_grad]
    pieces = dict(zip((n for n, _ in named), row.split([p.numel() for _, p in named]), strict=True))
    return {n: pieces[n][: p.numel()].reshape(p.shape).clone() for n, p in own.named_parameters() if p.requires_grad}


class Linear:
    """y = W x + b on planes, W (n, out, in), b (n, out); `slope` writes the gradients into their places."""

    def __init__(self, weight: Tensor, weight_grad: Tensor, bias: Tensor, bias_grad: Tensor):
        self.weight, self.weight_grad = weight, weight_grad
        self.bias, self.bias_grad = bias.unsqueeze(2), bias_grad
        self.transposed = weight.mT

    def __call__(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, self.weight, x)

    def slope(self, x: Tensor, g: Tensor, plus: Tensor | None = None, wanted: bool = True) -> Tensor:
        """W^T g (+ plus), if wanted."""
        torch.bmm(g, x.mT, out=self.weight_grad)
        torch.sum(g, 2, out=self.bias_grad)
        if not wanted:
            return g
        return torch.bmm(self.transposed, g) if plus is None else torch.baddbmm(plus, self.transposed, g)


def compiled(f: Callable) -> Callable:
    """f through torch.compile for any number of members; f itself, with a warning, where the compiler fails."""
    fast = torch.compile(f, dynamic=True)

    def call(*points: Tensor):
        nonlocal fast
        if fast is f:
            return f(*points)
        try:
            return fast(*points)
        except RuntimeError as error:
            warnings.warn(f"torch.compile failed ({type(error).__name__}); training goes on without it, slower.", stacklevel=2)
            fast = f
            return f(*points)

    return call


class Move:
    """A step on planes: by its rule, or through autograd where it has none. slope(memory, g) = gradients by point and update."""

    def __init__(self, step: Step, compile: bool):
        self.step, self.rule = step, rule_of(step)
        if compile and self.rule is not None and self.rule.heavy:
            self.rule = Rule(compiled(self.rule.value), compiled(self.rule.slope))

    def __call__(self, h: Tensor | None, v: Tensor) -> tuple[Tensor, Any]:
        if self.rule is not None:
            h = v.new_zeros(1, 1, 1) if h is None else h
            y = self.rule.value(h, v)
            return y, (h, v, y)
        return self._recorded(h, v)

    def _recorded(self, h: Tensor | None, v: Tensor) -> tuple[Tensor, Any]:
        shape = self.step.M.shape
        with torch.enable_grad():
            h = None if h is None else h.detach().requires_grad_()
            v = v.detach().requires_grad_()
            point = None if h is None else h.mT.unflatten(-1, shape)
            y = self.step(point, v.mT).flatten(2).mT
        return y.detach(), (h, v, y)

    def slope(self, memory: Any, g: Tensor) -> tuple[Tensor | None, Tensor]:
        """The gradients of the point and of the layer's output, given that of the next point."""
        h, v, y = memory
        if self.rule is not None:
            return self.rule.slope(h, v, y, g)
        if h is None:
            return None, torch.autograd.grad(y, v, g)[0]
        by_point, by_output = torch.autograd.grad(y, (h, v), g)
        return by_point, by_output
