"""A covariance head: a Gaussian whose covariance depends on the input, positive definite by construction."""

import torch
from torch import nn
from torch.distributions import MultivariateNormal

import inbounds as ib

N, FLOOR = 3, 1e-2
COVARIANCES = ib.PSD(N, minimum=FLOOR)


def main(steps: int = 40):
    torch.manual_seed(0)
    x = torch.rand(500, 1)
    turn = torch.linalg.qr(torch.randn(N, N)).Q
    spread = torch.stack([0.1 + x[:, 0], 0.5 - 0.3 * x[:, 0], 0.3 + 0 * x[:, 0]], -1)
    truth = turn @ torch.diag_embed(spread) @ turn.T
    y = MultivariateNormal(torch.zeros(N), truth).sample()
    head = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, N * N), nn.Unflatten(-1, (N, N)), COVARIANCES)
    head[2].bias.data = torch.eye(N).flatten()  # to begin inside of the set, near the identity
    optimizer = torch.optim.Adam(head.parameters(), 0.01)
    losses = []
    for _ in range(steps):
        loss = -MultivariateNormal(torch.zeros(N), head(x)).log_prob(y).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    C = head(x).detach()
    least = torch.linalg.eigvalsh(C.double()).min()
    best = float(MultivariateNormal(torch.zeros(N), truth).log_prob(y).mean())
    print(f"log likelihood {-losses[0]:.2f} -> {-losses[-1]:.2f}, of the truth {best:.2f}; least eigenvalue {least:.4f}")
    return C, best, losses


if __name__ == "__main__":
    main()
