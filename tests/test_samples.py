"""What comes in and goes out: samples of every kind, files that are not what they say, the commands' messages."""

import json
import math
import sys
from argparse import Namespace
from functools import cache

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import inbounds as ib
from inbounds.learned import Flow, VelocityNet, command
from inbounds.learned.heat import Heat
from inbounds.learned.hull import Hull
from inbounds.learned.local import Local
from inbounds.learned.samples import checked, gather
from inbounds.learned.within import Within

G = torch.Generator


def points(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=G().manual_seed(seed))


# --- samples -------------------------------------------------------------------------------------------------
def test_python_numbers_keep_their_digits():
    x = points(30, 2)
    assert torch.equal(checked(x.tolist()), x)
    assert torch.equal(checked(tuple(map(tuple, x.tolist()))), x)
    assert torch.equal(checked([[1, 2], [3, 4]]), torch.tensor([[1.0, 2], [3, 4]], dtype=torch.float64))


def test_rows_of_arrays_and_tensors():
    x = points(30, 2)
    assert torch.equal(checked(list(x)), x) and torch.equal(checked(list(x.numpy())), x)
    assert torch.equal(checked(list(x.requires_grad_())), x.detach())


def test_arrays_of_every_layout():
    x = points(30, 2).numpy()
    frozen = x.copy()
    frozen.setflags(write=False)
    for array in (x[::-1], x[:, ::-1], x[::2], np.asfortranarray(x), x.astype(">f8"), frozen):
        assert np.array_equal(checked(array).numpy(), array)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (points(30, 2) * 1j, r"real numbers, got torch\.complex128.*torch\.view_as_real\(samples\)"),
        ([[1j, 2.0]] * 30, r"real numbers, got torch\.complex"),
        ((points(30, 2) * 1j).numpy(), r"real numbers, got torch\.complex128"),
        (points(30, 2).long(), r"floating point samples, got torch\.int64. Write samples\.double\(\)"),
        (np.ones((30, 2), dtype=int), r"floating point samples, got torch\.int64"),
        (points(30, 2) > 0, r"floating point samples, got torch\.bool"),
        ("points.npy", "a tensor or an array of samples, got str"),
        (None, "a tensor or an array of samples, got NoneType"),
        ([["a", "b"]] * 30, "a tensor or an array of samples, got list"),
        ([[1.0, 2.0], [3.0]], "a tensor or an array of samples, got list"),
    ],
)
def test_samples_of_the_wrong_kind(samples, message):
    with pytest.raises(TypeError, match=message):
        checked(samples)


@pytest.mark.parametrize("wrong", [3, "0", np.random.default_rng(0)])
def test_generators_of_the_wrong_kind(wrong):
    with pytest.raises(TypeError, match=r"a torch\.Generator, got .*torch\.Generator\(\)\.manual_seed\("):
        ib.fit(points(30, 2), generator=wrong)


def test_finite_sets():
    """Few points, many rows: more of them would not help."""
    five = points(5, 3)
    with pytest.raises(ValueError, match=r"got 5 different points in 500 rows: a finite set.*cdist\(.*argmin"):
        ib.fit(five.repeat(100, 1))
    with pytest.raises(ValueError, match=r"got 19 different points in 57 rows: a finite set"):
        ib.fit(points(19, 3).repeat(3, 1))
    with pytest.raises(ValueError, match=r"got 19 \(of 38 rows\)\. Give it more"):
        ib.fit(points(19, 3).repeat(2, 1))


def test_what_to_do_about_finite_sets_works():
    samples = points(5, 2, 3).repeat(100, 1, 1)
    with pytest.raises(ValueError, match="finite set") as error:
        ib.fit(samples)
    code = str(error.value).split("Write ")[1].removesuffix(".")
    x = samples[7:9] + 1e-3
    assert torch.equal(eval(code, {"samples": samples, "x": x, "torch": torch}), samples[7:9])


