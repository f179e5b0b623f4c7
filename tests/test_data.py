"""The datasets are the paper's dynamics: each is checked against a naive twin, a closed form or SciPy's solver."""

import math
import pickle

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

import inbounds as ib
from inbounds import data
from inbounds.data import flocks
from inbounds.data.files import load_npz
from inbounds.data.sphere import interpolated, random_field

SMALL = {"train": 40, "val": 10, "test": 12, "large": 15}
SYNTHETIC = [data.sphere, data.disk, data.so3, data.cs, data.flock]


@pytest.mark.parametrize("make", SYNTHETIC)
def test_pairs_of_points_of_the_set_in_splits_of_the_asked_size(make):
    pairs = make(SMALL)
    assert {name: len(pairs[name][0]) for name in pairs.splits} == SMALL
    for points in (pairs.x, pairs.y):
        assert points.dtype == torch.float32
        assert points.shape[points.dim() - len(pairs.set.shape) :] == pairs.set.shape
        assert pairs.set.violation(points.double()).max() < 1e-6
    assert torch.equal(pairs.unscaled(pairs.x), pairs.x)
    with pytest.raises(KeyError, match="asked for a split among train, val, test, large"):
        pairs["dev"]


@pytest.mark.parametrize("make", SYNTHETIC)
def test_a_seed_is_a_dataset(make):
    a, b, other = make(SMALL, seed=3), make(SMALL, seed=3), make(SMALL, seed=4)
    assert a.fingerprint() == b.fingerprint() != other.fingerprint()
    more = make({**SMALL, "train": 50}, seed=3)
    assert torch.equal(more["test"][0], a["test"][0])  # a larger train split is not another test split


def test_default_sizes_are_the_papers_and_a_large_test_split():
    sizes = {name: s.stop - s.start for name, s in data.sphere().splits.items()}
    assert sizes == {"train": 4_000, "val": 800, "test": 1_200, "large": 20_000}


def test_empty_splits_are_refused():
    with pytest.raises(ValueError, match="at least one row, got train=0"):
        data.disk({"train": 0})


# --- sphere ----------------------------------------------------------------------------------------------
def test_the_sphere_field_is_unit_tangent_and_interpolated_on_its_grid():
    field = random_field(0)
    th = torch.linspace(0, math.pi, 100, dtype=torch.float64)[:, None].expand(100, 100)
    ph = (torch.arange(100, dtype=torch.float64) * 2 * math.pi / 100).expand(100, 100)
    p = torch.stack([th.sin() * ph.cos(), th.sin() * ph.sin(), th.cos()], -1)
    assert (field.norm(dim=-1) - 1).abs().max() < 1e-12
    assert (field * p).sum(-1).abs().max() < 1e-12
    inner = slice(1, -1)  # at the poles all longitudes are one point
    assert (interpolated(field, p[inner]) - field[inner]).abs().max() < 1e-9


def test_sphere_against_a_naive_twin():
    """Midpoint steps with retraction, one point at a time, scalars only."""
    pairs, field = data.sphere({"train": 4, "val": 1, "test": 1, "large": 1}), random_field(0).numpy()

    def velocity(p):
        th, ph = math.acos(max(-1, min(1, p[2]))), math.atan2(p[1], p[0]) % (2 * math.pi)
        i, j = th / math.pi * 99, ph / (2 * math.pi) * 100
        i0, j0 = min(int(i), 98), int(j) % 100
        s, t, j1 = i - i0, j - int(j), (j0 + 1) % 100
        v = (1 - s) * ((1 - t) * field[i0, j0] + t * field[i0, j1]) + s * ((1 - t) * field[i0 + 1, j0] + t * field[i0 + 1, j1])
        return v - (v @ p) * p

    for x, y in zip(pairs.x.double().numpy()[:4], pairs.y.double().numpy()[:4], strict=True):
        p = x / np.linalg.norm(x)
        for _ in range(20):
            mid = p + 0.05 * velocity(p)
            p = p + 0.1 * velocity(mid / np.linalg.norm(mid))
            p = p / np.linalg.norm(p)
        assert np.abs(p - y).max() < 1e-5


