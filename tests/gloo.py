"""What two processes of a gloo group do, in a file that asks for torch and the library alone: each process imports it anew."""

import os
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import inbounds as ib


def poses():
    torch.manual_seed(0)
    step = ib.GroupExponential(ib.SE(3))
    return ib.IAA([ib.MLPBlock((4, 4), step.size) for _ in range(3)], step)


def batch():
    return torch.randn(8, 4, 4, generator=torch.Generator().manual_seed(1))


def boxed(high: float):
    step = ib.Projection(ib.Box([0.0, 0.0], [1.0, high]))
    return ib.IAA([ib.MLPBlock((2,), step.size, width=4) for _ in range(2)], step)


def gradient(rank: int) -> list[torch.Tensor]:
    """Of the whole batch, from the half that this process sees."""
    net = nn.parallel.DistributedDataParallel(poses())
    net(batch()[4 * rank : 4 * rank + 4]).square().mean().backward()
    return [p.grad for p in net.parameters()]


def warned() -> list[list[str]]:
    """What is said when weights are loaded into the same set, and into another one."""
    a, same, other = (nn.parallel.DistributedDataParallel(boxed(high)) for high in (1.0, 1.0, 2.0))
    said = []
    for net in (same, other):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            net.load_state_dict(a.state_dict())
        said.append([str(w.message) for w in caught])
    return said


def process(rank: int, port: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.save({"gradient": gradient(rank), "warned": warned()}, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()
