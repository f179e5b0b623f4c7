"""What is going on: one live display in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..extras import needed_for
from .executors import Event
from .store import Store, key
from .work import Unit

PLAIN_SECONDS = 15.0  # between two lines where the output is no terminal


class Progress:
    """Units done, what each worker does, its loss and rate, time left. A context manager; call it with every event."""

    def __init__(self, units: Sequence[Unit], store: Store, workers: int, out=None):
        self.costs = {key(u.config): max(u.cost, 1e-3) for u in units}
        self.total, self.workers, self.out = len(units), workers, out or sys.stdout
        self.done = {key(u.config) for u in units if store.run(u.config).done}
        self.before = sum(self.costs[k] for k in self.done)
        self.current: dict[str, dict] = {}
        self.began = self.told = time.monotonic()
        self.live = None

    def __enter__(self) -> Progress:
        if self.out.isatty():
            with needed_for("The live display"):
                from rich.console import Console
                from rich.live import Live

            self.live = Live(console=Console(file=self.out), auto_refresh=False, transient=True)
            self.live.start()
        return self

    def __exit__(self, *error) -> None:
        if self.live:
            self.live.stop()

    def __call__(self, event: Event, unit: Unit) -> None:
        if "note" in event.data:
            self._print(f"{unit.title}: {event.data['note']}")
        elif event.kind == "progress":
            old = self.current.get(event.key, {"since": time.monotonic(), "from": event.data["epoch"]})
            self.current[event.key] = {**old, **event.data, "title": unit.title}
        else:
            self.current.pop(event.key, None)
        if event.kind == "done":
            self.done.add(event.key)
        if event.kind == "died":
            self._print(f"worker lost on {unit.title}; it goes on from its checkpoint")
        if event.kind == "failed":
            self._print(f"failed: {unit.title}: {event.data['error']}")
        self._show(event)

    def _show(self, event: Event) -> None:
        if self.live:
            self.live.update("\n".join([self.headline(), *map(_line, self.current.values())]), refresh=True)
        elif event.kind == "done" or time.monotonic() - self.told > PLAIN_SECONDS:
            self.told = time.monotonic()
            self._print("; ".join([self.headline(), *map(_line, self.current.values())]))

    def _print(self, text: str) -> None:
        if self.live:
            self.live.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self.out, flush=True)

    def headline(self) -> str:
        """How much is done, since when, how long it will take."""
        return f"{len(self.done)}/{self.total} done, {time_text(time.monotonic() - self.began)} so far, {self.left()}"

    def left(self) -> str:
        """The time that is left, from the share of the guessed work that is done, and how long it took."""
        finished = sum(self.costs[k] for k in self.done) + sum(
            self.costs[k] * c["epoch"] / max(c["epochs"], 1) for k, c in self.current.items()
        )
        earlier = sum(self.costs[k] * c["from"] / max(c["epochs"], 1) for k, c in self.current.items())
        whole = sum(self.costs.values())
        worked, rest = finished - self.before - earlier, whole - finished
        if worked <= 1e-9 * whole:  # nothing yet: the rest of a difference of sums is rounding
            return f"about {time_text(rest / self.workers)} left"
        return f"about {time_text((time.monotonic() - self.began) * rest / worked)} left"


def _line(c: dict) -> str:
    rate = (c["epoch"] - c["from"]) / max(time.monotonic() - c["since"], 1e-3)
    line = c.get("line") or {}
    val = line.get("val")
    best = min(val, default=None) if isinstance(val, list) else val
    return (
        f"{c['title']} {c['epoch']}/{c['epochs']}"
        + (f" loss {best:.3g}" if best is not None else "")
        + (f" {rate:.2g} epochs/s" if rate else "")
    )


def time_text(seconds: float) -> str:
    """A time span in the unit in which people say it."""
    seconds = max(0.0, seconds)  # in this order: an estimate that rounds below 0 is 0, not -0
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 72 * 3600 else f"{seconds / 86400:.0f} days"


def relative(path: Path) -> str:
    """A path as seen from the working directory, where it lies below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
