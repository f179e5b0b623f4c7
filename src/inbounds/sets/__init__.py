"""One set per file."""

from .affine import Affine
from .ball import Ball
from .box import Box
from .box_minus_balls import BoxMinusBalls
from .capped_simplex import CappedSimplex
from .cone import SecondOrderCone
from .correlation import Correlation
from .depends import Depends
from .ellipsoid import Ellipsoid
from .euclidean import Euclidean
from .fixed_trace_psd import FixedTracePSD
from .halfspace import Halfspace
from .hyperboloid import Hyperboloid
from .implicit import Implicit
from .intersection import Intersection
from .polytope import Halfspaces, Polytope
from .product import Product
from .psd import PSD
from .se import SE
from .simplex import Simplex
from .so import SO
from .sphere import Sphere
from .sphere_minus_caps import SphereMinusCaps
from .stiefel import Stiefel

__all__ = [
    "PSD",
    "SE",
    "SO",
    "Affine",
    "Ball",
    "Box",
    "BoxMinusBalls",
    "CappedSimplex",
    "Correlation",
    "Depends",
    "Ellipsoid",
    "Euclidean",
    "FixedTracePSD",
    "Halfspace",
    "Halfspaces",
    "Hyperboloid",
    "Implicit",
    "Intersection",
    "Polytope",
    "Product",
    "SecondOrderCone",
    "Simplex",
    "Sphere",
    "SphereMinusCaps",
    "Stiefel",
]
