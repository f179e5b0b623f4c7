"""Neural networks that never leave their constraint set: a set, a step, a network."""

from . import distributions, optim
from .core import ConstraintSet, LieGroup, Manifold
from .generative import FlowMatching
from .learned import FitWarning, fit, load
from .nets import FAA, GDN, IAA, AnchorMixture, AttentionBlock, MLPBlock
from .ode import ODESolution, ProjectedODE
from .ray_scaling import RayScaling
from .sets import (
    PSD,
    SE,
    SO,
    Affine,
    Ball,
    Box,
    BoxMinusBalls,
    CappedSimplex,
    Correlation,
    Depends,
    Ellipsoid,
    Euclidean,
    FixedTracePSD,
    Halfspace,
    Halfspaces,
    Hyperboloid,
    Implicit,
    Intersection,
    Polytope,
    Product,
    SecondOrderCone,
    Simplex,
    Sphere,
    SphereMinusCaps,
    Stiefel,
)
from .sets.solved import SolveError
from .solvers import Solution
from .steps import Exponential, GroupExponential, Projection
from .testing import check_set

__version__ = "0.2.0"

__all__ = [
    "FAA",
    "GDN",
    "IAA",
    "PSD",
    "SE",
    "SO",
    "Affine",
    "AnchorMixture",
    "AttentionBlock",
    "Ball",
    "Box",
    "BoxMinusBalls",
    "CappedSimplex",
    "ConstraintSet",
    "Correlation",
    "Depends",
    "Ellipsoid",
    "Euclidean",
    "Exponential",
    "FitWarning",
    "FixedTracePSD",
    "FlowMatching",
    "GroupExponential",
    "Halfspace",
    "Halfspaces",
    "Hyperboloid",
    "Implicit",
    "Intersection",
    "LieGroup",
    "MLPBlock",
    "Manifold",
    "ODESolution",
    "Polytope",
    "Product",
    "ProjectedODE",
    "Projection",
    "RayScaling",
    "SecondOrderCone",
    "Simplex",
    "Solution",
    "SolveError",
    "Sphere",
    "SphereMinusCaps",
    "Stiefel",
    "check_set",
    "distributions",
    "fit",
    "load",
    "optim",
]
