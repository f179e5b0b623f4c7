"""An independent judge of paths among discs in a box: numpy alone, no code of the library.

From below: every disc is replaced by a polygon inside of it, with corners where it crosses or touches others and the walls. What
a path may do around discs it may do around the polygons, so that the shortest path among those, found by a graph of all corners
that see each other, is never longer. From above: `collides` tells whether a path of straight segments enters a disc.
"""

import math

import numpy as np
from scipy.sparse.csgraph import dijkstra

SLACK = 1e-9  # polygons are smaller by this
CLOSED = 2e-9  # gaps of this part of the world's size count as closed


class Judge:
    def __init__(self, low, high, discs, corners=48):
        """discs: rows (x, y, radius), radius 0 = absent."""
        self.low, self.high = np.asarray(low, float), np.asarray(high, float)
        self.discs = [(x, y, r) for x, y, r in discs if r > 0]
        self.scale = float((self.high - self.low).max())
        self.contacts, special = [], [[] for _ in self.discs]  # contacts: ends of a way that no path crosses
        nodes_off = []
        for i, (x, y, r) in enumerate(self.discs):
            for u, v, s in self.discs[:i]:
                special[i] += _meet(x, y, r, u, v, s)
            for k, (u, v, s) in enumerate(self.discs[:i]):
                special[k] += _meet(u, v, s, x, y, r)
                apart = math.hypot(u - x, v - y)
                if abs(apart - r - s) <= CLOSED * self.scale:
                    self.contacts.append((x, y, u, v))
                    a = math.atan2(v - y, u - x)
                    special[i].append(a)
                    special[k].append(a + math.pi)
                    nodes_off.append((x + r * (u - x) / apart, y + r * (v - y) / apart))
            for gap, a in (
                (x - self.low[0], math.pi),
                (y - self.low[1], -math.pi / 2),
                (self.high[0] - x, 0.0),
                (self.high[1] - y, math.pi / 2),
            ):
                if abs(gap) < r:
                    special[i] += [a + math.acos(gap / r), a - math.acos(gap / r)]
                if abs(gap - r) <= CLOSED * self.scale:
                    far = gap + r
                    self.contacts.append((x, y, x + far * math.cos(a), y + far * math.sin(a)))
                    special[i].append(a)
                    nodes_off.append((x + r * math.cos(a), y + r * math.sin(a)))
        self.polygons = []
        for (x, y, r), more in zip(self.discs, special, strict=True):
            angles = np.sort(np.mod(np.concatenate([np.arange(corners) * 2 * math.pi / corners + 0.0123, more]), 2 * math.pi))
            angles = angles[np.append(np.diff(angles) > 1e-9, True)]
            self.polygons.append(np.stack([x + r * np.cos(angles), y + r * np.sin(angles)], 1))
        p = np.concatenate([np.zeros((0, 2)), *self.polygons])
        inside = ((p >= self.low - SLACK) & (p <= self.high + SLACK)).all(1)
        for q in nodes_off:
            inside &= np.hypot(*(p - q).T) > 1e-6
        p = p[inside]
        for polygon in self.polygons:
            p = p[~_enters(polygon, p, p)]
        self.nodes = p
        self.between = self._lengths(self.nodes[:, None], self.nodes[None])

    def _lengths(self, a, b):
        """Of the straight ways that are free, else 0: a, b broadcast to (rows, columns, 2)."""
        a, b = np.broadcast_arrays(a, b)
        shape, a, b = a.shape[:-1], a.reshape(-1, 2), b.reshape(-1, 2)
        free = np.hypot(*(b - a).T) > 1e-12
        for x, y, u, v in self.contacts:
            free &= ~_crosses(a, b, np.array([x, y]), np.array([u, v]))
        for polygon in self.polygons:
            rows = np.nonzero(free)[0]
            free[rows] = ~_enters(polygon, a[rows], b[rows])
        return np.where(free, np.maximum(np.hypot(*(b - a).T), 1e-12), 0.0).reshape(shape)

    def from_below(self, x, y):
        """A length that no path from x to y falls below, for rows of points; inf if there is no path."""
        n = len(self.nodes)
        x, y = np.asarray(x, float), np.asarray(y, float)
        out, back = self._lengths(x[:, None], self.nodes[None]), self._lengths(self.nodes[:, None], y[None])
        straight = self._lengths(x, y)
        graph = np.zeros((n + len(x) + len(y), n + len(x) + len(y)))
        graph[:n, :n], graph[n : n + len(x), :n], graph[:n, n + len(x) :] = self.between, out, back
        every = dijkstra(graph, indices=range(n, n + len(x)))
        found = every[np.arange(len(x)), n + len(x) + np.arange(len(y))]
        same = np.hypot(*(x - y).T) <= 1e-12
        return np.where(same, 0.0, np.minimum(found, np.where(straight > 0, straight, np.inf)))

    def collides(self, points, by=0.0):
        """Whether a path (k, 2) leaves the box or enters a disc, deeper than `by`."""
        p = np.asarray(points, float)
        a, d = p[:-1], np.diff(p, axis=0)
        worst = min((p - self.low).min(), (self.high - p).min())
        for x, y, r in self.discs:
            w = np.array([x, y]) - a
            t = np.clip((w * d).sum(1) / np.maximum((d * d).sum(1), 1e-300), 0, 1)
            worst = min(worst, (np.hypot(*(w - t[:, None] * d).T) - r).min())
        return worst < -by


def _meet(x, y, r, u, v, s):
    """Angles on the first circle at which the second crosses it."""
    far = math.hypot(u - x, v - y)
    if not abs(r - s) < far < r + s:
        return []
    middle, half = math.atan2(v - y, u - x), math.acos(max(-1.0, min(1.0, (r * r + far * far - s * s) / (2 * r * far))))
    return [middle + half, middle - half]


def _crosses(a, b, p, q):
    d = (q - p) / np.hypot(*(q - p))
    left = lambda z: d[0] * (z[:, 1] - p[1]) - d[1] * (z[:, 0] - p[0])  # noqa: E731
    sa, sb = left(a), left(b)
    other = (np.minimum(sa, sb) < -1e-12) & (np.maximum(sa, sb) > 1e-12)
    t = np.where(other, sa / np.where(other, sa - sb, 1.0), 0.0)
    along = (a + t[:, None] * (b - a) - p) @ d
    return other & (along > 0) & (along < np.hypot(*(q - p)))


def _enters(polygon, a, b):
    """Whether segments have points inside of a convex polygon, counterclockwise, deeper than SLACK."""
    edge = np.roll(polygon, -1, 0) - polygon
    normal = np.stack([edge[:, 1], -edge[:, 0]], 1) / np.hypot(*edge.T)[:, None]
    height = (normal * polygon).sum(1) - SLACK
    at, slope = a @ normal.T - height, (b - a) @ normal.T  # below 0: inside of this edge
    with np.errstate(divide="ignore", invalid="ignore"):
        t = -at / slope
    enter = np.where(slope < 0, t, np.where((slope == 0) & (at >= 0), np.inf, 0.0)).max(1)
    leave = np.where(slope > 0, t, 1.0).min(1)
    return np.maximum(enter, 0.0) < np.minimum(leave, 1.0)
