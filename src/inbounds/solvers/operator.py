"""`solve_rows` as an operator of torch, so that compile, export and vmap take it as one node without looking inside."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.derivative import looking
from .polyhedron import Held, Pure, solve_rows

Answer = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
DIMS = (2, 2, 1, 2, 1, 2)  # of x with its rows, and of A, b, E, f, W without


def refuse_onnx() -> None:
    """Shapes are worked out before an exporter translates operators: the place to say what it would say badly."""
    if torch.onnx.is_in_onnx_export():
        raise RuntimeError(
            "torch.onnx.export was asked for the projection on a polyhedron (Polytope, Halfspaces, or an Intersection of such "
            "sets), but ONNX has no operator for its solver, whose loops are as long as the values need. Write "
            "torch.export.export(model, (x,)), which keeps it as one operator, or export the network alone and project its "
            "outputs afterwards. Box, Halfspace, Simplex and CappedSimplex are projected on by formulas, which ONNX takes."
        )


@torch.library.custom_op("inbounds::nearest_in_polyhedron", mutates_args=())
def _operator(x: Tensor, A: Tensor, b: Tensor, E: Tensor, f: Tensor, W: Tensor, fine: int, eps: float, land: float) -> Answer:
    return tuple(t.clone() for t in solve_rows(x, A, b, E, f, W, fine, eps, land)[0])  # pyright: ignore[reportReturnType]


@_operator.register_fake
def _(x, A, b, E, f, W, fine, eps, land):
    refuse_onnx()
    R, n = x.shape
    K = min(n, A.shape[-2])
    row = x.new_empty(R, dtype=torch.long)
    return (
        torch.empty_like(x),
        x.new_empty(R, K),
        x.new_empty(R, K, dtype=torch.long),
        x.new_empty(E.shape[:-1], dtype=torch.bool),
        x.new_empty((*E.shape[:-2], n, E.shape[-2])),
        row,
        torch.empty_like(row),
        x.new_empty(R),
    )


@_operator.register_vmap
def _(info, in_dims, x, A, b, E, f, W, fine, eps, land):
    """The dim of vmap joins the rows; what it does not touch and has no rows of its own stays shared."""
    B = info.batch_size
    args = [t if d is None else t.movedim(d, 0) for t, d in zip((x, A, b, E, f, W), in_dims, strict=False)]
    batched = [d is not None for d in in_dims[:6]]
    R = args[0].shape[1] if batched[0] else args[0].shape[0]

    def joined(t: Tensor, has: bool, dims: int, rows: bool) -> Tensor:
        """dims: without rows. (B, R, ..) flattened."""
        own = t.dim() - has > dims
        if not has and not own and not rows:
            return t
        t = t if has else t[None]
        t = t if own else t.unsqueeze(1)
        return t.expand(B, R, *t.shape[2:]).reshape(B * R, *t.shape[2:])

    flat = [joined(args[0], batched[0], 1, True)]
    flat += [joined(t, has, d, False) for t, has, d in zip(args[1:], batched[1:], DIMS[1:], strict=True)]
    out = _operator(*flat, fine, eps, land)
    shared = flat[3].dim() == 2
    spread = [t.unflatten(0, (B, R)) if i not in (3, 4) or not shared else t for i, t in enumerate(out)]
    return tuple(spread), tuple(None if i in (3, 4) and shared else 0 for i in range(8))


def nearest_in_polyhedron(
    x, A, b, E, f, W, fine: int, eps: float, land: float, pure: Pure | None = None
) -> tuple[Answer, Held | None]:
    """`solve_rows`, without derivative, in every mode of torch."""
    args = [t.detach() for t in (x, A, b, E, f, W)]
    if looking(args[0]):
        with torch.no_grad():
            return solve_rows(*args, fine=fine, eps=eps, land=land, pure=pure)  # pyright: ignore[reportReturnType]
    return _operator(*args, fine, eps, land), None
