"""Which obstacle to round next, and on which side: a network that sees the obstacles, in worlds it has never met."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path as File

import torch
from torch import Tensor, nn

from ..extras import needed_for
from .learning import Progress, descend, mlp
from .random_worlds import random_caps, random_worlds
from .shortest import ShortestPaths
from .ways import OTHER, OWN, STEP, Ways, exits, gaps
from .worlds import TURN, World

SOFT = 0.03  # units: of two ways whose lengths differ by less, training calls neither wrong
TOGETHER = 2**18  # pairs of tangents that are solved at once: some hundred megabytes


class SideNet(nn.Module):
    """A score for every way; obstacles in any order, any number."""

    def __init__(self, width: int = 64):
        super().__init__()
        self.other, self.own = mlp(OTHER, width // 2, width // 2), mlp(OWN, width, width // 2)
        self.score = mlp(width // 2 * 3, width, width, 1)

    def forward(self, ways: Ways, present: Tensor) -> Tensor:
        """(rows, m, 2), -inf for ways that are not open, which the layers do not see."""
        each = self.other(ways.others[ways.open])  # (open ways, m, features)
        mask = present[ways.open.nonzero()[:, 0], :, None]
        most = torch.where(mask, each, -1e4).amax(-2)  # below all that the layer gives, and finite for worlds without obstacles
        mean = torch.where(mask, each, 0.0).sum(-2) / mask.sum(-2).clamp(min=1)
        s = self.score(torch.cat([self.own(ways.own[ways.open]), most, mean], -1))[..., 0]
        return s.new_full(ways.open.shape, -torch.inf).masked_scatter(ways.open, s)


# --- training ------------------------------------------------------------------------------------------------
@dataclass
class Lessons:
    """Points that do not see their targets, as the network reads them, and the length of every way, in units: (rows, m, 2)."""

    ways: Ways
    present: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, rows: Tensor) -> tuple[Ways, Tensor, Tensor]:
        """The lessons of these rows: the ways, which obstacles are present, the lengths."""
        w = self.ways
        ways = Ways(w.next[rows], w.there[rows], w.open[rows], w.own[rows], w.others[rows])
        return ways, self.present[rows], self.lengths[rows]


def lessons(world: World, queries: int, seed: int, step: float | None = None) -> Lessons:
    """Lessons from a batch of worlds, so many queries in each. Half of the points lie on rims, as those of paths do."""
    step = STEP * world.unit if step is None else step
    g = torch.Generator().manual_seed(seed)
    n_worlds, m = world.sizes.shape
    steps = world.safe_steps(step)
    inner = world.for_chords(steps)
    x, y = (inner.sample(queries, generator=g) for _ in range(2))  # (worlds, queries, n)
    which = torch.randint(m, (n_worlds, queries // 2), generator=g)
    each = torch.arange(n_worlds)[:, None].expand(which.shape)
    angle = TURN * torch.rand(which.shape, generator=g, dtype=torch.float64)
    size = inner.sizes[each, which]
    rim = inner.rim_point(inner.centers[each, which], size, angle)
    free = (world.segment_clearance(rim, rim) >= 0) & (size > 0)
    x[:, : queries // 2] = torch.where(free[..., None], rim, x[:, : queries // 2])
    parts = torch.arange(n_worlds).split(max(1, TOGETHER // m**4))
    total = torch.cat([ShortestPaths(inner[part]).ways(x[part], y[part])[0] for part in parts])
    row, query = (~world.sees(x, y) & torch.isfinite(total).any(-1)).nonzero().mT
    w, s, lengths = world[row], steps[row], (total[row, query] / world.unit).unflatten(-1, (m, 2)).float()
    ways = Ways.at(w, w.for_chords(s), x[row, query], y[row, query], s, exits(inner)[row], gaps(w))
    found = Lessons(ways, w.sizes > 0, torch.where(ways.open, lengths, math.inf))
    usable = torch.isfinite(found.lengths).flatten(1).any(1).nonzero()[:, 0]
    return Lessons(*found.batch(usable))


def train_sides(
    worlds: World | None = None,
    count: int = 1_200,
    queries: int = 48,
    steps: int = 2_500,
    batch: int = 256,
    seed: int = 0,
    progress: Progress | None = None,
) -> SideNet:
    """A network trained by cross entropy against the ways of least length, on these worlds.

    Without worlds it learns from random ones with 3 to 8 discs or 1 to 4 caps.
    """
    torch.manual_seed(seed)
    net, g = SideNet(), torch.Generator().manual_seed(seed)
    if worlds is not None:
        groups = [worlds if worlds.centers.dim() == 3 else worlds[None]]
    else:
        groups = [random_worlds(count // 8, (m, m), seed=1000 + 7 * seed + m) for m in range(3, 9)]
        groups += [random_caps(count // 4, (1, 4), seed=1000 + 7 * seed)]
    data = []
    for k, group in enumerate(groups):
        data.append(lessons(group, queries, seed + k))
        if progress:
            progress("exact paths", k + 1, len(groups), 0.0)
    sizes = torch.tensor([float(len(d)) for d in data])

    def loss(_: int) -> Tensor:
        lesson = data[int(torch.multinomial(sizes, 1, generator=g))]
        ways, present, cost = lesson.batch(torch.randint(len(lesson), (batch,), generator=g))
        log = net(ways, present).flatten(1).log_softmax(1)
        cost = cost.flatten(1)
        want = (-(cost - cost.amin(1, keepdim=True)) / SOFT).softmax(1)
        return -(want * torch.where(want > 0, log, 0.0)).sum(1).mean()  # 0 log 0 = 0: ways that are not open

    descend(net, loss, steps, 2e-3, "sides", progress)
    return net


# --- the one that is shipped -----------------------------------------------------------------------------------
SHIPPED = File(__file__).with_name("sides.safetensors")


def save_sides(net: SideNet, path: str | File) -> None:
    """Write the network to a safetensors file, which `load_sides` reads."""
    with needed_for("save_sides"):
        from safetensors.torch import save_file

    save_file(net.state_dict(), path)


def load_sides(path: str | File = SHIPPED) -> SideNet:
    """A network out of a file, by default the one that comes with the package. `inbounds plan --train FILE` makes it again."""
    with needed_for("load_sides"):
        from safetensors import SafetensorError
        from safetensors.torch import load_file

    asked = f"load_sides asked for a file that `inbounds plan --train FILE` wrote, got {path}"
    if not File(path).is_file():
        raise FileNotFoundError(f"{asked}, which does not exist.")
    net = SideNet()
    try:
        net.load_state_dict(load_file(path))
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"{asked}: {str(error).splitlines()[0]}") from None
    return net.eval()
