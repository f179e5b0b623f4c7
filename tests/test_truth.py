"""Fitted sets that tell the truth: every answer is right, or a warning says what is doubtful and what to do."""

import math
import warnings
from functools import cache

import pytest
import torch
from torch.nn.functional import normalize

import inbounds as ib
from inbounds.learned.alpha import AlphaShape
from inbounds.learned.base import write
from inbounds.learned.graphs import missing
from inbounds.learned.heat import Heat
from inbounds.learned.honesty import rank
from inbounds.learned.hull import Hull
from inbounds.learned.local import Local
from inbounds.learned.outliers import alike, crowded, not_isolated
from inbounds.learned.pieces import pieces
from inbounds.learned.plans import STORED, Plan, build
from inbounds.learned.rules import is_hole, thins_out
from inbounds.learned.samples import gather, prepare
from inbounds.learned.within import Within

G = torch.Generator


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=G().manual_seed(seed))


def uniform(*shape, seed=0):
    return torch.rand(*shape, dtype=torch.float64, generator=G().manual_seed(seed))


def fitted(x, *args, **options):
    """The set and what it was warned of."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ib.FitWarning)
        M = ib.fit(x, *args, **options)
    return M, " ".join(str(w.message) for w in said if w.category is ib.FitWarning)


def circle(n, seed=0):
    return normalize(normal(n, 2, seed=seed), dim=1)


def trefoil(n, seed=0):
    t = 2 * math.pi * uniform(n, seed=seed)
    return torch.stack([t.sin() + 2 * (2 * t).sin(), t.cos() - 2 * (2 * t).cos(), -(3 * t).sin()], 1) / 3


def with_values(n, values, seed=0):
    """U diag(values) V^T with uniform U and V."""
    U, V = torch.linalg.qr(normal(2, n, 3, 3, seed=seed))[0]
    return U * torch.tensor(values, dtype=torch.float64) @ V.mT


def on_values(x, values):
    U, _, Vh = torch.linalg.svd(x)
    return U * torch.tensor(values, dtype=torch.float64) @ Vh


def ell(n, seed=0):
    """Uniform in the square of side 2 without its upper right quarter."""
    x = 2 * uniform(2 * n, 2, seed=seed)
    return x[(x < 1).any(1)][:n]


def disturbed(x, share, seed=7):
    """The samples, the first of which lie anywhere in their bounding box."""
    k = int(share * len(x))
    low, high = x.amin(0), x.amax(0)
    return torch.cat([low + (high - low) * uniform(k, x.shape[1], seed=seed), x[k:]])


# --- 1: the dimension is that of the equations ------------------------------------------------------------------
def test_essential_matrices_have_the_dimension_of_their_equations():
    M, said = fitted(with_values(1000, (1, 1, 0)).flatten(1))
    x = with_values(100, (1, 1, 0), seed=3) + 0.1 * normal(100, 3, 3, seed=4)
    assert M.info["dimension"] == 5 and not said
    assert float((M.project(x.flatten(1)) - on_values(x, (1, 1, 0)).flatten(1)).square().mean()) < 1e-20


def test_too_few_essential_matrices_are_doubted():
    M, said = fitted(with_values(200, (1, 1, 0)).flatten(1))
    assert M.info["dimension"] == 5 or "too few" in said


def test_samples_that_fill_a_part_of_the_set_that_was_found_are_doubted():
    """300 essential matrices show one quadric, of dimension 8; their neighbours' distances show dimension 5."""
    M, said = fitted(with_values(300, (1, 1, 0)).flatten(1))
    assert M.info["dimension"] == 5 or "fill a part of it" in said


def test_uneven_samples_fill_the_set_all_the_same():
    x = normalize(normal(1200, 3), dim=1)
    x = x[torch.multinomial((-4 * x[:, 0]).exp(), 400, generator=G().manual_seed(1))]
    assert not fitted(x, "algebraic")[1]


