"""The benchmark of DC3 with curved constraints: quadratic ones (QCQP) and second-order cones (SOCP)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..extras import needed_for
from ..sets import Depends
from .planes import Curves, Planes
from .quadratic import drawn
from .solvers import conic_program
from .task import Task

RANK = 5  # rows of the matrix inside of a cone's norm
ROOM = 0.1  # by which E^+ x is inside at least


class Quadratics(Curves):
    """y^T diag(H_i) y / 2 + g_i.y <= h_i, H >= 0: H and g (m, n), h (m,)."""

    def __init__(self, H: Tensor, g: Tensor, h: Tensor):
        self.H, self.g, self.h, self.count = H, g, h, len(h)

    def values(self, y: Tensor) -> Tensor:
        return 0.5 * (y.square() @ self.H.mT) + y @ self.g.mT - self.h

    def slopes(self, y: Tensor, N: Tensor) -> Tensor:
        return (y[:, None] * self.H + self.g) @ N

    def curvature(self, y: Tensor, N: Tensor, l: Tensor) -> Tensor:
        return N.mT @ ((l @ self.H)[:, :, None] * N)

    def cones(self) -> list[tuple[Tensor, Tensor]]:
        """A and b with b - A y in a cone: |(2 D y, 2 t - 1)| <= 2 t + 1, t = h - g.y, D = H^1/2, which is y^T H y / 2 <= t."""
        D, none = self.H.sqrt(), torch.zeros(self.H.shape[1], dtype=self.H.dtype)
        return [
            (torch.cat([2 * g[None], 2 * g[None], -2 * d.diag()]), torch.cat([torch.stack([2 * h + 1, 2 * h - 1]), none]))
            for d, g, h in zip(D, self.g, self.h, strict=True)
        ]


class Cones(Curves):
    """|G_i y + k_i| <= g_i.y + h_i: G (m, r, n), k (m, r), g (m, n), h (m,)."""

    def __init__(self, G: Tensor, k: Tensor, g: Tensor, h: Tensor):
        self.G, self.k, self.g, self.h, self.count = G, k, g, h, len(h)

    def _inside(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """z = G y + k (*batch, m, r), and its length, which is never 0."""
        z = (y @ self.G.flatten(0, 1).mT).unflatten(-1, self.k.shape) + self.k
        return z, (z.square().sum(-1) + 1e-24).sqrt()

    def values(self, y: Tensor) -> Tensor:
        return self._inside(y)[1] - y @ self.g.mT - self.h

    def slopes(self, y: Tensor, N: Tensor) -> Tensor:
        return self._pull(y, N) - self.g @ N

    def _pull(self, y: Tensor, N: Tensor) -> Tensor:
        """The gradients of the lengths, (R, m, k)."""
        z, size = self._inside(y)
        return torch.einsum("bmr,mrk->bmk", z / size[..., None], self.G @ N)

    def curvature(self, y: Tensor, N: Tensor, l: Tensor) -> Tensor:
        w, P, G = l / self._inside(y)[1], self._pull(y, N), self.G @ N
        flat = (w @ (G.mT @ G).flatten(1)).unflatten(-1, (N.shape[1], N.shape[1]))
        return flat - P.mT @ (w[..., None] * P)

    def cones(self) -> list[tuple[Tensor, Tensor]]:
        """A and b with b - A y = (g.y + h, G y + k) in a cone."""
        rows = zip(self.G, self.k, self.g, self.h, strict=True)
        return [(torch.cat([-g[None], -G]), torch.cat([h[None], k])) for G, k, g, h in rows]


def curved(
    cones: bool = False, variables: int = 100, equations: int = 50, inequalities: int = 50, rows: int = 10_000, seed: int = 17
) -> Task:
    """min y^T Q y / 2 + p^T y over E y = x and curved inequalities; Q, p, E, x as in the quadratic task of the same seed.

    QCQP: y^T H_i y / 2 + g_i.y <= h_i with H_i diagonal, uniform in [0, 1], g_i normal. SOCP: |G_i y + k_i| <= g_i.y + h_i with
    normal numbers, G_i of five rows. h_i is a bound for all x in the cube, so that E^+ x is inside for every input.
    """
    with needed_for("The curved tasks"):
        import numpy

    if not 0 < equations < variables:
        raise ValueError(f"curved asked for 0 < equations < variables, got {equations} and {variables}.")
    random = numpy.random.RandomState(seed)
    Q, p, E, x, g = map(torch.from_numpy, drawn(random, variables, equations, inequalities, rows))
    inverse = torch.linalg.pinv(E)
    linear, far = (g @ inverse).abs().sum(1) + ROOM, equations**0.5  # |x| <= far in the cube
    if cones:
        G = torch.from_numpy(random.normal(size=(inequalities, RANK, variables)))
        k = torch.from_numpy(random.normal(size=(inequalities, RANK)))
        curves = Cones(G, k, g, linear + far * torch.linalg.matrix_norm(G @ inverse, 2) + k.norm(dim=1))
    else:
        H = torch.from_numpy(random.uniform(size=(inequalities, variables)))
        bound = torch.linalg.matrix_norm(H.sqrt()[:, :, None] * inverse, 2)
        curves = Quadratics(H, g, linear + 0.5 * (far * bound).square())
    blocks = curves.cones()

    def cost(x: Tensor, y: Tensor) -> Tensor:
        return (0.5 * Q * y.square() + p * y).sum(-1)

    def solve(x: Tensor) -> Tensor:
        return conic_program(Q.diag(), p, E, x, blocks)

    name, title = ("socp", "SOCP (DC3's data)") if cones else ("qcqp", "QCQP (DC3's data)")
    return Task(name, title, x, Depends(Planes(E, curves)), cost, solve, lambda x: x @ inverse.mT)
