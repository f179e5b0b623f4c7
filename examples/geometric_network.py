"""A geometric deep network: logarithm, network, exponential (Kratsios and Papon, 2022).

It maps rotations to unit vectors. The logarithm takes a rotation to the tangent space at the identity, a network maps that to a
tangent space of the sphere, and the exponential leads to a unit vector. It learns where a rotation takes one vector.
"""

import torch
from torch import nn

import inbounds as ib


def pairs(count, seed):
    """Rotations of at most two radians, where the logarithm is smooth, and where they take the vector (1, 2, 2)/3."""
    g = torch.Generator().manual_seed(seed)
    c = 2 * ib.Ball(3).sample(count, generator=g)
    R = ib.SO(3).group_exp(c)
    return R, R @ torch.tensor([1.0, 2.0, 2.0]) / 3


def main(steps=300):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(9, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
    model, M = ib.GDN(net, ib.SO(3), ib.Sphere(3)), ib.Sphere(3)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    R, y = pairs(300, 0)
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        loss = M.geodesic_distance(model(R), y).square().mean()
        loss.backward()
        opt.step()
        decay.step()
        losses.append(float(loss.detach()))
    R, y = pairs(500, 1)
    found = model(R).detach()
    error = M.geodesic_distance(found, y)
    print(f"angle to the target: {float(error.mean()):.3f} radians in the mean; violation {float(M.violation(found).max()):.0e}")
    return M, found, error, losses


if __name__ == "__main__":
    main()
