"""The same table from a real Ray cluster on this machine, with a worker killed in the middle."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from test_store import ARGS, table

RAY = str(Path(sys.executable).with_name("ray"))


@pytest.fixture
def cluster(tmp_path):
    """A head node with two CPUs, ended alone; its files, and what Ray writes into a home folder, stay in the test's own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "HOME": str(tmp_path), "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    start = [RAY, "start", "--head", "--block", "--port", str(port), "--num-cpus", "2", "--include-dashboard", "false"]
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as short:  # sockets have short paths only
        log = open(tmp_path / "head.log", "w")
        head = subprocess.Popen([*start, "--temp-dir", short], stdout=log, stderr=log, env=env, start_new_session=True)
        end = time.monotonic() + 60
        while "Ray runtime started" not in (tmp_path / "head.log").read_text():
            assert head.poll() is None and time.monotonic() < end, (tmp_path / "head.log").read_text()
            time.sleep(0.1)
        yield f"127.0.0.1:{port}", env
        head.terminate()
        head.wait(timeout=60)
        log.close()


def tasks(home: Path) -> list[int]:
    """Process numbers of this cluster's workers that run one of our units."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and (folder / "cmdline").read_bytes().startswith(b"ray::_ray_task"):
                if f"HOME={home}\0".encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        except OSError:
            continue  # it ended while we looked
    return found


def test_a_cluster_gives_the_same_table_after_losing_a_worker(cluster, tmp_path):
    address, env = cluster
    local = [sys.executable, "-m", "inbounds.cli", "table", *ARGS, "--checkpoint", "0.05"]
    subprocess.run([*local, "--out", str(tmp_path / "local")], check=True, capture_output=True)
    ray = [*local, "--out", str(tmp_path / "ray"), "--executor", "ray", "--address", address]
    process = subprocess.Popen(ray, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    end = time.monotonic() + 120
    while not (list(tmp_path.glob("ray/runs/*/checkpoint.safetensors")) and tasks(tmp_path)):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, "no task of ours on the cluster after two minutes"
        time.sleep(0.02)
    os.kill(tasks(tmp_path)[0], signal.SIGKILL)
    out, _ = process.communicate(timeout=180)
    assert process.returncode == 0, out
    assert "worker lost" in out
    assert table(tmp_path / "ray") == table(tmp_path / "local")
