"""How long every row is trained, and on how much. (The shape of the blocks is in models.py.)"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..train.training import Protocol

DATASETS = ("sphere", "disk", "so3", "cs", "flock", "protein")
ROWS = ("regular", "proj-iaa", "exp-iaa", "flow-iaa", "prob", "proj-faa", "exp-faa", "flow-faa")  # the paper's
ROWS += ("wide-faa", "wide-iaa", "fit-iaa", "fit-faa")  # ours
FLOW_ROWS = ("flow-iaa", "flow-faa")
WIDE_ROWS = ("wide-faa", "wide-iaa")
FIT_ROWS = ("fit-iaa", "fit-faa")
UNDEFINED = {("disk", "exp-iaa"), ("disk", "exp-faa")}  # the disk has a boundary: no exponential map


@dataclass(frozen=True)
class Budget:
    """How long and how often a row is trained: every depth x decay x seed. `batches`, `val`: caps, see Protocol.

    `every` and `patience` are absolute numbers of epochs, the paper's by default: a run that is made longer goes on as it began.
    """

    epochs: int
    batch: int = 500
    depths: tuple[int, ...] = (4, 6, 8)
    decays: tuple[float, ...] = (0.0, 1e-4)
    seeds: int = 1
    lr: float = 1e-3
    batches: int | None = None
    val: int | None = None
    every: int = 100
    patience: int = 1_000

    def protocol(self) -> Protocol:
        return Protocol(
            epochs=self.epochs,
            batch=self.batch,
            lr=self.lr,
            every=self.every,
            patience=self.patience,
            batches=self.batches,
            val=self.val,
        )


@dataclass(frozen=True)
class Velocity:
    """Training of the velocity network; `batches` caps the minibatches of an epoch (None: all).

    width, depth, dropout: of the network, the paper's by default. distil: epochs in which a network of one evaluation learns
    the finished flow; rows are then trained through that network and tested through the flow (0: trained through the flow).
    """

    epochs: int
    alphas: tuple[float, ...] = (0.25, 0.5, 1.0)
    lrs: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    decays: tuple[float, ...] = (0.0, 1e-4)
    patience: int = 100
    stop_after: int = 1_000
    batches: int | None = None
    width: int = 256
    depth: int = 8
    dropout: float = 0.1
    distil: int = 0


@dataclass(frozen=True)
class Preset:
    """Budgets by kind of row.

    large: rows of the large test split; flow_test, cs_flow_test: test rows, euler: Euler steps of flow models; flock_test: test
    flocks of all other rows (None: the whole split).
    """

    name: str
    vector: Budget  # sphere, disk: networks of width 3 and 2
    matrix: Budget  # so3, protein: width 9 and 16
    flow: Budget
    flow_layers: Budget  # Flow IAA: a projection at every layer
    cs: Budget
    flock: Budget
    cs_flow: Budget
    flock_flow: Budget
    vector_fit: Budget  # sphere, disk: one quadric, in closed form
    fit: Budget  # so3, protein: the projection is a Newton iteration
    cs_fit: Budget
    flock_fit: Budget
    wide: Budget
    cs_wide: Budget
    flock_wide: Budget
    velocity: Velocity
    cs_velocity: Velocity
    large: int = 20_000
    flow_test: int = 1_200
    cs_flow_test: int = 1_200
    flock_test: int | None = None
    euler: int = 40
    long: bool = False  # hours or days: it says how long it will take, asks, and trains cheap cells first
    label: str = ""

    def budget(self, dataset: str, row: str) -> Budget:
        kind = "wide" if row in WIDE_ROWS else "flow" if row in FLOW_ROWS else "fit" if row in FIT_ROWS else ""
        if dataset in ("cs", "flock"):
            return getattr(self, f"{dataset}_{kind}" if kind else dataset)
        if kind == "fit" and dataset in ("sphere", "disk"):
            return self.vector_fit
        if row == "flow-iaa":
            return self.flow_layers
        return getattr(self, kind or ("vector" if dataset in ("sphere", "disk") else "matrix"))

    def changed(
        self,
        seeds: int | None = None,
        depths: tuple[int, ...] | None = None,
        epochs: int | None = None,
        decays: tuple[float, ...] | None = None,
    ) -> Preset:
        """With the same seeds, depths, epochs or decays in every budget."""
        asked = {"seeds": seeds, "depths": depths, "epochs": epochs, "decays": decays}
        new = {k: v for k, v in asked.items() if v is not None}
        budgets = {k: replace(v, **new) for k, v in vars(self).items() if isinstance(v, Budget)}
        said = ", ".join(f"{k} {','.join(map(str, v)) if isinstance(v, tuple) else v}" for k, v in new.items())
        return replace(self, **budgets, label=f"{self.label}; changed: {said}" if said else self.label)


def _quick() -> Preset:
    once = {"depths": (4,), "decays": (0.0,), "seeds": 1, "every": 1}
    velocity = Velocity(epochs=4, alphas=(0.5,), lrs=(1e-3,), decays=(0.0,), batches=75)
    flocks = Budget(4, batch=32, batches=10, val=100, **once)
    flow = Budget(5, batch=64, batches=12, val=200, **once)
    flocks_flow = Budget(4, batch=8, batches=10, val=20, **once)
    return Preset(
        "quick",
        vector=Budget(100, depths=(4,), decays=(0.0, 1e-4), seeds=2, every=1),
        matrix=Budget(100, depths=(4,), decays=(0.0, 1e-4), seeds=2, every=1),
        flow=flow,
        flow_layers=flow,
        cs=flocks,
        flock=replace(flocks, epochs=10),
        cs_flow=flocks_flow,
        flock_flow=flocks_flow,
        vector_fit=Budget(100, depths=(4,), decays=(0.0, 1e-4), seeds=2, every=1),
        fit=replace(flow, batches=None),
        cs_fit=flocks,
        flock_fit=flocks,
        wide=Budget(60, lr=1e-2, **once),
        cs_wide=replace(flocks, lr=3e-3),
        flock_wide=replace(flocks, epochs=10, lr=3e-3),
        velocity=velocity,
        cs_velocity=velocity,
        large=2_000,
        flow_test=200,
        cs_flow_test=20,
        flock_test=500,
        euler=8,
        label="a smoke run: every cell is trained for seconds; the numbers show that it works, not how well",
    )


def _standard() -> Preset:
    grid = {"depths": (4, 8), "decays": (0.0, 1e-4), "seeds": 3, "every": 1}
    wide = {"depths": (4,), "decays": (0.0, 1e-4), "seeds": 3, "every": 1}
    velocity = Velocity(epochs=40, lrs=(1e-3,), decays=(0.0,), patience=4, batches=100, width=64, depth=3, dropout=0.0, distil=40)
    few = Budget(10, batch=4, batches=20, val=20, **grid)  # of flocks
    cs, flock = {"batch": 16, "batches": 20, "val": 200}, {"batch": 50, "batches": 40, "val": 200}
    return Preset(
        "standard",
        vector=Budget(1_000, **{**grid, "every": 10}),
        matrix=Budget(300, **{**grid, "every": 5}),
        flow=Budget(1_000, depths=(4, 8), decays=(0.0,), seeds=3, every=20),
        flow_layers=Budget(400, depths=(4,), decays=(0.0,), seeds=3, every=20),
        cs=Budget(10, **cs, **grid),
        flock=Budget(8, **flock, **grid),
        cs_flow=few,
        flock_flow=few,
        vector_fit=Budget(1_000, **{**wide, "every": 10}),
        fit=Budget(40, **wide),
        cs_fit=Budget(10, **cs, **wide),
        flock_fit=Budget(8, **flock, **wide),
        wide=Budget(400, lr=1e-2, **{**wide, "every": 5}),
        cs_wide=Budget(10, lr=3e-3, **cs, **wide),
        flock_wide=Budget(8, lr=3e-3, **flock, **wide),
        velocity=velocity,
        cs_velocity=replace(velocity, distil=0),
        flow_test=1_200,
        cs_flow_test=30,
        flock_test=4_000,
        euler=8,
        label="thousands of steps for feed-forward rows, hundreds for flocks; flow rows with a velocity network of 3 x 64 units",
    )


def _paper() -> Preset:
    full = Budget(10_000)
    return Preset(
        "paper",
        vector=full,
        matrix=full,
        flow=full,
        flow_layers=full,
        cs=full,
        flock=full,
        cs_flow=full,
        flock_flow=full,
        vector_fit=full,
        fit=full,
        cs_fit=full,
        flock_fit=full,
        wide=replace(full, lr=1e-2),
        cs_wide=replace(full, lr=3e-3),
        flock_wide=replace(full, lr=3e-3),
        velocity=Velocity(epochs=2_000),
        cs_velocity=Velocity(epochs=200, patience=10, stop_after=10),
        long=True,
        label="the paper's full protocol",
    )


PRESETS = {p.name: p for p in (_quick(), _standard(), _paper())}
