"""`Newton`: nearest points of an algebraic set near its samples, from a start on the set or a guess near it."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.derivative import eager
from ..solvers.linear import Gram, apply, kkt, length, reduced, stiff_step
from .base import EPS
from .near import Near

STEPS = 25  # with safeguards, in eager mode
PLAIN_STEPS = 6  # without them, at most
STIFF = 1e6  # weight of the equations in a plain step
BLIND_STEPS = 10  # where values cannot be looked at (vmap, compile)


class Newton:
    """Newton's method on the Lagrange conditions y - x + A^T l = 0, e(y) = 0 of the nearest point y to x."""

    def __init__(self, near: Near):
        self.near = near

    def settled(self, w: Tensor) -> Tensor:
        """The starting samples w, moved on to the equations."""
        return self.solve(w, w, torch.arange(len(w)), None, w.new_full((len(w),), EPS), w)

    def to_boundary(self, x: Tensor, y: Tensor, i: Tensor, eps: Tensor) -> Tensor:
        """From where the way from the nearest sample to y leaves the set."""
        a, b = torch.zeros_like(y[:, 0]), torch.ones_like(y[:, 0])
        s = self.near.samples[i]
        for _ in range(12):
            mid = 0.5 * (a + b)
            out = self.near.excess(s + mid[:, None] * (y - s)) > 0
            a, b = torch.where(out, a, mid), torch.where(out, mid, b)
        start, active = s + a[:, None] * (y - s), torch.ones_like(a)
        return self.solve(x, start, i, active, eps, start) if eager() else self.blind(x, start, i, active)

    def solve(self, x: Tensor, y: Tensor, i: Tensor, active: Tensor | None, eps: Tensor, guess: Tensor) -> Tensor:
        """Newton on y - x + A^T l = 0, e(y) = 0, from a guess; rows that do not get there stay at y, a point of the set.

        Rows that plain steps do not bring there, or farther than y, go the way again from y with safeguards, and those that end
        where not all polynomials vanish, again with new combinations at every step.
        """
        out, arrived = self._run(x, guess, i, active, eps)
        arrived &= self.near.on(out, eps) & (length(x - out) <= (1 + 1e-9) * length(x - y) + 1e-9)
        for careful in (self._walk, self._wander):
            if bool(arrived.all()):
                break
            lost = (~arrived).nonzero()[:, 0]
            again, there = careful(x[lost], y[lost], i[lost], None if active is None else active[lost])
            arrived[lost] = there & self.near.on(again)
            out[lost] = torch.where(arrived[lost, None], again, y[lost])
        return out

    def _run(self, x: Tensor, y: Tensor, i: Tensor, active: Tensor | None, eps: Tensor) -> tuple[Tensor, Tensor]:
        """Plain steps: where each row ends, and whether it came to rest."""
        W, rest = self.near.W.index_select(0, i), 0.25 * eps.sqrt()  # convergence is quadratic
        e, A = self.near.equations(y, W, active)
        l = Gram(A).split(x - y)[1]
        stiff = STIFF * (1 + length(l)[:, None])
        step, sound = eps, i >= 0
        for _ in range(PLAIN_STEPS):
            move, l, sound = stiff_step(self.near.lagrangian(y, W, l, active), A, e, l, x - y, stiff)
            y, step = y + move, length(move)
            if not bool(((step > rest) & sound).any()):
                break
            e, A = self.near.equations(y, W, active)
        return y, (step <= rest) & sound

    def blind(self, x: Tensor, y: Tensor, i: Tensor, active: Tensor | None) -> Tensor:
        """A fixed number of steps, where values cannot be looked at."""
        start, step = y, y[:, 0]
        for _ in range(BLIND_STEPS):
            y, step = self._step(x, y, i, self.near.W[i], active)
        good = (step <= 1e-5) & self.near.on(y)
        return torch.where(good[:, None], y, start)

    def _wander(self, x: Tensor, y: Tensor, i: Tensor, active: Tensor | None) -> tuple[Tensor, Tensor]:
        return self._walk(x, y, None, active)

    def _walk(self, x: Tensor, y: Tensor, i: Tensor | None, active: Tensor | None) -> tuple[Tensor, Tensor]:
        """Where each row ends, and whether it came to rest. i None: new combinations at every step."""
        out, arrived, rows = y.clone(), torch.zeros(len(y), dtype=torch.bool), torch.arange(len(y))
        W = None if i is None else self.near.W[i]
        for _ in range(STEPS):
            y, step = self._step(x, y, i, self.near.combinations(y) if W is None else W, active)
            done = step <= 1e-7
            if bool(done.any()):
                out[rows[done]], arrived[rows[done]] = y[done], True
            left = ~done & torch.isfinite(step)
            if not bool(left.any()):
                break
            if not bool(left.all()):
                rows, x, y = rows[left], x[left], y[left]
                i, W, active = (None if t is None else t[left] for t in (i, W, active))
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
