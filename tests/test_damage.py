"""Damaged files of a run store: named, set aside, and the run goes on from what is sound."""

import json
import re
import shutil
import warnings

import pytest
import torch
from stores import ARGS, table
from test_store import Count

import inbounds as ib
from inbounds.cli import main
from inbounds.learned import Heat
from inbounds.learned.base import read
from inbounds.paper.datasets import open_pairs, prepare
from inbounds.train.files import Damaged, publish_json, publish_record, publish_tensors, read_record, read_tensors
from inbounds.train.store import Store
from inbounds.train.work import work

TENSORS = {"theta": torch.linspace(-1, 1, 30).reshape(2, 15), "epoch": torch.tensor(7), "frozen": torch.tensor([True, False])}
RESULT = {"val": [0.25, None, 1e-300], "epoch": [3, 4], "seconds": 1.5, "header": {"class": "Heat", "spec": {"shape": [3]}}}
CONFIG = {"job": "count"}


def cuts(data):
    """The file, truncated: nothing, within the length of the header, within the header, within the numbers, one byte short."""
    return [data[:n] for n in (0, 1, 7, 8, 9, len(data) // 4, len(data) // 2, len(data) - 1)]


def flips(data):
    """The file with one bit flipped, for every bit."""
    for place in range(8 * len(data)):
        wrong = bytearray(data)
        wrong[place // 8] ^= 1 << place % 8
        yield bytes(wrong)


def some(data):
    """Truncations, and bits flipped in the header's length, the header and the numbers."""
    every = list(flips(data))
    return [*cuts(data), every[3], every[8 * 40], every[8 * (len(data) // 2)], every[-1]]


# --- a file ----------------------------------------------------------------------------------------------
def test_tensors_with_any_bit_flipped_are_damaged_or_the_same(tmp_path):
    path = tmp_path / "t.safetensors"
    publish_tensors(path, TENSORS, {"seconds": 2.5})
    data, missed = path.read_bytes(), []
    for wrong in [*flips(data), *cuts(data)]:
        path.write_bytes(wrong)
        try:
            tensors, header = read_tensors(path)
        except Damaged as error:
            assert str(path) in str(error) and error.path == path
        else:
            assert header == {"seconds": 2.5} and tensors.keys() == TENSORS.keys()
            assert all(torch.equal(t, TENSORS[k]) and t.dtype == TENSORS[k].dtype for k, t in tensors.items())
            missed.append(wrong)
    assert len(missed) <= 8 * len("sha256")  # where the name of the checksum is hit, the rest is right but goes unchecked


def test_results_with_any_bit_flipped_are_damaged_or_the_same(tmp_path):
    path = tmp_path / "result.json"
    publish_record(path, RESULT)
    data = path.read_bytes()
    for wrong in [*flips(data), *cuts(data)[:-1]]:  # the last byte is a line feed
        path.write_bytes(wrong)
        try:
            found = read_record(path)
        except Damaged as error:
            assert str(path) in str(error)
        else:
            assert {k: found[k] for k in RESULT} == RESULT


def test_files_of_earlier_versions_are_read(tmp_path):
    """They have no checksum."""
    from safetensors.torch import save_file

    save_file(TENSORS, tmp_path / "t.safetensors", {"header": json.dumps({"seconds": 1.0})})
    publish_json(tmp_path / "r.json", RESULT)
    tensors, header = read_tensors(tmp_path / "t.safetensors")
    assert header == {"seconds": 1.0} and torch.equal(tensors["theta"], TENSORS["theta"])
    assert read_record(tmp_path / "r.json") == RESULT


def test_tensors_that_were_read_do_not_hold_the_file(tmp_path):
    """Windows refuses to replace a file that is mapped into memory; here its numbers would change under us."""
    publish_tensors(tmp_path / "t.safetensors", TENSORS)
    tensors, _ = read_tensors(tmp_path / "t.safetensors")
    with open(tmp_path / "t.safetensors", "r+b") as file:
        file.write(b"\xff" * (tmp_path / "t.safetensors").stat().st_size)
    assert all(torch.equal(t, TENSORS[k]) for k, t in tensors.items())


def test_a_learned_set_with_any_bit_flipped_is_refused_or_the_same(tmp_path):
    """Nothing else would notice: another number makes another set."""
    path, M = tmp_path / "set.safetensors", Heat(torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(3, 2), 0.1, (2,))
    M.save(path)
    data, was = path.read_bytes(), read(path)
    for wrong in [*flips(data), *cuts(data)]:
        path.write_bytes(wrong)
        try:
            header, tensors = read(path)
        except ValueError as error:
            assert str(path) in str(error)
        else:
            assert header == was[0] and all(torch.equal(t, was[1][k]) for k, t in tensors.items())
    path.write_bytes(data)
    assert torch.equal(ib.load(path).project(torch.ones(2)), M.project(torch.ones(2)))


# --- a run -----------------------------------------------------------------------------------------------
def stopped(folder):
    """A run that was stopped after 6 of 9 epochs, each with a checkpoint."""
    store = Store(folder, pause=-1)
    with pytest.raises(KeyboardInterrupt):
        work(CONFIG, store, lambda c, s: Count(9, stop=6))
    return store, store.run(CONFIG)


def finished(folder):
    store = Store(folder, pause=-1)
    work(CONFIG, store, lambda c, s: Count(9))
    return store, store.run(CONFIG)


def go_on(store):
    """Run to the end; returns the notes and how many epochs were done."""
    notes, Count.advanced = [], 0
    work(CONFIG, store, lambda c, s: Count(9), lambda event: notes.append(event["note"]) if "note" in event else None)
    run = store.run(CONFIG)
    assert run.whole and run.result["value"] == 9 and torch.equal(run.weights()["w"], torch.zeros(1))
    lines = [json.loads(line)["epoch"] for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert lines == list(range(1, 10))
    return notes, Count.advanced


def test_a_damaged_checkpoint_is_named_set_aside_and_the_run_starts_again(tmp_path):
    _, run = stopped(tmp_path / "once")
    path = run.folder / "checkpoint.safetensors"
    for k, wrong in enumerate(some(path.read_bytes())):
        store, run = stopped(tmp_path / str(k))
        path = run.folder / "checkpoint.safetensors"
        path.write_bytes(wrong)
        notes, advanced = go_on(store)
        assert len(notes) == 1 and f"{path} is damaged and was set aside as {path.name}.aside: this run starts again" in notes[0]
        assert path.with_name(f"{path.name}.aside").read_bytes() == wrong and advanced == 9


def test_a_damaged_result_comes_back_from_the_weights_without_work(tmp_path):
    _, run = finished(tmp_path / "once")
    was = run.result
    for k, wrong in enumerate(some((run.folder / "result.json").read_bytes())[:-1]):
        store = Store(shutil.copytree(tmp_path / "once", tmp_path / str(k)))
        path = store.run(CONFIG).folder / "result.json"
        path.write_bytes(wrong)
        if store.run(CONFIG).result == was:
            continue  # a blank more or less
        assert not store.run(CONFIG).done
        notes, advanced = go_on(store)
        assert len(notes) == 1 and f"{path} is damaged and was set aside as result.json.aside" in notes[0]
        assert advanced == 0 and store.run(CONFIG).result == was
        assert path.with_name("result.json.aside").read_bytes() == wrong


def test_damaged_weights_are_named_set_aside_and_made_again(tmp_path):
    _, run = finished(tmp_path / "once")
    data = (run.folder / "weights.safetensors").read_bytes()
    for k, wrong in enumerate([*some(data), None]):
        store = Store(shutil.copytree(tmp_path / "once", tmp_path / str(k)))
        path = store.run(CONFIG).folder / "weights.safetensors"
        path.unlink() if wrong is None else path.write_bytes(wrong)
        if wrong is not None:
            with pytest.raises(Damaged, match=re.escape(str(path))):
                store.run(CONFIG).weights()
        notes, advanced = go_on(store)
        assert "result.json was set aside" in notes[0] and str(path) in notes[1] and len(notes) == 2
        assert advanced == 9 and (path.parent / "result.json.aside").exists()
        assert wrong is None or path.with_name(f"{path.name}.aside").read_bytes() == wrong


def test_weights_and_result_damaged_together_are_made_again(tmp_path):
    store, run = finished(tmp_path)
    for _ in range(2):  # the second time beside the files of the first
        for name in ("weights.safetensors", "result.json"):
            (run.folder / name).write_bytes((run.folder / name).read_bytes()[:30])
        notes, advanced = go_on(store)
        assert "result.json" in notes[0] and "weights.safetensors" in notes[1] and advanced == 9
    assert (run.folder / "result.json.aside2").exists() and (run.folder / "weights.safetensors.aside2").exists()


def test_a_checkpoint_of_another_job_is_set_aside(tmp_path):
    """Whole, but without what this job asks for: of an older version, or copied there."""
    store, run = stopped(tmp_path)
    publish_tensors(run.folder / "checkpoint.safetensors", {"other": torch.zeros(2)}, {"seconds": 1.0, "metrics": 0})
    notes, advanced = go_on(store)
    assert "checkpoint.safetensors does not fit (KeyError: 'epoch')" in notes[0] and advanced == 9


def test_a_half_line_of_metrics_is_cut_off(tmp_path):
    store, run = stopped(tmp_path)
    lines = run.folder / "metrics.jsonl"
    kept = lines.read_bytes().splitlines(keepends=True)
    lines.write_bytes(b"".join(kept[:5]) + kept[5][:4])
    work(CONFIG, store, lambda c, s: Count(9))
    assert [json.loads(line)["epoch"] for line in lines.read_text().splitlines()] == [1, 2, 3, 4, 5, 7, 8, 9]


def test_without_a_report_the_notes_are_warnings(tmp_path):
    store, run = stopped(tmp_path)
    (run.folder / "checkpoint.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"checkpoint\.safetensors is damaged"):
        work(CONFIG, store, lambda c, s: Count(9))


# --- the data and the command ----------------------------------------------------------------------------
def test_damaged_data_are_made_anew(tmp_path):
    store = Store(tmp_path)
    reference = prepare("disk", store, 50)
    was = open_pairs(reference, store)
    for path in sorted((tmp_path / "data").iterdir()):
        for n, wrong in enumerate(cuts(path.read_bytes())[:-1], 1):
            path.write_bytes(wrong)
            with pytest.warns(UserWarning, match=rf"{re.escape(str(path))} is damaged"):
                assert prepare("disk", store, 50) == reference
            assert torch.equal(open_pairs(reference, store).x, was.x)
            assert path.with_name(f"{path.name}.aside{n if n > 1 else ''}").read_bytes() == wrong


def test_the_command_mends_a_damaged_store_and_says_what_it_did(tmp_path, harmless, undisturbed, capsys):
    """A stack's weights, with the test that needs them lost; another test's result; the data."""
    store = shutil.copytree(harmless, tmp_path / "store")
    kinds = {p.parent: json.loads(p.read_text()) for p in store.glob("runs/*/config.json")}
    tests = [run for run, config in kinds.items() if config["kind"] == "test"]
    stacks = [run for run, c in kinds.items() if c["kind"] == "stack" and c["row"] == kinds[tests[0]]["row"]]
    files = [run / "weights.safetensors" for run in (*stacks, tests[0])] + [run / "result.json" for run in tests]
    files += list((store / "data").glob("*.safetensors"))
    for path in files:
        path.write_bytes(path.read_bytes()[:-100])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert main(["table", *ARGS, "--executor", "here", "--out", str(store)]) == 0
    said = "".join([*capsys.readouterr(), *(str(w.message) for w in told)])
    assert all(str(path) in said for path in files)
    assert all(path.with_name(f"{path.name}.aside").exists() for path in files)
    assert table(store) == undisturbed
