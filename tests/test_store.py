"""Runs on disk: kill -9 costs seconds, never a result; two processes share a store; a refusing disk is a clear error."""

import csv
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from inbounds.train.store import Busy, Run, Store, StoreError, key, publish, publish_tensors, read_tensors
from inbounds.train.work import work

ARGS = ["--datasets", "sphere", "--models", "regular,proj-iaa", "--depths", "2,3", "--seeds", "1", "--epochs", "40"]


def command(out, *extra):
    return [sys.executable, "-m", "inbounds.cli", "table", *ARGS, "--out", str(out), "--checkpoint", "0.05", *extra]


def table(out):
    """The cells without what time and chance decide."""
    with open(out / "table.csv") as f:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(f)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    subprocess.run(command(out), check=True, capture_output=True)
    return table(out)


def test_killed_at_random_moments_it_resumes_to_the_same_table(tmp_path, undisturbed):
    moments = random.Random(0)
    for _ in range(4):
        before = _newest(tmp_path)
        process = subprocess.Popen(command(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        _wait_for(lambda: _newest(tmp_path) > before)  # noqa: B023 (called at once)
        time.sleep(moments.uniform(0, 0.3))
        os.killpg(process.pid, signal.SIGKILL)  # the command and its workers, without warning
        process.communicate()
    subprocess.run(command(tmp_path), check=True, capture_output=True)
    assert table(tmp_path) == undisturbed
    results = [json.loads(p.read_text()) for p in tmp_path.glob("runs/*/result.json")]
    assert any(r["resumed_from"] > 0 for r in results)  # a kill cost seconds, not the run
    assert not list(tmp_path.glob("runs/*/*.tmp"))


def _newest(folder):
    """When a run last published something of its own."""
    times = [0.0]
    for path in folder.glob("runs/*/*.*"):
        with suppress(FileNotFoundError):
            times.append(path.stat().st_mtime)
    return max(times)


def _wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened for a minute"
        time.sleep(0.02)


def test_a_killed_worker_is_replaced(tmp_path, undisturbed):
    process = subprocess.Popen(command(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    _wait_for(lambda: list(tmp_path.glob("runs/*/checkpoint.safetensors")))
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    workers = [p for p in children if "spawn_main" in Path(f"/proc/{p}/cmdline").read_text()]
    os.kill(int(workers[0]), signal.SIGKILL)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert "worker lost" in out
    assert table(tmp_path) == undisturbed


def test_two_processes_share_a_store(tmp_path, undisturbed):
    both = [subprocess.Popen(command(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    for process in both:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0, out
    assert table(tmp_path) == undisturbed


def test_ctrl_c_is_clean_and_loses_nothing(tmp_path, undisturbed):
    def listening():  # a shell's background jobs inherit that SIGINT is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    process = subprocess.Popen(
        command(tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=listening,
    )
    _wait_for(lambda: list(tmp_path.glob("runs/*/checkpoint.safetensors")))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Nothing finished is lost" in err
    assert "Traceback" not in err
    subprocess.run(command(tmp_path), check=True, capture_output=True)
    assert table(tmp_path) == undisturbed


def test_a_disk_that_refuses_is_a_clear_error_and_loses_nothing(tmp_path, undisturbed):
    """The kernel refuses files beyond 3,000 bytes, as a full disk would; the data are written before."""
    subprocess.run(command(tmp_path, "--models", "regular", "--epochs", "1"), check=True, capture_output=True)
    finished = sorted(tmp_path.glob("runs/*/result.json"))

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))

    refused = subprocess.run(command(tmp_path), capture_output=True, text=True, preexec_fn=small_files)
    assert refused.returncode == 1
    assert "Cannot write" in refused.stderr
    assert "finished runs are kept" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert all(path.exists() for path in finished)
    subprocess.run(command(tmp_path), check=True, capture_output=True)
    assert table(tmp_path) == undisturbed


def test_a_folder_that_cannot_be_written_fails_at_once(tmp_path):
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file" / "store", "/sys/store"):
        refused = subprocess.run(command(folder), capture_output=True, text=True)
        assert refused.returncode == 1
        assert "choose another folder with --out" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_the_paper_preset_survives_a_kill(tmp_path):
    """It would take hours; here it starts, is killed, and goes on from where it was."""
    start = [sys.executable, "-m", "inbounds.cli", "table", "--preset", "paper", "--yes", "--datasets", "sphere", "--models"]
    epochs = []
    for _ in range(2):
        process = subprocess.Popen(
            [*start, "regular", "--depths", "4", "--out", str(tmp_path), "--checkpoint", "0.2", "--shipped", str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        _wait_for(lambda: (epochs or [0])[-1] < _epoch(tmp_path))
        epochs.append(_epoch(tmp_path))
        os.killpg(process.pid, signal.SIGKILL)
        assert "Estimated time" in process.communicate()[0]
    assert 0 < epochs[0] < epochs[1] < 10_000
    header = read_tensors(next(tmp_path.glob("runs/*/checkpoint.safetensors")))[1]
    assert header["resumed_from"] >= epochs[0]


def _epoch(folder):
    """How far the only run is."""
    for path in folder.glob("runs/*/checkpoint.safetensors"):
        return int(read_tensors(path)[0]["epoch"])
    return 0


# --- the parts -------------------------------------------------------------------------------------------
def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a" / "b.json"
    publish(path, b"old")
    publish(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in path.parent.iterdir()] == ["b.json"]
    with pytest.raises(StoreError, match="Part of that path is a file"):
        publish(path / "c", b"x")


def test_tensors_and_header_come_back(tmp_path):
    tensors = {"x": torch.arange(6.0).reshape(2, 3).mT, "n": torch.tensor(5), "b": torch.tensor([True, False])}
    publish_tensors(tmp_path / "t.safetensors", tensors, {"epoch": 7})
    back, header = read_tensors(tmp_path / "t.safetensors")
    assert header == {"epoch": 7}
    assert all(torch.equal(back[k], t) and back[k].dtype == t.dtype for k, t in tensors.items())


def test_the_name_of_a_run_is_its_content():
    assert key({"a": 1, "b": [2, 3]}) == key({"b": [2, 3], "a": 1})
    assert key({"a": 1}) != key({"a": 2})


def test_one_process_at_a_time(tmp_path):
    run = Run(tmp_path / "r")
    with run.lock():
        with pytest.raises(Busy), run.lock():
            pass
    with run.lock():
        pass


class Count:
    """A job that counts; `stop` raises in the middle, as a kill would."""

    advanced = 0

    def __init__(self, epochs, stop=None):
        self.epoch, self.epochs, self.stop = 0, epochs, stop

    @property
    def done(self):
        return self.epoch >= self.epochs

    def advance(self):
        if self.epoch == self.stop:
            raise KeyboardInterrupt
        self.epoch += 1
        Count.advanced += 1
        return {"epoch": self.epoch}

    def state(self):
        return {"epoch": torch.tensor(self.epoch)}

    def restore(self, state):
        self.epoch = int(state["epoch"])

    def finish(self):
        return {"value": self.epoch}, {"w": torch.zeros(1)}


def test_lines_after_the_checkpoint_are_not_counted_twice(tmp_path):
    store, config = Store(tmp_path, pause=1e9), {"job": "count"}
    run = store.run(config)
    with pytest.raises(KeyboardInterrupt):
        work(config, store, lambda c, s: Count(9, stop=4))
    assert run.checkpoint() is None
    store.pause, Count.advanced = -1, 0  # a checkpoint after every epoch
    with pytest.raises(KeyboardInterrupt):
        work(config, store, lambda c, s: Count(9, stop=6))
    work(config, store, lambda c, s: Count(9))
    lines = [json.loads(line)["epoch"] for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert lines == list(range(1, 10))
    assert Count.advanced == 9  # nothing was done twice
    assert run.result["value"] == 9
    assert not (run.folder / "checkpoint.safetensors").exists()
    work(config, store, lambda c, s: pytest.fail("a finished run is not run again"))
