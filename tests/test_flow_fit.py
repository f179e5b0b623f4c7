"""fit_flow: the small sweep, own times of points, RK45 with a start per row, to disk and back."""

import copy
import json
import math

import pytest
import torch

import inbounds as ib
from inbounds.learned import Flow, VelocityNet
from inbounds.learned.base import read, write
from inbounds.learned.flow_training import fit_flow
from inbounds.learned.rk45 import rk45

CIRCLE = ib.Sphere(2)
SMALL = {"width": 32, "depth": 1, "dropout": 0.0, "lr": 3e-3}


def points(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def circle(n, seed=0):
    return CIRCLE.sample(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_flow(shape=(2,), own=True, **knobs):
    """A field that has learned nothing, on samples that are nothing."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = VelocityNet(math.prod(shape), 16, 2).double()
    return Flow(net, shape, **{"T": 2.0, "steps": 5} | knobs, samples=points(30, *shape) if own else None).eval()


@pytest.fixture(scope="module")
def fitted():
    torch.set_num_threads(1)
    return fit_flow(circle(600), epochs=6, own_time=True, alphas=(0.25, 0.5), **SMALL)


def kept(M):
    assert M.samples is not None
    return M.samples


def from_T(M):
    """The same network, started at T."""
    return Flow(copy.deepcopy(M.net), M.shape, M.T, M.scale).eval()


def own_time(M, x):
    """When points set out."""
    with torch.no_grad():
        return M._start(M._net(torch.float64), M._rows(x) / M.scale).reshape(x.shape[: x.dim() - len(M.shape)])


# --- the fit -------------------------------------------------------------------------------------------------
def test_what_the_fit_says(fitted):
    M = fitted
    info = json.loads(json.dumps(M.info))["flow"]
    assert info["samples"] == {"train": 540, "held_out": 60} and info["own_time"] and info["seconds"] > 0
    assert [c["alpha"] for c in info["candidates"]] == [0.25, 0.5]
    assert info["denoising"] == min(c["denoising"] for c in info["candidates"])
    assert M.T == next(c["T"] for c in info["candidates"] if c["alpha"] == info["alpha"])
    assert info["radius"] == pytest.approx(M.T / 2) and M.scale == 1 and M.reach is None and not M.exact


def test_the_generator_decides():
    def fit(seed):
        return fit_flow(circle(60), torch.Generator().manual_seed(seed), epochs=1, alphas=(0.5,), width=8, depth=1)

    x, before = points(5, 2), torch.get_rng_state()
    assert torch.equal(fit(1).project(x), fit(1).project(x))
    assert not torch.equal(fit(1).project(x), fit(2).project(x))
    assert torch.equal(before, torch.get_rng_state())


def test_a_diverged_candidate_is_passed_over():
    """alpha 1e38 overflows in float32."""
    M = fit_flow(circle(60), epochs=1, alphas=(1e38, 0.5), width=8, depth=1)
    assert M.info["flow"]["alpha"] == 0.5 and M.info["flow"]["candidates"][0]["denoising"] is None
    with pytest.raises(RuntimeError, match="all 1 velocity networks diverged"):
        fit_flow(circle(60), epochs=1, alphas=(1e38,), width=8, depth=1)


# --- own times -----------------------------------------------------------------------------------------------
def test_points_of_the_set_set_out_at_once_and_stay(fitted):
    M = fitted
    known, new = M.samples[:100], circle(100, seed=1)
    assert (own_time(M, known) <= 1e-10).all() and (M.violation(known) <= 1e-10).all()
    assert own_time(M, new).mean() < 0.05 * M.T and (own_time(M, 2 * new) == M.T).all()
    assert M.violation(new).mean() < from_T(M).violation(new).mean() / 10


@pytest.mark.parametrize("mode", [True, False])
def test_own_time_beats_T_near_the_set(fitted, mode):
    M, x = fitted, circle(200, seed=1) + 0.01 * points(200, 2, seed=2)
    own, late = M.train(mode).project(x), from_T(M).train(mode).project(x)
    M.eval()
    error = lambda p: float((p - CIRCLE.project(x)).square().mean())  # noqa: E731
    assert error(own) < error(late) / 4


def test_noise_is_taken_off(fitted):
    M, x = fitted, circle(200, seed=1) * (1 + 0.2 * (2 * torch.rand(200, 1, generator=torch.Generator().manual_seed(0)) - 1))
    before, after = (CIRCLE.distance(p).mean() for p in (x, M.project(x)))
    assert after < before / 2 and M.converged(x).all() and not M.converged(20 * x).any()


def test_own_time_is_what_the_docstring_says():
    M, x = random_flow((2, 2), scale=3.0), points(7, 2, 2, seed=1)
    z, known = x.reshape(7, 4) / 3, kept(M) / 3
    t1 = (4 * torch.cdist(z, known).amin(1)).clamp(max=2.0)
    want = torch.minimum(t1, 4 * t1 * M.net(z, t1).norm(dim=1))
    torch.testing.assert_close(own_time(M, x), want)
    assert (own_time(random_flow((2, 2), own=False), x) == 2).all()


def test_a_known_sample_among_far_ones_is_found():
    """The search by products keeps the distance exact."""
    M = random_flow()
    M.samples = kept(M) + 1e4
    torch.testing.assert_close(
        M._gap(kept(M) + 1e-3), torch.full((30,), 1e-3 * math.sqrt(2), dtype=torch.float64), rtol=1e-6, atol=0
    )


# --- the two integrators ---------------------------------------------------------------------------------------
def test_rk45_with_a_start_per_row():
    """dz/dt = z: z(0) = exp(-t0) z, row by row; a start at 0 moves nothing."""
    z, t0 = points(6, 3), torch.tensor([0.0, 1e-12, 0.1, 1.0, 2.0, 0.0], dtype=torch.float64)
    got = rk45(lambda z, t: z, z, t0, 1e-8, 1e-10, 1000)
    torch.testing.assert_close(got, z * torch.exp(-t0)[:, None], rtol=1e-6, atol=0)
    assert torch.equal(got[[0, 5]], z[[0, 5]])
    alone = torch.stack(
        [rk45(lambda z, t: z, r[None], t[None], 1e-8, 1e-10, 1000)[0] for r, t in zip(z[1:5], t0[1:5], strict=True)]
    )
    torch.testing.assert_close(got[1:5], alone, rtol=1e-12, atol=0)


def test_euler_tends_to_rk45():
    M, x = random_flow(steps=800, rtol=1e-10, atol=1e-12), points(10, 2, seed=1)
    exact = M.project(x)
    torch.testing.assert_close(M.train().project(x), exact, rtol=0, atol=2e-3)


@pytest.mark.parametrize("own", [True, False])
def test_gradient_of_the_whole_map(own):
    """The derivative of the start is in it."""
    M, x = random_flow((2, 2), own, scale=0.7), points(3, 2, 2, seed=1).requires_grad_()
    for mode in (True, False):
        assert torch.autograd.gradcheck(M.train(mode).project, x)
    v = points(3, 2, 2, seed=2)
    slope = (M.train().project(x + 1e-6 * v) - M.project(x - 1e-6 * v)) / 2e-6
    torch.testing.assert_close(M.tangent(x.detach(), v), slope.detach(), rtol=1e-6, atol=1e-8)


def test_gradients_are_finite_at_samples_and_far_away():
    M = random_flow()
    x = torch.cat([kept(M)[:3], 1e20 * points(3, 2), torch.zeros(1, 2, dtype=torch.float64)]).requires_grad_()
    (g,) = torch.autograd.grad(M.project(x).sum(), x)
    assert g.isfinite().all() and M.project(x).isfinite().all()


def test_transforms_where_points_are_finer_than_the_network():
    """Samples in float64 go through weights in float32."""
    M, x, v = random_flow().float(), points(5, 2, seed=1), points(5, 2, seed=2)
    assert M.net.out.weight.dtype == torch.float32
    moved = torch.func.vmap(M.project)(x)
    torch.testing.assert_close(moved, M.train().project(x), rtol=1e-12, atol=1e-12)
    slope = (M.project(x + 1e-6 * v) - M.project(x - 1e-6 * v)) / 2e-6
    torch.testing.assert_close(M.tangent(x, v), slope, rtol=1e-6, atol=1e-7)


def test_flows_are_sampled_around_the_samples_they_keep():
    M = random_flow((2, 2))
    assert M.sample(7, generator=torch.Generator().manual_seed(0)).shape == (7, 2, 2)
    with pytest.raises(NotImplementedError, match="keeps no samples"):
        random_flow(own=False).sample(7)


def test_transforms_and_dtypes():
    M, x = random_flow(), points(5, 2, seed=1)
    torch.testing.assert_close(torch.func.vmap(M.project)(x), M.train().project(x), rtol=1e-12, atol=1e-12)
    assert M.eval().project(x.float()).dtype == torch.float32
    assert kept(M.bfloat16()).dtype == torch.float64 and M.project(x[:0]).shape == (0, 2)


# --- to disk and back --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("own", [True, False])
def test_round_trip(own, tmp_path):
    M, x = random_flow((2, 2), own, scale=0.7), points(5, 2, 2, seed=1)
    M.info = {"flow": {"alpha": 0.5}}
    M.save(tmp_path / "flow.safetensors")
    header, tensors = read(tmp_path / "flow.safetensors")
    again = Flow.from_parts(tensors, header["spec"])
    assert torch.equal(again.project(x), M.project(x)) and torch.equal(again.train().project(x), M.train().project(x))
    assert header["class"] == "Flow" and header["info"] == M.info and repr(again) == repr(M)
    assert repr(M) == "Flow((2, 2), T=2, scale=0.7" + (", own time)" if own else ")")
    assert torch.equal(copy.deepcopy(M).project(x), M.project(x))


@pytest.mark.parametrize("own", [True, False])
def test_files_of_earlier_versions_load(own, tmp_path):
    """The header that they wrote when a fitted flow was a class of its own."""
    M, x = random_flow((2, 2), own, scale=0.7), points(5, 2, 2, seed=1)
    net = {"size": 4, "width": 16, "depth": 2, "dropout": 0.1}
    spec = {"net": net, "shape": [2, 2], "T": 2.0, "scale": 0.7, "steps": 5, "rtol": 1e-6, "atol": 1e-8, "max_steps": 10_000}
    header = {"format": 1, "class": "LearnedFlow", "spec": spec, "reach": None, "info": {"flow": {"alpha": 0.5}}}
    tensors = {f"net.{k}": w for k, w in M.net.state_dict().items()}
    tensors |= {"samples": points(30, 2, 2).reshape(30, 4)} if own else {}
    write(tmp_path / "old.safetensors", header, tensors)
    again = ib.load(tmp_path / "old.safetensors")
    assert type(again) is Flow and again.info == header["info"] and repr(again) == repr(M) and not again.training
    assert torch.equal(again.project(x), M.project(x)) and torch.equal(again.train().project(x), M.train().project(x))
    tensors["samples"] = points(30, 3)
    write(tmp_path / "damaged.safetensors", header, tensors)
    with pytest.raises(ValueError, match=r"samples has shape \(30, 3\), not \(s, 4\)"):
        ib.load(tmp_path / "damaged.safetensors")


def test_weights_with_the_names_of_the_network_load():
    """As those of the paper's stored runs."""
    M, x = random_flow(), points(5, 2, seed=1)
    again = Flow.load(M.net.state_dict(), M.spec())
    assert torch.equal(again.project(x), from_T(M).project(x))
    assert torch.equal(again.train().project(x), random_flow(own=False).train().project(x))


@pytest.mark.parametrize(
    ("samples", "kind", "message"),
    [
        (points(9, 2), ValueError, r"N >= 1, in val, got \(0, 2\)"),
        (points(100), ValueError, r"\(N, \*shape\)"),
        (torch.ones(20, 2, dtype=torch.int64), TypeError, "floating point"),
        (torch.full((20, 2), math.nan), ValueError, "NaN or inf"),
    ],
)
def test_errors_say_what_to_do(samples, kind, message):
    with pytest.raises(kind, match=message):
        fit_flow(samples, epochs=1, width=8, depth=1)
