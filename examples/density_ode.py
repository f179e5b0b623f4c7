"""A manifold neural ODE as a density model (Falorsi and Forre, 2020; Lou et al., 2020), trained by maximum likelihood.

A field on the sphere carries uniform points into the data. Its exact log-density is the integral of the divergence along the way
back. The data have two modes and a known density, so that the likelihood of fresh points can be set beside the best possible one.
"""

import torch
from torch import nn

import inbounds as ib
from inbounds.distributions import UniformOn, VonMisesFisher

M = ib.Sphere(3)
POLES = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])


def data(count, seed):
    torch.manual_seed(seed)
    return VonMisesFisher(POLES.repeat(count // 2, 1), torch.tensor(10.0)).sample()


def truth(x):
    """The log-density that the data were drawn from."""
    return torch.logsumexp(VonMisesFisher(POLES, torch.tensor(10.0)).log_prob(x[:, None]), -1) - torch.tensor(2.0).log()


class Field(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3))

    def forward(self, t, x):
        return self.layers(torch.cat([x, t.expand_as(x[..., :1])], -1))


def main(steps=30):
    x, new, uniform = data(1024, seed=0), data(500, seed=1), UniformOn(M)
    ode = ib.ProjectedODE(Field(), M, steps=4)
    opt = torch.optim.Adam(ode.parameters(), lr=5e-2)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    for k in range(steps):
        opt.zero_grad()
        (-ode.log_density(x[(128 * k) % 1024 :][:128], uniform).mean()).backward()
        opt.step()
        decay.step()
    with torch.no_grad():
        found, best = float(ode.log_density(new, uniform).mean()), float(truth(new).mean())
        flat, y = float(uniform.log_prob(new).mean()), ode(M.sample(500))
    print(f"log-density of fresh data {found:.2f}; of the law they come from {best:.2f}, of uniform points {flat:.2f}")
    return M, y, found, best, flat


if __name__ == "__main__":
    main()