# --- disk ------------------------------------------------------------------------------------------------
def test_disk_follows_the_spiral_to_the_boundary():
    """Exactly: y = P(e^{alpha} R(1) x), since angle and radius decouple; Euler's error is of first order."""
    pairs = data.disk({"train": 500, "val": 1, "test": 1, "large": 1})
    c, s = math.cos(1), math.sin(1)
    exact = ib.Ball(2).project(math.exp(0.5) * pairs.x @ torch.tensor([[c, s], [-s, c]]))
    assert (exact - pairs.y).norm(dim=1).max() < 0.015
    assert 0.3 < (pairs.y.norm(dim=1) > 1 - 1e-5).float().mean() < 0.9  # many end on the boundary


# --- SO(3) -----------------------------------------------------------------------------------------------
def test_so3_against_scipy():
    """Adaptive Runge-Kutta on the matrix equation, to 1e-11; the map is sensitive to its float32 input."""
    X = ib.SO(3).sample(5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    from inbounds.data.so3 import advect

    A = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])

    def rhs(_, flat):
        R = flat.reshape(3, 3)
        return ((np.trace(R @ R) + 3) * A @ R).ravel()

    for start, end in zip(X.numpy(), advect(X).numpy(), strict=True):
        solved = solve_ivp(rhs, (0, 10), start.ravel(), rtol=1e-11, atol=1e-12).y[:, -1]
        assert np.abs(solved - end.ravel()).max() < 1e-8


# --- flocks ----------------------------------------------------------------------------------------------
def test_flock_acceleration_is_the_papers_formula():
    """Pair by pair with angle and axis, as printed."""
    R, a = flocks.PHASE.split(flocks.start(3, torch.Generator().manual_seed(1)))
    found = flocks.acceleration(R, a).numpy()
    for f in range(3):
        for i in range(10):
            total = np.zeros(3)
            for k in range(10):
                vector = Rotation.from_matrix((R[f, k].T @ R[f, i]).numpy()).as_rotvec()
                angle, ak, ai = np.linalg.norm(vector), a[f, k].numpy(), a[f, i].numpy()
                n = vector / angle if angle > 0 else np.array([1.0, 0, 0])
                moved = (
                    (1 - math.cos(angle / 2)) * (n @ ak) * n + math.sin(angle / 2) * np.cross(ak, n) + math.cos(angle / 2) * ak
                )
                total += (math.cos(angle / 2) if angle < math.pi else 0) * (moved - ai)
            assert np.abs(total / 10 - found[f, i]).max() < 1e-12


def test_flock_integrator_has_order_two(monkeypatch):
    """Halving the step divides the error by four."""
    start = flocks.start(5, torch.Generator().manual_seed(2))
    ends = []
    for steps in (20, 40, 320):
        monkeypatch.setattr(flocks, "STEPS", steps)
        ends.append(flocks.advect(start, 2.0))
    coarse, fine = ((e - ends[2]).norm() for e in ends[:2])
    assert 3.4 < coarse / fine < 4.6


def test_cs_hides_the_velocities_that_flock_shows():
    cs, flock = data.cs(SMALL, seed=5), data.flock(SMALL, seed=5)
    assert cs.x.shape[1:] == (10, 3, 3)
    assert flock.x.shape[1:] == (10, 12)
    assert torch.equal(flocks.PHASE.split(flock.x)[0], cs.x)
    assert cs.tokens == flock.tokens == (10,)


def test_flocks_start_within_their_cone():
    R, a = flocks.PHASE.split(flocks.start(200, torch.Generator().manual_seed(3)))
    angle = ib.SO(3).group_log(R).norm(dim=-1)
    assert angle.max() <= 0.6 * math.pi + 1e-9
    assert a.abs().max() <= 1


# --- a user's own files ----------------------------------------------------------------------------------
def arrays(M, tokens=(), n=(30, 8, 9), flat=True, dtype="float64"):
    g = torch.Generator().manual_seed(0)
    out = {}
    for split, rows in zip(("train", "val", "test"), n, strict=True):
        for a in "XY":
            points = M.sample(rows, *tokens, generator=g, dtype=torch.float64)
            out[f"{a}_{split}"] = (points.flatten(1 + len(tokens)) if flat else points).numpy().astype(dtype)
    return out


