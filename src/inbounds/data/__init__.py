"""Datasets: pairs of points of a set, x -> y; and loaders for a user's own."""

from .backbone import Chain, frames, protein
from .disk import disk
from .files import load_npz
from .flocks import cs, flock
from .pairs import Pairs
from .proteinnet import read_proteinnet
from .so3 import so3
from .sphere import sphere
from .structures import load_chains, read_folder, read_structure

__all__ = [
    "Chain",
    "Pairs",
    "cs",
    "disk",
    "flock",
    "frames",
    "load_chains",
    "load_npz",
    "protein",
    "read_folder",
    "read_proteinnet",
    "read_structure",
    "so3",
    "sphere",
]
