"""Every knob of a run in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..train.training import Protocol

DATASETS = ("sphere", "disk", "so3", "cs", "flock", "protein")
ROWS = ("regular", "proj-iaa", "exp-iaa", "flow-iaa", "prob", "proj-faa", "exp-faa", "flow-faa", "wide-faa", "wide-iaa")
FLOW_ROWS = ("flow-iaa", "flow-faa")
WIDE_ROWS = ("wide-faa", "wide-iaa")
UNDEFINED = {("disk", "exp-iaa"), ("disk", "exp-faa")}  # the disk has a boundary: no exponential map


@dataclass(frozen=True)
class Budget:
    """How long and how often a row is trained: every depth x decay x seed."""

    epochs: int
    batch: int = 500
    depths: tuple[int, ...] = (4, 6, 8)
    decays: tuple[float, ...] = (0.0, 1e-4)
    seeds: int = 1
    lr: float = 1e-3

    def protocol(self) -> Protocol:
        """The paper's proportions: an evaluation every 1/100 of the epochs, patience 1/10 of them."""
        return Protocol(
            epochs=self.epochs,
            batch=self.batch,
            lr=self.lr,
            every=max(1, self.epochs // 100),
            patience=max(1, self.epochs // 10),
        )


@dataclass(frozen=True)
class Velocity:
    """Training of the velocity network; `batches` caps the minibatches of an epoch (None: all)."""

    epochs: int
    alphas: tuple[float, ...] = (0.25, 0.5, 1.0)
    lrs: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    decays: tuple[float, ...] = (0.0, 1e-4)
    patience: int = 100
    stop_after: int = 1_000
    batches: int | None = None


@dataclass(frozen=True)
class Preset:
    """Budgets by kind of row. `large`: rows of the large test split; `flow_test`: test rows, `euler`: steps of flow models."""

    name: str
    feed: Budget
    flow: Budget
    cs: Budget
    flock: Budget
    cs_flow: Budget
    flock_flow: Budget
    wide: Budget
    cs_wide: Budget
    flock_wide: Budget
    velocity: Velocity
    cs_velocity: Velocity
    large: int = 20_000
    flow_test: int = 1_200
    cs_flow_test: int = 1_200
    euler: int = 40
    label: str = ""

    def budget(self, dataset: str, row: str) -> Budget:
        kind = "wide" if row in WIDE_ROWS else "flow" if row in FLOW_ROWS else ""
        if dataset in ("cs", "flock"):
            return getattr(self, f"{dataset}_{kind}" if kind else dataset)
        return getattr(self, kind or "feed")

    def changed(self, seeds: int | None, depths: tuple[int, ...] | None, epochs: int | None) -> Preset:
        """With the same seeds, depths or epochs in every budget."""
        asked = {"seeds": seeds, "depths": depths, "epochs": epochs}
        new = {k: v for k, v in asked.items() if v is not None}
        budgets = {k: replace(v, **new) for k, v in vars(self).items() if isinstance(v, Budget)}
        return replace(self, **budgets)


def _quick() -> Preset:
    once = {"depths": (4,), "decays": (0.0,), "seeds": 1}
    velocity = Velocity(epochs=4, alphas=(0.5,), lrs=(1e-3,), decays=(0.0,), batches=100)
    return Preset(
        "quick",
        feed=Budget(150, depths=(4,), decays=(0.0, 1e-4), seeds=2),
        flow=Budget(12, batch=250, **once),
        cs=Budget(1, batch=200, **once),
        flock=Budget(4, batch=100, **once),
        cs_flow=Budget(1, batch=200, **once),
        flock_flow=Budget(1, batch=200, **once),
        wide=Budget(60, lr=3e-3, **once),
        cs_wide=Budget(1, batch=100, **once),
        flock_wide=Budget(4, batch=100, **once),
        velocity=velocity,
        cs_velocity=velocity,
        large=4_000,
        flow_test=300,
        cs_flow_test=20,
        euler=8,
        label="smoke run: every cell is trained for seconds only; the numbers show that it works, not how well",
    )


def _standard() -> Preset:
    grid = {"depths": (4, 8), "decays": (0.0, 1e-4), "seeds": 3}
    return Preset(
        "standard",
        feed=Budget(1_000, **grid),
        flow=Budget(25, **grid),
        cs=Budget(4, batch=100, **grid),
        flock=Budget(40, batch=100, **grid),
        cs_flow=Budget(3, batch=40, **grid),
        flock_flow=Budget(3, batch=40, **grid),
        wide=Budget(500, depths=(4,), decays=(0.0, 1e-4), seeds=3, lr=3e-3),
        cs_wide=Budget(4, batch=100, depths=(4,), decays=(0.0, 1e-4), seeds=3),
        flock_wide=Budget(60, batch=100, depths=(4,), decays=(0.0, 1e-4), seeds=3),
        velocity=Velocity(epochs=15, lrs=(1e-3,), decays=(0.0,), patience=5),
        cs_velocity=Velocity(epochs=15, lrs=(1e-3,), decays=(0.0,), patience=5, batches=469),
        flow_test=1_200,
        cs_flow_test=60,
        euler=8,
        label="thousands of steps for feed-forward rows, hundreds for flow rows and flocks",
    )


def _paper() -> Preset:
    full = Budget(10_000)
    return Preset(
        "paper",
        feed=full,
        flow=full,
        cs=full,
        flock=full,
        cs_flow=full,
        flock_flow=full,
        wide=replace(full, lr=3e-3),
        cs_wide=full,
        flock_wide=full,
        velocity=Velocity(epochs=2_000),
        cs_velocity=Velocity(epochs=200, patience=10, stop_after=10),
        label="the paper's full protocol",
    )


PRESETS = {p.name: p for p in (_quick(), _standard(), _paper())}
