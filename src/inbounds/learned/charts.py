"""A smooth set near each of some of its points, to second order: where Newton's method starts, and what training uses."""

from __future__ import annotations

import torch
from torch import Tensor

from .polynomials import Polynomials

MOST = 20_000_000  # numbers to keep
ROUGH = 1e-3  # square of the last step that is still trusted


class Charts:
    """y(u) = s + T u + N h(u) + free, h(u) = B(u, u) / 2: T (n, m) tangent, N (n, k) normal at s, orthonormal; one per sample.

    `free` (n, f) spans directions in which the set is straight everywhere; T leaves them out. W_i p = 0, W (s, k, r), is the set
    near sample i.
    """

    def __init__(self, p: Polynomials, W: Tensor, samples: Tensor):
        self.samples, self.free = samples, free_directions(p, samples)
        A = W @ p.jacobian(samples)
        k, n = A.shape[1:]
        f = self.free.shape[1]
        m = n - k - f
        Q = torch.linalg.qr(torch.cat([A.mT, self.free.expand(len(A), n, f)], 2), mode="complete")[0]
        self.Q = torch.cat([Q[:, :, :k], Q[:, :, k + f :]], 2)
        self.N, self.T, self.k = self.Q[:, :, :k], self.Q[:, :, k:], k
        self.usable = bool(m and k) and len(samples) * k * m**2 <= MOST
        if self.usable:
            bent = torch.stack([self.T.mT @ p.hessian(samples, W[:, j]) @ self.T for j in range(k)], 1)
            self.B = -torch.linalg.solve_ex(A @ self.N, bent.flatten(2))[0].unflatten(2, (m, m))

    def fixed(self, x: Tensor) -> Tensor:
        """Without what is free."""
        return x - self._along_free(x)

    def start(self, x: Tensor, i: Tensor) -> Tensor:
        """Sample i, moved where the set is straight to where x is: a point of the set."""
        s = self.samples.index_select(0, i)
        return s + self._along_free(x - s)

    def _along_free(self, v: Tensor) -> Tensor | float:
        return v @ self.free @ self.free.mT if self.free.shape[1] else 0.0

    def tangents(self, i: Tensor) -> Tensor:
        """(rows, n, m + f)"""
        return torch.cat([self.T[i], self.free.expand(len(i), *self.free.shape)], 2)

    def foot(self, x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        """The projection of x (rows, n) on the charts i, by two steps of Newton, and how far from s along them: (rows,).

        0 where the second step was long; start(), and 0, where x lies beyond their focus.
        """
        s = self.start(x, i)
        if not self.usable:
            return s, torch.zeros_like(s[:, 0])
        Q, B = (t.index_select(0, i) for t in (self.Q, self.B))
        d = (x - s)[:, None]
        b, a = (d @ Q).tensor_split([self.k], 2)
        u, sound = _solve(_eye(B) - _dot(b, B), a)
        bent = _dot(u, B.transpose(1, 2))  # B(u): (rows, k, m)
        rise = 0.5 * u @ bent.mT
        step, convex = _solve(_eye(B) + bent.mT @ bent + _dot(rise - b, B), u - a + (rise - b) @ bent)
        short = u.square().sum(2, keepdim=True) <= 4 * d.square().sum(2, keepdim=True)
        u = torch.where(sound & convex & short, u - step, 0.0)
        rise = 0.5 * u @ _dot(u, B.transpose(1, 2)).mT
        far = torch.where(step.square().sum(2) <= ROUGH, torch.linalg.vector_norm(u, dim=2), 0.0)
        return s + (torch.cat([rise, u], 2) @ Q.mT)[:, 0], far[:, 0]

    def derivative(self, x: Tensor, y: Tensor, g: Tensor, i: Tensor) -> Tensor:
        """D (D^T D + (h - b) B)^{-1} D^T g, D = T + N B(u): the derivative of the projection on the charts, at x with foot y."""
        s, Q, B = (t.index_select(0, i) for t in (self.samples, self.Q, self.B))
        normal, along = (torch.stack([y - s, x - s, g], 1) @ Q).tensor_split([self.k], 2)  # of what is free neither sees anything
        u, b = along[:, :1], normal[:, 1:2]
        bent = _dot(u, B.transpose(1, 2))
        S = _eye(B) + bent.mT @ bent + _dot(0.5 * u @ bent.mT - b, B)
        v = _solve(S, along[:, 2:] + normal[:, 2:] @ bent)[0]
        return (torch.cat([v @ bent.mT, v], 2) @ Q.mT)[:, 0] + self._along_free(g)


def free_directions(p: Polynomials, samples: Tensor) -> Tensor:
    """Directions in which no polynomial changes, (n, f): R^3 of SE(3), the axis of a cylinder."""
    if not len(p):
        return samples.new_zeros(samples.shape[1], 0)
    rows = p.jacobian(samples[:200]).flatten(0, 1)  # thousands: only their triangular factor is needed
    _, s, Vh = torch.linalg.svd(torch.linalg.qr(rows, mode="r").R, full_matrices=True)
    return Vh[int((s > 1e-7 * s[0]).sum()) :].mT.contiguous()


def _eye(B: Tensor) -> Tensor:
    return torch.eye(B.shape[2], dtype=B.dtype)


def _dot(v: Tensor, B: Tensor) -> Tensor:
    """sum_j v_j B_j: (rows, 1, k), (rows, k, m, l) -> (rows, m, l)"""
    return (v @ B.flatten(2)).unflatten(2, B.shape[2:])[:, 0]


def _solve(S: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """S^{-1} a for rows a (rows, 1, m), and whether S is positive definite: (rows, 1, 1)."""
    L, info = torch.linalg.cholesky_ex(S)
    return torch.cholesky_solve(a.mT, L).mT, (info == 0)[:, None, None]
