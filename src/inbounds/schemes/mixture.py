"""The paper's probabilistic baseline on convex sets: a mixture of anchors that are in the set."""

from __future__ import annotations

from torch import Tensor

from ..core import ConstraintSet
from .rays import Centered


class Mixture(Centered):
    """sum_j p_j Y_j, p = softmax(u): in M, because M is convex and every anchor Y_j is in it.

    M may depend on the input, so the anchors do: they are the boundary points c + t N e_j and c - t N e_j along the axes of
    {v : E v = 0}, and where a ray never leaves they are `far` away. The mixture reaches their convex hull, which is not all of M.
    """

    far = 100.0

    def size(self, M: ConstraintSet) -> int:
        return 2 * super().size(M)

    def enforce(self, M: ConstraintSet, u: Tensor, x: Tensor) -> Tensor:
        star, p = self.star(M, u, x), u.double().softmax(-1)
        speed = star.faces / star.slack[..., None]  # (*batch, m, k)
        ahead, back = ((s * speed).amax(-2).clamp(min=1 / self.far) for s in (1.0, -1.0))
        k = star.N.shape[-1]
        return star.point(p[..., :k] / ahead - p[..., k:] / back).to(u.dtype)
