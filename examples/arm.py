"""A robot arm: its hand on the goal, joints within their limits and outside of an obstacle. The goal is the set's context."""

import torch

import inbounds as ib

OBSTACLE, RADIUS = (1.0, 0.0), 0.4


def joints(q):
    """Positions of the joints and the hand, (3, 2)."""
    a = q.cumsum(0)
    return torch.stack([a.cos(), a.sin()], -1).cumsum(0)


def reaches(q, goal):
    return joints(q)[-1] - goal


def allowed(q, goal):
    away = (joints(q) - torch.tensor(OBSTACLE, dtype=q.dtype)).square().sum(-1)
    return torch.cat([q.abs() - 2.5, RADIUS**2 - away])


def main():
    M = ib.Implicit(3, eq=reaches, ineq=allowed, context=2, on_fail="best")
    g = torch.Generator().manual_seed(0)
    goals = torch.tensor([1.2, 1.4]) + 0.3 * torch.randn(32, 2, generator=g)
    angles = 0.8 + 0.5 * torch.randn(32, 3, generator=g)
    s = M.solve(angles, context=goals)
    ok = s.status == 0
    print(f"{int(ok.sum())} of {len(ok)} goals reached; largest violation {float(s.violation[ok].max()):.1e}")
    return M, goals, angles, s


if __name__ == "__main__":
    main()
