"""The sets of `benchmarks/truth.py`: how to draw from them, and their exact projections, which owe nothing to the library."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from auto import clifford, deformed, globe, helix, on_torus, patch, swiss, torus, uniform
from torch import Tensor
from torch.nn import functional as F

TURN = 2 * math.pi
Draw = Callable[[int, torch.Generator], Tensor]
Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Truth:
    """A set: samples (n, d), nearest points, its dimension, its reach, and whether it is to end where the samples end."""

    draw: Draw
    exact: Map
    dim: int
    reach: float
    support: str = "closure"


def normal(n: int, k: int, g: torch.Generator) -> Tensor:
    """Standard normal rows."""
    return torch.randn(n, k, generator=g, dtype=torch.float64)


def sphere(k: int) -> Draw:
    """Uniform on the unit sphere of R^k."""
    return lambda n, g: F.normalize(normal(n, k, g), dim=1)


def frames(n: int, k: int, g: torch.Generator) -> Tensor:
    """Uniform orthonormal frames (n, 3, k)."""
    return torch.linalg.qr(normal(n, 9, g).unflatten(1, (3, 3)))[0][:, :, :k]


def nearest_of(*maps: Map) -> Map:
    """The projection on a union: the nearest of the parts' nearest points."""

    def exact(x: Tensor) -> Tensor:
        feet = torch.stack([f(x) for f in maps])
        best = (feet - x).square().sum(-1).argmin(0)
        return feet[best, torch.arange(len(x))]

    return exact


# --- curves and surfaces by their parameters ---------------------------------------------------------------------
def trefoil(u: Tensor) -> Tensor:
    """A knot inside the cube of side 2."""
    t = u[0]
    return torch.stack([t.sin() + 2 * (2 * t).sin(), t.cos() - 2 * (2 * t).cos(), -(3 * t).sin()]) / 3


def lissajous(u: Tensor) -> Tensor:
    """A closed curve with frequencies 3, 2 and 7."""
    t = u[0]
    return torch.stack([(3 * t).cos(), (2 * t + 0.7).cos(), (7 * t + 0.2).cos()])


def ellipse(u: Tensor) -> Tensor:
    """Half axes 1 and 0.5."""
    return torch.stack([u[0].cos(), 0.5 * u[0].sin()])


def rough(p: Tensor) -> Tensor:
    """A sphere with waves on it."""
    return p * (1 + 0.05 * (6 * p[0]).sin() + 0.05 * (5 * p[1] + 3 * p[2]).sin())


def arm(u: Tensor) -> Tensor:
    """Elbow and hand of a planar arm with links 1 and 0.7."""
    a, b = u.unbind()
    elbow = torch.stack([a.cos(), a.sin()])
    return torch.cat([elbow, elbow + 0.7 * torch.stack([(a + b).cos(), (a + b).sin()])])


def moebius(u: Tensor) -> Tensor:
    """A strip of width 0.6 around the unit circle, with half a turn."""
    a, h = u[0], 0.3 * (2 * u[1] / TURN - 1)
    r = 1 + h * (a / 2).cos()
    return torch.stack([r * a.cos(), r * a.sin(), h * (a / 2).sin()])


def cylinder(u: Tensor) -> Tensor:
    """Radius 1, height 2, without lids."""
    return torch.stack([u[0].cos(), u[0].sin(), 2 * u[1] / TURN - 1])


def curve(phi: Map, dim: int, reach: float, around: int, support: str = "closure", high: float = TURN) -> Truth:
    """The image of a cube of parameters, the first of which go around."""
    s = patch(phi, 0.0, high, dim, around)
    return Truth(s.draw, s.exact, dim, reach, support)


# --- matrices ----------------------------------------------------------------------------------------------------
def rotation(x: Tensor) -> Tensor:
    """The nearest rotation."""
    U, _, Vh = torch.linalg.svd(x.unflatten(1, (3, 3)))
    sign = torch.ones(len(x), 3, dtype=x.dtype)
    sign[:, 2] = torch.linalg.det(U @ Vh)
    return (U * sign[:, None] @ Vh).flatten(1)


def with_values(values: tuple[float, float, float]) -> Map:
    """The nearest 3 by 3 matrix with these singular values."""

    def exact(x: Tensor) -> Tensor:
        U, _, Vh = torch.linalg.svd(x.unflatten(1, (3, 3)))
        return (U * torch.tensor(values, dtype=x.dtype) @ Vh).flatten(1)

    return exact


def random_with_values(values: tuple[float, float, float]) -> Draw:
    """U diag(values) V^T with uniform U and V."""
    return lambda n, g: (frames(n, 3, g) * torch.tensor(values, dtype=torch.float64) @ frames(n, 3, g).mT).flatten(1)


