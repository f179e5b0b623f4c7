"""`inbounds plan`: what it draws, what it writes, and what it says about bad requests."""

import json
import re

import pytest
import torch
from planning_cases import F64, T

from inbounds import planning as pl
from inbounds.cli import main


def test_plan_draws(tmp_path, capsys):
    out = tmp_path / "path.png"
    assert main(["plan", "--from", "0.2,0.2", "--to", "3.8,2.8", "-o", str(out)]) == 0
    assert out.stat().st_size > 5_000
    assert "of the shortest; free by" in capsys.readouterr().out
    assert main(["plan", "--world", "sphere", "--pairs", "3", "--planner", "exact", "-o", str(tmp_path / "s.png")]) == 0
    (tmp_path / "w.json").write_text(json.dumps({"box": [[0, 0], [2, 2]], "discs": [[1, 1, 0.5]]}))
    gif = tmp_path / "p.gif"
    for world in (str(tmp_path / "w.json"), "sphere"):
        assert main(["plan", "--world", world, "--pairs", "2", "--animate", "-o", str(gif)]) == 0
        assert gif.read_bytes()[:6] == b"GIF89a"
        gif.unlink()


def test_plan_says_what_is_wrong(tmp_path, capsys):
    out = str(tmp_path / "path.png")
    assert main(["plan", "--from", "1,1", "--to", "3.8,2.8", "-o", out]) == 2
    assert "snap" in capsys.readouterr().err
    assert main(["plan", "--from", "1,1", "--to", "3.8,2.8", "--snap", "-o", out]) == 0
    assert "note: The start" in capsys.readouterr().err
    for bad, words in (
        (["--from", "1,1"], "both --from and --to"),
        (["--from", "a", "--to", "1,1"], "numbers like"),
        (["--from", "1,1,1", "--to", "1,1"], "2 numbers"),
        (["--world", "nowhere.json"], "does not exist"),
    ):
        assert main(["plan", *bad, "-o", out]) == 2
        assert words in capsys.readouterr().err


CUBE = {"box": [[0, 0, 0], [1, 1, 1]], "discs": [[0.5, 0.5, 0.5, 0.3]]}


