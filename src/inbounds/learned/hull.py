"""`Hull`: the convex hull of samples in the plane or in space, as a list of facets."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..extras import needed_for
from .facets import Polyhedral, turned


class Hull(Polyhedral):
    """conv(samples) in R^2 or R^3 and what is nearer to it than `margin`; the hull itself is {y : normals y <= offsets}."""

    method = "hull"
    reach = math.inf
    offsets: Tensor
    KNOWN = 4096  # points inside

    def __init__(self, facets: Tensor, normals: Tensor, offsets: Tensor, margin: float = 0.0):
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
        super().__init__(facets, normals, margin)
        self._constant("offsets", offsets.double())

    @classmethod
    def fit(cls, samples: Tensor) -> Hull:
        """The convex hull of samples (N, d), d = 2 or 3, not all of them on a line or in a plane."""
        x = checked(samples)
        hull = _qhull(x)
        corners = x[torch.as_tensor(hull.simplices, dtype=torch.int64)]  # (F, d, d)
        normals = torch.as_tensor(hull.equations[:, :-1])
        hull_points = x[torch.as_tensor(hull.vertices, dtype=torch.int64)]
        levels = [
            (n @ hull_points.mT).amax(1) for n in normals.split(cls.FACETS)
        ]  # qhull's own may leave a sample out by rounding
        return cls(turned(corners, normals), normals, torch.cat(levels))

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

    # --- to disk and back --------------------------------------------------------------------------------
    def tensors(self) -> dict[str, Tensor]:
        return {k: getattr(self, k) for k in ("facets", "normals", "offsets")}


def checked(samples: Tensor, name: str = "Hull") -> Tensor:
    """Samples (N, d), d = 2 or 3, in float64 on the CPU; raise unless they are finite and span R^d."""
    if not isinstance(samples, Tensor) or not samples.dtype.is_floating_point:
        kind = samples.dtype if isinstance(samples, Tensor) else type(samples).__name__
        raise TypeError(f"{name}.fit asked for a floating point tensor, got {kind}. Write torch.as_tensor(x).double().")
    if samples.dim() != 2 or samples.shape[1] not in (2, 3):
        raise ValueError(
            f"{name}.fit asked for samples of shape (N, 2) or (N, 3), got {tuple(samples.shape)}. "
            f"Reduce the dimension first: x @ basis, with basis (d, 2) or (d, 3)."
        )
    x = samples.detach().cpu().double()
    if not torch.isfinite(x).all():
        bad = int((~torch.isfinite(x)).any(1).sum())
        raise ValueError(
            f"{name}.fit asked for finite samples, but {bad} of {len(x)} rows hold NaN or inf. Drop them: x[x.isfinite().all(1)]."
        )
    _require_volume(x, name)
    return x


def _require_volume(x: Tensor, name: str) -> None:
    """Raise unless x (N, d) spans all d dimensions beyond rounding."""
    n, d = x.shape
    s = torch.linalg.svdvals(x - x.mean(0)) if n else x.new_zeros(0)
    room = 64 * torch.finfo(x.dtype).eps * float(x.abs().max()) * math.sqrt(n) if n else 0.0
    spanned = int((s > room).sum())
    if spanned < d:
        line = "They are on a line: write ib.Box([low], [high]) for the coordinate along it."
        plane = f"They are in a plane: write {name}.fit(x @ basis), with basis (3, 2) of that plane."
        fix = {0: "They are one point: add others.", 1: line, 2: plane}[spanned]
        raise ValueError(
            f"{name}.fit asked for {d + 1} or more points that span R^{d}, got {n} that span {spanned} of {d} dimensions. {fix}"
        )


def _qhull(x: Tensor):
    with needed_for("Fitting a convex hull"):
        from scipy.spatial import ConvexHull, QhullError
    try:
        return ConvexHull(x.numpy())
    except QhullError as error:
        raise flat("Hull", x, error) from None


def flat(name: str, x: Tensor, error: Exception) -> ValueError:
    """What to say of samples that qhull finds flat."""
    return ValueError(
        f"{name}.fit asked for points that span R^{x.shape[1]}, got {len(x)} that are flat up to rounding "
        f"({str(error).splitlines()[0]}). Reduce the dimension first: x @ basis."
    )
