"""The actions of a policy: bounded torques, shares of a budget, a thrust of limited length; in PyTorch and ONNX Runtime."""

import logging
import tempfile
from pathlib import Path

import onnxruntime
import torch
from torch import nn

import inbounds as ib

ACTIONS = ib.Product(ib.Box([-1, -1], [1, 0.5]), ib.Simplex(3), ib.Ball(3, radius=2))


def exported(policy, folder):
    """The policy as ONNX Runtime runs it, for batches of any size."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    file = Path(folder) / "policy.onnx"
    batch = [{0: torch.export.Dim("batch")}]
    torch.onnx.export(policy, (torch.randn(4, 6),), file, dynamo=True, dynamic_shapes=batch, verbose=False, optimize=False)
    return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])


def main():
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 8), ACTIONS).eval()
    observed = 10 * torch.randn(1000, 6)
    with tempfile.TemporaryDirectory() as folder:
        (other,) = exported(policy, folder).run(None, {"input": observed.numpy()})
    a, b = policy(observed).detach(), torch.from_numpy(other)
    torque, shares, thrust = ACTIONS.split(b)
    print(f"ONNX Runtime differs by {(a - b).abs().max():.0e}; its largest violation is {ACTIONS.violation(b).max():.0e}")
    return a, b, (torque, shares, thrust)


if __name__ == "__main__":
    main()
