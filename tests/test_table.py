"""`inbounds table`: what it asks for, refuses, prints and writes."""

import csv
import io
import itertools
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import inbounds as ib
from inbounds import data
from inbounds.cli import main
from inbounds.core import LieGroup
from inbounds.paper import models
from inbounds.paper.cells import choose, learned_set
from inbounds.paper.datasets import DATASETS, _keep, open_pairs, prepare
from inbounds.paper.jobs import open_job
from inbounds.paper.names import named
from inbounds.paper.presets import PRESETS, Velocity
from inbounds.paper.published import PUBLISHED
from inbounds.paper.rows import ROWS, Source
from inbounds.paper.table import COLUMNS, Cell, csv_text, json_text, line, markdown, notes, show
from inbounds.paper.units import UNDEFINED, budget_of, fit_config, units
from inbounds.train.executors import Event
from inbounds.train.progress import Progress, time_text
from inbounds.train.store import Store, key
from inbounds.train.work import Unit, work

TINY = {"train": 60, "val": 20, "test": 20, "large": 30}


def tiny(name):
    pairs = getattr(data, name)({k: v for k, v in TINY.items() if name != "protein" or k != "large"})
    return pairs


# --- the rows are the paper's ----------------------------------------------------------------------------
FORMULAS = [r.name for r in ROWS.values() if r.source is Source.FORMULA]
CELLS = [(d, r) for d in DATASETS for r in FORMULAS if (d, r) not in UNDEFINED]


@pytest.mark.parametrize(("name", "row"), CELLS, ids=[f"{d}-{r}" for d, r in CELLS])
def test_every_row_predicts_and_constrained_rows_stay_in_the_set(name, row):
    pairs = tiny(name)
    problem = ROWS[row].problem(pairs, 3)
    net = problem.build()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
        predicted = problem.read(net(pairs.x))
    assert predicted.shape == pairs.y.shape
    worst = float(pairs.set.violation(predicted.double()).max())
    inside = row not in ("regular", "prob") or (name, row) == ("disk", "prob")  # a mixture of points of a convex set is in it
    assert worst < 1e-5 if inside else worst > 1e-3


@pytest.mark.parametrize("row", ["proj-iaa", "exp-iaa", "wide-iaa"])
@pytest.mark.parametrize("name", ["sphere", "so3", "cs", "flock", "protein"])
def test_hidden_states_of_iaa_rows_are_in_the_set(name, row):
    pairs = tiny(name)
    net = ROWS[row].build(pairs, 3)
    with torch.no_grad():
        states = net.states(pairs.x)
    assert len(states) == 4
    assert all(pairs.set.violation(s.double()).max() < 1e-5 for s in states)


@pytest.mark.parametrize("row", ["fit-iaa", "fit-faa"])
def test_fitted_rows_stay_in_the_true_set(row, tmp_path):
    """The set is fitted to training targets in a run of its own, and read back from the store."""
    pairs = data.so3({"train": 200, "val": 20, "test": 20, "large": 30})
    store = Store(tmp_path)
    store.prepare()
    config = fit_config(_keep(pairs, store))
    work(config, store, open_job)
    M = learned_set({"row": row, "fit": config}, pairs, store)
    problem = ROWS[row].problem(pairs, 2, M)
    with torch.no_grad():
        predicted = problem.read(problem.build()(pairs.x))
    assert pairs.set.violation(predicted.double()).max() < 1e-5


def test_the_papers_block():
    """Width = ambient size, one hidden layer, ReLU, learnable dt = 1; on flocks 3 heads and 2048 units, then a linear map."""
    net = ROWS["regular"].build(tiny("so3"), 4)
    assert [tuple(p.shape) for p in net.blocks[0].parameters()] == [(9, 9), (9,), (9, 9), (9,)]
    assert net.dt.tolist() == [1.0] * 4
    cs = ROWS["proj-iaa"].build(tiny("cs"), 4)
    layer = cs.blocks[0].encoder
    assert (layer.self_attn.num_heads, layer.linear1.out_features, layer.dropout.p) == (3, 2048, 0.0)
    assert tuple(cs.head.weight.shape) == (9, 9)
    assert tuple(ROWS["exp-iaa"].build(tiny("cs"), 4).head.weight.shape) == (3, 9)


