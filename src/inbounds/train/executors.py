"""Where units run: processes on this machine, a Ray cluster, or this process itself. One scheduler for all."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Protocol as Interface
from typing import cast

from ..extras import needed_for
from .files import StoreError
from .lock import Busy
from .store import Store, key
from .work import Open, Unit, work

MAX_DEATHS = 3  # of workers on one unit, before it is given up


@dataclass(frozen=True)
class Event:
    """kind: progress, done, busy (another process has it), failed (an error of ours), died (the worker vanished)."""

    kind: str
    key: str
    data: dict = field(default_factory=dict)


class Executor(Interface):
    """Who does units of work, and tells what happens to them."""

    workers: int

    def submit(self, unit: Unit) -> None:
        """Begin a unit, or queue it."""
        ...

    def events(self, timeout: float) -> list[Event]:
        """What has happened since the last call; waits so many seconds at most."""
        ...

    def running(self) -> int:
        """How many units are begun and not done."""
        ...

    def close(self) -> None:
        """Stop everything that is running. What is in the store stays there."""
        ...


class WorkFailed(RuntimeError):
    """A unit raised; the message carries its title and error."""


def execute(units: Sequence[Unit], store: Store, executor: Executor, watch=lambda event, unit: None) -> None:
    """Run every unit that is not done, those it needs first. Another process on the same store shares the work.

    An error in a unit does not stop the others; it is raised at the end. An error of the disk stops all at once.
    """
    try:
        _Schedule(units, store, executor, watch).run()
    finally:
        executor.close()


class _Schedule:
    def __init__(self, units: Sequence[Unit], store: Store, executor: Executor, watch):
        self.store, self.executor, self.watch = store, executor, watch
        self.units = {key(u.config): u for u in units}
        self.waiting = self._missing()
        self.flying: set[str] = set()
        self.failed: dict[str, str] = {}
        self.needs = {k: [store.run(c) for c in u.needs] for k, u in self.waiting.items()}
        self.deaths = dict.fromkeys(self.units, 0)
        self.not_before: dict[str, float] = {}

    def _missing(self) -> dict[str, Unit]:
        """What is not done, and of what it needs that whose weights are lost: `work` mends it first."""
        look = [k for k, u in self.units.items() if not self.store.run(u.config).done]
        missing = dict.fromkeys(look, True)
        while look:
            for config in self.units[look.pop()].needs:
                k = key(config)
                if k in self.units and k not in missing:
                    missing[k] = not self.store.run(config).whole
                    look += [k] if missing[k] else []
        return {k: u for k, u in self.units.items() if missing.get(k)}

    def run(self) -> None:
        while self.waiting or self.flying:
            self._submit()
            for event in self.executor.events(0.2):
                self.watch(event, self.units[event.key])
                if event.kind != "progress":
                    self._ended(event)
        if self.failed:
            raise WorkFailed("; ".join(self.failed.values()) + ". Everything else is done and kept.")

    def _submit(self) -> None:
        for k, unit in list(self.waiting.items()):
            if self.failed and any(run.folder.name in self.failed for run in self.needs[k]):
                del self.waiting[k]
                self.failed[k] = f"{unit.title}: not run, it needs one that failed"
            elif self.executor.running() < self.executor.workers and self._ready(k):
                del self.waiting[k]
                self.flying.add(k)
                self.executor.submit(unit)

    def _ready(self, k: str) -> bool:
        if self.not_before.get(k, 0) > time.monotonic():
            return False
        return all(run.folder.name not in self.waiting.keys() | self.flying and run.done for run in self.needs[k])

    def _ended(self, event: Event) -> None:
        k, unit = event.key, self.units[event.key]
        self.flying.discard(k)
        if event.kind == "failed":
            if event.data.get("disk"):
                raise StoreError(event.data["error"])
            self.failed[k] = f"{unit.title}: {event.data['error']}"
        elif event.kind == "busy":
            self.waiting[k] = unit
            self.not_before[k] = time.monotonic() + 1.0
        elif event.kind == "died":
            self.deaths[k] += 1
            if self.deaths[k] < MAX_DEATHS:
                self.waiting[k] = unit
            else:
                self.failed[k] = f"{unit.title}: its worker was killed {MAX_DEATHS} times (out of memory?)"


# --- this machine ------------------------------------------------------------------------------------------
class Local:
    """Processes of one thread each."""

    def __init__(self, store: Store, open_job: Open, workers: int | None = None):
        self.workers = workers or max(1, os.cpu_count() or 1)
        self.store, self.open_job = store, open_job
        self.context = multiprocessing.get_context("spawn")
        self.idle: list[tuple] = []
        self.busy: dict[Connection, tuple] = {}  # pipe -> (process, key)

    def running(self) -> int:
        return len(self.busy)

    def submit(self, unit: Unit) -> None:
        while True:
            process, pipe = self.idle.pop() if self.idle else self._spawn()
            try:
                pipe.send(unit.config)
                break
            except OSError:  # it was killed while idle
                pipe.close()
        self.busy[pipe] = (process, key(unit.config))

    def _spawn(self) -> tuple:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(theirs, self.store, self.open_job), daemon=True)
        with _interrupts_ignored():
            process.start()
        theirs.close()
        return process, ours

    def events(self, timeout: float) -> list[Event]:
        seen = []
        if not self.busy:  # another process has what is left
            time.sleep(timeout)
            return seen
        for pipe in cast(list[Connection], wait(list(self.busy), timeout)):  # on Windows of another class, used alike
            process, k = self.busy[pipe]
            try:
                kind, data = pipe.recv()
            except (EOFError, ConnectionResetError):
                kind, data = "died", {}
            seen.append(Event(kind, k, data))
            if kind != "progress":
                del self.busy[pipe]
                if kind == "died":
                    pipe.close()
                    process.join()
                else:
                    self.idle.append((process, pipe))
        return seen

    def close(self) -> None:
        for process, pipe in [*self.idle, *((p, c) for c, (p, _) in self.busy.items())]:
            pipe.close()
            process.terminate()
            process.join()
        self.idle, self.busy = [], {}


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """A child born in here ignores Ctrl-C from its first instruction: it is the parent's to handle."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers, and only it gets Ctrl-C
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(pipe: Connection, store: Store, open_job: Open) -> None:
    """A worker: configs in, events out. The parent's end closing, or breaking, means the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # already so where it is inherited; not on Windows
    try:
        while True:
            pipe.send(_attempt(pipe.recv(), store, open_job, lambda data: pipe.send(("progress", data))))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _attempt(config: dict, store: Store, open_job: Open, report) -> tuple[str, dict]:
    try:
        work(config, store, open_job, report)
    except Busy:
        return "busy", {}
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise
    except StoreError as error:
        return "failed", {"error": str(error), "disk": True}
    except Exception as error:
        return "failed", {"error": f"{type(error).__name__}: {error}"}
    return "done", {}


# --- this process ------------------------------------------------------------------------------------------
class Here:
    """This process itself, one unit after the other: for a debugger, a profiler, or work shorter than the start of a process.

    Progress is told when a unit ends. There is no worker that could be lost and replaced.
    """

    workers = 1

    def __init__(self, store: Store, open_job: Open):
        self.store, self.open_job = store, open_job
        self.next: list[Unit] = []

    def running(self) -> int:
        return len(self.next)

    def submit(self, unit: Unit) -> None:
        self.next.append(unit)

    def events(self, timeout: float) -> list[Event]:
        if not self.next:  # another process has what is left
            time.sleep(timeout)
            return []
        unit, told = self.next[0], []
        kind, data = _attempt(unit.config, self.store, self.open_job, told.append)
        self.close()
        return [Event(kind, key(unit.config), data) for kind, data in [*(("progress", t) for t in told), (kind, data)]]

    def close(self) -> None:
        self.next = []


# --- a Ray cluster -----------------------------------------------------------------------------------------
class Ray:
    """One Ray task per unit, one CPU each. The store must be a folder that every node sees."""

    def __init__(self, store: Store, open_job: Open, address: str | None = None):
        with needed_for("The executor ray"):
            import ray
            from ray.util.queue import Queue

        shipped = None if store.shipped is None else store.shipped.resolve()
        self.ray, self.store, self.open_job = ray, Store(store.folder.resolve(), store.pause, shipped), open_job
        self.ours = not ray.is_initialized()
        if self.ours:
            ray.init(address=address, log_to_driver=False, include_dashboard=False if address in (None, "local") else None)
        self.workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.queue = Queue(actor_options={"num_cpus": 0})
        self.task = ray.remote(num_cpus=1, max_retries=0)(_ray_task)
        self.busy: dict = {}

    def running(self) -> int:
        return len(self.busy)

    def submit(self, unit: Unit) -> None:
        self.busy[self.task.remote(unit.config, self.store, self.open_job, self.queue)] = key(unit.config)

    def events(self, timeout: float) -> list[Event]:
        seen = [Event("progress", k, data) for k, data in self._progress() if k in self.busy.values() or "note" in data]
        if not self.busy:
            time.sleep(timeout)
            return seen
        for ref in self.ray.wait(list(self.busy), timeout=timeout)[0]:
            seen.append(self._outcome(ref, self.busy.pop(ref)))
        return seen

    def _outcome(self, ref, k: str) -> Event:
        try:
            kind, data = self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as error:  # Python code raised there, e.g. inbounds is not installed
            return Event("failed", k, {"error": f"on a Ray node: {error}"})
        except self.ray.exceptions.RayError:
            return Event("died", k)
        return Event(kind, k, data)

    def _progress(self) -> list:
        """News from the workers; a lost queue costs the display, nothing else."""
        try:
            return self.queue.get_nowait_batch(self.queue.qsize())
        except (self.ray.util.queue.Empty, self.ray.exceptions.RayError):
            return []

    def close(self) -> None:
        for ref in self.busy:
            self.ray.cancel(ref, force=True)
        if self.ours:
            self.ray.shutdown()


def _ray_task(config: dict, store: Store, open_job: Open, queue) -> tuple[str, dict]:
    if not store.folder.is_dir():
        return "failed", {"error": f"This node does not see {store.folder}. Give --out a folder shared by all nodes."}

    def report(data: dict) -> None:
        with suppress(Exception):  # progress never fails a unit
            queue.put_nowait((key(config), data))

    return _attempt(config, store, open_job, report)
