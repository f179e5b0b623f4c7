"""The pages: every Python snippet runs, in order, in the scope of its page; every link leads to a file; the site lists all."""

import json
import re
import sys
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
def test_no_words_are_taken_for_a_tag(page):
    """A browser shows nothing of <v, y - x>; &lt;v, y - x&gt; is shown."""
    text = re.sub(r"`[^`]*`|<!--.*?-->", "", FENCE.sub("", (ROOT / page).read_text()), flags=re.S)
    assert re.findall(r"<[a-zA-Z/][^<>]*>", text) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page != "README.md"])
def test_code_fits_the_column_of_the_site(page):
    """Longer lines scroll sideways in a window of 1,280 pixels."""
    code = "".join(code for _, code in FENCE.findall((ROOT / page).read_text()))
    assert [line for line in code.splitlines() if len(line) > 92] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file(page):
    text = FENCE.sub("", (ROOT / page).read_text())
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert ((ROOT / page).parent / target).exists(), target


def test_the_site_lists_every_page():
    import yaml

    def pages(part):
        return (
            [part]
            if isinstance(part, str)
            else [p for v in (part.values() if isinstance(part, dict) else part) for p in pages(v)]
        )

    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert site["strict"] is True
    listed = pages(site["nav"])
    assert sorted(listed) == sorted(p.removeprefix("docs/") for p in PAGES if p.startswith("docs/"))


def test_the_reference_has_every_public_name_and_an_example_of_each():
    from inbounds import data, learned, planning, theory, train

    text = "\n".join((ROOT / p).read_text() for p in PAGES if p.startswith("docs/api/"))
    entries = {m[1]: m[2] for m in re.finditer(r"^::: (\S+)\n(.*?)(?=^:::|^# |\Z)", text, re.M | re.S)}
    for module in (ib, planning, train, data, ib.distributions):
        missing = {f"{module.__name__}.{n}" for n in module.__all__ if n != "kl"} - entries.keys()
        assert not missing, missing
    first = {f"inbounds.learned.{n}" for n in learned.__all__ if not hasattr(ib, n)}
    first |= {
        f"inbounds.theory.{n}" for n, f in vars(theory).items() if getattr(f, "__module__", "") == theory.__name__ and n[0] != "_"
    }
    assert first <= entries.keys(), first - entries.keys()
    for path, words in entries.items():
        name = path.split(".")[-1]
        if path not in ("inbounds.optim", "inbounds.distributions"):  # their names follow, one by one
            assert re.search(rf"\b{name.lower() if name == 'Ray' else name}\b", "".join(c for _, c in FENCE.findall(words))), path


def test_the_measurements_of_the_choosing_page_are_the_stored_ones():
    import json

    titles = {"sphere": "sphere", "disk": "disk", "SO(3)": "so3", "protein": "protein", "flock": "flock"}
    rows = ("proj-faa", "proj-iaa", "exp-faa", "exp-iaa", "wide-faa", "wide-iaa")
    page = (ROOT / "docs" / "choosing.md").read_text()
    for title, name in titles.items():
        cells = {c["row"]: c for c in json.loads((ROOT / "results" / "table" / f"{name}.json").read_text())["cells"]}
        told = [f"{c['mse']:.1e}, {c['seconds']:.0f} s" if (c := cells.get(row)) else "undefined" for row in rows]
        assert f"| {title} | {cells['proj-faa']['steps']:,} | {' | '.join(told)} |" in page


def test_the_page_of_learned_sets_quotes_the_tables_that_are_stored(monkeypatch):
    """`scripts/quote.py` writes them."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    import auto
    import regions

    page = (ROOT / "docs" / "learned.md").read_text()
    for name, made in (("auto", auto.markdown), ("regions", regions.table)):
        rows = json.loads((ROOT / "results" / f"{name}.json").read_text())["rows"]
        assert len(rows) > 30 and made(rows).strip() in page
