"""A run store as one page that opens from disk: `inbounds report RUN_DIR`."""

from .page import write

__all__ = ["write"]