def test_copies_among_many_are_dropped():
    assert gather(points(40, 2).repeat(9, 1), G().manual_seed(0)).copies == 320


# --- files ---------------------------------------------------------------------------------------------------
@cache
def kept(name):
    """A set of every kind that is kept in files."""
    x = points(60, 2)
    if name == "algebraic":
        return ib.fit(torch.nn.functional.normalize(x, dim=1), "algebraic")
    if name == "flow":
        return Flow(VelocityNet(2, 8, 1), (2,), 0.5, steps=3, samples=x).eval()
    inner = {"heat": Heat(x, 0.1, (2,)), "hull": Hull.fit(x), "local": Local.fit(x, (2,), 1, 20, 2)}
    return inner[name] if name in inner else Within(inner["hull"], (3,), points(3), torch.eye(3, 2).double(), 0.5)


def corrupt(path, change):
    """The file rewritten after change(header, tensors), which may return another header."""
    with safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["inbounds"])
        tensors = {k: file.get_tensor(k).clone() for k in file.keys()}
    header = change(header, tensors) or header
    save_file(tensors, path, {"inbounds": json.dumps(header)})


@pytest.mark.parametrize("name", ["algebraic", "flow", "heat", "hull", "local", "within"])
def test_round_trip(name, tmp_path):
    M, x = kept(name), 2 * points(9, *kept(name).shape)
    M.save(tmp_path / "set")
    again = ib.load(tmp_path / "set")
    assert torch.equal(again.project(x), M.project(x)) and again.reach == M.reach and again.info == M.info
    assert repr(again) == repr(M)


def put(*keys, value):
    """header[k0][k1].. = value"""

    def change(header, tensors):
        for k in keys[:-1]:
            header = header[k]
        header[keys[-1]] = value

    return change


def swap(name, f):
    def change(header, tensors):
        tensors[name] = f(tensors[name]).contiguous()

    return change


HEADERS = {
    "text for a format": (put("format", value="1"), "format"),
    "no format": (put("format", value=None), "format"),
    "format 0": (put("format", value=0), "format"),
    "list for a class": (put("class", value=["a"]), "class"),
    "text for spec": (put("spec", value="x"), "spec"),
    "text for reach": (put("reach", value="x"), "reach"),
    "negative reach": (put("reach", value=-1.0), "reach"),
    "nan for reach": (put("reach", value=math.nan), "reach"),
    "no info": (put("info", value=None), "info"),
    "unknown class": (put("class", value="Blob"), "Blob"),
    "class of torch": (put("class", value="Module"), "Module"),
    "not an object": (lambda header, tensors: [1], "without the header"),
}
WITHIN = {
    "wrong shape": (put("spec", "shape", value=[2]), "shape"),
    "text for shape": (put("spec", "shape", value="3"), "shape"),
    "fraction for shape": (put("spec", "shape", value=[3.5]), "shape"),
    "negative shape": (put("spec", "shape", value=[-1, -3]), "shape"),
    "text for unit": (put("spec", "unit", value="1"), "unit"),
    "unit 0": (put("spec", "unit", value=0.0), "unit"),
    "infinite unit": (put("spec", "unit", value=math.inf), "unit"),
    "unknown inner": (put("spec", "inner", value="blob"), "blob"),
    "list for inner": (put("spec", "inner", value=["hull"]), "inner"),
    "no inner spec": (put("spec", "of", value=None), "of"),
    "more for the inner one": (put("spec", "of", value={"colour": 1}), "colour"),
    "no shape": (lambda header, tensors: header["spec"].pop("shape") and None, "shape"),
    "cut frame": (swap("frame", lambda t: t[:, :1]), "frame"),
    "short frame": (swap("frame", lambda t: t[:1]), "frame"),
    "short centre": (swap("center", lambda t: t[:1]), "center|frame"),
    "frame with nan": (swap("frame", lambda t: t * math.nan), "frame"),
    "frame of whole numbers": (swap("frame", lambda t: t.long()), "frame"),
    "no frame": (lambda header, tensors: tensors.pop("frame") is None or None, "frame"),
    "cut facets": (swap("inner.facets", lambda t: t[1:]), "facets|normals"),
    "no facets": (lambda header, tensors: tensors.pop("inner.facets") is None or None, "facets"),
}
ALGEBRAIC = {
    "text for degree": (put("spec", "degree", value="2"), "degree"),
    "huge degree": (put("spec", "degree", value=40), "C"),
    "fraction for degree": (put("spec", "degree", value=2.0), "degree"),
    "text for tolerance": (put("spec", "tolerance", value="x"), "tolerance"),
    "short scale": (swap("scale", lambda t: t[:1]), "scale"),
    "cut W": (swap("W", lambda t: t[:3]), "W"),
    "cut tau": (swap("tau", lambda t: t[:0]), "tau"),
    "flat samples": (swap("samples", lambda t: t[:, 0]), "samples"),
    "no samples": (swap("samples", lambda t: t[:0]), "samples|W"),
}
OTHERS = {
    "heat": (put("spec", "t", value=-1.0), "t"),
    "local": (put("spec", "blend", value="3"), "blend"),
    "hull": (swap("offsets", lambda t: t[1:]), "offsets"),
    "flow": (put("spec", "net", "width", value=9), "size mismatch"),
}
WRONG = [("within", k, *v) for k, v in {**HEADERS, **WITHIN}.items()]
WRONG += [("algebraic", k, *v) for k, v in ALGEBRAIC.items()] + [(k, "part", *v) for k, v in OTHERS.items()]


