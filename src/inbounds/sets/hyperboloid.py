"""Hyperbolic space."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core import Manifold, Numbers, check_size, shown, working_dtype
from ..kernels.hyperbolic import asinhc, nearest_on_hyperboloid, sinhc
from ..kernels.vectors import norm, unit


class Hyperboloid(Manifold):
    """{(t, y) in R^n : t = sqrt(1/|k| + |y|^2)}, the upper sheet, for the curvature k < 0. n is the ambient size.

    Its metric is the hyperbolic one, `metric = "hyperbolic"`: <u, v> = u_y.v_y - u_t v_t between tangent vectors. The hyperbolic
    plane is Hyperboloid(3). `project`, `tangent` and `distance` are ambient, as on every set, and so is the reach 1/sqrt|k|.

    Everything of the metric is computed from y alone and in float64, also for float32 points: a float32 point at the distance
    10 from the origin is known to 1e-3, and its distances are no worse. A tangent vector at the distance a is known to eps cosh a
    of its length: in float32 not at all beyond 20, and `transport` carries what is left of it. `exp` shortens v where the point
    would leave the range of the dtype: at 40/sqrt|k| in float32, at 300/sqrt|k| in float64.
    """

    curvature: Tensor
    metric = "hyperbolic"

    def __init__(self, n: int, curvature: Numbers = -1.0):
        super().__init__()
        check_size("Hyperboloid", n)
        if n < 2:
            raise ValueError(f"Hyperboloid asked for an ambient size n >= 2, got {n}. The hyperbolic plane is Hyperboloid(3).")
        self.shape, self.dim = (n,), n - 1
        self._constant("curvature", curvature, dims=0)
        self._validate()

    def _validate(self) -> None:
        k = self.curvature
        self._require(
            k < 0, lambda: f"Hyperboloid asked for curvature < 0, got {k.tolist()}. Positive curvature is Sphere(n, radius=...)."
        )

    @property
    def reach(self) -> float:
        """The smallest 1/sqrt|k|."""
        return float(self.curvature.abs().rsqrt().min())

    def _radius(self, x: Tensor, wide: bool = True) -> Tensor:
        """1/sqrt|k|, (*batch, 1), in float64 or in x's dtype."""
        r = (-self._cast("curvature", x)).rsqrt()[..., None]
        return r.double() if wide else r

    def _point(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """y, t and 1/sqrt|k| in float64; t from y, so that the rounding of x's own t does not count."""
        y, r = x[..., 1:].double(), self._radius(x)
        return y, _height(y, r), r

    def _lifted(self, y: Tensor, r: Tensor, like: Tensor) -> Tensor:
        """The point of M over y."""
        return torch.cat([_height(y, r), y], -1).to(like.dtype)

    def _vector(self, x: Tensor, v: Tensor) -> Tensor:
        """The tangent vector at x whose y part is v."""
        y, t, _ = self._point(x)
        return torch.cat([_dot(y, v) / t, v], -1).to(x.dtype)

    def _flattened(self, x: Tensor, v: Tensor) -> Tensor:
        """An isometry from the tangent space at x to R^(n-1): the boost that takes x to the origin."""
        y, t, r = self._point(x)
        v = v[..., 1:].double()
        return v - y * (_dot(y, v) / (t * (t + r)))

    def _project(self, x: Tensor) -> Tensor:
        r = self._radius(x, wide=False)
        return r * nearest_on_hyperboloid(x / r)

    def _gap(self, x: Tensor) -> Tensor:
        return x[..., :1] - _height(x[..., 1:], self._radius(x, wide=False))

    def _residuals(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._gap(x), x[..., :0]

    def _violation(self, x: Tensor) -> Tensor:
        """|t - sqrt(1/|k| + |y|^2)|."""
        return self._gap(x)[..., 0].abs()

    def _scale(self, x: Tensor) -> Tensor | float:
        return _height(x, self._radius(x, wide=False))[..., 0]

    def _tangent(self, x: Tensor, v: Tensor) -> Tensor:
        n = unit(torch.cat([x[..., :1], -x[..., 1:]], -1))
        return v - n * (n * v).sum(-1, keepdim=True)

    def _inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        return (self._flattened(x, u) * self._flattened(x, v)).sum(-1).to(x.dtype)

    def _gradient(self, x: Tensor, g: Tensor) -> Tensor:
        """In the chart y the metric is I - y y^T/t^2, and its inverse I + |k| y y^T."""
        y, t, r = self._point(x)
        c = g[..., 1:].double() + y * (g[..., :1].double() / t)
        return self._vector(x, c + y * (_dot(y, c) / r.square()))

    def _random_tangent(self, x: Tensor, noise: Tensor) -> Tensor:
        y, t, r = self._point(x)
        w = noise[..., 1:].double()
        return self._vector(x, w + y * (_dot(y, w) / (r * (t + r))))

    def _half(self, x: Tensor, y: Tensor) -> Tensor:
        """sinh^2(d/2) of the distance d in units of 1/sqrt|k|, (*batch, 1).

        Far from the origin it is sinh^2((a - b)/2) + sinh a sinh b sin^2(angle/2) with the distances a, b from the origin. Near
        it, where angles are not smooth, it is (|D|^2 - (D.m)^2)/4 with D the difference of the y and m = (y_1 + y_2)/(t_1 + t_2).
        """
        (p, t, r), (q, s, _) = self._point(x), self._point(y)
        a, b = norm(p)[..., None] / r, norm(q)[..., None] / r
        apart = (unit(p) - unit(q)).square().sum(-1, keepdim=True)
        far = torch.sinh(0.5 * (torch.asinh(a) - torch.asinh(b))).square() + 0.25 * a * b * apart
        D = p - q
        near = (_dot(D, D) - (_dot(D, p + q) / (t + s)).square()).clamp(min=0) / (2 * r).square()
        return torch.where((a > 0.5) & (b > 0.5), far, near)

    def _geodesic_distance(self, x: Tensor, y: Tensor) -> Tensor:
        h = self._half(x, y)[..., 0]
        apart = h > 0
        root = torch.where(apart, h, 1.0).sqrt()
        return torch.where(apart, 2 * self._radius(x)[..., 0] * torch.asinh(root), 0.0 * h).to(x.dtype)

    def _log_spatial(self, x: Tensor, y: Tensor, h: Tensor) -> Tensor:
        """The y part of log: d/sinh d (y - cosh d x), from h = sinh^2(d/2)."""
        p, q = x[..., 1:].double(), y[..., 1:].double()
        return asinhc(h) * (1 + h).rsqrt() * (q - p - 2 * h * p)

    def _log(self, x: Tensor, y: Tensor) -> Tensor:
        return self._vector(x, self._log_spatial(x, y, self._half(x, y)))

    def _exp(self, x: Tensor, v: Tensor) -> Tensor:
        p, _, r = self._point(x)
        longest = 40.0 if x.dtype == torch.float32 else 300.0
        size = norm(self._flattened(x, v))[..., None] / r
        v = v[..., 1:].double() * (longest / size.detach().clamp(min=longest))
        z = (self._flattened(x, torch.cat([v[..., :1], v], -1)) / r).square().sum(-1, keepdim=True)
        return self._lifted(p + 0.5 * z * sinhc(0.25 * z).square() * p + sinhc(z) * v, r, x)

    def _transport(self, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        """Boosts to the origin and from it, with a turn in between by the angle that the triangle of x, y and the origin lacks.

        In the disk of Poincare, where x and y are p and q, the turn is I + 2 (a S + S^2)/(a^2 + b^2) with S = p q^T - q p^T,
        a = 1 - p.q and b^2 = |p|^2 |q|^2 - (p.q)^2. Nothing cancels but the difference of p and q, and nothing is divided by
        a distance.
        """
        w = self._flattened(x, v)
        (p, t, r), (q, s, _) = self._point(x), self._point(y)
        p, q, gap = p / (t + r), q / (s + r), (r / (t + r) + r / (s + r))  # gap = 1 - (|p|^2 + |q|^2)/2
        D = p - q
        a = gap + 0.5 * _dot(D, D)
        b2 = (_dot(p, p) * _dot(D, D) - _dot(p, D).square()).clamp(min=0)

        def turned(u: Tensor) -> Tensor:
            return p * _dot(q, u) - q * _dot(p, u)

        once = turned(w)
        w = w + 2 * (a * once + turned(once)) / (a.square() + b2)
        y_, t, r = self._point(y)
        return self._vector(y, w + y_ * (_dot(y_, w) / (r * (t + r))))

    def _log_volume(self, x: Tensor, v: Tensor) -> Tensor:
        """(dim - 1) log(sinh t / t) at t = sqrt|k| |v|."""
        z = (self._flattened(x, v) / self._radius(x)).square().sum(-1)
        return ((self.dim - 1) * sinhc(z).log()).to(x.dtype)

    def _refine(self, x: Tensor) -> Tensor:
        """The point over the same y."""
        y, _, r = self._point(x)
        return self._lifted(y, r, x)

    def origin(self, like: Tensor) -> Tensor:
        like = torch.zeros(self.shape, dtype=working_dtype(like), device=like.device)
        return self._refine(like)

    def _sample(
        self, batch: tuple[int, ...], generator: torch.Generator | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Standard normal vectors in the tangent space at the origin, carried by `exp`."""
        noise = torch.randn(*batch, *self.shape, generator=generator, dtype=dtype, device=device)
        o = self.origin(noise).expand_as(noise) if not self.batch else self._refine(torch.zeros_like(noise))
        return self._exp(o, self._random_tangent(o, noise * self._radius(noise, wide=False)))

    def extra_repr(self) -> str:
        return f"{self.shape[0]}" + shown("curvature", self.curvature, -1.0)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1, keepdim=True)


def _height(y: Tensor, r: Tensor) -> Tensor:
    """sqrt(r^2 + |y|^2), (*batch, 1), without overflow."""
    return norm(torch.cat([y, r.expand_as(y[..., :1])], -1))[..., None]
