"""Where units run: processes on this machine, or a Ray cluster. One scheduler for both."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Protocol as Interface

from .store import Busy, Store, key
from .work import Open, Unit, work

MAX_DEATHS = 3  # of workers on one unit, before it is given up


@dataclass(frozen=True)
class Event:
    """kind: progress, done, busy (another process has it), failed (an error of ours), died (the worker vanished)."""

    kind: str
    key: str
    data: dict = field(default_factory=dict)


class Executor(Interface):
    workers: int

    def submit(self, unit: Unit) -> None: ...
    def events(self, timeout: float) -> list[Event]: ...
    def running(self) -> int: ...
    def close(self) -> None: ...


class WorkFailed(RuntimeError):
    """A unit raised; the message carries its title and error."""


def execute(units: Sequence[Unit], store: Store, executor: Executor, watch=lambda event, unit: None) -> None:
    """Run every unit that is not done, those it needs first. Another process on the same store shares the work."""
    waiting = {key(u.config): u for u in units if not store.run(u.config).done}
    by_key, deaths, flying, later = dict(waiting), dict.fromkeys(waiting, 0), set(), {}
    try:
        while waiting or flying:
            for k, unit in list(waiting.items()):
                if executor.running() >= executor.workers:
                    break
                if later.get(k, 0) > time.monotonic():
                    continue
                if all(store.run(c).done for c in unit.needs):
                    del waiting[k]
                    flying.add(k)
                    executor.submit(unit)
            for event in executor.events(0.2):
                watch(event, by_key[event.key])
                if event.kind == "progress":
                    continue
                flying.discard(event.key)
                if event.kind == "failed":
                    raise WorkFailed(f"{by_key[event.key].title}: {event.data['error']}")
                if event.kind in ("busy", "died"):
                    _again(event, by_key, waiting, deaths, later)
    finally:
        executor.close()


def _again(event: Event, by_key: dict, waiting: dict, deaths: dict, later: dict) -> None:
    waiting[event.key] = by_key[event.key]
    if event.kind == "busy":
        later[event.key] = time.monotonic() + 1.0
        return
    deaths[event.key] += 1
    if deaths[event.key] >= MAX_DEATHS:
        raise WorkFailed(
            f"{by_key[event.key].title}: its worker was killed {MAX_DEATHS} times (out of memory?). "
            "Finished runs are kept; run the same command to go on."
        )


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
        process, pipe = self.idle.pop() if self.idle else self._spawn()
        pipe.send(unit.config)
        self.busy[pipe] = (process, key(unit.config))

    def _spawn(self) -> tuple:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(theirs, self.store, self.open_job), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def events(self, timeout: float) -> list[Event]:
        seen = []
        for pipe in wait(list(self.busy), timeout):
            process, k = self.busy[pipe]
            try:
                kind, data = pipe.recv()
            except (EOFError, ConnectionResetError):
                kind, data = "died", {}
            seen.append(Event(kind, k, data))
            if kind != "progress":
                del self.busy[pipe]
                if kind != "died":
                    self.idle.append((process, pipe))
        return seen

    def close(self) -> None:
        for process, pipe in [*self.idle, *((p, c) for c, (p, _) in self.busy.items())]:
            pipe.close()
            process.terminate()
            process.join()
        self.idle, self.busy = [], {}


def _serve(pipe: Connection, store: Store, open_job: Open) -> None:
    """A worker: configs in, events out. The parent's end closing, or breaking, means the end."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
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
    except Exception as error:
        return "failed", {"error": f"{type(error).__name__}: {error}"}
    return "done", {}


# --- a Ray cluster -----------------------------------------------------------------------------------------
class Ray:
    """One Ray task per unit, one CPU each. The store must be a folder that every node sees."""

    def __init__(self, store: Store, open_job: Open, address: str | None = None):
        import ray
        from ray.util.queue import Queue

        self.ray, self.store, self.open_job = ray, Store(store.folder.resolve()), open_job
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
        seen = [Event("progress", k, data) for k, data in self._progress() if k in self.busy.values()]
        for ref in self.ray.wait(list(self.busy), timeout=timeout)[0] if self.busy else []:
            k = self.busy.pop(ref)
            try:
                seen.append(Event(self.ray.get(ref)[0], k, self.ray.get(ref)[1]))
            except self.ray.exceptions.RayError:
                seen.append(Event("died", k))
        return seen

    def _progress(self) -> list:
        from ray.util.queue import Empty

        try:
            return self.queue.get_nowait_batch(self.queue.qsize())
        except Empty:
            return []

    def close(self) -> None:
        for ref in self.busy:
            self.ray.cancel(ref, force=True)
        if self.ours:
            self.ray.shutdown()


def _ray_task(config: dict, store: Store, open_job: Open, queue) -> tuple[str, dict]:
    if not store.folder.is_dir():
        return "failed", {"error": f"This node does not see {store.folder}. Give --out a folder shared by all nodes."}
    return _attempt(config, store, open_job, lambda data: queue.put_nowait((key(config), data)))
