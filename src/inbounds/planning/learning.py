"""Networks that propose where to go, and how they are trained: the paper's one-step loss, and directions of shortest paths."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from .roadmap import Roadmap
from .shortest import ShortestPaths
from .worlds import SphereWorld, World

Progress = Callable[[str, int, int, float], None]  # what, step, of, loss


def mlp(*sizes: int) -> nn.Sequential:
    """Linear layers of these sizes with SiLU between them."""
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


class DirectionNet(nn.Module):
    """A network that says in which unit direction to leave x, for targets y that x does not see."""

    middle: Tensor
    span: Tensor

    def __init__(self, world: World, width: int = 128):
        super().__init__()
        n = world.dim
        self.curved = isinstance(world, SphereWorld)
        self.body = mlp(3 * n + 1, width, width, width, n)
        low, high = world.bounds
        self.register_buffer("middle", (0.5 * (low + high)).float())
        self.register_buffer("span", (0.5 * (high - low)).float())

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        a, b = ((t.float() - self.middle) / self.span for t in (x, y))
        d = b - a
        far = d.norm(dim=-1, keepdim=True)
        v = self.body(torch.cat([a, b, d / far.clamp(min=1e-6), far], -1))
        if self.curved:
            v = v - a * (a * v).sum(-1, keepdim=True)
        return nn.functional.normalize(v, dim=-1).to(x.dtype)


def blocked_pairs(world: World, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Free points that do not see each other; half of the first lie on the rims of obstacles, where paths go along."""
    found, need = [], count
    for _ in range(100):
        x, y = (world.sample(2 * count, generator=generator) for _ in range(2))
        if world.sizes.numel():
            which = torch.randint(len(world.sizes), (count,), generator=generator)
            around = torch.randn(count, world.dim, generator=generator, dtype=torch.float64)
            x[:count] = world.M.project(world.centers[which] + 1e-3 * world.unit * around)
        hidden = ~world.sees(x, y)
        found.append(torch.stack([x[hidden], y[hidden]])[:, torch.randperm(int(hidden.sum()), generator=generator)])
        need -= found[-1].shape[1]
        if need <= 0 or need == count:  # enough, or none at all
            break
    pairs = torch.cat(found, 1)[:, :count]
    if not pairs.shape[1]:
        raise ValueError("Learning directions asked for a world whose points do not all see each other, got one without shadows.")
    return pairs[0], pairs[1]


def shortest_directions(world: World, pairs: int, seed: int, labels: str = "exact") -> tuple[Tensor, Tensor, Tensor]:
    """x, y and the direction of a shortest path: exact, or along a roadmap of 1,000 nodes."""
    g = torch.Generator().manual_seed(seed)
    if labels == "roadmap":
        road = Roadmap(world, 1000, seed)
        x, _ = blocked_pairs(world, pairs, g)
        target = torch.randint(len(road.nodes), (len(x),), generator=g)
        hidden = ~world.sees(x, road.nodes[target])
        x, target = x[hidden], target[hidden]
        parts = [road.directions(a, t) for a, t in zip(x.split(2000), target.split(2000), strict=True)]
        v, length = (torch.cat(p) for p in zip(*parts, strict=True))
        y = road.nodes[target]
    elif labels == "exact":
        x, y = blocked_pairs(world, pairs, g)
        length, v = ShortestPaths(world).solve(x, y)
    else:
        raise ValueError(f"labels asked for 'exact' or 'roadmap', got {labels!r}.")
    reachable = torch.isfinite(length)
    return x[reachable], y[reachable], v[reachable]


def train_direction(
    world: World,
    labels: str = "exact",
    pairs: int = 150_000,
    steps: int = 4_000,
    batch: int = 1_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> DirectionNet:
    """A network trained by the squared error of unit directions. Give it the world of `inflated`, as the planner sees it."""
    x, y, v = (t.float() for t in shortest_directions(world, pairs, seed, labels))
    torch.manual_seed(seed)
    net = DirectionNet(world)
    g = torch.Generator().manual_seed(seed)

    def loss(_: int) -> Tensor:
        rows = torch.randint(len(x), (batch,), generator=g)
        return (net(x[rows], y[rows]) - v[rows]).square().sum(-1).mean()

    descend(net, loss, steps, 2e-3, "directions", progress)
    return net


class OneStepNet(nn.Module):
    """The paper's g_theta: (x, y) -> a point."""

    def __init__(self, world: World, width: int = 128):
        super().__init__()
        self.unit = world.unit
        self.body = mlp(2 * world.dim, width, width, width, world.dim)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.unit * self.body((torch.cat([x, y], -1) / self.unit).float()).to(x.dtype)


def train_one_step(
    world: World,
    lam: float = 9.0,
    geodesic: bool = False,
    steps: int = 2_000,
    batch: int = 500,
    seed: int = 0,
    progress: Progress | None = None,
) -> OneStepNet:
    """The paper's loss d(z, y)^2 + lam |z - x|^2, z = P_M(g(x, y)); d Euclidean, or along great circles."""
    torch.manual_seed(seed)
    net, g = OneStepNet(world), torch.Generator().manual_seed(seed)
    x, y = (world.sample(100_000, generator=g).float() for _ in range(2))

    def loss(_: int) -> Tensor:
        i, j = torch.randint(len(x), (2, batch), generator=g)
        a, b = x[i], y[j]
        z = world.M.project(net(a, b))
        far = world.distance(z, b).square() if geodesic else (z - b).square().sum(-1)
        return (far + lam * (z - a).square().sum(-1)).mean() / world.unit**2

    descend(net, loss, steps, 2e-3, "one step", progress)
    return net


def descend(net: nn.Module, loss: Callable[[int], Tensor], steps: int, lr: float, what: str, progress: Progress | None) -> None:
    """Adam with a cosine schedule."""
    optimizer = torch.optim.Adam(net.parameters(), lr)
    for k in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 0.5 * lr * (1 + math.cos(math.pi * k / steps))
        optimizer.zero_grad()
        value = loss(k)
        value.backward()
        optimizer.step()
        if progress and (k + 1) % 100 == 0:
            progress(what, k + 1, steps, float(value.detach()))
    net.eval()
