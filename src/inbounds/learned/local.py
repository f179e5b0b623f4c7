"""Moving least squares: `Local`, an atlas of polynomial patches fitted to samples, and `tangent_dimension`."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ..extras import needed_for
from ..kernels.derivative import all_rows, eager
from ..kernels.vectors import norm, pulled_in
from .base import EPS, FAR, LearnedSet
from .polynomials import Monomials, monomials_of

CENTRES = 20_000  # patches that fit() keeps
BLOCK = 2**19  # coefficients, or coordinates of neighbours, held at once: bounds the memory
WIDE = 1.5  # |s| where a patch ends, in units of its radius
NEWTON = 12  # steps at most
ROUNDS = 2  # blends; each moves the foot that the weights of the next are taken at


class Local(LearnedSet):
    """A manifold of dimension `dim` as an atlas of graphs y_i(s) = sum_a G_ia s^a, |s| <= 1, over its tangent spaces.

    P(x) = sum_i w_i p_i(x): p_i(x) the point of graph i nearest to x, w_i = (1 - |f - c_i|^2 / |f - c_k|^2)^3, normalised, over
    the `blend` centres c_i = y_i(0) nearest to the foot f, which is P(x) of the round before: first the nearest patch alone,
    then two blends. The weight of the last centre is 0, so that P is continuous where the neighbours change.

    The derivative is that of this map, exactly, to first order: Dp_i = J H^-1 J^T with J = Dy_i and H the Hessian of
    |x - y_i(s)|^2 / 2, and those of the weights and of the foot.
    """

    method = "local"
    graphs: Tensor  # (n, q, d): coefficients of the q monomials s^a; first the centre, then the dim tangent vectors
    slopes: Tensor
    centres: Tensor

    def __init__(self, graphs: Tensor, shape: tuple[int, ...], dim: int, degree: int, blend: int):
        super().__init__(shape)
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
        """Fit a graph of the given degree to the `neighbours` samples nearest to each sample (of 20,000, evenly picked)."""
        N, d = samples.shape
        _check(N, d, dim, neighbours, degree)
        samples = samples.double()
        n = min(N, CENTRES)
        centres = samples[torch.arange(n, device=samples.device) * N // n]
        near = _nearest_samples(samples, centres, neighbours)
        rows = max(1, BLOCK // (neighbours * max(d, Monomials.count(dim, degree))))
        parts = zip(centres.split(rows), near.split(rows), strict=True)
        graphs = torch.cat([fit_graphs(samples[i], c, dim, degree) for c, i in parts])
        # patches must cover the centres they are blended with, also where few samples became centres
        blend = min(n, max(dim + 2, min(12, neighbours * n // (2 * N))))
        M = cls(graphs, shape, dim, degree, blend)
        M.info = {"dim": dim, "degree": degree, "neighbours": neighbours, "patches": n}
        return M

    # --- the set -----------------------------------------------------------------------------------------
    def _foot(self, z, eps=EPS):
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

        Newton runs on values; its last step, s + H^-1 J^T (x - y), is of the size of rounding and carries the derivative.
        Where there is no minimum within the patch, p_i is taken as constant.
        """
        x = x[:, None]
        fixed = x.detach()
        with torch.no_grad():
            G = self.graphs[near]  # (rows, k, q, d)
            s = self._newton(G, fixed, foot.detach()[:, None])
            y, J, H = self._expand(G, fixed, s)
            step, definite = eliminate(H, _apply(J, fixed - y))
            minimum = definite & (step.abs().amax(-1) < 1e-7)
        step = eliminate(H, _apply(J, x - y))[0]
        return y + _apply(J.mT, torch.where(minimum[..., None], step, 0.0)), s, minimum

    def _newton(self, G: Tensor, x: Tensor, foot: Tensor) -> Tensor:
        """argmin_s |x - y(s)|^2 over |s| <= 1.5 by Newton from the foot; where H is not positive definite, Gauss-Newton."""
        J = G[..., 1 : self.dim + 1, :]
        s = pulled_in(_apply(J, foot - G[..., 0, :]) / (J.square().sum(-1) + 1e-300), WIDE)
        for _ in range(NEWTON):
            y, J, H = self._expand(G, x, s)
            g = _apply(J, x - y)
            step, definite = eliminate(H, g)
            if not all_rows(definite):
                step = torch.where(definite[..., None], step, eliminate(J @ J.mT, g)[0])
            old, s = s, pulled_in(s + pulled_in(step, WIDE / 2), WIDE)
            if all_rows((s - old).abs().amax(-1) < 1e-8):  # the next step is of the order of its square
                break
        return s

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

    def _known(self):
        return self.centres

    def _ok(self, z, y):
        """Newton found minima on all patches that count, and they lie within the patches' samples."""
        near = self._nearest(y, self.blend)
        _, s, minimum = self._feet(self._pull(z), y, near)
        idle = self._weights(y, near) < 1e-3
        return torch.isfinite(y).all(-1) & ((minimum & (norm(s) <= 1)) | idle).all(-1)

    # --- to disk and back --------------------------------------------------------------------------------
    def tensors(self):
        return {"graphs": self.graphs}

    def spec(self):
        return {"shape": list(self.shape), "dim": self.dim, "degree": self.degree, "blend": self.blend}

    @classmethod
    def from_parts(cls, tensors, spec):
        return cls(tensors["graphs"], tuple(spec["shape"]), spec["dim"], spec["degree"], spec["blend"])

    def extra_repr(self):
        return f"<{len(self.graphs)} patches>, shape={self.shape}, dim={self.dim}, degree={self.degree}"


