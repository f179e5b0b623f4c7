"""The planner of the page against inbounds.planning: the same lengths, the same certificates, on recorded worlds and queries."""

import json
from pathlib import Path as File

import pytest
import torch

from inbounds.planning import BoxWorld, Exact, Path, ShortestPaths, random_worlds
from inbounds.report.page import asset

pytestmark = pytest.mark.browser

NAMED = {
    "a wall of discs that touch": ([[2, 0.5], [2, 1.5], [2, 2.5]], [0.5, 0.5, 0.5]),
    "a wall with gaps at both ends": ([[2, 0.6], [2, 1.6], [2, 2.4]], [0.5, 0.5, 0.3]),
    "two discs in one place, one inside of another": ([[2, 1.5], [2, 1.5], [2.1, 1.5]], [0.5, 0.5, 0.3]),
    "a narrow passage": ([[2, 0.9], [2, 2.12]], [0.6, 0.6]),
    "no disc at all": ([], []),
}


def worlds():
    found = [BoxWorld([0, 0], [4, 3], centers, radii) for centers, radii in NAMED.values()]
    drawn = random_worlds(12, (3, 9), seed=5)
    for k in range(12):
        there = drawn.sizes[k] > 0
        found.append(BoxWorld(drawn.low, drawn.high, drawn.centers[k][there], drawn.sizes[k][there]))
    return found


def recorded():
    """(world, start, target, least length, what the library's planner found)."""
    g, cases = torch.Generator().manual_seed(1), []
    for world in worlds():
        x, y = (world.sample(6, generator=g) for _ in range(2))
        lengths, paths = ShortestPaths(world).distance(x, y), Exact(world).plan(x, y)
        cases += [(world, x[k], y[k], float(lengths[k]), paths[k]) for k in range(6)]
    return cases


@pytest.fixture(scope="module")
def answers(browser, tmp_path_factory):
    """What the page's planner says of every recorded case."""
    cases = recorded()
    page = tmp_path_factory.mktemp("planner") / "planner.html"
    File(page).write_text(f"<!doctype html><meta charset=utf-8><script>{asset('planner.js')}</script>")
    browser.get(page.as_uri())
    asked = json.dumps([{"world": w.to_json(), "start": x.tolist(), "target": y.tolist()} for w, x, y, _, _ in cases])
    code = "return JSON.stringify(JSON.parse(arguments[0]).map(c => plan(prepare(c.world), c.start, c.target)))"
    return list(zip(cases, json.loads(browser.execute_script(code, asked)), strict=True))


def test_lengths_are_those_of_the_exact_solver(answers):
    closed = 0
    for (_, _, _, length, path), found in answers:
        if length == float("inf"):
            closed += 1
            assert found["exact"] is None  # JSON has no infinity
        else:
            assert found["exact"] == pytest.approx(length, abs=1e-6)  # discs are thicker by 1e-8
            assert found["length"] == pytest.approx(float(path.length), abs=1e-9)
    assert 0 < closed < len(answers) / 4


def test_certificates_are_those_of_the_library(answers):
    for (world, _, y, _, path), found in answers:
        points = torch.tensor(found["points"], dtype=torch.float64)
        judged = Path.of(world, points, torch.tensor(bool((points[-1] == y).all())))
        assert found["certified"] == bool(judged.certified) == bool(path.certified)
        assert found["clearance"] == pytest.approx(judged.clearance.tolist(), abs=1e-12)


def test_a_path_through_an_obstacle_has_no_certificate(answers, browser):
    """The page judges straight ways, most of which are not free, as the library does."""
    refused = 0
    for (world, x, y, _, _), _ in answers:
        code = "return certificate(...JSON.parse(arguments[0]))"
        found = browser.execute_script(code, json.dumps([world.to_json(), [x.tolist(), y.tolist()], y.tolist()]))
        judged = Path.of(world, torch.stack([x, y]), torch.tensor(True))
        assert found["certified"] == bool(judged.certified)
        assert found["least"] == pytest.approx(float(judged.clearance[0]), abs=1e-12)
        refused += not found["certified"]
    assert refused > len(answers) / 4
