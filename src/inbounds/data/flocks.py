"""Ten rigid bodies that align their rotation: the Cucker-Smale model on SO(3)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..sets import SO, Euclidean, Product
from .pairs import Pairs
from .synthetic import build

AGENTS, KAPPA, STEPS = 10, 1.0, 10  # the paper's
SPREAD = 0.6 * math.pi  # largest angle of a start
CS_HORIZON = 8.0  # the paper's
FLOCK_HORIZON = 2.0  # ours: benchmarks/flock_horizon.py measures how predictable the end is at others


def cs(sizes: dict[str, int] | None = None, seed: int = 0) -> Pairs:
    """The paper's flocks: R(0) -> R(8), (N, 10, 3, 3). The angular velocities that decide R(8) are not among the inputs."""

    def flow(state: Tensor) -> Tensor:
        return PHASE.split(advect(state, CS_HORIZON))[0]

    return build("cs", SO(3), sizes, seed, start, flow, seen=lambda state: PHASE.split(state)[0])


def flock(sizes: dict[str, int] | None = None, seed: int = 0, horizon: float = FLOCK_HORIZON) -> Pairs:
    """Learnable flocks: (R, a)(0) -> (R, a)(horizon) on Product(SO(3), Euclidean(3)), (N, 10, 12)."""
    return build("flock", PHASE, sizes, seed, start, lambda state: advect(state, horizon))


PHASE = Product(SO(3), Euclidean(3))


def start(n: int, g: torch.Generator) -> Tensor:
    """exp(angle axis) with uniform axis and angle up to 0.6 pi; velocities uniform in [-1, 1]^3."""
    axis = torch.nn.functional.normalize(torch.randn(n, AGENTS, 3, generator=g, dtype=torch.float64), dim=-1)
    angle = SPREAD * torch.rand(n, AGENTS, 1, generator=g, dtype=torch.float64)
    a = 2 * torch.rand(n, AGENTS, 3, generator=g, dtype=torch.float64) - 1
    return PHASE.join(SO(3).group_exp(angle * axis), a)


def advect(state: Tensor, horizon: float) -> Tensor:
    """Ten steps of the Runge-Kutta-Munthe-Kaas midpoint rule: R' = R hat(a), a' = acceleration(R, a)."""
    G, h = SO(3), horizon / STEPS
    R, a = PHASE.split(state)
    for _ in range(STEPS):
        R_mid = G.compose(R, G.group_exp(h / 2 * a))
        a_mid = a + h / 2 * acceleration(R, a)
        R, a = G.refine(G.compose(R, G.group_exp(h * a_mid))), a + h * acceleration(R_mid, a_mid)
    return PHASE.join(G.project(R), a)


def acceleration(R: Tensor, a: Tensor) -> Tensor:
    """kappa/N sum_k phi(theta_ki) (transport of a_k to agent i - a_i), phi = cos(theta/2), theta n = log(R_k^T R_i).

    The bracket of the paper is a_k turned by -theta/2 about n. With the unit quaternion (w, q) of R_k^T R_i,
    w = cos(theta/2) >= 0 and q = sin(theta/2) n, and 1 - w = |q|^2/(1 + w), no axis is divided out:
        (q.a_k) q/(1 + w) + a_k x q + w a_k - a_i.
    """
    w, q = quaternion(R)
    wk, wi, qk, qi = w[..., :, None, :], w[..., None, :, :], q[..., :, None, :], q[..., None, :, :]
    q = wk * qi - wi * qk - torch.linalg.cross(*torch.broadcast_tensors(qk, qi))  # of R_k^T R_i, at [k, i]
    w = wk * wi + (qk * qi).sum(-1, keepdim=True)
    q, w = torch.where(w < 0, -q, q), w.abs()
    ak = a[..., :, None, :].expand_as(q)
    moved = (q * ak).sum(-1, keepdim=True) * q / (1 + w) + torch.linalg.cross(ak, q) + w * ak
    return KAPPA / AGENTS * (w * (moved - a[..., None, :, :])).sum(-3)


def quaternion(R: Tensor) -> tuple[Tensor, Tensor]:
    """A unit quaternion (w, q) of R: (*batch, 1) and (*batch, 3)."""
    c = SO(3).group_log(R)
    half = torch.linalg.vector_norm(c, dim=-1, keepdim=True) / 2
    return half.cos(), c / 2 * torch.sinc(half / math.pi)