# --- 2: outliers -------------------------------------------------------------------------------------------------
def test_outliers_around_a_knot_are_found_and_it_is_exact_all_the_same():
    M, _ = fitted(disturbed(trefoil(1000), 0.05))
    far = torch.cdist(disturbed(trefoil(1000), 0.05)[:50], trefoil(20_000, seed=2)).amin(1) > 0.02
    missed = [k for k in range(50) if far[k] and k not in M.info["dropped"] and k not in M.info["spared"]]
    assert not missed and not [k for k in M.info["dropped"] if k >= 50]
    assert float(torch.cdist(M.project(trefoil(100, seed=1) + 0.02), trefoil(20_000, seed=2)).amin(1).max()) < 2e-3


def test_isolated_samples_that_crowd_are_a_part_of_the_region():
    """Samples fill the lower half of a box. Anywhere in the upper half is anywhere; in a corner of it they crowd."""
    x, u = uniform(1000, 2, seed=1) * torch.tensor([1.0, 0.5]), uniform(40, 2)
    corner = torch.tensor([0.0, 1.0], dtype=torch.float64)
    assert not crowded(u * torch.tensor([1.0, 0.4]) + 0.6 * corner, x)
    assert crowded(corner - 0.2 * u * torch.tensor([-1.0, 1.0]), x)


def test_a_tip_is_no_outlier():
    """A thin triangle: the samples in its sharp corners have far neighbours, and stay."""
    u = uniform(1600, 2, seed=3)
    u = torch.where((u.sum(1) > 1)[:, None], 1 - u, u)
    x = u @ torch.tensor([[4.0, 0.0], [0.0, 0.5]], dtype=torch.float64)
    assert bool(not_isolated(x).all())
    stray = torch.tensor([[3.0, 1.5]], dtype=torch.float64)
    assert not_isolated(torch.cat([x, stray])).tolist() == [True] * 1600 + [False]


def disk(n, seed=0):
    u = 2 * uniform(2 * n, 2, seed=seed) - 1
    return u[u.norm(dim=1) < 1][:n]


def rarely_right(n, seed=0):
    """n samples of a disk, e^4 times as dense at its left end as at its right one."""
    x = disk(6 * n, seed)
    rank = x[:, 0].argsort().argsort() / len(x)
    return x[torch.multinomial((-4 * rank).exp(), n, generator=G().manual_seed(seed))]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_isolated_samples_stay_where_others_are_rare(seed):
    M, _ = fitted(rarely_right(200, seed))
    assert not M.info["dropped"]
    assert float(M.distance(normalize(normal(200, 2, seed=9), dim=1) * 0.9).max()) < 0.2


def test_what_is_left_out_as_noise_does_not_lie_where_samples_are_rare():
    """Around the densest 97 % of the samples an ellipse leaves out the right end of the disk."""
    M, said = fitted(rarely_right(2000))
    y = disk(1000, seed=4)
    assert said or float((M.project(y) - y).square().sum(1).mean()) < 1e-5


def bumpy(n, seed=0):
    """A sphere with waves of two lengths: no polynomial of moderate degree vanishes on it."""
    p = normalize(normal(n, 3, seed=seed), dim=1)
    return p * (1 + 0.1 * (4 * p[:, :1]).sin() + 0.1 * (3 * p[:, 1:2]).cos() * p[:, 2:])


def test_equations_that_refuse_samples_among_their_neighbours_are_not_believed():
    """Of a cap that is left out as what a polynomial does not reach, and of as many points anywhere."""
    x = bumpy(1500)
    cap = x[:, 2] > x[:, 2].quantile(0.96)
    assert alike(x, ~cap, 2)
    stray = disturbed(x, 0.04)
    assert not alike(stray, torch.arange(1500) >= 60, 2)


def test_an_outlier_among_thirty_samples_costs_no_equation():
    x = torch.cat([circle(30, seed=1), circle(30, seed=2)], 1)
    x[0] = torch.tensor([0.3, -0.2, 0.7, 0.1])
    M, _ = fitted(x)
    assert M.info["dimension"] == 2 and M.info["dropped"] == [0]


def test_thirty_noisy_samples_are_few():
    M, said = fitted(circle(30) + 0.03 * normal(30, 2, seed=1))
    assert M.info["dimension"] != 1 or "too few" in said


