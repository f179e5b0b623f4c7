"""Functions that own their derivative, in every mode of torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import forward_ad

Rule = Callable[[Tensor, Tensor, Tensor], Tensor]


def with_derivative(value: Callable[[Tensor], Tensor], vjp: Rule, jvp: Rule) -> Callable[[Tensor], Tensor]:
    """x -> y = value(x), differentiated by vjp(x, y, g) = Dvalue(x)^T g and jvp(x, y, t) = Dvalue(x) t.

    The rules must themselves be differentiable, as functions of x and y: that is the second derivative.
    """

    class Backward(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return value(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0], output)

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return vjp(x, y, g)

    class Both(Backward):
        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0], output)
            ctx.save_for_forward(inputs[0], output)

        @staticmethod
        def jvp(ctx, t):
            x, y = ctx.saved_tensors
            return jvp(x, y, t)

    def apply(x: Tensor) -> Tensor:
        if eager() and not (x.requires_grad and torch.is_grad_enabled()) and forward_ad._current_level < 0:
            with torch.no_grad():  # nobody asks for a derivative: a Function costs more than a short formula
                return value(x)
        # Dynamo refuses a Function that defines jvp
        return (Backward if torch.compiler.is_compiling() else Both).apply(x)  # pyright: ignore[reportReturnType]

    return apply


def symmetric(value: Callable[[Tensor], Tensor], derivative: Rule) -> Callable[[Tensor], Tensor]:
    """`with_derivative` for metric projections: P is the gradient of the convex function sup_{p in M} <x, p> - |p|^2/2,
    so DP is symmetric and one formula serves both modes."""
    return with_derivative(value, derivative, derivative)


def symmetric_method(value: Callable[[Tensor], Tensor], derivative: Rule) -> Callable[[Tensor], Tensor]:
    """`symmetric` for methods of an object, of which Dynamo makes no Function.

    Compiled, it is y + DP(x) (x - x) with y, and the x and y of DP, held fixed: the first derivative, and no second.
    """
    function = symmetric(value, derivative)

    def apply(x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            return function(x)
        fixed = x.detach()
        y = value(fixed).detach()
        return y + derivative(fixed, y, x - fixed) if x.requires_grad else y

    return apply


def eager() -> bool:
    """True outside compile, export and functorch transforms: only there may control flow look at values."""
    return not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()


def all_rows(ok: Tensor) -> bool:
    """Whether ok holds in every row, where looking is free (eager, on the CPU): the code for the other rows is left out."""
    return eager() and ok.device.type == "cpu" and bool(ok.all())
