"""The rows of the table as networks. Feed-forward blocks for single points, attention blocks for flocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..core import ConstraintSet, LieGroup
from ..data.pairs import Pairs, generator
from ..nets import FAA, IAA, AnchorMixture, AttentionBlock, Flat, MLPBlock
from ..sets import Euclidean
from ..steps import Exponential, GroupExponential, Projection, Step
from ..train.training import Problem, mse

ANCHORS = 100
HEADS = 3
WIDTH = {"cs": 2_048, "flock": 256}  # of the encoder's feed-forward layer: the paper's on cs, ours on flock
WIDE = 64  # hidden units of a block in the wide rows; chosen with their lr and depth by benchmarks/wide_blocks.py
WIDE_ATTENTION = {"heads": 4, "dim": 64, "width": 128}


@dataclass(frozen=True)
class Shape:
    """Where a network lives: its set, whether points come in groups, the dataset's encoder width, its number of anchors.

    wide: a practitioner's blocks instead of the paper's, as arguments of AttentionBlock (points in groups) or MLPBlock.
    """

    M: ConstraintSet
    tokens: bool
    width: int = 0
    wide: dict | None = None
    anchors: int = ANCHORS

    @property
    def size(self) -> int:
        return math.prod(self.M.shape)

    def block(self, out: int) -> nn.Module:
        if self.tokens:
            return AttentionBlock(self.M.shape, out, **(self.wide or {"heads": HEADS, "width": self.width}))
        return MLPBlock(self.M.shape, out, **(self.wide or {}))

    def layers(self, step: Step, depth: int, head: bool = True, project_input: bool = True) -> IAA:
        """`depth` blocks with the step between them; transformers end with a linear map inside the last step."""
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
    """On groups the group's, elsewhere the Riemannian exponential."""
    return GroupExponential(M) if isinstance(M, LieGroup) else Exponential(M)  # type: ignore[arg-type]


def exp_faa(s: Shape, depth: int) -> FAA:
    step = exponential(s.M)
    net = s.regular_to(step.size, depth) if isinstance(step, GroupExponential) or s.tokens else s.regular(depth)
    return FAA(net, step, base=nn.Identity())


# row: (shape, depth, learned set) -> network
NETWORKS: dict[str, Callable[[Shape, int, ConstraintSet | None], nn.Module]] = {
    "regular": lambda s, depth, flow: s.regular(depth),
    "proj-iaa": lambda s, depth, flow: s.layers(Projection(s.M), depth),
    "exp-iaa": lambda s, depth, flow: s.layers(exponential(s.M), depth),
    # inputs are in M, and a flow is not the identity there: they are left where they are, as in the paper
    "flow-iaa": lambda s, depth, flow: s.layers(Projection(flow), depth, project_input=False),  # type: ignore[arg-type]
    "prob": lambda s, depth, flow: s.regular_to(s.anchors, depth),
    "proj-faa": lambda s, depth, flow: FAA(s.regular(depth), Projection(s.M)),
    "exp-faa": lambda s, depth, flow: exp_faa(s, depth),
    "flow-faa": lambda s, depth, flow: FAA(s.regular(depth), Projection(flow)),  # type: ignore[arg-type]
    "fit-iaa": lambda s, depth, flow: s.layers(Projection(flow), depth),  # type: ignore[arg-type]
    "fit-faa": lambda s, depth, flow: FAA(s.regular(depth), Projection(flow)),  # type: ignore[arg-type]
    "wide-faa": lambda s, depth, flow: FAA(s.regular(depth), Projection(s.M)),
    "wide-iaa": lambda s, depth, flow: s.layers(Projection(s.M), depth),
}


def step_of(row: str, M: ConstraintSet) -> Step:
    """The step that costs most in a row whose set is a formula: at every layer of IAA rows, at the output of FAA rows."""
    kind, _, _ = row.partition("-")
    return exponential(M) if kind == "exp" else Projection(M if kind in ("proj", "wide") else Euclidean(*M.shape))


def wide_blocks(tokens: bool) -> dict:
    return dict(WIDE_ATTENTION) if tokens else {"width": WIDE}


def knobs(name: str, row: str) -> dict:
    """The numbers above that shape a row's blocks: part of a run's name, so that a change makes a new run."""
    if row == "prob":
        return {"anchors": ANCHORS, "width": WIDTH.get(name)}
    if row.startswith("wide"):
        return wide_blocks(name in WIDTH)
    return {"heads": HEADS, "width": WIDTH[name]} if name in WIDTH else {}


def build(row: str, pairs: Pairs, depth: int, flow: ConstraintSet | None) -> nn.Module:
    width, wide = WIDTH.get(pairs.name, 256), wide_blocks(bool(pairs.tokens)) if row.startswith("wide") else None
    shape = Shape(pairs.set, bool(pairs.tokens), width, wide, anchors=len(anchors(pairs)))
    return NETWORKS[row](shape, depth, flow)


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
    def backward(ctx, g: Tensor):  # type: ignore[override]
        p, label, square, chosen = ctx.saved_tensors
        gp = p * (2 * g)[..., None]
        slope = gp * (p + (chosen - square)[..., None])
        at = label[..., None]
        return slope.scatter_(-1, at, slope.gather(-1, at) - gp.gather(-1, at)), None


def problem(row: str, pairs: Pairs, depth: int = 4, flow: ConstraintSet | None = None) -> Problem:
    """What a row learns on a dataset. depth: of members that do not name one."""
    (x, y), (x_val, y_val) = pairs["train"], pairs["val"]

    def fresh(depth: int = depth) -> nn.Module:
        return build(row, pairs, depth, flow)

    if row != "prob":
        return Problem(fresh, x, y, x_val, y_val, mse, lambda output: output)
    mixture = AnchorMixture(nn.Identity(), anchors(pairs))

    def loss(logits: Tensor, label: Tensor) -> Tensor:
        return AnchorError.apply(logits, label).flatten(1).mean(1)  # type: ignore[union-attr]

    return Problem(fresh, x, mixture.label(y), x_val, y_val, loss, mixture.read)
