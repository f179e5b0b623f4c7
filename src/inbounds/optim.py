"""Optimisers for parameters that live in a set: Riemannian Adam and gradient descent, with or without a boundary.

A group of parameters names its set: `RiemannianAdam([{"params": [p], "manifold": M}, {"params": net.parameters()}], lr=1e-2)`.
Any set will do. Groups without a set are updated as `torch.optim` does.

The direction is -M.gradient(x, g), the steepest descent in the set's metric, which is tangent(x, -g) where that is the ambient
one. On a boundary this is not -tangent(x, g): the first is 0 at a constrained minimum. The velocity is carried to the tangent
cone at the new point, which at a boundary drops what leads out of the set.

Groups are checked once, when they are added; a step calls the hooks of the set.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .core import HALF, ConstraintSet, Manifold, check_point, full_precision, joint_shape
from .sets.product import Product

MOVES = ("retract", "exp")


class RiemannianOptimizer(torch.optim.Optimizer):
    """What both optimisers share: groups with a set, moves that stay in it, a state that is kept without the set."""

    def __init__(self, params: Any, defaults: dict[str, Any], move: str | None):
        if move not in (None, *MOVES):
            raise ValueError(f'{type(self).__name__} asked for move="retract", move="exp" or None, got {move!r}.')
        if not defaults["lr"] >= 0:
            raise ValueError(f"{type(self).__name__} asked for lr >= 0, got {defaults['lr']}.")
        super().__init__(params, {**defaults, "manifold": None, "move": move})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, and the set that they are in; refuse points that are not in it."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        M = group["manifold"]
        if M is None:
            return
        who = type(self).__name__
        if not isinstance(M, ConstraintSet):
            raise TypeError(f'{who} asked for a set as "manifold", got {type(M).__name__}. Write {{"manifold": ib.Sphere(3)}}.')
        if group["move"] == "exp" and not isinstance(M, Manifold):
            raise TypeError(f'{who} with move="exp" needs a Manifold (no boundary), got {M!r}. Use move="retract".')
        for p in group["params"]:
            check_point(p, M.shape, lambda: f"{who} on {M!r}")
            self._require_whole(p, M)
            if not bool(M.contains(p.detach()).all()):
                worst = float(M.violation(p.detach()).max())
                raise ValueError(
                    f"{who} asked for parameters in {M!r}, got violation {worst:.1e}. Write p.data = M.project(p.data) before."
                )

    def _require_whole(self, p: Tensor, M: ConstraintSet) -> None:
        """Refuse half precision, and fewer points than the set has constraints: a step could not keep them in the set."""
        batch = tuple(p.shape[: p.dim() - len(M.shape)])
        if p.dtype in HALF:
            raise TypeError(f"{type(self).__name__} asked for parameters in float32 or float64, got {p.dtype}. Write p.float().")
        if joint_shape(batch, M.batch) != batch:
            raise ValueError(
                f"{type(self).__name__} asked for points of batch dims that hold the {M.batch} of {M!r}, got {batch}. Give every "
                f"constraint a point of its own."
            )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Move every parameter that has a gradient once; a closure is evaluated first, and its value returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    if p.grad.is_sparse:
                        raise RuntimeError(
                            f"{type(self).__name__} asked for dense gradients, got a sparse one. Write sparse=False."
                        )
                    with full_precision(p):
                        self._update(p, group, self.state[p])
        return loss

    def _update(self, p: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say how a parameter moves: write _update(p, group, state).")

    def state_dict(self) -> dict[str, Any]:
        """The state without the sets, which stay with the program; their names are kept, to tell when they have changed."""
        kept = super().state_dict()
        groups = [{**g, "manifold": repr(g["manifold"])} for g in kept["param_groups"]]
        return {**kept, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state; every group keeps the set that it has, with a warning if the state was kept with another."""
        live = [g["manifold"] for g in self.param_groups]
        super().load_state_dict(state_dict)
        for k, (group, M) in enumerate(zip(self.param_groups, live, strict=True)):
            if group["manifold"] != repr(M):
                warnings.warn(
                    f"{type(self).__name__}.load_state_dict: group {k} was kept with {group['manifold']} and has {M!r}, which it "
                    f"keeps. Build the optimiser with the set of the state, or ignore this warning if the change is meant.",
                    stacklevel=2,
                )
            group["manifold"] = M


