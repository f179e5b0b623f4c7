"""`Hull`: the convex hull of samples in the plane or in space, as a list of facets."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..extras import needed_for
from .facets import Polyhedral


class Hull(Polyhedral):
    """conv(samples) in R^2 or R^3 and what is nearer to it than `margin`; the hull itself is {y : normals y <= offsets}."""

    method = "hull"
    reach = math.inf
    offsets: Tensor
    sizes: ClassVar = {"facets": "Fdd", "normals": "Fd", "offsets": "F"}
    KNOWN = 4096  # points inside

    def __init__(self, facets: Tensor, normals: Tensor, offsets: Tensor, margin: float = 0.0):
        super().__init__(margin, facets=facets, normals=normals, offsets=offsets)

    @classmethod
    def fit(cls, samples: Tensor) -> Hull:
        """The convex hull of samples (N, d), d = 2 or 3, not all of them on a line or in a plane."""
        x = checked(samples)
        hull = qhull("Hull", x)
        normals = torch.as_tensor(hull.equations[:, :-1])
        tips = x[torch.as_tensor(hull.vertices, dtype=torch.int64)]
        # qhull's own offsets may leave a sample out by rounding
        offsets = torch.cat([(n @ tips.mT).amax(1) for n in normals.split(cls.FACETS)])
        return cls(turned(x[torch.as_tensor(hull.simplices, dtype=torch.int64)], normals), normals, offsets)

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

    def outside(self, z):
        """Whether an inequality fails."""
        over = [(rows @ self.normals.mT - self.offsets).amax(-1) for rows in z.split(self.ROWS * 16)]
        return torch.cat(over) > self.rounding


def turned(corners: Tensor, normals: Tensor) -> Tensor:
    """Triangles with their corners counterclockwise, seen from outside."""
    if corners.shape[-1] == 2:
        return corners
    a, b, c = corners.unbind(1)
    wrong = (torch.linalg.cross(b - a, c - a) * normals).sum(-1) < 0
    return torch.where(wrong[:, None, None], corners[:, [0, 2, 1]], corners)


def checked(samples: Tensor, name: str = "Hull") -> Tensor:
    """Samples (N, d), d = 2 or 3, in float64 on the CPU; raise unless they are finite and span R^d beyond rounding."""
    if not isinstance(samples, Tensor) or not samples.dtype.is_floating_point:
        kind = samples.dtype if isinstance(samples, Tensor) else type(samples).__name__
        raise TypeError(f"{name}.fit asked for a floating point tensor, got {kind}. Write torch.as_tensor(x).double().")
    if samples.dim() != 2 or samples.shape[1] not in (2, 3):
        raise ValueError(
            f"{name}.fit asked for samples of shape (N, 2) or (N, 3), got {tuple(samples.shape)}. "
            f"Reduce the dimension first: x @ basis, with basis (d, 2) or (d, 3)."
        )
    x = samples.detach().cpu().double()
    bad = int((~torch.isfinite(x)).any(1).sum())
    if bad:
        raise ValueError(
            f"{name}.fit asked for finite samples, but {bad} of {len(x)} rows hold NaN or inf. Drop them: x[x.isfinite().all(1)]."
        )
    spanned = _spanned(x) if len(x) else 0
    if spanned < x.shape[1]:
        fix = (
            "They are one point: add others.",
            "They are on a line: write ib.Box([low], [high]) for the coordinate along it.",
            f"They are in a plane: write {name}.fit(x @ basis), with basis (3, 2) of that plane.",
        )[spanned]
        raise ValueError(
            f"{name}.fit asked for {x.shape[1] + 1} or more points that span R^{x.shape[1]}, got {len(x)} that span {spanned} of "
            f"{x.shape[1]} dimensions. {fix}"
        )
    return x


def _spanned(x: Tensor) -> int:
    """In how many dimensions the samples are spread by more than rounding."""
    rounding = 64 * torch.finfo(x.dtype).eps * float(x.abs().max()) * math.sqrt(len(x))
    return int((torch.linalg.svdvals(x - x.mean(0)) > rounding).sum())


def qhull(name: str, x: Tensor) -> Any:
    """What qhull finds for a set of that name: the convex hull of the samples x, or their Delaunay triangulation."""
    with needed_for("Fitting a convex hull or an alpha shape"):
        from scipy.spatial import ConvexHull, Delaunay, QhullError
    try:
        return {"Hull": ConvexHull, "AlphaShape": Delaunay}[name](x.numpy())
    except QhullError as error:
        raise ValueError(
            f"{name}.fit asked for points that span R^{x.shape[1]}, got {len(x)} that are flat up to rounding "
            f"({str(error).splitlines()[0]}). Reduce the dimension first: x @ basis."
        ) from None