def test_exp_is_the_group_update_on_groups_and_undefined_on_the_disk():
    for name in ("so3", "cs", "flock", "protein"):
        assert isinstance(models.exponential(DATASETS[name].set()), ib.GroupExponential)
        assert isinstance(DATASETS[name].set(), LieGroup)
    assert isinstance(models.exponential(DATASETS["sphere"].set()), ib.Exponential)
    with pytest.raises(TypeError, match="Use Projection"):
        models.exponential(DATASETS["disk"].set())


def test_anchors_are_training_targets_and_labels_are_per_agent():
    pairs = tiny("cs")
    mixture = ib.AnchorMixture(torch.nn.Identity(), models.anchors(pairs))
    targets = pairs["train"][1].reshape(-1, 9)
    assert all((targets == a).all(1).any() for a in mixture.anchors.flatten(1))
    labels = mixture.label(pairs["train"][1])
    assert labels.shape == (60, 10)
    brute = (targets[:, None] - mixture.anchors.flatten(1)).square().sum(-1).argmin(1)
    assert torch.equal(labels.reshape(-1), brute)


@pytest.mark.parametrize("planes", [False, True])
def test_the_error_of_the_anchor_rows_is_the_librarys_with_its_derivative(planes):
    from inbounds.nets import simplex_error

    g = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(2, 30, 7, generator=g, dtype=torch.float64)
    logits = (logits.mT.contiguous().mT if planes else logits).requires_grad_()
    label = torch.randint(7, (2, 30), generator=g)
    pull = torch.randn(2, 30, generator=g, dtype=torch.float64)
    for ours, theirs in zip(
        (models.AnchorError.apply(logits, label), *torch.autograd.grad(models.AnchorError.apply(logits, label), logits, pull)),
        (simplex_error(logits, label), *torch.autograd.grad(simplex_error(logits, label), logits, pull)),
        strict=True,
    ):
        assert (ours - theirs).abs().max() < 1e-14


def test_a_row_whose_set_is_learned_asks_for_it():
    with pytest.raises(ValueError, match="Flow IAA asked for the set that was learned"):
        ROWS["flow-iaa"].build(tiny("sphere"), 2)


def test_names_that_are_not_known_are_told():
    with pytest.raises(ValueError, match=r"among regular, proj-iaa, .*, got 'proj'"):
        named("proj", ROWS)


# --- the paper's numbers ---------------------------------------------------------------------------------
def test_published_numbers_are_the_papers():
    """Column sums of the printed table, and its dashes."""
    assert {d: len(r) for d, r in PUBLISHED.items()} == {"sphere": 8, "disk": 6, "so3": 8, "cs": 7, "protein": 8}
    sums = {d: round(sum(v[0] for v in r.values()), 6) for d, r in PUBLISHED.items()}
    assert sums == {"sphere": 0.26601, "disk": 0.005378, "so3": 1.552, "cs": 3.247, "protein": 1.765}
    assert not any(ROWS[row].ours for rows in PUBLISHED.values() for row in rows)


def test_presets_are_what_they_say():
    paper = PRESETS["paper"]
    for d in ("sphere", "so3", "protein", "cs"):
        budget = budget_of(paper, DATASETS[d], ROWS["proj-iaa"])
        p = budget.protocol()
        assert (p.epochs, p.batch, p.lr, p.every, p.patience, p.factor) == (10_000, 500, 1e-3, 100, 1_000, 0.5)
        assert (budget.depths, budget.decays) == ((4, 6, 8), (0.0, 1e-4))
    assert len(paper.velocity.alphas) * len(paper.velocity.lrs) * len(paper.velocity.decays) == 18
    every = [budget_of(p, d, r) for p in PRESETS.values() for d in DATASETS.values() for r in ROWS.values()]
    assert all(budget.patience == 1_000 for budget in every)  # absolute, as there
    assert (paper.velocity.width, paper.velocity.depth, paper.velocity.dropout, paper.velocity.distil) == (256, 8, 0.1, 0)
    standard = budget_of(PRESETS["standard"], DATASETS["sphere"], ROWS["regular"])
    assert (standard.depths, standard.decays, standard.seeds) == ((4, 8), (0.0, 1e-4), 3)
    names = [u.config for u in units(PRESETS["quick"], [{"name": d, "fingerprint": "x"} for d in DATASETS], ROWS)]
    tested = {(c["data"]["name"], c["row"]) for c in names if c["kind"] == "test"}
    assert tested == {(d, r) for d in DATASETS for r in ROWS} - UNDEFINED


