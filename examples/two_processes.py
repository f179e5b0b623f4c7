"""Data-parallel training with two processes (gloo; nccl on GPUs): the gradient is that of the whole batch."""

import socket

import torch
import torch.distributed as dist
from torch import multiprocessing, nn

import inbounds as ib


def network():
    torch.manual_seed(0)
    return ib.FAA(nn.Linear(6, 9), ib.Projection(ib.SO(3)))


def worker(rank, port, x, grads):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    net = nn.parallel.DistributedDataParallel(network())
    net(x.chunk(2)[rank])[..., 0].exp().mean().backward()
    grads[rank] = net.module.net.weight.grad
    dist.destroy_process_group()


def main():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    x, net = torch.randn(64, 6), network()
    net(x)[..., 0].exp().mean().backward()
    grads = torch.zeros(2, 9, 6).share_memory_()
    multiprocessing.spawn(worker, (port, x, grads), nprocs=2)
    off = float((grads - net.net.weight.grad).abs().max())
    print(f"the gradient of two processes differs from that of one by {off:.0e}")
    return off


if __name__ == "__main__":
    main()
