"""Worlds by name and worlds in JSON files."""

from __future__ import annotations

import json
from pathlib import Path as File
from typing import Any

import torch

from .base import World
from .box import BoxWorld
from .sphere import SphereWorld

NAMED: dict[str, dict[str, Any]] = {
    "rect": {"box": [[0, 0], [4, 3]], "discs": [[1, 1, 0.5], [2.2, 1.9, 0.55], [3.1, 0.9, 0.45]]},
    "rect-overlap": {"box": [[0, 0], [4, 3]], "discs": [[1.2, 1.9, 0.6], [1.7, 1.1, 0.55], [3, 0.45, 0.6]]},
    "sphere": {"sphere": True, "caps": [[1, 0, 0, 0.6]]},
}


def load_world(source: str | File | dict) -> World:
    """A named world (rect, rect-overlap, sphere), a JSON file, or what such a file holds.

    {"box": [[0, 0], [4, 3]], "discs": [[x, y, radius], ...]} or {"sphere": true, "caps": [[x, y, z, angle], ...]}.
    """
    if isinstance(source, dict):
        return _from_json(source, "the world")
    if str(source) in NAMED:
        return _from_json(NAMED[str(source)], str(source))
    file = File(source)
    if not file.is_file():
        raise FileNotFoundError(f"A world asked for {', '.join(NAMED)} or a JSON file, got {source}, which does not exist.")
    try:
        return _from_json(json.loads(file.read_text()), str(file))
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is not JSON: {error}.") from None


def _from_json(w: Any, name: str) -> World:
    example = '{"box": [[0, 0], [4, 3]], "discs": [[1, 1, 0.5]]} or {"sphere": true, "caps": [[1, 0, 0, 0.6]]}'
    if not isinstance(w, dict) or ("box" in w) == ("sphere" in w):
        raise ValueError(f"{name} asked for a world like {example}, got {json.dumps(w)[:80]}.")
    kind, key = ("box", "discs") if "box" in w else ("sphere", "caps")
    unknown = sorted(set(w) - {kind, key})
    if unknown:
        raise ValueError(f'{name}: a {kind} asked for "{kind}" and "{key}" only, got {", ".join(unknown)}. Write {example}.')
    if kind == "sphere" and w["sphere"] is not True:
        raise ValueError(f'{name}: asked for "sphere": true, got {json.dumps(w["sphere"])[:80]}. Write {example}.')
    try:
        rows = torch.tensor(w.get(key, []), dtype=torch.float64)
        box = torch.tensor(w["box"], dtype=torch.float64) if kind == "box" else torch.zeros(2, 3, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ValueError(f"{name}: {kind} and {key} asked for numbers within float64, as in {example}.") from None
    if box.dim() != 2 or len(box) != 2 or not box.numel():
        raise ValueError(f"{name}: box asked for [low, high], two corners like [[0, 0], [4, 3]], got {str(w['box'])[:80]}.")
    size = box.shape[1] + 1
    if rows.numel() and (rows.dim() != 2 or rows.shape[1] != size):
        raise ValueError(f"{name}: {key} asked for rows of {size} numbers, centre and size, got shape {tuple(rows.shape)}.")
    rows = rows.reshape(-1, size)
    try:
        parts = rows[:, :-1], rows[:, -1]
        return BoxWorld(box[0], box[1], *parts) if kind == "box" else SphereWorld(*parts)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