# --- choosing and testing --------------------------------------------------------------------------------
def fake(store, config, val):
    from inbounds.train.files import publish_json

    publish_json(store.run(config).folder / "result.json", {"val": val})


def test_the_choice_is_by_mean_validation_over_seeds(tmp_path):
    """A single lucky seed does not win, a diverged one loses."""
    store = Store(tmp_path)
    stacks = [{"members": [[0, 0.0, d], [1, 0.0, d], [0, 1e-4, d], [1, 1e-4, d]]} for d in (8, 4)]
    fake(store, stacks[1], [0.10, 0.90, 0.40, 0.42])
    fake(store, stacks[0], [0.45, 0.45, 0.01, None])
    choice = choose({"stacks": stacks}, store)
    assert (choice.depth, choice.decay, choice.places) == (4, 1e-4, [(stacks[1], 2), (stacks[1], 3)])


def test_the_choice_joins_seeds_from_several_stacks_and_leaves_the_others_out(tmp_path):
    """Seed 1 was added later, in a stack of its own; depth 8 is there but was not asked for."""
    store = Store(tmp_path)
    stacks = [{"members": [[s, 0.0, 8], [s, 0.0, 4]]} for s in (0, 1)]
    fake(store, stacks[0], [0.1, 0.3])
    fake(store, stacks[1], [0.1, 0.4])
    asked = {"stacks": stacks, "grid": [[4, 0.0]], "seeds": [0, 1]}
    assert choose(asked, store).places == [(stacks[0], 1), (stacks[1], 1)]
    assert choose({**asked, "grid": [[4, 0.0], [8, 0.0]], "seeds": [1]}, store).depth == 8


def test_the_tested_numbers_are_the_models_own(tmp_path):
    """MSE and violation of the table, recomputed from the stored weights by hand."""
    store = Store(tmp_path)
    out = ["table", "--datasets", "so3", "--models", "regular", "--epochs", "2", "--depths", "3", "--seeds", "1"]
    out += ["--executor", "here", "--out", str(tmp_path)]
    assert main(out) == 0
    preset = PRESETS["quick"].changed(1, (3,), 2)
    reference = prepare("so3", store, preset.large)
    test = next(u for u in units(preset, [reference], ["regular"]) if u.config["kind"] == "test").config
    result = store.run(test).result
    ((stack, k),) = choose(test, store).places
    pairs = open_pairs(reference, store)
    net = ROWS["regular"].build(pairs, 3)
    torch.nn.utils.vector_to_parameters(store.run(stack).weights()["theta"][k], net.parameters())
    x, y = pairs["large"]
    with torch.no_grad():
        p = net(x).double()
    assert result["mse"][0] == pytest.approx(float(((p - y.double()) ** 2).mean()), rel=1e-5)
    error = p @ p.mT - torch.eye(3, dtype=torch.float64)
    violation = error.flatten(1).norm(dim=1) + (torch.linalg.det(p) - 1).abs()
    assert result["violation_mean"][0] == pytest.approx(float(violation.mean()), rel=1e-5)
    assert result["violation_max"][0] == pytest.approx(float(violation.max()), rel=1e-5)


@pytest.mark.parametrize("distil", [0, 1])
def test_a_flow_row_from_velocity_network_to_test(tmp_path, distil):
    """Velocity networks first, the best of them chosen, a stack trained through it or its distilled form, tested by RK45."""
    store = Store(tmp_path)
    velocity = Velocity(epochs=1, alphas=(0.25, 0.5), lrs=(1e-3,), decays=(0.0,), batches=5, width=16, depth=1, distil=distil)
    preset = replace(PRESETS["quick"].changed(1, (1,), 1), velocity=velocity, flow_test=20)
    todo = units(preset, [prepare("sphere", store, 200)], ["flow-faa"])
    order = ["velocity", "velocity", *(["distil"] if distil else []), "stack", "test"]
    assert sorted(u.config["kind"] for u in todo) == sorted(order)
    for unit in sorted(todo, key=lambda u: order.index(u.config["kind"])):
        assert all(store.run(c).done for c in unit.needs)
        work(unit.config, store, open_job)
    result = store.run(next(u.config for u in todo if u.config["kind"] == "test")).result
    assert (result["rows"], result["split"]) == (20, "test")
    assert 0 < result["mse"][0] < 5


