"""One process at a time: locks that the operating system frees when their holder ends, also by kill -9.

Where `fcntl` exists, the lock is flock. Elsewhere (Windows) it is an exclusive transaction of SQLite, which comes with Python and
locks files in the way of its platform; it works on every platform, so the tests run both. The two do not see each other: machines
that share a store must lock it in the same way.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable
from pathlib import Path

try:
    import fcntl
except ModuleNotFoundError:
    fcntl = None


class Busy(Exception):
    """Another process is at work on this run."""


def acquire(path: Path) -> Callable[[], None]:
    """Take the lock on the file `path`, or raise Busy at once. Returns the function that frees it."""
    return _sqlite(path) if fcntl is None else _flock(path)


def _flock(path: Path) -> Callable[[], None]:
    assert fcntl is not None
    file = open(path, "a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if isinstance(error, BlockingIOError):
            raise Busy(str(path)) from None
        raise
    return file.close


def _sqlite(path: Path) -> Callable[[], None]:
    """Nothing is ever written into the database, so the file stays empty and there is no journal."""
    open(path, "a").close()  # errors of the disk come from here, with their number
    database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        database.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        database.close()
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            raise Busy(str(path)) from None
        raise OSError(errno.ENOLCK, str(error)) from error
    return database.close
