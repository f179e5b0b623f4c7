"""Theorem 4.1: the closed forms against the definition of u_t, the rate, its constant, and the command that shows them."""

import csv
import io
import json
import math
from contextlib import redirect_stdout
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from rich.console import Console

import inbounds as ib
from inbounds.paper.figures.heat_kernel import (
    EXAMPLES,
    SAMPLES,
    TIMES,
    Rotations,
    Torus,
    conclude,
    measure,
    rms,
    run,
    slope,
    smooth_samples,
)

F64 = torch.float64
BY_NAME = {e.name: e for e in EXAMPLES}
VOLUME = {"circle": math.tau, "sphere": 4 * math.pi, "torus": 0.4 * math.tau**2, "so3": 2**1.5 * 8 * math.pi**2}


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def length(v):
    return v.flatten(1).norm(dim=-1)


def angles(n):
    return math.tau * torch.arange(n, dtype=F64) / n


def gauss(n):
    return [torch.from_numpy(z) for z in np.polynomial.legendre.leggauss(n)]


def turn(a, axis):
    """Rotations by the angles a around an axis of coordinates."""
    A = torch.zeros(3, 3, dtype=F64)
    i, j = (axis + 1) % 3, (axis + 2) % 3
    A[j, i], A[i, j] = 1, -1
    return torch.matrix_exp(a[:, None, None] * A)


@cache
def grid(name):
    """Nodes and weights on the whole of M, from a parametrisation that the closed forms do not use."""
    if name == "circle":
        return torch.stack([angles(400).cos(), angles(400).sin()], -1), torch.ones(400, dtype=F64)
    if name == "sphere":
        (z, w), a = gauss(80), angles(120)
        r = (1 - z**2).sqrt()[:, None]
        y = torch.stack([r * a.cos(), r * a.sin(), z[:, None].expand(-1, len(a))], -1)
        return y.flatten(0, 1), w.repeat_interleave(len(a))
    if name == "torus":
        a, b = torch.cartesian_prod(angles(160), angles(120)).unbind(-1)
        ring = 1 + 0.4 * b.cos()
        return torch.stack([ring * a.cos(), ring * a.sin(), 0.4 * b.sin()], -1), ring
    (z, w), a = gauss(30), angles(48)  # Euler angles: z, y, z, Haar measure d(cos beta)
    y = turn(a, 2)[:, None, None] @ turn(torch.acos(z), 1)[None, :, None] @ turn(a, 2)[None, None]
    return y.flatten(0, 2), w[None, :, None].expand(48, -1, 48).flatten()


def definition(name, x, t, width):
    """x + t grad log u(x) with u the integral over M of exp(-|x - y|^2 / width)."""
    y, w = grid(name)
    leaf = x.flatten(1).requires_grad_()
    square = (leaf[:, None] - y.flatten(1)).square().sum(-1)
    (g,) = torch.autograd.grad(torch.logsumexp(w.log() - square / width, -1).sum(), leaf)
    return x + t * g.reshape(x.shape)


