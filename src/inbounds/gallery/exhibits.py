"""Which sets the gallery shows, with what noise, and how each is drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import inbounds as ib

from . import shapes
from .pictures import Cloud, Frames, Pairs


@dataclass(frozen=True)
class Exhibit:
    """kind(*args) and Gaussian noise around `center`; `note` replaces arguments too long for a table.

    `call` is the constructor's call where its arguments do not print as they are written: functions.
    """

    name: str
    kind: Any
    args: tuple
    picture: Cloud | Frames | Pairs
    center: Any = 0.0
    sigma: float = 1.5
    note: str = ""
    call: str = ""

    @property
    def text(self) -> str:
        """The constructor's call, which is the title of the picture."""
        return self.call or f"{self.kind.__name__}({', '.join(map(repr, self.args))})"

    @property
    def label(self) -> str:
        """The name in tables and on the overview."""
        return f"{self.kind.__name__}, {self.note}" if self.note else self.text


def turn_coordinates(x: Tensor) -> np.ndarray:
    """The coefficients of a 2 x 2 matrix on the rotations: (cos, sin) on SO(2)."""
    return torch.stack([x[..., 0, 0] + x[..., 1, 1], x[..., 1, 0] - x[..., 0, 1]], -1).numpy() / 2


def cone_coordinates(x: Tensor) -> np.ndarray:
    """[[a, b], [b, c]] -> ((a - c)/sqrt 2, sqrt 2 b, (a + c)/sqrt 2), an isometry: PSD(2) becomes the round cone."""
    a, b, c = x[..., 0, 0], (x[..., 0, 1] + x[..., 1, 0]) / 2, x[..., 1, 1]
    return torch.stack([a - c, 2 * b, a + c], -1).numpy() / math.sqrt(2)


def disc_coordinates(x: Tensor) -> np.ndarray:
    """The first two of the three coordinates of a cone."""
    return cone_coordinates(x)[..., :2]


def correlations(x: Tensor) -> np.ndarray:
    """The three entries beside the diagonal of a symmetric 3 x 3 matrix, or of the symmetric part of another one."""
    y = (x + x.mT) / 2
    return torch.stack([y[..., 0, 1], y[..., 0, 2], y[..., 1, 2]], -1).numpy()


def torus(p: Tensor) -> Tensor:
    """0 for points at the distance 0.6 from the circle of radius 1.6 in the plane of the first two axes."""
    return (p[:2].norm() - 1.6) ** 2 + p[2] ** 2 - 0.36


def axis_last(x: Tensor) -> np.ndarray:
    """(t, x) -> (x, t): the cone opens upwards."""
    return x.roll(-1, -1).numpy()


def rotation(x: Tensor) -> tuple[np.ndarray, None]:
    """The matrices themselves, without offsets."""
    return x.numpy(), None


