"""Every set the tests run over; enrolling a new one is one line."""

import math

import torch
from torch import nn

import inbounds as ib
from inbounds.learned.hull import Hull

PLANE = ([0.0, 0.0], [4.0, 3.0])
RECT = ([[1, 1], [2.2, 1.9], [3.1, 0.9]], [0.5, 0.55, 0.45])
OVERLAP = ([[1.2, 1.9], [1.7, 1.1], [3, 0.45]], [0.6, 0.55, 0.6])

SETS = {
    "Euclidean(3)": lambda: ib.Euclidean(3),
    "Euclidean(2, 3)": lambda: ib.Euclidean(2, 3),
    "Sphere(3)": lambda: ib.Sphere(3),
    "Sphere(4, radius=2.5)": lambda: ib.Sphere(4, radius=2.5),
    "Ball(2)": lambda: ib.Ball(2),
    "Ball(3), off centre": lambda: ib.Ball(3, radius=0.5, center=[1.0, 2.0, -3.0]),
    "Box": lambda: ib.Box([0.0, -1.0, -math.inf], [1.0, math.inf, 2.0]),
    "Simplex(5)": lambda: ib.Simplex(5),
    "Simplex(5, total=2.5)": lambda: ib.Simplex(5, total=2.5),
    "CappedSimplex": lambda: ib.CappedSimplex(5, [0.1, 0.2, 0.3, 0.4, 0.5], total=0.8),
    "Ellipsoid": lambda: ib.Ellipsoid([1.0, 2.0, 3.0], center=[0.5, 0.0, 0.0]),
    "Halfspace": lambda: ib.Halfspace([1.0, 2.0, -1.0], 0.5),
    "Affine": lambda: ib.Affine([[1.0, 1, 1, 1], [0, 1, 2, 3], [1, 2, 3, 4]], [1.0, 2.0, 3.0]),
    "SecondOrderCone(4)": lambda: ib.SecondOrderCone(4),
    "SO(2)": lambda: ib.SO(2),
    "SO(3)": lambda: ib.SO(3),
    "SO(4)": lambda: ib.SO(4),
    "SE(2)": lambda: ib.SE(2),
    "SE(3)": lambda: ib.SE(3),
    "SE(4)": lambda: ib.SE(4),
    "Stiefel(5, 2)": lambda: ib.Stiefel(5, 2),
    "Stiefel(3, 3)": lambda: ib.Stiefel(3, 3),
    "Hyperboloid(3)": lambda: ib.Hyperboloid(3),
    "Hyperboloid(4, curvature=-0.25)": lambda: ib.Hyperboloid(4, curvature=-0.25),
    "PSD(3)": lambda: ib.PSD(3),
    "PSD(3, minimum=0.1)": lambda: ib.PSD(3, minimum=0.1),
    "FixedTracePSD(3)": lambda: ib.FixedTracePSD(3, trace=2.0),
    "BoxMinusBalls, disjoint": lambda: ib.BoxMinusBalls(*PLANE, *RECT),
    "BoxMinusBalls, overlapping": lambda: ib.BoxMinusBalls(*PLANE, *OVERLAP),
    "BoxMinusBalls in 3D": lambda: ib.BoxMinusBalls([0.0] * 3, [1.0] * 3, [[0.3, 0.3, 0.3], [0.7, 0.7, 0.7]], [0.2, 0.25]),
    "SphereMinusCaps, disjoint": lambda: ib.SphereMinusCaps([[1.0, 0, 0], [0, 0, 1.0]], [0.6, 0.5]),
    "SphereMinusCaps, overlapping": lambda: ib.SphereMinusCaps([[1.0, 0, 0], [0.8, 0.6, 0], [0, 0, -2.0]], [0.6, 0.5, 1.7]),
    "SphereMinusCaps in 4D": lambda: ib.SphereMinusCaps([[1.0, 0, 0, 0], [0, 0, 0, 1.0]], [0.6, 0.5]),
    "Product, group": lambda: ib.Product(ib.SO(2), ib.Euclidean(3)),
    "Product, manifold": lambda: ib.Product(ib.Sphere(3), ib.SO(2)),
    "Product, two metrics": lambda: ib.Product(ib.Hyperboloid(3), ib.Sphere(3)),
    "Product, set": lambda: ib.Product(ib.Sphere(3), ib.Ball(2)),
}
# sets whose projection needs no SVD and no eigenvectors
CLOSED_FORM = [n for n in SETS if not any(w in n for w in ("Affine", "SO(4)", "SE(4)", "Stiefel", "PSD"))]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def torus(p):
    return ((p[:2] @ p[:2]).sqrt() - 2) ** 2 + p[2] ** 2 - 0.25


def cut_ellipsoid(p):
    return torch.stack([(p * p / p.new_tensor([1.0, 4.0, 9.0])).sum() - 1, p.sum() - 1])


