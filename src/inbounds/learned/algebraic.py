"""Sets given by polynomials that were fitted to samples: p(y) = 0, kappa(y) <= 1, inside an affine subspace."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..kernels.derivative import eager, symmetric_method
from ..kernels.vectors import pulled_in
from ..solvers.linear import Gram, kkt, length, reduced
from .base import EPS, FAR, LearnedSet, check_frame
from .near import Near
from .nearest import Nearest
from .newton import TRAINING, Newton, precise
from .onnx import refuse_onnx
from .polynomials import Monomials, Polynomials
from .quadric import Quadric

CHUNK = 8_192  # rows at once


class Algebraic(LearnedSet):
    """{c + unit V w : p(w) = 0 near the samples, |f(w)|^2 <= 1}: V (d, n) orthonormal, p and f polynomials in w / scale.

    `samples` (s, n), on the set, start Newton's method: near sample i the set is W_i p = 0, W_i (codim, r), a combination of full
    rank of what may be many more equations than the codimension (20 quadrics for the 6 of SO(3)). Either p or f may be empty.
    """

    method = "algebraic"
    center: Tensor
    frame: Tensor
    scale: Tensor
    samples: Tensor
    C: Tensor
    tau: Tensor
    W: Tensor
    F: Tensor
    NAMES = ("center", "frame", "scale", "samples", "C", "tau", "W", "F")

    def __init__(
        self,
        shape: tuple[int, ...],
        center: Tensor,
        frame: Tensor,
        scale: Tensor,
        samples: Tensor,
        C: Tensor,
        tau: Tensor,
        W: Tensor,
        F: Tensor,
        degree: int,
        inner: int,
        unit: float = 1.0,
        tolerance: float = 1e-9,
    ):
        super().__init__(shape)
        self.degree, self.inside_degree, self.unit, self.tolerance = degree, inner, unit, tolerance
        for name, t in zip(self.NAMES, (center, frame, scale, samples, C, tau, W, F), strict=True):
            self._constant(name, t.contiguous())
        n = frame.shape[1]
        self.p = Polynomials(self.C, Monomials(n, degree), self.scale)
        self.f = Polynomials(self.F, Monomials(n, inner), self.scale)
        self.n, self.codim = n, W.shape[1]
        self._near = Near(self.p, self.f, self.tau, self.W, self.samples)
        self._newton, self._charts = Newton(self._near), self._near.charts
        self._search = Nearest(self._charts.fixed(self.samples))
        self._exact = symmetric_method(self._newton.nearest, self._derivative)
        on_chart = lambda x, y, g, i, _: self._charts.derivative(x, y, g, i)  # noqa: E731
        self._on_charts = symmetric_method(lambda x, i, foot: foot.clone(), on_chart)
        self._quadric = Quadric.of(self.p, self.f, self.codim)

    def __reduce__(self):
        return self.from_parts, (self.tensors(), self.spec()), {k: getattr(self, k) for k in ("info", "reach", "training")}

    @property
    def dim(self) -> int:
        """Of the set itself."""
        return self.n - self.codim

    # --- projection --------------------------------------------------------------------------------------
    def foot(self, z, eps=EPS):
        w = self._lower(z)
        w = pulled_in(w, FAR)  # in sizes of the set: beyond, monomials overflow
        if not self.codim and not len(self.f):
            y = w
        elif self._quadric is not None:
            y = self._quadric.project(w)
        else:
            refuse_onnx("algebraic")
            y = torch.cat([self._from_nearest(part, eps) for part in w.split(CHUNK)]) if len(w) else w
        return self.center + self.unit * y @ self.frame.mT

    def _from_nearest(self, x: Tensor, eps: float) -> Tensor:
        """The nearest points; in training the feet on the charts of the nearest samples, where these are good enough."""
        i = self._nearest(x.detach())
        if not (self.training and torch.is_grad_enabled() and x.requires_grad and eager() and self._charts.usable):
            return self._exact(x, self._better(x.detach(), i), precise(eps))
        y, good = self._newton.on_charts(x.detach(), i)
        if bool(good.all()):
            return self._on_charts(x, i, y)
        on, off = good.nonzero()[:, 0], (~good).nonzero()[:, 0]
        parts = self._on_charts(x.index_select(0, on), i[on], y[on]), self._exact(x.index_select(0, off), i[off], TRAINING)
        return torch.cat(parts).index_select(0, torch.cat([on, off]).argsort())

    def _nearest(self, x: Tensor) -> Tensor:
        """(rows,), the sample to start from."""
        return self._search(self._charts.fixed(x))

    @torch.no_grad()
    def _better(self, x: Tensor, i: Tensor) -> Tensor:
        """i, or another sample from which the way leads to a nearer point.

        Up to the reach the nearest point is the only one that a way leads to. Beyond half of it (the reach is an estimate) the
        nearest sample in another direction is tried as well, if it is as near as gaps between samples make uncertain.
        """
        if not self.reach or not self.codim or not eager():
            return i
        z, s = self._charts.fixed(x), self._charts.fixed(self.samples)
        rows = (length(z - s[i]) > 0.5 * self.reach / self.unit).nonzero()[:, 0]
        if not len(rows):
            return i
        first = i[rows]
        away = torch.cdist(z[rows], s)
        near = away.gather(1, first[:, None])
        rival = away.masked_fill(torch.cdist(s[first], s) < near, torch.inf).min(1)
        open_ = rival.values.square() <= near[:, 0].square() + self._gap**2
        rows, first, second = rows[open_], first[open_], rival.indices[open_]
        y, other = (self._newton.nearest(x[rows], k, precise(EPS)) for k in (first, second))
        nearer = length(x[rows] - other) < length(x[rows] - y) * (1 - 1e-9)
        return i.index_copy(0, rows, torch.where(nearer, second, first))

    @cached_property
    def _gap(self) -> float:
        """Twice the usual distance between neighbouring samples."""
        s = self._charts.fixed(self.samples)
        return 2 * float(torch.cdist(s[:500], s).topk(min(2, len(s)), largest=False).values[:, -1].median())

    def _lower(self, z: Tensor) -> Tensor:
        return (z - self.center) @ self.frame / self.unit

    def trusted(self, z, y):
        """On the set, the rest of the way normal to it, and no farther than the nearest sample."""
        x, y = self._lower(z), self._lower(y)
        i, active, away = self._better(x.detach(), self._nearest(x.detach())), self._active(x, y), length(x - y)
        near = length(x - self._charts.start(x, i))
        slack = 10 * self.tolerance
        return self._near.on(y) & self._at_rest(x, y, i, active, away) & (away <= near * (1 + 1e-6) + slack)

    def _at_rest(self, x: Tensor, y: Tensor, i: Tensor, active: Tensor | None, away: Tensor) -> Tensor:
        """Whether x - y is normal to the set at y: to the combinations that Newton's method used, those of sample i or new ones.

        With noise the equations do not agree on a set, and each combination has a tangent space of its own.
        """
        rest = torch.zeros_like(away, dtype=torch.bool)
        for W in (self.W.index_select(0, i), self._near.combinations(y)):
            _, A = self._near.equations(y, W, active)
            rest = rest | (length(Gram(A).split(x - y)[0]) <= 1e-6 * away + self.tolerance)
        return rest

    def known(self):
        return self.center + self.unit * self.samples @ self.frame.mT

    def leaves(self, z):
        return super().leaves(z) if self.codim else self.satisfies(z)

    def satisfies(self, z: Tensor) -> Tensor:
        """(rows,): where the inequality holds; equations are not asked."""
        y = self._lower(z)
        return self._near.excess(y) <= 0 if len(self.f) else torch.ones_like(y[:, 0], dtype=torch.bool)

    def settled(self, w: Tensor) -> Tensor:
        """The starting samples w, moved on to the equations."""
        return self._newton.settled(w)

    def side(self, z: Tensor) -> Tensor:
        """(rows,): the sign of the first equation."""
        return self.p.values(self._lower(z))[:, 0].sign()

    def level(self, z: Tensor) -> Tensor:
        """(rows,): |f|^2, which is 1 at most where the inequality holds."""
        return self._near.excess(self._lower(z)) + 1

    def _active(self, x: Tensor, y: Tensor) -> Tensor | None:
        """1 where y lies on the boundary and was put there (x lies beyond)."""
        if not len(self.f):
            return None
        moved = length(x - y) > 1e-12
        return ((self._near.excess(y) > -1e-9) & (moved if not self.codim else torch.ones_like(moved))).to(y.dtype)

    # --- derivative --------------------------------------------------------------------------------------
    def _derivative(self, x: Tensor, y: Tensor, g: Tensor, i: Tensor) -> Tensor:
        """dy with H dy + A^T dl = g, A dy = 0: the implicit derivative of Newton's equations. Symmetric in g."""
        active = self._active(x.detach(), y.detach())
        dy, sound = self._implicit(x, y, g, self.W.index_select(0, i), i, active)
        if eager() and not bool(sound.all()):  # combinations that were made far away
            rows = (~sound).nonzero()[:, 0]
            W = self._near.combinations(y[rows].detach())
            fresh, _ = self._implicit(x[rows], y[rows], g[rows], W, None, None if active is None else active[rows])
            dy = dy.index_copy(0, rows, fresh)
        return dy

    def _implicit(self, x: Tensor, y: Tensor, g: Tensor, W: Tensor, i: Tensor | None, active) -> tuple[Tensor, Tensor]:
        """dy, and whether the combinations W still have full rank at y."""
        _, A = self._near.equations(y, W, active)
        gram = Gram(A)
        H = self._near.lagrangian(y, W, gram.split(x - y)[1], active)
        sound = gram.steepness() > 0.3
        if active is None and i is not None:
            T = self._near.tangent_frame(i, gram)
            wide = torch.linalg.vector_norm(T.detach(), dim=1).amin(1) > 0.3 if T.shape[2] else sound
            return reduced(H, T, g)[0], sound & wide
        return kkt(H, A, g), sound

    def _tangent(self, x, v):
        """Projection of v on {t : A t = 0, <grad |f|^2, t> <= 0 where the inequality is active}."""
        z, v = (self._flat(t).reshape(-1, len(self.center)).double() for t in (x, v))
        y, u = self._lower(z), v @ self.frame
        W = self._near.combinations(y.detach()) if eager() else self.W[self._nearest(y.detach())]
        free = Gram(self._near.equations(y, W, None)[1]).split(u)[0]
        if len(self.f):
            _, A = self._near.equations(y, W, torch.ones_like(y[:, 0]))
            skin = 1e4 * torch.finfo(x.dtype).eps
            outward = (self._near.excess(y) >= -skin) & ((A[:, -1] * free).sum(1) > 0)
            free = torch.where(outward[:, None], Gram(A).split(u)[0], free)
        return (free @ self.frame.mT).to(x.dtype).reshape(x.shape)

    @torch.no_grad()
    def check(self) -> None:
        """The frame is orthonormal, the equations are steep and hold at the samples, and so does the inequality."""
        check_frame(self.frame)
        w = self.samples[:500]
        if len(self.p):
            steep = self.p.jacobian(w).square().sum((1, 2)).mean() / len(self.p)
            off = (self.p.values(w).abs() / (10 * self.tau).clamp(min=1e-5)).square().mean(1).median()
            if not 0.1 < float(steep) < 10 or float(off) > 1:
                raise ValueError("its equations do not hold at its own samples")
        if len(self.f) and float(self._near.excess(w).max()) > 1e-4:
            raise ValueError("its inequality does not hold at its own samples")

    # --- to disk and back --------------------------------------------------------------------------------
    def tensors(self) -> dict[str, Tensor]:
        return {k: getattr(self, k) for k in self.NAMES}

    def spec(self) -> dict[str, Any]:
        return {
            "shape": list(self.shape),
            "degree": self.degree,
            "inner": self.inside_degree,
            "unit": self.unit,
            "tolerance": self.tolerance,
        }

    @classmethod
    def from_parts(cls, tensors, spec):
        return cls(shape=tuple(spec["shape"]), **tensors, **{k: v for k, v in spec.items() if k != "shape"})

    def extra_repr(self):
        shape = self.shape[0] if len(self.shape) == 1 else self.shape
        parts = [f"{len(self.p)} equations of degree {self.degree}"] if len(self.p) else []
        parts += [f"an inequality of degree {2 * self.inside_degree}"] if len(self.f) else []
        return f"{shape}, {' and '.join(parts) or 'affine'}, dim={self.dim}"
