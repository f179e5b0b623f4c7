"""`AlphaShape`: a region of the plane or of space that need not be convex, from the triangles between neighbouring samples."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from ..extras import needed_for
from .facets import Polyhedral
from .graphs import LOCAL, kd_tree, neighbours
from .hull import checked, qhull
from .thresholds import LEVEL

MOST = 20_000  # samples whose triangulation is looked at
WIDER = (math.inf, 2.5, 1.5)  # times the radius that chance leaves empty: balls of simplices that are looked at piece by piece
INSIDE = 4  # points of a simplex that are asked for the room around them


class AlphaShape(Polyhedral):
    """The union of the Delaunay simplices of samples in R^2 or R^3 between which there is no more room than chance leaves.

    Around N uniform samples, the number that a circumscribed ball should have held is a Gamma(d) variable. A ball is too large if
    it is above the bound that all balls of a full region keep with a probability of 95 %; the density is that of the corners'
    tenth neighbours, by their median: an outlier's own are far away. Simplices with smaller balls are in. Others are thin ones at
    a straight side, whose balls lie outside, or they span a hole or a bay: `filled` tells them apart.

    facets (F, d, d) and normals (F, d): the boundary, corners counterclockwise seen from outside. samples: some of the inside.
    """

    method = "alpha"
    samples: Tensor
    sizes: ClassVar = {"facets": "Fdd", "normals": "Fd", "samples": "Nd"}
    turn: Tensor
    lines: Tensor
    place: Tensor
    runs: Tensor
    planes: Tensor
    KNOWN = 4096

    def __init__(self, facets: Tensor, normals: Tensor, samples: Tensor, margin: float = 0.0):
        super().__init__(margin, facets=facets, normals=normals, samples=samples)
        for name, value in crossing_tables(self.facets, self.normals).items():
            self.register_buffer(name, value, persistent=False)

    @classmethod
    def fit(cls, samples: Tensor, stretch: float = 1.0) -> AlphaShape:
        """The shape of samples (N, d), d = 2 or 3; balls may be `stretch` times as large as chance makes them."""
        x = checked(samples, "AlphaShape")[:MOST]
        kept = filled(x, stretch)
        if not len(kept):
            raise ValueError("all simplices between the samples are emptier than chance leaves them")
        facets, normals = boundary(x, kept)
        return cls(facets, normals, x[kept.unique()[: cls.KNOWN]])

    # --- the set -----------------------------------------------------------------------------------------
    def outside(self, z):
        """Whether a ray from the point leaves the region as often as it enters it."""
        return torch.cat([self._crossings(rows) for rows in z.split(self.ROWS)]) < 0.5

    def _crossings(self, z: Tensor) -> Tensor:
        """(rows,): how often a ray from z leaves the region more than it enters it: 1 inside, 0 outside."""
        one = functional.pad(z @ self.turn, (0, 1), value=1.0)  # (rows, d + 1)
        d = z.shape[1]
        side = (torch.cat([one[:, : d - 1], one[:, d:]], 1) @ self.lines > 0)[:, self.place]  # (rows, F, d)
        left = side == self.runs
        met = left.all(-1) | ~left.any(-1)
        up = self.planes[d - 1] > 0
        ahead = (one @ self.planes < 0) == up
        return torch.where(met & ahead, torch.where(up, 1.0, -1.0), 0.0).sum(1)

    def known(self):
        return self.samples


def filled(x: Tensor, stretch: float = 1.0) -> Tensor:
    """The simplices between which chance leaves so much room, (S, d + 1) row numbers of the samples x.

    Those with small balls; then those that larger balls would add, piece by piece: a piece, which is connected by facets, is in
    if no point of it is the middle of an empty ball that should have held more than chance allows.
    """
    d, found = x.shape[1], qhull("AlphaShape", x)
    corners, beside = (torch.as_tensor(t, dtype=torch.int64) for t in (found.simplices, found.neighbors))
    usual = neighbours(x, min(LOCAL, len(x) - 1) + 1)[1][:, -1]
    held = LOCAL * (_radii(x[corners]) / usual[corners].median(1).values) ** d
    most = most_held(d, len(corners)) * stretch**d
    kept, room = held <= most, _room(x, corners, usual)
    for wider in WIDER:
        more = ~kept & (held <= most * wider**d)
        piece = _pieces(more, beside)
        widest = room.new_zeros(len(more)).scatter_reduce(0, piece, torch.where(more, room, 0.0), "amax")
        kept |= more & (widest[piece] <= most)
    return corners[kept]


def _room(x: Tensor, corners: Tensor, usual: Tensor) -> Tensor:
    """(S,): how many samples the emptiest of the balls around some points of every simplex should have held."""
    w = torch.empty(len(corners), INSIDE, corners.shape[1], dtype=x.dtype)
    w.exponential_(generator=torch.Generator().manual_seed(0))
    points = (w / w.sum(-1, keepdim=True)) @ x[corners]
    away, nearest = (torch.from_numpy(t) for t in kd_tree(x).query(points.flatten(0, 1).numpy()))
    return (LOCAL * (away / usual[nearest]) ** x.shape[1]).unflatten(0, (-1, INSIDE)).amax(1)


def _pieces(some: Tensor, beside: Tensor) -> Tensor:
    """(S,): numbers of the connected pieces that some of the simplices form; beside (S, d + 1): -1 for none."""
    with needed_for("Fitting an alpha shape"):
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

    one, side = (some[:, None] & (beside >= 0) & some[beside]).nonzero(as_tuple=True)
    joined = coo_array((torch.ones(len(one)), (one, beside[one, side])), shape=(len(some), len(some)))
    return torch.from_numpy(connected_components(joined, directed=False)[1]).long()


def most_held(d: int, balls: int) -> float:
    """t with balls P(Gamma(d) > t) = LEVEL: as many samples as the emptiest of so many balls should have held, by chance."""
    with needed_for("Fitting an alpha shape"):
        from scipy.special import gammainccinv
    return float(gammainccinv(d, LEVEL / balls))


def crossing_tables(facets: Tensor, normals: Tensor) -> dict[str, Tensor]:
    """What it takes to count the facets that a ray meets: the ray runs along the last axis of the frame `turn`.

    lines (d, E): functions of the other coordinates whose sign tells on which side of an edge (in the plane, of a corner) the ray
    passes, decided once for both facets of the edge, so that no ray slips between them; place (F, d): the edges of a facet;
    runs (F, d): whether they run as the facet's corners do; planes (d + 1, F): positive outside of a facet's plane.
    """
    d = facets.shape[-1]
    some = torch.randn(d, d, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    turn = torch.linalg.qr(some).Q.to(facets.device)  # aligned with nothing in particular
    corners, which = facets.reshape(-1, d).unique(dim=0, return_inverse=True)
    faces = which.reshape(-1, d)
    u, n = corners @ turn, normals @ turn
    planes = torch.cat([n, -(n * u[faces[:, 0]]).sum(-1, keepdim=True)], 1).mT
    ends = torch.stack([faces, faces.roll(-1, 1)], -1) if d == 3 else faces[..., None]  # (F, 3, 2) or (F, 2, 1)
    edges, place = ends.sort(-1).values.flatten(0, 1).unique(dim=0, return_inverse=True)
    place = place.reshape(-1, d)
    runs = ends[..., 0] == edges[place][..., 0]
    a, b = u[edges[:, 0], :-1], u[edges[:, -1], :-1]
    if d == 3:
        across = torch.stack([a[:, 1] - b[:, 1], b[:, 0] - a[:, 0]])
    else:  # a segment begins at the one corner and ends at the other
        across, runs[:, 1] = torch.ones_like(a.mT), False
    lines = torch.cat([across, -(across * a.mT).sum(0, keepdim=True)])
    return {"turn": turn, "lines": lines, "place": place, "runs": runs, "planes": planes}


def boundary(x: Tensor, simplices: Tensor) -> tuple[Tensor, Tensor]:
    """Facets (F, d, d) that one simplex alone has, and their outer normals."""
    d = x.shape[1]
    every = [[k for k in range(d + 1) if k != j] for j in range(d + 1)]
    faces = simplices[:, every].flatten(0, 1)  # (S (d + 1), d)
    opposite = simplices.flatten()
    _, which, count = faces.sort(1).values.unique(dim=0, return_inverse=True, return_counts=True)
    alone = count[which] == 1
    corners, other = x[faces[alone]], x[opposite[alone]]
    normals = _outer(corners)
    inwards = (normals * (other - corners[:, 0])).sum(-1) > 0
    corners = torch.where(inwards[:, None, None], corners.flip(1), corners)
    return corners, torch.where(inwards[:, None], -normals, normals)


def _outer(corners: Tensor) -> Tensor:
    """Unit normals, to the right of a segment; of a triangle the side from which its corners run counterclockwise."""
    a, e = corners[:, 0], corners[:, 1] - corners[:, 0]
    n = torch.stack([e[:, 1], -e[:, 0]], 1) if corners.shape[-1] == 2 else torch.linalg.cross(e, corners[:, 2] - a)
    return n / torch.linalg.vector_norm(n, dim=1, keepdim=True).clamp(min=1e-300)


def _radii(corners: Tensor) -> Tensor:
    """Of the circumscribed balls: 2 <c - a, x_k - a> = |x_k - a|^2 for all corners x_k; inf where they are flat."""
    e = corners[:, 1:] - corners[:, :1]
    length = torch.linalg.vector_norm(e, dim=-1).amax(1)
    sound = torch.linalg.det(e / length[:, None, None]).abs() > 1e-10
    e = torch.where(sound[:, None, None], e, torch.eye(e.shape[-1], dtype=e.dtype))
    c = torch.linalg.solve(2 * e, e.square().sum(-1))
    return torch.where(sound, torch.linalg.vector_norm(c, dim=1), torch.inf)
