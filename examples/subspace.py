"""Optimising a parameter in a set: the plane that holds most of the variance of a cloud, by `ib.optim`."""

import torch
from torch import nn

import inbounds as ib

FRAMES = ib.Stiefel(20, 2)  # two orthonormal vectors of R^20, as columns


def main(steps: int = 200):
    torch.manual_seed(0)
    x = torch.randn(2000, 20) * torch.linspace(0.5, 3, 20)  # more spread along some axes than along others
    x = x @ ib.SO(20).sample()
    covariance = x.T @ x / len(x)

    W = nn.Parameter(FRAMES.sample())
    optimizer = ib.optim.RiemannianAdam([{"params": [W], "manifold": FRAMES}], lr=0.3)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
    for _ in range(steps):
        loss = -(W.T @ covariance @ W).trace()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()

    held, best = -float(loss.detach()), float(torch.linalg.eigvalsh(covariance)[-2:].sum())
    off = float((W.detach().T @ W.detach() - torch.eye(2)).abs().max())
    print(f"the plane holds {held / best:.4%} of the most that a plane can hold; W^T W is off the identity by {off:.0e}")
    return W.detach(), held / best, off


if __name__ == "__main__":
    main()
