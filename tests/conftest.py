import os

# before torch is imported, and inherited by every command a test starts: two workers of one thread each, whatever the machine
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

import pytest  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    """Results do not depend on the machine's cores, also after a test that asked for more threads."""
    torch.set_num_threads(1)
