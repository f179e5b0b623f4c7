"""Moving least squares: `Local`, an atlas of polynomial patches fitted to samples."""

from __future__ import annotations

import math
from importlib.util import find_spec

import torch
from torch import Tensor

from ..kernels.derivative import all_rows, eager, forward_mode
from ..kernels.vectors import norm, pulled_in
from ..solvers.linear import apply, definite_solve
from .base import EPS, FAR, LearnedSet
from .graphs import fit_graphs, kd_tree, nearest_samples
from .onnx import refuse_onnx
from .polynomials import Monomials, monomials_of

CENTRES = 20_000  # patches that fit() keeps, at most
ENOUGH = 4_000  # patches that are enough where each of them covers many others
WORK = 600 * ENOUGH  # neighbours of all patches: where each has more than 600, fewer patches are enough
BLOCK = 2**19  # coefficients, or coordinates of neighbours, held at once: bounds the memory
WIDE = 1.5  # |s| where a patch ends, in units of its radius
NEWTON = 12  # steps at most
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
    jet: Tensor  # (q, (1 + dim) q): of the monomials m at s, m @ jet is m itself and then its derivative by every coordinate
    bends: Tensor  # (q, dim q): the same derivatives, by monomials of less degree
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
        jet, q = self._monomials.jet().to(graphs.device), want[0]
        self._constant("jet", jet)
        self._constant("bends", jet[:, q:].unflatten(1, (-1, q)).transpose(0, 2).flatten(1).contiguous())
        self._constant("centres", self.graphs[:, 0].contiguous())
        self._tree = None

    @classmethod
    def fit(cls, samples: Tensor, shape: tuple[int, ...], dim: int, neighbours: int, degree: int) -> Local:
        """Fit a graph of the given degree to the `neighbours` samples nearest to each of some samples, evenly picked.

        Of 4,000 samples, fewer where each patch has more than 600 neighbours, or of so many (20,000 at most) that a patch covers
        4 (dim + 2) centres.
        """
        N, d = samples.shape
        _check(N, d, dim, neighbours, degree)
        samples = samples.double()
        n = min(N, CENTRES, max(min(ENOUGH, WORK // neighbours), 4 * (dim + 2) * N // neighbours))
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
        refuse_onnx("local")
        if torch.compiler.is_compiling():
            return self._walk(z)
        rows = max(1, BLOCK // max(self.blend * self.graphs[0].numel(), len(self.graphs) // 8))
        return torch.cat([self._walk(part) for part in z.split(rows)])

    def _walk(self, z: Tensor) -> Tensor:
        x = self._pull(z)
        near = self._nearest(x, 1)
        feet, _, minimum = self._feet(x, x, near)
        foot = feet[:, 0]
        for _ in range(ROUNDS):
            known, near = near, self._nearest(foot, self.blend)
            feet, minimum = self._more_feet(x, foot, near, known, feet, minimum)
            foot = (self._weights(foot, near)[..., None] * feet).sum(1)
        return foot

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
        """p_i(x), the coordinates s of p_i, and whether it is a minimum: (rows, k, d), (rows, k, dim), (rows, k)."""
        k = near.shape[1]
        x, foot = (t[:, None].expand(-1, k, -1).flatten(0, 1) for t in (x, foot))
        found = self._on_patch(x, foot, near.flatten())
        return tuple(t.unflatten(0, (-1, k)) for t in found)  # pyright: ignore[reportReturnType]

    def _more_feet(self, x: Tensor, foot: Tensor, near: Tensor, known: Tensor, feet: Tensor, minimum: Tensor):
        """p_i(x) and whether it is a minimum, where those of the patches `known` (rows, l) are given.

        The foot only is where Newton starts, so that minima that were found from another one are not sought again.
        """
        if not eager():
            return self._feet(x, foot, near)[::2]
        same = (near[:, :, None] == known[:, None]) & minimum[:, None]  # (rows, k, l)
        missing = ~same.any(2)
        row, place = missing.nonzero(as_tuple=True)
        found, _, minimum = self._on_patch(x[row], foot[row], near[row, place])
        feet = feet.take_along_dim(same.byte().argmax(2)[..., None], 1).index_put((row, place), found)
        return feet, (~missing).index_put((row, place), minimum)

    def _on_patch(self, x: Tensor, foot: Tensor, i: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The point of patch i nearest to x, its coordinates s, and whether it is a minimum: (pairs, d), (pairs, dim), (pairs,).

        Newton runs on values; its last step, s + H^-1 J^T (x - y), is of the size of rounding and carries the derivative. Where
        derivatives are asked for there are two such steps, the second from where the first ended: each doubles the order of what
        is exact, so that first and second derivatives are. Where there is no minimum within the patch, p_i is taken as constant.
        """
        fixed = x.detach()
        with torch.no_grad():
            G = self.graphs[i]  # (pairs, q, d)
            s = self._newton(G, fixed, foot.detach())
            y, J, H = self._expand(G, fixed, s)
            step, definite = definite_solve(H, apply(J, fixed - y))
            minimum = (definite & (step.abs().amax(-1) < 1e-7))[:, None]
        if not _differentiated(x):
            return y + apply(J.mT, torch.where(minimum, step, 0.0)), s, minimum[:, 0]
        t = s + _step(H, apply(J, x - y), minimum)
        y, J, H = self._expand(G, x, t)
        t = t + _step(H, apply(J, x - y), minimum)
        return apply(G.mT, self._monomials(t)), s, minimum[:, 0]

    def _newton(self, G: Tensor, x: Tensor, foot: Tensor) -> Tensor:
        """argmin_s |x - y(s)|^2 over |s| <= 1.5 by Newton from the foot; where H is not positive definite, Gauss-Newton.

        Where values can be looked at, further steps are left to the pairs that still move, once these are less than half.
        """
        J, flat = G[:, 1 : self.dim + 1], 1e-10 * torch.eye(self.dim, dtype=G.dtype, device=G.device)
        s = pulled_in(apply(J, foot - G[:, 0]) / (J.square().sum(-1) + 1e-300), WIDE)
        end, rows = s.clone(), torch.arange(len(s), device=s.device)
        for _ in range(NEWTON):
            y, J, H = self._expand(G, x, s)
            g = apply(J, x - y)
            step, definite = definite_solve(H, g)
            if not all_rows(definite):
                size = J.square().sum((1, 2)) + 1e-280
                step = torch.where(definite[:, None], step, definite_solve(J @ J.mT + size[:, None, None] * flat, g)[0])
            old, s = s, pulled_in(s + pulled_in(step, WIDE / 2), WIDE)
            if eager():
                end[rows] = s
                moves = (s - old).abs().amax(-1) >= STILL
                if not bool(moves.any()):
                    break
                if 2 * int(moves.sum()) < len(moves):
                    rows, G, x, s = (t[moves] for t in (rows, G, x, s))
        return end if eager() else s

    def _expand(self, G: Tensor, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """y(s), J = Dy(s)^T and H = J J^T + sum_j (y - x)_j D^2 y_j(s): (pairs, d), (pairs, m, d), (pairs, m, m)."""
        m, q = self.dim, G.shape[1]
        phi = (self._monomials(s) @ self.jet).unflatten(-1, (1 + m, q))
        y, J = (phi @ G).tensor_split([1], 1)
        y = y[:, 0]
        bent = (apply(G, y - x) @ self.bends).unflatten(-1, (m, q))
        return y, J, torch.baddbmm(phi[:, 1:] @ bent.mT, J, J.mT)

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


def _step(H: Tensor, g: Tensor, minimum: Tensor) -> Tensor:
    """H^-1 g at a minimum, elsewhere 0, also its derivative: (pairs, m)."""
    eye = torch.eye(H.shape[1], dtype=H.dtype, device=H.device)
    return torch.where(minimum, definite_solve(torch.where(minimum[..., None], H, eye), g)[0], 0.0)