@pytest.mark.parametrize(
    ("M", "tokens", "flat", "dtype"),
    [
        (ib.Sphere(3), (), True, "float32"),
        (ib.Ball(2), (), True, "float16"),
        (ib.SO(3), (), True, "float64"),
        (ib.SO(3), (), False, "float32"),
        (ib.SO(3), (10,), True, "float32"),
        (flocks.PHASE, (6,), True, "float64"),
    ],
)
def test_npz_files_come_back(tmp_path, M, tokens, flat, dtype):
    given = arrays(M, tokens, flat=flat, dtype=dtype)
    np.savez(tmp_path / "d.npz", **given)
    pairs = load_npz(tmp_path / "d.npz", "d", M, tokens=bool(tokens))
    for split in ("train", "val", "test"):
        for a, points in zip("XY", pairs[split], strict=True):
            wanted = torch.as_tensor(given[f"{a}_{split}"].astype("float64")).reshape(points.shape)
            assert (points - wanted).abs().max() < (2e-3 if dtype == "float16" else 1e-6)
    assert pairs.set.violation(pairs.x.double()).max() < 1e-6
    assert "moved the points by" in pairs.notes["projection"]


def test_translations_of_a_users_frames_are_scaled_and_unscaled(tmp_path):
    given = arrays(ib.SE(3))
    for a in given.values():
        a.reshape(-1, 4, 4)[:, :3, 3] *= 20
    np.savez(tmp_path / "p.npz", **given)
    pairs = load_npz(tmp_path / "p.npz", "protein", ib.SE(3))
    assert float(pairs["train"][0][:, :3, 3].std()) == pytest.approx(1, rel=1e-5)
    assert (pairs.unscaled(pairs.x)[:30].flatten(1) - torch.as_tensor(given["X_train"])).abs().max() < 1e-4


def test_a_few_broken_rows_are_dropped_and_counted(tmp_path):
    given = arrays(ib.Sphere(3), n=(100, 8, 9))
    given["X_train"][7] = 0
    np.savez(tmp_path / "s.npz", **given)
    pairs = load_npz(tmp_path / "s.npz", "sphere", ib.Sphere(3))
    assert len(pairs["train"][0]) == 99
    assert pairs.notes["dropped in train"].startswith("1 rows")


def broken(case):
    given = arrays(ib.Sphere(3))
    if case == "missing":
        del given["Y_val"]
    elif case == "shape":
        given["X_test"] = given["X_test"][:, :2]
    elif case == "nan":
        given["Y_train"][3, 1] = np.nan
    elif case == "rows":
        given["Y_train"] = given["Y_train"][:-1]
    elif case == "text":
        given["X_val"] = np.array(["a"] * 8)
    elif case == "far":
        given["X_val"] = 3 * given["X_val"]
    return given


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("missing", "missing: Y_val"),
        ("shape", r"X_test asked for points of Sphere\(3\), \(N, 3\)"),
        ("nan", "Y_train asked for finite float32 numbers; 1 are not, the first in row 3"),
        ("rows", "X_train and Y_train asked for the same shape"),
        ("text", "X_val asked for real numbers"),
        ("far", "8 of 8 rows are further than 0.1"),
    ],
)
def test_bad_files_are_named_with_the_array_and_what_was_expected(tmp_path, case, words):
    path = tmp_path / "sphere.npz"
    np.savez(path, **broken(case))
    with pytest.raises(ValueError, match=words) as error:
        load_npz(path, "sphere", ib.Sphere(3))
    assert "sphere.npz" in str(error.value)


def test_pickle_is_never_opened(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was opened",))

    given = {**arrays(ib.Sphere(3)), "X_train": np.array([Bomb()], dtype=object)}
    np.savez(tmp_path / "sphere.npz", **given)
    with pytest.raises(ValueError, match="X_train asked for plain numbers"):
        load_npz(tmp_path / "sphere.npz", "sphere", ib.Sphere(3))
    (tmp_path / "raw.npz").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ValueError, match=r"raw\.npz"):
        load_npz(tmp_path / "raw.npz", "sphere", ib.Sphere(3))
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(ValueError, match=r"text\.npz"):
        load_npz(tmp_path / "text.npz", "sphere", ib.Sphere(3))