def test_outliers_of_a_region_are_found_for_the_most_part():
    """Half of those that lie far outside: near an edge, where samples thin out anyway, they cannot all be told."""
    x = disturbed(ell(1000), 0.05)
    M, _ = fitted(x, "hull")
    outside = (x[:50] > 1.25).all(1).nonzero()[:, 0].tolist()
    unseen = set(outside) - set(M.info["dropped"]) - set(M.info["spared"])
    assert len(outside) > 5 and len(unseen) <= 0.5 * len(outside)
    assert len([k for k in M.info["dropped"] if k >= 50]) <= 0.01 * 1000


# --- 3: many samples, of which a part chooses -------------------------------------------------------------------
@pytest.mark.parametrize("sigma", [0.003, 0.03])
def test_many_noisy_samples_are_no_band(sigma):
    """Dense samples are near to whatever follows them through their noise: the risk decides, and not nearness."""
    M, said = fitted(circle(8000) + sigma * normal(8000, 2, seed=1))
    x = circle(200, seed=2)
    assert M.info["dimension"] == 1 and not said
    assert float((M.project(1.1 * x) - x).norm(dim=1).mean()) < 0.3 * sigma


@pytest.mark.nightly
def test_noise_of_a_large_sample_is_said_where_a_disk_ends():
    M, said = fitted(disk(20_000) + 0.003 * normal(20_000, 2, seed=1))
    outside = 1.2 * normalize(normal(500, 2, seed=2), dim=1)
    assert "thin out towards the rim" in said or float((M.project(outside).norm(dim=1) - 1).abs().max()) < 0.003


def test_beyond_the_reach_the_nearer_of_two_ways_is_taken():
    """A long curve by 30 of its points: beside the middle of the long axis both sides are as near but for a little."""
    t = 2 * math.pi * torch.arange(30, dtype=torch.float64) / 30 + 0.05
    curve = lambda t: torch.stack([2 * t.cos(), 0.6 * t.sin(), 0.3 * (2 * t).cos()], 1)  # noqa: E731
    M, _ = fitted(curve(t), "algebraic")
    y = curve(2 * math.pi * uniform(2000)) + 0.5 * normal(2000, 3, seed=3)
    best = torch.cdist(y, curve(2 * math.pi * torch.arange(20_000, dtype=torch.float64) / 20_000)).amin(1)
    lost = (M.project(y) - y).norm(dim=1) > best + 1e-3
    assert not bool((lost & M.converged(y)).any())


# --- 3: noise ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("k", "sigma"), [(2, 0.1), pytest.param(3, 0.05, marks=pytest.mark.nightly)])
def test_a_noisy_sphere_is_not_solid(k, sigma):
    x = normalize(normal(500, k), dim=1)
    M, said = fitted(x + sigma * normal(500, k, seed=1))
    assert M.info["dimension"] == k - 1 and not said
    assert float((M.project(x) - x).square().sum(1).mean()) < sigma**2 / 10


@pytest.mark.parametrize("codim", [1, 2, 5])
def test_noise_thins_out_and_a_layer_ends(codim):
    """E r^4 / (E r^2)^2: normal (c + 2) / c, uniform in a ball (c + 2)^2 / (c (c + 4))."""
    r = normal(400, codim).norm(dim=1)
    filled = uniform(400, seed=1) ** (1 / codim)
    assert thins_out(r.square(), codim) and not thins_out(filled.square(), codim)


@pytest.mark.nightly
def test_a_noisy_knot_is_a_curve():
    """Noise of 0.03 beside a reach of 0.25: no heat kernel, no solid tube, and nearer than the samples by far."""
    x = trefoil(2000)
    M, said = fitted(x + 0.03 * normal(2000, 3, seed=1))
    off = torch.cdist(M.project(trefoil(300, seed=2)), trefoil(20_000, seed=3)).amin(1)
    assert M.info["dimension"] == 1 and not said and float(off.square().mean()) < 2 * 0.03**2 / 10


@pytest.mark.nightly
def test_a_noisy_half_sphere_is_a_surface():
    x = normalize(normal(2000, 3), dim=1)
    x = torch.cat([x[:, :2], x[:, 2:].abs()], 1)
    M, said = fitted(x + 0.03 * normal(2000, 3, seed=1), support="sampled")
    assert M.info["dimension"] == 2 and not said and float((M.project(x) - x).square().sum(1).mean()) < 0.03**2 / 4


