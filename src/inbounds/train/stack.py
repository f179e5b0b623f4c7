"""K models of one architecture with their parameters in one (K, P) tensor, evaluated together.

Three ways to evaluate them, equal up to rounding:
- batched: every nn.Linear becomes one batched matrix product over (K, rows, in); everything else maps over leading dims anyway.
- vmapped: torch.func.vmap over the trained parameters; what is not trained must be the same in all models. A learned flow
  inside sees the points of all models in one call, which is much cheaper than one model at a time.
- looped: one model after the other, for large models (transformers), which gain nothing from stacking, and for models that
  differ in more than their trained parameters.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..core import ConstraintSet
from ..learned.flow import Flow
from ..nets import FAA, IAA, AttentionBlock, Flat, MLPBlock
from ..steps import Step

Loss = Callable[[Tensor, Tensor], Tensor]  # (K, rows, ...) outputs and targets -> (K,)

# modules without parameters of their own that map over leading dims
TRANSPARENT = (nn.Sequential, nn.ModuleList, nn.Identity, nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Softplus, nn.ELU, nn.LeakyReLU)
HEAVY = (nn.TransformerEncoderLayer, AttentionBlock)
# Rows at once, by memory: 25 flocks of 10 agents in a layer of 2,048 units are 2 MB, which stay in the cache; 4 such flocks in a
# flow of 40 Euler steps of 8 x 256 units at each of 9 layers keep 400 MB for the backward pass. benchmarks/stack_blocks.py
# measures the time. Another number changes the last bits of trainings, and so how stored ones go on.
LOOPED_ROWS, FLOW_ROWS = 25, 4
OURS = (IAA, FAA, MLPBlock, Flat, Step, ConstraintSet)


def batchable(model: nn.Module) -> bool:
    """Whether every parameter belongs to one nn.Linear or to IAA's dt, in modules that map over leading dims."""
    if type(model) is nn.Linear or len(list(model.parameters())) < len(list(model.named_parameters(remove_duplicate=False))):
        return False  # the outermost module cannot be exchanged; tied parameters have several owners
    inside_flow = {id(m) for f in model.modules() if isinstance(f, Flow) for m in f.modules()}
    return all(_maps(m) for m in model.modules() if id(m) not in inside_flow)


def _maps(m: nn.Module) -> bool:
    if type(m) is nn.Linear:
        return m.bias is not None and m.bias.requires_grad == m.weight.requires_grad
    if isinstance(m, IAA):
        return m.head is None
    if isinstance(m, FAA):
        return m.point is None
    return (type(m) in TRANSPARENT or isinstance(m, OURS)) and not any(p.requires_grad for p in m.parameters(recurse=False))


class BatchedLinear(nn.Module):
    """y_k = x_k W_k^T + b_k: (K, *rows, in) -> (K, *rows, out)."""

    NARROW = 32  # below, products with the rows as columns are up to twice as fast; layers hand that layout on as a view

    def __init__(self, weight: Tensor, bias: Tensor):
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)  # (K, out, in), (K, out)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[1:-1]
        x = x if x.dim() == 3 else x.reshape(x.shape[0], -1, x.shape[-1])
        if max(self.weight.shape[1:]) < self.NARROW:
            y = torch.baddbmm(self.bias.unsqueeze(2), self.weight, x.mT).mT
        else:
            y = torch.baddbmm(self.bias.unsqueeze(1), x, self.weight.mT)
        return y if len(rows) == 1 else y.unflatten(1, rows)