@pytest.mark.parametrize(("name", "case", "change", "word"), WRONG, ids=[f"{w[0]}: {w[1]}" for w in WRONG])
def test_files_that_are_wrong_say_so(name, case, change, word, tmp_path):
    path = tmp_path / "set.safetensors"
    kept(name).save(path)
    corrupt(path, change)
    with pytest.raises(ValueError, match=word) as error:
        ib.load(path)
    said = str(error.value)
    assert said.startswith("load asked for") and str(path) in said and len(said) < 400 + len(str(path))


@pytest.mark.parametrize("name", ["algebraic", "hull", "within"])
def test_files_in_single_precision(name, tmp_path):
    path = tmp_path / "set.safetensors"
    kept(name).save(path)
    corrupt(path, lambda header, tensors: tensors.update({k: t.float() for k, t in tensors.items()}))
    M, x = ib.load(path), points(9, *kept(name).shape)
    torch.testing.assert_close(M.project(x), kept(name).project(x), rtol=0, atol=1e-5)


def test_folders_are_not_files(tmp_path):
    with pytest.raises(IsADirectoryError, match=r"load asked for a file.*which is a folder"):
        ib.load(tmp_path)
    with pytest.raises(IsADirectoryError, match=r"save asked for a file.*which is a folder.*set\.safetensors"):
        kept("hull").save(tmp_path)
    assert not list(tmp_path.iterdir()) and not list(tmp_path.parent.glob(".*.tmp"))


# --- every finite x, and others ------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["algebraic", "heat", "hull", "local", "within"])
def test_from_as_far_as_numbers_go(name):
    M = kept(name)
    x = torch.nn.functional.normalize(points(20, *M.shape), dim=1)
    x = x / x.abs().amax(1, keepdim=True)
    y = M(torch.finfo(x.dtype).max * x)
    torch.testing.assert_close(y, M(1e100 * x), rtol=0, atol=1e-6)
    assert (M.violation(1.7e308 * x) > 1e307).all() and M.converged(1.7e308 * x).shape == (20,)
    far = (1e308 * x).requires_grad_()
    assert torch.isfinite(torch.autograd.grad(M.project(far).sum(), far)[0]).all()


