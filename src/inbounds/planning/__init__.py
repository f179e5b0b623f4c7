"""Path planning that cannot collide: worlds, exact shortest paths, planners that certify every segment."""

from .around import Around
from .learning import DirectionNet, OneStepNet, train_direction, train_one_step
from .path import Path, pull_tight
from .planners import Certified, Exact, OneStep, Planner, inflated, roadmap
from .random_worlds import is_connected, random_caps, random_worlds
from .roadmap import Roadmap
from .shortest import ShortestPaths
from .sides import SideNet, load_sides, save_sides, train_sides
from .worlds import BoxWorld, SphereWorld, World, load_world

__all__ = [
    "Around",
    "BoxWorld",
    "Certified",
    "DirectionNet",
    "Exact",
    "OneStep",
    "OneStepNet",
    "Path",
    "Planner",
    "Roadmap",
    "ShortestPaths",
    "SideNet",
    "SphereWorld",
    "World",
    "inflated",
    "is_connected",
    "load_sides",
    "load_world",
    "pull_tight",
    "random_caps",
    "random_worlds",
    "roadmap",
    "save_sides",
    "train_direction",
    "train_one_step",
    "train_sides",
]
