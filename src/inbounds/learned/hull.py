"""`Hull`: the convex hull of samples in the plane or in space, as a list of facets."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..core import skin
from ..extras import needed_for
from ..kernels.derivative import eager
from ..kernels.vectors import norm, pulled_in, unit
from .base import EPS, FAR, LearnedSet


class Hull(LearnedSet):
    """conv(samples) in R^2 or R^3. P(y) = y inside, else the nearest point of the nearest segment or triangle.

    facets: (F, d, d), the corners of each; normals (F, d) and offsets (F,): the hull is {y : normals y <= offsets}.
    P is piecewise affine: its derivative is 1 inside, and outside the projection on the face, the edge or the corner met.
    """

    method = "hull"
    reach = math.inf
    facets: Tensor
    normals: Tensor
    offsets: Tensor
    centre: Tensor
    levels: Tensor
    along: Tensor
    along_at: Tensor
    across: Tensor
    across_at: Tensor
    lengths: Tensor
    ROWS, FACETS = 256, 512  # compared at once: bounds the memory
    KNOWN = 4096  # points inside

    def __init__(self, facets: Tensor, normals: Tensor, offsets: Tensor):
        super().__init__((facets.shape[-1],))
        d = facets.shape[-1]
        if (
            d not in (2, 3)
            or facets.shape[1:] != (d, d)
            or normals.shape != facets.shape[:2]
            or offsets.shape != normals.shape[:1]
        ):
            raise ValueError(
                f"Hull asked for facets (F, d, d), normals (F, d) and offsets (F,) with d = 2 or 3, got {tuple(facets.shape)}, "
                f"{tuple(normals.shape)} and {tuple(offsets.shape)}. Write Hull.fit(samples)."
            )
        self._constant("facets", facets.double())
        self._constant("normals", normals.double())
        self._constant("offsets", offsets.double())
        corners = self.facets.reshape(-1, d)
        self._constant("centre", (corners.amin(0) + corners.amax(0)) / 2)
        self.size = float(norm(corners - self.centre).max())
        self.rounding = 2 * skin(corners, d) * float(norm(corners).max())
        for name, value in _frames(self.facets, self.normals).items():
            self._constant(name, value)

    @classmethod
    def fit(cls, samples: Tensor) -> Hull:
        """The convex hull of samples (N, d), d = 2 or 3, not all of them on a line or in a plane."""
        x = _checked(samples)
        hull = _qhull(x)
        corners = x[torch.as_tensor(hull.simplices, dtype=torch.int64)]  # (F, d, d)
        normals = torch.as_tensor(hull.equations[:, :-1])
        hull_points = x[torch.as_tensor(hull.vertices, dtype=torch.int64)]
        levels = [
            (n @ hull_points.mT).amax(1) for n in normals.split(cls.FACETS)
        ]  # qhull's own may leave a sample out by rounding
        return cls(_turned(corners, normals), normals, torch.cat(levels))

    # --- the projection ----------------------------------------------------------------------------------
    def foot(self, z, eps=EPS):
        out = self._outside(z.detach())
        if not eager():
            return torch.where(out[:, None], self._land(z), z)
        rows = out.nonzero()[:, 0]
        return z.index_put((rows,), self._land(z[rows]))

    def known(self):
        """Points inside and corners."""
        inside = self.draw(self.KNOWN, torch.Generator(self.facets.device).manual_seed(0))
        return torch.cat([inside, self.facets.flatten(0, 1).unique(dim=0)])

    def draw(self, n, generator):
        """Uniform: a simplex between the middle and a facet, by volume, then weights of its corners."""
        middle = self.facets.mean((0, 1))
        volumes = torch.linalg.det(self.facets - middle).abs().cumsum(0)
        F, d = len(self.facets), self.shape[0]
        u = torch.rand(n, generator=generator, dtype=volumes.dtype, device=volumes.device)
        which = torch.searchsorted(volumes, u * volumes[-1], right=True).clamp(max=F - 1)
        w = torch.empty(n, d + 1, dtype=u.dtype, device=u.device).exponential_(generator=generator)
        w = w / w.sum(1, keepdim=True)
        return self.foot(w[:, :1] * middle + (w[:, 1:, None] * self.facets[which]).sum(1))

    def trusted(self, z, y):
        return torch.ones_like(z[:, 0], dtype=torch.bool)

    def _outside(self, z: Tensor) -> Tensor:
        """(rows,): whether an inequality fails by more than its rounding."""
        over = [(rows @ self.normals.mT - self.offsets).amax(-1) for rows in z.split(self.ROWS * 16)]
        return torch.cat(over) > self.rounding

    def _land(self, z: Tensor) -> Tensor:
        """The nearest point of the boundary."""
        y = pulled_in(z, FAR * self.size, self.centre)
        nearest = torch.cat([self._nearest(rows) for rows in y.detach().split(self.ROWS)])
        return foot(y, self.facets[nearest], self.normals[nearest])

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
        """DP(x + s v) v for a small s: near x a polytope is its tangent cone C, and P_C is linear along rays.

        |s v| is sqrt(eps) sizes of the hull: a face that is nearer to x counts as one that x is on.
        """
        step = math.sqrt(torch.finfo(x.dtype).eps) * self.size
        return torch.func.jvp(self._project, (x.detach() + step * unit(v.detach()),), (v,))[1]

    # --- to disk and back --------------------------------------------------------------------------------
    def tensors(self) -> dict[str, Tensor]:
        return {k: getattr(self, k) for k in ("facets", "normals", "offsets")}

    def spec(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_parts(cls, tensors, spec):
        return cls(**tensors, **spec)

    def extra_repr(self):
        return f"{self.shape[0]}, facets={len(self.facets)}"


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


def _turned(corners: Tensor, normals: Tensor) -> Tensor:
    """Triangles with their corners counterclockwise, seen from outside."""
    if corners.shape[-1] == 2:
        return corners
    a, b, c = corners.unbind(1)
    wrong = (torch.linalg.cross(b - a, c - a) * normals).sum(-1) < 0
    return torch.where(wrong[:, None, None], corners[:, [0, 2, 1]], corners)


def _checked(samples: Tensor) -> Tensor:
    if not isinstance(samples, Tensor) or not samples.dtype.is_floating_point:
        kind = samples.dtype if isinstance(samples, Tensor) else type(samples).__name__
        raise TypeError(f"Hull.fit asked for a floating point tensor, got {kind}. Write torch.as_tensor(x).double().")
    if samples.dim() != 2 or samples.shape[1] not in (2, 3):
        raise ValueError(
            f"Hull.fit asked for samples of shape (N, 2) or (N, 3), got {tuple(samples.shape)}. "
            f"Reduce the dimension first: x @ basis, with basis (d, 2) or (d, 3)."
        )
    x = samples.detach().cpu().double()
    if not torch.isfinite(x).all():
        bad = int((~torch.isfinite(x)).any(1).sum())
        raise ValueError(
            f"Hull.fit asked for finite samples, but {bad} of {len(x)} rows hold NaN or inf. Drop them: x[x.isfinite().all(1)]."
        )
    _require_volume(x)
    return x


def _require_volume(x: Tensor) -> None:
    """Raise unless x (N, d) spans all d dimensions beyond rounding."""
    n, d = x.shape
    s = torch.linalg.svdvals(x - x.mean(0)) if n else x.new_zeros(0)
    room = 64 * torch.finfo(x.dtype).eps * float(x.abs().max()) * math.sqrt(n) if n else 0.0
    spanned = int((s > room).sum())
    if spanned < d:
        line = "They are on a line: write ib.Box([low], [high]) for the coordinate along it."
        plane = "They are in a plane: write Hull.fit(x @ basis), with basis (3, 2) of that plane."
        fix = {0: "They are one point: add others.", 1: line, 2: plane}[spanned]
        raise ValueError(
            f"Hull.fit asked for {d + 1} or more points that span R^{d}, got {n} that span {spanned} of {d} dimensions. {fix}"
        )


def _qhull(x: Tensor):
    with needed_for("Fitting a convex hull"):
        from scipy.spatial import ConvexHull, QhullError
    try:
        return ConvexHull(x.numpy())
    except QhullError as error:
        raise ValueError(
            f"Hull.fit asked for points that span R^{x.shape[1]}, got {len(x)} that are flat up to rounding "
            f"({str(error).splitlines()[0]}). Reduce the dimension first: x @ basis."
        ) from None
