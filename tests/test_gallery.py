"""The command `inbounds gallery`, run as a user runs it."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread

import inbounds as ib
from inbounds.cli import main
from inbounds.gallery.exhibits import EXHIBITS
from inbounds.gallery.gallery import choose

COMMAND = Path(sys.executable).with_name("inbounds")


def inbounds(*args, **env):
    return subprocess.run([COMMAND, *args], capture_output=True, text=True, env={**os.environ, **env})


def code(argv: list[str]) -> int | str | None:
    """The exit code; argparse raises it."""
    try:
        return main(argv)
    except SystemExit as stop:
        return stop.code


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    out = tmp_path_factory.mktemp("gallery") / "new" / "folder"
    done = inbounds("gallery", "--out", str(out), "--points", "300", "--sets", "so3,Ball,Stiefel,sphere-minus-caps")
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def test_table_names_every_set_and_says_where_the_pictures_are(shown):
    out, printed = shown
    for label in ("SO(3)", "Ball(2)", "Stiefel(3, 2)", "SphereMinusCaps, 3 caps", str(out / "overview.png"), "up to rounding"):
        assert label in printed
    assert "\x1b" not in printed


def test_pictures_show_something(shown):
    out, _ = shown
    names = sorted(p.stem for p in out.glob("*.png"))
    assert names == ["ball", "overview", "so3", "sphere-minus-caps", "stiefel"]
    for path in out.glob("*.png"):
        assert imread(path)[..., :3].var() > 1e-3, path
        assert path.stat().st_size < 120_000


def test_json_holds_finite_numbers_and_feasible_points(shown):
    record = json.loads((shown[0] / "gallery.json").read_text())
    assert record["machine"]["cores"] >= 1 and record["command"].startswith("inbounds gallery")
    assert len(record["rows"]) == 4
    for row in record["rows"]:
        assert all(math.isfinite(v) for v in row.values() if isinstance(v, float))
        assert row["inside"] and row["before_mean"] > 0.1
        scale = 64 * math.sqrt(math.prod(row["shape"]))
        assert row["after_max_float32"] <= scale * torch.finfo(torch.float32).eps
        assert row["after_max_float64"] <= scale * torch.finfo(torch.float64).eps
        assert {"project_us", "forward_backward_us"} <= row.keys()  # finite, as all of them; how fast is not asked here


def test_same_seed_same_picture(shown, tmp_path):
    assert main(["gallery", "--out", str(tmp_path), "--points", "300", "--sets", "so3"]) == 0
    assert (tmp_path / "so3.png").read_bytes() == (shown[0] / "so3.png").read_bytes()


UNDRAWN = {ib.Depends}  # it is a set only where a network has an input


def test_every_set_is_shown():
    kinds = {k for k in vars(ib).values() if isinstance(k, type) and issubclass(k, ib.ConstraintSet)}
    assert kinds - {ib.ConstraintSet, ib.Manifold, ib.LieGroup} - UNDRAWN == {e.kind for e in EXHIBITS}


def test_titles_can_be_pasted():
    """The title makes the same set: it prints the same, and projects on the same points."""
    for e in EXHIBITS:
        pasted, M = eval(e.text, vars(ib).copy()), e.kind(*e.args)
        x = torch.randn(8, *M.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        assert repr(pasted) == repr(M)
        torch.testing.assert_close(pasted.project(x), M.project(x))


def test_sets_are_called_by_name_or_class():
    assert [e.name for e in choose("SO(3),box-minus-balls-3d")] == ["so3", "box-minus-balls-3d"]
    assert len(choose("BoxMinusBalls")) == 3


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--sets", "so3,klein-bottle"], ["no set called 'klein-bottle'", "sphere-minus-caps"]),
        (["--out", "{file}/below"], ["cannot write to", "--out DIR"]),
        (["--out", "{file}"], ["cannot write to", "--out DIR"]),
        (["--points", "0"], ["whole number >= 1"]),
    ],
)
def test_errors_are_clear(tmp_path, capsys, args, words):
    file = tmp_path / "file"
    file.touch()
    assert code(["gallery", *[a.format(file=file) for a in args]]) == 2
    said = capsys.readouterr().err
    assert all(w in said for w in words), said
    assert said.count("\n") == 1 or said.startswith("usage:")


def test_alone_it_prints_help_and_its_version(capsys):
    assert code([]) == 0 and "gallery" in capsys.readouterr().out
    assert code(["--version"]) == 0 and capsys.readouterr().out == f"inbounds {ib.__version__}\n"
