"""`Newton`: nearest points of an algebraic set near its samples, from a start on the set or a guess near it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..kernels.derivative import eager
from ..solvers.linear import Gram, apply, kkt, length, reduced, stiff_step
from .base import EPS
from .near import CHARTS, Near
from .vanishing import ROUNDING

STEPS = 25  # with safeguards, in eager mode
PLAIN_STEPS = 6  # without them, at most
STIFF = 1e6  # weight of the equations in a plain step
BLIND_STEPS = 10  # where values cannot be looked at (vmap, compile)


@dataclass(frozen=True)
class Goal:
    """What ends the search: a step so short, since convergence is quadratic, where the equations leave no more than that."""

    step: float
    left: float = ROUNDING


TRAINING = Goal(0.25 * CHARTS**0.5, CHARTS / 30)


def precise(eps: float) -> Goal:
    """Exact to the precision of eps."""
    return Goal(0.25 * eps**0.5)


class Newton:
    """Newton's method on the Lagrange conditions y - x + A^T l = 0, e(y) = 0 of the nearest point y to x."""

    def __init__(self, near: Near):
        self.near, self.charts = near, near.charts

    @torch.no_grad()
    def nearest(self, x: Tensor, i: Tensor, goal: Goal) -> Tensor:
        """The nearest point of the set to x, near sample i: on the equations, and on the boundary if these lead outside of it."""
        y = self._on_equations(x, i, goal) if self.near.codim else x
        if not len(self.near.f):
            return y
        outside = self.near.excess(y) > 0
        if not eager():
            return torch.where(outside[:, None], self._on_boundary(x, y, i, goal), y)
        rows = outside.nonzero()[:, 0]
        return y.index_copy(0, rows, self._on_boundary(x[rows], y[rows], i[rows], goal)) if len(rows) else y

    @torch.no_grad()
    def on_charts(self, x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        """The foot of x on chart i, and whether that is as good as training asks for.

        Charts are off by e ~ far^3, their slope by 3 e / far: that moves the foot, the more the farther x.
        """
        y, far = self.charts.foot(x, i)
        e = length(self.near.values(y, self.near.W.index_select(0, i), None))
        good = (far > 0) & (e * (1 + 3 * length(x - y) / far) <= CHARTS)
        return y, good & (self.near.excess(y) <= 0) if len(self.near.f) else good

    def settled(self, w: Tensor) -> Tensor:
        """The starting samples w, moved on to the equations."""
        return self._solve(w, w, torch.arange(len(w)), None, precise(EPS), w)

    def _on_equations(self, x: Tensor, i: Tensor, goal: Goal) -> Tensor:
        start = self.charts.start(x, i)
        if not eager():
            return self._blind(x, start, i, None)
        return self._solve(x, start, i, None, goal, self.charts.foot(x, i)[0])

    def _on_boundary(self, x: Tensor, y: Tensor, i: Tensor, goal: Goal) -> Tensor:
        """From where the way from the nearest sample to y leaves the set."""
        a, b = torch.zeros_like(y[:, 0]), torch.ones_like(y[:, 0])
        s = self.near.samples[i]
        for _ in range(12):
            mid = 0.5 * (a + b)
            out = self.near.excess(s + mid[:, None] * (y - s)) > 0
            a, b = torch.where(out, a, mid), torch.where(out, mid, b)
        start, active = s + a[:, None] * (y - s), torch.ones_like(a)
        return self._solve(x, start, i, active, goal, start) if eager() else self._blind(x, start, i, active)

    def _solve(self, x: Tensor, y: Tensor, i: Tensor, active: Tensor | None, goal: Goal, guess: Tensor) -> Tensor:
        """Newton on y - x + A^T l = 0, e(y) = 0, from a guess; rows that do not get there stay at y, a point of the set.

        Rows that plain steps do not bring there, or farther than y, go the way again from y with safeguards, and those that end
        where not all polynomials vanish, again with new combinations at every step.
        """
        out, arrived = self._run(x, guess, i, active, goal.step)
        arrived &= self.near.on(out, goal.left) & (length(x - out) <= (1 + 1e-9) * length(x - y) + 1e-9)
        for own in (i, None):
            if bool(arrived.all()):
                break
            lost = (~arrived).nonzero()[:, 0]
            again, there = self._walk(x[lost], y[lost], *(None if t is None else t[lost] for t in (own, active)))
            arrived[lost] = there & self.near.on(again)
            out[lost] = torch.where(arrived[lost, None], again, y[lost])
        return out

    def _run(self, x: Tensor, y: Tensor, i: Tensor, active: Tensor | None, rest: float) -> tuple[Tensor, Tensor]:
        """Plain steps: where each row ends, and whether it came to rest."""
        W, sound, step = self.near.W.index_select(0, i), i >= 0, torch.zeros_like(y[:, 0])
        e, A = self.near.equations(y, W, active)
        l = Gram(A).split(x - y)[1]
        stiff = STIFF * (1 + length(l)[:, None])
        for _ in range(PLAIN_STEPS):
            move, l, sound = stiff_step(self.near.lagrangian(y, W, l, active), A, e, l, x - y, stiff)
            y, step = y + move, length(move)
            if not bool(((step > rest) & sound).any()):
                break
            e, A = self.near.equations(y, W, active)
        return y, (step <= rest) & sound

    def _blind(self, x: Tensor, y: Tensor, i: Tensor, active: Tensor | None) -> Tensor:
        """A fixed number of steps, where values cannot be looked at."""
        start, step = y, y[:, 0]
        for _ in range(BLIND_STEPS):
            y, step = self._step(x, y, i, self.near.W[i], active)
        good = (step <= 1e-5) & self.near.on(y)
        return torch.where(good[:, None], y, start)

    def _walk(self, x: Tensor, y: Tensor, i: Tensor | None, active: Tensor | None) -> tuple[Tensor, Tensor]:
        """Where each row ends, and whether it came to rest. i None: new combinations at every step."""
        out, arrived, rows = y.clone(), torch.zeros(len(y), dtype=torch.bool), torch.arange(len(y))
        for _ in range(STEPS):
            y, step = self._step(x, y, i, self.near.combinations(y) if i is None else self.near.W[i], active)
            done = step <= 1e-7
            out[rows[done]], arrived[rows[done]] = y[done], True
            left = ~done & torch.isfinite(step)
            if not bool(left.any()):
                break
            rows, x, y = rows[left], x[left], y[left]
            i, active = (None if t is None else t[left] for t in (i, active))
        return out, arrived

    def _step(self, x: Tensor, y: Tensor, i: Tensor | None, W: Tensor, active: Tensor | None) -> tuple[Tensor, Tensor]:
        """A new y, and how far it is from the old one. With a second order correction: e(y) is small after it.

        Where Newton's equations are not those of a minimum (beyond the first focal point), or its step is wild, a gradient step.
        """
        e, A = self.near.equations(y, W, active)
        gram = Gram(A)
        normal = gram.least(e)
        tangential, multiplier = gram.split(x - y)
        H = self.near.lagrangian(y, W, multiplier, active)
        if active is None and i is not None:
            T = self.near.tangent_frame(i, gram)
            move, sound = reduced(H, T, x - y + apply(H, normal))
        else:
            move, sound = kkt(H, A, x - y + apply(H, normal)), True
        longest = 3 * (length(x - y) + length(normal))
        sound = sound & (length(move) <= longest) & ((move * tangential).sum(1) >= 0)
        new = y - normal + torch.where(sound[:, None], move, 0.5 * tangential)
        correction = gram.least(self.near.values(new, W, active))
        size = length(new - y)
        good = length(correction) <= 0.5 * size + 1e-300
        return torch.where(good[:, None], new - correction, new), size