# --- the map -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [0.4, 0.1])
@pytest.mark.parametrize("name", BY_NAME)
def test_smooth_is_the_map_of_the_theorem(name, t):
    e = BY_NAME[name]
    x = e.points(6, gen())
    torch.testing.assert_close(e.smooth(x, t), definition(name, x, t, 2 * t), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", BY_NAME)
def test_the_other_heat_kernel_gives_another_map(name):
    """exp(-|x - y|^2 / 4t), as printed before the theorem: x + t grad log u stops half way, and 2t goes to F_2t."""
    e, t = BY_NAME[name], 0.1
    x = e.points(6, gen())
    wrong = definition(name, x, t, 4 * t)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(e.smooth(x, t), wrong, atol=1e-12, rtol=0)
    torch.testing.assert_close(wrong, 0.5 * (x + e.smooth(x, 2 * t)), atol=1e-12, rtol=0)
    torch.testing.assert_close(e.smooth(x, 2 * t), definition(name, x, 2 * t, 4 * t), atol=1e-12, rtol=0)


@pytest.mark.parametrize("t", [1e-1, 1e-2, 1e-4, 1e-6])
def test_quadratures_have_converged(t):
    torus, rotations = Torus(), Rotations()
    torus.nodes = 1500
    rotations.nodes, rotations.weights = (z / 2 for z in gauss(300))
    for fine in (torus, rotations):
        x = fine.points(50, gen())
        assert length(fine.smooth(x, t) - BY_NAME[fine.name].smooth(x, t)).max() < 2e-13


def test_matrix_fisher_beyond_the_reflections():
    """det x < 0: the smallest singular value counts as negative."""
    x = torch.diag(torch.tensor([1.2, 0.9, -0.3], dtype=F64))[None] @ ib.SO(3).sample(4, generator=gen(), dtype=F64)
    torch.testing.assert_close(BY_NAME["so3"].smooth(x, 0.2), definition("so3", x, 0.2, 0.4), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", BY_NAME)
def test_the_compact_set_is_within_half_the_reach(name):
    e = BY_NAME[name]
    x, p = e.points(200, gen()), e.sample(200, gen())
    torch.testing.assert_close(e.project(x), p, atol=1e-12, rtol=0)
    assert length(x - p).max() <= 0.5 * e.reach * (1 + 1e-12) and (length(x - p) > 0.499 * e.reach).sum() > 60
    y, _ = grid(name)
    rivals = torch.cdist(x.flatten(1), y.flatten(1)).amin(-1)
    assert (rivals >= length(x - p) - 1e-9).all() and (rivals - length(x - p)).max() < 0.15
    assert {"circle": 1.0, "sphere": 1.0, "torus": 0.4, "so3": ib.SO(3).reach}[name] == e.reach


# --- the rate ------------------------------------------------------------------------------------------------


def test_leading_coefficients():
    """-(n - 1) / 2r radially on spheres; -1 / 2 sum_j 1 / (s_i + s_j) on singular values for SO(3)."""
    for n, name in ((2, "circle"), (3, "sphere")):
        x = BY_NAME[name].points(50, gen())
        expected = -(n - 1) / 2 * x / (x * x).sum(-1, keepdim=True)
        torch.testing.assert_close(BY_NAME[name].first_order(x), expected)
    x = BY_NAME["so3"].points(50, gen())
    U, s, Vh = torch.linalg.svd(x)
    pairs = 1 / (s[:, :, None] + s[:, None, :])
    d = -0.5 * (pairs.sum(-1) - pairs.diagonal(dim1=1, dim2=2))
    torch.testing.assert_close(BY_NAME["so3"].first_order(x), U @ torch.diag_embed(d) @ Vh)


@pytest.mark.parametrize("name", BY_NAME)
def test_stretch_inverts_the_derivative_of_the_projection(name):
    """The nonzero singular values of DP_M(x), by differentiating the projection itself."""
    e = BY_NAME[name]
    for x in e.points(5, gen())[:, None]:
        D = torch.autograd.functional.jacobian(e.project, x).reshape(x.numel(), x.numel())
        found = torch.linalg.svdvals(D)[: e.dim]
        torch.testing.assert_close(found, (1 / e.stretch(x)[0]).sort(descending=True).values)


@pytest.mark.parametrize(("name", "factor"), [("circle", 0.6), ("torus", 20), ("so3", 0.35), ("sphere", 0)])
def test_first_order_leaves_a_second_order_remainder(name, factor):
    """|F_t - P - t c| <= factor t^2 on K; e^{-2r/t} on the sphere. A coefficient off by one per cent would not do."""
    e = BY_NAME[name]
    x = e.points(200, gen())
    p, c = e.project(x), e.first_order(x)
    for t in (1e-2, 1e-3, 1e-4):
        assert length(e.smooth(x, t) - p - t * c).max() < factor * t * t + 1e-15
    assert length(e.smooth(x, t) - p - 1.01 * t * c).max() > factor * t * t + 1e-15


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    out = tmp_path_factory.mktemp("figures") / "new" / "folder"
    with redirect_stdout(io.StringIO()) as said:
        assert run(SimpleNamespace(out=str(out), line="inbounds figure heat-kernel")) == 0
    return out, said.getvalue()


@pytest.fixture(scope="module")
def record(shown):
    return json.loads((shown[0] / "heat-kernel.json").read_text())


def test_the_rate_is_one_with_the_predicted_constant(record):
    for row in record["rows"]:
        assert abs(row["slope"] - 1) < 0.05
        assert math.isclose(row["measured_constant"], row["predicted_constant"], rel_tol=1e-4)
    constants = {row["set"]: row["predicted_constant"] for row in record["rows"]}
    assert math.isclose(constants["circle"], 1) and math.isclose(constants["sphere"], 2)  # 1 / 2r and 1 / r at r = 1/2


def test_the_bound_of_the_theorem(record):
    """|F_t - P| <= C t^{1/2} with one C for all t, and no better C needed as t falls."""
    for row in record["rows"]:
        ratios = [d / math.sqrt(t) for d, t in zip(row["sup_error"], row["t"], strict=True)]
        assert row["bound"] == max(ratios) == ratios[0] < 1
        assert all(b < a for a, b in pairwise(ratios)) and ratios[-1] < 0.01


def test_a_wrong_map_is_found_out(monkeypatch):
    """The 4t kernel with t in front of the gradient: the error stays, the slope is 0 and the command fails."""
    e = BY_NAME["circle"]
    right = e.smooth
    monkeypatch.setattr(e, "smooth", lambda x, t: 0.5 * (x + right(x, 2 * t)))
    row = measure(e)
    assert abs(row["slope"]) < 0.01 and row["measured_constant"] > 1e4
    console = Console(record=True, file=io.StringIO(), width=140)
    assert conclude([row], Path("here"), console) == 1 and "NOT seen on circle" in console.export_text()


def test_slope_is_read_from_small_t():
    assert math.isclose(slope(TIMES, [3 * t**0.5 if t < 2e-3 else 1.0 for t in TIMES]), 0.5)


# --- samples -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "t"), [("circle", 1e-3), ("circle", 1e-4), ("sphere", 1e-2), ("torus", 1e-2), ("so3", 0.1)])
def test_noise_of_samples(name, t):
    """E|F_t^N - F_t|^2 = vol tr(Q^-1) det(Q)^{1/2} (4 pi t)^{-m/2} t / 2N to leading order: the powers of t that are printed."""
    e = BY_NAME[name]
    x = e.points(100, gen())
    q = e.stretch(x)
    size = (1 / q).sum(-1) * q.prod(-1).sqrt() * (4 * math.pi * t) ** (-e.dim / 2) * t / (2 * SAMPLES)
    exact = e.smooth(x, t)
    found = [rms(length(smooth_samples(x, e.sample(SAMPLES, gen(k)), t) - exact)) for k in range(1, 4)]
    assert math.isclose(np.mean(np.square(found)), VOLUME[name] * float(size.mean()), rel_tol=0.25)


def test_without_bandwidth_it_is_the_nearest_sample():
    e = BY_NAME["sphere"]
    x, y = e.points(50, gen()), e.sample(500, gen(1))
    torch.testing.assert_close(smooth_samples(x, y, 1e-9), y[torch.cdist(x, y).argmin(-1)])


# --- the command ---------------------------------------------------------------------------------------------


def test_it_prints_the_rates_and_the_reason(shown):
    out, said = shown
    for words in ("SO(3)", "t = 1e-06", "2.9167", "Why 1 and not 1/2", "N = 4,000", str(out / "heat-kernel.png")):
        assert words in said
    assert "\x1b" not in said


def test_files(shown, record):
    out, _ = shown
    assert sorted(p.name for p in out.iterdir()) == ["heat-kernel.csv", "heat-kernel.json", "heat-kernel.png"]
    picture = imread(out / "heat-kernel.png")
    assert picture[..., :3].var() > 1e-3 and (out / "heat-kernel.png").stat().st_size < 120_000
    assert record["command"] == "inbounds figure heat-kernel" and record["machine"]["cores"] >= 1 and record["date"]
    lines = list(csv.DictReader((out / "heat-kernel.csv").read_text().splitlines()))
    assert len(lines) == len(EXAMPLES) * 2 * len(TIMES)
    assert all(0 < float(line["rms_error"]) <= float(line["sup_error"]) < 1 for line in lines)
    assert {float(line["samples"]) for line in lines} == {math.inf, SAMPLES}


def test_a_folder_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert run(SimpleNamespace(out=str(tmp_path / "file" / "below"), line="")) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("inbounds figure heat-kernel: cannot write to") and "--out DIR" in said.err
