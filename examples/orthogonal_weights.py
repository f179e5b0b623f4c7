"""Orthogonal weights: torch's own parametrisation with a set as the map. The layer keeps lengths, before and after training."""

import torch
from torch import nn
from torch.nn.utils import parametrize

import inbounds as ib

WIDTH = 8


def main(steps: int = 60):
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3)]
    for layer in layers:
        parametrize.register_parametrization(layer, "weight", ib.Stiefel(WIDTH, WIDTH))
    net = nn.Sequential(*layers)
    x = torch.randn(256, WIDTH)
    target = x @ torch.linalg.qr(torch.randn(WIDTH, WIDTH)).Q
    optimizer = torch.optim.Adam(net.parameters(), 0.03)
    losses = []
    for _ in range(steps):
        loss = (net(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    W = layers[0].weight.detach().double()
    stretch = (net(x).norm(dim=-1) / x.norm(dim=-1) - 1).abs().max()
    off = (W.mT @ W - torch.eye(WIDTH)).abs().max()
    print(f"loss {losses[0]:.2f} -> {losses[-1]:.2g}; |W^T W - I| is {off:.0e}, lengths are off by {stretch:.0e}")
    return W, losses, float(stretch.detach())


if __name__ == "__main__":
    main()
