"""Linear constraints as rows, for the schemes that are made for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
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


def equations_of(M: ConstraintSet, u: Tensor, who: str) -> tuple[Tensor, Tensor]:
    """E and f of E y = f, of a polytope or of a set that has `equations()`; its inequalities may be curved."""
    if hasattr(M, "equations"):
        E, f = M.equations()  # pyright: ignore[reportCallIssue]
        return shared(E, who), f
    rows = rows_of(M, u, who)
    return shared(rows.E, who), rows.f


def is_curved(M: ConstraintSet) -> bool:
    """Whether the equations of M are linear and its inequalities are not."""
    return hasattr(M, "equations")


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


def completion(E: Tensor, dependent: Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
    """S (n, p) and L (n, n - p): y = S f + L z satisfies E y = f, and the free variables of y are z as it is.

    dependent: which variables are not free, by default those that pivoting chooses.
    """
    n = E.shape[-1]
    dependent = independent_columns(E) if dependent is None else list(dependent)
    if len(set(dependent)) != E.shape[-2] or not all(0 <= j < n for j in dependent):
        raise ValueError(f"Completion asked for {E.shape[-2]} different variables below {n}, one per equation, got {dependent}.")
    free = torch.tensor([j for j in range(n) if j not in set(dependent)], dtype=torch.long, device=E.device)
    solve, lift = E.new_zeros(n, len(dependent)), E.new_zeros(n, len(free))
    solve[dependent] = torch.linalg.inv(E[:, dependent])
    lift[dependent] = -solve[dependent] @ E[:, free]
    lift[free] = torch.eye(len(free), dtype=E.dtype, device=E.device)
    return solve, lift


def free_variables(M: ConstraintSet, who: str) -> int:
    """How many variables the equations of M leave free."""
    return M.shape[0] - equations_of(M, torch.empty(0, *M.shape, dtype=torch.float64), who)[0].shape[-2]


def independent_columns(E: Tensor) -> list[int]:
    """Indices of p columns of E (p, n) that are a basis, by Gram-Schmidt with pivots; refuses equations that are redundant."""
    rest, chosen = E.clone(), list[int]()
    for _ in range(E.shape[-2]):
        length = rest.norm(dim=0)
        if chosen:
            length[chosen] = 0.0
        j = int(length.argmax())
        if float(length[j]) <= 1e-10 * float(E.norm()):
            raise ValueError(
                f"Completion asked for {E.shape[-2]} independent equations, got {len(chosen)}. Leave out the others."
            )
        q = rest[:, j] / length[j]
        rest = rest - q[:, None] * (q @ rest)
        chosen.append(j)
    return chosen
