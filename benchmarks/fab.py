"""A projection by an autoencoder with a round latent space, trained as in "Improving Feasibility via Fast Autoencoder-based
Projections" (Chzhen and Donti, ICLR 2026), written anew from the paper's and the authors' settings.

As there: ReLU networks with 4 hidden layers of 64, latent points in a cube (tanh) of as many dimensions as the data, a critic
64-32-1; Adam 1e-3, batches of 256; 500 epochs of reconstruction of feasible points, then 100 epochs with the weights 1.5
(reconstruction), 1 (critic on reconstructions), 1 (critic on points drawn from the latent ball of radius 1/2), 0.5 (feasible
codes inside of that ball, infeasible ones outside), 0.025 (variance of log det J J^T); three steps of the critic for one of the
autoencoder, labels by an oracle that knows the true set. Assumed here: inputs are normalised in both phases; the first of the
authors' grids of weights; codes are clamped to the ball exactly, not by a softplus.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, BATCH, RATE = 64, 256, 1e-3
EPOCHS = (500, 100)
RECONSTRUCT, FEASIBLE, LATENT, HINGE, GEOMETRIC = 1.5, 1.0, 1.0, 0.5, 0.025
CRITIC_STEPS, RADIUS, JACOBIANS = 3, 0.5, 32
Oracle = Callable[[Tensor], Tensor]


def mlp(*sizes: int) -> nn.Sequential:
    """ReLU between linear layers."""
    layers = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class Autoencoder(nn.Module):
    """x -> code -> ball -> x, in units of the training points."""

    def __init__(self, x: Tensor):
        super().__init__()
        d = x.shape[1]
        self.mean, self.std = x.mean(0), x.std(0)
        self.encoder = nn.Sequential(mlp(d, *[WIDTH] * 4, d), nn.Tanh())
        self.decoder = mlp(d, *[WIDTH] * 4, d)
        self.critic = mlp(d, WIDTH, WIDTH // 2, 1)

    def project(self, x: Tensor) -> Tensor:
        """The decoded point of the ball that is nearest to the code of x."""
        z = self.encoder((x.float() - self.mean) / self.std)
        z = z * (RADIUS / z.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1.0)
        return (self.decoder(z) * self.std + self.mean).double()


def train(feasible: Tensor, infeasible: Tensor, oracle: Oracle, seed: int = 0, epochs: tuple[int, int] = EPOCHS) -> Autoencoder:
    """Both phases. oracle: whether points, in the data's own units, are feasible."""
    torch.manual_seed(seed)
    x = torch.cat([feasible, infeasible]).float()
    M = Autoencoder(x)
    label = torch.cat([torch.ones(len(feasible), 1), torch.zeros(len(infeasible), 1)])
    x = (x - M.mean) / M.std
    coder = [*M.encoder.parameters(), *M.decoder.parameters()]
    first, second, critic = (torch.optim.Adam(p, RATE) for p in (coder, coder, M.critic.parameters()))
    for _ in range(epochs[0]):
        for i in torch.randperm(len(feasible)).split(BATCH):
            step(first, F.mse_loss(M.decoder(M.encoder(x[i])), x[i]))
    judged = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(len(infeasible) / len(feasible)))

    def truth(points: Tensor) -> Tensor:
        return oracle((points * M.std + M.mean).double()).float()[:, None]

    for _ in range(epochs[1]):
        for i in torch.randperm(len(x)).split(BATCH):
            for _ in range(CRITIC_STEPS):
                with torch.no_grad():
                    made = torch.cat([M.decoder(M.encoder(x[i])), M.decoder(torch.randn_like(x[i]).tanh())])
                step(critic, judged(M.critic(x[i]), label[i]) + judged(M.critic(made), truth(made)))
            step(second, loss(M, x[i], label[i], judged))
    return M.eval()


def loss(M: Autoencoder, x: Tensor, label: Tensor, judged: nn.Module) -> Tensor:
    """Of the autoencoder in the second phase."""
    z = M.encoder(x)
    back = M.decoder(z)
    ball = F.normalize(torch.randn_like(z), dim=1) * torch.rand(len(z), 1) ** (1 / z.shape[1]) * RADIUS
    drawn = M.critic(M.decoder(ball))
    r = z.norm(dim=1, keepdim=True)
    hinge = (label * (r - RADIUS).clamp(min=0) + (1 - label) * (RADIUS - r).clamp(min=0)).mean()
    J = torch.func.vmap(torch.func.jacrev(M.decoder))(z[:JACOBIANS])
    even = torch.logdet(J @ J.mT + 1e-6 * torch.eye(z.shape[1])).nan_to_num().var()
    terms = (F.mse_loss(back, x), judged(M.critic(back), label), judged(drawn, torch.ones_like(drawn)), hinge, even)
    return sum(w * t for w, t in zip((RECONSTRUCT, FEASIBLE, LATENT, HINGE, GEOMETRIC), terms, strict=True))


def step(optimizer: torch.optim.Optimizer, value: Tensor) -> None:
    """One step down."""
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
