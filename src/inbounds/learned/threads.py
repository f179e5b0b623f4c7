"""Small work on one thread: threads that wait for each other over tiny matrices cost ten times what they save."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

SMALL = 2_000_000  # numbers; above it the factorisations are large enough to share


@contextmanager
def few_threads(x: Tensor) -> Iterator[None]:
    """One thread of torch for the work on x, if it is small. The number of threads is as before in the end."""
    before = torch.get_num_threads()
    if x.numel() <= SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
