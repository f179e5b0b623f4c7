"""Points made of parts, each part in a set of its own."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..core import ConstraintSet, LieGroup, Manifold, joint_shape
from ..kernels.vectors import norm


class Product(ConstraintSet):
    """M_1 x ... x M_k as flat vectors of shape (sum of sizes,). A Manifold or LieGroup if all parts are.

    `split` gives the parts in their own shapes, `join` puts them together. violation is the sum of the parts'.
    """

    sets: Any  # an nn.ModuleList, which forgets the type of its elements

    def __new__(cls, *sets: Any):
        strongest: type = cls
        if cls is Product and sets:
            if all(isinstance(s, LieGroup) for s in sets):
                strongest = ProductGroup
            elif all(isinstance(s, Manifold) for s in sets):
                strongest = ProductManifold
        return super().__new__(strongest)

    def __init__(self, *sets: ConstraintSet):
        super().__init__()
        wrong = [s for s in sets if not isinstance(s, ConstraintSet)]
        if not sets or wrong:
            got = ", ".join(type(s).__name__ for s in wrong) or "nothing"
            raise TypeError(f"Product asked for sets, got {got}. Write Product(SO(3), Euclidean(3)).")
        self.sets = torch.nn.ModuleList(sets)
        self.sizes = [math.prod(s.shape) for s in sets]
        self.shape = (sum(self.sizes),)
        self.batch = joint_shape(*(s.batch for s in sets))

    @property
    def reach(self) -> float | None:
        """The smallest reach of a part."""
        parts = [s.reach for s in self.sets]
        return None if any(r is None for r in parts) else min(parts)

    @property
    def exact(self) -> bool:
        return all(s.exact for s in self.sets)

    @property
    def metric(self) -> str:
        """The metrics of the parts, each measuring its own part."""
        parts = [s.metric for s in self.sets]
        return parts[0] if len(set(parts)) == 1 else " x ".join(parts)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """The parts of a point, each in the shape of its own set."""
        parts = x.split(self.sizes, -1)
        return tuple(p.reshape(p.shape[:-1] + s.shape) for p, s in zip(parts, self.sets, strict=True))

    def join(self, *parts: Tensor) -> Tensor:
        """The point that is made of these parts."""
        flat = [s._flat(p) for p, s in zip(parts, self.sets, strict=True)]
        batch = torch.broadcast_shapes(*(p.shape[:-1] for p in flat))
        return torch.cat([p.expand(*batch, p.shape[-1]) for p in flat], -1)

    def _map(self, method: str, *points: Tensor) -> Tensor:
        """The same method of every part, on its share of the points."""
        shares = zip(*(self.split(p) for p in points), strict=True)
        return self.join(*(getattr(s, method)(*share) for s, share in zip(self.sets, shares, strict=True)))

    def _project(self, x: Tensor) -> Tensor:
        return self._map("_project", x)

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        both = [s.residuals(p) for s, p in zip(self.sets, self.split(x), strict=True)]
        return torch.cat([b[0] for b in both], -1), torch.cat([b[1] for b in both], -1)

    def _violation(self, x: Tensor) -> Tensor:
        parts = [s.violation(p) for s, p in zip(self.sets, self.split(x), strict=True)]
        return torch.stack(torch.broadcast_tensors(*parts)).sum(0)

    def _contains(self, x: Tensor, tol: float | None) -> Tensor:
        """Every part contains its share."""
        shares = [s.contains(p, tol) for s, p in zip(self.sets, self.split(x), strict=True)]
        return torch.stack(torch.broadcast_tensors(*shares)).all(0)

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        return self._map("tangent", x, v)

    def _rows(self, method: str, *points: Tensor) -> Tensor:
        """One number per part and point, (*batch, parts), by the same method of every part."""
        shares = zip(*(self.split(p) for p in points), strict=True)
        rows = [getattr(s, method)(*share) for s, share in zip(self.sets, shares, strict=True)]
        return torch.stack(torch.broadcast_tensors(*rows), -1)

    def _inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        return self._rows("_inner", x, u, v).sum(-1)

    def _gradient(self, x: Tensor, g: Tensor) -> Tensor:
        return self._map("_gradient", x, g)

    def _transport(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        return self._map("_transport", x, y, v)

    def _random_tangent(self, x: Tensor, noise: Tensor) -> Tensor:
        return self._map("_random_tangent", x, noise)

    def _uniqueness_margin(self, x: Tensor) -> Tensor:
        return torch.stack([s.uniqueness_margin(p) for s, p in zip(self.sets, self.split(x), strict=True)]).amin(0)

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return self.join(*(s.sample(*batch, generator=generator, dtype=dtype, device=device) for s in self.sets))

    def __repr__(self) -> str:
        return f"Product({', '.join(map(repr, self.sets))})"


class ProductManifold(Product, Manifold):
    """A product of manifolds."""

    def __init__(self, *sets: Manifold):
        super().__init__(*sets)
        self.dim = sum(s.dim for s in sets)

    def _exp(self, x: Tensor, v: Tensor) -> Tensor:
        return self._map("_exp", x, v)

    def _log(self, x: Tensor, y: Tensor) -> Tensor:
        return self._map("_log", x, y)

    def _geodesic_distance(self, x: Tensor, y: Tensor) -> Tensor:
        return norm(self._rows("_geodesic_distance", x, y))

    def _log_volume(self, x: Tensor, v: Tensor) -> Tensor:
        return self._rows("_log_volume", x, v).sum(-1)

    def _refine(self, x: Tensor) -> Tensor:
        return self._map("_refine", x)

    def origin(self, like: Tensor) -> Tensor:
        return self.join(*(s.origin(like) for s in self.sets))


class ProductGroup(ProductManifold, LieGroup):
    """A product of Lie groups."""

    def _coordinates(self, c: Tensor) -> tuple[Tensor, ...]:
        return c.split([s.dim for s in self.sets], -1)

    def hat(self, c: Tensor) -> Tensor:
        return self.join(*(s.hat(e) for s, e in zip(self.sets, self._coordinates(c), strict=True)))

    def vee(self, A: Tensor) -> Tensor:
        return torch.cat([s.vee(p) for s, p in zip(self.sets, self.split(A), strict=True)], -1)

    def _group_exp(self, c: Tensor) -> Tensor:
        return self.join(*(s._group_exp(e) for s, e in zip(self.sets, self._coordinates(c), strict=True)))

    def _group_log(self, g: Tensor) -> Tensor:
        return torch.cat([s._group_log(p) for s, p in zip(self.sets, self.split(g), strict=True)], -1)

    def _compose(self, g: Tensor, h: Tensor) -> Tensor:
        return self._map("_compose", g, h)

    def _inverse(self, g: Tensor) -> Tensor:
        return self._map("_inverse", g)
