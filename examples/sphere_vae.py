"""A hyperspherical variational autoencoder (Davidson et al., 2018).

The data lie on a bent sphere in ten dimensions. The latent variable is a point of the unit sphere, the posterior is von
Mises-Fisher, the prior is uniform, and their divergence has a formula. Gradients of samples are unbiased.
"""

import torch
from torch import nn
from torch.distributions import kl_divergence

import inbounds as ib
from inbounds.distributions import UniformOn, VonMisesFisher


def data(count, seed=0):
    g = torch.Generator().manual_seed(seed)
    s = ib.Sphere(3).sample(count, generator=g)
    mix = torch.randn(9, 10, generator=torch.Generator().manual_seed(9)) / 3
    bent = torch.cat([s, s.square(), s * s.roll(1, -1)], -1) @ mix
    return bent + 0.02 * torch.randn(bent.shape, generator=g)


class SphereVAE(nn.Module):
    def __init__(self, size=10, width=64):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(size, width), nn.Tanh(), nn.Linear(width, 4))
        self.decode = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, size))
        self.M = ib.Sphere(3)

    def posterior(self, x):
        u = self.encode(x)
        return VonMisesFisher(self.M(u[..., :3]), 1 + nn.functional.softplus(10 * u[..., 3]))

    def forward(self, x, noise=0.1):
        """Minus the evidence lower bound, for normal data of this standard deviation, up to a constant."""
        q = self.posterior(x)
        fit = (self.decode(q.rsample()) - x).square().sum(-1) / (2 * noise**2)
        return (fit + kl_divergence(q, UniformOn(self.M))).mean()


def main(steps=250):
    torch.manual_seed(0)
    model, x = SphereVAE(), data(2000)
    opt = torch.optim.Adam(model.parameters(), lr=2e-2)
    losses = []
    for k in range(steps):
        opt.zero_grad()
        loss = model(x[(64 * k) % 1984 :][:64])
        loss.backward()
        opt.step()
        losses.append(float(loss.detach()))
    new = data(500, seed=1)
    q = model.posterior(new)
    error = float(((model.decode(q.loc) - new).square().sum() / (new - new.mean(0)).square().sum()).detach())
    print(f"unexplained variance {error:.3f}; loss from {losses[0]:.1f} to {losses[-1]:.1f}")
    return q.rsample().detach(), error, losses


if __name__ == "__main__":
    main()
