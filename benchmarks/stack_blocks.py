"""How many rows a stack evaluates at once: the time of a gradient for blocks of several sizes, in that of the package's own.

Looped transformers, as on the dataset cs, and vmapped transformers with a flow of 8 x 256 inside; one thread. Sizes take turns
and the least time of each counts. Writes results/stack_blocks.json; to be run on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import inbounds as ib
from inbounds.learned import Flow
from inbounds.learned.flow import VelocityNet
from inbounds.records import head
from inbounds.train import mse
from inbounds.train.stack import FLOW_ROWS, LOOPED_ROWS, Stack

AGENTS, ROUNDS = 10, 3


def looped() -> list[nn.Module]:
    M = ib.SO(3)
    blocks = [ib.AttentionBlock(M.shape, 9, heads=3, width=2_048) for _ in range(2)]
    return [ib.IAA(blocks, ib.Projection(M))]


def with_flow() -> list[nn.Module]:
    torch.manual_seed(0)
    flow = Flow(VelocityNet(9, 256, 8, 0.0), (3, 3), T=1.0, steps=8)
    for p in flow.parameters():
        p.requires_grad_(False)
    free = ib.IAA([ib.AttentionBlock((3, 3), 9, heads=3, width=256)], ib.Projection(ib.Euclidean(3, 3)))
    return [ib.FAA(free, ib.Projection(flow))]


def seconds(stack: Stack, x: Tensor) -> float:
    start = time.perf_counter()
    stack.gradients(x, x, mse)
    return time.perf_counter() - start


def sweep(models: list[nn.Module], how: str, rows: int, sizes: tuple[int, ...], own: int) -> dict[str, float]:
    """Least time by block size, in that of the own size."""
    x = ib.SO(3).sample(1, rows, AGENTS, generator=torch.Generator().manual_seed(0))
    stacks = {size: Stack(models, how, block=size) for size in sizes}
    least = dict.fromkeys(sizes, float("inf"))
    for _ in range(ROUNDS):
        for size, stack in stacks.items():
            least[size] = min(least[size], seconds(stack, x))
    return {str(size): round(t / least[own], 2) for size, t in least.items()}


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--out", default="results/stack_blocks.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = {
        "looped transformers": sweep(looped(), "looped", 200, (5, 25, 100, 200), LOOPED_ROWS),
        "vmapped transformers with a flow": sweep(with_flow(), "vmapped", 32, (1, 4, 16, 32), FLOW_ROWS),
    }
    print(json.dumps(found, indent=1))
    record = {**head("python benchmarks/stack_blocks.py"), "time_by_rows": found}
    Path(args.out).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
