"""Points that are in several sets at once."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..core import ConstraintSet, eager
from .affine import Affine
from .box import Box
from .capped_simplex import CappedSimplex
from .halfspace import Halfspace
from .implicit import Implicit
from .polytope import Polytope
from .simplex import Simplex
from .solved import SolvedSet


class Intersection(SolvedSet):
    """The points that lie in all of the sets, which have one shape. The best method for its members is chosen:

    polyhedral members (Box, Halfspace, Affine, Simplex, CappedSimplex, Polytope, the fitted Hull): one `Polytope`, exact, and an
    empty intersection is certified. Everything else: `Implicit` on the members' residuals, and for fitted sets, which have none,
    on p - P(p). `M.way` is the set that does the work.
    """

    sets: Any
    reach: float | None

    def __init__(self, *sets: ConstraintSet, restarts: int = 0, on_fail: str = "raise"):
        super().__init__(on_fail)
        wrong = [s for s in sets if not isinstance(s, ConstraintSet)]
        if not sets or wrong:
            got = ", ".join(type(s).__name__ for s in wrong) or "nothing"
            raise TypeError(f"Intersection asked for sets, got {got}. Write Intersection(Ball(3), Halfspace([1.0, 0, 0], 0.5)).")
        shapes = {s.shape for s in sets}
        if len(shapes) > 1:
            got = ", ".join(f"{s!r} of shape {s.shape}" for s in sets)
            raise ValueError(f"Intersection asked for sets of points of one shape, got {got}.")
        self.shape = sets[0].shape
        self.sets = nn.ModuleList(sets)
        for s in sets:
            self.batch = self._joint_batch(repr(s), s.batch)
        self.reach = math.inf if all(s.reach == math.inf for s in sets) else None
        self.exact = all(s.exact for s in sets)
        self.restarts = restarts
        faces = [polyhedral(s) for s in sets]
        curved = [s for s, f in zip(sets, faces, strict=True) if f is None]
        own = [s for s in sets if s.batch and curved]
        if own:
            raise ValueError(
                f"Intersection asked for members with one set of parameters for all points, since {curved[0]!r} is curved, got "
                f"{own[0]!r} with the batch dims {tuple(own[0].batch)}. Write Implicit(shape, ineq=lambda p, c: ..., "
                f"context=...) and project(x, context=c), or use polyhedral members, which may have batch dims."
            )
        if not curved:
            fixed = [{k: t.detach() for k, t in f.items()} for f in faces if f is not None]
            self.way: nn.Module = joined(fixed, on_fail)
        else:
            eq, ineq, both = functions(list(sets))
            self.way = Implicit(self.shape, eq, ineq, restarts=restarts, on_fail=on_fail)
            self.way.both, self.way.batched = both, self.exact  # residuals map over batch dims; projections may look at values

    def _worker(self) -> SolvedSet:
        """The set that does the work; a polytope of learnable members is built anew, so that it follows them."""
        if isinstance(self.way, Polytope) and any(True for _ in self.sets.parameters()):
            return joined([f for f in map(polyhedral, self.sets) if f is not None], self.on_fail)
        assert isinstance(self.way, SolvedSet)
        return self.way

    def _nearest(self, x: Tensor):
        return self._worker()._nearest(x)

    def _solve(self, x: Tensor):
        return self._worker()._solve(x)

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        both = [s.residuals(x) for s in self.sets]
        batch = torch.broadcast_shapes(*(r.shape[:-1] for pair in both for r in pair))
        eq, ineq = (torch.cat([pair[i].expand(*batch, pair[i].shape[-1]) for pair in both], -1) for i in (0, 1))
        return eq, ineq

    def _violation(self, x: Tensor) -> Tensor:
        return torch.stack(torch.broadcast_tensors(*(s.violation(x) for s in self.sets))).sum(0)

    def _contains(self, x: Tensor, tol: float | None) -> Tensor:
        """Every member contains the point."""
        return torch.stack(torch.broadcast_tensors(*(s.contains(x, tol) for s in self.sets))).all(0)

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        return self._worker()._tangent(x, v)

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Projected samples of the first member: not uniform."""
        if isinstance(self.way, Polytope):
            return self.way._sample(batch, generator, dtype, device)
        z = self.sets[0].sample(*batch, generator=generator, dtype=dtype, device=device)
        with torch.no_grad():
            return self._project(z)

    def __repr__(self) -> str:
        return f"Intersection({', '.join(map(repr, self.sets))})"


