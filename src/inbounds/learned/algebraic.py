"""Sets given by polynomials that were fitted to samples: p(y) = 0, kappa(y) <= 1, inside an affine subspace."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..kernels.derivative import eager, symmetric
from .base import LearnedSet
from .polynomials import Monomials, Polynomials

STEPS = 25  # of Newton's method, in eager mode; almost all rows need 3 to 6
BLIND_STEPS = 10  # where values cannot be looked at (vmap, compile)
CHUNK = 8_192  # rows at once


class Algebraic(LearnedSet):
    """{c + V w : p(w) = 0 near the samples, |f(w)|^2 <= 1}: V (d, n) orthonormal, p and f polynomials in scale.

    `samples` (s, n), on the set, start Newton's method: near sample i the set is W_i p = 0, W_i (codim, r), a combination of full
    rank of what may be many more equations than the codimension (20 quadrics for the 6 of SO(3)). Either p or f may be empty.
    """

    method = "algebraic"
    center: Tensor
    frame: Tensor
    scale: Tensor
    samples: Tensor
    C: Tensor
    W: Tensor
    F: Tensor

    def __init__(
        self,
        shape: tuple[int, ...],
        center: Tensor,
        frame: Tensor,
        scale: Tensor,
        samples: Tensor,
        C: Tensor,
        W: Tensor,
        F: Tensor,
        degree: int,
        inner: int,
        tolerance: float = 1e-9,
    ):
        super().__init__(shape)
        self.degree, self.inner, self.tolerance = degree, inner, tolerance
        for name, t in {"center": center, "frame": frame, "scale": scale, "samples": samples, "C": C, "W": W, "F": F}.items():
            self._constant(name, t.contiguous())
        n = frame.shape[1]
        self._p = Polynomials(self.C, Monomials(n, degree), self.scale)
        self._f = Polynomials(self.F, Monomials(n, inner), self.scale)
        self.n, self.codim = n, W.shape[1]
        A = self.W @ self._p.jacobian(self.samples)  # (s, codim, n)
        self._frames = torch.linalg.qr(A.mT, mode="complete")[0][:, :, self.codim :] if self.codim else A.mT
        self._map = symmetric(self._solve, self._derivative)

    def __deepcopy__(self, memo):
        copy = self.from_parts({k: t.clone() for k, t in self.tensors().items()}, self.spec())
        copy.info, copy.reach = dict(self.info), self.reach
        copy.training = self.training
        memo[id(self)] = copy
        return copy

    @property
    def dim(self) -> int:
        """Of the set itself."""
        return self.n - self.codim

    # --- projection --------------------------------------------------------------------------------------
    def _foot(self, z):
        w = (z - self.center) @ self.frame
        far = 1e8 * self.scale.max()  # beyond, monomials overflow; the direction is all that counts
        length = torch.linalg.vector_norm(w, dim=1, keepdim=True)
        w = w * (far / length.clamp(min=far))
        y = torch.cat([self._map(part) for part in w.split(CHUNK)]) if len(w) else w
        return self.center + y @ self.frame.mT

    def _ok(self, z, y):
        """On the set, the rest of the way normal to it, and no farther than the nearest sample."""
        x, y = (z - self.center) @ self.frame, (y - self.center) @ self.frame
        i = self._nearest(x)
        e, A = self._equations(y, self.W[i], self._active(x, y))
        gram, away = Gram(A), _length(x - y)
        off, still = _length(gram.least(e)), _length(gram.split(x - y)[0])
        near = _length(x - self.samples[i])
        return (
            (off <= self.tolerance) & (still <= 1e-6 * away + self.tolerance) & (away <= near * (1 + 1e-6) + 10 * self.tolerance)
        )

    def _known(self):
        return self.center + self.samples @ self.frame.mT

    def _inside(self, z):
        return super()._inside(z) if self.codim else self._excess((z - self.center) @ self.frame) <= 0

    def _nearest(self, x: Tensor) -> Tensor:
        """Index of the nearest sample, (rows,); in float32, since any near one will do to start from."""
        s = self.samples.float()
        return torch.addmm(s.square().sum(1), x.float(), s.mT, alpha=-2).argmin(1)

    @torch.no_grad()
    def _solve(self, x: Tensor) -> Tensor:
        """(rows, n) -> (rows, n)"""
        i = self._nearest(x)
        y = self._newton(x, self.samples[i], i, None) if self.codim else x.clone()
        if not len(self._f):
            return y
        outside = self._excess(y) > 0
        if not eager():
            return torch.where(outside[:, None], self._to_boundary(x, y, i), y)
        rows = outside.nonzero()[:, 0]
        return y.index_copy(0, rows, self._to_boundary(x[rows], y[rows], i[rows])) if len(rows) else y

    def _to_boundary(self, x: Tensor, y: Tensor, i: Tensor) -> Tensor:
        """From where the way from the nearest sample to y leaves the set."""
        a, b = torch.zeros_like(y[:, 0]), torch.ones_like(y[:, 0])
        s = self.samples[i]
        for _ in range(12):
            mid = 0.5 * (a + b)
            out = self._excess(s + mid[:, None] * (y - s)) > 0
            a, b = torch.where(out, a, mid), torch.where(out, mid, b)
        return self._newton(x, s + a[:, None] * (y - s), i, torch.ones_like(a))

    def _newton(self, x: Tensor, y: Tensor, i: Tensor, active: Tensor | None) -> Tensor:
        """Newton on y - x + A^T l = 0, e(y) = 0; rows that do not get there stay at their start.

        Converges quadratically, so that after a step of 1e-7 sizes nothing is left to do.
        """
        size, out = self.scale.max(), y
        if not eager():
            for _ in range(BLIND_STEPS):
                y, step = self._step(x, y, i, self.W[i], active)
            return torch.where((step <= 1e-5 * size)[:, None] & torch.isfinite(y), y, out)
        out, rows, W = out.clone(), torch.arange(len(y)), self.W[i]
        for _ in range(STEPS):
            y, step = self._step(x, y, i, W, active)
            done = step <= 1e-7 * size
            if bool(done.any()):
                out[rows[done]] = y[done]
            left = ~done & torch.isfinite(step)
            if not bool(left.any()):
                break
            if not bool(left.all()):
                rows, x, y, i, W = (t[left] for t in (rows, x, y, i, W))
                active = None if active is None else active[left]
        return out

    def _step(self, x: Tensor, y: Tensor, i: Tensor, W: Tensor, active: Tensor | None) -> tuple[Tensor, Tensor]:
        """A new y, and how far it is from the old one. With a second order correction: e(y) is small after it.

        Where Newton's equations are not those of a minimum (beyond the first focal point), or its step is wild, a gradient step.
        """
        e, A = self._equations(y, W, active)
        gram = Gram(A)
        normal = gram.least(e)
        tangential, multiplier = gram.split(x - y)
        H = self._lagrangian(y, W, multiplier, active)
        if active is None:
            T = self._tangent_frame(i, gram)
            move, sound = _reduced(H, T, x - y + _apply(H, normal))
        else:
            move, sound = _kkt(H, A, x - y + _apply(H, normal)), True
        longest = 3 * (_length(x - y) + _length(normal))
        sound = sound & (_length(move) <= longest) & ((move * tangential).sum(1) >= 0)
        new = y - normal + torch.where(sound[:, None], move, 0.5 * tangential)
        correction = gram.least(self._values(new, W, active))
        size = _length(new - y)
        good = _length(correction) <= 0.5 * size + 1e-300
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
        e = _apply(W, self._p.values(y))
        return e if active is None else torch.cat([e, (0.5 * active * self._excess(y))[:, None]], 1)

    def _lagrangian(self, y: Tensor, W: Tensor, multiplier: Tensor, active: Tensor | None) -> Tensor:
        """I + sum l_k Hess e_k: (rows, n, n)."""
        H = torch.eye(self.n, dtype=y.dtype) + self._p.hessian(y, _apply(W.mT, multiplier[:, : self.codim]))
        if active is None:
            return H
        f, J = self._f.values(y), self._f.jacobian(y)
        return H + (active * multiplier[:, -1])[:, None, None] * (J.mT @ J + self._f.hessian(y, f))

    def _tangent_frame(self, i: Tensor, gram: Gram) -> Tensor:
        """Tangent vectors at sample i without their normal part at y: (rows, n, dim)."""
        T = self._frames[i]
        return T - gram.A.mT @ gram.solve(gram.A @ T)

    def _excess(self, y: Tensor) -> Tensor:
        return self._f.values(y).square().sum(1) - 1

    def _active(self, x: Tensor, y: Tensor) -> Tensor | None:
        """1 where y lies on the boundary and was put there (x lies beyond)."""
        if not len(self._f):
            return None
        moved = torch.linalg.vector_norm(x - y, dim=1) > 1e-12 * self.scale.max()
        return ((self._excess(y) > -1e-9) & (moved if not self.codim else torch.ones_like(moved))).to(y.dtype)

    # --- derivative --------------------------------------------------------------------------------------
    def _derivative(self, x: Tensor, y: Tensor, g: Tensor) -> Tensor:
        """dy with H dy + A^T dl = g, A dy = 0: the implicit derivative of Newton's equations. Symmetric in g."""
        i = self._nearest(x.detach())
        W, active = self.W[i], self._active(x.detach(), y.detach())
        _, A = self._equations(y, W, active)
        gram = Gram(A)
        H = self._lagrangian(y, W, gram.split(x - y)[1], active)
        return _reduced(H, self._tangent_frame(i, gram), g)[0] if active is None else _kkt(H, A, g)

    def _tangent(self, x, v):
        """Projection of v on {t : A t = 0, <grad |f|^2, t> <= 0 where the inequality is active}."""
        y, u = ((self._flat(t).reshape(-1, len(self.center)).double() - c) @ self.frame for t, c in ((x, self.center), (v, 0.0)))
        W = self.W[self._nearest(y.detach())]
        free = Gram(self._equations(y, W, None)[1]).split(u)[0]
        if len(self._f):
            _, A = self._equations(y, W, torch.ones_like(y[:, 0]))
            skin = 1e4 * torch.finfo(x.dtype).eps
            outward = (self._excess(y) >= -skin) & ((A[:, -1] * free).sum(1) > 0)
            free = torch.where(outward[:, None], Gram(A).split(u)[0], free)
        return (free @ self.frame.mT).to(x.dtype).reshape(x.shape)

    # --- to disk and back --------------------------------------------------------------------------------
    NAMES = ("center", "frame", "scale", "samples", "C", "W", "F")

    def tensors(self) -> dict[str, Tensor]:
        return {k: getattr(self, k) for k in self.NAMES}

    def spec(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "degree": self.degree, "inner": self.inner, "tolerance": self.tolerance}

    @classmethod
    def from_parts(cls, tensors, spec):
        return cls(shape=tuple(spec["shape"]), **tensors, **{k: v for k, v in spec.items() if k != "shape"})

    def extra_repr(self):
        shape = self.shape[0] if len(self.shape) == 1 else self.shape
        parts = [f"{len(self._p)} equations of degree {self.degree}"] if len(self._p) else []
        parts += [f"an inequality of degree {2 * self.inner}"] if len(self._f) else []
        return f"{shape}, {' and '.join(parts) or 'affine'}, dim={self.dim}"


