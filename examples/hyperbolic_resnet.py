"""A Riemannian residual network on the hyperbolic plane (Katsman et al., 2023).

Every layer moves a point along a geodesic: x <- exp_x(f(x)). That is `IAA` with the step `Exponential`. The network learns a
motion of the hyperbolic plane, a translation followed by a turn, from pairs of points.
"""

import math

import torch

import inbounds as ib

M = ib.Hyperboloid(3)


def motion(x):
    """A boost by 1 along the second axis, then a quarter of a turn: both keep hyperbolic distances."""
    c, s = math.cosh(1.0), math.sinh(1.0)
    t, a, b = x.unbind(-1)
    t, b = c * t + s * b, s * t + c * b
    return M.refine(torch.stack([t, -b, a], -1))


def points(count, seed):
    """Half as far from the origin as M.sample draws them."""
    x = M.sample(count, generator=torch.Generator().manual_seed(seed))
    o = M.origin(x).expand_as(x)
    return M.exp(o, 0.5 * M.log(o, x))


def error(net, x):
    return M.geodesic_distance(net(x), motion(x))


def main(steps=120):
    torch.manual_seed(0)
    step = ib.Exponential(M)
    net = ib.IAA([ib.MLPBlock(M.shape, step.size, width=32) for _ in range(3)], step, dt=0.3)
    opt = torch.optim.Adam(net.parameters(), lr=4e-2)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    x = points(200, 0)
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        loss = error(net, x).square().mean()
        loss.backward()
        opt.step()
        decay.step()
        losses.append(float(loss.detach()))
    new = points(500, 1)
    states = [h.detach() for h in net.states(new)]
    miss = error(net, new).detach().mean()
    worst = max(float((M.violation(h) / h[..., 0]).max()) for h in states)
    print(f"distance to the target {float(miss):.3f}, before training {losses[0] ** 0.5:.2f}; worst violation {worst:.0e}")
    return float(miss), worst, losses


if __name__ == "__main__":
    main()
