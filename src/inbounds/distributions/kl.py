"""KL divergences, found by `torch.distributions.kl_divergence`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import register_kl

from ..core import ConstraintSet
from ..sets import SO, Sphere
from .isotropic_so3 import IsotropicSO3
from .uniform import UniformOn
from .von_mises_fisher import VonMisesFisher


def _alike(M: ConstraintSet, N: ConstraintSet) -> bool:
    """Whether two sets are equal, number by number; their names may leave numbers out."""
    kinds = [type(m) for m in M.modules()] == [type(m) for m in N.modules()]
    if not kinds or M.shape != N.shape:
        return False
    ours, theirs = ({**dict(s.named_buffers()), **dict(s.named_parameters())} for s in (M, N))
    return ours.keys() == theirs.keys() and all(torch.equal(t, theirs[name]) for name, t in ours.items())


def _require_same(ok: bool, p: ConstraintSet, q: ConstraintSet) -> None:
    if not ok:
        raise NotImplementedError(f"kl_divergence asked for two distributions on the same set, got {p!r} and {q!r}.")


@register_kl(VonMisesFisher, VonMisesFisher)
def _two_von_mises_fisher(p: VonMisesFisher, q: VonMisesFisher) -> Tensor:
    """kappa_p (A - 1) - log Z_p - E(kappa_q (<loc_q, x> - 1)) + log Z_q, A = E<loc_p, x>."""
    _require_same(p.event_shape == q.event_shape, p.M, q.M)
    lost = p._shortening()
    k, j = p.concentration.double(), q.concentration.double()
    apart = 0.5 * (p.loc.double() - q.loc.double()).square().sum(-1)
    missed = lost + apart - lost * apart  # 1 - E<loc_q, x> = 1 - (1 - lost)(1 - apart)
    return (j * missed - k * lost - p._log_normaliser() + q._log_normaliser()).to(p.loc.dtype)


@register_kl(VonMisesFisher, UniformOn)
def _von_mises_fisher_and_uniform(p: VonMisesFisher, q: UniformOn) -> Tensor:
    _require_same(isinstance(q.M, Sphere) and q.M.plain and q.M.shape == p.M.shape, p.M, q.M)
    return q.entropy().to(p.loc.dtype) - p.entropy()


@register_kl(UniformOn, VonMisesFisher)
def _uniform_and_von_mises_fisher(p: UniformOn, q: VonMisesFisher) -> Tensor:
    """log Z_q + kappa_q - log of the area, because E<loc_q, x> = 0."""
    _require_same(isinstance(p.M, Sphere) and p.M.plain and p.M.shape == q.M.shape, p.M, q.M)
    return (q._log_normaliser() + q.concentration.double() - p._log_volume).to(q.loc.dtype)


@register_kl(IsotropicSO3, UniformOn)
def _isotropic_and_uniform(p: IsotropicSO3, q: UniformOn) -> Tensor:
    _require_same(isinstance(q.M, SO) and q.M.n == 3, p.M, q.M)
    return p.divergence_from_uniform().expand(torch.broadcast_shapes(p.batch_shape, q.batch_shape))


@register_kl(UniformOn, IsotropicSO3)
def _uniform_and_isotropic(p: UniformOn, q: IsotropicSO3) -> Tensor:
    _require_same(isinstance(p.M, SO) and p.M.n == 3, p.M, q.M)
    return q.divergence_of_uniform().expand(torch.broadcast_shapes(p.batch_shape, q.batch_shape))


@register_kl(UniformOn, UniformOn)
def _two_uniform(p: UniformOn, q: UniformOn) -> Tensor:
    _require_same(_alike(p.M, q.M), p.M, q.M)
    return q.entropy() - p.entropy()
