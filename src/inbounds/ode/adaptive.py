"""Steps that every row of a batch chooses for itself, so that the error of each stays below the row's own tolerance."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..kernels.vectors import norm
from .methods import Motion, combined

OK, SHORT, MANY, BROKEN = range(4)
REASONS = {
    SHORT: "their steps became too short for the dtype, as where the field is steep or jumps",
    MANY: "they took too many steps",
    BROKEN: "the field was not finite",
}


@dataclass(frozen=True)
class Steps:
    """The steps of a run: when each begins and how long it is, a number for all rows or (*rows,); 0 where a row has arrived."""

    starts: list[float] | list[Tensor]
    lengths: list[float] | list[Tensor]


@dataclass(frozen=True)
class Chosen:
    """The steps that rows have chosen, where these led without gradients, and how it went: numbers of (*rows,)."""

    steps: Steps
    end: Tensor
    grown: Tensor | None
    status: Tensor
    accepted: Tensor
    refused: Tensor
    reached: Tensor


def equal_steps(span: float, count: int) -> Steps:
    """Steps of one length for all rows."""
    h = span / count
    return Steps([i * h for i in range(count)], [h] * count)


@torch.no_grad()
def choose(motion: Motion, x: Tensor, span: float, tolerance: Tensor, limit: int) -> Chosen:
    """The steps of an embedded method from the point x over the time `span`.

    A step is accepted if its estimated error is at most tolerance max(1, |x|), and that of the log of volume, where it is
    counted, at most the tolerance. Its length follows the usual rule: 0.9 (tolerance/error)^(1/5) times as long as the last one,
    between 0.2 and 10, and not longer after a refusal. A row stops where its step falls below 16 eps of the span.
    """
    rows, wide = motion.rows(x), torch.float64
    s = torch.zeros(rows, dtype=wide, device=x.device)
    status = torch.zeros(rows, dtype=torch.int64, device=x.device)
    accepted, refused = status.clone(), status.clone()
    grown = None if motion.growth is None else torch.zeros(rows, dtype=x.dtype, device=x.device)
    f = motion.field(motion.spread(s, x), x)
    h = first_length(motion, x, motion.M.tangent(x, f), span, tolerance)
    least = 16 * torch.finfo(x.dtype).eps * span
    active, before = torch.ones_like(status, dtype=torch.bool) & (span > 0), torch.zeros_like(status, dtype=torch.bool)
    starts: list[Tensor] = []
    lengths: list[Tensor] = []
    while bool(active.any()):
        last = h >= span - s
        h = torch.where(last, span - s, h)
        made = motion.step(motion.spread(s, x), motion.spread(h, x), x, f)
        error = relative_error(motion, made.stages, x, h, tolerance)
        if made.growths:
            missed = (h.to(x.dtype) * combined(motion.method.error, made.growths)).abs() / tolerance
            error = torch.maximum(error, missed.to(wide))
        ok = active & (error <= 1)
        starts.append(s)
        lengths.append(torch.where(ok, h, 0.0))
        keep = motion.spread(ok, ok)
        x, f = torch.where(keep, made.end, x), torch.where(keep, made.after, f)
        if grown is not None:
            grown = torch.where(ok, grown + h.to(x.dtype) * combined(motion.method.weights, made.growths), grown)
        s = torch.where(ok, torch.where(last, span, s + h), s)
        accepted, refused = accepted + ok, refused + (active & ~ok)
        factor = (0.9 * error**-0.2).nan_to_num(nan=0.2, posinf=10.0).clamp(0.2, 10.0)
        h = torch.where(active, h * torch.where(before | ~ok, factor.clamp(max=1.0), factor), h)
        before = ~ok
        stuck = active & ~ok & (h < least)
        status = torch.where(stuck, torch.where(torch.isfinite(error), SHORT, BROKEN), status)
        active = active & ~stuck & (s < span)
        full = active & (accepted + refused >= limit)
        status, active = torch.where(full, MANY, status), active & ~full
    return Chosen(compacted(starts, lengths, s), x, grown, status, accepted, refused, s)


def compacted(starts: list[Tensor], lengths: list[Tensor], end: Tensor) -> Steps:
    """The accepted steps alone, moved to the front of every row; rows with fewer of them wait at the end of theirs."""
    if not starts:
        return Steps([], [])
    s, h = torch.stack(starts), torch.stack(lengths)
    order = (h <= 0).to(torch.int8).argsort(dim=0, stable=True)
    s, h = s.take_along_dim(order, 0), h.take_along_dim(order, 0)
    most = int((h > 0).sum(0).max()) if h.numel() else 0
    s = torch.where(h > 0, s, end)
    return Steps(list(s[:most].unbind(0)), list(h[:most].unbind(0)))


def relative_error(motion: Motion, stages: list[Tensor], x: Tensor, h: Tensor, tolerance: Tensor) -> Tensor:
    """The error of a step over what is allowed, (*rows,); of several tokens, the largest."""
    gap = motion.spread(h, x) * combined(motion.method.error, stages)
    return per_row(motion, gap, x, tolerance)


def per_row(motion: Motion, v: Tensor, x: Tensor, tolerance: Tensor) -> Tensor:
    """|v| / (tolerance max(1, |x|)), (*rows,), in float64."""
    flat = motion.M._flat
    size = norm(flat(v)).double() / norm(flat(x)).double().clamp(min=1.0)
    tokens = tuple(range(len(motion.rows(x)), size.dim()))
    return (size.amax(tokens) if tokens else size) / tolerance


def first_length(motion: Motion, x: Tensor, v: Tensor, span: float, tolerance: Tensor) -> Tensor:
    """The length of the first step, (*rows,): Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I, II.4."""
    size, speed = (per_row(motion, p, x, tolerance) for p in (x, v))
    known = (size > 1e-5) & (speed > 1e-5)
    short = torch.where(known, 0.01 * size / torch.where(known, speed, 1.0), 1e-6 * span).nan_to_num(nan=1e-6 * span)
    short = short.clamp(max=span)
    h = motion.spread(short, x)
    turned = motion.rate(h, motion.M.project(x + h * v)) - v
    bend = per_row(motion, turned, x, tolerance) / short.clamp(min=1e-300)
    steep = torch.maximum(speed, bend)
    long = torch.where(steep > 1e-15, (0.01 / steep.clamp(min=1e-15)) ** 0.2, 1e3 * short)
    return torch.minimum(100 * short, long).nan_to_num(nan=1e-6 * span).clamp(max=span)
