"""The contract as a function: `check_set(M)` raises an error that names the law a set breaks."""

from .case import Case, LawError
from .check import check_set, overrides_hooks_only

__all__ = ["Case", "LawError", "check_set", "overrides_hooks_only"]
