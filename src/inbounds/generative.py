"""Generative models whose every sample is in M."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .core import ConstraintSet, Manifold, check_point, require_finite, working_dtype
from .distributions import UniformOn
from .kernels.derivative import looking
from .nets import has_log, in_dtype_of
from .ode import ProjectedODE
from .sets import Product

Path = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]  # (x0, x1, t) -> the point at time t, and its velocity


class FlowMatching(nn.Module):
    """A field net(t, x) whose flow carries the distribution `source` on M, at time 0, into that of the data, at time 1.

    The field learns the mean velocity of paths from source points to data points (Lipman et al., 2023; Chen and Lipman, 2024 on
    manifolds). path=None takes straight lines on convex sets, geodesics on manifolds with a log, projected lines on other
    manifolds, and for products those of the parts; other sets are refused. Any function (x0, x1, t) -> (point, velocity) may take
    their place, such as `inbounds.generative.Pressed` for data with mass on a boundary. source=None is the uniform distribution
    on M; sets of infinite or unknown volume need a source. t has a shape that broadcasts against x.

    Samples run through a `ProjectedODE`, `model.ode`, so that all of them, and all states on their way, are in M; `steps`,
    `method` and `tolerance` are its options.
    """

    def __init__(
        self,
        net: nn.Module,
        M: ConstraintSet,
        source: Any = None,
        path: Path | None = None,
        steps: int = 20,
        method: str = "heun",
        tolerance: float = 1e-5,
    ):
        super().__init__()
        self.ode = ProjectedODE(net, M, steps=steps, method=method, tolerance=tolerance)
        if M.batch:
            raise ValueError(f"FlowMatching asked for one set, got {M!r} with parameters of batch dims {tuple(M.batch)}.")
        self.source = _uniform(M) if source is None else source
        if not hasattr(self.source, "sample") or tuple(getattr(self.source, "event_shape", M.shape)) != M.shape:
            raise TypeError(
                f"FlowMatching asked for a source with sample((n,)) of points of shape {M.shape}, got {source!r}. Write "
                "source=ib.distributions.WrappedNormal(M, loc, scale), for example."
            )
        self.path = path_of(M) if path is None else path

    @property
    def net(self) -> nn.Module:
        """The field."""
        return self.ode.field

    @property
    def M(self) -> ConstraintSet:
        """The set."""
        return self.ode.M

    def loss(self, x1: Tensor, *context: Any, **keywords: Any) -> Tensor:
        """The mean squared distance, in the set's metric, of the field from the velocities of random paths to the points x1."""
        check_point(x1, self.M.shape, lambda: f"FlowMatching on {self.M!r}")
        require_finite(x1, lambda: f"FlowMatching on {self.M!r}")
        x1 = x1.to(working_dtype(x1))
        self._require_data(x1.detach())
        batch = x1.shape[: x1.dim() - len(self.M.shape)]
        t = torch.rand(batch + (1,) * len(self.M.shape), dtype=x1.dtype, device=x1.device)
        x, v = self.path(self.start(batch, x1), x1, t)
        u = self.net(*(in_dtype_of(self.net, p) for p in (t, x)), *context, **keywords)
        gap = self.M.tangent(x, u.reshape(x.shape).to(x.dtype)) - v
        return self.M.inner(x, gap, gap).mean()

    def start(self, batch: int | tuple[int, ...], like: Tensor | None = None) -> Tensor:
        """Points of the source, in the dtype and on the device of `like`, or of the network."""
        like = next(self.net.parameters(), torch.empty(0)) if like is None else like
        x = self.source.sample((batch,) if isinstance(batch, int) else tuple(batch))
        return self.M.project(x.to(dtype=working_dtype(like), device=like.device))

    @torch.no_grad()
    def sample(self, batch: int | tuple[int, ...], *context: Any, **keywords: Any) -> Tensor:
        """Points of M of shape (*batch, *shape)."""
        return self.ode(self.start(batch), *context, **keywords)

    def log_prob(self, x: Tensor, *context: Any, **keywords: Any) -> Tensor:
        """(*batch,): the log-density of the samples at x; see `ProjectedODE.log_density`. M is a manifold without boundary."""
        return self.ode.log_density(x, self.source, *context, **keywords)

    def _require_data(self, x1: Tensor) -> None:
        if looking(x1) and not bool(self.M.contains(x1).all()):
            worst = float(self.M.violation(x1).max())
            raise ValueError(f"FlowMatching asked for points of {self.M!r}, got violation {worst:.1e}. Write M.project(x1).")


