"""The six datasets by name, made once and kept in the store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from .. import data
from ..core import ConstraintSet
from ..data.files import load_npz
from ..data.flocks import FLOCK_HORIZON, PHASE
from ..data.pairs import Pairs, cuts
from ..sets import SE, SO, Ball, Sphere
from ..train.store import Store, key, publish_json, publish_tensors, read_tensors
from .presets import DATASETS

MAKE: dict[str, Callable[..., Pairs]] = {name: getattr(data, name) for name in DATASETS}
SETS: dict[str, Callable[[], ConstraintSet]] = {
    "sphere": lambda: Sphere(3),
    "disk": lambda: Ball(2),
    "so3": lambda: SO(3),
    "cs": lambda: SO(3),
    "flock": lambda: PHASE,
    "protein": lambda: SE(3),
}
FLOCKS = ("cs", "flock")
DATA_VERSION = 1  # a change in how data are made makes every run on them a new one


def prepare(name: str, store: Store, large: int, folder: str | None = None, seed: int = 0) -> dict:
    """Put the dataset into the store (a file of the user's folder goes first) and return its reference {name, fingerprint}."""
    own = Path(folder) / f"{name}.npz" if folder else None
    if own is not None and own.exists():
        return _keep(load_npz(own, name, SETS[name](), tokens=name in FLOCKS), store)
    sizes = {} if name == "protein" else {"large": large}
    request = store.folder / "data" / f"{key({'name': name, 'sizes': sizes, 'seed': seed, 'source': source(name)})}.json"
    if request.exists():
        reference = json.loads(request.read_text())
        if _file(reference, store).exists():
            return reference
    reference = _keep(MAKE[name](sizes, seed=seed), store)
    publish_json(request, reference)
    return reference


def source(name: str) -> list:
    """What a dataset is made from, beside its sizes and seed."""
    chains = (files("inbounds.data") / "backbones.npz").read_bytes() if name == "protein" else b""
    return [DATA_VERSION, FLOCK_HORIZON if name == "flock" else None, hashlib.sha256(chains).hexdigest()]


def _file(reference: dict, store: Store) -> Path:
    return store.folder / "data" / f"{reference['name']}-{reference['fingerprint']}.safetensors"


def _keep(pairs: Pairs, store: Store) -> dict:
    reference = {"name": pairs.name, "fingerprint": pairs.fingerprint()}
    if not _file(reference, store).exists():
        header = {"splits": cuts(pairs.splits), "notes": pairs.notes}
        publish_tensors(_file(reference, store), {"x": pairs.x, "y": pairs.y, "scale": pairs.scale}, header)
    return reference


def open_pairs(reference: dict, store: Store) -> Pairs:
    tensors, header = read_tensors(_file(reference, store))
    splits = {name: slice(*cut) for name, cut in header["splits"].items()}
    return Pairs(reference["name"], SETS[reference["name"]](), **tensors, splits=splits, notes=header["notes"])
