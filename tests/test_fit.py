"""Sets fitted to samples: as good as the formula where there is one, honest where there is none."""

import json
import math
import warnings

import numpy as np
import pytest
import torch

import inbounds as ib
from inbounds.cli import main
from inbounds.learned.base import write
from inbounds.learned.polynomials import Monomials, Polynomials
from inbounds.learned.samples import hull
from inbounds.learned.vanishing import codimension, spectrum

G = torch.Generator


def draw(name, n, seed=0):
    g = G().manual_seed(seed)
    how = {"dtype": torch.float64, "generator": g}
    if name == "sphere":
        return ib.Sphere(3).sample(n, **how)
    if name == "so3":
        return ib.SO(3).sample(n, **how)
    if name == "se3":
        return ib.SE(3).sample(n, **how)
    if name == "disk":
        return ib.Ball(2).sample(n, **how)
    if name == "circle":
        return ib.Sphere(2).sample(n, **how)
    a, b = 2 * math.pi * torch.rand(2, n, **how)
    r = 1 + 0.4 * b.cos()
    return torch.stack([r * a.cos(), r * a.sin(), 0.4 * b.sin()], 1)


def torus(x):
    ring = torch.nn.functional.normalize(x[..., :2], dim=-1)
    ring = torch.nn.functional.pad(ring, (0, 1))
    return ring + 0.4 * torch.nn.functional.normalize(x - ring, dim=-1)


EXACT = {
    "sphere": ib.Sphere(3).project,
    "so3": ib.SO(3).project,
    "se3": ib.SE(3).project,
    "disk": ib.Ball(2).project,
    "torus": torus,
}


def noise(x, sigma, seed=5):
    return x + sigma * torch.randn(x.shape, dtype=x.dtype, generator=G().manual_seed(seed))


def off(M, name, sigma, n=300):
    """Mean squared distance per coordinate between M's projection and the formula's, of corrupted points of the set."""
    x = noise(draw(name, n, seed=9), sigma)
    return float((M.project(x) - EXACT[name](x)).square().mean())


FITTED: dict[str, ib.ConstraintSet] = {}


def fitted(name, n=1500):
    if name not in FITTED:
        FITTED[name] = ib.fit(draw(name, n))
    return FITTED[name]


# --- polynomials ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("n", "degree"), [(3, 5), (9, 2), (2, 3), (4, 1), (1, 4)])
def test_polynomials_against_powers_and_autograd(n, degree):
    g = G().manual_seed(0)
    m = Monomials(n, degree)
    z, weights = torch.randn(4, n, dtype=torch.float64, generator=g), torch.randn(4, 3, dtype=torch.float64, generator=g)
    powers = torch.stack([(z ** torch.tensor(a)).prod(1) for a in m.exponents], 1)
    assert len(m) == Monomials.count(n, degree)
    assert torch.allclose(m(z), powers, rtol=1e-12)
    p = Polynomials(torch.randn(3, len(m), dtype=torch.float64, generator=g), m, torch.rand(n, dtype=torch.float64) + 0.5)
    J = torch.func.vmap(torch.func.jacrev(lambda x: p.values(x[None])[0]))(z)
    H = torch.func.vmap(torch.func.hessian(lambda x, u: (p.values(x[None])[0] * u).sum()))(z, weights)
    assert torch.allclose(p.jacobian(z), J) and torch.allclose(p.hessian(z, weights), H)


def test_the_quadrics_of_the_rotations():
    """20 quadrics, codimension 6: R^T R = I, R R^T = I and the cofactors, hence det = +1."""
    x = draw("so3", 1000).flatten(1)
    s = spectrum(x, 2, torch.ones(9, dtype=torch.float64))
    assert s.gaps(0.3)[0][0] == 20 and float(s.tau[19]) < 1e-13 and float(s.tau[20]) > 0.1
    assert codimension(s.take(20), x, s.tau[:20]) == 6


def test_tau_is_the_distance():
    """Taubin: samples at distance 0.01 from a plane curve have tau 0.01, whatever the polynomial's own scale."""
    x = noise(draw("circle", 4000), 0.01) * 7
    s = spectrum(x, 2, torch.full((2,), 7.0, dtype=torch.float64))
    assert float(s.tau[0]) == pytest.approx(0.07, rel=0.05)


