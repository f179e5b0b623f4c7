"""`inbounds figure NAME`."""

from __future__ import annotations

from importlib import import_module

FIGURES = {"heat-kernel": "heat_kernel", "planning": "planning", "projection": "projection"}


def run(args) -> int:
    return import_module(f".{FIGURES[args.name]}", __package__).run(args)
