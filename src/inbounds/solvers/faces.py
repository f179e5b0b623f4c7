"""The derivative of the projection on a polyhedron: with the faces J that hold, P(x) solves linear equations, in every order.

y = x - C^T m, C y = d, with C = (A_J, E) in coordinates where the metric is the usual one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.derivative import looking
from .pivoting import Chosen, back, pick, take, times
from .polyhedron import coordinates, solve_upper

WEAK = 1e-5  # a face nearer than this to the span of the others has no derivative of its own


def turned(W: Tensor, x: Tensor, A: Tensor, E: Tensor) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
    """L with W = L L^T; L^T x, A L^{-T}, E L^{-T}."""
    if not W.numel():
        return None, x, A, E
    L = torch.linalg.cholesky_ex(W)[0]
    A, E = (torch.linalg.solve_triangular(L.mT, t, upper=True, left=False) for t in (A, E))
    return L, times(L.mT, x), A, E


def gram(C: Tensor, pad: Tensor) -> tuple[Tensor, Tensor]:
    """C C^T with 1 for padded slots, and C; slots whose normals depend on earlier ones are padded too."""
    flat = C.detach()
    size = flat.norm(dim=2).clamp(min=1e-300)
    U = flat / size[:, :, None] * (~pad).to(C.dtype)[:, :, None]
    jitter = torch.diag_embed(pad.to(C.dtype) + 0.01 * WEAK**2)
    L = torch.linalg.cholesky_ex(torch.baddbmm(jitter, U, U.mT))[0]
    pad = pad | ~(L.diagonal(dim1=1, dim2=2) >= WEAK)
    C = torch.where(pad[:, :, None], 0.0, C)
    return torch.diag_embed(pad.to(C.dtype)) + C @ C.mT, C


def on_these_faces(x, A, b, E, f, W, J: Tensor, chosen: Tensor, Q: Tensor, constant: bool) -> Tensor:
    """The nearest point with A_J y = b_J and E y = f, differentiable in all of them; if `constant`, in x, b and f only, faster.

    Its value is that of the projection before landing; it is used for its derivative.
    """
    L, x, A, E = turned(W, x, A, E)
    m, p = A.shape[-2], E.shape[-2]
    if looking(x):
        J = J[:, : int((J < m).sum(1).max())] if J.numel() else J[:, :0]
    pad = J == m
    if constant:
        if p:
            across = A @ Q
            g = coordinates(E, f, Q, chosen)
            x = x - times(Q, times(Q.mT, x) - g)
            b = b - times(across, g if g.dim() == 2 else g[None])
            A = A - across @ Q.mT
            b = b.expand(x.shape[0], -1)
        if J.shape[1] and looking(x):
            size = A.norm(dim=-1).clamp(min=1e-300)
            N = Chosen(A / size[..., None], J)
            if bool((N.L.diagonal(dim1=1, dim2=2) >= WEAK).all()):
                x = x - N.back(N.solve(N.times(x) - pick(b / size, J)))
                return x if L is None else solve_upper(L.mT, x)
        if J.shape[1]:
            G, C = gram(take(A, J), pad)
            need = torch.where((C != 0).any(2), times(C, x) - pick(b, J), 0.0)
            x = x - back(C, torch.cholesky_solve(need[:, :, None], torch.linalg.cholesky_ex(G)[0])[:, :, 0])
        return x if L is None else solve_upper(L.mT, x)
    R = x.shape[0]
    C, d = take(A, J), pick(b, J)
    if p:
        C = torch.cat([E.expand(R, p, -1), C], 1)
        d = torch.cat([f.expand(R, p), d], 1)
        pad = torch.cat([(~chosen).expand(R, p), pad], 1)
    if C.shape[1]:
        G, C = gram(C, pad)
        need = torch.where((C.detach() != 0).any(2), times(C, x) - d, 0.0)
        x = x - back(C, torch.linalg.solve_ex(G, need[:, :, None])[0][:, :, 0])
    return x if L is None else solve_upper(L.mT, x)
