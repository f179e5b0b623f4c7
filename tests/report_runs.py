"""Tiny run stores to make reports of, trained in this process in seconds."""

from dataclasses import replace
from pathlib import Path

from inbounds import data
from inbounds.paper.datasets import _keep
from inbounds.paper.jobs import open_job
from inbounds.paper.presets import PRESETS, Velocity
from inbounds.paper.units import units
from inbounds.train.store import Store
from inbounds.train.work import work

SIZES = {"train": 60, "val": 20, "test": 30, "large": 30}
ORDER = ("velocity", "stack", "test")  # what comes later stands on what comes before
ROWS = ("regular", "proj-iaa", "exp-iaa", "proj-faa")


def tiny_store(
    folder: Path, names: tuple[str, ...] = ("sphere", "so3", "flock", "protein"), rows: tuple[str, ...] = ROWS
) -> Path:
    """Every row on every dataset, two seeds, two epochs, two layers."""
    store = Store(folder)
    store.prepare()
    velocity = Velocity(epochs=1, alphas=(0.5,), lrs=(1e-3,), decays=(0.0,), batches=2, width=8, depth=1)
    preset = replace(PRESETS["quick"].changed(2, (2,), 2, (0.0,)), velocity=velocity, flow_test=10)
    for name in names:
        sizes = {k: n for k, n in SIZES.items() if name != "protein" or k != "large"}
        reference = _keep(getattr(data, name)(sizes), store)
        for unit in sorted(units(preset, [reference], rows, store), key=lambda u: ORDER.index(u.config["kind"])):
            work(unit.config, store, open_job)
    return folder
