"""Packages beyond torch: imported where they are used, and named with the way to install them where they are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

# package: the extra of inbounds that brings it
EXTRAS: dict[str, str] = {
    **dict.fromkeys(("gemmi", "matplotlib", "mpl_toolkits", "numpy", "PIL", "rich", "safetensors", "scipy"), "lab"),
    "clarabel": "problems",
    "pypower": "problems",
    "ray": "ray",
}


@contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Around imports: a missing package of EXTRAS raises an error that says what needs it and how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        told = advice(what, error)
        if told is None:
            raise
        raise ModuleNotFoundError(told, name=error.name) from None


def advice(what: str, error: ModuleNotFoundError) -> str | None:
    """What to install; None if the package is none of EXTRAS."""
    package = (error.name or "").split(".")[0]
    extra = EXTRAS.get(package)
    if extra is None:
        return None
    return (
        f"{what} needs {package}, which is not installed. In a clone of inbounds, write: "
        f"pip install -c constraints.txt '.[{extra}]'. From a package index that has inbounds: pip install 'inbounds[{extra}]'."
    )
