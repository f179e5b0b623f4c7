"""Linear constraints as rows, for the schemes that are made for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import ConstraintSet
from ..sets.affine import times
from ..sets.intersection import polyhedral
from ..sets.polytope import Polytope


@dataclass(frozen=True)
class Rows:
    """{y : A y <= b, E y = f} in float64, bounds among the rows of A; every part is shared or has the batch dims of the input."""

    A: Tensor
    b: Tensor
    E: Tensor
    f: Tensor


def polytope_of(M: ConstraintSet, who: str) -> Polytope:
    """M as a polytope; refuses sets that are none."""
    if isinstance(M, Polytope) and "weight" not in M._given_names:
        return M
    faces = polyhedral(M)
    if faces is None:
        raise TypeError(f"{who} needs linear constraints, got {M!r}. Use Projected(net, M), which takes every set.")
    return Polytope(**faces)  # pyright: ignore[reportArgumentType]


def rows_of(M: ConstraintSet, u: Tensor, who: str) -> Rows:
    """The constraints of M as rows, as they are in u's dtype."""
    P = polytope_of(M, who)
    parts = P._parts(u)
    A, b, _ = P._faces(parts)
    return Rows(A, b, parts["E"], parts["f"])


def product(A: Tensor, y: Tensor) -> Tensor:
    """A y over batches of vectors; one matrix product where A is shared."""
    return y @ A.mT if A.dim() == 2 else times(A, y)


def shared(E: Tensor, who: str) -> Tensor:
    """E as one matrix; refuses equations whose coefficients change from row to row."""
    if math.prod(E.shape[:-2]) != 1:
        raise TypeError(
            f"{who} needs equations E y = f whose matrix E is the same for all inputs, got E of shape {tuple(E.shape)}. Put what "
            "depends on the input into f, or use Projected(net, M)."
        )
    return E.reshape(E.shape[-2:])


def nullspace(E: Tensor) -> Tensor:
    """An orthonormal basis N (n, n - rank E) of {v : E v = 0}."""
    n = E.shape[-1]
    if not E.shape[-2]:
        return torch.eye(n, dtype=E.dtype, device=E.device)
    _, s, vh = torch.linalg.svd(E)
    rank = int((s > s.max() * max(E.shape) * torch.finfo(E.dtype).eps).sum())
    return vh[rank:].mT.contiguous()


def independent_columns(E: Tensor) -> Tensor:
    """Indices of p columns of E (p, n) that are a basis, by Gram-Schmidt with pivots; refuses equations that are redundant."""
    rest, chosen = E.clone(), []
    for _ in range(E.shape[-2]):
        length = rest.norm(dim=0)
        if chosen:
            length[chosen] = 0.0
        j = int(length.argmax())
        if float(length[j]) <= 1e-10 * float(E.norm()):
            raise ValueError(f"DC3 asked for {E.shape[-2]} independent equations, got {len(chosen)}. Leave out the others.")
        q = rest[:, j] / length[j]
        rest = rest - q[:, None] * (q @ rest)
        chosen.append(j)
    return torch.tensor(chosen, dtype=torch.long, device=E.device)