def test_multiples_of_what_is_known_are_left_out():
    """At degree 3 the sphere's quadric has 3 more multiples; without them nothing vanishes."""
    x, one = draw("sphere", 500), torch.ones(3, dtype=torch.float64)
    quadric = spectrum(x, 2, one).take(1)
    assert int((spectrum(x, 3, one).tau < 1e-10).sum()) == 4
    assert int((spectrum(x, 3, one, (quadric,)).tau < 1e-3).sum()) == 0


# --- accuracy ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "bound"), [("sphere", 1e-28), ("so3", 1e-28), ("se3", 1e-28), ("torus", 1e-26), ("disk", 2e-6)])
def test_clean_samples_give_the_formula(name, bound):
    M = fitted(name)
    assert off(M, name, 0.1) <= bound and off(M, name, 0.3) <= 4 * bound
    assert M.converged(noise(draw(name, 100, seed=3), 0.2)).all()
    assert not M.exact and M.method == "algebraic"


def test_what_the_report_says():
    M = fitted("sphere")
    report = M.report()
    said = str(report)
    assert report.dimension == 2 and report.equations == ("x3^2 + x2^2 + x1^2 - 1 = 0",) and not report.doubts
    assert report.samples == M.info["samples"] and "Report(title=" in repr(report) and "<pre>" in report._repr_html_()
    assert "x3^2 + x2^2 + x1^2 - 1 = 0" in said and "dimension 2 in 3 coordinates" in said
    assert M.info["equations"] == ["x3^2 + x2^2 + x1^2 - 1 = 0"]
    disk = fitted("disk").info
    assert disk["inequality"].startswith("x2^2 + x1^2") and f"inequality: {disk['inequality']}" in disk["text"]
    assert fitted("so3").info["dimension"] == 3 and fitted("se3").info["affine_dimension"] == 12
    assert json.loads(json.dumps(M.info)) == M.info


@pytest.mark.parametrize(("name", "reach"), [("sphere", 1), ("so3", math.sqrt(2)), ("torus", 0.4)])
def test_the_reach_is_found(name, reach):
    assert fitted(name).reach == pytest.approx(reach, rel=0.02)


@pytest.mark.parametrize(
    ("name", "bound"), [("sphere", 1e-6), ("so3", 4e-6), pytest.param("se3", 4e-6, marks=pytest.mark.nightly)]
)
def test_noisy_samples(name, bound):
    M = ib.fit(noise(draw(name, 1500), 0.01), "algebraic")
    assert off(M, name, 0.1) <= bound
    assert 0.005 < M.info["noise"] < 0.02


@pytest.mark.parametrize("name", ["sphere", "so3", pytest.param("se3", marks=pytest.mark.nightly)])
def test_outliers_are_dropped(name):
    """3 % of the samples far off: the fit is exact all the same, and they are counted."""
    x = draw(name, 1500)
    x[:45] = noise(x[:45], 0.5)
    M = ib.fit(x[torch.randperm(1500, generator=G().manual_seed(1))], "algebraic")
    assert M.info["outliers"] == 45 and off(M, name, 0.1) <= 1e-26


@pytest.mark.parametrize(("name", "few"), [("sphere", 25), ("so3", 150)])
def test_few_samples_are_enough(name, few):
    assert off(ib.fit(draw(name, few), "algebraic"), name, 0.1) <= 1e-24


@pytest.mark.nightly
def test_support_closure_or_sampled():
    """A cap: its closure is the sphere; the sampled part ends at the rim."""
    x = draw("sphere", 6000)
    cap = x[x[:, 2] > 0.5]
    below = torch.tensor([[0.3, 0.1, -0.8]], dtype=torch.float64)
    assert torch.allclose(ib.fit(cap).project(below), ib.Sphere(3).project(below), atol=1e-9)
    M = ib.fit(cap, support="sampled")
    p = M.project(noise(draw("sphere", 300, seed=3), 0.1))
    assert float((p.norm(dim=1) - 1).abs().max()) < 1e-9 and float(p[:, 2].min()) > 0.48
    rim = ib.SphereMinusCaps(torch.tensor([[0.0, 0.0, -1.0]]), torch.tensor([2 * math.pi / 3]))
    x = noise(cap[:300], 0.1)
    assert float((M.project(x) - rim.project(x)).square().mean()) < 1e-4
    assert ib.fit(draw("sphere", 1500), support="sampled").info["inequality"] == ""


