"""The six datasets by name, made once and kept in the store."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from .. import data
from ..core import ConstraintSet
from ..data.files import load_npz
from ..data.flocks import FLOCK_HORIZON, PHASE
from ..data.pairs import SIZES, Pairs, cuts
from ..sets import SE, SO, Ball, Sphere
from ..train.files import Damaged, aside, publish, publish_record, publish_tensors, read_record, read_tensors
from ..train.store import Store, key
from .names import named
from .presets import Budget, Budgets


@dataclass(frozen=True)
class Dataset:
    """A dataset of the table: its set, how it is made, whether its points come in flocks, which budget is for it."""

    name: str
    title: str
    set: Callable[[], ConstraintSet]
    make: Callable[..., Pairs]
    budget: Callable[[Budgets], Budget]
    flock: bool = False


DATASETS: dict[str, Dataset] = {
    d.name: d
    for d in (
        Dataset("sphere", "Sphere", lambda: Sphere(3), data.sphere, lambda b: b.vector),
        Dataset("disk", "Disk", lambda: Ball(2), data.disk, lambda b: b.vector),
        Dataset("so3", "SO(3)", lambda: SO(3), data.so3, lambda b: b.matrix),
        Dataset("cs", "CS", lambda: SO(3), data.cs, lambda b: b.cs, flock=True),
        Dataset("flock", "Flock", lambda: PHASE, data.flock, lambda b: b.flock, flock=True),
        Dataset("protein", "Protein", lambda: SE(3), data.protein, lambda b: b.matrix),
    )
}
T = TypeVar("T")
DATA_VERSION = 1  # a change in how data are made makes every run on them a new one


def prepare(name: str, store: Store, large: int, folder: str | None = None, chains: str | None = None, seed: int = 0) -> dict:
    """Put the dataset into the store and return its reference {name, fingerprint}.

    A file of the user's folder goes first; protein may be made from the user's chains.
    """
    dataset, own = named(name, DATASETS), Path(folder) / f"{name}.npz" if folder else None
    if own is not None and own.exists():
        return _keep(load_npz(own, name, dataset.set(), tokens=dataset.flock), store)
    if chains and name == "protein":
        return _keep(protein_of(chains, seed), store)
    sizes = {} if name == "protein" else {"large": large}
    request = Path("data") / f"{key({'name': name, 'sizes': sizes, 'seed': seed, 'source': source(name)})}.json"
    known = (_sound(folder / request, read_record) for folder in (store.folder, store.shipped) if folder is not None)
    reference = next((r for r in known if r is not None), None)
    if reference is None or _sound(_file(reference, store), read_tensors) is None:
        _copy_aside(store.folder / request, read_record)
        # the same recipe gives the same data; elsewhere, sums in another order may change last bits: the name stays
        reference = _keep(dataset.make(sizes, seed=seed), store, reference)
    publish_record(store.folder / request, reference)
    return reference


def _sound(path: Path, read: Callable[[Path], T]) -> T | None:
    """What the file holds; None if there is none, or a damaged one."""
    try:
        return read(path)
    except (FileNotFoundError, Damaged):
        return None


def _copy_aside(path: Path, read: Callable) -> None:
    """Before a damaged file is made anew: keep a copy and say so. (Another process may read it: it is replaced, never absent.)"""
    with suppress(FileNotFoundError):
        try:
            read(path)
        except Damaged as error:
            copy = aside(path)
            publish(copy, path.read_bytes())
            told = f"{path} is damaged ({error.reason}): it is made anew, and a copy of it was set aside as {copy.name}."
            warnings.warn(told, stacklevel=3)


SHARES = (1.0, 0.8, 0.6, 0.4, 0.2, 0.1, 0.05, 0.02)  # of the paper's sizes, tried from the largest on


def protein_of(chains: str, seed: int) -> Pairs:
    """Pairs from the user's chains, as many as the paper has, or the largest share of that which whole proteins can give."""
    known, refusal = data.load_chains(chains), None
    for share in SHARES:
        try:
            return data.protein({split: max(1, int(share * n)) for split, n in SIZES.items()}, seed=seed, chains=known)
        except ValueError as error:
            refusal = error
    raise ValueError(f"--chains {chains} has too few bonded pairs: {refusal}")


def export_reference(reference: dict, store: Store, folder: Path) -> None:
    """Beside shipped runs, which recipe their data are made by."""
    for request in store.folder.glob("data/*.json"):
        if _sound(request, read_record) == reference:
            publish_record(folder / "data" / request.name, reference)


def source(name: str) -> list:
    """What a dataset is made from, beside its sizes and seed."""
    chains = (files("inbounds.data") / "backbones.npz").read_bytes() if name == "protein" else b""
    return [DATA_VERSION, FLOCK_HORIZON if name == "flock" else None, hashlib.sha256(chains).hexdigest()]


def _file(reference: dict, store: Store) -> Path:
    return store.folder / "data" / f"{reference['name']}-{reference['fingerprint']}.safetensors"


def _keep(pairs: Pairs, store: Store, reference: dict | None = None) -> dict:
    reference = reference or {"name": pairs.name, "fingerprint": pairs.fingerprint()}
    if _sound(_file(reference, store), read_tensors) is None:
        _copy_aside(_file(reference, store), read_tensors)
        header = {"splits": cuts(pairs.splits), "notes": pairs.notes}
        publish_tensors(_file(reference, store), {"x": pairs.x, "y": pairs.y, "scale": pairs.scale}, header)
    return reference


def open_pairs(reference: dict, store: Store) -> Pairs:
    """The dataset of a reference, out of the store."""
    tensors, header = read_tensors(_file(reference, store))
    splits = {name: slice(*cut) for name, cut in header["splits"].items()}
    return Pairs(reference["name"], named(reference["name"], DATASETS).set(), **tensors, splits=splits, notes=header["notes"])
