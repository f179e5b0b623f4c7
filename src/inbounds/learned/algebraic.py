"""Sets given by polynomials that were fitted to samples: p(y) = 0, kappa(y) <= 1, inside an affine subspace."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..kernels.derivative import eager, symmetric_method
from ..kernels.vectors import pulled_in
from ..solvers.linear import Gram, apply, kkt, length, reduced, stiff_step
from .base import EPS, FAR, LearnedSet, check_frame
from .charts import Charts
from .polynomials import Monomials, Polynomials
from .quadric import Quadric
from .vanishing import ROUNDING

STEPS = 25  # of Newton's method with safeguards, in eager mode
PLAIN_STEPS = 6  # without them, at most
STIFF = 1e6  # weight of the equations in a plain step
BLIND_STEPS = 10  # where values cannot be looked at (vmap, compile)
CHUNK = 8_192  # rows at once
CHARTS = 4e-3  # error, in units of the set's size, that training may leave: raised for speed; it stands for eps there


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
        self._p = Polynomials(self.C, Monomials(n, degree), self.scale)
        self._f = Polynomials(self.F, Monomials(n, inner), self.scale)
        self.n, self.codim = n, W.shape[1]
        self._charts = Charts(self._p, self.W, self.samples)
        self._search = Nearest(self._charts.fixed(self.samples))
        self._map = symmetric_method(self._solve, self._derivative)
        self._quadric = Quadric.of(self._p, self._f, self.codim)

    def __deepcopy__(self, memo):
        return copied({k: t.clone() for k, t in self.tensors().items()}, self.spec(), self._rest())

    def __reduce__(self):
        return copied, (self.tensors(), self.spec(), self._rest())

    def _rest(self) -> dict[str, Any]:
        return {"info": self.info, "reach": self.reach, "training": self.training}

    @property
    def dim(self) -> int:
        """Of the set itself."""
        return self.n - self.codim

    # --- projection --------------------------------------------------------------------------------------
    def foot(self, z, eps=EPS):
        w = self._lower(z)
        w = pulled_in(w, FAR)  # in sizes of the set: beyond, monomials overflow
        if self._quadric is not None:
            y = self._quadric.project(w)
        else:
            y = torch.cat([self._from_nearest(part, eps) for part in w.split(CHUNK)]) if len(w) else w
        return self.center + self.unit * y @ self.frame.mT

    def _from_nearest(self, x: Tensor, eps: float) -> Tensor:
        """The map with the starting sample found once for value and derivative: x, i and how exactly, in one row."""
        if self.training and torch.is_grad_enabled() and x.requires_grad and eager() and self._charts.usable:
            eps = CHARTS
        rest = torch.stack([self._nearest(x.detach()).to(x.dtype), torch.full_like(x[:, 0].detach(), eps)], 1)
        return self._map(torch.cat([x, rest], 1))[:, : self.n]

    def _nearest(self, x: Tensor) -> Tensor:
        """(rows,), the sample to start from."""
        return self._search(self._charts.fixed(x))

    def _lower(self, z: Tensor) -> Tensor:
        return (z - self.center) @ self.frame / self.unit

    def trusted(self, z, y):
        """On the set, the rest of the way normal to it, and no farther than the nearest sample."""
        x, y = self._lower(z), self._lower(y)
        i, active, away = self._nearest(x), self._active(x, y), length(x - y)
        near = length(x - self._charts.start(x, i))
        slack = 10 * self.tolerance
        return self._on(y) & self._at_rest(x, y, i, active, away) & (away <= near * (1 + 1e-6) + slack)

    def _at_rest(self, x: Tensor, y: Tensor, i: Tensor, active: Tensor | None, away: Tensor) -> Tensor:
        """Whether x - y is normal to the set at y: to the combinations that Newton's method used, those of sample i or new ones.

        With noise the equations do not agree on a set, and each combination has a tangent space of its own.
        """
        rest = torch.zeros_like(away, dtype=torch.bool)
        for W in (self.W.index_select(0, i), self._combinations(y)):
            _, A = self._equations(y, W, active)
            rest = rest | (length(Gram(A).split(x - y)[0]) <= 1e-6 * away + self.tolerance)
        return rest

    def _on(self, y: Tensor, eps: Tensor | float = 0.0) -> Tensor:
        """Whether all polynomials vanish, to ten times what they leave at the samples, in training to CHARTS / 3; W_i p alone has
        other zeros far from i."""
        if not self.codim:
            return torch.isfinite(y).all(1)
        least = torch.where(torch.as_tensor(eps) == CHARTS, CHARTS / 30, ROUNDING)
        return (self._p.values(y) / self.tau.maximum(least[..., None])).square().mean(1) <= 100.0

    def known(self):
        return self.center + self.unit * self.samples @ self.frame.mT

    def leaves(self, z):
        return super().leaves(z) if self.codim else self.satisfies(z)

    def satisfies(self, z: Tensor) -> Tensor:
        """(rows,): where the inequality holds; equations are not asked."""
        y = self._lower(z)
        return self._excess(y) <= 0 if len(self._f) else torch.ones_like(y[:, 0], dtype=torch.bool)

    def level(self, z: Tensor) -> Tensor:
        """(rows,): |f|^2, which is 1 at most where the inequality holds."""
        return self._excess(self._lower(z)) + 1

    def settled(self, w: Tensor) -> Tensor:
        """The starting samples w, moved on to the equations."""
        return self._newton(w, w, torch.arange(len(w)), None, w.new_full((len(w),), EPS), w)

    @torch.no_grad()
    def _solve(self, labelled: Tensor) -> Tensor:
        """(rows, n + 2) -> (rows, n + 2); the last column tells which rows were left on their charts."""
        x, i, eps = self._unlabelled(labelled)
        y, left = (x, torch.zeros_like(i, dtype=torch.bool)) if not self.codim else self._to_equations(x, i, eps)
        if len(self._f):
            outside = self._excess(y) > 0
            left = left & ~outside
            if not eager():
                y = torch.where(outside[:, None], self._to_boundary(x, y, i, eps), y)
            elif bool(outside.any()):
                rows = outside.nonzero()[:, 0]
                y = y.index_copy(0, rows, self._to_boundary(x[rows], y[rows], i[rows], eps[rows]))
        return torch.cat([y, labelled[:, self.n : self.n + 1], left[:, None].to(y.dtype)], 1)

    def _to_equations(self, x: Tensor, i: Tensor, eps: Tensor) -> tuple[Tensor, Tensor]:
        """y with p(y) = 0, and which rows were left on the charts, which is where training is content with them."""
        if not eager():
            return self._blind(x, self._charts.start(x, i), i, None), torch.zeros_like(i, dtype=torch.bool)
        y, far = self._charts.foot(x, i)
        left = (eps == CHARTS) & (far > 0)
        if bool(left.any()):  # charts are off by e ~ far^3, their slope by 3 e / far: that moves the foot, the more the farther x
            e = length(self._values(y, self.W.index_select(0, i), None))
            left = left & (e * (1 + 3 * length(x - y) / far) <= CHARTS)
        rows = (~left).nonzero()[:, 0]
        if len(rows) == len(x):
            return self._newton(x, self._charts.start(x, i), i, None, eps, y), left
        x, i = x[rows], i[rows]
        return y.index_copy(0, rows, self._newton(x, self._charts.start(x, i), i, None, eps[rows], y[rows])), left

    def _unlabelled(self, labelled: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return labelled[:, : self.n], labelled[:, self.n].detach().long(), labelled[:, self.n + 1].detach()

    def _to_boundary(self, x: Tensor, y: Tensor, i: Tensor, eps: Tensor) -> Tensor:
        """From where the way from the nearest sample to y leaves the set."""
        a, b = torch.zeros_like(y[:, 0]), torch.ones_like(y[:, 0])
        s = self.samples[i]
        for _ in range(12):
            mid = 0.5 * (a + b)
            out = self._excess(s + mid[:, None] * (y - s)) > 0
            a, b = torch.where(out, a, mid), torch.where(out, mid, b)
        start, active = s + a[:, None] * (y - s), torch.ones_like(a)
        return self._newton(x, start, i, active, eps, start) if eager() else self._blind(x, start, i, active)

    def _newton(self, x: Tensor, y: Tensor, i: Tensor, active: Tensor | None, eps: Tensor, guess: Tensor) -> Tensor:
        """Newton on y - x + A^T l = 0, e(y) = 0, from a guess; rows that do not get there stay at y, a point of the set.

        Rows that plain steps do not bring there, or farther than y, go the way again from y with safeguards, and those that end
        where not all polynomials vanish, again with new combinations at every step.
        """
        out, arrived = self._run(x, guess, i, active, eps)
        arrived &= self._on(out, eps) & (length(x - out) <= (1 + 1e-9) * length(x - y) + 1e-9)
        for careful in (self._walk, self._wander):
            if bool(arrived.all()):
                break
            lost = (~arrived).nonzero()[:, 0]
            again, there = careful(x[lost], y[lost], i[lost], None if active is None else active[lost])
            arrived[lost] = there & self._on(again)
            out[lost] = torch.where(arrived[lost, None], again, y[lost])
        return out

    def _run(self, x: Tensor, y: Tensor, i: Tensor, active: Tensor | None, eps: Tensor) -> tuple[Tensor, Tensor]:
        """Plain steps: where each row ends, and whether it came to rest."""
        W, rest = self.W.index_select(0, i), 0.25 * eps.sqrt()  # convergence is quadratic
        e, A = self._equations(y, W, active)
        l = Gram(A).split(x - y)[1]
        stiff = STIFF * (1 + length(l)[:, None])
        step, sound = eps, i >= 0
        for _ in range(PLAIN_STEPS):
            move, l, sound = stiff_step(self._lagrangian(y, W, l, active), A, e, l, x - y, stiff)
            y, step = y + move, length(move)
            if not bool(((step > rest) & sound).any()):
                break
            e, A = self._equations(y, W, active)
        return y, (step <= rest) & sound

    def _blind(self, x: Tensor, y: Tensor, i: Tensor, active: Tensor | None) -> Tensor:
        """A fixed number of steps, where values cannot be looked at."""
        start, step = y, y[:, 0]
        for _ in range(BLIND_STEPS):
            y, step = self._step(x, y, i, self.W[i], active)
        good = (step <= 1e-5) & self._on(y)
        return torch.where(good[:, None], y, start)

    def _wander(self, x: Tensor, y: Tensor, i: Tensor, active: Tensor | None) -> tuple[Tensor, Tensor]:
        return self._walk(x, y, None, active)

    def _walk(self, x: Tensor, y: Tensor, i: Tensor | None, active: Tensor | None) -> tuple[Tensor, Tensor]:
        """Where each row ends, and whether it came to rest. i None: new combinations at every step."""
        out, arrived, rows = y.clone(), torch.zeros(len(y), dtype=torch.bool), torch.arange(len(y))
        W = None if i is None else self.W[i]
        for _ in range(STEPS):
            y, step = self._step(x, y, i, self._combinations(y) if W is None else W, active)
            done = step <= 1e-7
            if bool(done.any()):
                out[rows[done]], arrived[rows[done]] = y[done], True
            left = ~done & torch.isfinite(step)
            if not bool(left.any()):
                break
            if not bool(left.all()):
                rows, x, y = rows[left], x[left], y[left]
                i, W, active = (None if t is None else t[left] for t in (i, W, active))
        return out, arrived

    def _combinations(self, y: Tensor) -> Tensor:
        return combinations(self._p, self.tau, y, self.codim)

    def _step(self, x: Tensor, y: Tensor, i: Tensor | None, W: Tensor, active: Tensor | None) -> tuple[Tensor, Tensor]:
        """A new y, and how far it is from the old one. With a second order correction: e(y) is small after it.

        Where Newton's equations are not those of a minimum (beyond the first focal point), or its step is wild, a gradient step.
        """
        e, A = self._equations(y, W, active)
        gram = Gram(A)
        normal = gram.least(e)
        tangential, multiplier = gram.split(x - y)
        H = self._lagrangian(y, W, multiplier, active)
        if active is None and i is not None:
            T = self._tangent_frame(i, gram)
            move, sound = reduced(H, T, x - y + apply(H, normal))
        else:
            move, sound = kkt(H, A, x - y + apply(H, normal)), True
        longest = 3 * (length(x - y) + length(normal))
        sound = sound & (length(move) <= longest) & ((move * tangential).sum(1) >= 0)
        new = y - normal + torch.where(sound[:, None], move, 0.5 * tangential)
        correction = gram.least(self._values(new, W, active))
        size = length(new - y)
        good = length(correction) <= 0.5 * size + 1e-300
        return torch.where(good[:, None], new - correction, new), size

    # --- the equations near sample i: those that W = W_i combines ---------------------------------------------
    def _equations(self, y: Tensor, W: Tensor, active: Tensor | None) -> tuple[Tensor, Tensor]:
        """Values (rows, k) and Jacobian (rows, k, n) of W p, and of (|f|^2 - 1)/2 where it is active."""
        A = W @ self._p.jacobian(y)
        if active is not None:
            G = self._f.values(y)[:, None] @ self._f.jacobian(y)
            A = torch.cat([A, active[:, None, None] * G], 1)
        return self._values(y, W, active), A

    def _values(self, y: Tensor, W: Tensor, active: Tensor | None) -> Tensor:
        e = apply(W, self._p.values(y))
        return e if active is None else torch.cat([e, (0.5 * active * self._excess(y))[:, None]], 1)

    def _lagrangian(self, y: Tensor, W: Tensor, multiplier: Tensor, active: Tensor | None) -> Tensor:
        """I + sum l_k Hess e_k: (rows, n, n)."""
        H = torch.eye(self.n, dtype=y.dtype) + self._p.hessian(y, apply(W.mT, multiplier[:, : self.codim]))
        if active is None:
            return H
        f, J = self._f.values(y), self._f.jacobian(y)
        return H + (active * multiplier[:, -1])[:, None, None] * (J.mT @ J + self._f.hessian(y, f))

    def _tangent_frame(self, i: Tensor, gram: Gram) -> Tensor:
        """Tangent vectors at sample i without their normal part at y: (rows, n, dim)."""
        T = self._charts.tangents(i)
        return T - gram.A.mT @ gram.solve(gram.A @ T)

    def _excess(self, y: Tensor) -> Tensor:
        return self._f.values(y).square().sum(1) - 1

    def _active(self, x: Tensor, y: Tensor) -> Tensor | None:
        """1 where y lies on the boundary and was put there (x lies beyond)."""
        if not len(self._f):
            return None
        moved = length(x - y) > 1e-12
        return ((self._excess(y) > -1e-9) & (moved if not self.codim else torch.ones_like(moved))).to(y.dtype)

    # --- derivative --------------------------------------------------------------------------------------
    def _derivative(self, labelled: Tensor, y: Tensor, g: Tensor) -> Tensor:
        """dy with H dy + A^T dl = g, A dy = 0: the implicit derivative of Newton's equations. Symmetric in g."""
        (x, i, _), (y, _, left), g = self._unlabelled(labelled), self._unlabelled(y), g[:, : self.n]
        if not eager() or not bool(left.any()):
            return F.pad(self._off_charts(x, y, g, i), (0, 2))
        on, off = left.nonzero()[:, 0], (left == 0).nonzero()[:, 0]
        dy = torch.zeros_like(g).index_copy(0, on, self._charts.derivative(x[on], y[on], g[on], i[on]))
        return F.pad(dy.index_copy(0, off, self._off_charts(x[off], y[off], g[off], i[off])) if len(off) else dy, (0, 2))

    def _off_charts(self, x: Tensor, y: Tensor, g: Tensor, i: Tensor) -> Tensor:
        active = self._active(x.detach(), y.detach())
        dy, sound = self._implicit(x, y, g, self.W.index_select(0, i), i, active)
        if eager() and not bool(sound.all()):  # combinations that were made far away
            rows = (~sound).nonzero()[:, 0]
            W = self._combinations(y[rows].detach())
            fresh, _ = self._implicit(x[rows], y[rows], g[rows], W, None, None if active is None else active[rows])
            dy = dy.index_copy(0, rows, fresh)
        return dy

    def _implicit(self, x: Tensor, y: Tensor, g: Tensor, W: Tensor, i: Tensor | None, active) -> tuple[Tensor, Tensor]:
        """dy, and whether the combinations W still have full rank at y."""
        _, A = self._equations(y, W, active)
        gram = Gram(A)
        H = self._lagrangian(y, W, gram.split(x - y)[1], active)
        sound = gram.steepness() > 0.3
        if active is None and i is not None:
            T = self._tangent_frame(i, gram)
            wide = torch.linalg.vector_norm(T.detach(), dim=1).amin(1) > 0.3 if T.shape[2] else sound
            return reduced(H, T, g)[0], sound & wide
        return kkt(H, A, g), sound

    def _tangent(self, x, v):
        """Projection of v on {t : A t = 0, <grad |f|^2, t> <= 0 where the inequality is active}."""
        z, v = (self._flat(t).reshape(-1, len(self.center)).double() for t in (x, v))
        y, u = self._lower(z), v @ self.frame
        W = self._combinations(y.detach()) if eager() else self.W[self._nearest(y.detach())]
        free = Gram(self._equations(y, W, None)[1]).split(u)[0]
        if len(self._f):
            _, A = self._equations(y, W, torch.ones_like(y[:, 0]))
            skin = 1e4 * torch.finfo(x.dtype).eps
            outward = (self._excess(y) >= -skin) & ((A[:, -1] * free).sum(1) > 0)
            free = torch.where(outward[:, None], Gram(A).split(u)[0], free)
        return (free @ self.frame.mT).to(x.dtype).reshape(x.shape)

    @torch.no_grad()
    def check(self) -> None:
        """The frame is orthonormal, the equations are steep and hold at the samples, and so does the inequality."""
        check_frame(self.frame)
        w = self.samples[:500]
        if len(self._p):
            steep = self._p.jacobian(w).square().sum((1, 2)).mean() / len(self._p)
            off = (self._p.values(w).abs() / (10 * self.tau).clamp(min=1e-5)).square().mean(1).median()
            if not 0.1 < float(steep) < 10 or float(off) > 1:
                raise ValueError("its equations do not hold at its own samples")
        if len(self._f) and float(self._excess(w).max()) > 1e-4:
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
        parts = [f"{len(self._p)} equations of degree {self.degree}"] if len(self._p) else []
        parts += [f"an inequality of degree {2 * self.inside_degree}"] if len(self._f) else []
        return f"{shape}, {' and '.join(parts) or 'affine'}, dim={self.dim}"


