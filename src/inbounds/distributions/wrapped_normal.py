"""Normal vectors of a tangent space, carried to the manifold by its exponential."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints

from ..core import Manifold
from ..kernels.vectors import unit
from ..sets import SE, SO, Affine, Euclidean, Hyperboloid, Product, Sphere
from .on_set import OnSet, as_tensors, require_point, require_scale

TAIL = math.sqrt(2 * math.log(1e7))  # P(|z| > sqrt(dim) + TAIL) <= 1e-7 for a standard normal z
MOST = 100  # turns; a normal that wraps more often is refused


def is_known(M: Any) -> bool:
    """Whether all vectors that exp takes to the same point are known."""
    if isinstance(M, Product):
        return all(is_known(s) for s in M.sets)
    return isinstance(M, Sphere | Hyperboloid | Euclidean | Affine) or (isinstance(M, SO | SE) and M.n <= 3)


def log_density(M: Manifold, loc: Tensor, x: Tensor, scale: Tensor) -> Tensor:
    """log of the density at x of exp(loc, v), v normal with standard deviation `scale` in every direction."""
    if isinstance(M, Product):
        parts = zip(M.sets, M.split(loc), M.split(x), strict=True)
        return torch.stack([log_density(s, a, b, scale) for s, a, b in parts]).sum(0)
    if isinstance(M, SE):
        (R, t), (S, s) = M.split(loc), M.split(x)
        return log_density(M.rotation, R, S, scale) + log_density(Euclidean(M.n), t[..., 0], s[..., 0], scale)
    v = M.log(loc, x)
    constant = M.dim * (scale.log() + 0.5 * math.log(2 * math.pi))
    terms = [-0.5 * M.inner(loc, w, w) / scale.square() - M.log_volume(loc, w) for w in preimages(M, v, scale)]
    return torch.logsumexp(torch.stack(torch.broadcast_tensors(*terms)), 0) - constant


def period(M: Manifold) -> Tensor | None:
    """The length of a closed geodesic, (*batch,); None where there is none."""
    if isinstance(M, Sphere):
        return 2 * math.pi * M.radius.double()
    return torch.tensor(2 * math.pi * math.sqrt(2), dtype=torch.float64) if isinstance(M, SO) else None


def preimages(M: Manifold, v: Tensor, scale: Tensor) -> list[Tensor]:
    """v, and the longer vectors that exp takes to the same point, up to the length beyond which the mass is 1e-7."""
    turn = period(M)
    if turn is None:
        return [v]
    flat = M._flat(v)
    longest = float((scale.detach() * (math.sqrt(M.dim) + TAIL) / turn.detach()).max())
    turns = max(0, math.ceil(longest - 0.5))
    if turns > MOST:
        raise ValueError(
            f"WrappedNormal asked for a scale that wraps around {M!r} at most {MOST} times, got {float(scale.max()):g}, which "
            f"does so {turns} times. Write UniformOn(M), from which it hardly differs."
        )
    along = unit(flat) * turn.to(v)[..., None]
    return [(flat + k * along).reshape(v.shape) for k in range(-turns, turns + 1)]


class WrappedNormal(OnSet):
    """exp(loc, v) for a normal v in the tangent space at loc, with standard deviation `scale` in every direction.

    The scale is a length in the set's metric: on rotations sqrt(2) times an angle. On spheres and rotations `log_prob` sums over
    the vectors that lead to the same point, until 1e-7 of the mass is left. Where the sphere or SO(3) closes up, at loc and
    opposite to it, the density is infinite if its dimension is above 1: very high, and only very near, unless the scale is large.
    """

    M: Manifold
    loc: Tensor
    scale: Tensor
    dims: ClassVar[dict[str, int]] = {"scale": 0}
    arg_constraints: dict[str, Any] = {"scale": constraints.positive}  # noqa: RUF012 (as in torch)

    def __init__(self, M: Manifold, loc: Tensor, scale: Any, validate_args: Any = None):
        if not is_known(M):
            raise TypeError(
                f"WrappedNormal asked for a Sphere, Hyperboloid, Euclidean, Affine, SO(n) or SE(n) with n <= 3, or a product of "
                f"them, got {M!r}: its exponential is not known well enough for a density. UniformOn and M.retract are not bound "
                f"to these sets."
            )
        loc, scale = as_tensors(loc, scale)
        if validate_args is not False:
            require_point(M, loc, "WrappedNormal")
            require_scale(scale, "scale", "WrappedNormal")
        self.dims = {"loc": len(M.shape), "scale": 0}  # pyright: ignore[reportAttributeAccessIssue]
        super().__init__(M, {"loc": loc, "scale": scale}, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> WrappedNormal:
        """The same distribution, repeated over batch dims."""
        new = super().expand(batch_shape, _instance)
        new.dims = self.dims
        return new

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """exp of scaled noise in the tangent space."""
        loc = self.loc.expand(torch.Size(sample_shape) + self.loc.shape)
        scale = self.scale.reshape(self.scale.shape + (1,) * len(self.event_shape))
        return self.M.refine(self.M.exp(loc, scale * self.M.random_tangent(loc)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The log density with respect to the volume of the set's metric."""
        x, loc = torch.broadcast_tensors(self._checked(value).double(), self.loc.double())
        found = log_density(self.M, loc, x, self.scale.double())
        return found.to(torch.promote_types(value.dtype, self.loc.dtype))
