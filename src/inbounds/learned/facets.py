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
from .base import EPS, FAR, LearnedSet, misfit


class Polyhedral(LearnedSet):
    """All points of R^2 or R^3 that are at most `margin` away from a region R between facets.

    facets: (F, d, d), the corners of each; normals: (F, d), unit vectors that point out of R.
    P(y) = y inside, else p + margin (y - p) / |y - p| with p the nearest point of the nearest segment or triangle: all points of
    the way from y to p have the same p, so that P(y) is the nearest point of the wider region, too.
    """

    facets: Tensor
    normals: Tensor
    centre: Tensor
    directions: Tensor
    offs: Tensor
    lengths: Tensor
    ROWS, FACETS = 256, 512  # compared at once: bounds the memory

    def __init__(self, margin: float, **tensors: Tensor):
        super().__init__(tensors["facets"].shape[-1:])
        kind, d = type(self).__name__, math.prod(self.shape)
        if misfit(self.sizes, tensors) or d not in (2, 3):
            wanted = ", ".join(f"{name} ({', '.join(letters)})" for name, letters in self.sizes.items())
            got = ", ".join(str(tuple(t.shape)) for t in tensors.values())
            raise ValueError(f"{kind} asked for {wanted} with d = 2 or 3, got {got}. Write {kind}.fit(samples).")
        for name, t in tensors.items():
            self._constant(name, t.double())
        self.margin, corners = float(margin), self.facets.flatten(0, 1)
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
        d = self.shape[0]
        e = self.facets[:, 1:] - self.facets[:, :1]
        areas = norm(e[:, 0]) if d == 2 else norm(torch.linalg.cross(e[:, 0], e[:, 1])) / 2
        heights = (self.normals * (self.facets[:, 0] - self.facets.mean((0, 1)))).sum(-1)
        area, volume = areas.sum(), (areas * heights).sum() / d  # by the divergence theorem
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

    def depth(self, z: Tensor) -> Tensor:
        """(rows,): the distance from the facets."""
        y, p = self._pulled(z)
        return norm(y - p)

    def _land(self, z: Tensor) -> Tensor:
        """The nearest point for z outside of R."""
        y, p = self._pulled(z)
        if not self.margin:
            return p
        return torch.where(self._near(y, p)[:, None], z, p + self.margin * unit(y - p))

    def _pulled(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """z itself, or the point of its ray at FAR sizes of the region; and the nearest point on the facets."""
        y = pulled_in(z, FAR * self.size, self.centre)
        nearest = torch.cat([self._nearest(rows) for rows in y.detach().split(self.ROWS)])
        return y, foot(y, self.facets[nearest], self.normals[nearest])

    def _near(self, y: Tensor, p: Tensor) -> Tensor:
        """Whether y lies within the margin of p, to rounding: what was put on the boundary stays there."""
        return norm((y - p).detach()) <= self.margin + self.rounding

    def _nearest(self, y: Tensor) -> Tensor:
        """(rows,): which facet is nearest."""
        parts = [self._squares(y, slice(i, i + self.FACETS)).min(-1) for i in range(0, len(self.facets), self.FACETS)]
        part = torch.stack([p.values for p in parts]).argmin(0)
        return part * self.FACETS + torch.stack([p.indices for p in parts]).gather(0, part[None])[0]

    def _squares(self, y: Tensor, part: slice) -> Tensor:
        """(rows, facets): squared distances, in coordinates of the facets: height, and along and across each edge."""
        height, *ways = [y @ way[part].mT - off[part] for way, off in zip(self.directions, self.offs, strict=True)]
        beyond, least = torch.full_like(height, -math.inf), torch.full_like(height, math.inf)
        edges = len(self.lengths)
        for along, across, length in zip(ways[:edges], ways[edges:], self.lengths, strict=True):
            over = along - along.clamp(min=0).minimum(length[part])
            least = torch.minimum(least, over.square() + across.square())
            beyond = torch.maximum(beyond, across)
        return height.square() + torch.where(beyond < 0, 0.0, least)

    def _tangent(self, x, v):
        """DP(x + s v) v for a small s: near x the region is its tangent cone C, and P_C is linear along rays.

        |s v| is sqrt(eps) sizes of the region: a face that is nearer to x counts as one that x is on.
        """
        step = math.sqrt(torch.finfo(x.dtype).eps) * self.size
        return torch.func.jvp(self._project, (x.detach() + step * unit(v.detach()),), (v,))[1]

    def spec(self) -> dict[str, Any]:
        return {"margin": self.margin}

    def extra_repr(self):
        return f"{self.shape[0]}, facets={len(self.facets)}" + f", margin={self.margin:.3g}" * bool(self.margin)


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
    """Coordinates of points relative to each facet: direction . y - off, with directions (ways, F, d) and offs (ways, F).

    The ways are that of the normal, those along each edge, from its first corner, and those across each edge, in the facet's
    plane, outwards (0 in R^2). lengths: (edges, F).
    """
    corners, edges = facets.transpose(0, 1), {2: 1, 3: 3}[facets.shape[-1]]
    a, e = corners[:edges], (corners.roll(-1, 0) - corners)[:edges]
    along = unit(e)
    across = torch.linalg.cross(along, normals.expand_as(along)) if edges == 3 else torch.zeros_like(along)
    directions = torch.cat([normals[None], along, across])
    return {"directions": directions, "offs": (directions * torch.cat([a[:1], a, a])).sum(-1), "lengths": norm(e)}
