"""Functions that own their derivative, in every mode of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

Rule = Callable[[Tensor, Tensor, Tensor], Tensor]


def with_derivative(
    value: Callable[..., Tensor],
    vjp: Callable,
    jvp: Callable[..., Tensor],
    expanded: Callable[..., Tensor] | None = None,
    two: bool = False,
) -> Callable[..., Tensor]:
    """The function (x_1, .., x_k) -> y = value(x_1, .., x_k) with derivatives of its own.

    vjp(x_1, .., x_k, y, g) is the gradient of <g, value> (a tuple of k for k > 1), jvp(x_1, .., x_k, y, t_1, .., t_k) the
    derivative in the direction t. Both must themselves be differentiable in x and y: that is the second derivative.
    A function that its own jvp calls must bring its own `expanded`: see `expand`. `two` says that there are two inputs: Dynamo
    2.13 takes the context for an input of a Function with `forward(*inputs)`.
    """

    class Backward(torch.autograd.Function):
        generate_vmap_rule = True

        if two:

            @staticmethod
            def forward(x, z):  # pyright: ignore[reportRedeclaration]
                return value(x, z)

        else:

            @staticmethod
            def forward(x):
                return value(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs, output)

        @staticmethod
        def backward(ctx, g):
            return vjp(*ctx.saved_tensors, g)

    class Both(Backward):
        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs, output)
            ctx.save_for_forward(*inputs, output)

        @staticmethod
        def jvp(ctx, *tangents):
            *inputs, y = ctx.saved_tensors
            known = [torch.zeros_like(x) if t is None else t for x, t in zip(inputs, tangents, strict=True)]
            return jvp(*inputs, y, *known)

    def apply(*inputs: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            if forward_mode():
                return expanded(*inputs) if expanded else expand(value, jvp, inputs)
            return Backward.apply(*inputs)  # pyright: ignore[reportReturnType]
        if eager() and not forward_mode() and not (torch.is_grad_enabled() and any(x.requires_grad for x in inputs)):
            with torch.no_grad():  # nobody asks for a derivative: a Function costs more than a short formula
                return value(*inputs)
        return Both.apply(*inputs)  # pyright: ignore[reportReturnType]

    return apply


def forward_mode() -> bool:
    """Whether derivatives are being carried forward (torch.func.jvp, forward_ad), also while Dynamo traces."""
    return forward_ad._current_level >= 0


def expand(value: Callable[..., Tensor], jvp: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
    """value(c) + jvp at c + d/2 in the direction d, where c is x held fixed and d = x - c is 0 with x's derivatives.

    This is the midpoint rule for the integral of the derivative from c to x: it has the right value and the right first and
    second derivatives, in either mode. It stands in for a Function in compiled forward mode. In torch 2.13 Dynamo refuses a
    Function that defines jvp, and of one that does not it inlines `forward` wherever no input requires a gradient, so that
    forward mode silently differentiates the algorithm (NaN at repeated singular values) and not the function.
    test_forward_mode_under_compile in tests/test_transforms.py shows when that has changed.
    """
    fixed = tuple(x.detach() for x in inputs)
    moves = [x - c for x, c in zip(inputs, fixed, strict=True)]
    y = value(*fixed).detach()
    halfway = [c + d / 2 for c, d in zip(fixed, moves, strict=True)]  # d / 2: compiled, 0.5 * d of a number has a float64 tangent
    return y + jvp(*halfway, y + jvp(*halfway, y, *moves) / 2, *moves)


def symmetric(value: Callable[[Tensor], Tensor], derivative: Rule) -> Callable[[Tensor], Tensor]:
    """`with_derivative` for metric projections: P is the gradient of the convex function sup_{p in M} <x, p> - |p|^2/2,
    so DP is symmetric and one formula serves both modes."""
    return with_derivative(value, derivative, derivative)


def symmetric_method(value: Callable[..., Tensor], derivative: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`symmetric` for methods of an object, of which Dynamo makes no Function: x, *rest -> y = value(x, *rest).

    Only x is differentiated. Of the rest, tensors of any dtype go on to derivative(x, y, g, *tensors), and other arguments do
    not. Compiled, it is y + DP(x) (x - x) with y, and the x and y of DP, held fixed: the first derivative, and no second.
    """

    class Function(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x, *rest):  # pyright: ignore[reportIncompatibleMethodOverride]
            return value(x, *rest)

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, *rest = inputs
            known = [x, output, *tensors_of(rest)]
            ctx.save_for_backward(*known)
            ctx.save_for_forward(*known)
            ctx.constant = [None] * len(rest)

        @staticmethod
        def backward(ctx, g):  # pyright: ignore[reportIncompatibleMethodOverride]
            x, y, *rest = ctx.saved_tensors
            return derivative(x, y, g, *rest), *ctx.constant

        @staticmethod
        def jvp(ctx, t, *_):
            x, y, *rest = ctx.saved_tensors
            return derivative(x, y, t, *rest)

    def apply(x: Tensor, *rest: Any) -> Tensor:
        wanted = torch.is_grad_enabled() and x.requires_grad
        if torch.compiler.is_compiling():
            fixed = x.detach()
            y = value(fixed, *rest).detach()
            return y + derivative(fixed, y, x - fixed, *tensors_of(rest)) if x.requires_grad else y
        if eager() and not forward_mode() and not wanted:
            with torch.no_grad():  # as in with_derivative
                return value(x, *rest)
        return Function.apply(x, *rest)  # pyright: ignore[reportReturnType]

    return apply


def tensors_of(values: Iterable[Any]) -> list[Tensor]:
    """Those that are tensors."""
    return [v for v in values if isinstance(v, Tensor)]


def eager() -> bool:
    """True outside compile, export and functorch transforms: only there may control flow look at values."""
    return not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()


def looking(x: Tensor) -> bool:
    """Whether control flow may look at x's values: eager mode, and x has values."""
    return eager() and not x.is_meta


def all_rows(ok: Tensor) -> bool:
    """Whether ok holds in every row, where looking is free (eager, on the CPU): the code for the other rows is left out."""
    return eager() and ok.device.type == "cpu" and bool(ok.all())
