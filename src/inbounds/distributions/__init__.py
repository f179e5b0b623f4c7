"""Probability on sets, in the conventions of `torch.distributions`: `rsample`, `log_prob`, `expand`, `support`, KL divergences.

Densities are with respect to the volume of the set's metric, and scales are lengths in it. On rotations that is the Frobenius
metric: sqrt(2) times the angle. Everything is computed in float64 inside.
"""

from . import kl  # registers the divergences with torch
from .isotropic_so3 import IsotropicSO3
from .on_set import InSet, OnSet
from .projected_normal import ProjectedNormal
from .uniform import UniformOn
from .von_mises_fisher import VonMisesFisher
from .wrapped_normal import WrappedNormal

__all__ = ["InSet", "IsotropicSO3", "OnSet", "ProjectedNormal", "UniformOn", "VonMisesFisher", "WrappedNormal", "kl"]
