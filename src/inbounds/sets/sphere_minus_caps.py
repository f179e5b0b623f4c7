"""The unit sphere without open caps: directions that avoid obstacles."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..core import ACTIVE, LANDING, ConstraintSet, Numbers, eager, sized, skin
from ..kernels.vectors import norm, unit
from .free_space import FLOAT32, cheapest, closest_pair, cone_projection, distances, positive_root, sample_free


class SphereMinusCaps(ConstraintSet):
    """{|x| = 1, angle(x, centers_i) >= angles_i}: the unit sphere with round obstacles; angle 0 = absent.

    centers (*batch, m, n) of any length > 0, angles (*batch, m) in [0, pi). Disjoint caps: any n. Overlapping or touching caps:
    exact for n <= 3, where the nearest free point is x/|x|, its push to one of the rims, or a crossing of two rims.
    """

    centers: Tensor
    angles: Tensor

    def __init__(self, centers: Numbers, angles: Numbers):
        super().__init__()
        c, a = self._constant("centers", centers, dims=2), self._constant("angles", angles, dims=1)
        if c.dim() < 2 or a.shape[-1:] != c.shape[-2:-1] or c.shape[-1] < 2:
            raise ValueError(
                "SphereMinusCaps asked for centers (*batch, m, n), n >= 2, and angles (*batch, m), got "
                f"{tuple(c.shape)}, {tuple(a.shape)}. No caps: Sphere(n)."
            )
        self.shape = (c.shape[-1],)
        self._validate()
        known = eager() and not c.is_meta
        self.apart = (self._disjoint() if known else self.shape[0] > 3) and not (self._learnable() and self.shape[0] <= 3)
        if not self.apart and self.shape[0] > 3:
            raise ValueError(
                f"SphereMinusCaps in R^{self.shape[0]} asked for disjoint caps, got some that touch or overlap: there the "
                "projection is known in closed form for n <= 3 only. Replace each cluster by one cap that encloses it."
            )
        if known and not self.apart:
            probe = torch.zeros(self.shape, dtype=torch.float64, device=c.device)
            free = self._vertices(probe, FLOAT32)[1].any(-1) | self._allowed(self._rims(probe, None), probe, FLOAT32).any(-1)
            self._require(
                free,
                lambda: "SphereMinusCaps asked for a non-empty free space, the caps cover the sphere. Shrink the angles.",
            )

    def _validate(self) -> None:
        c, a = self.centers, self.angles
        self._require((c.abs().amax(-1) > 0) | (a <= 0), lambda: "SphereMinusCaps asked for nonzero centers, got a zero vector.")
        self._require(
            (a >= 0) & (a < math.pi - 1e-4),
            lambda: f"SphereMinusCaps asked for angles in [0, pi), got {a.tolist()}. A cap of angle pi leaves no sphere.",
        )

    @property
    def reach(self) -> float:
        """Certified lower bound: sin of the cap angles up to pi/2, and half the distance between vertices."""
        a = self.angles.detach().double()
        sines = torch.where(a > 0, torch.sin(a.clamp(max=math.pi / 2)), 1.0)
        least = float(sines.min()) if sines.numel() else 1.0
        if self.apart:
            return least
        points, free = self._vertices(torch.zeros(self.shape, dtype=torch.float64, device=a.device))
        return min(least, 0.5 * closest_pair(points.detach(), free, same=1e-9))

    def _parts(self, x: Tensor, precision: torch.dtype | None = None) -> tuple[Tensor, Tensor, float]:
        """Unit centers, angles, and the rounding of a chord."""
        u = unit(self._cast("centers", x))
        return u, self._cast("angles", x, towards=1), skin(torch.empty(0, dtype=precision or x.dtype), self.shape[0])

    def _disjoint(self) -> bool:
        u, a, tol = self._parts(self.centers.detach().double(), FLOAT32)
        grown = torch.where(a > 0, a + 2 * 1.5 * LANDING * tol, -math.inf)[..., None]
        between = 2 * torch.atan2(distances(u, u), distances(u, -u))
        off = ~torch.eye(a.shape[-1], dtype=torch.bool, device=a.device)
        return bool(((between - grown - grown.mT)[..., off] >= 0).all())

    def _slack(self, p: Tensor, x: Tensor) -> Tensor:
        """How far p (*batch, K, n) is outside each cap, in chord length, (*batch, K, m); measured from the nearer pole."""
        u, a, _ = self._parts(x)
        u, a = u[..., None, :, :], a[..., None, :]
        small = norm(p[..., :, None, :] - u) - 2 * torch.sin(a / 2)
        large = 2 * torch.cos(a / 2) - norm(p[..., :, None, :] + u)
        return torch.where(a <= 0, math.inf, torch.where(a <= math.pi / 2, small, large))

    def _project(self, x: Tensor) -> Tensor:
        q = unit(x)
        if not self.angles.shape[-1]:
            return q
        if self.apart:
            slack = self._slack(q[..., None, :].detach(), x)[..., 0, :]
            rims = self._rims(x, q)
            if self._learnable() and eager():
                self._require(
                    torch.tensor(self._disjoint()), lambda: f"{self!r}: learnt caps meet. Clamp them apart after each step."
                )
            pushed = cheapest(rims, slack.expand(rims.shape[:-1]), torch.ones_like(rims[..., 0], dtype=torch.bool))
            return torch.where(slack.amin(-1, keepdim=True) < self._parts(x)[2], pushed, q)
        moving = torch.cat([q[..., None, :], self._rims(x, q)], -2)
        fixed, free = self._vertices(x)
        batch = torch.broadcast_shapes(moving.shape[:-2], fixed.shape[:-2])
        points = torch.cat([moving.expand(*batch, *moving.shape[-2:]), fixed.expand(*batch, *fixed.shape[-2:])], -2)
        allowed = torch.cat([self._allowed(moving, x).expand(*batch, -1), free.expand(*batch, -1)], -1)
        cost = (points - q[..., None, :]).detach().square().sum(-1)
        return cheapest(points, cost, allowed)

    def _rims(self, x: Tensor, q: Tensor | None) -> Tensor:
        """The point of each rim nearest to q (any point of it without q), a landing skin outside: (*batch, m, n)."""
        u, a, tol = self._parts(x, FLOAT32 if q is None else None)
        towards = torch.zeros_like(u) if q is None else q[..., None, :] - u
        e = towards - u * (u * towards).sum(-1, keepdim=True)
        axis = torch.zeros_like(u).scatter(-1, u.detach().abs().argmin(-1, keepdim=True), 1.0)
        some = axis - u * (u * axis).sum(-1, keepdim=True)
        lost = norm(e.detach())[..., None] <= 8 * torch.finfo(x.dtype).eps  # at the poles every direction will do
        e = unit(torch.where(lost, some, e))
        a = (a + 1.5 * LANDING * tol)[..., None]  # a chord grows by at least cos(pi/4) of the angle
        return torch.cos(a) * u + torch.sin(a) * e

    def _allowed(self, p: Tensor, x: Tensor, precision: torch.dtype | None = None) -> Tensor:
        """Free by one skin: (*batch, K)."""
        return (self._slack(p.detach(), x) >= self._parts(x, precision)[2]).all(-1)

    def _vertices(self, x: Tensor, precision: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """Where rims cross (*batch, K, n), computed in float64, and which of these points are free. On the circle: the rims."""
        u, a, tol = self._parts(x, precision)
        u, a = unit(u.double()), a.double()
        grown = torch.where(a > 0, a + 1.5 * LANDING * tol, 0.0)
        p = _ends(u, grown) if self.shape == (2,) else _crossings(u, grown)
        real = torch.isfinite(p).all(-1)
        first = torch.eye(self.shape[0], dtype=p.dtype, device=p.device)[0]
        p = torch.where(real[..., None], unit(torch.where(real[..., None], p, first)), first).to(x.dtype)
        return p, real & self._allowed(p, x, precision)

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        slack = self._slack(x[..., None, :], x)[..., 0, :]
        eq = 0.5 * ((x * x).sum(-1, keepdim=True) - 1)
        return eq.expand(*slack.shape[:-1], 1), -slack

    def _violation(self, x: Tensor) -> Tensor:
        over = (-self._slack(x[..., None, :], x)[..., 0, :]).clamp(min=0)
        return (norm(x) - 1).abs() + over.norm(dim=-1)

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        u, _, tol = self._parts(x)
        v = v - x * (x * v).sum(-1, keepdim=True)
        if not u.shape[-2]:
            return v
        point = x[..., None, :]
        towards = u - point
        normals = unit(towards - point * (point * towards).sum(-1, keepdim=True))
        touching = self._slack(x[..., None, :], x)[..., 0, :] <= ACTIVE * tol
        return cone_projection(v, normals.expand(*v.shape[:-1], *normals.shape[-2:]), touching)

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Uniform, by rejection."""
        batch = torch.broadcast_shapes(batch, self.centers.shape[:-2], self.angles.shape[:-1])

        def draw():
            return unit(torch.randn(*batch, *self.shape, generator=generator, dtype=dtype, device=device))

        return sample_free(draw, lambda x: self._allowed(x[..., None, :], x), self._project)

    def extra_repr(self) -> str:
        return ", ".join(map(sized, (self.centers, self.angles)))