def pose(x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The rotations and the offsets of homogeneous matrices."""
    return x[..., :3, :3].numpy(), x[..., :3, 3].numpy()


def rotation_and_offset(x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The rotations and the offsets of flat rows of twelve numbers."""
    return x[..., :9].unflatten(-1, (3, 3)).numpy(), x[..., 9:].numpy()


FACES = ([[1, 0.3], [-0.4, 1], [-1, 0.2], [-0.5, -1], [0.8, -1]], [1.6, 1.5, 1.7, 1.4, 1.8])
WEDGE = ([[1, 1], [-1, 2], [0.2, 1]], [1.5, 2, 1])
BOX = ([-1.5, -1], [1.5, 1])
NORMAL = ([1, 2], 1)
DISJOINT = ([0, 0], [4, 3], [[0.9, 2.2], [1.6, 0.8], [3.1, 1.7]], [0.5, 0.6, 0.65])
OVERLAPPING = ([0, 0], [4, 3], [[1.2, 1.9], [1.7, 1.1], [3, 0.45]], [0.6, 0.55, 0.6])
ROOM = ([-2, -2, -2], [2, 2, 2], [[-0.8, -0.8, 0.8], [0.9, 0.9, 0.7], [0.8, -0.7, -0.9]], [1, 0.9, 0.9])
CAPS = ([[1, 0.4, 0.6], [0.3, 1, -0.2], [1, -0.8, -0.4]], [0.5, 0.4, 0.45])
UNIT_BALL = (((0, 0, 0), 1),)
CAP = 0.6  # of a simplex, whose corners it cuts off
HEXAGON = [[CAP, 1 - CAP, 0], [1 - CAP, CAP, 0], [0, CAP, 1 - CAP], [0, 1 - CAP, CAP], [1 - CAP, 0, CAP], [CAP, 0, 1 - CAP]]


def plain(backdrop: shapes.Backdrop, half: float, says: str, **how) -> Cloud:
    """Points of the plane around 0."""
    return Cloud(backdrop=backdrop, half=half, says=says, **{"middle": (0, 0), **how})


def corners(A, b, order) -> list[list[float]]:
    """Where faces i and j of {A x <= b} in the plane meet, for the pairs (i, j)."""
    return [np.linalg.solve(np.array([A[i], A[j]], float), np.array([b[i], b[j]], float)).tolist() for i, j in order]


def lens() -> list[tuple[float, float]]:
    """The outline of {|p| <= 1.5, p_1 + p_2 <= 1}: an arc and its chord."""
    half = math.acos(1 / (1.5 * math.sqrt(2)))
    turn = np.linspace(math.pi / 4 + half, math.pi / 4 - half + 2 * math.pi, 97)
    return [(1.5 * math.cos(t), 1.5 * math.sin(t)) for t in turn]


def world(name: str, args: tuple, says: str) -> Exhibit:
    """A box minus discs, with a name of its own."""
    picture = plain(shapes.free_plane(*args), 3.3, says, middle=(2, 1.5), count=500, joined=150)
    return Exhibit(f"box-minus-balls-{name}", ib.BoxMinusBalls, args, picture, center=[2, 1.5], note=name)


def cone(name: str, kind, size: int, center, axes: tuple[str, str, str], says: str, coords) -> Exhibit:
    """A cone of matrices or vectors, seen in three coordinates."""
    backdrop = shapes.together(shapes.cone(3), shapes.triad(0.9, axes, aside=(-2.1, -2.1)))
    return Exhibit(
        name,
        kind,
        (size,),
        Cloud(half=3.35, middle=(0, 0, 0.4), camera=(12, 35), says=says, backdrop=backdrop, coords=coords),
        center=center,
    )


def poses(name: str, kind, args: tuple, center, says: str, parts, offsets: bool) -> Exhibit:
    """Matrices drawn as frames of three arrows, with or without offsets."""
    corner = shapes.triad(0.8, aside=(-2.3, -2.3))
    return Exhibit(
        name,
        kind,
        args,
        Frames(half=3.4, parts=parts, size=0.6, count=12, gap=1.2, says=says, backdrop=corner, offsets=offsets),
        center,
    )


EXHIBITS = [
    Exhibit(
        "euclidean",
        ib.Euclidean,
        (3,),
        Cloud(half=4, backdrop=shapes.triad(3.4), grain=40, says="everything is allowed: nothing moves"),
    ),
    Exhibit("sphere", ib.Sphere, (3,), Cloud(half=2.5, backdrop=shapes.globe(), solids=UNIT_BALL, says="points of length 1")),
    Exhibit("ball", ib.Ball, (2,), plain(shapes.disc(), 3, "points of length at most 1")),
    Exhibit("box", ib.Box, BOX, plain(shapes.box(*BOX), 3.5, "each entry between its bounds")),
    Exhibit(
        "simplex",
        ib.Simplex,
        (3,),
        Cloud(
            half=1.7,
            middle=(0.3, 0.3, 0.3),
            camera=(20, 30),
            backdrop=shapes.together(shapes.polygon(np.eye(3)), shapes.triad(1.6)),
            says="probability vectors: entries at least 0, sum 1",
        ),
        center=1 / 3,
    ),
    Exhibit("halfspace", ib.Halfspace, NORMAL, plain(shapes.halfplane(*NORMAL), 4, "a.x at most b")),
    Exhibit(
        "affine",
        ib.Affine,
        ([[1, -1, 2]], [1]),
        Cloud(
            half=3.2,
            camera=(10, 30),
            backdrop=shapes.together(shapes.plane([1, -1, 2], 1, 3.2), shapes.triad(0.8, aside=(1.9, -2.3))),
            says="A x = b",
        ),
    ),
    Exhibit(
        "polytope",
        ib.Polytope,
        FACES,
        plain(
            shapes.shape(corners(*FACES, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)])),
            3.5,
            "A x at most b: as many faces as you like",
        ),
        note="5 faces",
    ),
    Exhibit(
        "halfspaces",
        ib.Halfspaces,
        WEDGE,
        plain(
            shapes.shape([[-100, -49], *corners(*WEDGE, [(1, 2), (2, 0)]), [101.5, -100], [-100, -100]]),
            3.5,
            "several half-spaces at once; the set may go on without end",
        ),
        center=[0, 0.5],
        note="3 faces",
    ),
    Exhibit(
        "capped-simplex",
        ib.CappedSimplex,
        (3, CAP),
        Cloud(
            half=1.7,
            middle=(0.3, 0.3, 0.3),
            camera=(20, 30),
            backdrop=shapes.together(shapes.polygon(HEXAGON), shapes.triad(1.6)),
            says="shares with the sum 1, none above its cap",
        ),
        center=1 / 3,
    ),
    Exhibit("ellipsoid", ib.Ellipsoid, ([2, 0.8],), plain(shapes.ellipse([2, 0.8]), 3.5, "a ball with different axes")),
    Exhibit(
        "intersection",
        ib.Intersection,
        (ib.Ball(2, radius=1.5), ib.Halfspace([1, 1], 1)),
        plain(shapes.shape(lens()), 3.5, "points that lie in all of the sets"),
        note="disc and half-plane",
        call="Intersection(Ball(2, radius=1.5), Halfspace([1, 1], 1))",
    ),
    Exhibit(
        "implicit",
        ib.Implicit,
        (3, torus),
        Cloud(half=3, camera=(35, 30), backdrop=shapes.torus(1.6, 0.6), says="whatever you can write as an equation: a torus"),
        note="a torus",
        call="Implicit(3, eq=lambda p: (p[:2].norm() - 1.6) ** 2 + p[2] ** 2 - 0.36)",
    ),
    cone(
        "second-order-cone",
        ib.SecondOrderCone,
        3,
        [1, 0, 0],
        ("$x_1$", "$x_2$", "$t$"),
        "(t, x) with |x| at most t; from the opposite cone everything lands on the tip",
        axis_last,
    ),
    Exhibit(
        "so2",
        ib.SO,
        (2,),
        plain(
            shapes.disc(fill=None),
            2.5,
            "2 x 2 matrices A drawn at (A11 + A22, A21 - A12) / 2: rotations at (cos, sin)",
            coords=turn_coordinates,
        ),
    ),
    Exhibit("so3", ib.SO, (3,), Frames(half=4.2, parts=rotation, says="nine matrices, each drawn as its three columns")),
    poses("se3", ib.SE, (3,), np.eye(4).tolist(), "each pose drawn as a frame at its translation", pose, offsets=False),
    Exhibit(
        "stiefel", ib.Stiefel, (3, 2), Pairs(half=2.1, says="two unit columns at right angles: a quarter of a great circle apart")
    ),
    Exhibit(
        "hyperboloid",
        ib.Hyperboloid,
        (3,),
        Cloud(
            half=2.5,
            middle=(0, 0, 1.6),
            camera=(12, 30),
            backdrop=shapes.together(shapes.sheet(2.4), shapes.triad(0.9, ("$y_1$", "$y_2$", "$t$"), aside=(-1.7, 0.3))),
            coords=axis_last,
            says="(t, y) with t = sqrt(1 + |y|^2): the hyperbolic plane",
        ),
        center=[1.5, 0, 0],
        sigma=0.9,
    ),
    cone(
        "psd",
        ib.PSD,
        2,
        np.eye(2).tolist(),
        ("$u$", "$v$", "$w$"),
        "[[a, b], [b, c]] drawn at (u, v, w) = (a - c, 2b, a + c) / sqrt 2: a round cone",
        cone_coordinates,
    ),
    Exhibit(
        "fixed-trace-psd",
        ib.FixedTracePSD,
        (2,),
        plain(
            shapes.together(shapes.disc(radius=math.sqrt(0.5)), shapes.covariances(math.sqrt(0.5))),
            1.6,
            "[[a, b], [b, c]] drawn at (a - c, 2b) / sqrt 2; ellipses: the covariance at that place",
            coords=disc_coordinates,
        ),
        center=[[0.5, 0], [0, 0.5]],
    ),
    Exhibit(
        "correlation",
        ib.Correlation,
        (3,),
        Cloud(
            half=2,
            camera=(20, 25),
            backdrop=shapes.together(
                shapes.elliptope(), shapes.triad(0.6, ("$x_{12}$", "$x_{13}$", "$x_{23}$"), aside=(-1.4, -1.4))
            ),
            coords=correlations,
            says="the three correlations of three variables; the diagonal, which is 1 afterwards, is not drawn",
        ),
        center=np.eye(3).tolist(),
        sigma=0.9,
    ),
    world("disjoint", DISJOINT, "a box with round obstacles"),
    world("overlapping", OVERLAPPING, "obstacles may overlap and cut the edge: the corners between them are found"),
    Exhibit(
        "box-minus-balls-3d",
        ib.BoxMinusBalls,
        ROOM,
        Cloud(
            half=3.7,
            camera=(18, 30),
            count=250,
            joined=120,
            backdrop=shapes.room(*ROOM),
            solids=tuple(zip(*ROOM[2:], strict=True)),
            says="a box with round obstacles, in space",
        ),
        note="3D",
    ),
    Exhibit(
        "sphere-minus-caps",
        ib.SphereMinusCaps,
        CAPS,
        Cloud(
            half=2.2,
            count=400,
            solids=UNIT_BALL,
            backdrop=shapes.together(shapes.globe(), shapes.caps(*CAPS)),
            says="a sphere with round obstacles",
        ),
        note="3 caps",
    ),
    poses(
        "product",
        ib.Product,
        (ib.SO(3), ib.Euclidean(3)),
        0.0,
        "a rotation, drawn as a frame, and a free vector, drawn as its place: 12 numbers in a row",
        rotation_and_offset,
        offsets=True,
    ),
]
