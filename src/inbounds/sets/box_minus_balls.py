"""A box without open balls: the free space of a robot among round obstacles."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import ACTIVE, LANDING, ConstraintSet, Numbers, direction, eager, sized, skin
from ..kernels.vectors import norm, unit
from .box import bounds_inwards, not_outwards
from .free_space import FLOAT32, cheapest, closest_pair, cone_projection, distances, positive_root, sample_free


class BoxMinusBalls(ConstraintSet):
    """{low <= x <= high, |x - centers_i| >= radii_i}: a box with round obstacles; radius 0 = absent.

    centers (*batch, m, n), radii (*batch, m). Disjoint balls inside the box: any dimension. Balls that overlap, touch or cut
    the box: exact in the plane, where the nearest free point is one of: the clamped point, its feet on the edges,
    its radial push out of each disc, and the vertices (corners, circle-edge and circle-circle intersections).
    """

    low: Tensor
    high: Tensor
    centers: Tensor
    radii: Tensor

    def __init__(self, low: Numbers, high: Numbers, centers: Numbers, radii: Numbers):
        super().__init__()
        a, b = self._constant("low", low, dims=1), self._constant("high", high, dims=1)
        c, r = self._constant("centers", centers, dims=2), self._constant("radii", radii, dims=1)
        vectors = a.dim() and b.dim() and c.dim() > 1 and a.shape[-1] == b.shape[-1] == c.shape[-1]
        if not vectors or r.shape[-1:] != c.shape[-2:-1]:
            raise ValueError(
                "BoxMinusBalls asked for low, high (*batch, n), centers (*batch, m, n), radii (*batch, m), got "
                f"{tuple(a.shape)}, {tuple(b.shape)}, {tuple(c.shape)}, {tuple(r.shape)}. No balls: Box(low, high)."
            )
        self.shape = (a.shape[-1],)
        self._validate()
        known = eager() and not c.is_meta
        self.apart = (self._disjoint() if known else self.shape != (2,)) and not (self._learnable() and self.shape == (2,))
        if not self.apart and self.shape != (2,):
            raise ValueError(
                f"BoxMinusBalls in dimension {self.shape[0]} asked for balls that are disjoint and inside the box, got some that "
                "touch, overlap or cut it: there the projection is known in closed form in the plane only. Replace each "
                "cluster by one ball that encloses it, or enlarge the box."
            )
        if known and not self.apart:
            probe = torch.zeros(self.shape, dtype=torch.float64, device=c.device)
            free = self._vertices(probe, FLOAT32)[1].any(-1) | self._allowed(self._rims(probe), probe, FLOAT32).any(-1)
            self._require(
                free, lambda: "BoxMinusBalls asked for a non-empty free space, the balls cover the box. Shrink the radii."
            )

    def _validate(self) -> None:
        a, b, r = self.low, self.high, self.radii
        self._require(a < b, lambda: f"BoxMinusBalls asked for low < high, got low={a.tolist()}, high={b.tolist()}.")
        self._require(r >= 0, lambda: f"BoxMinusBalls asked for radii >= 0 (0 = absent), got {r.tolist()}.")

    @property
    def reach(self) -> float:
        """Certified lower bound: radii, and half the distance between vertices.

        Let x at distance d < min radius have two nearest points. The ball B(x, d) holds no free point inside. Were one of the two
        in the open arc of a circle, B(x, d) would lie in that disc and touch its circle there only; were it a foot on an
        edge, B(x, d) would touch the box there only. So both are vertices, and d is at least half their distance.
        """
        present = self.radii.detach() > 0
        radius = float(torch.where(present, self.radii.detach(), math.inf).min()) if present.any() else math.inf
        if self.apart:
            return radius
        probe = torch.zeros(self.shape, dtype=torch.float64, device=self.centers.device)
        points, free = self._vertices(probe)
        corners = 4
        return min(radius, 0.5 * closest_pair(points[..., corners:, :].detach(), free[..., corners:], same=1e-9))

    def _parts(self, x: Tensor, precision: torch.dtype | None = None):
        """low, high (*batch, n), centers (*batch, m, n), radii (*batch, m) and the rounding of lengths (*batch, 1)."""
        (low, high), c, r = bounds_inwards(self, x), self._cast("centers", x), self._cast("radii", x, towards=1)
        scale = torch.maximum(low.abs(), high.abs()).amax(-1, keepdim=True)
        scale = torch.maximum(scale, (c.abs().amax(-1) + r).amax(-1, keepdim=True)) if r.shape[-1] else scale
        rounding = skin(torch.empty(0, dtype=precision or x.dtype), self.shape[0])
        return low, high, c, r, rounding * scale.detach()

    def _disjoint(self) -> bool:
        """Balls clear each other and the walls by more than float32 skins."""
        low, high, c, r, tol = self._parts(self.centers.detach().double(), FLOAT32)
        grown = torch.where(r > 0, r + 2 * LANDING * tol, -math.inf)[..., None]
        inside = ((c - grown >= low[..., None, :]) & (c + grown <= high[..., None, :])).all()
        gap = distances(c, c) - grown - grown.mT
        off = ~torch.eye(r.shape[-1], dtype=torch.bool, device=r.device)
        return bool(inside) and bool((gap[..., off] >= 0).all())

    def _project(self, x: Tensor) -> Tensor:
        low, high, c, r, tol = self._parts(x)
        q = torch.clamp(x, low, high)
        if not c.shape[-2]:
            return q
        if self.apart and self._learnable() and eager():
            self._require(
                torch.tensor(self._disjoint()), lambda: f"{self!r}: learnt balls meet. Clamp them apart after each step."
            )
        return self._push(q, c, r, tol) if self.apart else self._nearest(x, q, low, high)

    def _push(self, q: Tensor, c: Tensor, r: Tensor, tol: Tensor) -> Tensor:
        """Out of the one ball that holds q, radially; at its centre along e_1."""
        u, length = direction(q[..., None, :] - c)
        depth = torch.where(r > 0, length[..., 0] - r, math.inf)
        pushed = cheapest(c + (r + LANDING * tol)[..., None] * u, depth, torch.ones_like(depth, dtype=torch.bool))
        return torch.where(depth.amin(-1, keepdim=True) < tol, pushed, q)

    def _nearest(self, x: Tensor, q: Tensor, low: Tensor, high: Tensor) -> Tensor:
        u = unit(x[..., None, :] - self._cast("centers", x))
        moving = torch.cat([q[..., None, :], _feet(q, low, high), self._rims(x, u)], -2)
        fixed, free = self._vertices(x)
        batch = torch.broadcast_shapes(moving.shape[:-2], fixed.shape[:-2])
        points = torch.cat([moving.expand(*batch, *moving.shape[-2:]), fixed.expand(*batch, *fixed.shape[-2:])], -2)
        allowed = torch.cat([self._allowed(moving, x).expand(*batch, -1), free.expand(*batch, -1)], -1)
        # |x - p|^2 - |x - q|^2, exact also for far x; q is never dearer than the rest
        step = (q[..., None, :] - points).detach()
        cost = (2 * (x - q).detach()[..., None, :] * step).sum(-1) + step.square().sum(-1)
        return cheapest(points, cost, allowed)

    def _rims(self, x: Tensor, u: Tensor | None = None) -> Tensor:
        """A point on each circle, in direction u (by default e_1), landing skin outside."""
        _, _, c, r, tol = self._parts(x, FLOAT32 if u is None else None)
        u = torch.eye(self.shape[0], dtype=x.dtype, device=x.device)[0] if u is None else u
        return c + (r + LANDING * tol)[..., None] * u

    def _allowed(self, p: Tensor, x: Tensor, precision: torch.dtype | None = None) -> Tensor:
        """Free by one skin: (*batch, K) for points (*batch, K, n)."""
        low, high, c, r, tol = self._parts(x, precision)
        p = p.detach()
        inside = ((p >= low[..., None, :]) & (p <= high[..., None, :])).all(-1)
        d = norm(p[..., :, None, :] - c[..., None, :, :])
        clear = (d >= (r + tol)[..., None, :]) | (r <= 0)[..., None, :]
        return inside & clear.all(-1)

    def _vertices(self, x: Tensor, precision: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """Corners, circle-edge and circle-circle intersections (*batch, K, 2) of the discs grown by a landing skin, computed
        in float64; and which of them are free."""
        low, high, c, r, tol = (t.double() for t in self._parts(x, precision))
        r = torch.where(r > 0, r + LANDING * tol, 0.0)
        points = [_corners(low, high), _on_edges(c, r, low, high), _crossings(c, r)]
        batch = torch.broadcast_shapes(*(p.shape[:-2] for p in points))
        p = torch.cat([p.expand(*batch, *p.shape[-2:]) for p in points], -2)
        real = torch.isfinite(p).all(-1)
        p = torch.where(real[..., None], p, low[..., None, :]).to(x.dtype)
        return p, real & self._allowed(p, x, precision)

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        low, high, c, r, _ = self._parts(x)
        parts = [low - x, x - high, r - norm(x[..., None, :] - c)]
        batch = torch.broadcast_shapes(*(p.shape[:-1] for p in parts))
        return x[..., :0].expand(*batch, 0), torch.cat([p.expand(*batch, p.shape[-1]) for p in parts], -1)

    def _scale(self, x: Tensor) -> Tensor | float:
        return self._parts(x)[-1][..., 0] / skin(x, self.shape[0])

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        low, high, c, r, tol = self._parts(x)
        u, length = direction(x[..., None, :] - c)
        touching = (length[..., 0] <= r + ACTIVE * tol) & (r > 0)
        if self.shape == (2,) and not self.apart:
            wall = torch.cat([torch.eye(2, dtype=x.dtype, device=x.device), -torch.eye(2, dtype=x.dtype, device=x.device)])
            batch = torch.broadcast_shapes(u.shape[:-2], v.shape[:-1])
            u, touching = u.expand(*batch, *u.shape[-2:]), touching.expand(*batch, touching.shape[-1])
            normals = torch.cat([wall.expand(*batch, 4, 2), -u], -2)
            at_wall = torch.cat([x >= high, x <= low], -1).expand(*batch, 4)
            return cone_projection(v.expand(*batch, 2), normals, torch.cat([at_wall, touching], -1))
        if c.shape[-2]:
            v = cone_projection(v, -u, touching)
        return not_outwards(x, v, low, high)

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Uniform, by rejection."""
        like = torch.empty(0, dtype=dtype, device=device)
        low, high, *_ = self._parts(like)

        batch = torch.broadcast_shapes(batch, low.shape[:-1], high.shape[:-1], self.centers.shape[:-2], self.radii.shape[:-1])

        def draw():
            return low + torch.rand(*batch, *self.shape, generator=generator, dtype=dtype, device=device) * (high - low)

        return sample_free(draw, lambda x: self._allowed(x[..., None, :], x), self._project)

    def extra_repr(self) -> str:
        return ", ".join(map(sized, (self.low, self.high, self.centers, self.radii)))


