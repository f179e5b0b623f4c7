"""A neural ODE whose concentrations cannot become negative, trained on a few observation times."""

import torch
from torch import nn

import inbounds as ib

STEPS, SEEN = 20, [5, 10, 20]  # of the horizon; the times that are observed


def decay():
    """A -> B -> nothing, at constant rates until a substance is used up: the truth, on the grid of the solver."""
    path = [torch.rand(64, 2) + 0.2]
    for _ in range(STEPS):
        a, b = path[-1].unbind(-1)
        used = torch.minimum(a, torch.tensor(0.05))
        path.append(torch.stack([a - used, (b + used - 0.06).clamp(min=0)], -1))
    return torch.stack(path)


def main(steps: int = 40):
    torch.manual_seed(0)
    truth = decay()
    positive = ib.Box([0, 0], [float("inf"), float("inf")])
    rates = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    ode = ib.ProjectedODE(rates, positive, steps=STEPS, method="euler", time=False)
    optimizer = torch.optim.Adam(ode.parameters(), 0.02)
    for _ in range(steps):
        loss = (ode.trajectory(truth[0])[SEEN] - truth[SEEN]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    error = ((path := ode.trajectory(truth[0]).detach()) - truth).square().mean().sqrt()
    print(f"off by {error:.3f} at all times, seen at {len(SEEN)} of {STEPS}; least concentration {path.min():.1e}")
    return path, float(error)


if __name__ == "__main__":
    main()