@pytest.mark.parametrize(("a", "b"), [(1e-3, 0.0), (1e3, 1e5)])
def test_units_and_origin_do_not_matter(a, b):
    x = draw("so3", 600)
    x[:10] = noise(x[:10], 0.5)
    M = ib.fit(a * x + b)
    y = noise(draw("so3", 50, seed=3), 0.1)
    assert M.info["outliers"] == 10 and M.info["title"] == "equations: 20 of degree 2, codimension 6"
    assert float(((M.project(a * y + b) - b) / a - EXACT["so3"](y)).square().mean()) < 1e-24
    assert M.reach == pytest.approx(a * math.sqrt(2), rel=0.02)


@pytest.mark.nightly
def test_more_equations_than_the_codimension_leave_no_spurious_points():
    """29 quadrics for the codimension 15 of O(5): combinations of them have other zeros, which are not taken."""
    M = ib.fit(ib.SO(5).sample(900, dtype=torch.float64, generator=G().manual_seed(0)), "algebraic")
    x = noise(ib.SO(5).sample(60, dtype=torch.float64, generator=G().manual_seed(1)), 0.1)
    assert float((M.project(x) - ib.SO(5).project(x)).abs().max()) < 1e-9
    far = 3 * torch.randn(60, 5, 5, dtype=torch.float64, generator=G().manual_seed(2))
    assert float(ib.Stiefel(5, 5).violation(M.project(far)).max()) < 1e-9


def test_thin_sets_are_not_flattened():
    t = 2 * math.pi * torch.rand(600, dtype=torch.float64, generator=G().manual_seed(0))
    M = ib.fit(torch.stack([t.cos(), 0.03 * t.sin()], 1))
    assert M.info["affine_dimension"] == 2 and M.info["dimension"] == 1 and M.info["noise"] < 1e-12


def test_an_interval():
    M = ib.fit(torch.rand(300, 1, generator=G().manual_seed(0), dtype=torch.float64))
    p = M.project(torch.tensor([[1.5], [0.5], [-2.0]], dtype=torch.float64))
    assert torch.allclose(p, torch.tensor([[1.0], [0.5], [0.0]], dtype=torch.float64), atol=0.02)


# --- a set like any other ------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["sphere", "so3", "torus", "disk"])
def test_jacobian_is_that_of_the_map_and_of_the_formula(name):
    M, x = fitted(name), noise(draw(name, 6, seed=4), 0.2).requires_grad_()
    assert torch.autograd.gradcheck(M.project, x, eps=1e-6, atol=1e-6)
    w = torch.randn(x.shape, dtype=x.dtype, generator=G().manual_seed(0))
    (a,), (b,) = (torch.autograd.grad(P(x), x, w) for P in (M.project, EXACT[name]))
    assert float((a - b).abs().max()) <= (1e-9 if name != "disk" else 2e-2)
    assert torch.autograd.gradgradcheck(M.project, x, eps=1e-6, atol=1e-5)


@pytest.mark.parametrize("name", ["sphere", "so3", "disk"])
def test_vmap_float32_bad_rows_and_far_away(name):
    M, x = fitted(name), noise(draw(name, 8, seed=4), 0.2)
    assert torch.allclose(torch.func.vmap(M.project)(x), M.project(x), atol=1e-9)
    p = M.project(x.float())
    assert p.dtype == torch.float32 and float(M.violation(p).max()) < 1e-5
    x[1].view(-1)[0] = math.nan
    assert M.project(x)[1].isnan().all() and M.project(x)[2:].isfinite().all()
    for scale in (1e-20, 0.0, 1e20):
        assert float(M.violation(M.project(scale * x[2:])).max()) < 1e-6


@pytest.mark.parametrize("name", ["sphere", "so3", "torus", "disk"])
def test_the_contract_holds_for_fitted_sets(name):
    ib.check_set(fitted(name))
    p = fitted(name).sample(50, generator=G().manual_seed(0), dtype=torch.float64)
    assert float((p - EXACT[name](p)).norm(dim=-1).max()) < (0.05 if name == "disk" else 1e-9)  # of a disk the rim is estimated