def fitted_circle():
    return ib.fit(nn.functional.normalize(draw(200, 2, seed=1), dim=1))


def fitted_square():
    return Hull.fit(torch.rand(400, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64))


FACES = (draw(12, 4), draw(12, seed=1).abs() + 0.2)
# Sets that a solver projects on. The same laws hold for them, at fewer points: a point costs 0.1 to 2 ms of CPU time and not a
# microsecond, so that 100,000 of them would take hours.
POLYHEDRA = {
    "Polytope": lambda: ib.Polytope(*FACES),
    "Polytope, equalities": lambda: ib.Polytope(*FACES, E=[[1.0, 1, 1, 1], [2, 2, 2, 2]], f=[0.1, 0.2], low=[-3.0] * 4),
    "Polytope, one equality": lambda: ib.Polytope(*FACES, E=[[1.0, 1, 1, 1]], f=[0.1]),
    "Polytope, bounds": lambda: ib.Polytope(low=[0.0, 0, -math.inf], high=[1.0, math.inf, 2.0]),
    "Polytope, weight": lambda: ib.Polytope(
        FACES[0][:, :3], FACES[1], weight=[[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 4.0]]
    ),
    "Halfspaces": lambda: ib.Halfspaces([[1.0, 0], [0, 1], [1, 1]], [1.0, 1, 1.5]),
    "Box and Affine": lambda: ib.Intersection(ib.Box([-1.0] * 4, [0.6] * 4), ib.Affine([[1.0, 1, 1, 1]], [0.5])),
    "CappedSimplex and Halfspace": lambda: ib.Intersection(ib.CappedSimplex(4, 0.5), ib.Halfspace([1.0, 1, 0, 0], 0.6)),
    "fitted square and Affine": lambda: ib.Intersection(fitted_square(), ib.Affine([[1.0, 1.0]], [0.8])),
}
CURVED = {
    "Correlation(3)": lambda: ib.Correlation(3),
    "Implicit, torus": lambda: ib.Implicit(3, eq=torus),
    "Implicit, ellipsoid and half-space": lambda: ib.Implicit(3, ineq=cut_ellipsoid),
    "Ball and Halfspace": lambda: ib.Intersection(ib.Ball(3), ib.Halfspace([1.0, 1, 0], 0.5)),
    "Ball and Affine": lambda: ib.Intersection(ib.Ball(3), ib.Affine([[1.0, 1, 1]], [0.5])),
    "circle and Halfspace": lambda: ib.Intersection(ib.Sphere(2), ib.Halfspace([1.0, 0], 0.2)),
    "fitted circle and Halfspace": lambda: ib.Intersection(fitted_circle(), ib.Halfspace([1.0, 0], 0.2)),
}
SOLVED = POLYHEDRA | CURVED
DEAR = "fitted circle and Halfspace"  # p - P(p) of a fitted set, its derivatives included: five times the cost of any other one


def hard_points(M: ib.ConstraintSet, count: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Noise at every scale, with zeros, axes, points of M, their antipodes, boundary points, obstacle centres, rank-one and
    det < 0 matrices, and huge and tiny multiples of all of them."""
    g = torch.Generator().manual_seed(seed)

    def draw(n):
        return torch.randn(n, *M.shape, generator=g, dtype=dtype)

    n = count // 16
    noise, p = draw(4 * n), M.sample(n, generator=g, dtype=dtype)
    edge = M.project(3 * draw(n))
    kinds = [noise, p, -p, edge, edge + 1e-6 * draw(n), 0 * p, _special(M, p, g), 1e20 * draw(n), 1e-20 * draw(n)]
    kinds += [1e20 * p, 1e-20 * p, p.round(), _axes(M, n, dtype)]
    x = torch.cat(kinds)
    return torch.cat([x, draw(count - len(x))])


def _axes(M, n, dtype):
    size = math.prod(M.shape)
    return (torch.eye(size, dtype=dtype) * 2 - 1e-3).repeat(n // size + 1, 1)[:n].reshape(n, *M.shape)


def _special(M, p, g):
    """Rank one and det < 0 for matrices; obstacle centres and points near them for free space."""
    n = len(p)
    if isinstance(M, ib.BoxMinusBalls | ib.SphereMinusCaps):
        c = M.centers.to(p.dtype)
        return (
            c.repeat(n // len(c) + 1, 1)[:n]
            + 1e-7 * torch.randn(n, 1, generator=g, dtype=p.dtype) * (torch.arange(n) % 2)[:, None]
        )
    if len(M.shape) < 2:
        return p.flip(-1)
    a, b = M.shape
    u, v = (torch.randn(n, k, 1, generator=g, dtype=p.dtype) for k in (a, b))
    flipped = torch.cat([-p[..., :1], p[..., 1:]], -1)
    return torch.where((torch.arange(n) % 2 == 0)[:, None, None], u @ v.mT, flipped)
