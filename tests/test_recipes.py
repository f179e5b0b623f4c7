"""The recipes of docs/recipes.md: each is short, runs, and keeps its promise."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from test_examples import FOLDER, load

import inbounds as ib

OTHERS = {"power_balance"}  # longer: a set that depends on the input is a class of its own
# networks of the literature, of at most 60 lines
OTHERS |= {
    "density_ode",
    "geometric_network",
    "hyperbolic_resnet",
    "sphere_vae",
    "rotation_vae",
    "tree_embedding",
    "flow_matching",
}
PAGE = (Path(__file__).parents[1] / "docs" / "recipes.md").read_text()


def test_every_example_is_on_the_page_and_the_page_has_no_other():
    listed = re.findall(r"\.\./examples/(\w+)\.py", PAGE)
    assert sorted(set(listed)) == sorted(file.stem for file in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", re.findall(r"^\| \[.*\]\(\.\./examples/(\w+)\.py\)", PAGE, re.M))
def test_a_recipe_has_fewer_than_forty_lines(name):
    assert len((FOLDER / f"{name}.py").read_text().splitlines()) <= (60 if name in OTHERS else 39)


def test_what_the_page_says_about_their_time_is_what_was_measured():
    """The stored run has every recipe, each below the limit, with bytecode; the page rounds what torch alone costs."""
    told = json.loads((FOLDER.parent / "results" / "recipes.json").read_text())
    cost = {row["recipe"]: row["seconds"] for row in told["rows"]}
    assert set(cost) >= {file.stem for file in FOLDER.glob("*.py")} and told["bytecode"] is True
    assert max(cost.values()) < told["limit"] == 6
    first, optimiser, onnx = (cost[f"torch alone: {name}"] for name in ("import", "optimiser", "ONNX"))
    words = " ".join(PAGE.split())
    assert f"its import takes {first:.1f} s, its first optimiser {optimiser - first:.1f} s more" in words
    assert f"its first export to ONNX {onnx - first:.1f} s more than the import" in words


def test_rotation_head():
    y, degrees = load("rotation_head").main(steps=40)
    assert degrees[-1] < degrees[0] / 3 and ib.SO(3).contains(y).all()


def test_protein_poses():
    moved, stayed, violation = load("protein_poses").main(steps=30)
    assert moved < 0.9 * stayed and violation <= 1e-5


def test_covariance_head():
    C, best, losses = load("covariance_head").main()
    assert torch.linalg.eigvalsh(C.double()).min() >= 1e-2
    assert losses[-1] + best < (losses[0] + best) / 2  # half way to the likelihood of the true covariance


@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_actions_are_the_same_in_onnx_runtime():
    a, b, (torque, shares, thrust) = load("action_set").main()
    assert (a - b).abs().max() <= 1e-5
    assert (torque.abs() <= 1).all() and (torque[:, 1] <= 0.5).all() and (shares >= 0).all()
    assert (thrust.double().norm(dim=-1) <= 2).all() and (shares.sum(-1) - 1).abs().max() <= 1e-6


def test_nonnegative_ode():
    path, error = load("nonnegative_ode").main(steps=25)
    assert (path >= 0).all() and (path == 0).any() and error < 0.2


def test_set_from_samples():
    M, off = load("set_from_samples").main()
    assert off <= 1e-12 and "2 equations" in repr(M)


def test_robot_path():
    world, path, clearance, longer = load("robot_path").main(count=20)
    assert path.certified.all() and clearance >= 0.1 - 1e-9 and longer < 1.05
    assert (path.length > 0).all() and (world.clearance(path.points) >= clearance).all()


def test_orthogonal_weights():
    W, losses, stretch = load("orthogonal_weights").main(steps=30)
    assert losses[-1] < losses[0] / 2 and stretch <= 1e-5
    assert (W.mT @ W - torch.eye(len(W))).abs().max() <= 1e-6


@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_save_and_serve(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    here, served = load("save_and_serve").main(steps=5)
    sys.modules.pop("action_set", None)
    assert (here - served).abs().max() <= 1e-5 and ib.Sphere(3).contains(served).all()


@pytest.mark.nightly
def test_two_processes(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import two_processes  # by its name, which the processes import

    assert two_processes.main() <= 1e-6


def test_subspace():
    W, share, off = load("subspace").main(steps=120)
    assert 0.999 <= share <= 1 + 1e-5 and off <= 1e-6 and ib.Stiefel(20, 2).contains(W)


def test_pose_flow():
    y, learned, before = load("pose_flow").main(steps=60)
    assert ib.SE(3).contains(y, tol=1e-5).all() and learned < before / 5


@pytest.mark.filterwarnings("ignore")  # Lightning's own, of torch's trees and of workers
def test_lightning_and_a_plain_loop_train_the_same_weights():
    y, R, off = load("lightning_loop").main(epochs=6)
    assert off == 0 and ib.SO(3).contains(y).all() and ib.SO(3).angle(y, R).mean() < 0.2
