"""A run of a differential equation at every time in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .adaptive import OK, REASONS, Steps
from .methods import Motion, combined


@dataclass(frozen=True)
class Nodes:
    """The states of a run at the ends of its steps, (n + 1, *batch, *shape), and what interpolates between them, if asked for."""

    points: Tensor
    grown: Tensor | None
    velocities: Tensor | None = None
    middles: Tensor | None = None


def run(motion: Motion, x: Tensor, steps: Steps, dense: bool = False, save: bool = False) -> Nodes:
    """Make the steps from the point x. With `save`, each is made again in the backward pass, so that only its end is kept."""
    points, velocities, middles = [x], [], []
    grown = None if motion.growth is None else torch.zeros(motion.rows(x), dtype=x.dtype, device=x.device)
    for s, h in zip(steps.starts, steps.lengths, strict=True):
        made = _saved(motion, s, h, points[-1]) if save else _step(motion, s, h, points[-1])
        end, growth, first, middle = made
        points.append(end)
        velocities.append(first)
        middles.append(middle)
        grown = None if grown is None else grown + growth
    if not dense:
        return Nodes(torch.stack(points), grown)
    span = steps.starts[-1] + steps.lengths[-1] if steps.starts else 0.0
    velocities.append(motion.rate(motion.spread(span, x) if isinstance(span, Tensor) else span, points[-1]))
    bent = torch.stack(middles) if middles and motion.method.middle else None
    return Nodes(torch.stack(points), grown, torch.stack(velocities), bent)


def _step(motion: Motion, s: float | Tensor, h: float | Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The end of a step, the growth of volume, the first velocity, and the point in the middle (0 if the method has none)."""
    none = x.new_zeros(())
    if isinstance(s, Tensor) and isinstance(h, Tensor):
        wide, moves = h.to(x.dtype), motion.spread(h > 0, h > 0)
        made = motion.step(motion.spread(s, x), motion.spread(h, x), x)
        end = torch.where(moves, made.end, x)  # a row that has arrived is left alone
    else:
        wide, made = h, motion.step(s, h, x)
        end = made.end
    growth = wide * combined(motion.method.weights, made.growths) if made.growths else none
    length = motion.spread(wide, x) if isinstance(wide, Tensor) else wide
    middle = x + length * combined(motion.method.middle, made.stages) if motion.method.middle else none
    return end, growth, made.stages[0], middle


def _saved(motion: Motion, s: float | Tensor, h: float | Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    made = checkpoint(_step, motion, s, h, x, use_reentrant=False)
    assert isinstance(made, tuple)
    return made


@dataclass(frozen=True, eq=False)
class ODESolution:
    """What `ProjectedODE.solve` returns: solution(times) are the states at any times of the run, each of them in M.

    Between two states a polynomial with their velocities is projected on M: a cubic one, for "dopri5" one of degree 4 that
    meets the middle of the step, too. So the states in between have the order of the method, but for "euler" and where
    the solution meets a boundary. Gradients reach the field, the start and the times.

    end: the last state, (*batch, *shape). status: (*rows,), 0 where the run reached its horizon; else 1 (the step became too
    short), 2 (too many steps) or 3 (the field is not finite), and `end` is the state at the time `reached`. steps, refused: how
    many steps each row made, and how many it made again because their error was too large.
    """

    end: Tensor
    status: Tensor
    steps: Tensor
    refused: Tensor
    reached: Tensor
    nodes: Nodes
    made: Steps
    motion: Motion
    passed: Callable[[object, Tensor], Tensor]  # observation times -> the time since the start

    def __call__(self, times: object) -> Tensor:
        """The states at the times (k,), or (*rows, k) with a row of times for each point: (*batch, k, *shape).

        A row that stopped before a time has NaN there.
        """
        s = self.passed(times, self.end)  # (k,) or (*rows, k)
        rows = self.motion.rows(self.end)
        s = s.expand(*rows, s.shape[-1])
        seen = [self._at(t) for t in s.unbind(-1)]
        return torch.stack(seen, self.end.dim() - len(self.motion.M.shape))

    def _at(self, s: Tensor) -> Tensor:
        """The states after the time s, (*rows,)."""
        edges, h = self._edges()
        i = ((edges[1:] < s.detach().double()).sum(0)).clamp(max=len(h) - 1)
        start, length = (t.take_along_dim(i[None], 0)[0] for t in (edges[:-1], h))
        share = (s - start) / torch.where(length > 0, length, 1.0)
        share = torch.where(length > 0, share, 0.0)
        point = self.motion.M.project(self._between(self.motion.spread(i, i), share, length))
        late = self.motion.spread((s.detach() > self.reached) & (self.status != OK), self.status != OK)
        return torch.where(late, torch.nan, point)

    def _edges(self) -> tuple[Tensor, Tensor]:
        """The times of the nodes, (n + 1, *rows), and the lengths of the steps between them."""
        rows, like = self.motion.rows(self.end), self.reached
        h = torch.stack([torch.as_tensor(h, dtype=like.dtype, device=like.device).expand(rows) for h in self.made.lengths])
        s = torch.stack([torch.as_tensor(s, dtype=like.dtype, device=like.device).expand(rows) for s in self.made.starts])
        return torch.cat([s, (s[-1] + h[-1])[None]]), h

    def _between(self, i: Tensor, share: Tensor, length: Tensor) -> Tensor:
        """The polynomial of step i at the share of the step that has passed."""
        shape, nodes = (1, *self.end.shape), self.nodes
        assert nodes.velocities is not None
        h, u = self.motion.spread(length, self.end), self.motion.spread(share, self.end)
        a, b = (nodes.points.take_along_dim((i + k).expand(shape), 0)[0] for k in (0, 1))
        f, g = (h * nodes.velocities.take_along_dim((i + k).expand(shape), 0)[0] for k in (0, 1))
        cubic = a + u * (f + u * (3 * (b - a) - 2 * f - g + u * (2 * (a - b) + f + g)))
        if nodes.middles is None:
            return cubic
        middle = nodes.middles.take_along_dim(i.expand(shape), 0)[0]
        miss = middle - (0.5 * (a + b) + 0.125 * (f - g))  # of the cubic in the middle
        return cubic + 16 * (u * (1 - u)).square() * miss

    def __repr__(self) -> str:
        done = int((self.status == OK).sum())
        return f"ODESolution({done} of {self.status.numel()} rows at the horizon, {int(self.steps.max()) if done else 0} steps)"


def require_arrival(status: Tensor, reached: Tensor, span: float) -> None:
    """Raise if a row stopped before the horizon: how many did, where, and why."""
    late = status != OK
    if not bool(late.any()):
        return
    why = "; ".join(f"{int((status == k).sum())} because {words}" for k, words in REASONS.items() if bool((status == k).any()))
    raise RuntimeError(
        f"ProjectedODE: {int(late.sum())} of {status.numel()} rows stopped before the end, the first after "
        f"{float(reached[late].min()):.3g} of {span:g}: {why}. Write ode.solve(x), whose status says which rows, "
        "a larger tolerance, or a method with equal steps."
    )
