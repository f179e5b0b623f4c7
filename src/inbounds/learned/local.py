"""Moving least squares: `Local`, an atlas of polynomial patches fitted to samples."""

from __future__ import annotations

import math
from importlib.util import find_spec

import torch
from torch import Tensor

from ..kernels.derivative import all_rows, eager, forward_mode
from ..kernels.vectors import norm, pulled_in
from .base import EPS, FAR, LearnedSet
from .graphs import fit_graphs, kd_tree, nearest_samples
from .polynomials import Monomials, monomials_of

CENTRES = 20_000  # patches that fit() keeps, at most
ENOUGH = 4_000  # patches that are enough where each of them covers many others
BLOCK = 2**19  # coefficients, or coordinates of neighbours, held at once: bounds the memory
WIDE = 1.5  # |s| where a patch ends, in units of its radius
NEWTON = 12  # steps at most
EAGER_STEPS = 2  # after which only the rows that still move go on
STILL = 1e-5  # a step so short is the last but one: the next is of the order of its square
PROBES = 300  # points that measure the thickness
ROUNDS = 2  # blends; each moves the foot that the weights of the next are taken at


class Local(LearnedSet):
    """A manifold of dimension `dim` as an atlas of graphs y_i(s) = sum_a G_ia s^a, |s| <= 1, over its tangent spaces.

    P(x) = sum_i w_i p_i(x): p_i(x) the point of graph i nearest to x, w_i = (1 - |f - c_i|^2 / |f - c_k|^2)^3, normalised, over
    the `blend` centres c_i = y_i(0) nearest to the foot f, which is P(x) of the round before: first the nearest patch alone,
    then two blends. The weight of the last centre is 0, so that P is continuous where the neighbours change.

    The derivative is that of this map, exactly, to second order: Dp_i = J H^-1 J^T with J = Dy_i and H the Hessian of
    |x - y_i(s)|^2 / 2, and those of the weights and of the foot. `contains` allows for `thickness`: blends of patches that
    differ are not quite left where they are by another projection.
    """

    method = "local"
    graphs: Tensor  # (n, q, d): coefficients of the q monomials s^a; first the centre, then the dim tangent vectors
    slopes: Tensor
    centres: Tensor

    def __init__(self, graphs: Tensor, shape: tuple[int, ...], dim: int, degree: int, blend: int, thickness: float | None = None):
        super().__init__(shape)
        self._thickness = None if thickness is None else float(thickness)
        self.dim, self.degree, self.blend = int(dim), int(degree), int(blend)
        self._monomials = monomials_of(self.dim, self.degree)
        want = (Monomials.count(dim, degree), math.prod(self.shape))
        if graphs.dim() != 3 or graphs.shape[1:] != want:
            raise ValueError(
                f"Local asked for graphs (n, {want[0]}, {want[1]}), got {tuple(graphs.shape)}. Write Local.fit(...)."
            )
        self._constant("graphs", graphs.double())
        self._constant("slopes", self._monomials.slopes().to(graphs.device))
        self._constant("centres", self.graphs[:, 0].contiguous())
        self._tree = None

    @classmethod
    def fit(cls, samples: Tensor, shape: tuple[int, ...], dim: int, neighbours: int, degree: int) -> Local:
        """Fit a graph of the given degree to the `neighbours` samples nearest to each of some samples, evenly picked.

        Of 4,000 samples, or of so many (20,000 at most) that a patch covers four times as many centres as a simplex has corners.
        """
        N, d = samples.shape
        _check(N, d, dim, neighbours, degree)
        samples = samples.double()
        n = min(N, CENTRES, max(ENOUGH, 4 * (dim + 2) * N // neighbours))
        centres = samples[torch.arange(n, device=samples.device) * N // n]
        near = nearest_samples(samples, centres, neighbours)
        rows = max(1, BLOCK // (neighbours * max(d, Monomials.count(dim, degree))))
        parts = zip(centres.split(rows), near.split(rows), strict=True)
        graphs = torch.cat([fit_graphs(samples[i], c, dim, degree) for c, i in parts])
        # patches must cover the centres they are blended with, also where few samples became centres
        blend = min(n, max(dim + 2, min(12, neighbours * n // (2 * N))))
        M = cls(graphs, shape, dim, degree, blend)
        M.info = {"dim": dim, "degree": degree, "neighbours": neighbours, "patches": n}
        return M

    @property
    def thickness(self) -> float:
        """Twice the farthest that a projected point is moved by another projection, from centres displaced by a patch.

        Measured when somebody asks for it.
        """
        if self._thickness is None:
            self._thickness = self._uneven()
        return self._thickness

    @torch.no_grad()
    def _uneven(self) -> float:
        c = self.graphs[torch.arange(PROBES, device=self.graphs.device) * len(self.graphs) // PROBES]
        radius = c[:, 1 : self.dim + 1].square().sum(-1).amax(1).sqrt()[:, None]
        shift = torch.randn(c[:, 0].shape, generator=torch.Generator().manual_seed(0), dtype=c.dtype).to(c.device)
        p = self.foot(c[:, 0] + radius * shift / math.sqrt(shift.shape[1]))
        return 2 * float(norm(self.foot(p) - p).max())

    # --- the set -----------------------------------------------------------------------------------------
    def foot(self, z, eps=EPS):
        if torch.compiler.is_compiling():
            return self._walk(z)
        rows = max(1, BLOCK // max(self.blend * self.graphs[0].numel(), len(self.graphs) // 8))
        return torch.cat([self._walk(part) for part in z.split(rows)])

    def _walk(self, z: Tensor) -> Tensor:
        x = self._pull(z)
        foot = self._feet(x, x, self._nearest(x, 1))[0][:, 0]
        for _ in range(ROUNDS):
            foot = self._blend(x, foot)
        return foot

    def _blend(self, x: Tensor, foot: Tensor) -> Tensor:
        near = self._nearest(foot, self.blend)
        return (self._weights(foot, near)[..., None] * self._feet(x, foot, near)[0]).sum(1)

    def _pull(self, z: Tensor) -> Tensor:
        """x itself, or the point of its ray to the middle of M at FAR sizes of M."""
        middle = self.centres.mean(0)
        limit = FAR * (self.centres - middle).abs().amax().clamp(min=1e-100)
        return pulled_in(z, limit, middle)

    def _weights(self, foot: Tensor, near: Tensor) -> Tensor:
        far = (foot[:, None] - self.centres[near]).square().sum(-1)  # (rows, k)
        w = (1 - far / (far.amax(1, keepdim=True) + 1e-300)) ** 3 + 1e-30  # with doubles only, all are as good
        return w / w.sum(1, keepdim=True)

    def _feet(self, x: Tensor, foot: Tensor, near: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """p_i(x), the coordinates s of p_i, and whether it is a minimum: (rows, k, d), (rows, k, dim), (rows, k).

        Newton runs on values; its last step, s + H^-1 J^T (x - y), is of the size of rounding and carries the derivative. Where
        derivatives are asked for there are two such steps, the second from where the first ended: each doubles the order of what
        is exact, so that first and second derivatives are. Where there is no minimum within the patch, p_i is taken as constant.
        """
        x = x[:, None]
        fixed = x.detach()
        with torch.no_grad():
            G = self.graphs[near]  # (rows, k, q, d)
            s = self._newton(G, fixed, foot.detach()[:, None])
            y, J, H = self._expand(G, fixed, s)
            step, definite = eliminate(H, _apply(J, fixed - y))
            minimum = definite & (step.abs().amax(-1) < 1e-7)
        if not _differentiated(x):
            return y + _apply(J.mT, torch.where(minimum[..., None], step, 0.0)), s, minimum
        t = s + torch.where(minimum[..., None], eliminate(H, _apply(J, x - y))[0], 0.0)
        y, J, H = self._expand(G, x, t)
        t = t + torch.where(minimum[..., None], eliminate(H, _apply(J, x - y))[0], 0.0)
        return (self._monomials(t).unsqueeze(-2) @ G).squeeze(-2), s, minimum

    def _newton(self, G: Tensor, x: Tensor, foot: Tensor) -> Tensor:
        """argmin_s |x - y(s)|^2 over |s| <= 1.5 by Newton from the foot; where H is not positive definite, Gauss-Newton."""
        J = G[..., 1 : self.dim + 1, :]
        s = pulled_in(_apply(J, foot - G[..., 0, :]) / (J.square().sum(-1) + 1e-300), WIDE)
        if not eager():
            return self._steps(G, x, s, NEWTON)[0]
        s, moves = self._steps(G, x, s, EAGER_STEPS)
        rows = moves.any(-1).nonzero()[:, 0]
        if len(rows):
            s[rows] = self._steps(G[rows], x[rows], s[rows], NEWTON - EAGER_STEPS)[0]
        return s

    def _steps(self, G: Tensor, x: Tensor, s: Tensor, many: int) -> tuple[Tensor, Tensor]:
        """s after so many steps, and what still moves."""
        moves = torch.ones_like(s[..., 0], dtype=torch.bool)
        for _ in range(many):
            y, J, H = self._expand(G, x, s)
            g = _apply(J, x - y)
            step, definite = eliminate(H, g)
            if not all_rows(definite):
                step = torch.where(definite[..., None], step, eliminate(J @ J.mT, g)[0])
            old, s = s, pulled_in(s + pulled_in(step, WIDE / 2), WIDE)
            moves = (s - old).abs().amax(-1) >= STILL
            if all_rows(~moves):
                break
        return s, moves

    def _expand(self, G: Tensor, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """y(s), J = Dy(s)^T and H = J J^T + sum_j (y - x)_j D^2 y_j(s): (.., d), (.., m, d), (.., m, m)."""
        m, q = self.dim, G.shape[-2]
        phi = self._monomials(s)
        dphi = (phi @ self.slopes).unflatten(-1, (m, q))
        both = torch.cat([phi.unsqueeze(-2), dphi], -2) @ G
        y, J = both[..., 0, :], both[..., 1:, :]
        v = (_apply(G, y - x) @ self.slopes.reshape(q, m, q).transpose(0, 2).reshape(q, m * q)).unflatten(-1, (m, q))
        return y, J, J @ J.mT + dphi @ v.mT

    def _nearest(self, x: Tensor, k: int) -> Tensor:
        """The k centres nearest to x, (rows, k): by a tree where values can be looked at, else by all distances."""
        x = x.detach()
        tree = self._searcher() if eager() and x.device.type == "cpu" and x.shape[1] <= 32 else None
        if tree is None:
            return self._by_distance(x, k)
        return torch.from_numpy(tree.query(x.numpy(), [*range(1, k + 1)])[1])

    def _searcher(self):
        if self._tree is None and find_spec("scipy") is not None:
            self._tree = kd_tree(self.centres)
        return self._tree

    def _by_distance(self, x: Tensor, k: int) -> Tensor:
        c = self.centres
        far = c.square().sum(-1) / 2 - x @ c.mT
        return far.argmin(-1, keepdim=True) if k == 1 else far.topk(k, largest=False).indices

    def known(self):
        return self.centres

    def trusted(self, z, y):
        """Newton found minima on all patches that count, and they lie within the patches' samples."""
        near = self._nearest(y, self.blend)
        _, s, minimum = self._feet(self._pull(z), y, near)
        idle = self._weights(y, near) < 1e-3
        return torch.isfinite(y).all(-1) & ((minimum & (norm(s) <= 1)) | idle).all(-1)

    # --- to disk and back --------------------------------------------------------------------------------
    def tensors(self):
        return {"graphs": self.graphs}

    def spec(self):
        known = {"shape": list(self.shape), "dim": self.dim, "degree": self.degree, "blend": self.blend}
        return {**known, "thickness": self.thickness}

    @classmethod
    def from_parts(cls, tensors, spec):
        known = (spec["dim"], spec["degree"], spec["blend"], spec.get("thickness", 0.0))
        return cls(tensors["graphs"], tuple(spec["shape"]), *known)

    def extra_repr(self):
        return f"<{len(self.graphs)} patches>, shape={self.shape}, dim={self.dim}, degree={self.degree}"


def _check(N: int, d: int, dim: int, neighbours: int, degree: int) -> None:
    if not 1 <= dim < d:
        raise ValueError(f"Local.fit asked for a dimension 1 <= dim < {d} of a set in R^{d}, got {dim}.")
    if not 1 <= degree <= 4:
        raise ValueError(f"Local.fit asked for a degree of 1 to 4, got {degree}.")
    least = Monomials.count(dim, degree) + 1
    if not least <= neighbours <= N:
        raise ValueError(
            f"Local.fit asked for {least} <= neighbours <= {N}: at least as many as a graph of degree {degree} over R^{dim} has "
            f"coefficients, at most the number of samples; got {neighbours}."
        )


def _differentiated(x: Tensor) -> bool:
    """Whether a derivative of what is made of x may be asked for."""
    return not eager() or forward_mode() or (torch.is_grad_enabled() and x.requires_grad)


# --- small linear algebra ------------------------------------------------------------------------------------
def eliminate(H: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """H^-1 g and whether the symmetric H is positive definite, by Gauss-Jordan: for small matrices, many times faster
    than LAPACK row by row. Without pivoting, hence to be used only where H is positive definite."""
    A, ok = torch.cat([H, g.unsqueeze(-1)], -1), torch.ones_like(g[..., 0], dtype=torch.bool)
    tiny = 1e-10 * H.diagonal(dim1=-2, dim2=-1).abs().sum(-1) + 1e-300
    for j in range(g.shape[-1]):
        pivot = A[..., j, j]
        ok = ok & (pivot > tiny)
        row = A[..., j, :] / torch.where(pivot > tiny, pivot, 1.0).unsqueeze(-1)
        unit = torch.zeros_like(A[..., j])
        unit[..., j] = 1
        A = A - (A[..., j] - unit).unsqueeze(-1) * row.unsqueeze(-2)
    return A[..., -1], ok


def _apply(A: Tensor, x: Tensor) -> Tensor:
    return (A @ x.unsqueeze(-1)).squeeze(-1)
