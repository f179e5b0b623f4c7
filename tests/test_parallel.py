"""Two processes of a real gloo group, started once for all tests of this file."""

import gloo
import pytest
import torch
import torch.multiprocessing as mp
from ports import free_port


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gloo")
    mp.spawn(gloo.process, args=(free_port(), str(folder)), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def test_two_gloo_processes_give_the_gradient_of_the_whole_batch(seen):
    net = gloo.poses()
    net(gloo.batch()).square().mean().backward()
    for process in seen:
        for got, p in zip(process["gradient"], net.parameters(), strict=True):
            torch.testing.assert_close(got, p.grad)


def test_data_parallel_models_carry_the_note_of_their_set(seen):
    for process in seen:
        same, other = process["warned"]
        assert same == [] and len(other) == 1 and "another set at module.step.M " in other[0]
