"""Constraints of a batch of points with their first and second derivatives, by autograd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

FEW = 4  # gradients that are cheaper one by one than batched, whose set-up costs as much as some five of them
BENT = 4  # constraints of which the curved ones get a Hessian each; with more of them, one Hessian of their weighted sum
SIZE = 64  # entries of the gradients of all curved constraints, up to which the same holds


@dataclass(frozen=True)
class Jet:
    """c (R, k), J (R, k, n), scale = the largest |grad c| so far, H = sum l_i Hess c_i with l = m / scale.

    C (R, b, n, n): the Hessian of every constraint of the slice `bent`, the others being straight; None where that is too dear.
    """

    c: Tensor
    J: Tensor
    scale: Tensor
    H: Tensor
    C: Tensor | None
    bent: slice

    def of(self, rows: Tensor) -> Jet:
        """The same for some of the rows."""
        c, J, scale, H = (t.index_select(0, rows) for t in (self.c, self.J, self.scale, self.H))
        return Jet(c, J, scale, H, None if self.C is None else self.C.index_select(0, rows), self.bent)


@dataclass(frozen=True)
class Constraints:
    """parts(y, rows) -> one or two tensors (R, k_i), the equalities and the inequalities; `rows` tells whose context it is.

    The first `equalities` of all k values are 0 on the set, the others <= 0.
    """

    parts: Callable[[Tensor, Tensor], list[Tensor]]
    equalities: int

    def restricted(self, rows: Tensor) -> Constraints:
        """The constraints of some of the rows, which are then numbered from 0."""
        return Constraints(lambda y, index: self.parts(y, rows.index_select(0, index)), self.equalities)

    def value(self, y: Tensor, rows: Tensor) -> Tensor:
        """Values (R, k) alone."""
        with torch.no_grad():
            return joined(self.parts(y, rows))

    def expand(self, y: Tensor, rows: Tensor, l: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values (R, k), Jacobian (R, k, n), and sum l_i Hess c_i (R, n, n) unless l is None."""
        with torch.enable_grad():
            y = y.detach().requires_grad_()
            parts = self.parts(y, rows)
            J = joined([derivatives(part, y, create=False) for part in parts])
            H = None if l is None else weighted(parts, y, l)
        return joined(parts).detach(), J, H

    def jet(self, y: Tensor, rows: Tensor, m: Tensor | None, scale: Tensor | None) -> Jet:
        """All derivatives; m = 0 and scale = |grad c| where they are not given.

        m is a length, the push of every constraint. Where a gradient grows a lot in one step, the push stays as it was, and l,
        which would make the curvature of the next step absurd, does not.
        """
        with torch.enable_grad():
            y = y.detach().requires_grad_()
            parts = self.parts(y, rows)
            slopes = [slopes_of(part, y) for part in parts]
            J = joined([part.J for part in slopes])
            size = lengths(J).clamp(min=1e-12)
            scale = size if scale is None else torch.maximum(scale, size)
            bent = span([part.J.shape[1] if part.curved else 0 for part in slopes], [part.J.shape[1] for part in slopes])
            gradients = [a for part in slopes if part.curved for a in part.rows or []]
            few = 0 < len(gradients) * y.shape[1] <= SIZE and J.shape[1] <= BENT
            C = torch.stack([derivatives(a, y, create=False) for a in gradients], 1) if few else None
            if m is None or bent.stop == bent.start:
                H = y.new_zeros(*y.shape, y.shape[1])
            elif C is None:
                H = weighted(parts, y, m / scale)
            else:
                H = mixed(C, (m / scale)[:, bent])
        return Jet(joined(parts).detach(), J, scale, H, C, bent)


@dataclass(frozen=True)
class Slopes:
    """The Jacobian (R, k, n) of one function, whether it may change with the point, its rows with their graph if they are few."""

    J: Tensor
    curved: bool
    rows: list[Tensor] | None = None


def slopes_of(c: Tensor, y: Tensor) -> Slopes:
    """Of c (R, k), a function of y (R, n). Where autograd's gradient is no function of y, there is no curvature."""
    k, n = c.shape[1], y.shape[1]
    if not c.requires_grad:
        return Slopes(y.new_zeros(len(y), k, n), False)
    if k <= BENT:
        rows = [gradient(c[:, i], y) for i in range(k)] if k > 1 else [gradient(c, y)]
        J = rows[0].detach()[:, None] if k == 1 else torch.stack([a.detach() for a in rows], 1)
        return Slopes(J, any(a.requires_grad for a in rows), rows)
    return Slopes(derivatives(c, y, create=False), gradient(c, y).requires_grad)


def gradient(c: Tensor, y: Tensor) -> Tensor:
    """d sum(c) / dy (R, n), as a function of y."""
    (a,) = torch.autograd.grad(c, y, torch.ones_like(c), create_graph=True, allow_unused=True)
    return torch.zeros_like(y) if a is None else a


def span(curved: list[int], counts: list[int]) -> slice:
    """Which of all constraints the curved functions hold."""
    at = [i for i, k in enumerate(curved) if k]
    return slice(sum(counts[: at[0]]), sum(counts[: at[-1] + 1])) if at else slice(0, 0)


def joined(parts: list[Tensor]) -> Tensor:
    """One tensor of the values, or Jacobians, of all constraints."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def mixed(C: Tensor, l: Tensor) -> Tensor:
    """sum l_i C_i: (R, b, n, n), (R, b) -> (R, n, n)"""
    if C.shape[1] == 1:
        return C[:, 0] * l[:, :, None]
    return (l[:, None] @ C.flatten(2)).view(len(C), *C.shape[2:])


def weighted(parts: list[Tensor], y: Tensor, l: Tensor) -> Tensor:
    """sum l_i Hess c_i, (R, n, n), from values that are functions of y."""
    c = joined(parts)
    if not c.requires_grad:
        return y.new_zeros(*y.shape, y.shape[1])
    g = gradient(l.detach() * c, y)
    if not g.requires_grad:
        return y.new_zeros(*y.shape, y.shape[1])
    H = derivatives(g, y, create=False)
    return 0.5 * (H + H.mT)


def lengths(J: Tensor) -> Tensor:
    """(R, k, n) -> (R, k)"""
    return torch.linalg.vector_norm(J, dim=2)


def derivatives(c: Tensor, y: Tensor, create: bool) -> Tensor:
    """d c_i / d y for every row: (R, k), (R, n) -> (R, k, n). Functions that cannot be batched backwards are taken one by one."""
    k = c.shape[1]
    if not c.requires_grad:
        return y.new_zeros(*c.shape, y.shape[1])
    eye = torch.eye(k, dtype=c.dtype, device=c.device)[:, None].expand(k, *c.shape)
    how = {"retain_graph": True, "create_graph": create, "allow_unused": True}
    if k > FEW:
        try:
            (J,) = torch.autograd.grad(c, y, eye, is_grads_batched=True, **how)
            return y.new_zeros(*c.shape, y.shape[1]) if J is None else J.movedim(0, 1)
        except RuntimeError:
            pass
    rows = [torch.autograd.grad(c, y, e, **how)[0] for e in eye]
    return torch.stack([torch.zeros_like(y) if r is None else r for r in rows], 1)
