"""The README is short and complete, and the figures that it and the pages quote are the stored ones."""

import json
import re
from pathlib import Path

import pytest
from test_docs import snippets

import inbounds as ib

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
PERFORMANCE = (ROOT / "docs" / "performance.md").read_text()
PAPER = (ROOT / "docs" / "paper.md").read_text()
GEOMETRY = json.loads((ROOT / "results" / "geometry.json").read_text())["rows"]
CASES = {
    "nearest rotation, SO(3)": "SO(3) project",
    "nearest rotation, SO(10)": "SO(10) project",
    "SO(3) exponential": "SO(3) exp",
    "SO(3) logarithm": "SO(3) log",
    "SE(3) exponential": "SE(3) exp",
    "SE(3) logarithm": "SE(3) log",
    "sphere": "Sphere(3) project",
    "disk": "Ball(2) project",
    "box in R^10": "Box, n = 10, project",
    "simplex in R^10": "Simplex(10) project",
    "8-layer IAA on SO(3)": "8-layer IAA on SO(3)",
}
# a clamp checks nothing, our own formula is no peer, quaternions are other numbers, and eager peers have rows of their own
NO_PEERS = ("torch.clamp", "quaternion", "without checks", ", eager")


def test_it_is_short_and_its_example_has_nine_lines():
    assert len(TEXT.splitlines()) <= 120
    (example,) = snippets(TEXT)
    assert len(example.splitlines()) == 9


def sets():
    """The names of the sets that the package offers."""
    found = {n for n in ib.__all__ if isinstance(getattr(ib, n), type) and issubclass(getattr(ib, n), ib.ConstraintSet)}
    return found - {"ConstraintSet", "Manifold", "LieGroup"}


@pytest.mark.parametrize("page", ["README.md", "docs/sets.md"])
def test_the_table_of_sets_is_complete(page):
    section = (ROOT / page).read_text().split("# The sets\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\|.*\|$", section, re.M)
    listed = re.findall(r"`(\w+)\(", "\n".join(rows))
    steps = {"Projection", "Exponential", "GroupExponential"}
    assert sorted(set(listed) - steps) == sorted(sets())
    assert len(listed) == len(set(listed)), "a set that is listed twice"


def stored(title, batch, mode="eager"):
    """The stored row of a quoted one, and the milliseconds of its peers, fastest first."""
    row = next(r for r in GEOMETRY if (r["case"], r["batch"], r["mode"]) == (CASES[title], int(batch.replace(",", "")), mode))
    peers = {k: v for k, v in row["peers_ms"].items() if not any(word in k for word in NO_PEERS)}
    return row, dict(sorted(peers.items(), key=lambda p: p[1]))


def few(number):
    """Three digits, as the tables write them."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def cells(text, columns):
    """The cells of the rows of a table that quote a case."""
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [r for r in rows if len(r) == columns and r[0] in CASES]


def test_the_rows_against_peers_are_the_stored_ones():
    quoted = cells(TEXT.split("<!-- peers -->")[1].split("<!-- /peers -->")[0], 6)
    assert len(quoted) == 5
    for title, batch, ours, peer, ratio, violation in quoted:
        row, peers = stored(title, batch)
        best = next(iter(peers))
        assert (ours, peer) == (few(row["ours_ms"]), f"{best} {few(peers[best])}")
        assert ratio == f"**{few(peers[best] / row['ours_ms'])}x**"
        assert violation == ", ".join(f"{row['violation'][k]:.1e}" for k in ("ours", best))
    assert min(float(r[4].strip("*x")) for r in quoted) < 1, "a row where a peer is faster belongs into the table"


def test_the_rows_of_the_performance_page_are_the_stored_ones():
    quoted = cells(PERFORMANCE, 6)
    assert len(quoted) == 15
    for title, batch, mode, ours, peer, ratio in quoted:
        row, peers = stored(title, batch, mode)
        assert ours == few(row["ours_ms"])
        assert peer == ", ".join(f"{k} {few(v)}" for k, v in peers.items())
        best = min(v for k, v in row["peers_ms"].items() if not any(word in k for word in NO_PEERS[:-1]))
        assert ratio.startswith(f"**{few(best / row['ours_ms'])}x**")
        for name, other in re.findall(r"\((\w+) ([\d,]+)x\)", ratio):
            assert other == few(peers[name] / row["ours_ms"])


VIOLATIONS = {
    "SO(3), batch 65,536": ("SO(3) project", 65536),
    "SO(10)": ("SO(10) project", 512),
    "disk": ("Ball(2) project", 256),
    "box": ("Box, n = 10, project", 256),
    "simplex": ("Simplex(10) project", 256),
}


def test_the_violations_of_the_performance_page_are_the_stored_ones():
    for title, (case, batch) in VIOLATIONS.items():
        row = next(r for r in GEOMETRY if (r["case"], r["batch"], r["mode"]) == (case, batch, "eager"))
        line = next(li for li in PERFORMANCE.splitlines() if li.startswith(f"| {title} |") and li.count("|") == 4)
        _, _, ours, peers, _ = (c.strip() for c in line.split("|"))
        told = {"ours": ours, **dict(re.findall(r"([A-Za-z][\w ]*?) ([\d.e-]+)", peers))}
        for name, number in told.items():
            assert float(number) == float(f"{row['violation'][name.replace('SVD', 'svd')]:.1e}"), (title, name)


def test_the_costs_of_networks_are_the_stored_ones():
    compiled = {r["case"]: r["ours_ms"] / min(r["peers_ms"].values()) for r in GEOMETRY if r["mode"] == "compiled"}
    rotations, sphere = (compiled[f"8-layer IAA on {M}, cost"] for M in ("SO(3)", "Sphere(3)"))
    assert f"costs {rotations:.2f} times" in PERFORMANCE and f"kept on SO(3), {sphere:.2f} times" in PERFORMANCE


def test_the_training_ratios_are_the_stored_ones():
    found = json.loads((ROOT / "results" / "training.json").read_text())["results"]
    for title, row in found.items():
        line = next(li for li in PERFORMANCE.splitlines() if li.startswith(f"| {title} |"))
        for ratio in row["ratios"].values():
            assert f"{ratio:.1f}x" in line


def test_the_table_of_the_paper_is_the_stored_one():
    from inbounds.paper.datasets import DATASETS
    from inbounds.paper.table import protocol_overview, read

    results = ROOT / "results"
    files = [results / "table" / f"{d}.json" for d in DATASETS]
    assert len(read([f.read_text() for f in files])) == 70
    files += [*sorted((results / "paper").glob("*.json")), *sorted((results / "flow").glob("*.json"))]
    assert protocol_overview(read([f.read_text() for f in files])) in PAPER
