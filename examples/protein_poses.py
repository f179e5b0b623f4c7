"""Pose regression on real protein backbones: from the frame of a residue to that of the next one. Needs the extra [lab]."""

import torch
from torch import nn

import inbounds as ib
from inbounds.data import protein

POSES = ib.SE(3)


def main(steps: int = 60):
    torch.manual_seed(0)
    pairs = protein()  # 140 chains, split by protein
    (x, y), (a, b) = pairs["train"], pairs["test"]
    body = nn.Sequential(nn.Flatten(-2), nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, POSES.dim))
    net = ib.FAA(body, ib.GroupExponential(POSES, side="right"), base=nn.Identity())  # a screw motion in the residue's own frame
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(steps):
        rows = torch.randint(len(x), (500,))
        loss = (net(x[rows]) - y[rows]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        moved, stayed = ((net(a) - b).square().mean(), (a - b).square().mean())
        violation = POSES.violation(net(a)).max()
    print(f"error on unseen proteins {moved:.3f}, without moving {stayed:.3f}; largest violation {violation:.0e}")
    return float(moved), float(stayed), float(violation)


if __name__ == "__main__":
    main()
