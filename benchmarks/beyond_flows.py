"""Flow matching on sets beside plain flow matching (flow_matching of Meta), the same network, steps and budget, one thread.

Run it in .venv-peers; it writes results/beyond_flows.json and results/figures/flows.png. Data: poses of a residue of a protein
in the frame of the one before it, on SE(3), and the rotations among them, on SO(3) (140 chains, tested on chains that were not
trained on; lengths in units of 3.8 Angstrom); six von Mises-Fisher modes on the sphere, whose density is known; noise projected
on the disk and on the simplex, much of which lies on the boundary.

For each: the share of samples outside of the set (beyond rounding), the largest violation, the share within 1e-4 of the
boundary beside that of the data, and the energy distance to held-out data beside that of as many training points, with
the p-value of 200 permutations. On manifolds also the mean log-density of held-out data. Where there is a boundary,
a second model of ours has `Pressed` paths.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from pathlib import Path

import torch
from flow_matching.path import CondOTProbPath  # pyright: ignore[reportMissingImports]
from flow_matching.solver import ODESolver  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn

import inbounds as ib
from inbounds.distributions import UniformOn, VonMisesFisher, WrappedNormal
from inbounds.generative import Pressed
from inbounds.records import head

ROOT = Path(__file__).parents[1]
RESULTS, FIGURE = ROOT / "results" / "beyond_flows.json", ROOT / "results" / "figures" / "flows.png"
NEAR = 1e-4
STEPS = 40  # of the sampler, for both
BATCH = 1024
PRESS = 0.2  # chosen in a trial with half of the steps, where 0.4 did as well


class Field(nn.Module):
    """A network of the point, the time and four sines and cosines of it; the same for both."""

    def __init__(self, size: int, width: int = 128):
        super().__init__()
        self.size = size
        sizes = [size + 9, width, width, width]
        hidden = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), nn.SiLU())]
        self.layers = nn.Sequential(*hidden, nn.Linear(width, size))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        flat = x.reshape(-1, self.size)
        t = t.reshape(-1, 1).expand(len(flat), 1)  # one time for all rows, or one for each
        wave = t * (math.pi * torch.arange(1.0, 5.0))
        return self.layers(torch.cat([flat, t, wave.cos(), wave.sin()], -1)).reshape(x.shape)


# --- data --------------------------------------------------------------------------------------------------------------


def poses() -> tuple[Tensor, Tensor]:
    """T_i^-1 T_(i+1) for bonded residues, training and held-out chains."""
    from inbounds.data import protein

    pairs, G = protein(), ib.SE(3)
    found = []
    for split in ("train", "test"):
        x, y = (p.double() for p in pairs[split])
        step = G.compose(G.inverse(x), y)
        length = pairs["train"][1].double()
        scale = G.compose(G.inverse(pairs["train"][0].double()), length)[:, :3, 3].norm(dim=-1).median()
        step[:, :3, 3] /= scale
        found.append(G.project(step.float()))
    return found[0], found[1]


def rotations() -> tuple[Tensor, Tensor]:
    return tuple(ib.SO(3).project(p[:, :3, :3]) for p in poses())  # pyright: ignore[reportReturnType]


def modes() -> tuple[Tensor, Tensor]:
    """The six poles of the axes, with weights 1 to 6, of different width."""
    return torch.cat([torch.eye(3), -torch.eye(3)]), torch.tensor([5.0, 10.0, 20.0, 40.0, 80.0, 20.0])


def mixture_density(x: Tensor) -> Tensor:
    """The log density of the mixture, known by formula."""
    poles, k = modes()
    weights = torch.arange(1.0, 7.0)
    return torch.logsumexp(VonMisesFisher(poles, k).log_prob(x[:, None]) + (weights / weights.sum()).log(), -1)


def sphere() -> tuple[Tensor, Tensor]:
    poles, k = modes()
    which = torch.multinomial(torch.arange(1.0, 7.0), 6000, replacement=True)
    x = VonMisesFisher(poles[which], k[which]).sample()
    return x[:4000], x[4000:]


def disk() -> tuple[Tensor, Tensor]:
    """Two clouds around points near the rim, projected: what would be outside lies on the rim."""
    at = torch.tensor([[0.9, 0.2], [-0.5, -0.8]])[torch.randint(2, (6000,))]
    x = ib.Ball(2).project(at + 0.2 * torch.randn(6000, 2))
    return x[:4000], x[4000:]


def simplex() -> tuple[Tensor, Tensor]:
    x = ib.Simplex(3).project(torch.tensor([0.6, 0.3, 0.1]) + 0.2 * torch.randn(6000, 3))
    return x[:4000], x[4000:]


def to_boundary(name: str, x: Tensor) -> Tensor | None:
    """The distance from the boundary, where the set has one; below 0 outside."""
    return {"disk": 1 - x.norm(dim=-1), "simplex": x.amin(-1)}.get(name) if name in ("disk", "simplex") else None


SETS = {
    "sphere": (ib.Sphere(3), sphere),
    "disk": (ib.Ball(2), disk),
    "simplex": (ib.Simplex(3), simplex),
    "SO(3)": (ib.SO(3), rotations),
    "SE(3)": (ib.SE(3), poses),
}


# --- models ------------------------------------------------------------------------------------------------------------


def trained(net: nn.Module, loss, x: Tensor, steps: int) -> float:
    """Adam with a cosine rate from 3e-3; the CPU seconds."""
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    began = time.process_time()
    for _ in range(steps):
        opt.zero_grad()
        loss(x[torch.randint(len(x), (BATCH,))]).backward()
        opt.step()
        decay.step()
    return time.process_time() - began


def ours(M: ib.ConstraintSet, x: Tensor, steps: int, path: Pressed | None = None) -> tuple[ib.FlowMatching, float]:
    source = WrappedNormal(M, torch.eye(4), torch.tensor(1.0)) if isinstance(M, ib.SE) else UniformOn(M)
    model = ib.FlowMatching(Field(math.prod(M.shape)), M, source=source, path=path, steps=STEPS)
    return model, trained(model, model.loss, x, steps)


def plain(x: Tensor, steps: int, count: int) -> tuple[Tensor, float]:
    """Straight paths from normal noise in the surrounding space; samples by the midpoint rule."""
    net, path, shape = Field(x[0].numel()), CondOTProbPath(), x.shape[1:]

    def loss(x1: Tensor) -> Tensor:
        p = path.sample(t=torch.rand(len(x1)), x_0=torch.randn_like(x1), x_1=x1)
        return (net(p.t, p.x_t) - p.dx_t).square().mean()

    seconds = trained(net, loss, x, steps)
    solver = ODESolver(velocity_model=lambda x, t: net(t, x))
    with torch.no_grad():
        found = solver.sample(x_init=torch.randn(count, *shape), step_size=1 / STEPS, method="midpoint")
    assert isinstance(found, Tensor)
    return found, seconds


# --- judgement ---------------------------------------------------------------------------------------------------------


def energies(d: Tensor, first: Tensor) -> Tensor:
    """2 E|x - y| - E|x - x'| - E|y - y'| from all distances; each column of `first` holds 1 for the x and 0 for the y."""
    other = 1 - first
    n, m = first.sum(0), other.sum(0)
    a, b = d @ first, d @ other
    return 2 * (other * a).sum(0) / (n * m) - (first * a).sum(0) / n**2 - (other * b).sum(0) / m**2


def two_samples(x: Tensor, y: Tensor, permutations: int = 200) -> tuple[float, float]:
    """The energy distance, and how often that of a random split of all points is at least as large."""
    both = torch.cat([x, y]).flatten(1).double()
    first = (torch.arange(len(both)) < len(x)).double()
    columns = [first] + [first[torch.randperm(len(both))] for _ in range(permutations)]
    found = energies(torch.cdist(both, both), torch.stack(columns, -1))
    beyond = int((found[1:] >= found[0]).sum())
    return float(found[0]), (1 + beyond) / (1 + permutations)


def judge(name: str, M: ib.ConstraintSet, y: Tensor, test: Tensor) -> dict:
    distance, p = two_samples(y, test)
    found = {
        "share_outside": float((~M.contains(y)).float().mean()),
        "violation": float(M.violation(y).max()),
        "energy_distance": distance,
        "p_value": p,
    }
    gap = to_boundary(name, y)
    if gap is not None:
        found["share_near_boundary"] = float((gap.abs() <= NEAR).float().mean())
    return found


def study(name: str, M: ib.ConstraintSet, data: tuple[Tensor, Tensor], steps: int, count: int) -> tuple[dict, dict]:
    train, test = data
    test = test[torch.randperm(len(test))]
    model, seconds = ours(M, train, steps)
    y = model.sample(count)
    z, their_seconds = plain(train, steps, count)
    found: dict = {
        "ours": {**judge(name, M, y, test[:count]), "seconds": seconds},
        "plain": {**judge(name, M, z, test[:count]), "seconds": their_seconds},
        "data": {**judge(name, M, train[torch.randperm(len(train))][:count], test[:count])},
    }
    if isinstance(M, ib.Manifold):
        with torch.no_grad():
            ode = ib.ProjectedODE(model.net, M, steps=8, method="rk4")  # as accurate as the steps of the sampler, and cheaper
            found["ours"]["log_density"] = float(ode.log_density(test[:300], model.source).mean())
            found["source_log_density"] = float(model.source.log_prob(test[:300]).mean())
        if name == "sphere":
            found["true_log_density"] = float(mixture_density(test[:300]).mean())
    if to_boundary(name, y) is not None:
        model, seconds = ours(M, train, steps, Pressed(M, PRESS))
        found["ours, pressed"] = {**judge(name, M, model.sample(count), test[:count]), "seconds": seconds}
    for who, row in found.items():
        print(name, who, json.dumps(row), flush=True)
    return found, {"data": test[:count], "ours": y, "plain": z}


# --- pictures ----------------------------------------------------------------------------------------------------------


TITLES = {
    "sphere": "sphere\n(longitude, height)",
    "disk": "disk",
    "simplex": "simplex",
    "SO(3)": "SO(3): rotations of residues\n(rotation vector, two numbers)",
    "SE(3)": "SE(3): poses of residues\n(translation, two numbers)",
}
COLORS = {"data": "0.3", "ours": "C0", "plain": "C3"}
WHO = {"data": "held-out data", "ours": "FlowMatching", "plain": "plain flow matching"}


def flat(name: str, x: Tensor) -> Tensor:
    """Two numbers of every point to draw."""
    if name == "sphere":
        return torch.stack([torch.atan2(x[:, 1], x[:, 0]), x[:, 2]], -1)
    if name == "simplex":
        return torch.stack([x[:, 1] + 0.5 * x[:, 2], 0.75**0.5 * x[:, 2]], -1)
    if name == "SO(3)":
        return ib.SO(3).group_log(ib.SO(3).project(x))[:, :2]
    return x[:, :2, 3] if name == "SE(3)" else x


def frame(name: str, data: Tensor) -> tuple[Tensor, Tensor]:
    """The corners of a picture: the whole set, or what holds 98 of 100 data points with room around it."""
    whole = {"sphere": ((-3.2, -1.25), (3.2, 1.25)), "disk": ((-1.3, -1.3), (1.3, 1.3)), "simplex": ((-0.2, -0.3), (1.2, 1.1))}
    if name in whole:
        low, high = map(torch.tensor, whole[name])
        return low, high
    low, high = data.quantile(0.01, dim=0), data.quantile(0.99, dim=0)
    return low - 0.5 * (high - low), high + 0.5 * (high - low)


def draw(pictures: dict[str, dict[str, Tensor]]) -> None:
    import matplotlib  # pyright: ignore[reportMissingImports]

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # pyright: ignore[reportMissingImports]
    from matplotlib.patches import Circle  # pyright: ignore[reportMissingImports]

    figure, axes = plt.subplots(3, len(pictures), figsize=(3 * len(pictures), 9), squeeze=False)
    for k, (name, parts) in enumerate(pictures.items()):
        low, high = frame(name, flat(name, parts["data"]))
        for ax, who in zip(axes[:, k], WHO, strict=True):
            ax.scatter(*flat(name, parts[who]).T, s=4, alpha=0.5, linewidths=0, color=COLORS[who])
            ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xticks=[], yticks=[])
            if name == "disk":
                ax.add_patch(Circle((0, 0), 1, fill=False, lw=0.6))
            if name == "simplex":
                ax.plot([0, 1, 0.5, 0], [0, 0, 0.75**0.5, 0], "k", lw=0.6)
        axes[0, k].set_title(TITLES[name], fontsize=9)
    for ax, who in zip(axes[:, 0], WHO.values(), strict=True):
        ax.set_ylabel(who)
    figure.tight_layout()
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, printed and not stored")
    parser.add_argument("--only", nargs="+", default=list(SETS), choices=SETS, help="these alone, printed and not stored")
    args = parser.parse_args()
    torch.set_num_threads(1)
    about = head("python benchmarks/beyond_flows.py")
    steps, count = (300, 200) if args.quick else (3000, 1000)
    results, pictures = {}, {}
    for name in args.only:
        torch.manual_seed(0)
        results[name], pictures[name] = study(name, SETS[name][0], SETS[name][1](), steps, count)
    if not args.quick and args.only == list(SETS):
        RESULTS.write_text(json.dumps({**about, "results": results}, indent=1) + "\n")
        draw(pictures)


if __name__ == "__main__":
    main()
