"""`inbounds figure`: files, numbers, refusals."""

import csv
import json

from PIL import Image

from inbounds.cli import main
from inbounds.paper.figures import projection


def test_projection_writes_a_picture_a_table_and_its_numbers(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(projection, "SAMPLES", 200)
    monkeypatch.setattr(projection, "POINTS", 15)
    line = ["figure", "projection", "--datasets", "sphere", "--flow-epochs", "1", "--out", str(tmp_path)]
    assert main(line) == 0
    assert "MSE to the exact projection" in capsys.readouterr().out
    with open(tmp_path / "projection.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 * len(projection.SIGMAS)
    record = json.loads((tmp_path / "projection.json").read_text())
    assert record["command"].startswith("inbounds figure projection")
    errors = {r["method"]: r["mse"] for r in record["rows"] if r["sigma"] == 0.1}
    assert errors["auto"] < 1e-15 < errors["local"] < errors["heat"] < 1  # the data are float32
    with Image.open(tmp_path / "projection.png") as picture:
        assert picture.size[0] > 300


def test_unknown_datasets_and_folders_are_refused(tmp_path, capsys):
    assert main(["figure", "projection", "--datasets", "sphere,moon", "--out", str(tmp_path)]) == 2
    assert "moon" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["figure", "heat-kernel", "--out", str(tmp_path / "file")]) == 2