def moved(M: ConstraintSet, x: Tensor, d: Tensor, move: str | None) -> Tensor:
    """The point that a step d leads to: by `exp` if asked for, or if the set has a metric of its own, else by `retract`."""
    if isinstance(M, Manifold) and (move == "exp" or (move is None and M.metric != "ambient")):
        return M._refine(M._exp(x, d))
    return M._retract(x, d)


def squares(M: ConstraintSet, x: Tensor, v: Tensor) -> Tensor:
    """|v|^2 in the set's metric, one number for each factor of a product, (*batch, *shape) or broadcastable to it."""
    if not isinstance(M, Product):
        if M.metric == "ambient":
            return v.square().sum(tuple(range(-len(M.shape), 0)), keepdim=True)
        return M._inner(x, v, v).reshape(x.shape[: x.dim() - len(M.shape)] + (1,) * len(M.shape))
    parts = zip(M.sets, M.split(x), M.split(v), strict=True)
    return M.join(*(squares(s, a, b).expand_as(a) for s, a, b in parts))


def tangent_velocity(M: ConstraintSet, x: Tensor, v: Tensor) -> Tensor:
    """The velocity as far as it does not lead out of the set; on manifolds it is tangent already."""
    return v if isinstance(M, Manifold) else M._tangent(x, v)


def carried(M: ConstraintSet, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """The velocity v at x as one at y. In the ambient metric its projection is enough, and cheaper than parallel transport."""
    return M._tangent(y, v) if M.metric == "ambient" else M._transport(x, y, v)


class RiemannianSGD(RiemannianOptimizer):
    """Gradient descent in a set: x <- move(x, lr v), where v is -gradient(x, g), or with momentum a sum of such velocities.

    move: "retract" projects x + lr v; "exp" follows the geodesic; None takes "exp" where the set has a metric of its own.
    """

    def __init__(self, params: Any, lr: float = 1e-3, momentum: float = 0.0, move: str | None = None):
        if not 0 <= momentum < 1:
            raise ValueError(f"RiemannianSGD asked for 0 <= momentum < 1, got {momentum}.")
        super().__init__(params, {"lr": lr, "momentum": momentum}, move)

    def _update(self, p: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        M, lr, momentum = group["manifold"], group["lr"], group["momentum"]
        assert p.grad is not None
        v = -p.grad if M is None else -M._gradient(p, p.grad)
        if momentum:
            v = v + momentum * state["velocity"] if "velocity" in state else v
        if M is None:
            p.add_(v, alpha=lr)
        else:
            v = tangent_velocity(M, p, v)
            y = moved(M, p, lr * v, group["move"])
            v = carried(M, p, y, v) if momentum else v
            p.copy_(y)
        if momentum:
            state["velocity"] = v


class RiemannianAdam(RiemannianOptimizer):
    """Adam in a set. The second moment is one number per point, |gradient|^2 in the set's metric, and one per factor of a
    `Product`: moments of single coordinates would not know the set, and move the optimum on a sphere or a ball. So lr is the
    length of a first step. Parameters without a set get torch's Adam.

    move: "retract" projects x + lr v; "exp" follows the geodesic; None takes "exp" where the set has a metric of its own.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        move: str | None = None,
    ):
        if not all(0 <= b < 1 for b in betas) or not eps >= 0:
            raise ValueError(f"RiemannianAdam asked for 0 <= betas < 1 and eps >= 0, got betas={betas} and eps={eps}.")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps}, move)

    def _update(self, p: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        M, (b1, b2) = group["manifold"], group["betas"]
        assert p.grad is not None
        g = p.grad if M is None else M._gradient(p, p.grad)
        square = g.square() if M is None else squares(M, p, g)
        if not state:
            state.update(count=0, velocity=torch.zeros_like(g), square=torch.zeros_like(square))
        state["count"] += 1
        velocity = state["velocity"].mul_(b1).add_(g, alpha=b1 - 1)
        spread = state["square"].mul_(b2).add_(square, alpha=1 - b2)
        first, second = 1 - b1 ** state["count"], math.sqrt(1 - b2 ** state["count"])
        size = group["lr"] / first / spread.sqrt().div_(second).add_(group["eps"])
        if M is None:
            p.addcmul_(velocity, size)
            return
        velocity = tangent_velocity(M, p, velocity)
        y = moved(M, p, size * velocity, group["move"])
        state["velocity"] = carried(M, p, y, velocity)
        p.copy_(y)
