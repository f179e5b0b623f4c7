"""Runs on disk: kill -9 costs seconds, never a result; two processes share a store; a refusing disk is a clear error."""

import json
import resource
import signal
import subprocess
import sys

import pytest
import torch
from moments import HANG, moment
from stores import ARGS, command, table

from inbounds.cli import main
from inbounds.train import lock
from inbounds.train.files import StoreError, publish, publish_tensors, read_tensors
from inbounds.train.lock import Busy
from inbounds.train.store import Run, Store, key
from inbounds.train.work import work

SLOWLY = ("--checkpoint", "0")  # a checkpoint after every epoch
MOMENTS = [
    ("os.rename", "checkpoint.safetensors", 3),
    ("os.rename", "result.json", 1),
    ("open", "checkpoint.safetensors", 1),
    ("open", "metrics.jsonl", 2),
    ("os.rename", "weights.safetensors", 1),
    ("os.remove", "checkpoint.safetensors", 1),
]


def killed(out, when, **more):
    """kill -9 of the command and its worker at this moment."""
    done = subprocess.run(command(out, *SLOWLY), capture_output=True, env=moment(*when, **more), start_new_session=True)
    assert done.returncode == -signal.SIGKILL, (when, done)
    if when[0] == "os.rename":
        assert list(out.glob("runs/*/.*.tmp"))  # written, not yet in place


def interrupted(out, *when):
    """Ctrl-C in a terminal, which goes to the worker, too."""

    def listening():  # a shell's background jobs inherit that SIGINT is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    pressed = moment(*when, "interrupt")
    done = subprocess.run(
        command(out, *SLOWLY), capture_output=True, text=True, env=pressed, start_new_session=True, preexec_fn=listening
    )
    assert done.returncode == 130
    assert "Nothing finished is lost" in done.stderr
    assert "Traceback" not in done.stderr


def refused(out):
    """A kernel that refuses files beyond 3,000 bytes, as a full disk would; the data are written before."""

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))

    done = subprocess.run(command(out, "--executor", "here"), capture_output=True, text=True, preexec_fn=small_files)
    assert done.returncode == 1
    assert "Cannot write" in done.stderr
    assert "finished runs are kept" in done.stderr
    assert "Traceback" not in done.stderr


def resumed(out, **more):
    """The command once more, to its end; the epoch at which each run went on."""
    subprocess.run(command(out), check=True, capture_output=True, env=moment(**more))
    assert not list(out.glob("runs/*/.*.tmp"))
    return [json.loads(p.read_text())["resumed_from"] for p in out.glob("runs/*/result.json")]


def test_killed_then_interrupted_then_refused_by_the_disk_it_ends_in_the_same_table(tmp_path, undisturbed):
    """By a worker process, which gives the table that the command's own process gave undisturbed."""
    killed(tmp_path, ("os.rename", "checkpoint.safetensors", 3))
    interrupted(tmp_path, "os.rename", "result.json", 2)
    finished = {path: path.read_bytes() for path in tmp_path.glob("runs/*/result.json")}
    assert len(finished) == 1
    refused(tmp_path)
    assert max(resumed(tmp_path)) > 0  # a kill cost an epoch, not the run
    assert table(tmp_path) == undisturbed
    assert all(path.read_bytes() == was for path, was in finished.items())


@pytest.mark.nightly
def test_killed_at_any_moment_of_writing_it_resumes_to_the_same_table(tmp_path, undisturbed):
    for when in MOMENTS:
        killed(tmp_path, when)
    assert max(resumed(tmp_path)) > 0
    assert table(tmp_path) == undisturbed


@pytest.mark.nightly
def test_a_killed_worker_is_replaced(tmp_path, undisturbed):
    once = moment("os.rename", "checkpoint.safetensors", 3, "kill-one", once=tmp_path / "once")
    done = subprocess.run(command(tmp_path / "store", *SLOWLY), capture_output=True, text=True, env=once)
    assert done.returncode == 0, done
    assert (tmp_path / "once").exists() and done.stdout.count("worker lost") == 1
    assert table(tmp_path / "store") == undisturbed


def test_two_processes_share_a_store(tmp_path, undisturbed):
    args = command(tmp_path, "--executor", "here")
    both = [subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    for process in both:
        out, _ = process.communicate(timeout=HANG)
        assert process.returncode == 0, out
    assert table(tmp_path) == undisturbed


def test_a_folder_that_cannot_be_written_fails_at_once(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file" / "store", "/sys/store"):
        assert main(["table", *ARGS, "--out", str(folder)]) == 1
        assert "choose another folder with --out" in capsys.readouterr().err


@pytest.mark.nightly
def test_the_paper_preset_survives_a_kill(tmp_path):
    """It would take hours; here it starts, is killed, and goes on from where it was."""
    start = [sys.executable, "-m", "inbounds.cli", "table", "--preset", "paper", "--yes", "--datasets", "sphere", "--models"]
    start += ["regular", "--depths", "4", "--out", str(tmp_path), "--shipped", str(tmp_path), *SLOWLY]
    for epochs, resumed_from in ((3, 0), (6, 3)):
        env = moment("os.rename", "checkpoint.safetensors", 4)
        killed = subprocess.run(start, capture_output=True, text=True, env=env, start_new_session=True)
        assert killed.returncode == -signal.SIGKILL and "Estimated time" in killed.stdout
        tensors, header = read_tensors(next(tmp_path.glob("runs/*/checkpoint.safetensors")))
        assert (int(tensors["epoch"]), header["resumed_from"]) == (epochs, resumed_from)


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


@pytest.fixture(params=["", "fcntl"], ids=["flock", "without fcntl"])
def absent(request, monkeypatch):
    """Both kinds of lock, on this machine: with fcntl, and as if there were none."""
    if request.param:
        monkeypatch.setattr(lock, "fcntl", None)
    return request.param


def test_one_process_at_a_time(tmp_path, absent):
    run = Run(tmp_path / "r")
    for _ in range(2):
        with run.lock():
            with pytest.raises(Busy), run.lock():
                pass
    assert (run.folder / "lock").read_bytes() == b"" and [p.name for p in run.folder.iterdir()] == ["lock"]


def test_a_lock_ends_with_its_holder_even_by_kill_9(tmp_path, absent):
    hold = "import sys; from inbounds.train.lock import acquire; from pathlib import Path; free = acquire(Path(sys.argv[1])); "
    hold += "print('fcntl' if sys.modules['fcntl'] else 'no fcntl', flush=True); sys.stdin.read()"
    path, env = tmp_path / "lock", moment(absent=absent)
    holder = subprocess.Popen([sys.executable, "-c", hold, path], stdin=-1, stdout=-1, text=True, env=env)
    assert holder.stdout.readline() == ("no fcntl\n" if absent else "fcntl\n")  # it has the lock
    with pytest.raises(Busy):
        lock.acquire(path)
    holder.kill()
    holder.communicate()
    lock.acquire(path)()
    lock.acquire(path)()


def test_a_lock_that_cannot_be_is_an_error_of_the_disk(tmp_path, absent):
    (tmp_path / "lock").mkdir()
    with pytest.raises(StoreError, match=r"(?i)choose another folder"), Run(tmp_path).lock():
        pass


@pytest.mark.nightly  # both kinds of lock, and kills, are tested above
def test_without_fcntl_as_on_windows_it_trains_and_survives_a_kill(tmp_path, undisturbed):
    """In the command and its workers there is no module fcntl."""
    killed(tmp_path, MOMENTS[0], absent="fcntl")
    assert max(resumed(tmp_path, absent="fcntl")) > 0
    assert table(tmp_path) == undisturbed


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