@pytest.mark.nightly
def test_a_solid_ring_is_not_a_noisy_circle():
    x = circle(600) * (0.25 + 0.75 * uniform(600, 1, seed=2)).sqrt()
    assert fitted(x)[0].info["dimension"] == 2


# --- 4 and 11: units ---------------------------------------------------------------------------------------------
@pytest.mark.nightly
def test_units_of_one_axis_do_not_matter():
    x = normalize(normal(600, 3), dim=1) * torch.tensor([1000.0, 1.0, 1.0], dtype=torch.float64)
    M, _ = fitted(x)
    assert M.info["dimension"] == 2 and float(M.distance(x).max()) < 1e-6


def test_what_was_flattened_is_said():
    x = torch.cat([1000 * uniform(200, 2), normal(200, 1, seed=1)], 1)
    M, said = fitted(x)
    if M.info["affine_dimension"] == 2:
        assert "taken for noise" in said and any("x3" in note for note in M.info["notes"])
    else:
        assert M.info["affine_dimension"] == 3


def test_poses_with_translations_of_tens():
    x = ib.SE(3).sample(500, generator=G().manual_seed(0), dtype=torch.float64)
    x[:, :3, 3] = 30 * normal(500, 3, seed=1)
    M, said = fitted(x)
    assert M.info["dimension"] == 6 and float(ib.SE(3).violation(M.project(x + 0.1 * normal(500, 4, 4, seed=2))).max()) < 1e-6
    assert not said


# --- 5: uneven samples -------------------------------------------------------------------------------------------
def test_a_part_with_few_samples_is_kept_or_doubted():
    x = torch.cat([circle(970), 0.5 * circle(30, seed=1) + torch.tensor([4.0, 0.0], dtype=torch.float64)])
    M, said = fitted(x)
    lost = [k for k in M.info["dropped"] if k >= 970]
    assert said or (not lost and float(M.distance(x[970:]).max()) < 0.05)


def test_a_part_with_a_dozen_samples_is_kept_or_doubted():
    part = torch.tensor([3.0, 0.0, 0.0], dtype=torch.float64) + 0.3 * normalize(normal(12, 3, seed=1), dim=1)
    M, said = fitted(torch.cat([normalize(normal(488, 3), dim=1), part]), "algebraic")
    assert said or float(M.distance(part).max()) < 0.05


# --- 6: spurious parts -------------------------------------------------------------------------------------------
def test_no_projection_lands_off_a_knot():
    M, _ = fitted(trefoil(700))
    x = trefoil(2000, seed=1) + 0.15 * normal(2000, 3, seed=2)
    off = torch.cdist(M.project(x), trefoil(20_000, seed=3)).amin(1)
    assert float(off[M.converged(x)].max()) < 5e-3


# --- 7: few samples ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("values", [(1, 0, 0), (1, 1, 0)])
def test_thirty_matrices_are_too_few(values):
    assert "too few" in fitted(with_values(30, values).flatten(1))[1]


def test_a_bay_that_the_hull_closes_is_found_or_doubted():
    M, said = fitted(ell(300))
    x = torch.tensor([[1.6, 1.6]], dtype=torch.float64)
    assert float(M.distance(x)) > 0.3 or "hole or a bay" in said


def test_too_few_samples_to_see_a_bay_say_so():
    M, said = fitted(ell(100))
    assert float(M.distance(torch.tensor([[1.6, 1.6]], dtype=torch.float64))) > 0.3 or "too few to see holes" in said


# --- 8: the sampled part -----------------------------------------------------------------------------------------
@pytest.mark.nightly
def test_a_noisy_half_sphere_keeps_its_rim():
    x = normalize(normal(1200, 3), dim=1)
    x = torch.cat([x[:, :2], x[:, 2:].abs()], 1) + 0.003 * normal(1200, 3, seed=1)
    M, _ = fitted(x, "algebraic", "sampled")
    low = normalize(normal(200, 3, seed=2), dim=1)
    low[:, 2] = -low[:, 2].abs()
    assert float(M.project(low)[:, 2].min()) > -0.1