# --- the printed table -----------------------------------------------------------------------------------
def cell(**changes):
    base = dict(
        dataset="protein", row="regular", mse=0.12, mse_median=0.12, mse_spread=0.01, mse_on_set=0.19, violation_mean=2.2,
        violation_max=2.8, feasible=False, depth=4, weight_decay=1e-4, seeds=3, diverged=0, steps=4_000, batch=500,
        parameters=100,
        split="test", rows=1_200, seconds=1.0, mse_by_seed=[0.11, 0.12, 0.13], published_mse=0.119, published_distance=2.28,
        other_data=True,
    )  # fmt: skip
    return Cell(**{**base, **changes})


FOUND = [
    cell(),
    cell(row="proj-faa", feasible=True, violation_mean=3e-7, violation_max=9e-7, mse=0.19, published_mse=0.188),
    cell(dataset="cs", row="proj-iaa", feasible=True, published_mse=None, published_distance=None, other_data=False, diverged=1),
]


def test_it_says_what_is_infeasible_other_data_and_diverged():
    texts = dict(zip(COLUMNS, line(FOUND[0]), strict=True))
    assert texts["in M"] == "NO"
    assert texts["published"].endswith("*")
    assert texts["seeds x steps"] == "3 x 4,000"
    assert line(FOUND[2])[0] == "Proj IAA!"
    assert dict(zip(COLUMNS, line(FOUND[2]), strict=True))["published"] == "-"
    said = " ".join(notes(FOUND, PRESETS["quick"]))
    assert "smoke run" in said
    assert "lower loss is not better" in said
    assert "other data" in said
    assert "CS Proj IAA: 1 of 3 seeds diverged" in said
    assert "2/3" in said
    assert "lower loss is not better" not in " ".join(notes(FOUND[1:], PRESETS["quick"]))


def test_it_is_written_as_text_csv_json_and_markdown():
    screen = io.StringIO()
    show(FOUND, PRESETS["quick"], screen)
    assert all(len(text) <= 132 for text in screen.getvalue().splitlines())
    assert "Proj FAA" in screen.getvalue()
    rows = list(csv.DictReader(io.StringIO(csv_text(FOUND))))
    assert [r["row"] for r in rows] == ["regular", "proj-faa", "proj-iaa"]
    assert json.loads(json_text(FOUND, {"command": "x"}))["cells"][0]["mse_by_seed"] == [0.11, 0.12, 0.13]
    assert "| Proj FAA | 1.90e-1 |" in markdown(FOUND, PRESETS["quick"])


# --- the command -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--datasets", "spehre"], "--datasets asked for names among sphere,disk"),
        (["--models", "proj"], "--models asked for names among regular,proj-iaa"),
        (["--depths", "4,x"], "--depths asked for whole numbers"),
        (["--depths", "0"], "--depths asked for whole numbers"),
        (["--decays", "0,-1"], "--decays asked for numbers >= 0"),
        (["--decays", "small"], "--decays asked for numbers >= 0"),
        (["--shipped", "/nowhere"], "--shipped asked for a folder"),
        (["--chains", "/nowhere"], "--chains asked for a folder"),
        (["--chains", ".", "--datasets", "sphere"], "--datasets protein"),
        (["--published-data"], "--data DIR"),
        (["--data", "/nowhere"], "which is not a folder"),
        (["--address", "1.2.3.4:5"], "--executor ray"),
        (["--executor", "here", "--workers", "2"], "Leave one of them out"),
        (["--executor", "ray", "--address", "127.0.0.1:1"], "ray start --head"),
        (["--datasets", "disk", "--models", "exp-iaa"], "undefined on the disk"),
    ],
)
def test_bad_requests_are_refused_with_the_fix(tmp_path, capsys, args, words):
    assert main(["table", *args, "--out", str(tmp_path), "--epochs", "1"]) == 2
    assert words in capsys.readouterr().err


def test_a_folder_without_known_files_is_refused(tmp_path, capsys):
    assert main(["table", "--data", str(tmp_path), "--out", str(tmp_path / "o")]) == 2
    assert "sphere.npz" in capsys.readouterr().err


