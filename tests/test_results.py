"""What was trained comes back: cells by name, runs by name; what is there is not trained again."""

import json
import sys

import pytest
import torch

import inbounds as ib
from inbounds.cli import main
from inbounds.learned import Flow, FlowTraining
from inbounds.learned.flow import VelocityNet
from inbounds.paper import open_cell
from inbounds.paper.cells import chosen_flow
from inbounds.paper.datasets import _keep
from inbounds.paper.distil import Distillation
from inbounds.paper.presets import PRESETS
from inbounds.paper.units import velocity_configs
from inbounds.train import Member, Problem, Protocol, StackTraining, mse
from inbounds.train.files import publish_json, publish_record, publish_tensors, read_record
from inbounds.train.store import Store, key

ROWS = "regular,proj-iaa,prob,exp-faa"
QUICK = ["table", "--datasets", "so3", "--depths", "2,3", "--decays", "0", "--executor", "here"]


def table(out, *more):
    assert main([*QUICK, *more, "--out", str(out)]) == 0
    return {c["row"]: c for c in json.loads((out / "table.json").read_text())["cells"]}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    out = tmp_path_factory.mktemp("store")
    return out, table(out, "--models", ROWS, "--epochs", "3", "--seeds", "2")


def trained(out):
    """Every stack that is there, by name and time of its result."""
    return {p.parent.name: p.stat().st_mtime_ns for p in out.glob("runs/*/last.safetensors")}


@pytest.mark.parametrize("row", ROWS.split(","))
def test_an_opened_cell_reproduces_the_tables_own_numbers(store, row):
    out, cells = store
    cell, shown = open_cell(out, "so3", row), cells[row]
    x, y = cell.data[shown["split"]]
    for seed in (0, 1):
        p = cell.predict(x[: shown["rows"]], seed).double()
        assert float((p - y[: shown["rows"]].double()).square().mean()) == pytest.approx(shown["mse_by_seed"][seed], rel=1e-6)
        found = float(cell.data.set.violation(p).mean())
        assert found == pytest.approx(shown["violation_by_seed"][seed], rel=1e-4, abs=1e-9)
        curve = cell.curves[seed]
        assert min(curve["val"]) == pytest.approx(shown["val_by_seed"][seed], rel=1e-9)
        assert curve["epoch"][curve["val"].index(min(curve["val"]))] == shown["best_epoch_by_seed"][seed]
    assert (cell.result["depth"], cell.config["row"]) == (shown["depth"], row)
    assert row in repr(cell)


def test_layers_show_where_a_network_leaves_the_set(store):
    out, _ = store
    cells = {row: open_cell(out, "so3", row) for row in ("regular", "proj-iaa", "exp-faa")}
    x = cells["regular"].data["val"][0]
    layers = {row: c.layers(x) for row, c in cells.items()}
    for row, found in layers.items():
        depth = cells[row].result["depth"]
        assert len(found.states) == depth + (2 if row == "exp-faa" else 1)
        assert torch.equal(found.states[-1], cells[row].predict(x))
        assert found.movement.shape == (len(found.states) - 1, len(x))
    assert layers["proj-iaa"].violation.max() < 1e-5
    assert layers["regular"].violation[1:].mean() > 1e-3
    assert layers["exp-faa"].violation[-1].max() < 1e-5 < layers["exp-faa"].violation[1:-1].mean()


def test_a_cell_that_is_not_there_says_what_is(store):
    out, _ = store
    with pytest.raises(FileNotFoundError, match="so3 regular"):
        open_cell(out, "so3", "exp-iaa")
    with pytest.raises(ValueError, match="row among regular"):
        open_cell(out, "so3", "proj")
    with pytest.raises(FileNotFoundError, match="runs/quick"):
        open_cell(out / "nowhere", "so3", "regular")


def test_cells_say_what_made_them(store):
    out, cells = store
    for c in cells.values():
        assert c["made_by"]["torch"] == torch.__version__
        assert set(c["made_by"]) == {"inbounds", "commit", "torch", "python"}
        assert len(c["data"]) == 16
        assert c["seconds"] > 0
    text = (out / "table.csv").read_text().splitlines()
    assert {"mse_by_seed", "val_by_seed", "violation_by_seed", "commit", "torch", "data", "seconds"} <= set(text[0].split(","))


