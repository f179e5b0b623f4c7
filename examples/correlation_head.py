"""A network head that returns a correlation matrix: symmetric, positive semidefinite, ones on the diagonal, exactly."""

import torch
from torch import nn

import inbounds as ib

N = 4


def main(steps: int = 60):
    torch.manual_seed(0)
    head = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, N * N), nn.Unflatten(-1, (N, N)), ib.Correlation(N))
    x = torch.randn(64, 3)
    factors = nn.functional.normalize(torch.sin(x @ torch.randn(3, N * 2)).unflatten(-1, (N, 2)), dim=-1)
    target = factors @ factors.mT  # rank two: on the boundary of the set
    optimizer = torch.optim.Adam(head.parameters(), 0.06)
    losses = []
    for _ in range(steps):
        loss = (head(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    y = head(x).detach()
    least = torch.linalg.eigvalsh(y.double()).min()
    print(
        f"loss {losses[0]:.3f} -> {losses[-1]:.3f}; least eigenvalue {least:.1e}, "
        f"diagonal off by {(y.diagonal(dim1=1, dim2=2) - 1).abs().max():.0e}"
    )
    return y, losses


if __name__ == "__main__":
    main()