def test_a_users_own_data_and_a_bad_file(tmp_path, capsys):
    g = torch.Generator().manual_seed(0)
    arrays = {f"{a}_{s}": ib.Sphere(3).sample(50, generator=g).numpy() for a in "XY" for s in ("train", "val", "test")}
    np.savez(tmp_path / "sphere.npz", **arrays)
    args = ["table", "--datasets", "sphere", "--models", "proj-faa", "--epochs", "2", "--seeds", "1", "--depths", "2"]
    args += ["--executor", "here"]
    assert main([*args, "--data", str(tmp_path), "--out", str(tmp_path / "o")]) == 0
    row = json.loads((tmp_path / "o" / "table.json").read_text())["cells"][0]
    assert (row["rows"], row["split"]) == (50, "test")
    np.savez(tmp_path / "sphere.npz", **{**arrays, "X_val": np.full((50, 3), np.nan)})
    assert main([*args, "--data", str(tmp_path), "--out", str(tmp_path / "o")]) == 2
    assert "X_val asked for finite float32 numbers" in capsys.readouterr().err


def test_the_paper_preset_estimates_asks_and_starts(tmp_path, capsys):
    args = ["table", "--preset", "paper", "--datasets", "sphere", "--models", "regular", "--out", str(tmp_path)]
    args += ["--shipped", str(tmp_path)]  # nothing is shipped there
    assert main(args) == 0
    out = capsys.readouterr().out
    assert "Estimated time:" in out
    assert "Add --yes to start." in out
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.parametrize(("missing", "extra"), [("rich", "lab"), ("numpy", "lab"), ("ray", "ray")])
def test_without_the_extra_it_says_what_to_install_before_training(tmp_path, monkeypatch, capsys, missing, extra):
    """An interpreter in which one package cannot be imported; tests/test_extras.py has a real base install."""
    for name in [missing, *(m for m in sys.modules if m.startswith(f"{missing}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["table", "--datasets", "sphere", "--models", "regular", "--out", str(tmp_path), "--executor", "ray"]) == 2
    assert f"pip install 'inbounds[{extra}]'" in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*"))


def test_a_cell_that_fails_costs_its_own_row_only(tmp_path, capfd):
    """The velocity network diverged: the rows on it fail, the others are trained, shown and written; exit code 1."""
    args = ["table", "--datasets", "sphere", "--models", "flow-faa,proj-faa", "--epochs", "1", "--depths", "2", "--seeds", "1"]
    store, preset = Store(tmp_path), PRESETS["quick"].changed(1, (2,), 1)
    todo = units(preset, [prepare("sphere", store, preset.large)], ["flow-faa", "proj-faa"])
    for unit in todo:
        if unit.config["kind"] == "velocity":
            store.run(unit.config).finish({"val": None, "epoch": 1}, {})
    assert main([*args, "--out", str(tmp_path), "--executor", "here"]) == 1
    said = capfd.readouterr()
    assert "sphere flow-faa" in said.err and "diverged" in said.err
    rows = [c["row"] for c in json.loads((tmp_path / "table.json").read_text())["cells"]]
    assert rows == ["proj-faa"]


def test_the_time_left_is_not_made_of_rounding(tmp_path):
    """A unit that goes on from a checkpoint, at its first word: 0.7 + 0.1 x 3/7 - 0.7 - 0.1 x 3/7 is not 0."""
    todo = [Unit({"unit": 0}, cost=0.7), Unit({"unit": 1}, cost=0.1), Unit({"unit": 2}, cost=30.0)]
    for epoch in range(1, 40):
        watch = Progress(todo, Store(tmp_path), workers=1, out=io.StringIO())
        watch.done, watch.before = {key(todo[0].config)}, 0.7
        watch(Event("progress", key(todo[1].config), {"epoch": epoch, "epochs": 47}), todo[1])
        assert watch.left() == "about 30 s left"


def test_the_time_left_is_never_below_zero(tmp_path):
    """0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1: what is left after the last unit may round to less than nothing."""
    said = set()
    for order in itertools.permutations(range(6)):
        todo = [Unit({"unit": k}, cost=c) for k, c in enumerate((0.1, 0.2, 0.3, 0.7, 1.1, 1e-3))]
        watch = Progress(todo, Store(tmp_path), workers=1, out=io.StringIO())
        for k in order:
            watch(Event("done", key(todo[k].config)), todo[k])
        said.add(watch.left())
    assert said == {"about 0 s left"}
    assert [time_text(t) for t in (-0.0, -1e-17, -3.0, 0.4, 89.0)] == ["0 s", "0 s", "0 s", "0 s", "89 s"]
