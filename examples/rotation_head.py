"""A rotation head: a network reads a rotation off noisy vectors, and is trained by the angle to the true one."""

import torch
from torch import nn

import inbounds as ib

ROTATIONS = ib.SO(3)


def views(count, g):
    """Rotations, and what they do to two fixed vectors, with noise."""
    R = ROTATIONS.sample(count, generator=g)
    seen = R[..., :2].flatten(1)
    return seen + 0.05 * torch.randn(seen.shape, generator=g), R


def main(steps: int = 100):
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(1)
    net = ib.FAA(nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 9)), ib.Projection(ROTATIONS))
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    degrees = []
    for _ in range(steps):
        seen, R = views(128, g)
        angle = ROTATIONS.angle(net(seen), R)  # radians, 0 to pi, with finite gradients at both ends
        optimizer.zero_grad()
        angle.mean().backward()
        optimizer.step()
        degrees.append(float(angle.detach().mean().rad2deg()))
    seen, R = views(1000, g)
    y = net(seen).detach()
    print(f"mean angle {degrees[0]:.0f} -> {degrees[-1]:.1f} degrees; largest violation {ROTATIONS.violation(y).max():.0e}")
    return y, degrees


if __name__ == "__main__":
    main()
