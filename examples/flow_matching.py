"""Flow matching on the sphere: a density with two modes, learned from samples.

Every sample of the model, and every state on its way, is a unit vector. The test is the energy distance between samples of the
model and fresh data, which is zero only for equal distributions; that of uniform points stands beside it.
"""

import torch
from torch import nn

import inbounds as ib
from inbounds.distributions import VonMisesFisher


def data(count, seed):
    """Half of the points about the north pole, half about a point of the equator."""
    torch.manual_seed(seed)
    poles = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]).repeat(count // 2, 1)
    return VonMisesFisher(poles, torch.tensor(20.0)).sample()


class Field(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 3))

    def forward(self, t, x):
        return self.layers(torch.cat([x, t.expand_as(x[..., :1])], -1))


def energy_distance(x, y):
    """2 E|x - y| - E|x - x'| - E|y - y'|."""
    return float(2 * torch.cdist(x, y).mean() - torch.cdist(x, x).mean() - torch.cdist(y, y).mean())


def main(steps=80):
    M, x1 = ib.Sphere(3), data(2048, seed=0)
    model = ib.FlowMatching(Field(), M)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    for k in range(steps):
        opt.zero_grad()
        model.loss(x1[(256 * k) % 2048 :][:256]).backward()
        opt.step()
        decay.step()
    new, y = data(1000, seed=1), model.sample(1000)
    learned, uniform = energy_distance(y, new), energy_distance(M.sample(1000), new)
    gain = float(model.log_prob(new[:200]).detach().mean() - model.source.log_prob(new[:200]).mean())
    print(
        f"energy distance {learned:.4f}, of uniform points {uniform:.4f}; log-likelihood {gain:.2f} above that of uniform points"
    )
    return M, y, learned, uniform, gain


if __name__ == "__main__":
    main()
