"""A variational autoencoder whose latent variable is a rotation (Falorsi et al., 2018).

The data are four points of a body that is seen in random positions, with noise. The encoder gives a rotation and a scale, the
posterior is the normal distribution of rotations, the prior is Haar measure. The decoder turns a body that it learns.
"""

import torch
from torch import nn
from torch.distributions import kl_divergence

import inbounds as ib
from inbounds.distributions import IsotropicSO3, UniformOn

BODY = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.7, 0.2], [-0.3, 0.0, 0.9], [0.4, -0.6, -0.5]])


def data(count, seed=0):
    g = torch.Generator().manual_seed(seed)
    seen = BODY @ ib.SO(3).sample(count, generator=g).mT
    return seen + 0.03 * torch.randn(seen.shape, generator=g)


class RotationVAE(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(12, width), nn.ReLU(), nn.Linear(width, 10))
        self.body = nn.Parameter(0.5 * torch.randn(4, 3))
        self.M = ib.SO(3)

    def posterior(self, x):
        u = self.encode(x)
        return IsotropicSO3(self.M(u[:, :9].unflatten(-1, (3, 3))), 0.02 + nn.functional.softplus(u[:, 9] - 1))

    def forward(self, x, noise=0.1):
        """Minus the evidence lower bound, for normal data of this standard deviation, up to a constant."""
        q = self.posterior(x)
        fit = (self.body @ q.rsample().mT - x).square().sum((-2, -1)) / (2 * noise**2)
        return (fit + kl_divergence(q, UniformOn(self.M))).mean()


def main(steps=150):
    torch.manual_seed(0)
    model, x = RotationVAE(), data(2000)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for k in range(steps):
        opt.zero_grad()
        loss = model(x[(32 * k) % 1984 :][:32])
        loss.backward()
        opt.step()
        losses.append(float(loss.detach()))
    new = data(500, seed=1)
    q = model.posterior(new)
    error = float(((model.body @ q.loc.mT - new).square().sum() / new.square().sum()).detach())
    print(f"unexplained variance {error:.3f}; loss from {losses[0]:.1f} to {losses[-1]:.1f}")
    return q.rsample().detach(), error, losses


if __name__ == "__main__":
    main()