def test_learned_sets_in_every_network_and_step():
    M = fitted("so3")
    net = ib.IAA([ib.MLPBlock((3, 3), 9) for _ in range(2)], ib.Projection(M)).double()
    x = noise(draw("so3", 20), 0.1)
    states = net.states(x)
    assert all(float(ib.SO(3).violation(h).detach().max()) < 1e-10 for h in states)
    net(x).sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in net.parameters() if p.grad is not None)
    head = torch.nn.Sequential(torch.nn.Linear(4, 9), torch.nn.Unflatten(-1, (3, 3)))
    faa = ib.FAA(head, ib.Projection(M))
    assert float(ib.SO(3).violation(faa(torch.randn(5, 4)).detach()).max()) < 1e-5


def test_copies_and_pickles():
    import copy
    import pickle

    M, x = fitted("so3"), noise(draw("so3", 10), 0.1)
    for twin in (copy.deepcopy(M), pickle.loads(pickle.dumps(M))):
        assert torch.equal(twin.project(x), M.project(x)) and twin.info == M.info and twin.reach == M.reach


@pytest.mark.parametrize("name", ["so3", "disk"])
def test_save_and_load(name, tmp_path):
    M, path = fitted(name), tmp_path / "set.safetensors"
    M.save(path)
    again = ib.load(path)
    x = noise(draw(name, 50, seed=2), 0.3)
    assert torch.equal(again.project(x), M.project(x)) and again.info == M.info and again.reach == M.reach
    assert [p.name for p in tmp_path.iterdir()] == ["set.safetensors"]


def test_load_refuses_other_files(tmp_path):
    from safetensors.torch import save_file

    other = tmp_path / "other.safetensors"
    save_file({"a": torch.zeros(2)}, other)
    with pytest.raises(ValueError, match="without the header"):
        ib.load(other)
    other.write_bytes(b"no")
    with pytest.raises(ValueError, match="which is not one"):
        ib.load(other)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        ib.load(tmp_path / "missing")
    fitted("disk").save(other)
    raw = other.read_bytes()
    other.write_bytes(raw.replace(b'\\"format\\": 1', b'\\"format\\": 9'))
    with pytest.raises(ValueError, match="its checksum does not fit"):
        ib.load(other)
    write(other, {**fitted("disk").header(), "format": 9}, fitted("disk").tensors())  # as a later version would
    with pytest.raises(ValueError, match="Update inbounds"):
        ib.load(other)


