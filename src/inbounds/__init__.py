"""Neural networks that never leave their constraint set: a set, a step, a network."""

from .core import ConstraintSet, LieGroup, Manifold
from .nets import FAA, IAA, AttentionBlock, MLPBlock, ProjectedODE
from .sets import (
    PSD,
    SE,
    SO,
    Affine,
    Ball,
    Box,
    BoxMinusBalls,
    Euclidean,
    FixedTracePSD,
    Halfspace,
    Product,
    SecondOrderCone,
    Simplex,
    Sphere,
    SphereMinusCaps,
    Stiefel,
)
from .steps import Exponential, GroupExponential, Projection
from .testing import check_set

__version__ = "0.1.0"