def copied(tensors: dict[str, Tensor], spec: dict[str, Any], rest: dict[str, Any]) -> Algebraic:
    """The set that a pickle or a deep copy was made of."""
    M = Algebraic.from_parts(tensors, spec)
    M.info, M.reach = rest["info"], rest["reach"]
    return M.train(rest["training"])


def combinations(p: Polynomials, tau: Tensor, w: Tensor, codim: int) -> Tensor:
    """W (rows, codim, r) such that W p has orthonormal gradients at w: the steepest combinations, precise equations first."""
    if not codim:
        return w.new_zeros(len(w), 0, len(tau))
    weight = 1 / tau.clamp(min=ROUNDING)
    U, S, _ = torch.linalg.svd(weight[:, None] * p.jacobian(w), full_matrices=False)
    return U[:, :, :codim].mT * weight / S[:, :codim, None]


class Nearest:
    """Index of the nearest sample, in float32: any near one will do to start from."""

    LANES, ROWS = 64, 256  # argmin is slow, amin is not: least of every 64th sample, then of the 64; in the cache

    def __init__(self, samples: Tensor):
        s = samples.float()
        s = torch.cat([-2 * s, s.square().sum(1, keepdim=True)], 1)
        self.table = F.pad(s, (0, 0, 0, -len(s) % self.LANES)).mT.contiguous()  # (n + 1, padded)
        self.table[-1, len(samples) :] = torch.inf

    def __call__(self, x: Tensor) -> Tensor:
        """(rows, n) -> (rows,)"""
        x = F.pad(x.float(), (0, 1), value=1.0)
        if not eager():
            return (x @ self.table).argmin(1)
        return torch.cat([self._part(part) for part in x.split(self.ROWS)])

    def _part(self, x: Tensor) -> Tensor:
        D = (x @ self.table).unflatten(1, (-1, self.LANES))
        lane = D.amin(1).argmin(1)
        return D.take_along_dim(lane[:, None, None], 2)[:, :, 0].argmin(1) * self.LANES + lane
