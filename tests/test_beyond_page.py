"""The tables of docs/beyond.md hold the stored figures. `python tests/test_beyond_page.py` prints their rows."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OPTIMISERS = {
    "procrustes": "Stiefel, Procrustes",
    "averaging": "SO(3), average",
    "eigenvector": "sphere, leading eigenvector",
    "quadratic_on_a_ball": "ball, quadratic",
    "weighted_covariance": "PSD cone, weighted covariance, against Clarabel",
    "obstacles": "world of obstacles: length of `tangent(x, -gradient)`",
}
SAMPLES = {"ours": "FlowMatching", "ours, pressed": "FlowMatching, pressed", "plain": "plain", "data": "training data"}


def stored(name):
    return json.loads((ROOT / "results" / name).read_text())["results"]


def optimisers():
    for key, row in stored("beyond.json")["optimisers"].items():
        error = row["ours"]["error"]
        theirs = [f"{row['geoopt']['error']:.1e}", f"{row['ratio']:.2f}"] if "geoopt" in row else ["has no such set", ""]
        yield [OPTIMISERS[key], f"{error:.1e}" if error else "0", *theirs]


def unconstrained():
    for name, row in stored("beyond_ode.json")["unconstrained"].items():
        yield [name, *(f"{row['ms_at_goal'][who]:.0f}" for who in ("ours", "torchdiffeq")), f"{row['ratio']:.2f}"]


def constrained():
    for name, rows in stored("beyond_ode.json")["constrained"].items():
        for who, row in rows.items():
            cells = f"{row['violation']:.1e}" if row["violation"] else "0", f"{100 * row['share_outside']:.0f} %"
            yield [name, who, *cells, f"{row['error']:.1e}"]


def flows():
    for name, rows in stored("beyond_flows.json").items():
        for who, words in SAMPLES.items():
            if who in rows:
                row = rows[who]
                near = f"{100 * row['share_near_boundary']:.1f} %" if "share_near_boundary" in row else ""
                density = f"{row['log_density']:.2f}" if "log_density" in row else ""
                if who == "data" and "true_log_density" in rows:
                    density = f"{rows['true_log_density']:.2f} (true)"
                yield [
                    *(name, words, f"{100 * row['share_outside']:.0f} %", near),
                    *(f"{row['energy_distance']:.4f}", f"{row['p_value']:.2f}", density),
                ]


@pytest.mark.parametrize("table", [optimisers, unconstrained, constrained, flows], ids=lambda t: t.__name__)
def test_the_page_quotes_what_is_stored(table):
    page = (ROOT / "docs" / "beyond.md").read_text()
    missing = [line for line in map(written, table()) if line not in page]
    assert not missing, "write these rows into docs/beyond.md:\n" + "\n".join(missing)


def test_the_sentences_of_the_page_are_what_is_stored():
    page, found = (ROOT / "docs" / "beyond.md").read_text(), stored("beyond.json")
    off = [row[who]["standard_errors_off"] for who in ("ours", "rejection") for row in found["vmf_gradients"]]
    for words in (
        f"Densities integrate to 1 within {max(found['normalisation'].values()):.1e}",
        f"is at most {max(off[:9]):.1f} standard errors off",
        f"is {min(off[9:]):.0f} to {max(off[9:]):.0f} off",
        f"has a distortion of {found['tree']['ours']['distortion']:.3f}",
        f"and {found['tree']['euclidean']['distortion']:.2f} in the Euclidean one",
        f"distances are within {found['drift']['ours']['worst_error']:.1e} of float64",
    ):
        assert words in " ".join(page.split()), words


def written(cells):
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def test_the_programs_print_what_the_page_says():
    """Every number of the last column stands in what the program printed when results/recipes.json was made."""
    printed = {row["recipe"]: row["printed"] for row in json.loads((ROOT / "results" / "recipes.json").read_text())["rows"]}
    rows = re.findall(r"^\| `examples/(\w+)\.py` \|.*\| ([^|]*) \|$", (ROOT / "docs" / "beyond.md").read_text(), re.M)
    assert len(rows) == 8
    assert not [(name, n) for name, told in rows for n in re.findall(r"-?\d[\d.]*", told) if n not in printed[name]]


if __name__ == "__main__":
    for table in (optimisers, unconstrained, constrained, flows):
        print(table.__name__.upper(), *map(written, table()), sep="\n")
