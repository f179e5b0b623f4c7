"""The paper's experiments: names, presets, published numbers, table. Nothing outside this folder knows them."""

from .results import TrainedCell, open_cell, open_cells

__all__ = ["TrainedCell", "open_cell", "open_cells"]
