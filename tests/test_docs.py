"""The pages: every Python snippet runs, in order, in the scope of its page; every link leads somewhere; the site lists every page."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import inbounds as ib

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md"))]
OTHER = {"", "bibtex", "text", "yaml"}  # fences that are no Python: commands, pictures of letters
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.M | re.S)

# what a page takes as given, because its text describes it
GIVEN = {
    "CONTRIBUTING.md": "import math; from inbounds import ConstraintSet",
    "docs/equations.md": "hand, goal, x = lambda q: q.cos().cumsum(0)[-1:], torch.tensor([0.5]), torch.randn(4, 2)",
}


def snippets(text):
    """The Python fences of a page."""
    return [code for language, code in FENCE.findall(text) if language == "python"]


@pytest.mark.parametrize("page", PAGES)
def test_the_snippets_of_a_page_run(page, tmp_path, monkeypatch):
    text = (ROOT / page).read_text()
    assert {language for language, _ in FENCE.findall(text)} <= OTHER | {"python"}, "a fence that nothing runs"
    assert text.count("```") == 2 * len(FENCE.findall(text)), "a fence that is not closed, or not at the start of a line"
    for folder in ("results", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    scope = {"torch": torch, "nn": nn, "ib": ib, "__name__": page}
    torch.manual_seed(0)
    exec(GIVEN.get(page, ""), scope)
    for code in snippets(text):
        line = text[: text.index(code)].count("\n")
        exec(compile("\n" * line + code, str(ROOT / page), "exec"), scope)  # an error names the page and the line


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file(page):
    text = FENCE.sub("", (ROOT / page).read_text())
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert ((ROOT / page).parent / target).exists(), target
