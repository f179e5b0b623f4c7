"""Power balance: generation x with A(z) x = demand(z) and limits that depend on the network's input z, in every training step."""

import torch
from torch import nn

import inbounds as ib

GENERATORS, REGIONS = 6, 2


class Dispatch(nn.Module):
    """The set of an input: each region's demand is met, every generator stays within what is available."""

    shape = (GENERATORS,)

    def __init__(self):
        super().__init__()
        self.spare = nn.Parameter(torch.tensor(-2.0))  # learnable reserve on every limit: softplus keeps it above 0

    def forward(self, z):
        share = torch.stack([torch.sigmoid(z[..., :GENERATORS]), 1 - torch.sigmoid(z[..., :GENERATORS])], -2)
        available = 1.0 + 0.5 * torch.tanh(z[..., :GENERATORS]) + nn.functional.softplus(self.spare)
        demand = 0.4 * (share * available[..., None, :]).sum(-1) * (1 + 0.2 * torch.tanh(z[..., GENERATORS:]))
        return ib.Polytope(E=share, f=demand, low=torch.zeros_like(available), high=available)


def main(steps: int = 60):
    torch.manual_seed(0)
    M = ib.Depends(Dispatch())
    net = ib.FAA(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, GENERATORS)), ib.Projection(M))
    z, price = torch.randn(64, 8), torch.linspace(1.0, 2.0, GENERATORS)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    costs = []
    for _ in range(steps):
        x = net(z)
        cost = (x * price + 0.2 * x.square()).sum(-1).mean()
        optimizer.zero_grad()
        cost.backward()
        optimizer.step()
        costs.append(float(cost.detach()))
    x = net(z).detach()
    print(f"cost {costs[0]:.3f} -> {costs[-1]:.3f}; violation {M.violation(x, context=z).detach().max():.1e}")
    return M, net, z, x, costs


if __name__ == "__main__":
    main()