class Stack:
    """K models with equal parameter shapes. `theta` (K, P) holds their parameters; write into it in place.

    block: rows evaluated at once (None: all). By default few where one model fills the cache (looped), fewer where every
    Euler step of a flow is kept for the backward pass (vmapped transformers with a flow inside).
    """

    def __init__(self, models: Sequence[nn.Module], how: str = "auto", block: int | None = None):
        self.models = list(models)
        if not self.models:
            raise ValueError("A stack asked for at least one model, got none.")
        if how not in ("auto", "batched", "vmapped", "looped"):
            raise ValueError(f"A stack asked for how = auto, batched, vmapped or looped, got {how!r}.")
        self.names = [n for n, p in self.models[0].named_parameters() if p.requires_grad]
        if not self.names:
            raise ValueError("A stack asked for models with parameters to train, got none.")
        self.shapes = [self.models[0].get_parameter(n).shape for n in self.names]
        self.theta = torch.stack([self._flat(m) for m in self.models])
        alike = _same_otherwise(self.models, set(self.names))
        self.how = how if how != "auto" else _choose(self.models[0]) if alike else "looped"
        if not alike and self.how != "looped":
            raise ValueError(f"Models that differ in frozen parameters or buffers cannot be {self.how}. Write how='looped'.")
        self.block = block or _block(self.models[0], self.how)
        self._bind()

    def __len__(self) -> int:
        return len(self.models)

    def _flat(self, model: nn.Module) -> Tensor:
        for name, shape in zip(self.names, self.shapes, strict=True):
            if model.get_parameter(name).shape != shape:
                raise ValueError(f"A stack asked for models of equal shape, got {name} of {tuple(shape)} and another.")
        return torch.cat([model.get_parameter(n).detach().reshape(-1) for n in self.names])

    def _views(self) -> dict[str, Tensor]:
        """name -> (K, *shape), sharing theta's memory."""
        parts = self.theta.split([math.prod(s) for s in self.shapes], 1)
        return {n: p.unflatten(1, s) if len(s) > 1 else p for n, p, s in zip(self.names, parts, self.shapes, strict=True)}

    def _bind(self) -> None:
        views = self._views()
        self.turned: set[str] = set()  # leaves with the layers in front, see _batch
        if self.how == "batched":
            self.net = copy.deepcopy(self.models[0])
            self.leaves = _batch(self.net, views)
            self.turned = {n for n in views if isinstance(self.net.get_submodule(n.rpartition(".")[0]), IAA)}
        elif self.how == "vmapped":
            self.net = self.models[0]
            self.leaves = {n: v.detach().requires_grad_() for n, v in views.items()}
        else:
            for k, model in enumerate(self.models):
                for name, view in views.items():
                    model.get_parameter(name).data = view[k]
            self.net, self.leaves = nn.ModuleList(self.models), {}

    def train(self, mode: bool = True) -> None:
        """Learned flows keep their training solver: their evaluation solver is for the finished model."""
        self.net.train(mode)
        for m in self.net.modules():
            if isinstance(m, Flow):
                m.train()

    def outputs(self, x: Tensor) -> Tensor:
        """x (K, rows, ...) -> (K, rows, ...)."""
        return torch.cat([self._outputs(part) for part in x.split(self.block or x.shape[1], 1)], 1)

    def _outputs(self, x: Tensor) -> Tensor:
        if self.how == "batched":
            return self.net(x)
        if self.how == "looped":
            return torch.stack([m(xk) for m, xk in zip(self.models, x, strict=True)])
        return torch.vmap(lambda p, xk: functional_call(self.net, p, (xk,)), randomness="different")(self.leaves, x)

    def gradients(self, x: Tensor, target: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
        """Losses (K,) and their gradients (K, P)."""
        if self.how != "looped":
            return self._sum(self._outputs, self.leaves, x, target, loss)
        alone = [
            self._sum(lambda xb, m=m: m(xb[0])[None], {n: m.get_parameter(n) for n in self.names}, xk[None], yk[None], loss)
            for m, xk, yk in zip(self.models, x, target, strict=True)
        ]
        return torch.cat([value for value, _ in alone]), torch.cat([grad for _, grad in alone])

    def _sum(
        self, net: Callable[[Tensor], Tensor], leaves: dict[str, Tensor], x: Tensor, target: Tensor, loss: Loss
    ) -> tuple[Tensor, Tensor]:
        """Losses and gradients of the len(x) models that `net` evaluates, a block of rows at a time."""
        models, rows = x.shape[:2]
        block = self.block or rows
        value, total = x.new_zeros(models), None
        for xb, yb in zip(x.split(block, 1), target.split(block, 1), strict=True):
            share = loss(net(xb), yb) * (xb.shape[1] / rows)
            grads = torch.autograd.grad(share.sum(), list(leaves.values()))
            g = torch.cat([self._rows(n, g, models) for n, g in zip(leaves, grads, strict=True)], 1)
            value, total = value + share.detach(), g if total is None else total.add_(g)
        assert total is not None
        return value, total

    def _rows(self, name: str, g: Tensor, models: int) -> Tensor:
        """A leaf's gradient as (models, n)."""
        return g[..., 0, 0].mT if name in self.turned else g.reshape(models, -1)

    def tensors(self, k: int, theta: Tensor | None = None) -> dict[str, Tensor]:
        """Model k's parameters by name, copied."""
        parts = (self.theta if theta is None else theta)[k].split([math.prod(s) for s in self.shapes])
        return {n: p.reshape(s).clone() for n, p, s in zip(self.names, parts, self.shapes, strict=True)}


def _same_otherwise(models: Sequence[nn.Module], trained: set[str]) -> bool:
    """Whether buffers and frozen parameters agree. Running statistics would change outside of theta: refused."""
    for m in models[0].modules():
        if getattr(m, "track_running_stats", False):
            raise ValueError(
                f"A stack asked for models whose state is their parameters, got {type(m).__name__}. Use nn.LayerNorm."
            )
    rest = [{n: t for n, t in [*m.named_parameters(), *m.named_buffers()] if n not in trained} for m in models]
    return all(torch.equal(t, other[n]) for other in rest[1:] for n, t in rest[0].items())


def _choose(model: nn.Module) -> str:
    if batchable(model):
        return "batched"
    return "looped" if _has(model, HEAVY) and not _has(model, Flow) else "vmapped"


def _block(model: nn.Module, how: str) -> int | None:
    if how == "looped":
        return LOOPED_ROWS
    return FLOW_ROWS if how == "vmapped" and _has(model, Flow) and _has(model, HEAVY) else None


def _has(model: nn.Module, kind: type | tuple[type, ...]) -> bool:
    return any(isinstance(m, kind) for m in model.modules())


def _batch(net: nn.Module, views: dict[str, Tensor]) -> dict[str, Tensor]:
    """Turn every nn.Linear of net into a BatchedLinear on the views; IAA's dt becomes (layers, K, 1, 1). Returns the leaves."""
    leaves: dict[str, Tensor] = {}
    for name in views:
        owner, _, last = name.rpartition(".")
        module = net.get_submodule(owner)
        if isinstance(module, IAA):
            module.dt = nn.Parameter(views[name].mT[..., None, None])
            leaves[name] = module.dt
        elif last == "weight":
            batched = BatchedLinear(views[name], views[f"{owner}.bias" if owner else "bias"])
            _set(net, owner, batched)
            leaves[name] = batched.weight
        else:
            leaves[name] = net.get_parameter(name)  # the bias of a layer that has just been replaced
    return leaves


def _set(net: nn.Module, name: str, value: Any) -> None:
    owner, _, last = name.rpartition(".")
    setattr(net.get_submodule(owner), last, value)
