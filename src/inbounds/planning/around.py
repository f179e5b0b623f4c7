"""`Around`: the planner that goes from rim to rim the way that a network likes best."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .path import Path, over_own_points, padded
from .planners import Fallback, replaced, rescue
from .queries import departures, ready, ways_out
from .separation import separated
from .sides import SideNet
from .ways import STEP, Ways, exits, gaps
from .worlds import MARGIN, World

MOST = 16  # obstacles: twice as many as the network has met in training


class Around:
    """A planner that goes straight to y where y is seen, and else the way that the network likes best.

    Every move is checked in closed form: chords of the thicker rims miss the true obstacles, and tangents are checked. Starts and
    targets in notches, where obstacles meet, are left and entered by the nearest point outside of the thicker ones. A row without
    an open way, or that does not arrive, is planned again by `fallback`. Of a row whose target is behind obstacles that meet it
    is known that there is no way, and nothing is tried. x and y have the shape (rows, n); with a batch of worlds there is one per
    row. The longest chord along a rim is `step`, STEP units unless it is given.
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
        """Paths from x to y, both (rows, n). Points inside obstacles are an error, or with snap move to the nearest free one."""
        x, y = ready(self.world, x, y, snap)
        every = self.world if self.world.centers.dim() > 2 else self.world[None]
        which = torch.arange(len(x)) if self.world.centers.dim() > 2 else torch.zeros(len(x), dtype=torch.long)
        start = departures(self.world, x, y)
        reached = every[which].sees(start, y)
        hopeless = torch.zeros_like(reached)
        hopeless[~reached] = separated(every[which[~reached]], start[~reached], y[~reached])
        rows = (~reached & ~hopeless).nonzero()[:, 0]
        search = Search.start(every, which[rows], start[rows], y[rows], self.step)
        bent, reached[rows] = search.run(self.net, self.max_steps, patient=self.fallback is None)
        ends, before = torch.where(reached[:, None], y, start), [x] if start is x else [x, start]
        points = torch.stack([*before, *[ends] * max(1, bent.shape[1] - 1)], 1)
        points[rows, -bent.shape[1] :] = bent
        path = rescue(Path.of(self.world, points, reached), self.world, x, y, self.fallback, hopeless)
        lost = rows[~path.certified[rows] & search.notched]
        if self.fallback is None or not len(lost):
            return path
        patient = Around(every[which[lost]], self.net, self.step, self.max_steps)  # the fallback does not see out of the notches
        return replaced(path, self.world, lost, [patient.plan(x[lost], y[lost])])


@dataclass
class Search:
    """Rows on their way from rim to rim, and what they remember. One world per row."""

    true: World
    inner: World  # inflated for chords of `step`
    step: Tensor
    exits: Tensor
    gaps: Tensor
    x: Tensor
    y: Tensor
    door: Tensor  # where paths leave a notch: x elsewhere
    gate: Tensor  # where they enter one: y elsewhere
    taken: Tensor  # (rows, 2 m): ways that were gone
    last: Tensor  # (rows,): the way of the last move, -1 before the first
    astray: Tensor  # (rows,): not always the way that the network likes best

    @classmethod
    def start(cls, worlds: World, which: Tensor, x: Tensor, y: Tensor, step: float) -> Search:
        """Rows in worlds[which]. What is the same for all rows of a world is computed once where there is one world only."""
        if len(worlds.centers) > 1:
            worlds, which = worlds[which], torch.arange(len(which))
        steps = worlds.safe_steps(step)
        inner = worlds.for_chords(steps)
        true, thick, n = worlds[which], inner[which], len(which)
        door, gate = nearby(true, thick, x, y), nearby(true, thick, y, x)
        taken = torch.zeros(n, 2 * true.sizes.shape[-1], dtype=torch.bool)
        last, astray = torch.full((n,), -1), torch.zeros(n, dtype=torch.bool)
        ways = exits(inner)[which], gaps(worlds)[which]
        return cls(true, thick, steps[which], *ways, x, y, door, gate, taken, last, astray)

    @property
    def notched(self) -> Tensor:
        """Which rows begin or end in notches: (rows,)."""
        return ((self.door != self.x) | (self.gate != self.y)).any(1)

    def run(self, net: SideNet, max_steps: int, patient: bool) -> tuple[Tensor, Tensor]:
        """The points (rows, k, n) and which rows arrive. A patient row that is lost tries other ways."""
        points, live, now = [self.x, self.door], torch.arange(len(self.x)), self.door
        reached = torch.zeros(len(self.x), dtype=torch.bool)
        for _ in range(max_steps):
            if not len(live):
                break
            seen = self.true[live].sees(now, self.y[live])
            near = seen if self.gate is self.y else self.true[live].sees(now, self.gate[live])
            following, stuck = torch.where(seen[:, None], self.y[live], self.gate[live]), torch.zeros_like(seen)
            hidden = (~seen & ~near).nonzero()[:, 0]
            if len(hidden):
                following[hidden], stuck[hidden] = self._choose(net, live[hidden], now[hidden], patient)
            points.append(points[-1].index_copy(0, live, following))
            reached[live[seen]] = True
            live, now = live[~seen & ~stuck], following[~seen & ~stuck]
        found = torch.stack(points[1:] if self.door is self.x else points, 1)
        detours = (self.astray & reached).nonzero()[:, 0]
        if len(detours):  # they are cut short
            found[detours] = padded(over_own_points(self.true[detours], found[detours]), found.shape[1])
        return found, reached

    def _choose(self, net: SideNet, rows: Tensor, now: Tensor, patient: bool) -> tuple[Tensor, Tensor]:
        """Where to, and which rows are lost: no way is open, or the best was taken before. Back along a rim only in dead ends.

        For patient rows the best way that was not taken before is tried, too, before a row is lost; it has gone astray.
        """
        true, each = self.true[rows], torch.arange(len(rows))
        ways = Ways.at(true, self.inner[rows], now, self.gate[rows], self.step[rows], self.exits[rows], self.gaps[rows])
        score, there = net(ways, true.sizes > 0).flatten(1), ways.there.flatten(1)
        if patient:
            again = self.taken[rows] & ~there
            self.astray[rows] |= again.gather(1, score.argmax(1, keepdim=True))[:, 0]
            score = score.masked_fill(again, -torch.inf)
        back = (self.last[rows] ^ 1).clamp(min=0)
        turned = (self.last[rows] >= 0) & there[each, back]
        onwards = score.index_put((each[turned], back[turned]), torch.tensor(-torch.inf))
        value, best = torch.where(torch.isinf(onwards).all(1, keepdim=True), score, onwards).max(1)  # back only from dead ends
        arrives = ~there[each, best]
        stuck = torch.isinf(value) | (arrives & self.taken[rows, best])
        self.taken[rows[arrives], best[arrives]] = True
        self.last[rows] = best
        return torch.where(stuck[:, None], now, ways.next.flatten(1, 2)[each, best]), stuck


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
