"""Write the stored figures into the pages that quote them: after `make bench`, `make bench-training` or `make paper`.

Which rows a page shows is decided on the page: this script keeps its rows and replaces their numbers. It writes the tables of
README.md, docs/performance.md, docs/paper.md, docs/learned.md and docs/compare.md; sentences that quote a figure are written by
hand, and most are compared with the stored ones by tests/test_readme.py.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

import auto  # noqa: E402
import regions  # noqa: E402
from test_readme import CASES, NO_PEERS, VIOLATIONS, few, stored  # noqa: E402

from inbounds.compare.table import quoted  # noqa: E402
from inbounds.paper.datasets import DATASETS  # noqa: E402
from inbounds.paper.rows import ROWS  # noqa: E402
from inbounds.paper.table import protocol_overview, read  # noqa: E402

PROTOCOL = 80_000  # steps of the paper's protocol
NAMES = {"so3": "SO(3)"}  # datasets that are not called by their keys
Rewrite = Callable[[list[str]], list[str] | None]  # the cells of a row of a table; None: not of this table


def rewritten(text: str, change: Rewrite) -> str:
    """The text with the rows of its tables changed."""
    lines = text.splitlines(keepends=True)
    for i, line in enumerate(lines):
        if line.startswith("|"):
            new = change([cell.strip() for cell in line.strip().strip("|").split("|")])
            lines[i] = line if new is None else f"| {' | '.join(new)} |\n"
    return "".join(lines)


def between(text: str, mark: str, change: Callable[[str], str]) -> str:
    """The text with what stands between <!-- mark --> and <!-- /mark --> changed."""
    before, rest = text.split(f"<!-- {mark} -->")
    inner, after = rest.split(f"<!-- /{mark} -->")
    return f"{before}<!-- {mark} -->{change(inner)}<!-- /{mark} -->{after}"


def against_best(cells: list[str]) -> list[str] | None:
    """A row of the README: ours beside the best peer."""
    if len(cells) != 6 or cells[0] not in CASES:
        return None
    row, peers = stored(*cells[:2])
    best = next(iter(peers))
    violations = ", ".join(f"{row['violation'][k]:.1e}" for k in ("ours", best))
    ratio = f"**{few(peers[best] / row['ours_ms'])}x**"
    return [*cells[:2], few(row["ours_ms"]), f"{best} {few(peers[best])}", ratio, violations]


def against_all(cells: list[str]) -> list[str] | None:
    """A row of the performance page: ours beside every peer."""
    if len(cells) != 6 or cells[0] not in CASES:
        return None
    row, peers = stored(*cells[:3])
    best = min(v for k, v in row["peers_ms"].items() if not any(word in k for word in NO_PEERS[:-1]))
    more = "".join(f" ({name} {few(peers[name] / row['ours_ms'])}x)" for name in re.findall(r"\((\w+) [\d,]+x\)", cells[5]))
    told = ", ".join(f"{k} {few(v)}" for k, v in peers.items())
    return [*cells[:3], few(row["ours_ms"]), told, f"**{few(best / row['ours_ms'])}x**{more}"]


def violations(cells: list[str]) -> list[str] | None:
    """A row of the table of violations; words in brackets stay."""
    if len(cells) != 3 or cells[0] not in VIOLATIONS:
        return None
    case, batch = VIOLATIONS[cells[0]]
    title = next(t for t, name in CASES.items() if name == case)
    row, _ = stored(title, str(batch))
    new = lambda m: f"{m[1]} {shown(row['violation'][m[1].replace('SVD', 'svd')])}"  # noqa: E731
    return [cells[0], shown(row["violation"]["ours"]), re.sub(r"([A-Za-z][\w ]*?) ([\d.e-]+)", new, cells[2])]


def shown(v: float) -> str:
    """0, small numbers with an exponent, others as they are."""
    return f"{v:.1e}" if 0 < v < 0.01 else f"{v:g}" if v == 0 else f"{float(f'{v:.1e}'):g}"


def training(cells: list[str]) -> list[str] | None:
    """A row of the table of training steps."""
    found = json.loads((ROOT / "results" / "training.json").read_text())["results"]
    if len(cells) != 7 or cells[0] not in found:
        return None
    ms, ratios = found[cells[0]]["ms_per_step"], found[cells[0]]["ratios"]
    fast = [f"{ratios[f'{mode} against {peer}']:.1f}x" for mode in ("eager", "compiled") for peer in ("loader", "slices")]
    times = [str(ms[k]) for k in ("eager", "compiled", "loader", "slices")]
    return [cells[0], *times, f"**{fast[0]}**, {fast[1]}", f"{fast[2]}, {fast[3]}"]


def paper_table() -> str:
    """Table 1: the standard run, replaced where the full protocol or a longer run is stored."""
    results = ROOT / "results"
    files = [results / "table" / f"{d}.json" for d in DATASETS]
    files += [*sorted((results / "paper").glob("*.json")), *sorted((results / "flow").glob("*.json"))]
    return protocol_overview(read([f.read_text() for f in files]))


def finished_cells() -> str:
    """Every cell that has seen the whole protocol: ours / published."""
    lines = ["| cell | loss | violation |", "|---|---|---|"]
    stored = {d: ROOT / "results" / "paper" / f"{d}.json" for d in DATASETS}
    for dataset, file in stored.items():
        cells = json.loads(file.read_text())["cells"] if file.exists() else []
        by_row = {cell["row"]: cell for cell in cells if cell["steps"] == PROTOCOL}
        for row in (r for r in ROWS if r in by_row):
            cell = by_row[row]
            loss = f"{figures(cell['mse'])} / {figures(cell['published_mse'])}"
            off = f"{figures(cell['violation_mean'])} / {figures(cell['published_distance'])}"
            lines.append(f"| {NAMES.get(dataset, dataset)} {ROWS[row].title} | {loss} | {off} |")
    return "\n".join(lines)


def figures(v: float | None) -> str:
    """As the tables of docs/paper.md write numbers; a dash where nothing was published."""
    if v is None or v == 0:
        return "-" if v is None else "0"
    return f"{v:.1e}".replace("e-0", "e-") if v < 0.1 else f"{float(f'{v:.3g}'):g}"


def learned_tables() -> dict[str, str]:
    """The tables of docs/learned.md by their marks."""
    rows = {name: json.loads((ROOT / "results" / f"{name}.json").read_text())["rows"] for name in ("auto", "regions")}
    return {"auto": auto.markdown(rows["auto"]), "regions": regions.table(rows["regions"]) + "\n"}


def main() -> None:
    readme, performance, paper = (ROOT / name for name in ("README.md", "docs/performance.md", "docs/paper.md"))
    readme.write_text(between(readme.read_text(), "peers", lambda t: rewritten(t, against_best)))
    text = performance.read_text()
    for change in (against_all, violations, training):
        text = rewritten(text, change)
    performance.write_text(text)
    text = between(paper.read_text(), "table", lambda _: f"\n{paper_table().strip()}\n")
    paper.write_text(between(text, "cells", lambda _: f"\n{finished_cells()}\n"))
    page = ROOT / "docs" / "learned.md"
    text = page.read_text()
    for mark, made in learned_tables().items():
        text = between(text, mark, lambda _, t=made: f"\n{t}")
    page.write_text(text)
    page = ROOT / "docs" / "compare.md"
    text = page.read_text()
    for name in re.findall(r"<!-- compare (\S+) -->", text):
        table = quoted((ROOT / "results" / "compare" / f"{name}.json").read_text())
        text = re.sub(
            rf"(<!-- compare {name} -->\n).*?(<!-- /compare {name} -->)", lambda m, t=table: m[1] + t + m[2], text, flags=re.S
        )
    page.write_text(text)


if __name__ == "__main__":
    main()
