"""A portfolio network whose weights are always a valid portfolio: no position above 20 %, no sector above 40 %."""

import torch
from torch import nn

import inbounds as ib

ASSETS, CAP, LIMIT = 12, 0.2, 0.4
SECTORS = torch.eye(4).repeat_interleave(3, 1)  # (4, 12): three assets each


def main(steps: int = 20):
    torch.manual_seed(0)
    M = ib.Intersection(ib.CappedSimplex(ASSETS, cap=CAP), ib.Halfspaces(SECTORS, torch.full((4,), LIMIT)))
    net = ib.FAA(nn.Linear(6, ASSETS), ib.Projection(M))
    signals = torch.randn(256, 6)
    returns = signals @ torch.randn(6, ASSETS) * 0.05 + 0.02 * torch.randn(256, ASSETS)
    optimizer = torch.optim.Adam(net.parameters(), 0.1)
    gains = []
    for _ in range(steps):
        weights = net(signals)
        gain = (weights * returns).sum(-1).mean()
        optimizer.zero_grad()
        (-gain).backward()
        optimizer.step()
        gains.append(float(gain.detach()))
    weights = net(signals).detach()
    print(
        f"mean return {gains[0]:+.3f} -> {gains[-1]:+.3f}; largest position {weights.max():.4f}, largest sector "
        f"{(weights @ SECTORS.T).max():.4f}, violation {M.violation(weights).max():.1e}"
    )
    return M, weights, gains


if __name__ == "__main__":
    main()
