"""The graph of tangents and arcs as a sparse matrix: Dijkstra's algorithm finds lengths, first directions and whole paths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..extras import needed_for
from .graphs import dijkstra
from .worlds import TURN

if TYPE_CHECKING:
    from .shortest import ShortestPaths

NEAR = 1e-9  # radians: rim points so near to each other are one
CUT = 0.1234567  # where angles begin to count on each rim: not where symmetric worlds have their tangents
STRIDE = 8.0  # more than a turn


@dataclass(frozen=True)
class Arc:
    """A part of the rim of an obstacle: from the angle `start`, counterclockwise for side 1, clockwise for -1."""

    obstacle: int
    side: float
    start: float
    sweep: float


@dataclass(frozen=True)
class Search:
    """What Dijkstra's algorithm found for queries x, y: paths that bend.

    Circle 2 i is the rim of obstacle i for paths that have it on their left, circle 2 i + 1 for those with it on their right.
    """

    length: Tensor  # (Q,) inf: no way
    last: Tensor  # (Q,) the circle that leads to y
    node: Tensor  # (Q,) the last node before y, on that circle; -1: one arc leads from x to y
    before: Tensor  # (Q, nodes) the node before each on the way from x; -1: x itself
    out: Tensor  # (Q, circles) angles at which ways from x meet the circles
    back: Tensor  # (Q, circles) angles at which ways to y leave them
    direction: Tensor  # (Q, circles, n) in which the ways to them leave x


class Routes:
    """Nodes are both ends of all free tangents, on the circle of their obstacle and side. Edges are the tangents, and the free
    arcs from each node to the next one of its circle: three edges per tangent, however many obstacles there are."""

    def __init__(self, solver: ShortestPaths):
        s, self.solver = solver, solver
        n = len(s.i)
        circle = torch.cat([2 * s.i + (s.si < 0), 2 * s.j + (s.sj < 0)])
        angle, side = torch.cat([s.leave, s.arrive]), torch.cat([s.si, s.sj])
        self.keys, order = self._key(circle, side, angle).sort()
        self.circle, self.angle = circle[order], angle[order]
        count = torch.bincount(circle, minlength=2 * s.m)
        self.first, self.count = count.cumsum(0) - count, count
        where = torch.empty_like(order)
        where[order] = torch.arange(2 * n)
        following = self._wrapped(torch.arange(2 * n) + 1, self.circle)
        arcs = self._arc(self.circle, self.angle, self.angle[following])
        free = torch.isfinite(arcs) & (self.count[self.circle] > 1)
        self.tail = torch.cat([where[:n], torch.arange(2 * n)[free]])
        self.head = torch.cat([where[n:], following[free]])
        self.weight = torch.cat([s.length, arcs[free]])

    def _key(self, circle: Tensor, side: Tensor, angle: Tensor) -> Tensor:
        """Grows along each circle in the direction in which paths go, and from circle to circle."""
        return STRIDE * circle + (side * angle - CUT) % TURN

    def _wrapped(self, node: Tensor, circle: Tensor) -> Tensor:
        """Nodes past the end of their circle are at its beginning, those before its beginning at the end."""
        return self.first[circle] + (node - self.first[circle]) % self.count[circle].clamp(min=1)

    def _arc(self, circle: Tensor, start: Tensor, end: Tensor) -> Tensor:
        """(K,)"""
        side = 1.0 - 2.0 * (circle % 2)
        rows = max(1, 2**22 // max(1, self.solver.width.shape[-1]))
        parts = zip(*(t.split(rows) for t in (circle // 2, side.double(), start, end)), strict=True)
        return torch.cat([self.solver.arc(*part) for part in parts]) if len(circle) else start

    @cached_property
    def sides(self) -> Tensor:
        """1 and -1 for every obstacle: it is on the left, or on the right."""
        return torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(self.solver.m)

    def search(self, x: Tensor, y: Tensor) -> Search:
        """x, y (Q, n)."""
        with needed_for("Searching a graph of paths"):
            from scipy.sparse import csr_array

        s, rows, nodes = self.solver, len(x), len(self.keys)
        out, back = s.touches(x, True), s.touches(y, False)
        a0, l0, a1, l1 = (t.reshape(rows, -1) for t in (out.angle, out.length, back.angle, back.length))
        circles = torch.arange(2 * s.m).expand(rows, -1)
        # x, one arc, y
        alone = l0 + s.arc(circles[0] // 2, self.sides, a0, a1) + l1
        best, last = alone.min(1)
        node = torch.full_like(last, -1)
        # x, the next node of a circle, ..., the last node of a circle, y
        q, c = (torch.isfinite(l0) & (self.count > 0)).nonzero().mT
        enter = torch.searchsorted(self.keys, self._key(c, self.sides[c], a0[q, c]) - NEAR)
        enter = self._wrapped(enter, c)
        far = l0[q, c] + self._arc(c, a0[q, c], self.angle[enter])
        some = torch.isfinite(far)
        tail, head = torch.cat([self.tail, nodes + q[some]]), torch.cat([self.head, enter[some]])
        weight = torch.cat([self.weight, far[some]])
        graph = csr_array((weight.numpy(), (tail.numpy(), head.numpy())), shape=(nodes + rows, nodes + rows))
        found, before = dijkstra(graph, indices=range(nodes, nodes + rows), return_predecessors=True)
        found, before = torch.from_numpy(found)[:, :nodes], torch.from_numpy(before)[:, :nodes].long()
        q, c = (torch.isfinite(l1) & (self.count > 0)).nonzero().mT
        leave = torch.searchsorted(self.keys, self._key(c, self.sides[c], a1[q, c]) + NEAR, right=True) - 1
        leave = self._wrapped(leave, c)
        total = torch.full_like(l1, math.inf)
        total[q, c] = found[q, leave] + self._arc(c, self.angle[leave], a1[q, c]) + l1[q, c]
        at = torch.full_like(circles, -1)
        at[q, c] = leave
        least, which = total.min(1)
        longer = least < best
        best, last = torch.where(longer, least, best), torch.where(longer, which, last)
        node = torch.where(longer, at.gather(1, which[:, None])[:, 0], node)
        before = torch.where(before >= nodes, -1, before)
        return Search(best, last, node, before, a0, a1, out.direction.flatten(1, 2))

    def solve(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Length of a shortest path that bends and the direction in which it leaves x: (Q,), (Q, n)."""
        found, each = self.search(x, y), torch.arange(len(x))
        node, start = found.node, found.node
        while bool((node >= 0).any()):
            start = torch.where(node >= 0, node, start)
            node = torch.where(node >= 0, found.before[each, node.clamp(min=0)], -1)
        first = torch.where(found.node >= 0, self.circle[start.clamp(min=0)] if len(self.keys) else found.last, found.last)
        return found.length, found.direction[each, first]

    def arcs(self, x: Tensor, y: Tensor) -> list[list[Arc] | None]:
        """Which arcs a shortest path that bends goes along, for every row; None where there is no way."""
        found = self.search(x, y)
        return [self._read(found, k) if math.isfinite(length) else None for k, length in enumerate(found.length.tolist())]

    def _read(self, found: Search, row: int) -> list[Arc]:
        """Backwards from y: the angles that are passed, circle by circle."""
        passed = [(int(found.last[row]), float(found.back[row, found.last[row]]))]
        node = int(found.node[row])
        while node >= 0:
            passed.append((int(self.circle[node]), float(self.angle[node])))
            node = int(found.before[row, node])
        first = passed[-1][0]
        passed.append((first, float(found.out[row, first])))
        passed.reverse()
        arcs: list[Arc] = []
        circle, angle = passed[0]
        start, sweep, side = angle, 0.0, 1.0 - 2.0 * (circle % 2)
        for following, at in passed[1:]:
            if following == circle:
                turn = (side * (at - angle)) % TURN
                sweep += 0.0 if turn > TURN - NEAR else turn
            else:
                arcs.append(Arc(circle // 2, side, start, sweep))
                circle, start, sweep, side = following, at, 0.0, 1.0 - 2.0 * (following % 2)
            angle = at
        return [*arcs, Arc(circle // 2, side, start, sweep)]
