"""Worlds to plan in: a box minus balls, a sphere minus caps, and the files that hold them."""

from .base import MARGIN, World
from .box import BoxWorld
from .files import load_world
from .sphere import SphereWorld
from .vectors import TURN

__all__ = ["MARGIN", "TURN", "BoxWorld", "SphereWorld", "World", "load_world"]
