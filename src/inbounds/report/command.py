"""`inbounds report`: a run store as one page."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from ..records import writable
from ..train.files import StoreError
from ..train.progress import relative
from .page import write


def run(args) -> int:
    """Write the report, print its path, and return the exit code."""
    torch.set_num_threads(1)
    try:
        if args.out is not None:
            writable(page_name(args.out).parent)
        file = write(args.folder, args.out)
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        print(f"inbounds report: {error}", file=sys.stderr)
        return 2
    except (OSError, StoreError) as error:
        print(f"inbounds report: {error}", file=sys.stderr)
        return 1
    size = file.stat().st_size / 2**20
    print(f"Written: {relative(file.resolve())} ({size:.1f} MiB), pictures in {relative(file.with_suffix('').resolve())}/")
    return 0


def page_name(out: str) -> Path:
    """Raises ValueError for a name that is not a page's."""
    if Path(out).suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out asked for a file that ends with .html, got {out!r}. Write --out {Path(out) / 'report.html'}")
    return Path(out)
