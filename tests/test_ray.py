"""The same table from a real Ray cluster on this machine, with a worker killed in the middle."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from moments import HANG, moment
from ports import free_port
from stores import ARGS, table

RAY = str(Path(sys.executable).with_name("ray"))


@pytest.fixture
def cluster(tmp_path):
    """A head node with two CPUs, ended alone; its files, and what Ray writes into a home folder, stay in the test's own.

    One of its workers is killed when it is about to put its third checkpoint in place.
    """
    port = free_port()
    lost = moment("os.rename", "checkpoint.safetensors", 3, "kill-one", once=tmp_path / "once")
    env = {**lost, "HOME": str(tmp_path), "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    env["RAY_worker_niceness"] = "0"  # Ray's workers give way to all others; beside other tests they would wait for minutes
    start = [RAY, "start", "--head", "--block", "--port", str(port), "--num-cpus", "2", "--include-dashboard", "false"]
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as short:  # sockets have short paths only
        log = open(tmp_path / "head.log", "w")
        head = subprocess.Popen([*start, "--temp-dir", short], stdout=log, stderr=log, env=env, start_new_session=True)
        end = time.monotonic() + HANG
        while "Ray runtime started" not in (tmp_path / "head.log").read_text():
            assert head.poll() is None and time.monotonic() < end, (tmp_path / "head.log").read_text()
            time.sleep(0.1)
        yield f"127.0.0.1:{port}", env
        head.terminate()
        head.wait(timeout=HANG)
        log.close()


def test_a_cluster_gives_the_same_table_after_losing_a_worker(cluster, tmp_path, undisturbed):
    address, env = cluster
    start = [sys.executable, "-m", "inbounds.cli", "table", *ARGS, "--checkpoint", "0"]
    start += ["--out", str(tmp_path / "ray"), "--executor", "ray", "--address", address]
    done = subprocess.run(start, capture_output=True, text=True, env={**env, "MOMENT": ""}, timeout=HANG)
    assert done.returncode == 0, done
    assert (tmp_path / "once").exists() and done.stdout.count("worker lost") == 1
    assert table(tmp_path / "ray") == undisturbed
