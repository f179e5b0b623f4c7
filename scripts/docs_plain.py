"""Docstrings are plain text with code in backticks: stars, bars and angles of formulas are not Markdown."""

from __future__ import annotations

import re

import griffe

CODE = re.compile(r"(`[^`]*`)")
SIGNS = re.compile(r"([*_|\[\]])")


def plain(text: str) -> str:
    """The text with every sign of Markdown outside of backticks as itself."""
    return "".join(part if part.startswith("`") else SIGNS.sub(r"\\\1", part.replace("<", "&lt;")) for part in CODE.split(text))


class Plain(griffe.Extension):
    """Makes all docstrings plain."""

    def on_instance(self, *, obj: griffe.Object, **kwargs) -> None:
        if obj.docstring:
            obj.docstring.value = plain(obj.docstring.value)
