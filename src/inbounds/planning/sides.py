"""Which obstacle to round next, and on which side: a network that sees the obstacles, and plans in worlds it has never met."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path as File

import torch
from torch import Tensor, nn

from ..extras import needed_for
from .learning import Progress, descend, mlp
from .path import Path, over_own_points, padded
from .planners import Fallback, replaced, rescue
from .queries import departures, ready, ways_out
from .random_worlds import random_caps, random_worlds
from .shortest import ShortestPaths
from .worlds import MARGIN, TURN, World

MOST = 16  # obstacles: twice as many as the network has met in training
SOFT = 0.03  # units: of two ways whose lengths differ by less, training calls neither wrong
TINY = 1e-9  # units: a point so near to a rim is on it
SAME = 1e-6  # radians: rim points so near to each other are one, and rounding does not decide which comes first
CHORD = 0.995  # of the angle that the longest chord spans: it then clears the true rim by s^2 / (800 R), not by rounding
STEP = 0.2  # units: the longest chord along a rim; half and double change nothing in benchmarks/planning_constants.py
OWN, OTHER = 13, 7  # numbers that describe a way, and every obstacle as seen from it
TOGETHER = 2**18  # pairs of tangents that are solved at once: some hundred megabytes


@dataclass
class Ways:
    """What can be done at x to reach y: go straight to where a tangent touches obstacle i, or on along its rim, side 1 or -1.

    Everything (rows, m, 2, ...): one world per row.
    """

    next: Tensor  # the point that the move ends at
    there: Tensor  # x is on the rim already
    open: Tensor  # the move is free
    own: Tensor  # features of the way
    others: Tensor  # (rows, m, 2, m, features) of every obstacle as seen from it

    @classmethod
    def at(cls, true: World, inner: World, x: Tensor, y: Tensor, step: Tensor, exits: Tensor, gaps: Tensor) -> Ways:
        """`inner` is the world inflated for steps so long, (rows,); exits(inner): rims are not followed past one; gaps(true)."""
        w, n, unit = inner, x.shape[-1], inner.unit
        shape = (*w.sizes.shape, 2)
        c, r = w.centers[:, :, None].expand(*shape, n), w.sizes[:, :, None].expand(shape)
        side = torch.tensor([1.0, -1.0], dtype=x.dtype).expand(shape)
        a, b, zero = x[:, None, None].expand(*shape, n), y[:, None, None].expand(*shape, n), torch.zeros_like(r)
        angle, speed = w.angle(c, a), w.rim_speed(r).clamp(min=1e-12 * unit)
        _, touch, _, length, real = w.tangents(a, zero, side, c, r, side)
        at_rim = w.distance(a, c) <= r + TINY * unit
        touch = torch.where(at_rim[..., None], w.rim_point(c, r, angle), touch)
        length = torch.where(at_rim, w.distance(a, touch), length)
        there = length <= TINY * unit
        leave, _, _, back, _ = w.tangents(c, r, side, b, zero, side)
        half = unit * torch.sin(0.5 * step / unit)[:, None, None]
        chord = 2 * CHORD * torch.asin((half / speed).clamp(max=1))  # above 1 only for absent obstacles, which are not open
        ends = torch.cat([exits, w.angle(c, leave)[..., None]], -1)
        until = (side[..., None] * (ends - angle[..., None])) % TURN
        chord = torch.minimum(chord, torch.where(until > SAME, until, TURN).amin(-1))
        following = torch.where(there[..., None], w.rim_point(c, r, angle + side * chord), touch)
        opened = w.wrapped[:, :, None] & (real | at_rim) & true.sees(a, following)
        # alone in the world, obstacle i would make the way this long
        turn = (side * (w.angle(c, leave) - w.angle(c, touch))) % TURN
        turn = torch.where(turn > TURN - SAME, 0.0, turn)
        straight = w.distance(x, y)[:, None, None].expand(shape)
        frame = Frame(w, x, y)
        here = frame.of(touch)
        lengths = [here[..., 0], side * here[..., 1], length, r, back, length + turn * speed + back - straight, straight]
        own = [t / unit for t in [*lengths, w.distance(touch, b)]]
        own.insert(4, turn)
        onwards = [(p, true.reach_of_segment(p, b)) for p in (touch, leave)]
        own += [true.clearance_from(reach, p, b) >= 0 for p, reach in onwards] + [there, opened]
        seen = others(true, frame, side, [reach for _, reach in onwards], gaps)
        return cls(following, there, opened, torch.stack([t.float() for t in own], -1), seen)


def exits(inner: World) -> Tensor:
    """Angles at which tangents to others leave rim i with obstacle i on side s: (*worlds, m, 2, 2m), NaN where there is none."""
    c, r = inner.centers, inner.sizes
    m, n = c.shape[-2:]
    shape = (*c.shape[:-2], m, 2, m, 2)
    side = torch.tensor([1.0, -1.0], dtype=c.dtype)
    ci, cj = c[..., :, None, None, None, :].expand(*shape, n), c[..., None, None, :, None, :].expand(*shape, n)
    ri, rj = r[..., :, None, None, None].expand(shape), r[..., None, None, :, None].expand(shape)
    a, _, _, _, real = inner.tangents(ci, ri, side[:, None, None].expand(shape), cj, rj, side.expand(shape))
    present = inner.wrapped[..., :, None, None, None] & inner.wrapped[..., None, None, :, None]
    own = torch.eye(m, dtype=torch.bool)[:, None, :, None]
    return torch.where(real & present & ~own, inner.angle(ci, a), math.nan).flatten(-2)


class Frame:
    """Coordinates as seen from x: along the straight way to y, and to its left."""

    def __init__(self, world: World, x: Tensor, y: Tensor):
        self.world, self.x = world, x
        self.e1 = world.direction(x, y)
        self.e2 = world.left(x, self.e1)

    def of(self, p: Tensor) -> Tensor:
        """The coordinates of p: (rows, ..., n) -> (rows, ..., 2)."""
        extra = (slice(None), *(None,) * (p.dim() - 2))
        x = self.x[extra].expand(p.shape)
        v = self.world.direction(x, p) * self.world.distance(x, p)[..., None]
        return torch.stack([(v * self.e1[extra]).sum(-1), (v * self.e2[extra]).sum(-1)], -1)


def gaps(true: World) -> Tensor:
    """How far apart obstacles are, and in a last row how far from the walls: (rows, m + 1, m)."""
    c, m = true.centers, true.sizes.shape[-1]
    apart = true.distance(c[:, :, None].expand(-1, m, m, -1), c[:, None].expand(-1, m, m, -1))
    walls = (true.walls(c) - true.sizes).clamp(max=4 * true.unit)  # as far as a box is wide
    return torch.cat([apart - true.sizes[:, :, None] - true.sizes[:, None], walls[:, None]], 1)


def others(true: World, frame: Frame, side: Tensor, reach: list[Tensor], gaps: Tensor) -> Tensor:
    """Where every obstacle is, how large, how near to the straight ways on to y (their reach), to obstacle i and to the walls."""
    shape = (*side.shape, true.sizes.shape[-1])
    size = true.sizes[:, None, None]
    seen = frame.of(true.centers)[:, None, None]  # (rows, 1, 1, m, 2)
    gap, walls = gaps[:, :-1, None], gaps[:, -1:, None]
    columns = [seen[..., 0], side[..., None] * seen[..., 1], size, *(t - size for t in reach), gap, walls]
    return torch.stack([(t / true.unit).expand(shape).float() for t in columns], -1)


class SideNet(nn.Module):
    """A score for every way; obstacles in any order, any number."""

    def __init__(self, width: int = 64):
        super().__init__()
        self.other, self.own = mlp(OTHER, width // 2, width // 2), mlp(OWN, width, width // 2)
        self.score = mlp(width // 2 * 3, width, width, 1)

    def forward(self, ways: Ways, present: Tensor) -> Tensor:
        """(rows, m, 2), -inf for ways that are not open."""
        each, mask = self.other(ways.others), present[:, None, None, :, None]
        most = torch.where(mask, each, -1e4).amax(-2)  # below all that the layer gives, and finite for worlds without obstacles
        mean = torch.where(mask, each, 0.0).sum(-2) / mask.sum(-2).clamp(min=1)
        s = self.score(torch.cat([self.own(ways.own), most, mean], -1))[..., 0]
        return torch.where(ways.open, s, -torch.inf)


class Around:
    """A planner that goes straight to y where y is seen, and else the way that the network likes best.

    Every move is checked in closed form: chords of the thicker rims miss the true obstacles, and tangents are checked. Starts and
    targets in notches, where obstacles meet, are left and entered by the nearest point outside of the thicker ones. A row without
    an open way, or that does not arrive, is planned again by `fallback`. x and y have the shape (rows, n); with a batch of worlds
    there is one per row. The longest chord along a rim is `step`, STEP units unless it is given.
    """

    def __init__(
        self,
        world: World,
        net: SideNet,
        step: float | None = None,
        max_steps: int = 60,
        fallback: Fallback | None = None,
    ):
        world.need_surface("Around")
        count = int((world.sizes > 0).sum(-1).max()) if world.sizes.numel() else 0  # those of size 0 are absent
        if count > MOST:
            raise ValueError(f"Around asked for at most {MOST} obstacles, got {count}. Use Roadmap(world).")
        self.world, self.net, self.max_steps, self.fallback = world, net, max_steps, fallback
        self.step = STEP * world.unit if step is None else step

    @torch.no_grad()
    def plan(self, x: Tensor, y: Tensor, snap: bool = False) -> Path:
        x, y = ready(self.world, x, y, snap)
        true = self.world if self.world.centers.dim() == 3 else one_per_row(self.world, len(x))
        step, taken = true.safe_steps(self.step), torch.zeros(len(x), 2 * true.sizes.shape[-1], dtype=torch.bool)
        inner, last, start = true.for_chords(step), torch.full((len(x),), -1), departures(true, x, y)
        ends, apart, door, gate = exits(inner), gaps(true), nearby(true, inner, start, y), nearby(true, inner, y, start)
        points = [p for p, before in ((x, None), (start, x), (door, start)) if p is not before]
        reached, astray, live, now = *torch.zeros(2, len(x), dtype=torch.bool), torch.arange(len(x)), door
        for _ in range(self.max_steps):
            seen = true[live].sees(now, y[live])
            near = seen if gate is y else true[live].sees(now, gate[live])
            following, stuck = torch.where(seen[:, None], y[live], gate[live]), torch.zeros_like(seen)
            hidden = (~seen & ~near).nonzero()[:, 0]
            if len(hidden):
                rows = live[hidden]
                w, s = true[rows], step[rows]
                ways = Ways.at(w, w.for_chords(s), now[hidden], gate[rows], s, ends[rows], apart[rows])
                following[hidden], stuck[hidden] = self._choose(w, ways, now[hidden], taken, last, astray, rows)
            points.append(points[-1].index_copy(0, live, following))
            reached[live[seen]] = True
            live, now = live[~seen & ~stuck], following[~seen & ~stuck]
            if not len(live):
                break
        found = torch.stack(points, 1)
        detours = (astray & reached).nonzero()[:, 0]
        if len(detours):  # they are cut short
            found[detours] = padded(over_own_points(true[detours], found[detours]), found.shape[1])
        path = rescue(Path.of(self.world, found, reached), self.world, x, y, self.fallback)
        lost = (~path.certified & ((door != start) | (gate != y)).any(1)).nonzero()[:, 0]
        if self.fallback is None or not len(lost):
            return path
        patient = Around(true[lost], self.net, self.step, self.max_steps)  # out of notches that the fallback does not see out of
        return replaced(path, self.world, lost, [patient.plan(x[lost], y[lost])])

    def _choose(self, w: World, ways: Ways, x: Tensor, taken: Tensor, last: Tensor, astray: Tensor, rows: Tensor):
        """Where to, and which rows are lost: no way is open, or the best was taken before. Back along a rim only in dead ends.

        Without a fallback the best way that was not taken before is tried, too, before a row is lost; it has gone astray.
        """
        score = self.net(ways, w.sizes > 0).flatten(1)
        if self.fallback is None:
            again = taken[rows] & ~ways.there.flatten(1)
            astray[rows] |= again.gather(1, score.argmax(1, keepdim=True))[:, 0]
            score = score.masked_fill(again, -torch.inf)
        back, each = (last[rows] ^ 1).clamp(min=0), torch.arange(len(rows))
        turned = (last[rows] >= 0) & ways.there.flatten(1)[each, back]
        onwards = score.index_put((each[turned], back[turned]), torch.tensor(-torch.inf))
        value, best = torch.where(torch.isinf(onwards).all(1, keepdim=True), score, onwards).max(1)  # back only from dead ends
        arrives = ~ways.there.flatten(1)[each, best]
        stuck = torch.isinf(value) | (arrives & taken[rows, best])
        taken[rows[arrives], best[arrives]] = True
        last[rows] = best
        return torch.where(stuck[:, None], x, ways.next.flatten(1, 2)[each, best]), stuck


def nearby(true: World, inner: World, x: Tensor, y: Tensor) -> Tensor:
    """x, or a point near to it outside of inflated obstacles, where paths can go along rims: for points in notches and on rims.

    Only where x sees one and does not see y: x itself otherwise. (rows, n), one world per row.
    """
    rows = ((inner.segment_clearance(x, x) < 0) & ~true.sees(x, y)).nonzero()[:, 0]
    if not len(rows):
        return x
    here, w = x[rows], true[rows]
    best, moved = torch.full_like(here[:, 0], math.inf), here
    for p in ways_out(inner[rows], here, MARGIN * true.unit):
        cost = torch.where(w.sees(here, p), w.distance(here, p) + w.distance(p, y[rows]), math.inf)
        moved, best = torch.where((cost < best)[:, None], p, moved), torch.minimum(cost, best)
    return x.index_copy(0, rows, moved)


def one_per_row(world: World, rows: int) -> World:
    """The same world for each of so many points."""
    return world[None][torch.zeros(rows, dtype=torch.long)]


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