def veronese(n: int, g: torch.Generator) -> Tensor:
    """(x^2, y^2, z^2, xy, yz, zx) with weights that make it v v^T in an orthonormal basis."""
    v = F.normalize(normal(n, 3, g), dim=1)
    return torch.cat([v.square(), math.sqrt(2) * v * v.roll(-1, 1)], 1)


def on_veronese(x: Tensor) -> Tensor:
    """The top eigenvector of the matrix."""
    A, h = x.new_zeros(len(x), 3, 3), x[:, 3:] / math.sqrt(2)
    for k in range(3):
        A[:, k, k] = x[:, k]
        A[:, k, (k + 1) % 3] = A[:, (k + 1) % 3, k] = h[:, k]
    v = torch.linalg.eigh(A)[1][:, :, -1]
    return torch.cat([v.square(), math.sqrt(2) * v * v.roll(-1, 1)], 1)


def stiefel(x: Tensor) -> Tensor:
    """The nearest 5 by 2 matrix with orthonormal columns."""
    U, _, Vh = torch.linalg.svd(x.unflatten(1, (5, 2)), full_matrices=False)
    return (U @ Vh).flatten(1)


def pose(n: int, g: torch.Generator) -> Tensor:
    """(cos, sin, x, y) with the position in a box."""
    return torch.cat([F.normalize(normal(n, 2, g), dim=1), 4 * uniform(n, 2, g) - 2], 1)


def sphere_times_ball(n: int, g: torch.Generator) -> Tensor:
    """The unit sphere of R^4 times the unit ball of R^3."""
    ball = F.normalize(normal(n, 3, g), dim=1) * uniform(n, 1, g) ** (1 / 3)
    return torch.cat([F.normalize(normal(n, 4, g), dim=1), ball], 1)


def half_sphere(x: Tensor) -> Tensor:
    """The nearest point of the unit sphere with z >= 0: on the equator where z < 0."""
    up = F.normalize(x, dim=1)
    rim = F.pad(F.normalize(x[:, :2], dim=1), (0, 1))
    return torch.where(x[:, 2:] >= 0, up, rim)


def apart(draw: Draw, exact: Map, shift: Tensor) -> tuple[Draw, Map]:
    """A set and a copy of it that is moved."""

    def both(n: int, g: torch.Generator) -> Tensor:
        x = draw(n, g)
        return x + shift * (uniform(n, 1, g) < 0.5)

    return both, nearest_of(exact, lambda x: exact(x - shift) + shift)


# --- regions of the plane and of space ---------------------------------------------------------------------------
def polygon(*corners: tuple[float, float]) -> Map:
    """The projection on a convex polygon, corners counterclockwise."""
    a = torch.tensor(corners, dtype=torch.float64)
    e = a.roll(-1, 0) - a

    def exact(x: Tensor) -> Tensor:
        r = x[:, None] - a
        t = ((r * e).sum(-1) / e.square().sum(-1)).clamp(0, 1)
        feet = a + t[..., None] * e
        best = (feet - x[:, None]).square().sum(-1).argmin(1)
        inside = (e[:, 0] * r[..., 1] - e[:, 1] * r[..., 0] >= 0).all(1)
        return torch.where(inside[:, None], x, feet[torch.arange(len(x)), best])

    return exact


def sector(low: float, high: float, angle: float, middle: tuple[float, float] = (0.0, 0.0), turn: float = 0.0) -> Map:
    """The projection on {low <= r <= high, |angle - turn| <= angle}."""
    c = torch.tensor(middle, dtype=torch.float64)

    def polar(r: Tensor, a: Tensor) -> Tensor:
        return c + r[:, None] * torch.stack([(a + turn).cos(), (a + turn).sin()], 1)

    def exact(x: Tensor) -> Tensor:
        r = (x - c).norm(dim=1)
        a = torch.atan2(x[:, 1] - c[1], x[:, 0] - c[0]) - turn
        a = torch.atan2(a.sin(), a.cos())
        arc = polar(r.clamp(low, high), a.clamp(-angle, angle))
        sides = [polar((r * (a - s).cos()).clamp(low, high), torch.full_like(a, s)) for s in (-angle, angle)]
        return nearest_of(*(lambda _, f=f: f for f in (arc, *sides)))(x)

    return exact


def filled(exact: Map, low: tuple[float, ...], high: tuple[float, ...], support: str = "closure") -> Truth:
    """A region with samples uniform in it, by rejection from a box."""
    a, b = torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64)

    def draw(n: int, g: torch.Generator) -> Tensor:
        found = torch.zeros(0, len(a), dtype=torch.float64)
        while len(found) < n:
            x = a + (b - a) * uniform(4 * n, len(a), g)
            found = torch.cat([found, x[(exact(x) - x).norm(dim=1) < 1e-12]])
        return found[:n]

    return Truth(draw, exact, len(a), math.inf, support)