# --- fitting -------------------------------------------------------------------------------------------------
def fit_graphs(Y: Tensor, c: Tensor, dim: int, degree: int) -> Tensor:
    """G (b, q, d) of the graphs y(s) through the neighbourhoods Y (b, K, d) of the centres c (b, d).

    Weighted least squares over the plane of the first principal directions; then once more over the tangent plane of that graph
    at its own centre, which lies on M where the sample did not.
    """
    radius = (Y - c[:, None]).square().sum(-1).amax(1).sqrt().clamp(min=1e-300)[:, None]  # (b, 1)
    T = principal(Y - c[:, None], dim)  # (b, d, m)
    for _ in range(2):
        G = _over(Y, c, T, radius, degree)
        c, T = G[:, 0], torch.linalg.qr(G[:, 1 : dim + 1].mT).Q
    return G


def _over(Y: Tensor, c: Tensor, T: Tensor, radius: Tensor, degree: int) -> Tensor:
    """The least squares graph over the plane c + T, in units of the radius."""
    y = (Y - c[:, None]) / radius[..., None]
    s = y @ T
    w = (1 - s.square().sum(-1) / 1.1).clamp(min=1e-3)[..., None]
    phi = monomials_of(s.shape[-1], degree)(s)
    G = _least_squares(phi * w, phi, y - s @ T.mT)
    G[:, 1 : T.shape[-1] + 1] += T.mT
    G *= radius[..., None]
    G[:, 0] += c
    return G


def _least_squares(weighted: Tensor, phi: Tensor, y: Tensor) -> Tensor:
    """argmin_B sum w |y - phi B|^2, with a ridge of the size of rounding for neighbourhoods that do not span."""
    gram = weighted.mT @ phi
    ridge = 1e-13 * gram.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    L = torch.linalg.cholesky_ex(gram + ridge * torch.eye(phi.shape[-1], dtype=phi.dtype, device=phi.device)).L
    return torch.cholesky_solve(weighted.mT @ y, L)


def principal(Y: Tensor, dim: int) -> Tensor:
    """The first `dim` principal directions of the rows of Y (b, K, d): (b, d, dim)."""
    Y = Y - Y.mean(1, keepdim=True)
    if Y.shape[1] >= Y.shape[2]:
        return torch.linalg.eigh(Y.mT @ Y).eigenvectors[..., -dim:]
    return torch.linalg.qr(Y.mT @ torch.linalg.eigh(Y @ Y.mT).eigenvectors[..., -dim:]).Q


def _nearest_samples(samples: Tensor, x: Tensor, k: int) -> Tensor:
    tree = kd_tree(samples)
    return torch.from_numpy(tree.query(x.cpu().numpy(), k)[1]).to(x.device)


def kd_tree(points: Tensor) -> Any:
    """A tree that finds nearest points, by scipy."""
    with needed_for("Fitting a set to samples"):
        from scipy.spatial import cKDTree  # pyright: ignore[reportAttributeAccessIssue]
    return cKDTree(points.detach().cpu().numpy())


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


# --- the dimension -------------------------------------------------------------------------------------------
def tangent_dimension(samples: Tensor, generator: torch.Generator | None = None) -> int:
    """The least m < d such that, at some scale, the samples are graphs over R^m; d if there is none.

    At 64 samples and for neighbourhoods of 8 samples to a quarter of all: principal directions, variances l_1 >= .. >= l_d;
    coordinates m+1 .. d are fitted by quadratics of the first m, which takes curvature out, and the largest variance left over is
    compared with l_m. If m is too small, the left-over holds a tangent direction and the ratio is about 1 (above 0.3 on all sets
    tried, also where boundaries flatten the neighbourhoods); if m is right, it is O(radius^4) + noise^2 / radius^2. The median
    over the samples must be below 0.2 at one scale: a small one where M bends, a large one where there is noise. A set
    thinner in some direction than a fifth of a neighbourhood of a quarter of its samples counts as noise around a thinner set.
    """
    X = samples[torch.randperm(len(samples), generator=generator, device=samples.device)[:CENTRES]].double().unique(dim=0)
    X = X[torch.randperm(len(X), generator=generator, device=X.device)]
    N, d = X.shape
    most = min(max(N // 4, min(N, 32)), 2048)
    scales = sorted({int(8 * 1.5**i) for i in range(40) if 8 * 1.5**i < most} | {most})
    near = _nearest_samples(X, X[:64], most)
    charts = [_chart(X[near[:, :K]]) for K in scales]
    for m in range(1, d):
        degree = 2 if Monomials.count(m, 2) <= 140 else 1
        known = [c for c in charts if c[0].shape[1] >= 1.5 * Monomials.count(m, degree)]
        if any(_left_over(y, l, m, degree) < 0.2 for y, l in known):
            return m
    return d


def _chart(Y: Tensor) -> tuple[Tensor, Tensor]:
    """Principal coordinates (b, K, d) and variances (b, d), largest first."""
    Y = Y - Y.mean(1, keepdim=True)
    l, V = torch.linalg.eigh(Y.mT @ Y / Y.shape[1])
    return Y @ V.flip(-1), l.flip(-1)


def _left_over(y: Tensor, l: Tensor, m: int, degree: int) -> float:
    """Median over the charts of max_{j > m} Var(y_j | polynomials of y_1 .. y_m) / l_m."""
    K, spread = y.shape[1], l[:, m - 1]
    s = y[..., :m] / (l[:, None, :m] * (m + 2)).clamp(min=1e-300).sqrt()
    phi = monomials_of(s.shape[-1], degree)(s)
    rest = y[..., m:] - phi @ _least_squares(phi, phi, y[..., m:])
    left = rest.square().sum(1).amax(-1) / (K - phi.shape[-1])
    return float((left / spread.clamp(min=1e-300)).median())


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
