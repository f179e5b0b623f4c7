"""Networks that stay in M: at every layer (IAA), at the output (FAA), from one set to another (GDN); and blocks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from .core import ConstraintSet, Manifold, check_point, require_finite, working_dtype
from .sets.depends import bound
from .steps import Exponential, Projection, Step


def _require_step(step: Any, name: str) -> None:
    if isinstance(step, ConstraintSet):
        raise TypeError(f"{name} needs a step, got the set {step!r}. Write {name}(..., Projection({step!r})).")
    if not isinstance(step, Step):
        raise TypeError(f"{name} needs a step, got {type(step).__name__}. Write {name}(..., Projection(Sphere(3))).")


def half_of(module: nn.Module) -> torch.dtype | None:
    """The dtype of a module that was cast to half precision, else None."""
    p = next((p for p in module.parameters() if p.is_floating_point()), None)
    return p.dtype if p is not None and p.dtype in (torch.float16, torch.bfloat16) else None


def in_dtype_of(module: nn.Module, h: Tensor) -> Tensor:
    """h in the dtype of a module that was cast to half precision; states themselves stay in float32 or better."""
    half = half_of(module)
    return h if half is None else h.to(half)


class IAA(nn.Module):
    """Constrained at every layer: h0 = P_M(x), h <- step(h, dt_l block_l(h)). Every hidden state is in M.

    With `head`, the last update is P_M(head(h + dt block(h))), or, for exponentials, step(h, dt head(block(h))).
    project_input=False: h0 = x, for inputs that are in M already; a learned projection may move even those.
    Further arguments of the call go to every block.
    """

    def __init__(
        self, blocks: Iterable[nn.Module], step: Step, dt: float = 1.0, head: nn.Module | None = None, project_input: bool = True
    ):
        super().__init__()
        _require_step(step, "IAA")
        blocks = list(blocks)
        for b in blocks:
            if not isinstance(b, nn.Module):
                raise TypeError(f"IAA asked for nn.Module blocks (a bare function would train nothing), got {type(b).__name__}.")
        self.blocks = nn.ModuleList(blocks)
        if not len(self.blocks):
            raise ValueError(
                "IAA asked for at least one block, got none. Write [MLPBlock(M.shape, step.size) for _ in range(4)]."
            )
        self.step, self.head, self.project_input = step, head, project_input
        self.dt = nn.Parameter(torch.full((len(self.blocks),), float(dt)))

    def forward(self, x: Tensor, *context: Any, **keywords: Any) -> Tensor:
        self = bound(self, x, keywords)
        h = self._start(x)
        for i in range(len(self.blocks)):
            h = self._layer(i, h, context, keywords)
        return h

    def states(self, x: Tensor, *context: Any, **keywords: Any) -> list[Tensor]:
        """h0, h1, ..., the last of which is forward(x)."""
        self = bound(self, x, keywords)
        states = [self._start(x)]
        for i in range(len(self.blocks)):
            states.append(self._layer(i, states[-1], context, keywords))
        return states

    def _start(self, x: Tensor) -> Tensor:
        check_point(x, self.step.M.shape, lambda: f"IAA on {self.step.M!r}")
        require_finite(x, lambda: f"IAA on {self.step.M!r}")
        return self.step.M.project(x) if self.project_input else x.to(working_dtype(x))

    def _layer(self, i: int, h: Tensor, context: tuple[Any, ...], keywords: dict[str, Any]) -> Tensor:
        u = self.blocks[i](in_dtype_of(self.blocks[i], h), *context, **keywords)
        u = u.to(torch.promote_types(u.dtype, h.dtype))
        if self.head is None or i + 1 < len(self.blocks):
            return self.step(h, self.dt[i] * u)
        if isinstance(self.step, Projection):
            moved = h + self.dt[i] * self.step.shaped(u, self.step.M.shape)
            return self.step(None, self.head(in_dtype_of(self.head, self.step.M._flat(moved))))
        return self.step(h, self.dt[i] * self.head(in_dtype_of(self.head, u)))


class FAA(nn.Module):
    """Constrained at the output: step(base, net(x)). Any network, any further arguments.

    base=None: P_M(net(x)), or from M.origin for exponentials; base=point of M; base=module: from P_M(base(x)).
    """

    def __init__(self, net: nn.Module, step: Step, base: Tensor | nn.Module | None = None):
        super().__init__()
        _require_step(step, "FAA")
        if not isinstance(net, nn.Module):
            raise TypeError(f"FAA needs an nn.Module (a bare function would train nothing), got {type(net).__name__}.")
        if not isinstance(base, Tensor | nn.Module | None):
            raise TypeError(f"FAA asked for base=None, a tensor or an nn.Module, got {type(base).__name__}.")
        self.net, self.step = net, step
        self.base = base if isinstance(base, nn.Module) else None
        self.point: Tensor | None
        self._keep(base if isinstance(base, Tensor) else None)

    def _keep(self, point: Tensor | None) -> None:
        """Register the base point: learnable if it is an nn.Parameter."""
        M = self.step.M
        if point is not None:
            check_point(point, M.shape, lambda: f"FAA's base on {M!r}")
            if not bool(M.contains(point).all()):
                worst = float(M.violation(point.detach()).max())
                raise ValueError(f"FAA asked for a base point in {M!r}, got violation {worst:.1e}. Write base=M.project(point).")
        if isinstance(point, nn.Parameter):
            self.register_parameter("point", point)
        else:
            self.register_buffer("point", point)

    def forward(self, x: Tensor, *context: Any, **keywords: Any) -> Tensor:
        self = bound(self, x, keywords)
        if isinstance(x, Tensor) and x.dtype.is_floating_point:
            require_finite(x, lambda: f"FAA on {self.step.M!r}")
        u = self.net(x, *context, **keywords)
        return self.step(self._base(x, u), u)

    def _base(self, x: Tensor, u: Tensor) -> Tensor | None:
        if self.base is not None:
            return self.step.M.project(self.base(x))
        if self.point is None:
            return None
        point = self.step.M.project(self.point.to(working_dtype(u)))
        batch = u.shape[: u.dim() - (len(self.step.M.shape) if u.shape[-1] != self.step.size else 1)]
        return point.expand(torch.broadcast_shapes(point.shape, batch + self.step.M.shape))


def has_log(M: Manifold) -> bool:
    """Whether the logarithm of M has a formula."""
    o = M.origin(torch.empty(0))
    try:
        M.log(o, o)
    except NotImplementedError:
        return False
    return True


class GDN(nn.Module):
    """A geometric deep network from M_in to M_out: exp o net o log (Kratsios and Papon, 2022).

    The network gets the logarithm of the input at M_in.origin, flattened to prod(M_in.shape) numbers, and returns
    prod(M_out.shape) numbers, whose tangent part at M_out.origin leads to the output. M_in is a manifold with a logarithm, M_out
    any manifold. The logarithm jumps at the points opposite to the origin, such as half turns, and the network with it. Further
    arguments of the call go to the network.
    """

    def __init__(self, net: nn.Module, M_in: Manifold, M_out: Manifold):
        super().__init__()
        if not isinstance(net, nn.Module):
            raise TypeError(f"GDN needs an nn.Module (a bare function would train nothing), got {type(net).__name__}.")
        if not isinstance(M_in, Manifold) or not has_log(M_in):
            kind = repr(M_in) if isinstance(M_in, ConstraintSet) else type(M_in).__name__
            raise TypeError(f"GDN needs a Manifold with a logarithm as M_in, got {kind}. Use FAA(net, Exponential(M_out)).")
        if not isinstance(M_out, Manifold):
            kind = repr(M_out) if isinstance(M_out, ConstraintSet) else type(M_out).__name__
            raise TypeError(f"GDN needs a Manifold (no boundary) as M_out, got {kind}. Use FAA(net, Projection(M_out)).")
        self.net, self.M_in, self.step = net, M_in, Exponential(M_out)

    @property
    def M_out(self) -> ConstraintSet:
        """The set that the outputs are in."""
        return self.step.M

    def forward(self, x: Tensor, *context: Any, **keywords: Any) -> Tensor:
        M = self.M_in
        check_point(x, M.shape, lambda: f"GDN on {M!r}")
        require_finite(x, lambda: f"GDN on {M!r}")
        x = M.project(x)
        v = M._flat(M.log(M.origin(x).expand_as(x), x))
        u = self.net(in_dtype_of(self.net, v), *context, **keywords)
        return self.step(None, u.to(torch.promote_types(u.dtype, v.dtype)))


class AnchorMixture(nn.Module):
    """The probabilistic baseline: sum_n p_n(x) Y_n over fixed anchors Y_n, p = softmax(net(x)); off M unless M is convex.

    mode="argmax" returns the likeliest anchor instead: in M, and constant in pieces.
    """

    def __init__(self, net: nn.Module, anchors: Tensor, mode: str = "expectation"):
        super().__init__()
        if not isinstance(net, nn.Module):
            raise TypeError(f"AnchorMixture needs an nn.Module (a bare function would train nothing), got {type(net).__name__}.")
        if mode not in ("expectation", "argmax"):
            raise ValueError(f'AnchorMixture asked for mode "expectation" or "argmax", got {mode!r}.')
        if not isinstance(anchors, Tensor) or anchors.dim() < 2 or not len(anchors):
            raise ValueError("AnchorMixture asked for anchors of shape (n, *point), e.g. 100 rows of the training targets.")
        self.net, self.mode = net, mode
        self.anchors: Tensor
        self.register_buffer("anchors", anchors)

    def forward(self, x: Tensor, *context: Any, **keywords: Any) -> Tensor:
        return self.read(self.net(x, *context, **keywords))

    def read(self, logits: Tensor) -> Tensor:
        """(*batch, n) -> (*batch, *point)."""
        if logits.shape[-1] != len(self.anchors):
            raise ValueError(
                f"AnchorMixture asked for {len(self.anchors)} logits per point, one per anchor, got {logits.shape[-1]}. "
                f"Give the network an output of size {len(self.anchors)}."
            )
        if self.mode == "argmax":
            return self.anchors[logits.argmax(-1)]
        return torch.tensordot(logits.softmax(-1), self.anchors.to(logits.dtype), 1)

    def label(self, y: Tensor) -> Tensor:
        """The index of the nearest anchor: (*batch, *point) -> (*batch,)."""
        flat = self.anchors.flatten(1).to(y.dtype)
        points = y.reshape(-1, flat.shape[1])
        exact = "donot_use_mm_for_euclid_dist"  # the product form loses half the digits
        nearest = [torch.cdist(part, flat, compute_mode=exact).argmin(1) for part in points.split(4_096)]
        return torch.cat(nearest).reshape(y.shape[: y.dim() - self.anchors.dim() + 1])

    def loss(self, x: Tensor, label: Tensor, *context: Any, **keywords: Any) -> Tensor:
        """Mean over points of |p - e_label|^2."""
        return simplex_error(self.net(x, *context, **keywords), label).mean()


def simplex_error(logits: Tensor, label: Tensor) -> Tensor:
    """|softmax(logits) - e_label|^2 = |p|^2 - 2 p_label + 1: (*batch, n), (*batch,) -> (*batch,)."""
    p = logits.softmax(-1)
    return p.square().sum(-1) - 2 * p.gather(-1, label[..., None])[..., 0] + 1


class MLPBlock(nn.Module):
    """Linear, ReLU, Linear (depth hidden layers of `width`); a point's shape is flattened inside."""

    def __init__(
        self, size_in: int | tuple[int, ...], size_out: int, width: int | None = None, depth: int = 1, dropout: float = 0.0
    ):
        super().__init__()
        self.points = Flat(size_in)
        width = width or self.points.size
        layers: list[nn.Module] = []
        for n in [self.points.size] + [width] * (depth - 1):
            layers += [nn.Linear(n, width), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
        self.layers = nn.Sequential(*layers, nn.Linear(width, size_out))

    def forward(self, x: Tensor, *context: Any, key_padding_mask: Tensor | None = None) -> Tensor:
        if context:
            raise TypeError(
                f"MLPBlock works on each point alone and takes no context, got {len(context)} more argument(s). Concatenate the "
                "context with the points before the network, or write a block of your own with forward(x, context)."
            )
        return self.layers(self.points(x))


class AttentionBlock(nn.Module):
    """ReLU(encoder layer) over tokens: x of shape (*batch, tokens, *point); the residual around it belongs to the step.

    dim: embedding size, by default the point's own; a linear map goes in front, or behind, where sizes differ.
    """

    def __init__(
        self,
        size_in: int | tuple[int, ...],
        size_out: int,
        heads: int = 1,
        width: int | None = None,
        dim: int | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.points = Flat(size_in)
        dim = dim or self.points.size
        if dim % heads:
            raise ValueError(
                f"AttentionBlock asked for heads that divide the embedding size {dim}, got {heads}. Set dim or heads."
            )
        self.embed = nn.Identity() if dim == self.points.size else nn.Linear(self.points.size, dim)
        self.encoder = nn.TransformerEncoderLayer(dim, heads, width or 4 * dim, dropout, batch_first=True)
        self.out = nn.Identity() if dim == size_out else nn.Linear(dim, size_out)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        h = self.embed(self.points(x))
        if h.dim() < 2:
            raise ValueError(f"AttentionBlock asked for (*batch, tokens, *point), got {tuple(x.shape)}: no token dim.")
        batch, tokens = h.shape[:-2], h.shape[-2]
        h = h.reshape(math.prod(batch), tokens, h.shape[-1])
        mask = None if key_padding_mask is None else key_padding_mask.expand(*batch, tokens).reshape(-1, tokens)
        with sdpa_kernel(SDPBackend.MATH):  # the fused CPU kernel has no batching rule
            h = self.encoder(h, src_key_padding_mask=mask)
        return self.out(torch.relu(h)).unflatten(0, batch) if batch else self.out(torch.relu(h))[0]


class Flat(nn.Module):
    """(*batch, *shape) -> (*batch, size); an int is a vector's length."""

    def __init__(self, shape: int | tuple[int, ...]):
        super().__init__()
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.size = math.prod(self.shape)

    def forward(self, x: Tensor) -> Tensor:
        check_point(x, self.shape, lambda: "This block")
        return x.flatten(x.dim() - len(self.shape))