def polyhedral(M: ConstraintSet) -> dict[str, Tensor] | None:
    """The arguments of `Polytope` that describe M, or None."""
    if isinstance(M, Box):
        return {"low": M.low.expand(*M.low.shape[:-1], *M.shape), "high": M.high.expand(*M.high.shape[:-1], *M.shape)}
    if isinstance(M, Halfspace):
        return {"A": M.a[..., None, :], "b": M.b[..., None]}
    if isinstance(M, Affine):
        return {"E": M.A, "f": M.b}
    if isinstance(M, Simplex | CappedSimplex):
        n = M.shape[0]
        one = torch.ones(1, n, dtype=torch.float64)
        faces = {"E": one, "f": M.total[..., None], "low": torch.zeros(n, dtype=torch.float64)}
        return faces | ({"high": M.cap.expand(*M.cap.shape[:-1], n)} if isinstance(M, CappedSimplex) else {})
    if hasattr(M, "normals") and hasattr(M, "offsets"):  # a fitted Hull
        return {"A": M.normals, "b": M.offsets}  # pyright: ignore[reportReturnType]
    if isinstance(M, Polytope) and "weight" not in M._given_names:
        return {k: getattr(M, k) for k in M._given_names}
    return None


def joined(faces: list[dict[str, Tensor]], on_fail: str) -> Polytope:
    """One polytope of all of them."""
    out: dict[str, Tensor] = {}
    for f in faces:
        for matrix, vector in (("A", "b"), ("E", "f")):
            if matrix in f:
                out[matrix] = stacked(out.get(matrix), f[matrix], -2)
                out[vector] = stacked(out.get(vector), f[vector], -1)
        for name, pick in (("low", torch.maximum), ("high", torch.minimum)):
            if name in f:
                mine, yours = f[name].double(), out.get(name)
                out[name] = mine if yours is None else pick(mine, yours)
    crossed = "low" in out and "high" in out and eager() and bool((out["low"] > out["high"]).any())
    if crossed:  # an empty set, which `solve` certifies, and not a mistake of the constructor's argument
        n = out["low"].shape[-1]
        eye = torch.eye(n, dtype=torch.float64)
        out["A"], out["b"] = stacked(out.get("A"), -eye, -2), stacked(out.get("b"), -out.pop("low"), -1)
    return Polytope(**out, on_fail=on_fail)


def stacked(a: Tensor | None, b: Tensor, dim: int) -> Tensor:
    """a and b one after the other along dim, their batch dims broadcast."""
    b = b.double()
    if a is None:
        return b
    keep = -dim
    batch = torch.broadcast_shapes(a.shape[: a.dim() - keep], b.shape[: b.dim() - keep])
    return torch.cat([t.expand(*batch, *t.shape[t.dim() - keep :]) for t in (a, b)], dim)


def functions(sets: list[ConstraintSet]) -> tuple[Any, Any, Any]:
    """eq and ineq of one point, and those that are not None in one call: from the residuals of the sets, or p - P(p) where a set
    is known through its projection only."""

    def both(p: Tensor) -> tuple[Tensor, Tensor]:
        eq, ineq = [], []
        for M in sets:
            if M.exact:
                e, h = M._residuals(p)
                eq.append(e)
                ineq.append(h)
            else:
                eq.append(M._flat(p - M._project(p)))
        keep = [torch.cat(r, -1) if r else p.new_zeros(0) for r in (eq, ineq)]
        return keep[0], keep[1]

    probe = both(0.5 + 0.1 * torch.randn(sets[0].shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    finite = torch.isfinite(probe[1]).nonzero()[:, 0]
    everything = len(finite) == len(probe[1])
    eq = (lambda p: both(p)[0]) if probe[0].numel() else None
    ineq = (lambda p: both(p)[1] if everything else both(p)[1][..., finite]) if len(finite) else None

    def used(p: Tensor) -> tuple[Tensor, ...]:
        e, h = both(p)
        return ((e,) if eq is not None else ()) + ((h if everything else h[..., finite],) if ineq is not None else ())

    return eq, ineq, used
