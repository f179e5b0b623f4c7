import os

# before torch is imported, and inherited by every command a test starts: two workers of one thread each, whatever the machine
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

import pytest  # noqa: E402
import stores  # noqa: E402
import torch  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

CALM = {"deadline": None, "suppress_health_check": list(HealthCheck)}  # no test depends on how fast the machine is
settings.register_profile("fixed", derandomize=True, max_examples=20, database=None, **CALM)
settings.register_profile("nightly", max_examples=300, print_blob=True, **CALM)
settings.load_profile("fixed")


@pytest.fixture(autouse=True)
def one_thread():
    """Results do not depend on the machine's cores, also after a test that asked for more threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def harmless(tmp_path_factory):
    """A finished store that nobody harmed, made once for all workers of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    return stores.made_once((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "harmless")


@pytest.fixture(scope="session")
def undisturbed(harmless):
    """Its table."""
    return stores.table(harmless)