@pytest.mark.parametrize("name", ["algebraic", "flow", "heat", "hull", "local", "within"])
def test_what_is_no_number_did_not_converge(name):
    x = points(3, *kept(name).shape)
    x[1, 0] = math.nan
    x[2, 1] = math.inf
    assert not kept(name).converged(x)[1:].any()


# --- the commands --------------------------------------------------------------------------------------------
def learn(tmp_path, **changes):
    given = {"points": tmp_path / "x.npy", "out": tmp_path / "set.safetensors", "array": None, "shape": None, "seed": 0}
    return command.learn(Namespace(**given | {"method": "auto", "support": "closure"} | changes))


def project(tmp_path, **changes):
    given = {"set": tmp_path / "set.safetensors", "points": tmp_path / "x.npy", "out": tmp_path / "y.npy", "array": None}
    return command.project(Namespace(**given | changes))


@pytest.mark.parametrize("batch", [(20,), (4, 5), (4, 1, 5)])
def test_project_counts_points(batch, tmp_path, capsys):
    kept("hull").save(tmp_path / "set.safetensors")
    x = 3 * points(*batch, 2)
    np.save(tmp_path / "x.npy", x.numpy())
    assert project(tmp_path) == 0
    y = torch.from_numpy(np.load(tmp_path / "y.npy"))
    moved = kept("hull").distance(x)
    assert torch.equal(y, kept("hull").project(x))
    said = capsys.readouterr().out
    assert said.startswith("20 points on") and f"{float(moved.mean()):.3g} in the mean, {float(moved.max()):.3g}" in said


def test_project_takes_flat_rows_and_refuses_others(tmp_path, capsys):
    M = Within(kept("hull"), (2, 1), torch.zeros(2).double(), torch.eye(2).double())
    M.save(tmp_path / "set.safetensors")
    np.save(tmp_path / "x.npy", points(20, 2).numpy())
    assert project(tmp_path) == 0 and np.load(tmp_path / "y.npy").shape == (20, 2)
    np.save(tmp_path / "x.npy", points(20, 3).numpy())
    assert project(tmp_path) == 2 and "got (20, 3)" in capsys.readouterr().err


def test_a_missing_array_is_said_once(tmp_path, capsys):
    np.savez(tmp_path / "x.npz", a=np.ones((30, 2)), b=np.ones((30, 2)))
    for name in (None, "c"):
        assert learn(tmp_path, points=tmp_path / "x.npz", array=name) == 2
        said = capsys.readouterr().err
        assert said.count("asked for") == 1 and "holds a, b" in said and "--array" in said
    assert repr("c") in said


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, 10**30])
def test_seeds_that_are_too_large(seed, tmp_path, capsys):
    np.save(tmp_path / "x.npy", points(30, 2).numpy())
    assert learn(tmp_path, seed=seed) == 2
    said = capsys.readouterr().err
    assert f"--seed from -2^63 to 2^64 - 1, got {seed}" in said and not (tmp_path / "set.safetensors").exists()


def test_without_safetensors(tmp_path, capsys, monkeypatch):
    np.save(tmp_path / "x.npy", points(30, 2).numpy())
    kept("hull").save(tmp_path / "set.safetensors")
    for name in [m for m in sys.modules if m.split(".")[0] == "safetensors"]:
        monkeypatch.setitem(sys.modules, name, None)
    for run in (learn, project):
        assert run(tmp_path) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"inbounds {run.__name__}: ") and "needs safetensors" in said
        assert "pip install 'inbounds[lab]'" in said


def test_a_fit_that_breaks_down_is_no_traceback(tmp_path, capsys, monkeypatch):
    def fit(*args):
        raise RuntimeError("all networks diverged")

    np.save(tmp_path / "x.npy", points(30, 2).numpy())
    monkeypatch.setattr(command, "fit", fit)
    assert learn(tmp_path) == 2 and capsys.readouterr().err == "inbounds learn: all networks diverged\n"
