"""The README's snippets run, each alone and in at most five lines."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import inbounds as ib
from inbounds import train

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, re.S)


def test_there_are_nine():
    assert len(SNIPPETS) == 9


@pytest.mark.parametrize("code", SNIPPETS, ids=range(len(SNIPPETS)))
def test_snippet(code):
    assert len(code.splitlines()) <= 5
    torch.manual_seed(0)
    exec(code, {"torch": torch, "nn": nn, "ib": ib, **{n: getattr(train, n) for n in train.__all__}})


def test_the_table_of_sets_is_complete():
    table = TEXT.split("## The sets")[1].split("Every set has")[0]
    listed = set(re.findall(r"^\| `(\w+)\(", table, re.M))
    sets = {n for n in ib.__all__ if isinstance(getattr(ib, n), type) and issubclass(getattr(ib, n), ib.ConstraintSet)}
    assert listed == sets - {"ConstraintSet", "Manifold", "LieGroup"}


def test_the_contributing_page_runs():
    """The set it shows passes the check it recommends."""
    code = re.search(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
    assert code
    import math

    exec(code[1], {"torch": torch, "ib": ib, "math": math, "ConstraintSet": ib.ConstraintSet})


def test_figures_and_files_it_names_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target


def test_the_table_it_quotes_is_the_stored_one():
    from inbounds.paper.datasets import DATASETS
    from inbounds.paper.table import protocol_overview, read

    results = ROOT / "results"
    files = [results / "table" / f"{d}.json" for d in DATASETS]
    assert len(read([f.read_text() for f in files])) == 70
    files += [*sorted((results / "paper").glob("*.json")), *sorted((results / "flow").glob("*.json"))]
    assert protocol_overview(read([f.read_text() for f in files])) in TEXT


def test_the_training_ratios_it_quotes_are_the_stored_ones():
    import json

    stored = json.loads((ROOT / "results" / "training.json").read_text())["results"]
    for title, found in stored.items():
        row = next(line for line in TEXT.splitlines() if line.startswith(f"| {title} |"))
        for ratio in found["ratios"].values():
            assert f"{ratio:.1f}x" in row