def _feet(q: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The clamped point moved onto each edge line: (*batch, 4, 2)."""
    (a, b), (c, d), (x, y) = (t.unbind(-1) for t in torch.broadcast_tensors(low, high, q))
    pairs = [(a, y), (c, y), (x, b), (x, d)]
    return torch.stack([torch.stack(p, -1) for p in pairs], -2)


def _corners(low: Tensor, high: Tensor) -> Tensor:
    (a, b), (c, d) = (t.unbind(-1) for t in torch.broadcast_tensors(low, high))
    return torch.stack([torch.stack(p, -1) for p in ((a, b), (a, d), (c, b), (c, d))], -2)


def _on_edges(c: Tensor, r: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Where the circles cross the lines x = low_0, high_0, y = low_1, high_1; NaN where they do not. (*batch, 8m, 2)."""
    found = []
    for axis in (0, 1):
        for bound in (low, high):
            line = bound[..., None, axis].expand(torch.broadcast_shapes((*bound.shape[:-1], 1), r.shape))
            h2 = r.square() - (line - c[..., axis]).square()
            h = positive_root(h2)
            for sign in (-1, 1):
                other = torch.where((h2 >= 0) & (r > 0), c[..., 1 - axis] + sign * h, math.nan)
                line, other = torch.broadcast_tensors(line, other)
                found.append(torch.stack((line, other) if axis == 0 else (other, line), -1))
    return torch.cat(found, -2)


def _crossings(c: Tensor, r: Tensor) -> Tensor:
    """Both intersections of each pair of circles, NaN where there are none: (*batch, m(m-1), 2)."""
    m = r.shape[-1]
    i, j = torch.triu_indices(m, m, offset=1, device=c.device)
    d = c[..., j, :] - c[..., i, :]
    d2 = d.square().sum(-1)
    apart = d2 > 0
    d2 = torch.where(apart, d2, 1.0)
    along = 0.5 * (1 + (r[..., i].square() - r[..., j].square()) / d2)
    h2 = r[..., i].square() / d2 - along.square()
    real = apart & (h2 >= 0) & (r[..., i] > 0) & (r[..., j] > 0)
    side = torch.stack([-d[..., 1], d[..., 0]], -1) * positive_root(h2)[..., None]
    foot = c[..., i, :] + along[..., None] * d
    ends = (c[..., i, :], r[..., i], c[..., j, :], r[..., j])
    both = torch.cat([_settle(foot + side, *ends), _settle(foot - side, *ends)], -2)
    return torch.where(torch.cat([real, real], -1)[..., None], both, math.nan)


def _settle(p: Tensor, ci: Tensor, ri: Tensor, cj: Tensor, rj: Tensor) -> Tensor:
    """Newton on |p - c_i| = r_i, |p - c_j| = r_j: distances to rounding, also for almost concentric circles."""
    for _ in range(2):
        a, b = p - ci, p - cj
        ea, eb = 0.5 * (ri.square() - a.square().sum(-1)), 0.5 * (rj.square() - b.square().sum(-1))
        det = a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
        steep = det.abs() > 1e-6 * ri * rj  # circles that only touch have no crossing to correct
        det = torch.where(steep, det, 1.0)
        step = torch.stack([ea * b[..., 1] - eb * a[..., 1], eb * a[..., 0] - ea * b[..., 0]], -1)
        p = p + step / det[..., None] * steep[..., None]
    return p
