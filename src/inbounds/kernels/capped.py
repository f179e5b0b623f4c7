"""Projection of (*batch, n) on {0 <= y <= cap, sum y = total}: y = clamp(x - t, 0, cap) with one number t per row."""

from __future__ import annotations

import torch
from torch import Tensor


def compressed(x: Tensor, gap: Tensor) -> Tensor:
    """x moved so that neighbours in size are at most `gap` apart and the largest is 0: keeps 1e20 exact.

    With a gap of twice the largest cap the projection stays the same: of entries farther apart than a cap, the upper one is full
    or the lower one is empty.
    """
    top, order = x.sort(-1, descending=True)
    steps = torch.minimum(top[..., :-1] - top[..., 1:], gap)
    near = -torch.cat([torch.zeros_like(top[..., :1]), steps.cumsum(-1)], -1)
    return torch.zeros_like(x).scatter(-1, order, near)


def level(x: Tensor, cap: Tensor, total: Tensor) -> Tensor:
    """t with sum clamp(x - t, 0, cap) = total, (*batch, 1), without derivative, in float64.

    The sum falls in t from sum cap to 0, with slope -1 for every entry between x - cap and x: its values at the sorted
    breakpoints are running sums of slopes, and t lies between the two that enclose the total.
    """
    x, cap, total = (v.detach().double() for v in (x, cap, total))
    ends = torch.cat([x, x - cap], -1)
    bend = torch.cat([torch.ones_like(x), -torch.ones_like(x)], -1)
    ends, order = ends.sort(-1, descending=True)
    slope = bend.gather(-1, order).cumsum(-1)  # below the k-th breakpoint
    gap = (ends[..., :-1] - ends[..., 1:]) * slope[..., :-1]
    value = torch.cat([torch.zeros_like(ends[..., :1]), gap.cumsum(-1)], -1)  # at the k-th breakpoint
    k = (value < total).sum(-1, keepdim=True).clamp(1, ends.shape[-1] - 1)
    above, rest = ends.gather(-1, k - 1), total - value.gather(-1, k - 1)
    steep = slope.gather(-1, k - 1)
    return above - rest / steep.clamp(min=1)


def capped(x: Tensor, cap: Tensor, total: Tensor) -> Tensor:
    """The nearest point of {0 <= y <= cap, sum y = total}, differentiable in x, cap and total; total: (*batch, 1)."""
    dtype = x.dtype
    x, cap, total = torch.broadcast_tensors(x.double(), cap.double(), total.double())
    total = total[..., :1]
    near = compressed(x.detach(), 2 * cap.detach().amax(-1, keepdim=True))
    x = near + (x - x.detach())
    t = level(x, cap, total)
    moved = x.detach() - t
    free, full = (moved > 0) & (moved < cap.detach()), moved >= cap.detach()
    count = free.sum(-1, keepdim=True)
    held = torch.where(free, x, 0.0).sum(-1, keepdim=True) + torch.where(full, cap, 0.0).sum(-1, keepdim=True)
    t = torch.where(count > 0, (held - total) / count.clamp(min=1), t)
    y = torch.where(full, cap, torch.where(free, x - t, 0.0))
    return torch.minimum(y.to(dtype).clamp(min=0), cap.to(dtype))
