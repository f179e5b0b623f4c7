"""Dijkstra's algorithm, by scipy."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..extras import needed_for


def dijkstra(graph: Any, **options: Any) -> Any:
    """scipy.sparse.csgraph.dijkstra of a dense tensor or a sparse array, with a message that says what is missing."""
    with needed_for("Searching a graph of paths"):
        from scipy.sparse.csgraph import dijkstra
    return dijkstra(graph.numpy() if isinstance(graph, Tensor) else graph, **options)