def _ends(u: Tensor, a: Tensor) -> Tensor:
    """Both ends of each arc on the circle; NaN for absent caps. (*batch, 2m, 2)."""
    side = torch.stack([-u[..., 1], u[..., 0]], -1)
    c, s = torch.cos(a)[..., None], torch.sin(a)[..., None]
    both = torch.cat([c * u + s * side, c * u - s * side], -2)
    return torch.where(torch.cat([a, a], -1)[..., None] > 0, both, math.nan)


def _crossings(u: Tensor, a: Tensor) -> Tensor:
    """Both crossings of each pair of rims on S^2, NaN where there are none: (*batch, m(m-1), 3)."""
    m = a.shape[-1]
    i, j = torch.triu_indices(m, m, offset=1, device=u.device)
    ui, uj, ci, cj = u[..., i, :], u[..., j, :], torch.cos(a[..., i]), torch.cos(a[..., j])
    axis = torch.linalg.cross(ui, uj)
    sin2 = axis.square().sum(-1)
    g = (ui * uj).sum(-1)
    crossing = sin2 > 1e-20
    sin2 = torch.where(crossing, sin2, 1.0)
    foot = ((ci - g * cj) / sin2)[..., None] * ui + ((cj - g * ci) / sin2)[..., None] * uj
    h2 = (1 - foot.square().sum(-1)) / sin2
    real = crossing & (h2 >= 0) & (a[..., i] > 0) & (a[..., j] > 0)
    side = positive_root(h2)[..., None] * axis
    both = [_settle(foot + sign * side, ui, uj, axis, a[..., i], a[..., j]) for sign in (1, -1)]
    return torch.where(torch.cat([real, real], -1)[..., None], torch.cat(both, -2), math.nan)


def _settle(p: Tensor, ui: Tensor, uj: Tensor, axis: Tensor, ai: Tensor, aj: Tensor) -> Tensor:
    """Newton on |p - u_i| = 2 sin(a_i/2), |p - u_j| = 2 sin(a_j/2), |p| = 1: chords to rounding, also for close centers."""
    g, sin2 = (ui * uj).sum(-1), axis.square().sum(-1).clamp(min=1e-20)
    for _ in range(2):
        off = 0.5 * (1 - p.square().sum(-1))
        ri = off + 0.5 * (p - ui).square().sum(-1) - 2 * torch.sin(ai / 2).square()
        rj = off + 0.5 * (p - uj).square().sum(-1) - 2 * torch.sin(aj / 2).square()
        a, b = (ri - g * rj) / sin2, (rj - g * ri) / sin2
        height = (axis * p).sum(-1)
        steep = height.abs() > 1e-6 * sin2.sqrt()  # rims that only touch have no height to correct
        c = (off - a * (p * ui).sum(-1) - b * (p * uj).sum(-1)) / torch.where(steep, height, 1.0) * steep
        p = p + a[..., None] * ui + b[..., None] * uj + c[..., None] * axis
    return p
