"""`World`: what the planners ask of a place with round obstacles, in the plane, in space or on the sphere."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path as File
from typing import Any, Self

import torch
from torch import Tensor

from ...core import ConstraintSet

# Units: steps are so short that no obstacle grows by more for their chords. A quarter of it, or four times as much, leaves mean
# lengths within 0.05 % (benchmarks/planning_constants.py); smaller means more steps, larger closes wider passages.
MARGIN = 0.004


class World(ABC):
    """A free space M with round obstacles: centers (*worlds, m, n), sizes (*worlds, m). An obstacle of size 0 is absent.

    An object is one world or a batch of them. Points have the shape (*worlds, *queries, n), and a world's own numbers broadcast
    over the queries. `wrapped` obstacles are geodesically convex, so that shortest paths may follow their rims.

    Three methods make obstacles thicker, each for another reason: `for_chords` so that short straight ways between points outside
    miss the true obstacles, `for_robot` so that a round robot fits, and `thicker` by a margin, which leaves the walls alone.
    """

    centers: Tensor
    sizes: Tensor

    @cached_property
    @abstractmethod
    def M(self) -> ConstraintSet:
        """The free space."""

    def __getitem__(self, rows: Any) -> Self:
        """The worlds of a batch that `rows` selects."""
        return self.among(self.centers[rows], self.sizes[rows])

    @abstractmethod
    def among(self, centers: Tensor, sizes: Tensor) -> Self:
        """The same bounds with some of this world's obstacles, or with larger or smaller ones: they are not checked again."""

    @property
    def dim(self) -> int:
        """The number of coordinates of a point."""
        return self.centers.shape[-1]

    @property
    @abstractmethod
    def bounds(self) -> tuple[Tensor, Tensor]:
        """The lowest and the highest value of every coordinate: (n,), (n,)."""

    # --- geometry ----------------------------------------------------------------------------------------
    @abstractmethod
    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        """The length of the shortest way from x to y if there were no obstacles: (*batch,)."""

    @abstractmethod
    def direction(self, x: Tensor, y: Tensor) -> Tensor:
        """The unit vector in which that way leaves x. It is 0 if x = y, and if y is opposite."""

    def opposite(self, x: Tensor, y: Tensor) -> Tensor:
        """Whether many ways from x to y are equally short, so that none is the straight one: (*batch,)."""
        return torch.zeros_like(x[..., 0], dtype=torch.bool)

    def halfway(self, x: Tensor) -> Tensor:
        """The middle of the way to the point opposite x that keeps most clear of obstacles: (*batch, n)."""
        raise NotImplementedError(f"{type(self).__name__} has no opposite points.")

    def tangent(self, x: Tensor, v: Tensor) -> Tensor:
        """The part of v that is tangent at x."""
        return v

    @abstractmethod
    def left(self, x: Tensor, v: Tensor) -> Tensor:
        """v turned by a quarter to the left, tangent at x."""

    @abstractmethod
    def move(self, x: Tensor, v: Tensor) -> Tensor:
        """Where the straight way of velocity v ends after time 1; v is tangent at x."""

    @abstractmethod
    def reach_of_segment(self, a: Tensor, b: Tensor) -> Tensor:
        """Distance of each centre from the straight way from a to b: (*batch, m)."""

    def off(self, x: Tensor) -> Tensor:
        """How far points are from the surface on which distances to obstacles are taken: (*batch,). 0 in a box."""
        return torch.zeros_like(x[..., 0])

    @abstractmethod
    def to_walls(self, x: Tensor) -> Tensor:
        """The distance of x from each of the walls: (*batch, walls)."""

    @abstractmethod
    def walls(self, x: Tensor) -> Tensor:
        """The distance of x from the nearest wall: (*batch,). It is inf where there are no walls."""

    @property
    @abstractmethod
    def wrapped(self) -> Tensor:
        """Which obstacles are present and geodesically convex: (*worlds, m)."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """The world's size. Tolerances for rounding are multiples of it."""

    @property
    @abstractmethod
    def unit(self) -> float:
        """The length that default steps are multiples of: plans do not depend on whether one writes metres or millimetres."""

    @abstractmethod
    def for_chords(self, step: float | Tensor) -> Self:
        """Obstacles so much larger that a straight way of length <= step between two points outside of them misses the true ones.

        A chord of length s of the circle of radius R comes as near as sqrt(R^2 - s^2/4) to its centre.
        """

    @abstractmethod
    def for_robot(self, radius: float) -> Self:
        """Every obstacle and wall thicker by the radius: where the centre of a round robot may go. The result is checked."""

    def thicker(self, margin: float) -> Self:
        """Every obstacle thicker by the margin. The walls stay where they are."""
        return self.among(self.centers, torch.where(self.sizes > 0, self.sizes + margin, 0.0))

    def inflate(self, step: float | Tensor) -> Self:
        """The former name of `for_chords`."""
        return self.for_chords(step)

    @property
    @abstractmethod
    def corners(self) -> Tensor:
        """Where walls meet: (corners, n)."""

    def landmarks(self) -> Tensor:
        """Points of which every piece of a free space in the plane or on the sphere has one on its edge: (*worlds, points, n).

        The edge of a piece is a whole rim, or it turns where walls meet, or where a rim meets a wall or another rim. The points
        are one of every rim, all these corners and all these crossings. Whether they are free is not asked here.
        """
        middle, width = self.blocked()
        once = torch.ones(middle.shape[-2:], dtype=torch.bool).triu(1)  # two rims cross in the same points
        ends = torch.where((width >= 0) & once, torch.stack([middle - width, middle + width]), 0.0)  # (2, *worlds, m, k)
        angles = torch.cat([torch.zeros_like(middle[..., :1]), *ends], -1)
        shape = (*angles.shape, self.dim)
        rims = self.rim_point(self.centers[..., None, :].expand(shape), self.sizes[..., None].expand(angles.shape), angles)
        corners = self.corners.expand(*self.sizes.shape[:-1], *self.corners.shape)
        return torch.cat([corners, rims.flatten(-3, -2)], -2)

    # --- rims, in the plane and on the sphere -------------------------------------------------------------
    @property
    @abstractmethod
    def is_surface(self) -> bool:
        """Whether this is the plane or the sphere, where obstacles have rims that paths can follow."""

    def need_surface(self, what: str) -> None:
        """Raise a ValueError that names `what` unless this is the plane or the sphere."""
        if not self.is_surface:
            raise ValueError(f"{what} asked for the plane or the sphere, got a box of dimension {self.dim}. Use Roadmap(world).")

    @property
    def projects(self) -> bool:
        """Whether the nearest free point is known in closed form."""
        return True

    def need_projection(self, what: str) -> None:
        """Raise a ValueError that names `what` where the nearest free point is not known."""
        if not self.projects:
            raise ValueError(
                f"{what} asked for a world in which the nearest free point is known, got balls of dimension {self.dim} that "
                "touch, overlap or cut the box. Use Roadmap(world)."
            )

    def need_one(self, what: str) -> None:
        """Raise a ValueError that names `what` if this is a batch of worlds."""
        if self.centers.dim() > 2:
            worlds = "x".join(map(str, self.centers.shape[:-2]))
            raise ValueError(
                f"{what} asked for one world, got a batch of {worlds}. Take one of them, {what}(worlds[0], ...), or use Around."
            )

    @abstractmethod
    def tangents(self, ci: Tensor, ri: Tensor, si: Tensor, cj: Tensor, rj: Tensor, sj: Tensor) -> tuple[Tensor, ...]:
        """The straight way that leaves rim i, obstacle i on its left (s = 1) or right (-1), and meets rim j likewise.

        Returns both touching points, the direction at the first, the length, and whether there is such a way. A point is a rim
        of size 0.
        """

    @abstractmethod
    def angle(self, c: Tensor, p: Tensor) -> Tensor:
        """The angle of p around c, counterclockwise."""

    @abstractmethod
    def rim_point(self, c: Tensor, r: Tensor, angle: Tensor) -> Tensor:
        """The point at this angle of the rim of the obstacle with centre c and size r."""

    @abstractmethod
    def rim_speed(self, r: Tensor) -> Tensor:
        """The length of the rim of an obstacle of size r per radian."""

    @abstractmethod
    def outer_corner(self, r: Tensor, half: Tensor) -> Tensor:
        """How far from the centre the tangents at two points of the rim meet that are an angle of 2 half apart."""

    @abstractmethod
    def blocked(self, gap: float = 0.0) -> tuple[Tensor, Tensor]:
        """Which part of rim i obstacle or wall k hides: middle and half width of the angle, (*worlds, m, k).

        A half width of -1 says that nothing is hidden. What is at most `gap` away from the rim touches it and hides one point:
        its half width is 0.
        """

    @abstractmethod
    def feet(self, c: Tensor, r: Tensor) -> Tensor:
        """Points that lie by r behind each wall, on the shortest way from c to it: (*batch, walls, n)."""

    @abstractmethod
    def beside(self, a: Tensor, p: Tensor, q: Tensor) -> Tensor:
        """How far a is to the left of the straight line through p and q, negative to the right: (*batch,).

        On the sphere it is the sine of that distance.
        """

    @abstractmethod
    def between(self, a: Tensor, b: Tensor, sa: Tensor, sb: Tensor, p: Tensor, q: Tensor) -> Tensor:
        """Whether a b meets the line through p and q between p and q: (*batch,).

        a and b lie beside the line by sa and sb, on different sides.
        """

    def crosses(self, a: Tensor, b: Tensor, p: Tensor, q: Tensor) -> Tensor:
        """Whether the straight way from a to b goes from one side of the straight way p to q to the other, between p and q.

        An end that lies on p q, to 1e-12 of the world's size, is on neither side.
        """
        sa, sb, least = self.beside(a, p, q), self.beside(b, p, q), 1e-12 * self.scale
        other = (torch.minimum(sa, sb) < -least) & (torch.maximum(sa, sb) > least)
        return other & self.between(a, b, sa, sb, p, q)

    # --- everything else follows -------------------------------------------------------------------------
    def segment_clearance(self, a: Tensor, b: Tensor) -> Tensor:
        """The least distance of the straight way from a to b from obstacles and walls, negative inside: (*batch,), in float64.

        It is -inf where there is no straight way.
        """
        a, b = a.double(), b.double()
        return self.clearance_from(self.reach_of_segment(a, b), a, b)

    def clearance_from(self, reach: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """The same where reach_of_segment(a, b) is known already."""
        sizes = self.per_query(self.sizes, a)
        to_rims = torch.where(sizes > 0, reach - sizes, math.inf)
        nearest = to_rims.amin(-1) if to_rims.shape[-1] else torch.full_like(a[..., 0], math.inf)
        clear = torch.minimum(nearest, torch.minimum(self.walls(a), self.walls(b)))
        return torch.where(self.opposite(a, b), -math.inf, clear)

    def clearance(self, path: Tensor) -> Tensor:
        """The clearance of each segment of paths (*batch, k, n), in closed form: (*batch, k - 1)."""
        return self.segment_clearance(path[..., :-1, :], path[..., 1:, :])

    def sees(self, a: Tensor, b: Tensor, tol: float = 0.0) -> Tensor:
        """Whether the straight way from a to b is free, or enters obstacles by at most tol: (*batch,)."""
        return self.segment_clearance(a, b) >= -tol

    def length(self, path: Tensor) -> Tensor:
        """The length of paths (*batch, k, n): (*batch,)."""
        return self.distance(path[..., :-1, :], path[..., 1:, :]).sum(-1)

    def safe_steps(self, step: float, margin: float | None = None) -> Tensor:
        """Steps of at most `step`, so short that `for_chords` makes no obstacle larger by more than the margin: (*worlds,).

        The margin is MARGIN units unless it is given. Passages wider than twice the margin stay open.
        """
        margin = MARGIN * self.unit if margin is None else margin
        smallest = torch.where(self.wrapped, self.sizes, math.inf)
        smallest = smallest.amin(-1) if smallest.shape[-1] else torch.full(self.sizes.shape[:-1], math.inf, dtype=torch.float64)
        return (2 * ((smallest + margin).square() - smallest.square()).sqrt()).nan_to_num(nan=step).clamp(max=step)

    def sample(self, *batch: int, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float64) -> Tensor:
        """Uniform points of the free space: (*worlds, *batch, n)."""
        worlds = self.centers.shape[:-2]
        x = self.M.sample(*batch, *worlds, generator=generator, dtype=dtype)
        return x.permute(*range(len(batch), len(batch) + len(worlds)), *range(len(batch)), x.dim() - 1)

    def spread(self, t: Tensor, queries: int) -> Tensor:
        """A world's own numbers (*worlds, m, ...) with so many dimensions for queries: (*worlds, 1, .., 1, m, ...)."""
        k = self.centers.dim() - 2
        return t.reshape(*t.shape[:k], *(1,) * max(queries, 0), *t.shape[k:])

    def per_query(self, t: Tensor, x: Tensor) -> Tensor:
        """The same with as many dimensions as the points x (*worlds, *queries, n) have queries."""
        return self.spread(t, x.dim() - self.centers.dim() + 1)

    # --- files -------------------------------------------------------------------------------------------
    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The world as plain data, which `load_world` reads."""

    def save(self, path: str | File) -> None:
        """Write the world to a JSON file, which `load_world` reads."""
        File(path).write_text(json.dumps(self.to_json(), indent=1) + "\n")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({json.dumps(self.to_json())})" if self.centers.dim() == 2 else f"{type(self).__name__}s"


def obstacles(world: World, centers: Any, sizes: Any, n: int, name: str) -> tuple[Tensor, Tensor]:
    """Centres and sizes in float64, of the shapes (*worlds, m, n) and (*worlds, m), or an error that names the constructor."""
    c, r = (torch.as_tensor(t, dtype=torch.float64) for t in (centers, sizes))
    c = c if c.shape != (0,) else c.new_zeros(0, n)
    if c.dim() < 2 or c.shape[-1] != n or r.shape != c.shape[:-1]:
        raise ValueError(
            f"{type(world).__name__} asked for centers (*worlds, m, {n}) and {name} (*worlds, m), "
            f"got {tuple(c.shape)} and {tuple(r.shape)}. One {name[:-1] if name == 'angles' else 'radius'} per centre."
        )
    return c, r


def need_finite(what: str, **numbers: Tensor) -> None:
    """Raise a ValueError that names `what` and the numbers that are not finite."""
    for name, t in numbers.items():
        if not bool(torch.isfinite(t).all()):
            raise ValueError(f"{what} asked for finite numbers, got {name}={t.tolist()}.")
