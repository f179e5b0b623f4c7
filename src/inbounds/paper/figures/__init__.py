"""`inbounds figure NAME`: the figures of the paper, a file each."""

from __future__ import annotations

import argparse
from importlib import import_module

FIGURES = {"heat-kernel": "heat_kernel", "planning": "planning", "projection": "projection"}


def run(args: argparse.Namespace) -> int:
    """Draw the figure of that name. The file is loaded when it is asked for: each needs other packages."""
    return import_module(f".{FIGURES[args.name]}", __name__).run(args)
