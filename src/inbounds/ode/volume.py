"""How a flow on a manifold changes volumes, and with them densities."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..core import ConstraintSet, Manifold, log_gram, tangent_basis
from .methods import Rate, Time


def require_manifold(M: ConstraintSet) -> Manifold:
    """The set, refused where it may have a boundary."""
    if isinstance(M, Manifold):
        return M
    raise TypeError(
        f"A density needs a Manifold (no boundary), got {M!r}: a flow presses mass on a boundary, where it has no "
        "density, and the run cannot be undone. ode(x) and ode.trajectory(x) work on every set."
    )


def directions(M: Manifold, x: Tensor, probes: int | None, generator: torch.Generator | None) -> tuple[list[Tensor], float]:
    """Vectors z with the weight for which the sum of z z^T is the identity, exactly or in expectation."""
    if probes is None:
        axes = torch.eye(math.prod(M.shape), dtype=x.dtype, device=x.device)
        return [e.reshape(M.shape).expand_as(x) for e in axes], 1.0
    if isinstance(probes, bool) or not isinstance(probes, int) or probes < 1:
        raise ValueError(f"ProjectedODE asked for a whole number of probes >= 1, or None for the exact trace, got {probes!r}.")
    draw = [torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device) for _ in range(probes)]
    return draw, 1 / probes


def divergence(M: Manifold, rate: Rate, noise: list[Tensor], weight: float) -> Callable[[Time, Tensor], tuple[Tensor, Tensor]]:
    """(t, x) -> the velocity V, and its divergence as the sum of <b, DV b> over the directions b = tangent(x, z), (*batch,)."""

    def counted(t: Time, x: Tensor) -> tuple[Tensor, Tensor]:
        v, growth = torch.zeros_like(x), torch.zeros(x.shape[: x.dim() - len(M.shape)], dtype=x.dtype, device=x.device)
        for z in noise:
            b = M.tangent(x, z)
            v, dv = torch.func.jvp(lambda p: rate(t, p), (x,), (b,))[:2]
            growth = growth + weight * M._flat(b * dv).sum(-1)
        return v, growth

    return counted


def metric_volume(M: Manifold, x: Tensor) -> Tensor | float:
    """(*batch,): the log of the volume of the set's metric at x, per volume of the ambient metric; 0 where they are the same."""
    if M.metric == "ambient":
        return 0.0
    basis = [M.tangent(x, b) for b in tangent_basis(M, x)]
    flat = torch.stack([M._flat(b) for b in basis], -2)
    return 0.5 * (log_gram(M, x, basis) - torch.linalg.slogdet(flat @ flat.mT)[1])