def test_plan_in_a_cube(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cube.json").write_text(json.dumps(CUBE))
    cube = ["plan", "--world", "cube.json", "--from", "0.1,0.5,0.5", "--to", "0.9,0.5,0.5"]
    assert main([*cube, "--planner", "roadmap"]) == 0
    said = capsys.readouterr()
    assert "1 arrive and are certified" in said.out and "no picture" in said.err and not list(tmp_path.glob("*.png"))
    for more in (["-o", "cube.png"], ["--animate"]):
        assert main([*cube, "--planner", "roadmap", *more]) == 2
        said = capsys.readouterr()
        assert "plane or the sphere" in said.err and not said.out
    assert main(cube) == 2
    assert "Use --planner roadmap" in capsys.readouterr().err


def test_plan_options_that_do_not_go_together(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("inbounds.planning.command.train_sides", lambda **_: pytest.fail("trained"))
    (tmp_path / "folder").mkdir()
    for bad, words in (
        (["--random", "1", "--world", "rect"], "--world or --random"),
        (["--animate", "-o", "path.png"], "path.gif"),
        (["--from", "1,1", "--to", "3.8,2.8"], "--snap"),
        (["--from", "0.1,0.1", "--to", "3.8,2.8", "--pairs", "3"], "or for --pairs"),
        (["--train", "a.safetensors", "--world", "rect"], "--world"),
        (["--train", "a.safetensors", "--to", "1,1", "--snap"], "--snap, --to"),
        (["--train", "nowhere/a.safetensors"], "can be written"),
        (["--train", "folder"], "can be written"),
    ):
        assert main(["plan", *bad]) == 2
        said = capsys.readouterr()
        assert words in said.err and "snap=True" not in said.err and not said.out


def test_plan_trains(tmp_path, capsys, monkeypatch):
    from safetensors import SafetensorError

    from inbounds.planning import command

    monkeypatch.setattr(command, "train_sides", lambda **_: pl.load_sides())
    out = tmp_path / "a.safetensors"
    assert main(["plan", "--train", str(out)]) == 0 and pl.load_sides(out)

    def full(*_):
        raise SafetensorError("no space left")

    monkeypatch.setattr(command, "save_sides", full)
    assert main(["plan", "--train", str(out)]) == 2
    assert "no space left" in capsys.readouterr().err


def test_plan_makes_every_planner_that_it_offers(capsys):
    from inbounds.cli import parser
    from inbounds.planning import command

    for name in command.PLANNERS:
        assert parser().parse_args(["plan", "--planner", name]).planner == name
    with pytest.raises(SystemExit):
        parser().parse_args(["plan", "--planner", "?"])
    offered = capsys.readouterr().err.partition("choose from")[2]
    assert set(re.findall(r"[\w-]+", offered)) == set(command.PLANNERS)


def test_plan_to_where_one_is_and_to_where_one_cannot_go(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "--from", "0.2,0.2", "--to", "0.2,0.2"]) == 0
    assert ", 1.0000 of the shortest" in capsys.readouterr().out and (tmp_path / "path.png").exists()
    (tmp_path / "w.json").write_text(json.dumps({"box": [[0, 0], [2, 1]], "discs": [[1, 0.5, 0.6]]}))
    assert main(["plan", "--world", "w.json", "--from", "0.1,0.5", "--to", "1.9,0.5", "--animate"]) == 1
    assert "(0.1, 0.5) -> (1.9, 0.5): no way found" in capsys.readouterr().out and (tmp_path / "path.gif").exists()


def test_crosses_are_at_targets():
    from matplotlib.figure import Figure

    from inbounds.planning.drawing import ends, panel

    world = pl.BoxWorld([0, 0], [2, 1], [[1, 0.5]], [0.6])
    x, y = T([0.1, 0.5], [0.1, 0.4]), T([1.9, 0.5], [0.2, 0.6])
    axes = panel(Figure(), 111, world, "")
    before = len(axes.lines)
    ends(axes, pl.Exact(world).plan(x, y), y)
    _, reached, lost = (line.get_xydata().tolist() for line in axes.lines[before:])
    assert reached == y[1:].tolist() and lost == y[:1].tolist()


def test_plan_for_a_robot_of_some_radius(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ends = ["plan", "--from", "0.3,0.3", "--to", "3.7,2.7", "--points", "points.csv", "--planner", "exact"]
    assert main([*ends, "--radius", "0.2"]) == 0
    assert "points.csv written" in capsys.readouterr().out
    lines = (tmp_path / "points.csv").read_text().splitlines()
    assert lines[0] == "path,point,x,y" and lines[1] == "0,0,0.3,0.3" and lines[-1].endswith(",3.7,2.7")
    points = torch.tensor([[float(v) for v in line.split(",")[2:]] for line in lines[1:]], dtype=F64)
    assert float(pl.load_world("rect").clearance(points).min()) >= 0.2 - 1e-12
    for radius, words in (("-1", "not negative"), ("nan", "not negative"), ("5", "fits into the world"), ("0.4", "lies outside")):
        assert main([*ends, "--radius", radius]) == 2
        assert words in capsys.readouterr().err


def test_plan_through_the_points_of_a_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stops.txt").write_text("# first the corner\n3.8, 0.2\n\n0.2,2.8  # then the other\n")
    ends = ["plan", "--from", "0.2,0.2", "--to", "3.8,2.8", "--planner", "exact", "--points", "p.csv"]
    assert main([*ends, "--through", "stops.txt", "--tight"]) == 0
    assert "1 arrive and are certified" in capsys.readouterr().out
    rows = [line.split(",")[2:] for line in (tmp_path / "p.csv").read_text().splitlines()[1:]]
    assert rows.index(["3.8", "0.2"]) < rows.index(["0.2", "2.8"]) < rows.index(["3.8", "2.8"]) == len(rows) - 1
    for text, words in (("", "has none"), ("1,2,3", "Line 1 of stops.txt asked for 2 numbers"), ("1,1", "snap"), ("a", "Line 1")):
        (tmp_path / "stops.txt").write_text(text)
        assert main([*ends, "--through", "stops.txt"]) == 2
        assert words in capsys.readouterr().err
    assert main([*ends, "--through", "nowhere.txt"]) == 2
    assert "does not exist" in capsys.readouterr().err
    (tmp_path / "w.json").write_text(json.dumps({"box": [[0, 0], [2, 1]], "discs": [[1, 0.5, 0.6]]}))
    (tmp_path / "stops.txt").write_text("1.9,0.5")  # behind a wall, and back
    assert main(["plan", "--world", "w.json", "--from", "0.1,0.5", "--to", "0.1,0.4", "--through", "stops.txt"]) == 1
    assert "no way found" in capsys.readouterr().out