def spike(a: float) -> list[tuple[float, float]]:
    """The corners of a ray of a star."""
    return [(r * math.cos(a + s), r * math.sin(a + s)) for r, s in ((0.4, -TURN / 10), (1.0, 0.0), (0.4, TURN / 10))]


def shell(x: Tensor) -> Tensor:
    """0.5 <= |x| <= 1."""
    return F.normalize(x, dim=1) * x.norm(dim=1, keepdim=True).clamp(0.5, 1)


def make() -> dict[str, Truth]:
    """All sets by name."""
    one = (1.0, 1.0, 0.0)
    globes = {"rough sphere": (globe(rough), 0.4), "deformed sphere": (globe(deformed), 0.5)}
    unit = lambda x: F.normalize(x, dim=1)  # noqa: E731
    circles = apart(sphere(2), unit, torch.tensor([3.0, 0.0], dtype=torch.float64))
    spheres = apart(sphere(3), unit, torch.tensor([3.0, 0.0, 0.0], dtype=torch.float64))
    split = lambda x: torch.cat([unit(x[:, :4]), x[:, 4:] / x[:, 4:].norm(dim=1, keepdim=True).clamp(min=1)], 1)  # noqa: E731
    half = lambda n, g: (lambda x: torch.cat([x[:, :2], x[:, 2:].abs()], 1))(sphere(3)(n, g))  # noqa: E731
    moons = nearest_of(sector(0.7, 1.0, TURN / 4, turn=TURN / 4), sector(0.7, 1.0, TURN / 4, (0.85, 0.3), turn=-TURN / 4))
    ell = nearest_of(polygon((0, 0), (2, 0), (2, 1), (0, 1)), polygon((0, 0), (1, 0), (1, 2), (0, 2)))
    star = nearest_of(
        *(
            polygon(
                (0, 0), *((r * math.cos(a + s), r * math.sin(a + s)) for r, s in ((0.4, -TURN / 10), (1, 0), (0.4, TURN / 10)))
            )
            for a in [k * TURN / 5 for k in range(5)]
        )
    )
    return {
        "circle": Truth(sphere(2), unit, 1, 1.0),
        "ellipse": curve(ellipse, 1, 0.25, 1),
        "trefoil": curve(trefoil, 1, 0.25, 1),
        "lissajous": curve(lissajous, 1, 0.05, 1),
        "helix": curve(helix, 1, 0.7, 0, "sampled", 3 * TURN),
        "sphere": Truth(sphere(3), unit, 2, 1.0),
        "torus": Truth(torus, on_torus, 2, 0.4),
        **{k: Truth(s.draw, s.exact, 2, reach) for k, (s, reach) in globes.items()},
        "swiss roll": curve(swiss, 2, 0.3, 0, "sampled", 1.0),
        "half-sphere": Truth(half, half_sphere, 2, 1.0, "sampled"),
        "moebius strip": curve(moebius, 2, 0.3, 1, "sampled"),
        "cylinder": curve(cylinder, 2, 1.0, 1, "sampled"),
        "two circles": Truth(*circles, 1, 0.5),
        "two spheres": Truth(*spheres, 2, 0.5),
        "two-link arm": curve(arm, 2, 0.5, 2),
        "clifford torus": Truth(lambda n, g: clifford(normal(n, 4, g)), clifford, 2, 0.7),
        "veronese": Truth(veronese, on_veronese, 2, 0.7),
        "rotations": Truth(lambda n, g: rotation(normal(n, 9, g)), rotation, 3, math.sqrt(2)),
        "stiefel": Truth(lambda n, g: stiefel(normal(n, 10, g)), stiefel, 7, 1.0),
        "rank one": Truth(random_with_values((1.0, 0.0, 0.0)), with_values((1.0, 0.0, 0.0)), 4, 0.7),
        "essential": Truth(random_with_values(one), with_values(one), 5, 0.7),
        "planar poses": Truth(pose, lambda x: torch.cat([unit(x[:, :2]), x[:, 2:]], 1), 3, 1.0),
        "sphere times ball": Truth(sphere_times_ball, split, 6, 1.0, "sampled"),
        "disk": filled(sector(0.0, 1.0, math.pi), (-1.0, -1.0), (1.0, 1.0)),
        "triangle": filled(polygon((0, 0), (2, 0), (0.5, 1.5)), (0.0, 0.0), (2.0, 1.5)),
        "L-shape": filled(ell, (0.0, 0.0), (2.0, 2.0)),
        "ring sector": filled(sector(0.5, 1.0, 1.0), (0.0, -1.0), (1.0, 1.0)),
        "annulus": filled(sector(0.5, 1.0, math.pi), (-1.0, -1.0), (1.0, 1.0)),
        "two moons": filled(moons, (-1.0, -0.8), (2.0, 1.0)),
        "star": filled(star, (-1.0, -1.0), (1.0, 1.0)),
        "shell": filled(shell, (-1.0, -1.0, -1.0), (1.0, 1.0, 1.0)),
    }