def _uniform(M: ConstraintSet) -> UniformOn:
    try:
        return UniformOn(M)
    except TypeError:
        raise TypeError(
            f"FlowMatching asked for a source on {M!r}, whose volume is infinite or not known. Write "
            "FlowMatching(net, M, source=...) with a distribution on M, such as ib.distributions.WrappedNormal(M, loc, scale)."
        ) from None


def path_of(M: ConstraintSet) -> Path:
    """The paths between points of M: straight where M is convex, geodesics where it has a log, projected lines on manifolds
    that have none, and in a product those of its parts."""
    if M.reach == math.inf:
        return Straight(M)
    if isinstance(M, Product):
        return Parts(M)
    if isinstance(M, Manifold):
        return Geodesic(M) if has_log(M) else ProjectedLine(M)
    raise TypeError(
        f"FlowMatching asked for a convex set, a manifold without boundary or a product of such sets, got {M!r}. For other sets "
        "write FlowMatching(net, M, path=...) with a function (x0, x1, t) -> (point of M, velocity)."
    )


class Straight(nn.Module):
    """(1 - t) x0 + t x1, with the velocity x1 - x0: in M where M is convex."""

    def __init__(self, M: ConstraintSet):
        super().__init__()
        self.M = M

    def forward(self, x0: Tensor, x1: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return self.M.project(x0 + t * (x1 - x0)), x1 - x0


class Geodesic(nn.Module):
    """exp(x0, t log(x0, x1)), with the velocity log(x0, x1) carried along."""

    def __init__(self, M: Manifold):
        super().__init__()
        self.M = M

    def forward(self, x0: Tensor, x1: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        v = self.M.log(x0, x1)
        x = self.M.refine(self.M.exp(x0, t * v))
        return x, self.M.transport(x0, x, v)


class ProjectedLine(nn.Module):
    """P_M((1 - t) x0 + t x1), with its derivative in t as the velocity.

    Where the line passes near a point with several projections the velocity is large: its mean square over random pairs is
    infinite on rotations and Stiefel manifolds, by a logarithm. So losses have outliers there, but the field that they are
    least for has none.
    """

    def __init__(self, M: ConstraintSet):
        super().__init__()
        self.M = M

    def forward(self, x0: Tensor, x1: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        x, v = torch.func.jvp(self.M.project, (x0 + t * (x1 - x0),), (x1 - x0,))[:2]
        return x, self.M.tangent(x, v)


class Pressed(nn.Module):
    """Lines to points beyond the boundary that have the data as their nearest points, projected on the convex set M.

    So a path to a point on the boundary arrives there before the time 1, and slides along the boundary to its end. Other paths
    are straight. This is for data with mass on the boundary: a straight path arrives at the time 1 only, so that a small error
    of the field leaves a sample short of the boundary. `press` is 1.25 times the mean distance of those points from a smooth
    boundary; a fifth of the radius did well on a disk.
    """

    def __init__(self, M: ConstraintSet, press: float):
        super().__init__()
        if M.reach != math.inf:
            raise TypeError(f"Pressed asked for a convex set, got {M!r}. Leave path out, or write path=... with a function.")
        if not 0 <= press < math.inf:
            raise ValueError(f"Pressed asked for a distance press >= 0, got {press}. Write Pressed(M, 0.2).")
        self.M, self.press, self.line = M, press, ProjectedLine(M)

    def forward(self, x0: Tensor, x1: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        z = torch.randn_like(x1)
        outwards = -(self.M.tangent(x1, z) + self.M.tangent(x1, -z))  # in the normal cone; 0 where the cone is a space
        return self.line(x0, x1 + self.press * outwards, t)


class Parts(nn.Module):
    """The paths of the parts of a product, side by side."""

    def __init__(self, M: Product):
        super().__init__()
        self.M, self.paths = M, [path_of(s) for s in M.sets]

    def forward(self, x0: Tensor, x1: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        both = []
        for path, s, a, b in zip(self.paths, self.M.sets, self.M.split(x0), self.M.split(x1), strict=True):
            both.append(path(a, b, t.reshape(t.shape[:-1] + (1,) * len(s.shape))))
        return self.M.join(*(x for x, _ in both)), self.M.join(*(v for _, v in both))
