"""Which obstacle to round next, and on which side: a network that sees the obstacles, and plans in worlds it has never met."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .learning import Progress, _descend, mlp
from .path import Path, padded
from .planners import Certified, Planner
from .random_worlds import random_worlds
from .shortest import ShortestPaths
from .worlds import TURN, World

MOST = 16  # obstacles
SOFT = 0.03  # lengths that differ by so little are equally good
TINY = 1e-9



class Ways:
    """What can be done at x to reach y: go straight to where a tangent touches obstacle i, or on along its rim, side 1 or -1.

    `true` is the world, `inner` the same inflated; one world per row. Everything (rows, m, 2, ...).
    """

    def __init__(self, true: World, inner: World, x: Tensor, y: Tensor, step: Tensor):
        w, n = inner, x.shape[-1]
        shape = (*w.sizes.shape, 2)
        c, r = w.centers[:, :, None].expand(*shape, n), w.sizes[:, :, None].expand(shape)
        side = torch.tensor([1.0, -1.0], dtype=x.dtype).expand(shape)
        a, b = (t[:, None, None].expand(*shape, n) for t in (x, y))
        zero = torch.zeros_like(r)
        _, touch, leaves, length, real = w.tangents(a, zero, side, c, r, side)  # pyright: ignore[reportAttributeAccessIssue]
        at_rim = w.distance(a, c) <= r + TINY
        angle = w.angle(c, a)  # pyright: ignore[reportAttributeAccessIssue]
        touch = torch.where(at_rim[..., None], w.rim_point(c, r, angle), touch)  # pyright: ignore[reportAttributeAccessIssue]
        length = torch.where(at_rim, w.distance(a, touch), length)
        # along the rim by one chord, where x is on it already
        there = length <= TINY
        speed = w.rim_speed(r).clamp(min=1e-12)  # pyright: ignore[reportAttributeAccessIssue]
        sweep = 1.99 * torch.asin((torch.sin(0.5 * step)[:, None, None] / speed).clamp(max=0.7))  # a little less than allowed
        along = w.rim_point(c, r, angle + side * sweep)  # pyright: ignore[reportAttributeAccessIssue]
        self.next = torch.where(there[..., None], along, touch)
        self.length, self.there, self.side, self.touch = length, there, side, touch
        present = w.wrapped[:, :, None]
        self.open = present & (real | at_rim) & true.sees(a, self.next)
        # alone in the world, obstacle i would make the way this long
        _, _, _, back, _ = w.tangents(c, r, side, b, zero, side)  # pyright: ignore[reportAttributeAccessIssue]
        leave, *_ = w.tangents(c, r, side, b, zero, side)  # pyright: ignore[reportAttributeAccessIssue]
        turn = (side * (w.angle(c, leave) - w.angle(c, touch))) % TURN  # pyright: ignore[reportAttributeAccessIssue]
        turn = torch.where(turn > TURN - 1e-6, 0.0, turn)
        straight = w.distance(x, y)
        alone = length + turn * speed + back - straight[:, None, None]
        e1 = w.direction(x, y)[:, None, None]
        e2 = w.left(x, e1[:, 0, 0])[:, None, None]

        def seen(p: Tensor) -> list[Tensor]:
            """Coordinates of p from x, the first axis towards y, the second mirrored for side -1."""
            v = w.direction(a, p) * w.distance(a, p)[..., None]
            return [(v * e1).sum(-1), side * (v * e2).sum(-1)]

        across = true.sees(self.touch, b)
        last = true.sees(leave, b)
        own = [*seen(self.touch), length, r, turn, back, alone, w.distance(self.touch, b), across, last, there, self.open]
        self.own = torch.stack([t.to(torch.float32) for t in own] + [straight[:, None, None].expand(shape).float()], -1)
        self.others = self._others(true, seen, b, leave)

    def _others(self, true: World, seen, b: Tensor, leave: Tensor) -> Tensor:
        """(rows, m, 2, m, features): what each other obstacle is to this way."""
        m = true.sizes.shape[-1]
        columns = []
        to_y = true._reach_of_segment(self.touch, b) - true.sizes[:, None, None]
        from_leave = true._reach_of_segment(leave, b) - true.sizes[:, None, None]
        gap = true.distance(true.centers[:, :, None], true.centers[:, None]) - true.sizes[:, :, None] - true.sizes[:, None]
        walls = true._walls(true.centers) - true.sizes
        for k in range(m):
            here = seen(true.centers[:, None, None, k].expand(self.touch.shape))
            size = true.sizes[:, None, None, k].expand(self.length.shape)
            rest = [gap[:, :, None, k].expand(size.shape), walls[:, None, None, k].expand(size.shape).clamp(max=4.0)]
            columns.append(torch.stack([*here, size, to_y[..., k], from_leave[..., k], *rest], -1))
        return torch.stack(columns, -2).float()


class SideNet(nn.Module):
    """A score for every way; obstacles in any order, any number."""

    def __init__(self, width: int = 64):
        super().__init__()
        self.other, self.own = mlp(7, width // 2, width // 2), mlp(13, width, width // 2)
        self.score = mlp(width // 2 * 3, width, width, 1)

    def forward(self, ways: Ways, present: Tensor) -> Tensor:
        """(rows, m, 2), -inf for ways that are not open."""
        each = self.other(ways.others)
        mask = present[:, None, None, :, None]
        most = torch.where(mask, each, -1e4).amax(-2)
        mean = torch.where(mask, each, 0.0).sum(-2) / mask.sum(-2).clamp(min=1)
        s = self.score(torch.cat([self.own(ways.own), most, mean], -1))[..., 0]
        return torch.where(ways.open, s, -torch.inf)


class Around:
    """Planner: straight to y where y is seen, else the way that the network likes best. Every move is checked in closed form.

    Chords of the inflated rims miss the true obstacles, tangents are checked; a row without open way, or that does not arrive, is
    planned again by `fallback`. x, y (rows, n); with a batch of worlds, one per row.
    """

    def __init__(
        self,
        world: World,
        net: SideNet,
        step: float = 0.2,
        max_steps: int = 150,
        fallback: Callable[[World], Planner] | None = None,
    ):
        self.world, self.net, self.step, self.max_steps, self.fallback = world, net, step, max_steps, fallback

    @torch.no_grad()
    def plan(self, x: Tensor, y: Tensor) -> Path:
        x, y = (t.double() for t in torch.broadcast_tensors(x, y))
        true = self.world if self.world.centers.dim() == 3 else one_per_row(self.world, len(x))
        step = safe_steps(true, self.step)
        points, reached, live, now = [x], torch.zeros(len(x), dtype=torch.bool), torch.arange(len(x)), x
        for _ in range(self.max_steps):
            seen = true[live].sees(now, y[live])
            hidden = (~seen).nonzero()[:, 0]
            following, stuck = y[live], torch.zeros_like(seen)
            if len(hidden):
                rows = live[hidden]
                w = true[rows]
                ways = Ways(w, w.inflate(step[rows]), now[hidden], y[rows], step[rows])
                score = self.net(ways, w.sizes > 0).flatten(1)
                best = score.argmax(1)
                chosen = ways.next.flatten(1, 2)[torch.arange(len(best)), best]
                stuck[hidden] = torch.isinf(score.amax(1))
                following = following.index_copy(0, hidden, chosen)
            following = torch.where(stuck[:, None], now, following)
            points.append(points[-1].index_copy(0, live, following))
            reached[live[seen]] = True
            on = ~seen & ~stuck
            live, now = live[on], following[on]
            if not len(live):
                break
        path = Path.of(true, torch.stack(points, 1), reached)
        return self._rescue(path, true, x, y)

    def _rescue(self, path: Path, true: World, x: Tensor, y: Tensor) -> Path:
        lost = (~(path.reached & path.certified)).nonzero()[:, 0].tolist()
        if self.fallback is None or not lost:
            return path
        others = [self.fallback(true[row]).plan(x[row : row + 1], y[row : row + 1]) for row in lost]
        k = max(path.points.shape[1], *(p.points.shape[1] for p in others))
        index = torch.tensor(lost)
        more = torch.cat([padded(p.points, k) for p in others])
        reached = path.reached.index_copy(0, index, torch.cat([p.reached for p in others]))
        rescued = torch.zeros_like(reached).index_fill(0, index, True)
        return Path.of(true, padded(path.points, k).index_copy(0, index, more), reached, rescued)


def one_per_row(world: World, rows: int) -> World:
    """The same world for each of so many points."""
    batch = world[None]
    batch.centers, batch.sizes = batch.centers.expand(rows, -1, -1), batch.sizes.expand(rows, -1)
    return batch


def safe_steps(world: World, step: float, margin: float = 0.004) -> Tensor:
    """(worlds,), so small that no obstacle grows by more than margin."""
    smallest = torch.where(world.wrapped, world.sizes, math.inf).amin(-1)
    return (2 * ((smallest + margin).square() - smallest.square()).sqrt()).nan_to_num(nan=step, posinf=step).clamp(max=step)


# --- training ------------------------------------------------------------------------------------------------
def lessons(world: World, queries: int, seed: int, step: float = 0.2) -> tuple[World, Tensor, Tensor, Tensor, Tensor]:
    """Of a batch of worlds: a world per row, x, y that x does not see, steps, and the length of every way. Half of x on rims."""
    g = torch.Generator().manual_seed(seed)
    n_worlds, m = world.sizes.shape
    steps = safe_steps(world, step)
    inner = world.inflate(steps)
    solver = ShortestPaths(inner)
    x, y = (inner.sample(queries, generator=g) for _ in range(2))  # (worlds, queries, n)
    which = torch.randint(m, (n_worlds, queries // 2), generator=g)
    rows = torch.arange(n_worlds)[:, None].expand(which.shape)
    angle = TURN * torch.rand(which.shape, generator=g, dtype=torch.float64)
    rim = inner.rim_point(inner.centers[rows, which], inner.sizes[rows, which], angle)  # pyright: ignore[reportAttributeAccessIssue]
    free = world.segment_clearance(rim, rim) >= 0
    x[:, : queries // 2] = torch.where((free & (inner.sizes[rows, which] > 0))[..., None], rim, x[:, : queries // 2])
    hidden = ~world.sees(x, y)
    total, _ = solver.ways(x, y)
    good = hidden & torch.isfinite(total).any(-1)
    row, query = good.nonzero().mT
    return world[row], x[row, query], y[row, query], steps[row], total[row, query].unflatten(-1, (m, 2))


def train_sides(
    worlds: World | None = None,
    count: int = 1_200,
    queries: int = 48,
    steps: int = 2_500,
    batch: int = 400,
    seed: int = 0,
    progress: Progress | None = None,
) -> SideNet:
    """Cross entropy against the ways of least length. By default on random worlds of 3 to 8 discs; else on those given."""
    torch.manual_seed(seed)
    net, g = SideNet(), torch.Generator().manual_seed(seed)
    groups = [worlds] if worlds is not None else [random_worlds(count // 6, (m, m), seed=1000 + 7 * seed + m) for m in range(3, 9)]
    data = [part for k, group in enumerate(groups) for part in _prepared(lessons(group, queries, seed + k))]
    sizes = torch.tensor([float(len(d[0])) for d in data])

    def loss(_: int) -> Tensor:
        own, others, opened, present, total = data[int(torch.multinomial(sizes, 1, generator=g))]
        rows = torch.randint(len(own), (batch,), generator=g)
        ways = _Kept(own[rows], others[rows], opened[rows])
        log = net(ways, present[rows]).flatten(1).log_softmax(1)  # pyright: ignore[reportArgumentType]
        cost = torch.where(opened[rows], total[rows], math.inf).flatten(1)
        want = (-(cost - cost.amin(1, keepdim=True)) / SOFT).softmax(1)
        return -torch.where(want > 0, want * log.clamp(min=-50), 0.0).sum(1).mean()

    _descend(net, loss, steps, 2e-3, "sides", progress)
    return net


class _Kept:
    """The part of Ways that the network reads."""

    def __init__(self, own: Tensor, others: Tensor, opened: Tensor):
        self.own, self.others, self.open = own, others, opened


def _prepared(lesson) -> list[tuple[Tensor, ...]]:
    """Features computed once, not at every step."""
    world, x, y, step, total = lesson
    parts = []
    for rows in torch.arange(len(x)).split(20_000):
        w = world[rows]
        ways = Ways(w, w.inflate(step[rows]), x[rows], y[rows], step[rows])
        usable = (ways.open & torch.isfinite(total[rows])).flatten(1).any(1)
        parts.append((ways.own[usable], ways.others[usable], ways.open[usable], (w.sizes > 0)[usable], total[rows][usable].float()))
    return parts
