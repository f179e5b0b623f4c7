"""Nearest points of sets that have no formula: batched, row by row, with a status for every row."""

from .solution import EMPTY, FLAT, NAMES, NOT_CONVERGED, OK, Solution

__all__ = ["EMPTY", "FLAT", "NAMES", "NOT_CONVERGED", "OK", "Solution"]