# --- bad input ----------------------------------------------------------------------------------------------
BAD = {
    "one point": (torch.ones(50, 3), "the same point"),
    "few": (torch.randn(10, 3), "at least 20 different"),
    "copies": (torch.randn(10, 3).repeat(9, 1), "at least 20 different"),
    "nan": (torch.tensor([[1.0, math.nan]]).repeat(30, 1), "finite samples"),
    "flat": (torch.randn(30), "samples\\[:, None\\]"),
    "empty": (torch.zeros(0, 3), "shape"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_samples(case):
    x, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        ib.fit(x)


def test_bad_arguments():
    with pytest.raises(TypeError, match="floating point"):
        ib.fit(torch.ones(30, 2, dtype=torch.int64))
    with pytest.raises(TypeError, match="tensor or an array"):
        ib.fit("points.npy")
    with pytest.raises(ValueError, match="method"):
        ib.fit(draw("disk", 30), "magic")
    with pytest.raises(ValueError, match="support"):
        ib.fit(draw("disk", 30), support="all")


def test_fewer_samples_than_dimensions():
    """30 points of a line in R^50: a line is found; 30 of a cloud span whatever they like."""
    g = G().manual_seed(0)
    line = torch.randn(30, 1, generator=g, dtype=torch.float64) @ torch.randn(1, 50, generator=g, dtype=torch.float64)
    M = ib.fit(line)
    assert M.info["affine_dimension"] == 1
    assert M.distance(line).max() < 1e-6
    cloud = torch.randn(30, 50, generator=g, dtype=torch.float64)
    with pytest.raises(ValueError, match="twice as many samples as dimensions"):
        ib.fit(cloud)


@pytest.mark.nightly
def test_a_cloud_has_no_structure():
    x = torch.randn(600, 3, generator=G().manual_seed(0))
    with pytest.warns(ib.FitWarning, match="No structure was found"):
        M = ib.fit(x)
    assert M.info["dimension"] == 3 and "No structure" in M.info["verdict"]
    assert M.distance(x.double()).max() < 1e-6 and M.distance(100 * x.double()).max() < 1e-4
    with pytest.warns(ib.FitWarning, match="No structure was found"):
        assert ib.fit(x, support="sampled").distance(100 * x.double()).min() > 1


def test_a_linear_constraint_is_not_bounded_by_its_samples():
    x = torch.randn(1000, 3, 3, generator=G().manual_seed(0), dtype=torch.float64)
    M = ib.fit(x + x.mT)
    assert (M.project(100 * x) - 50 * (x + x.mT)).abs().max() < 1e-10
    assert M.info["affine"] == ["x8 - x6 = 0", "x7 - x3 = 0", "x4 - x2 = 0"]
    assert "no sharp boundary" in M.info["verdict"] and M.info["title"] == "the affine subspace of dimension 6"


@pytest.mark.parametrize(
    "x",
    [
        torch.rand(300, 1, generator=G().manual_seed(0), dtype=torch.float64),
        torch.rand(600, 3, generator=G().manual_seed(0), dtype=torch.float64),
        ib.Ball(2).sample(40, generator=G().manual_seed(0), dtype=torch.float64),
        pytest.param(ib.Ball(6).sample(800, generator=G().manual_seed(0), dtype=torch.float64), marks=pytest.mark.nightly),
    ],
    ids=["interval", "cube", "disk", "ball"],
)
def test_a_sharp_boundary_is_kept(x):
    with warnings.catch_warnings():
        if len(x) == 40:  # too few to see holes: it says so
            warnings.simplefilter("ignore", ib.FitWarning)
        M = ib.fit(x)
    assert "sharp boundary" in M.info["verdict"] and "no sharp" not in M.info["verdict"]
    assert M.reach == math.inf and M.distance(10 + x).min() > 1


@pytest.mark.parametrize("noisy", [0.0, 0.002])
def test_spheres_of_many_dimensions_are_not_solid(noisy):
    """One dimension of twenty is little risk, but it is the equation."""
    z = torch.randn(1500, 20, generator=G().manual_seed(0), dtype=torch.float64)
    M = ib.fit(noise(z / z.norm(dim=1, keepdim=True), noisy))
    assert M.info["dimension"] == 19 and M.violation(torch.zeros(20)) > 0.99


@pytest.mark.parametrize(("many", "outliers"), [(28, 1), (48, 2), (95, 5)])
def test_outliers_among_few_samples(many, outliers):
    """Not a cubic: the circle and the line through the outliers."""
    t = 2 * math.pi * torch.rand(many, generator=G().manual_seed(2), dtype=torch.float64)
    far = 6 * torch.rand(outliers, 2, generator=G().manual_seed(3), dtype=torch.float64) - 3
    M = ib.fit(torch.cat([torch.stack([t.cos(), t.sin()], 1), far]))
    assert M.info["title"] == "equations: 1 of degree 2, codimension 1" and M.info["outliers"] == outliers


@pytest.mark.nightly
def test_a_disc_and_a_segment_do_not_break_it():
    g = G().manual_seed(2)
    a, r, h = torch.rand(3, 500, 1, generator=g, dtype=torch.float64)
    disc = torch.cat([r.sqrt() * (2 * math.pi * a).cos(), r.sqrt() * (2 * math.pi * a).sin(), 0 * a], 1)
    x = torch.cat([disc, torch.cat([0 * a, 0 * a, 2 * h], 1)])
    with pytest.warns(ib.FitWarning):
        assert ib.fit(x).distance(x).square().mean() < 1e-2


def test_constant_columns_copies_and_numpy():
    x = torch.cat([draw("sphere", 300), torch.full((300, 1), 2.0)], 1)
    M = ib.fit(torch.cat([x, x[:50]]).numpy())
    assert M.info["copies"] == 50 and M.info["affine_dimension"] == 3
    y = M.project(torch.tensor([[0.0, 0.0, 3.0, 7.0]], dtype=torch.float64))
    assert torch.allclose(y, torch.tensor([[0.0, 0.0, 1.0, 2.0]], dtype=torch.float64), atol=1e-9)


def test_strays_do_not_bend_the_affine_hull():
    x = torch.cat([draw("disk", 500), torch.zeros(500, 2)], 1)
    x[:15] = noise(x[:15], 1.0)
    _, frame, _, keep = hull(x)
    assert frame.shape == (4, 2) and int(keep.sum()) == 485


# --- the command line ------------------------------------------------------------------------------------------
def run(args):
    return main([*map(str, args)])


def test_learn_and_project(tmp_path, capsys):
    np.save(tmp_path / "points.npy", draw("so3", 400).flatten(1).numpy())
    x = noise(draw("so3", 20, seed=3), 0.1)
    np.save(tmp_path / "x.npy", x.flatten(1).numpy())
    assert run(("learn", tmp_path / "points.npy", "-o", tmp_path / "set.safetensors", "--shape", "3,3")) == 0
    assert "20 of degree 2, codimension 6" in capsys.readouterr().out
    assert run(("project", tmp_path / "set.safetensors", tmp_path / "x.npy", "-o", tmp_path / "y.npy")) == 0
    y = torch.as_tensor(np.load(tmp_path / "y.npy")).unflatten(1, (3, 3))
    assert torch.allclose(y, ib.SO(3).project(x), atol=1e-12)


def test_learn_says_what_is_wrong(tmp_path, capsys):
    np.save(tmp_path / "few.npy", np.zeros((3, 2)))
    assert run(("learn", tmp_path / "few.npy", "-o", tmp_path / "set.safetensors")) == 2
    assert "the same point" in capsys.readouterr().err
    assert run(("learn", tmp_path / "none.npy", "-o", tmp_path / "set.safetensors")) == 2
    assert "does not exist" in capsys.readouterr().err
    assert run(("project", tmp_path / "few.npy", tmp_path / "few.npy", "-o", tmp_path / "y.npy")) == 2
    assert "M.save(path)" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["few.npy"]


# --- found by reading --------------------------------------------------------------------------------------------
def test_what_fits_badly_is_better_than_an_error():
    """20 normal samples in 10 dimensions: no region can be made, the mean under a heat kernel can."""
    x = torch.randn(20, 10, generator=G().manual_seed(0), dtype=torch.float64)
    with pytest.warns(ib.FitWarning):
        assert torch.isfinite(ib.fit(x).project(x)).all()
    with pytest.raises(ValueError, match="nothing fits these 20"):
        ib.fit(x, "algebraic")


def test_contains_of_local_may_be_asked_under_vmap_first():
    M = ib.fit(ib.Sphere(3).sample(300, generator=G().manual_seed(0), dtype=torch.float64), "local")
    x = ib.Sphere(3).sample(4, generator=G().manual_seed(1), dtype=torch.float64)
    assert torch.func.vmap(M.contains)(torch.cat([M.project(x), 2 * x])).tolist() == [True] * 4 + [False] * 4


@pytest.mark.parametrize("scale", [1e160, 1e-200])
def test_a_scale_whose_squares_overflow_is_refused(scale):
    with pytest.raises(ValueError, match="Divide them by it"):
        ib.fit(scale * ib.Sphere(3).sample(100, generator=G().manual_seed(0), dtype=torch.float64))


def test_far_from_the_origin_samples_of_a_fitted_set_are_different_points():
    M = ib.fit(1e8 + ib.Sphere(2).sample(300, generator=G().manual_seed(0), dtype=torch.float64), "algebraic")
    assert len(M.sample(500, generator=G().manual_seed(1), dtype=torch.float64).unique(dim=0)) == 500


@pytest.mark.parametrize("inner", [0.0, 0.5])
def test_solid_balls_and_shells_of_five_dimensions_are_no_spheres(inner):
    """Most of them is near the outer rim, on one side of any sphere through the samples."""
    u = torch.nn.functional.normalize(torch.randn(1000, 5, generator=G().manual_seed(0), dtype=torch.float64), dim=1)
    r = inner**5 + (1 - inner**5) * torch.rand(1000, 1, generator=G().manual_seed(1), dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ib.FitWarning)
        M = ib.fit(u * r**0.2)
    assert M.info["dimension"] == 5
