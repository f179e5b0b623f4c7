"""`Polyhedral`: regions of the plane and of space that are bounded by segments or triangles, and their nearest points."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, Self

import torch
from torch import Tensor

from ..core import skin
from ..kernels.derivative import eager
from ..kernels.vectors import norm, pulled_in, unit
from .base import EPS, FAR, LearnedSet


class Polyhedral(LearnedSet):
    """All points of R^2 or R^3 that are at most `margin` away from a region R between facets.

    facets: (F, d, d), the corners of each; normals: (F, d), unit vectors that point out of R.
    P(y) = y inside, else p + margin (y - p) / |y - p| with p the nearest point of the nearest segment or triangle: all points of
    the way from y to p have the same p, so that P(y) is the nearest point of the wider region, too.
    """

    facets: Tensor
    normals: Tensor
    centre: Tensor
    levels: Tensor
    along: Tensor
    along_at: Tensor
    across: Tensor
    across_at: Tensor
    lengths: Tensor
    ROWS, FACETS = 256, 512  # compared at once: bounds the memory

    def __init__(self, facets: Tensor, normals: Tensor, margin: float = 0.0):
        super().__init__((facets.shape[-1],))
        self.margin, d = float(margin), facets.shape[-1]
        self._constant("facets", facets.double())
        self._constant("normals", normals.double())
        corners = self.facets.reshape(-1, d)
        self._constant("centre", (corners.amin(0) + corners.amax(0)) / 2)
        self.size = float(norm(corners - self.centre).max())
        self.rounding = 2 * skin(corners, d) * float(norm(corners).max())
        for name, value in _frames(self.facets, self.normals).items():
            self._constant(name, value)

    @abstractmethod
    def outside(self, z: Tensor) -> Tensor:
        """(rows,): which points z (rows, d) lie outside of R, by more than rounding."""

    def widened(self, samples: int) -> Self:
        """With the margin by which R is expected to fall short of the region that so many samples come from.

        A sample lies outside of what the others make of R if it is one of R's corners (Efron 1965, for convex hulls): their share
        q of all samples is the share of the true volume that R leaves out, V q / (1 - q) with R's own volume V, and the
        margin is that over the area of R's boundary.
        """
        area, volume = measures(self.facets, self.normals)
        q = len(self.facets.flatten(0, 1).unique(dim=0)) / samples
        self.margin = float(volume * q / (area * max(1 - q, q)))  # more corners than other samples: no share to go by
        return self

    def foot(self, z, eps=EPS):
        out = self.outside(z.detach())
        if not eager():
            return torch.where(out[:, None], self._land(z), z)
        rows = out.nonzero()[:, 0]
        return z.index_put((rows,), self._land(z[rows]))

    def leaves(self, z):
        out = self.outside(z)
        if self.margin:
            out = out.index_put((out.nonzero()[:, 0],), ~self._near(*self._pulled(z[out])))
        return ~out

    def trusted(self, z, y):
        return torch.ones_like(z[:, 0], dtype=torch.bool)

    def _land(self, z: Tensor) -> Tensor:
        """The nearest point for z outside of R."""
        y, p = self._pulled(z)
        if not self.margin:
            return p
        return torch.where(self._near(y, p)[:, None], z, p + self.margin * unit(y - p))

    def _pulled(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """z itself, or the point of its ray at FAR sizes of the region; and the nearest point on the facets."""
        y = pulled_in(z, FAR * self.size, self.centre)
        nearest = [self._nearest(rows) for rows in y.detach().split(self.ROWS)]
        nearest = torch.cat(nearest) if nearest else torch.zeros(0, dtype=torch.int64)
        return y, foot(y, self.facets[nearest], self.normals[nearest])

    def _near(self, y: Tensor, p: Tensor) -> Tensor:
        """Whether y lies within the margin of p, to rounding: what was put on the boundary stays there."""
        return norm((y - p).detach()) <= self.margin + self.rounding

    def _nearest(self, y: Tensor) -> Tensor:
        """(rows,): which facet is nearest."""
        best, which = torch.full_like(y[:, 0], math.inf), torch.zeros_like(y[:, 0], dtype=torch.int64)
        for i in range(0, len(self.facets), self.FACETS):
            least, at = self._squares(y, slice(i, i + self.FACETS)).min(-1)
            which = torch.where(least < best, at + i, which)
            best = torch.minimum(best, least)
        return which

    def _squares(self, y: Tensor, part: slice) -> Tensor:
        """(rows, facets): squared distances, in coordinates of the facets: height, and along and across each edge."""
        height = y @ self.normals[part].mT - self.levels[part]
        beyond, least = torch.full_like(height, -math.inf), torch.full_like(height, math.inf)
        for k in range(len(self.lengths)):
            along = y @ self.along[k, part].mT - self.along_at[k, part]
            across = y @ self.across[k, part].mT - self.across_at[k, part]
            over = along - along.clamp(min=0).minimum(self.lengths[k, part])
            least = torch.minimum(least, over.square() + across.square())
            beyond = torch.maximum(beyond, across)
        return height.square() + torch.where(beyond < 0, 0.0, least)

    def _tangent(self, x, v):
        """DP(x + s v) v for a small s: near x the region is its tangent cone C, and P_C is linear along rays.

        |s v| is sqrt(eps) sizes of the region: a face that is nearer to x counts as one that x is on.
        """
        step = math.sqrt(torch.finfo(x.dtype).eps) * self.size
        return torch.func.jvp(self._project, (x.detach() + step * unit(v.detach()),), (v,))[1]

    # --- to disk and back; `tensors` are those of the constructor ---------------------------------------
    def spec(self) -> dict[str, Any]:
        return {"margin": self.margin}

    @classmethod
    def from_parts(cls, tensors, spec):
        return cls(**tensors, **spec)

    def extra_repr(self):
        return f"{self.shape[0]}, facets={len(self.facets)}" + f", margin={self.margin:.3g}" * bool(self.margin)


def measures(facets: Tensor, normals: Tensor) -> tuple[Tensor, Tensor]:
    """The area of the facets (their length in the plane), and the volume between them, by the divergence theorem."""
    d = facets.shape[-1]
    e = facets[:, 1:] - facets[:, :1]
    areas = norm(e[:, 0]) if d == 2 else norm(torch.linalg.cross(e[:, 0], e[:, 1])) / 2
    return areas.sum(), (areas * (normals * (facets[:, 0] - facets.mean((0, 1)))).sum(-1)).sum() / d


def foot(y: Tensor, corners: Tensor, normal: Tensor) -> Tensor:
    """The nearest point to y (*batch, d) of the segment (d = 2) or triangle (d = 3) with these corners (*batch, d, d).

    A triangle's corners run counterclockwise seen from where the unit normal points. y may broadcast against corners.
    """
    if y.shape[-1] == 2:
        a, b = corners.unbind(-2)
        return _on_segment(y, a, b - a)
    e = corners.roll(-1, -2) - corners  # (*batch, 3, 3): an edge per corner
    r = y[..., None, :] - corners
    p = _on_segment(y[..., None, :], corners, e)
    nearest = (y[..., None, :] - p).square().sum(-1, keepdim=True).argmin(-2, keepdim=True)
    edge = p.gather(-2, nearest.expand(*nearest.shape[:-1], 3))[..., 0, :]
    over = (torch.linalg.cross(normal[..., None, :].expand_as(e), e) * r).sum(-1).amin(-1, keepdim=True) >= 0
    return torch.where(over, y - normal * (normal * r[..., 0, :]).sum(-1, keepdim=True), edge)


def _on_segment(y: Tensor, a: Tensor, e: Tensor) -> Tensor:
    """a + clamp(<y - a, e>/|e|^2, 0, 1) e; a where e = 0."""
    length = e.square().sum(-1, keepdim=True)
    t = ((y - a) * e).sum(-1, keepdim=True) / torch.where(length > 0, length, 1.0)
    return a + t.clamp(0, 1) * e


def _frames(facets: Tensor, normals: Tensor) -> dict[str, Tensor]:
    """Coordinates of points relative to each facet: direction . y - offset, directions (edges, F, d), offsets (edges, F).

    `along` an edge, from its first corner; `across` it, in the facet's plane, outwards (0 in R^2); `levels`: of the facets.
    """
    a = facets.transpose(0, 1) if facets.shape[-1] == 3 else facets[None, :, 0]  # (edges, F, d)
    e = (a.roll(-1, 0) if len(a) == 3 else facets[None, :, 1]) - a
    along = unit(e)
    across = torch.linalg.cross(along, normals.expand_as(along)) if len(a) == 3 else torch.zeros_like(along)
    at = {"along_at": (along * a).sum(-1), "across_at": (across * a).sum(-1), "levels": (normals * a[0]).sum(-1)}
    return {"along": along, "across": across, "lengths": norm(e), **at}


def turned(corners: Tensor, normals: Tensor) -> Tensor:
    """Triangles with their corners counterclockwise, seen from outside."""
    if corners.shape[-1] == 2:
        return corners
    a, b, c = corners.unbind(1)
    wrong = (torch.linalg.cross(b - a, c - a) * normals).sum(-1) < 0
    return torch.where(wrong[:, None, None], corners[:, [0, 2, 1]], corners)