# --- 9: local ----------------------------------------------------------------------------------------------------
@cache
def ellipse():
    t = 2 * math.pi * uniform(300, 1)
    return Local.fit(torch.cat([t.cos(), 0.6 * t.sin()], 1), (2,), 1, 15, 2)


def test_second_derivatives_of_local_are_right():
    x = (circle(5, seed=2) * 0.9).requires_grad_()
    assert torch.autograd.gradgradcheck(ellipse().project, x, eps=1e-6, atol=1e-4, rtol=1e-3)


def test_local_contains_what_it_projects():
    M, t = ellipse(), 2 * math.pi * uniform(500, 1, seed=3)
    p = M.project(torch.cat([t.cos(), 0.6 * t.sin()], 1) + 0.05 * normal(500, 2, seed=4))
    assert bool(M.contains(p).all()) and not bool(M.contains(1.1 * p).any()) and M.thickness < 0.01


@pytest.mark.nightly
def test_a_fitted_sphere_in_onnxruntime(tmp_path):
    import onnxruntime

    M, path = fitted(normalize(normal(200, 3), dim=1))[0].float(), tmp_path / "set.onnx"
    x = normal(6, 3, seed=1).float()
    x[0], x[1] = 0.0, 1e6 * x[1]
    batch = torch.export.Dim("batch", min=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(torch.nn.Sequential(M), (x,), path, dynamo=True, dynamic_shapes=[{0: batch}], verbose=False)
    run = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    y = torch.as_tensor(run.run(None, {run.get_inputs()[0].name: x.numpy()})[0])
    assert torch.allclose(y[1:], M.project(x)[1:], atol=1e-5)
    assert abs(float(y[0].norm()) - 1) < 1e-5  # in the middle of the sphere every point of it is nearest


def exported(M, path):
    """What onnxruntime makes of the projection on M, for one batch; the batch."""
    import onnxruntime

    x = torch.cat([normal(6, *M.shape, seed=1), torch.zeros(1, *M.shape), 1e6 * normal(1, *M.shape, seed=2)]).float()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        torch.onnx.export(torch.nn.Sequential(M.float()), (x,), path, dynamo=True, verbose=False)
    run = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return torch.as_tensor(run.run(None, {run.get_inputs()[0].name: x.numpy()})[0]), x


def tilted(x):
    """In one more dimension, on a plane that is parallel to no axis."""
    return normalize(x, dim=1) @ torch.linalg.qr(normal(x.shape[1] + 1, x.shape[1])).Q.mT


def cap(n):
    x = normalize(normal(n, 3), dim=1)
    return x[x[:, 2] > 0.3]


RIGHT_IN_ONNX = {
    "hull": lambda: Hull.fit(uniform(60, 2)),
    "alpha": lambda: AlphaShape.fit(uniform(300, 2)),
    "tilted hull": lambda: Within(Hull.fit(uniform(60, 2)), (3,), normal(3), torch.linalg.qr(normal(3, 2)).Q, 0.5),
}
REFUSED_IN_ONNX = {
    "curve": lambda: fitted(torch.cat([circle(200), circle(200)[:, :1] ** 2], 1), "algebraic")[0],
    "cap": lambda: fitted(cap(600), "algebraic", support="sampled")[0],
    "local": lambda: Local.fit(circle(200), (2,), 1, 15, 2),
    "tilted local": lambda: fitted(tilted(normal(200, 2)), "local")[0],
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", RIGHT_IN_ONNX)
def test_fitted_regions_in_onnxruntime(name, tmp_path):
    M = RIGHT_IN_ONNX[name]()
    y, x = exported(M, tmp_path / "set.onnx")
    assert torch.allclose(y, M.project(x), atol=1e-5)


@pytest.mark.parametrize("name", REFUSED_IN_ONNX)
def test_onnx_is_refused_with_words(name, tmp_path):
    """At once, and not after minutes of tracing Newton's method."""
    with pytest.raises(Exception) as caught:
        exported(REFUSED_IN_ONNX[name](), tmp_path / "set.onnx")
    error, said = caught.value, ""
    while error is not None:  # exporters wrap what went wrong
        said, error = f"{said}\n{error}", error.__cause__ or error.__context__
    assert "ONNX has no operators" in said and "project its outputs afterwards" in said


@pytest.mark.nightly
def test_the_heat_kernel_has_no_silent_onnx(tmp_path):
    with pytest.raises(torch.onnx.OnnxExporterError):
        exported(Heat(circle(50), 0.01, (2,)), tmp_path / "set.onnx")


# --- 10: converged -----------------------------------------------------------------------------------------------
def test_converged_is_true_where_noisy_equations_are_right():
    x = with_values(700, (1, 0, 0)).flatten(1)
    M, _ = fitted(x + 0.003 * normal(700, 9, seed=1), "algebraic")
    y = with_values(200, (1, 0, 0), seed=2).flatten(1) + 0.05 * normal(200, 9, seed=3)
    assert M.info["dimension"] == 4 and float(M.converged(y).double().mean()) > 0.9


# --- 12: files ---------------------------------------------------------------------------------------------------
def changed(name):
    M = fitted(normalize(normal(120, 3), dim=1), "algebraic")[0]
    tensors = {k: t.clone() for k, t in M.tensors().items()}
    if name == "coefficients":
        tensors["C"] = normal(*tensors["C"].shape, seed=5)
    if name == "zero frame":
        tensors["frame"].zero_()
    if name == "scaled frame":
        tensors["frame"] *= 1.5
    return M, tensors


@pytest.mark.parametrize("name", ["coefficients", "zero frame", "scaled frame"])
def test_files_whose_numbers_contradict_each_other_are_refused(name, tmp_path):
    M, tensors = changed(name)
    write(tmp_path / "set.safetensors", M.header(), tensors)
    with pytest.raises(ValueError, match="damaged"):
        ib.load(tmp_path / "set.safetensors")


def test_a_report_prints_no_control_characters():
    M = changed("nothing")[0]
    M.info["text"] = "a\x1b[31mb\nc\x07"
    M.info["doubts"] = ["\x1b[2J"]
    assert str(M.report()) == "a?[31mb\nc?" and M.report().doubts == ("?[2J",)
    M.info.clear()
    assert "made by hand" in str(M.report())


# --- 13: resources -----------------------------------------------------------------------------------------------
def test_what_is_stored_for_many_equations_is_bounded():
    data = prepare(gather(normal(1500, 9), G().manual_seed(0)))
    M = build(data, data.w, Plan(((2, 50),), 6))
    assert M.W.numel() <= STORED and M.samples.shape[0] * 50 * 9 <= STORED


def test_small_fits_run_on_one_thread_and_leave_the_number_as_it_was(monkeypatch):
    before, used = torch.get_num_threads(), []
    monkeypatch.setattr("inbounds.learned.trial.highest", lambda n, N: used.append(torch.get_num_threads()) or 2)
    fitted(circle(40))
    assert used and set(used) == {1} and torch.get_num_threads() == before


# --- calibration -------------------------------------------------------------------------------------------------
def test_the_bound_of_a_quantile_is_binomial():
    """0.95^59 < 0.05 < 0.95^58: with 58 samples not even the largest bounds 95 % of all at a confidence of 95 %."""
    assert rank(58, 0.95) is None and rank(59, 0.95) == 59
    for m, q in ((100, 0.5), (300, 0.95)):
        k = rank(m, q)
        assert k is not None
        below = torch.distributions.Binomial(m, torch.tensor(q, dtype=torch.float64))
        mass = below.log_prob(torch.arange(k, dtype=torch.float64)).exp().cumsum(0)
        assert float(mass[-1]) >= 0.95 > float(mass[-2])


def test_calibration_bounds_the_distance_of_new_samples():
    x = circle(1200) + 0.02 * normal(1200, 2, seed=1)
    M, _ = fitted(x)
    known = M.info["calibration"]
    new = circle(3000, seed=5) + 0.02 * normal(3000, 2, seed=6)
    assert known["samples"] == 120 and float((M.distance(new) <= known["within"]["0.95"]).double().mean()) >= 0.95
    assert not set(M.info["spared"]) & set(M.info["dropped"]) and len(M.info["spared"]) == 120
    assert "95 % of new samples lie within" in M.info["text"]


def test_few_samples_give_no_bound():
    M, _ = fitted(circle(300))
    assert M.info["calibration"] is None and "no bound" in M.info["text"]


# --- pieces of different dimension -------------------------------------------------------------------------------
def ball(n, d, seed=0):
    return normalize(normal(n, d, seed=seed), dim=1) * uniform(n, 1, seed=seed + 1) ** (1 / d)


def union(name):
    """Samples, in random order, of sets of different dimension."""
    east = torch.tensor([3.0, 0.0, 0.0], dtype=torch.float64)
    flat = torch.nn.functional.pad(circle(200), (0, 1))
    line = torch.zeros(250, 3, dtype=torch.float64)
    line[:, 2] = 4 * uniform(250) - 2
    cap = normalize(normal(800, 3, seed=1), dim=1)
    parts = {
        "a sphere with a line through it": [normalize(normal(450, 3), dim=1), line],
        "a disk and a circle": [ball(200, 2), 0.7 * circle(200) + east[:2]],
        "two circles and a cap": [flat, flat + east, cap[cap[:, 2] > 0.5][:200] + 2 * east.roll(1)],
        "a ball and a sphere": [ball(800, 3), normalize(normal(800, 3, seed=2), dim=1) + east],
    }[name]
    x = torch.cat(parts)
    return x[torch.randperm(len(x), generator=G().manual_seed(0))]


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("a sphere with a line through it", 1, 2),
        ("a disk and a circle", 1, 2),
        ("two circles and a cap", 1, 2),
        ("a ball and a sphere", 2, 3),
    ],
)
def test_pieces_of_different_dimension_are_seen(name, low, high):
    found = pieces(union(name))
    assert found is not None and (round(found.low), round(found.high)) == (low, high)


