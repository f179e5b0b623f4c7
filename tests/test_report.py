"""`inbounds report`: one page that needs nothing else, says what is there, and leaves out what is not."""

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html import unescape
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from report_runs import ROWS, tiny_store
from test_table import cell

from inbounds.cli import main
from inbounds.data.backbone import shipped_chains
from inbounds.planning import Path as Way
from inbounds.planning import load_world
from inbounds.report import figures, scenes, story
from inbounds.report.charts import BOTTOM, LEFT, RIGHT, TOP, Axis, Look, Series, chart
from inbounds.report.page import SCRIPTS, STYLES, asset, embedded, write
from inbounds.report.reading import Reading, read
from inbounds.report.table import COLUMNS

NAMES = ("sphere", "so3", "flock", "protein")
PROJECTION = [
    {"dataset": "sphere", "method": m, "sigma": s, "mse": 1e-3 * s, "violation": 0.01}
    for m in ("flow", "auto")
    for s in (0.1, 0.3)
]
WRONG = "<b>&</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tiny_store(tmp_path_factory.mktemp("runs") / "tiny", NAMES)
    (folder / "projection.json").write_text(json.dumps({"rows": PROJECTION}))
    (folder / "table.json").write_text(json.dumps({"command": f"inbounds table {WRONG}", "date": "2026-01-01", "cells": []}))
    return folder


@pytest.fixture(scope="module")
def page(store):
    assert main(["report", str(store)]) == 0
    return (store / "report.html").read_text()


# --- the page --------------------------------------------------------------------------------------------------
def test_the_page_needs_nothing_else(store, page):
    assert len(page) < 10 * 2**20
    loads = re.findall(
        r"""(?:src|href|action)\s*=\s*["']([^"'#][^"']*)|url\(["']?([^#"')][^"')]*)|@import|fetch\(|XMLHttp""", page
    )
    assert [a or b for a, b in loads] == ["data:,"]
    assert "default-src 'none'" in page
    for name in (*STYLES, *SCRIPTS):
        assert asset(name) in page


def test_every_figure_is_also_a_picture_on_disk(store, page):
    on_disk = {p.stem: p.read_text() for p in (store / "report").glob("*.svg")}
    shown = page.count("<svg ")
    assert len(on_disk) == shown
    kinds = {name.split("-")[0] for name in on_disk}
    assert kinds == {"accuracy", "curves", "layers", "projection", "sphere", "frames", "protein", "planning"}
    for text in on_disk.values():
        assert ElementTree.fromstring(text).tag.endswith("svg")
        assert "prefers-color-scheme: dark" in text


