"""The networks of the table: feed-forward blocks for single points, attention blocks for flocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from ..core import ConstraintSet, LieGroup, Manifold
from ..data.pairs import Pairs, generator
from ..nets import FAA, IAA, AttentionBlock, Flat, MLPBlock
from ..sets import Euclidean
from ..steps import Exponential, GroupExponential, Projection, Step

ANCHORS = 100  # of the rows that output probabilities, the paper's
HEADS = 3  # of attention, the paper's
WIDTH = {"cs": 2_048, "flock": 256}  # of the encoder's feed-forward layer: the paper's on cs, ours on flock
WIDE = 64  # hidden units of a block in the wide rows; chosen with their lr and depth by benchmarks/wide_blocks.py
WIDE_ATTENTION = {"heads": 4, "dim": 64, "width": 128}


@dataclass(frozen=True)
class Shape:
    """Where a network lives: its set M, whether points come in groups, the dataset's encoder width, its number of anchors.

    `learned` is the set that rows with a learned set project on instead of M. `wide` holds a practitioner's blocks instead of
    the paper's, as arguments of AttentionBlock (points in groups) or MLPBlock.
    """

    M: ConstraintSet
    tokens: bool
    width: int = 0
    wide: dict | None = None
    anchors: int = ANCHORS
    learned: ConstraintSet | None = None

    @property
    def onto(self) -> ConstraintSet:
        """The set that projections end on."""
        return self.M if self.learned is None else self.learned

    @property
    def size(self) -> int:
        """The number of coordinates of a point."""
        return math.prod(self.M.shape)

    def block(self, out: int) -> nn.Module:
        """A block from points to so many numbers per point."""
        if self.tokens:
            return AttentionBlock(self.M.shape, out, **(self.wide or {"heads": HEADS, "width": self.width}))
        return MLPBlock(self.M.shape, out, **(self.wide or {}))

    def layers(self, step: Step, depth: int, head: bool = True, project_input: bool = True) -> IAA:
        """So many blocks with the step between them. Transformers end with a linear map inside the last step."""
        if not (head and self.tokens and not self.wide):
            return IAA([self.block(step.size) for _ in range(depth)], step, project_input=project_input)
        blocks = [self.block(step.size) for _ in range(depth - 1)] + [self.block(self.size)]
        return IAA(blocks, step, head=nn.Linear(self.size, step.size), project_input=project_input)

    def regular(self, depth: int, head: bool = True) -> IAA:
        """Unconstrained: the same layers in Euclidean space."""
        return self.layers(Projection(Euclidean(*self.M.shape)), depth, head)

    def regular_to(self, size: int, depth: int) -> nn.Module:
        """Unconstrained layers, then a linear map to `size` numbers per point."""
        return nn.Sequential(self.regular(depth, head=False), Flat(self.M.shape), nn.Linear(self.size, size))


def exponential(M: ConstraintSet) -> Step:
    """The step by the group's exponential on groups, and by the Riemannian one on other manifolds."""
    if isinstance(M, LieGroup):
        return GroupExponential(M)
    if isinstance(M, Manifold):
        return Exponential(M)
    raise TypeError(f"An exponential step asked for a set without boundary, got {M!r}. Use Projection({M!r}).")


# --- networks: (shape, depth) -> module -------------------------------------------------------------------------
def regular(s: Shape, depth: int) -> nn.Module:
    """No constraint at all."""
    return s.regular(depth)


def projected_layers(s: Shape, depth: int) -> nn.Module:
    """IAA: every layer ends on the set."""
    return s.layers(Projection(s.onto), depth)


def flow_layers(s: Shape, depth: int) -> nn.Module:
    """IAA with a learned flow, which moves points of the set: inputs are in M, and stay where they are, as in the paper."""
    return s.layers(Projection(s.onto), depth, project_input=False)


def exponential_layers(s: Shape, depth: int) -> nn.Module:
    """IAA by exponentials: every layer moves along the set."""
    return s.layers(exponential(s.M), depth)


def projected_output(s: Shape, depth: int) -> nn.Module:
    """FAA: the layers are free, the output is projected."""
    return FAA(s.regular(depth), Projection(s.onto))


def exponential_output(s: Shape, depth: int) -> nn.Module:
    """FAA by an exponential: the layers say how far to move from the input along the set."""
    step = exponential(s.M)
    net = s.regular_to(step.size, depth) if isinstance(step, GroupExponential) or s.tokens else s.regular(depth)
    return FAA(net, step, base=nn.Identity())


def anchored(s: Shape, depth: int) -> nn.Module:
    """The probabilistic baseline: a score for each of the anchors."""
    return s.regular_to(s.anchors, depth)


def anchors(pairs: Pairs) -> Tensor:
    """100 training targets (all, if there are fewer), single agents of flocks."""
    y = pairs["train"][1].reshape(-1, *pairs.set.shape)
    return y[torch.randperm(len(y), generator=generator(0, stream=77))[:ANCHORS]]


class AnchorError(torch.autograd.Function):
    """`simplex_error` with its derivative 2 p_j (p_j - |p|^2 - [j = label] + p_label) written out, in the layout that comes.

    torch's softmax copies logits that are planes, (.., n, rows) in memory, and autograd keeps five tensors of their size.
    """

    @staticmethod
    def forward(ctx, logits: Tensor, label: Tensor) -> Tensor:
        p = logits.mT.softmax(-2).mT if logits.mT.is_contiguous() else logits.softmax(-1)
        square, chosen = p.square().sum(-1), p.gather(-1, label[..., None])[..., 0]
        ctx.save_for_backward(p, label, square, chosen)
        return square - 2 * chosen + 1

    @staticmethod
    def backward(ctx, *grads: Tensor) -> tuple[Tensor, None]:
        (g,) = grads
        p, label, square, chosen = ctx.saved_tensors
        gp = p * (2 * g)[..., None]
        slope = gp * (p + (chosen - square)[..., None])
        at = label[..., None]
        return slope.scatter_(-1, at, slope.gather(-1, at) - gp.gather(-1, at)), None


def anchor_error(logits: Tensor, label: Tensor) -> Tensor:
    """The mean `simplex_error` of every model of a stack: (K, rows, ..., anchors), (K, rows, ...) -> (K,)."""
    return cast(Tensor, AnchorError.apply(logits, label)).flatten(1).mean(1)


def wide_blocks(tokens: bool) -> dict:
    """The arguments of the wide rows' blocks."""
    return dict(WIDE_ATTENTION) if tokens else {"width": WIDE}
