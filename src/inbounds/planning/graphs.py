"""Dijkstra's algorithm, by scipy."""

from __future__ import annotations

from typing import Any


def dijkstra(graph: Any, **options: Any) -> Any:
    """scipy.sparse.csgraph.dijkstra, with a message that says what is missing."""
    try:
        from scipy.sparse.csgraph import dijkstra
    except ImportError as error:
        raise ImportError(
            "Searching a graph of paths needs scipy, which comes with the extra lab: pip install 'inbounds[lab]'", name=error.name
        ) from None
    return dijkstra(graph, **options)