def test_the_table_has_every_cell_with_its_published_number(store, page):
    lines = re.findall(r"<tr(?: class=outside)?>(<td.*?)</tr>", page)
    found = [[(float(v) if _is_number(v) else v) for v in re.findall(r'data-value="([^"]*)"', line)] for line in lines]
    reading = read(store)
    assert len(found) == len(NAMES) * len(ROWS) == len(reading.shown)
    titles = [c.title for c in COLUMNS]
    for values, c in zip(found, reading.shown, strict=True):
        line = dict(zip(titles, values, strict=True))
        assert (line["loss"], line["violation"], line["seeds"], line["steps"]) == (c.mse, c.violation_mean, 2, c.steps)
        assert line["published"] == (c.published_mse if c.published_mse is not None else "")


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_no_text_can_break_out_of_its_place(page):
    assert WRONG not in page
    assert page.count("</script>") == 2
    value = {"name": WRONG, "line": "\u2028\u2029", "nan": math.nan}
    text = embedded(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {**value, "nan": None}
    assert not any("</script" in asset(name).lower() for name in SCRIPTS)


def test_a_run_without_most_things_says_so_in_a_sentence_each(tmp_path):
    folder = tiny_store(tmp_path / "runs", ("disk",), ("regular",))
    text = unescape(write(folder, tmp_path / "small.html").read_text())
    for sentence in ("no finished cell on the sphere", "no finished cell on rotations", "no finished protein cell"):
        assert sentence in text
    assert "Disk, fit, auto: 60 samples are too few" in text  # what fit warns of is on the page
    assert {p.stem for p in (tmp_path / "small").glob("*.svg")} == {
        "accuracy-disk", "curves-disk", "layers-disk", "projection-disk", "planning"
    }  # fmt: skip


# --- the command -------------------------------------------------------------------------------------------------
def test_errors_say_what_was_asked_what_arrived_and_what_to_write(store, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    asked = [
        ([str(tmp_path / "nowhere")], ("nowhere asked for, not found", "runs/quick")),
        ([str(tmp_path / "empty")], ("finished cells", "which has none", "inbounds table --out")),
        ([str(store), "--out", str(tmp_path / "page.pdf")], ("ends with .html", "page.pdf", "report.html")),
        ([str(store), "--out", str(tmp_path / "file" / "report.html")], ("cannot write", "--out")),
    ]
    for arguments, words in asked:
        assert main(["report", *arguments]) != 0
        said = capsys.readouterr().err
        assert said.startswith("inbounds report: ")
        assert all(word in said for word in words), said


def test_shipped_runs_can_be_read():
    reading = read(Path(__file__).parents[1] / "results" / "paper")
    assert {(c.dataset, c.row) for c in reading.shown} >= {("sphere", "regular"), ("disk", "proj-faa")}
    assert reading.about["preset"] == "paper"
    assert {c.dataset: c.other_data for c in reading.shown if c.dataset in ("sphere", "disk")} == {"sphere": True, "disk": False}
    assert any("whole" in sentence for sentence in story.run(reading))


# --- words -------------------------------------------------------------------------------------------------------
def reading_of(*cells):
    return Reading(Path("runs/x"), [], list(cells), {})


def test_the_story_tells_what_holds_from_what_does_not():
    good = cell(row="proj-faa", feasible=True, violation_max=2e-7, mse=5e-3, published_mse=5.03e-3)
    held, failed = story.holds(reading_of(good)), story.holds_not(reading_of(good))
    assert "All of the 1 cells" in held[0]
    assert "2.0e-7" in held[0]
    assert "in 1 of 1 cell: Protein: Proj FAA" in held[1]
    assert not any("leaves the set" in sentence or "off the published" in sentence for sentence in failed)
    bad = replace(good, feasible=False, violation_mean=0.2, mse=0.5, diverged=1)
    failed = " ".join(story.holds_not(reading_of(bad)))
    assert "Proj FAA leaves the set" in failed
    assert "it is a fault" in failed
    assert "Proj FAA (99)" in failed
    assert "diverged" in failed
    lost = " ".join(story.holds_not(reading_of(replace(bad, mse=math.nan, violation_mean=math.nan))))
    assert "nan" not in lost
    assert "Proj FAA (1 of" in lost
    assert "it is a fault" not in " ".join(story.holds_not(reading_of(replace(bad, row="regular"))))


def test_lists_are_read_aloud():
    assert [story.listed(list("abc")[:k]) for k in (1, 2, 3)] == ["a", "a and b", "a, b and c"]


# --- charts ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("axis", [Axis("x"), Axis("x", log=True), Axis("x", log=True, floor=1e-9)])
@pytest.mark.parametrize("values", [(1e-12, 3e-4, 2.0), (0.3, 40.0), (7.0,)])
def test_axes_keep_the_order_and_have_few_ticks_inside(axis, values):
    low, high = axis.range(values)
    places = [axis.place(v, low, high, 0.0, 1.0) for v in values]
    assert all(0 <= a <= b <= 1 for a, b in pairwise([0.0, *places, 1.0]))
    assert (axis.place(low, low, high, 5, 9), axis.place(high, low, high, 5, 9)) == pytest.approx((5, 9))
    ticks = axis.ticks(low, high)
    assert 1 <= len(ticks) <= 6
    assert all(low - 1e-9 * high <= t <= high * (1 + 1e-9) for t in ticks)


def test_a_violation_of_zero_has_a_place_on_a_logarithmic_axis():
    points = Series("a", Look("iaa"), [0.0, 1e-2], [1.0, 0.1], says=["left & low", "right"])
    text = chart("t", Axis("x", log=True, floor=1e-9), Axis("y", log=True), [points], joined=False)
    root = ElementTree.fromstring(text)
    marks = [p for p in root.iter("{http://www.w3.org/2000/svg}path") if p.get("class") == "dot iaa"]
    assert [m[0].text for m in marks[:2]] == ["left & low", "right"]
    (x0, y0), (x1, y1) = (map(float, re.match(r"M(\S+) ([\d.]+)", m.get("d")).groups()) for m in marks[:2])
    assert (x0 + 4.5, y0) == pytest.approx((LEFT, TOP), abs=0.1)
    assert (x1 + 4.5, y1) == pytest.approx((RIGHT, BOTTOM), abs=0.1)
    assert ">0</text>" in text


# --- scenes ------------------------------------------------------------------------------------------------------
def test_frames_of_iaa_rows_are_rotations_at_every_moment_and_those_of_regular_are_not(store):
    scene = scenes.rotations(read(store), "so3").scene
    lanes = {lane["title"]: lane for lane in scene["lanes"]}

    def off(lane):
        R = torch.tensor(lane["frames"], dtype=torch.float64)
        return float((R @ R.mT - torch.eye(3)).abs().max())

    assert off(lanes["Proj IAA"]) < 5e-3  # three digits
    assert off(lanes["Exp IAA"]) < 5e-3
    assert lanes["Proj IAA"]["note"] == ""
    assert off(lanes["Regular"]) > 0.05
    assert lanes["Regular"]["note"] == "ends outside of the set"
    assert lanes["Proj FAA"]["note"] == "leaves the set on its way"


def test_the_true_motion_of_a_flock_ends_at_its_target(store):
    scene = scenes.rotations(read(store), "flock").scene
    motion = scene["lanes"][0]
    assert motion["title"] == "True motion"
    last, target = (torch.tensor(t) for t in (motion["frames"][-1], scene["target"]))
    assert float((last - target).abs().max()) < 2e-3


def test_the_field_of_the_sphere_is_shown_only_if_it_explains_the_data(store):
    x, y = read(store).by_dataset["sphere"][0].data["test"]
    field = torch.tensor(scenes._field(x, y))
    assert field.shape == (scenes.ARROWS, 2, 3)
    assert float((field[:, 0] * field[:, 1]).sum(-1).abs().max()) < 5e-3  # tangent
    assert scenes._field(x, -y) == []


def test_a_chain_is_predicted_one_residue_ahead(store):
    reading = read(store)
    scene = scenes.backbone(reading).scene
    seen = reading.by_dataset["protein"][0].data["train"][0][:, :3, 3]
    chain = next(c for c in shipped_chains() if c.id == scene["name"])
    places = chain.atoms[:, 1] / reading.by_dataset["protein"][0].data.scale[0, 3]  # CA
    assert float(torch.cdist(seen.double(), places.double()).nan_to_num(nan=1.0).min()) > 1e-4  # no training saw a residue of it
    true = torch.tensor(scene["true"])
    assert 20 < len(true) <= scenes.LONGEST_CHAIN
    for row in scene["rows"]:
        assert torch.tensor(row["places"]).shape == true.shape
        assert row["error"] > 0
        assert any(row["off"]) == (row["title"] == "Regular")


def test_recorded_paths_are_the_librarys():
    scene = scenes.planning().scene
    assert len(scene["cases"]) == 1 + scenes.RANDOM_WORLDS
    for case in scene["cases"]:
        world, told = load_world(case["world"]), case["library"]
        assert told["certified"]
        assert 0 <= told["least"]
        assert told["exact"] <= told["length"] < 1.001 * told["exact"]
        drawn = Way.of(world, torch.tensor(told["points"], dtype=torch.float64), torch.tensor(True))
        assert float(drawn.clearance.min()) > -2e-5  # five digits
        assert float(drawn.length) > 1.02 * math.dist(case["start"], case["target"])  # it bends


def test_learned_projections_are_measured_where_no_figure_is_stored(tmp_path):
    folder = tiny_store(tmp_path / "runs", ("sphere",), ("flow-faa",))
    found, told = figures.projections(read(folder))
    assert [f.name for f in found] == ["projection-sphere"]
    assert "measured while" in told
    assert ">flow</text>" in found[0].svg
    assert ">heat kernel</text>" in found[0].svg


def test_a_cell_is_the_line_of_the_table_that_made_it(store):
    for c in read(store).shown:
        assert len(c.mse_by_seed) == c.seeds == 2
        assert c.mse == pytest.approx(sum(c.mse_by_seed) / 2)
