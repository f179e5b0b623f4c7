"""`Report`: what a fit found out, as an object that prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any


@dataclass(frozen=True)
class Report:
    """What `fit` found. `print(M.report())` says it in sentences, the fields hold the numbers; None is what nobody knows.

    `noise`, `reach` and `within` are in the units of the samples. With a confidence of 95 %, 95 % of new samples lie
    `within` that distance of the set. `doubts` are reasons not to rely on the set, in sentences. `M.info` has the rest.
    """

    title: str  # the kind of set, in a few words
    method: str
    dimension: int | None = None
    equations: tuple[str, ...] = ()
    inequality: str | None = None
    noise: float | None = None
    reach: float | None = None
    within: float | None = None
    samples: int | None = None
    outliers: int | None = None
    doubts: tuple[str, ...] = ()
    text: str = field(default="", repr=False, compare=False)

    @classmethod
    def of(cls, info: dict[str, Any], method: str, name: str) -> Report:
        """The report of a set that prints as `name`, from what `fit` stored in its `info`."""
        if "text" not in info:
            return cls(name, method, text=f"{name}: made by hand, nothing was fitted.")
        known = {key: info.get(key) for key in ("dimension", "noise", "reach", "samples", "outliers")}
        return cls(
            title=_printable(info.get("title", name)),
            method=method,
            equations=tuple(map(_printable, [*info.get("affine", ()), *info.get("equations", ())])),
            inequality=_printable(info.get("inequality") or "") or None,
            within=((info.get("calibration") or {}).get("within") or {}).get("0.95"),
            doubts=tuple(map(_printable, info.get("doubts", ()))),
            text=_printable(info["text"]),
            **known,
        )

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """The sentences, for notebooks."""
        return f"<pre>{escape(self.text)}</pre>"


def _printable(words: Any) -> str:
    """The words without control characters, which a file may hold."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in str(words))
