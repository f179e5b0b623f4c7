"""From a plain training loop to a server: weights in a safetensors file, the network in ONNX Runtime."""

import tempfile
from pathlib import Path

import torch
from action_set import exported
from safetensors.torch import load_file, save_file
from torch import nn

import inbounds as ib


def model():
    return ib.FAA(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3)), ib.Projection(ib.Sphere(3)))


def main(steps: int = 60):
    torch.manual_seed(0)
    net, x = model(), torch.randn(512, 6)
    y = nn.functional.normalize(torch.sin(x[:, :3]) + x[:, 3:], dim=-1)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(steps):
        loss = (net(x) - y).square().sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with tempfile.TemporaryDirectory() as folder:
        save_file(net.state_dict(), Path(folder) / "net.safetensors")
        again = model()  # the set is code, the weights are the file
        again.load_state_dict(load_file(Path(folder) / "net.safetensors"))
        (served,) = exported(again.eval(), folder).run(None, {"x": x.numpy()})
    off = (torch.from_numpy(served) - (here := net(x).detach())).abs().max()
    print(f"loss {loss.detach():.3f}; loaded weights agree: {torch.equal(again(x), net(x))}; ONNX Runtime differs by {off:.0e}")
    return here, torch.from_numpy(served)


if __name__ == "__main__":
    main()