# --- small batched linear algebra ----------------------------------------------------------------------------
class Gram:
    """A (rows, k, n) with the factor of A A^T. A row of A that is 0 (an inactive inequality) drops out."""

    def __init__(self, A: Tensor):
        self.A = A
        G = A @ A.mT
        off = (G.diagonal(dim1=1, dim2=2) == 0).to(A.dtype)
        self.G = G + torch.diag_embed(off)
        self.L = torch.linalg.cholesky_ex(self.G)[0] if A.shape[1] > 1 else None

    def solve(self, b: Tensor) -> Tensor:
        """(A A^T)^{-1} b for b (rows, k, *)."""
        return b / self.G if self.L is None and self.A.shape[1] else torch.cholesky_solve(b, self.L) if self.L is not None else b

    def least(self, e: Tensor) -> Tensor:
        """The least v with A v = e: (rows, n)."""
        return _apply(self.A.mT, self.solve(e[:, :, None])[:, :, 0])

    def split(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """v - A^T l and l, such that A (v - A^T l) = 0."""
        multiplier = self.solve(self.A @ v[:, :, None])[:, :, 0]
        return v - _apply(self.A.mT, multiplier), multiplier


def _apply(A: Tensor, v: Tensor) -> Tensor:
    """(rows, k, n), (rows, n) -> (rows, k)"""
    return (A @ v[:, :, None])[:, :, 0]


def _length(v: Tensor) -> Tensor:
    return torch.linalg.vector_norm(v, dim=1)


def _reduced(H: Tensor, T: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """T (T^T H T)^{-1} T^T a, the v in the span of T with T^T (H v - a) = 0, and whether T^T H T is positive definite."""
    S = T.mT @ H @ T
    _, info = torch.linalg.cholesky_ex(S)
    v = _apply(T, torch.linalg.solve_ex(S, T.mT @ a[:, :, None])[0][:, :, 0])
    return v, info == 0


def _kkt(H: Tensor, A: Tensor, a: Tensor) -> Tensor:
    """v with H v + A^T l = a, A v = 0: (rows, n)."""
    n = H.shape[1]
    off = (A.abs().amax(-1) == 0).to(A.dtype)
    K = torch.cat([torch.cat([H, A.mT], 2), torch.cat([A, -torch.diag_embed(off)], 2)], 1)
    return torch.linalg.solve_ex(K, torch.cat([a, torch.zeros_like(off)], 1))[0][:, :n]