def test_a_disk_and_a_circle_are_to_be_fitted_apart():
    said = fitted(union("a disk and a circle"), "hull")[1]
    assert "pieces of different dimension: about 50% of them of dimension 1, the others of dimension 2" in said


@pytest.mark.parametrize("sigma", [0.0, 0.03])
def test_sets_of_one_dimension_are_no_pieces(sigma):
    uneven = circle(3000)[torch.multinomial((3 * circle(3000)[:, 0]).exp(), 600, generator=G().manual_seed(0))]
    sets = [circle(600), trefoil(600), normalize(normal(600, 3), dim=1), ell(600), ball(600, 3), uneven, ball(600, 2)]
    for x in [*sets, with_values(600, (1, 1, 0)).flatten(1)]:
        assert pieces(x + sigma * normal(*x.shape, seed=9)) is None


# --- holes -------------------------------------------------------------------------------------------------------
def workspace(n, hole, seed):
    """Uniform in the ring that a planar arm reaches."""
    x = ball(2 * n, 2, seed=seed)
    return x[x.norm(dim=1) > hole][:n]


def test_a_hole_of_a_fifth_of_the_radius_is_emptier_than_chance():
    """500 samples: 21 should lie in the hole. Half of the density at its rim would say 5."""
    middle = 0.1 * ball(100, 2, seed=99)
    for seed in range(10):
        assert is_hole(float(missing(middle, workspace(500, 0.2, seed)).max()), 500)


def test_chance_opens_no_hole():
    anywhere = 2 * uniform(4000, 2, seed=3) - 1
    for seed in range(10):
        inside = anywhere[anywhere.norm(dim=1) < 1]
        assert not is_hole(float(missing(inside, ball(500, 2, seed=20 + seed)).max()), 500)


@pytest.mark.nightly
@pytest.mark.parametrize(("n", "seed"), [(500, 0), (500, 1), (1000, 0), (1000, 1)])
def test_the_hole_of_a_workspace_is_found_or_doubted(n, seed):
    M, said = fitted(workspace(n, 0.2, seed))
    assert float(M.distance(torch.zeros(1, 2, dtype=torch.float64))) > 0.15 or "hole" in said