def test_more_seeds_train_the_new_ones_alone(tmp_path):
    one = table(tmp_path, "--models", "regular", "--epochs", "2", "--seeds", "1")["regular"]
    before = trained(tmp_path)
    three = table(tmp_path, "--models", "regular", "--epochs", "2", "--seeds", "3")["regular"]
    after = trained(tmp_path)
    assert {k: after[k] for k in before} == before
    new = [json.loads((tmp_path / "runs" / k / "config.json").read_text()) for k in set(after) - set(before)]
    assert [m[0] for c in new for m in c["members"]] == [1, 2, 1, 2]
    assert three["seeds"] == 3
    if three["depth"] == one["depth"]:
        assert three["mse_by_seed"][0] == one["mse_by_seed"][0]
    again = trained(tmp_path)
    table(tmp_path, "--models", "regular", "--epochs", "2", "--seeds", "1")  # and fewer find theirs
    assert trained(tmp_path) == again


def test_more_epochs_go_on_from_fewer_and_end_where_an_undisturbed_run_ends(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    table(a, "--models", "proj-iaa", "--epochs", "3", "--seeds", "1")
    longer = table(a, "--models", "proj-iaa", "--epochs", "5", "--seeds", "1")["proj-iaa"]
    whole = table(b, "--models", "proj-iaa", "--epochs", "5", "--seeds", "1")["proj-iaa"]
    assert longer["mse_by_seed"] == whole["mse_by_seed"]
    assert longer["val_by_seed"] == whole["val_by_seed"]
    results = [json.loads(p.read_text()) for p in a.glob("runs/*/result.json")]
    assert sorted(r["resumed_from"] for r in results if "diverged" in r and isinstance(r["diverged"], list)) == [0, 3]
    assert len(open_cell(a, "so3", "proj-iaa").curves[0]["epoch"]) == 5


def test_shipped_runs_are_found_on_another_machine_and_never_run_again(tmp_path):
    home, ship, away = tmp_path / "home", tmp_path / "ship", tmp_path / "away"
    args = ["--models", "regular", "--epochs", "2", "--seeds", "1"]
    made = table(home, *args, "--export", str(ship))["regular"]
    found = table(away, *args, "--shipped", str(ship))["regular"]
    assert not list(away.glob("runs/*"))
    assert found == made
    cell = open_cell(ship, "so3", "regular")
    x = cell.data["test"][0]
    mine = open_cell(home, "so3", "regular")
    assert torch.equal(cell.predict(x), mine.predict(x))
    assert {p.name for p in next(ship.glob("so3-regular-depths-*")).iterdir()} == {
        "config.json", "metrics.jsonl", "result.json", "weights.safetensors"
    }  # fmt: skip


def test_data_that_differ_in_their_last_bits_are_the_same_data(tmp_path):
    """Another machine may sum in another order: shipped runs are found by the recipe of their data."""
    home, ship, away = tmp_path / "home", tmp_path / "ship", tmp_path / "away"
    args = ["--models", "regular", "--epochs", "1", "--seeds", "1"]
    table(home, *args, "--export", str(ship))
    (request,) = ship.glob("data/*.json")
    reference = read_record(request)
    other = {**reference, "fingerprint": "0" * 16}  # as if it had been made there
    publish_record(request, other)
    for folder in list(ship.glob("so3-*")):
        text = (folder / "config.json").read_text().replace(reference["fingerprint"], "0" * 16)
        config = json.loads(text)
        folder.rename(ship / f"moved-{key(config)}")
        publish_json(ship / f"moved-{key(config)}" / "config.json", config)
    table(away, *args, "--shipped", str(ship))
    assert not list(away.glob("runs/*"))


def test_chains_of_ones_own_are_a_protein_dataset_and_marked_as_other_data(tmp_path, capsys):
    """A ProteinNet file of 8 of the shipped chains: fewer pairs than the paper's, so a share of its splits."""
    from test_protein import record

    from inbounds.data.backbone import shipped_chains

    (tmp_path / "chains").mkdir()
    chains = [c for c in shipped_chains() if not c.atoms.isnan().any()][:8]
    (tmp_path / "chains" / "training_30").write_text("".join(record(c, f"{i + 1:04d}_1_A") for i, c in enumerate(chains)))
    args = ["table", "--datasets", "protein", "--models", "proj-faa", "--epochs", "1", "--depths", "2", "--seeds", "1"]
    args += ["--executor", "here", "--out", str(tmp_path / "out")]
    assert main([*args, "--chains", str(tmp_path / "chains")]) == 0
    (cell,) = json.loads((tmp_path / "out" / "table.json").read_text())["cells"]
    assert cell["feasible"]
    assert 20 < cell["rows"] < 1_200
    assert cell["other_data"]
    assert "from" in capsys.readouterr().out


def test_a_star_marks_other_data_only_where_it_is_other_data(tmp_path):
    import numpy as np

    g = torch.Generator().manual_seed(0)
    np.savez(
        tmp_path / "sphere.npz",
        **{f"{a}_{s}": ib.Sphere(3).sample(50, generator=g).numpy() for a in "XY" for s in ("train", "val", "test")},
    )
    args = ["table", "--datasets", "sphere,disk", "--models", "proj-faa", "--epochs", "1", "--depths", "1", "--seeds", "1"]
    args += ["--data", str(tmp_path), "--out", str(tmp_path / "out"), "--executor", "here"]
    for more, marked in (([], [True, False]), (["--published-data"], [False, False])):
        assert main([*args, *more]) == 0
        cells = json.loads((tmp_path / "out" / "table.json").read_text())["cells"]
        assert [c["other_data"] for c in cells] == marked


def test_finished_cells_are_shown_and_nothing_is_trained(tmp_path, capsys):
    args = ["--models", "regular,proj-iaa", "--epochs", "2", "--seeds", "1"]
    table(tmp_path, *args[:1], "regular", *args[2:])
    before = sorted(tmp_path.glob("runs/*"))
    capsys.readouterr()
    assert list(table(tmp_path, *args, "--finished")) == ["regular"]
    assert "not finished: so3 proj-iaa depths 3,2 seeds 0, 0 of 2 epochs" in capsys.readouterr().out
    assert sorted(tmp_path.glob("runs/*")) == before


def test_the_overview_says_how_much_of_the_protocol_a_cell_has_seen():
    from test_table import cell

    from inbounds.paper.table import overview, protocol_overview

    short, whole = cell(dataset="so3", steps=8_000), cell(dataset="so3", steps=80_000, mse=0.11)
    other = cell(steps=800)
    assert protocol_overview([short, whole]) == overview([whole])  # the furthest training stands for the cell
    assert "at 10 % |" in protocol_overview([short])
    text = protocol_overview([short, other]).splitlines()[2]
    assert text.count(" at ") == 2
    assert text.endswith("at 1 % |")


# --- inbounds runs ---------------------------------------------------------------------------------------
def test_runs_are_listed_by_name_and_pruned(tmp_path, capsys):
    table(tmp_path, "--models", "regular", "--epochs", "2", "--seeds", "1")
    store = Store(tmp_path)
    done = next(c for c in store.configs() if c["kind"] == "stack")
    begun = {**done, "row": "proj-iaa"}
    publish_json(store.run(begun).folder / "config.json", begun)
    publish_tensors(store.run(begun).folder / "checkpoint.safetensors", {"epoch": torch.tensor(1)}, {"seconds": 2.0})
    capsys.readouterr()
    assert main(["runs", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "so3 regular depths 3,2 seeds 0 epochs 2" in said
    assert "1 of 2 epochs" in said
    assert "1 unfinished" in said
    assert store.run(begun).folder.exists()
    with store.run(begun).lock():
        main(["runs", str(tmp_path), "--prune"])
    assert "being worked on" in capsys.readouterr().out
    main(["runs", str(tmp_path), "--prune"])
    assert "Removed 1 runs" in capsys.readouterr().out
    assert not store.run(begun).folder.exists()
    assert store.run(done).done
    assert main(["runs", str(tmp_path / "nowhere")]) == 2


# --- estimate and log ------------------------------------------------------------------------------------
def test_the_estimate_is_by_row_and_says_what_the_flow_rows_add(tmp_path, capsys):
    args = ["table", "--preset", "paper", "--datasets", "sphere,disk", "--models", "regular,flow-faa", "--out", str(tmp_path)]
    args += ["--shipped", str(tmp_path)]  # nothing is shipped there
    assert main(args) == 0
    said = capsys.readouterr().out
    assert "sphere regular" in said
    assert "disk regular" in said
    assert "Flow rows" in said
    assert "of it without the Flow rows" in said
    assert not list(tmp_path.glob("runs/*"))


def small_training(**how):
    x = ib.SO(3).sample(40, generator=torch.Generator().manual_seed(0))
    net = lambda: ib.IAA([ib.MLPBlock((3, 3), 9)], ib.Projection(ib.SO(3)))  # noqa: E731
    return StackTraining(
        Problem(net, x, x, x, x, mse, lambda o: o), Protocol(epochs=4, batch=20, every=2), [Member(0), Member(1)], **how
    )


def test_a_log_gets_every_line_of_metrics():
    lines = []
    training = small_training(log=lines.append)
    while not training.done:
        training.advance()
    assert [line["epoch"] for line in lines] == [2, 4]
    assert len(lines[0]["val"]) == 2


def test_tensorboard_files_hold_every_line_of_metrics(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from inbounds.train import tensorboard

    lines, write = [], tensorboard(tmp_path, names=["a", "b"])
    training = small_training(log=lambda line: (lines.append(line), write(line)))
    while not training.done:
        training.advance()
    found = EventAccumulator(str(tmp_path)).Reload()
    assert {"val/a", "val/b", "lr/a"} <= set(found.Tags()["scalars"])
    for k, name in enumerate("ab"):
        curve = [(e.step, e.value) for e in found.Scalars(f"val/{name}")]
        assert curve == [(line["epoch"], pytest.approx(line["val"][k], rel=1e-6)) for line in lines]


def test_tensorboard_without_the_package_says_what_to_install(tmp_path, monkeypatch):
    from inbounds.train import tensorboard

    for name in [m for m in sys.modules if m.split(".")[0] == "tensorboard" or m.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ModuleNotFoundError, match="pip install tensorboard"):
        tensorboard(tmp_path)


# --- flow rows -------------------------------------------------------------------------------------------
def test_the_flow_is_chosen_by_the_longest_displacements(tmp_path):
    """A flow trained on short displacements alone does not bring far points home: the one of the longer T is chosen."""
    from inbounds import data

    pairs = data.sphere({"train": 60, "val": 200, "test": 20, "large": 30})
    store = Store(tmp_path)
    store.prepare()
    configs = velocity_configs(PRESETS["standard"], _keep(pairs, store))[:2]

    for config, (T, radius) in zip(configs, [(0.5, 0.25), (2.0, 1.0)], strict=True):
        training = FlowTraining(
            *(pairs[s][0] for s in ("train", "val")), alpha=T / 2, epochs=30, batches=40, width=32, depth=2, dropout=0.0
        )
        while not training.done:
            training.advance()
        flow = training.flow()
        publish_tensors(store.run(config).folder / "weights.safetensors", flow.tensors())
        publish_json(store.run(config).folder / "result.json", {"val": 0.1, "spec": flow.spec(), "radius": radius})
    flow, radius = chosen_flow(configs, pairs, store, euler=8)
    assert (flow.T, radius) == (pytest.approx(2.0, rel=0.01), 1.0)


def test_the_distilled_network_imitates_the_flow():
    x = ib.Sphere(3).sample(500, generator=torch.Generator().manual_seed(0))
    training = FlowTraining(x[:400], x[400:], alpha=0.5, epochs=6, batches=50, width=32, depth=1, dropout=0.0)
    while not training.done:
        training.advance()
    distillation = Distillation(training.flow(), x, training.radius, epochs=6, points=4_000, width=32, depth=1)
    before = distillation.advance()["val"]
    while not distillation.done:
        distillation.advance()
    assert distillation.error < 0.05 < before + 0.05
    P = distillation.set()
    far = x[:50] * 1.3
    assert (P.project(far) - distillation.flow._walk(far)).norm(dim=1).mean() < 0.05
    assert not P.exact


def test_distilled_far_out_it_imitates_the_flow_far_out():
    """What the flow does at three radii from M is not what the network guesses there, unless it was shown."""
    x = ib.Sphere(3).sample(500, generator=torch.Generator().manual_seed(0))
    training = FlowTraining(x[:400], x[400:], alpha=0.5, epochs=6, batches=50, width=32, depth=1, dropout=0.0)
    while not training.done:
        training.advance()
    off = {}
    for far in (1.0, 4.0):
        distillation = Distillation(training.flow(), x, training.radius, epochs=6, far=far, points=4_000, width=32, depth=1)
        while not distillation.done:
            distillation.advance()
        out = x * (1 + 3 * training.radius)
        off[far] = float((distillation.set().project(out) - distillation.flow._walk(out)).norm(dim=1).mean())
    assert off[4.0] < 0.5 * off[1.0]


def test_an_input_that_is_in_the_set_may_be_left_where_it_is():
    flow = Flow(VelocityNet(3, 8, 1), (3,), T=1.0, steps=3)
    x = ib.Sphere(3).sample(5)
    blocks = [ib.MLPBlock(3, 3)]
    assert torch.equal(ib.IAA(blocks, ib.Projection(flow), project_input=False).states(x)[0], x)
    assert not torch.equal(ib.IAA(blocks, ib.Projection(flow)).states(x)[0], x)


def test_a_walk_is_kept_where_memory_allows_and_gives_the_same_gradient(monkeypatch):
    from inbounds.learned import flow as module

    flow = Flow(VelocityNet(3, 8, 1).double(), (3,), T=1.0, steps=3)
    walks, walk = [], Flow._walk
    monkeypatch.setattr(Flow, "_walk", lambda self, *a: (walks.append(1), walk(self, *a))[1])
    gradients = []
    for kept in (module.KEPT, 0):
        monkeypatch.setattr(module, "KEPT", kept)
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
        walks.clear()
        gradients.append(torch.autograd.grad(flow.project(x).sum(), x)[0])
        gradients.append(len(walks))
    assert gradients[1::2] == [1, 2]
    assert torch.equal(gradients[0], gradients[2])
