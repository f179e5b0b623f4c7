"""A tree in the hyperbolic plane and in the Euclidean one.

The leaves of a tree grow in number as fast as the hyperbolic plane has room, and the Euclidean plane has not: distances between
nodes cannot be kept there. `RiemannianAdam` moves the nodes, in float32, with the gradient of the hyperbolic metric.
"""

import math

import torch
from torch import nn

import inbounds as ib

DEPTH, EDGE = 4, 2.0


def tree():
    """Distances between the nodes of a balanced binary tree, and a first drawing of it: depth and angle of every node.

    Child and parent differ by an angle that shrinks with the depth as fast as circles of the hyperbolic plane grow.
    """
    nodes = range(1, 2 ** (DEPTH + 1))
    paths = [{k >> s for s in range(k.bit_length())} for k in nodes]
    apart = torch.tensor([[len(a ^ b) for b in paths] for a in paths], dtype=torch.float32)
    level, turn = torch.tensor([k.bit_length() - 1.0 for k in nodes]), torch.zeros(len(nodes))
    for k in nodes[1:]:
        turn[k - 1] = turn[k // 2 - 1] + (k % 2 - 0.5) * math.pi * math.exp(-EDGE * (level[k - 1] - 1))
    return apart, EDGE * level[:, None] * torch.stack([turn.cos(), turn.sin()], -1)


def embed(M, start, apart, steps):
    """The mean relative error of all distances, at the best scale, after so many steps."""
    p = nn.Parameter(start)
    opt = ib.optim.RiemannianAdam([{"params": [p], "manifold": M}], lr=0.1, betas=(0.9, 0.99))
    decay = torch.optim.lr_scheduler.ExponentialLR(opt, 1e-2 ** (1 / steps))
    i, j = torch.triu_indices(len(apart), len(apart), 1)
    for _ in range(steps):
        opt.zero_grad()
        ratio = M.geodesic_distance(p[i], p[j]) / (EDGE * apart[i, j])
        (ratio / ratio.mean().detach() if isinstance(M, ib.Euclidean) else ratio).sub(1).square().mean().backward()
        opt.step()
        decay.step()
    ratio = (M.geodesic_distance(p[i], p[j]) / apart[i, j]).detach()
    return float((ratio / ratio.mean() - 1).abs().mean()), p.detach()


def main(steps=60):
    apart, flat = tree()
    H, E = ib.Hyperboloid(3), ib.Euclidean(2)
    start = H.exp(H.origin(flat).expand(len(flat), 3), nn.functional.pad(flat, (1, 0)))
    bent, points = embed(H, start, apart, steps)
    plain, _ = embed(E, flat, apart, steps)
    print(f"mean relative error of distances: {bent:.3f} in the hyperbolic plane, {plain:.3f} in the Euclidean one")
    return bent, plain, H.violation(points) / points[:, 0]


if __name__ == "__main__":
    main()
