import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Two workers of one thread each; results do not depend on the machine's cores."""
    torch.set_num_threads(1)
