"""How long every row is trained, and on how much. (The shape of the blocks is in models.py.)"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..train.training import Protocol


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
        """What the training loop needs to know of it."""
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
class Budgets:
    """The budgets of a kind of row on every kind of dataset."""

    vector: Budget  # sphere, disk: networks of width 3 and 2
    matrix: Budget  # so3, protein: width 9 and 16
    cs: Budget
    flock: Budget


@dataclass(frozen=True)
class Preset:
    """How long every row is trained.

    large: rows of the large test split; flow_test, cs_flow_test: test rows, euler: Euler steps of flow models; flock_test: test
    flocks of all other rows (None: the whole split).
    """

    name: str
    plain: Budgets
    flow: Budgets
    flow_layers: Budgets  # Flow IAA: a projection at every layer
    fit: Budgets  # on vectors one quadric, in closed form; on matrices the projection is a Newton iteration
    wide: Budgets
    velocity: Velocity
    cs_velocity: Velocity
    large: int = 20_000
    flow_test: int = 1_200
    cs_flow_test: int = 1_200
    flock_test: int | None = None
    euler: int = 40
    long: bool = False  # hours or days: it says how long it will take, asks, and trains cheap cells first
    label: str = ""

    def changed(
        self,
        seeds: int | None = None,
        depths: tuple[int, ...] | None = None,
        epochs: int | None = None,
        decays: tuple[float, ...] | None = None,
    ) -> Preset:
        """The preset with the same seeds, depths, epochs or decays in every budget."""
        asked = {"seeds": seeds, "depths": depths, "epochs": epochs, "decays": decays}
        new = {k: v for k, v in asked.items() if v is not None}
        kinds = {k: v for k, v in vars(self).items() if isinstance(v, Budgets)}
        budgets = {k: Budgets(**{d: replace(b, **new) for d, b in vars(v).items()}) for k, v in kinds.items()}
        said = ", ".join(f"{k} {','.join(map(str, v)) if isinstance(v, tuple) else v}" for k, v in new.items())
        return replace(self, **budgets, label=f"{self.label}; changed: {said}" if said else self.label)


def _quick() -> Preset:
    once = {"depths": (4,), "decays": (0.0,), "seeds": 1, "every": 1}
    velocity = Velocity(epochs=4, alphas=(0.5,), lrs=(1e-3,), decays=(0.0,), batches=75)
    flocks = Budget(4, batch=32, batches=10, val=100, **once)
    points = Budget(100, depths=(4,), decays=(0.0, 1e-4), seeds=2, every=1)
    wide = Budget(60, lr=1e-2, **once)
    flow = Budget(5, batch=64, batches=12, val=200, **once)
    flocks_flow = Budget(4, batch=8, batches=10, val=20, **once)
    return Preset(
        "quick",
        plain=Budgets(vector=points, matrix=points, cs=flocks, flock=replace(flocks, epochs=10)),
        flow=Budgets(vector=flow, matrix=flow, cs=flocks_flow, flock=flocks_flow),
        flow_layers=Budgets(vector=flow, matrix=flow, cs=flocks_flow, flock=flocks_flow),
        fit=Budgets(vector=points, matrix=replace(flow, batches=None), cs=flocks, flock=flocks),
        wide=Budgets(wide, wide, cs=replace(flocks, lr=3e-3), flock=replace(flocks, epochs=10, lr=3e-3)),
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
    shallow = {"depths": (4,), "decays": (0.0, 1e-4), "seeds": 3, "every": 1}
    flow = Budget(1_000, depths=(4, 8), decays=(0.0,), seeds=3, every=20)
    flow_layers = Budget(400, depths=(4,), decays=(0.0,), seeds=3, every=20)
    wide = Budget(400, lr=1e-2, **{**shallow, "every": 5})
    velocity = Velocity(epochs=40, lrs=(1e-3,), decays=(0.0,), patience=4, batches=100, width=64, depth=3, dropout=0.0, distil=40)
    few = Budget(10, batch=4, batches=20, val=20, **grid)  # of flocks
    cs, flock = {"batch": 16, "batches": 20, "val": 200}, {"batch": 50, "batches": 40, "val": 200}
    return Preset(
        "standard",
        plain=Budgets(
            vector=Budget(1_000, **{**grid, "every": 10}),
            matrix=Budget(300, **{**grid, "every": 5}),
            cs=Budget(10, **cs, **grid),
            flock=Budget(8, **flock, **grid),
        ),
        flow=Budgets(flow, flow, cs=few, flock=few),
        flow_layers=Budgets(flow_layers, flow_layers, cs=few, flock=few),
        fit=Budgets(
            vector=Budget(1_000, **{**shallow, "every": 10}),
            matrix=Budget(40, **shallow),
            cs=Budget(10, **cs, **shallow),
            flock=Budget(8, **flock, **shallow),
        ),
        wide=Budgets(wide, wide, cs=Budget(10, lr=3e-3, **cs, **shallow), flock=Budget(8, lr=3e-3, **flock, **shallow)),
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
    everywhere = Budgets(full, full, full, full)
    return Preset(
        "paper",
        plain=everywhere,
        flow=everywhere,
        flow_layers=everywhere,
        fit=everywhere,
        wide=Budgets(replace(full, lr=1e-2), replace(full, lr=1e-2), cs=replace(full, lr=3e-3), flock=replace(full, lr=3e-3)),
        velocity=Velocity(epochs=2_000),
        cs_velocity=Velocity(epochs=200, patience=10, stop_after=10),
        long=True,
        label="the paper's full protocol",
    )


PRESETS = {p.name: p for p in (_quick(), _standard(), _paper())}
