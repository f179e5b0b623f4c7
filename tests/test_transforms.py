"""vmap, compile, export and ONNX for every set; two compilers."""

import math
import warnings

import pytest
import torch
from catalogue import CLOSED_FORM, CURVED, POLYHEDRA, hard_points
from catalogue import SETS as FORMULAS
from test_sets import assert_feasible
from torch import nn

import inbounds as ib

SETS = FORMULAS | POLYHEDRA  # CURVED sets refuse: see below
FAST = ["Sphere(3)", "SO(3)", "Box"]
NIGHTLY = pytest.mark.nightly
# one set for each kernel in make test, every set in make test-all
KERNELS = ["Sphere(3)", "Ball(3), off centre", "Box", "Simplex(5)", "Halfspace", "Affine", "SecondOrderCone(4)", "SO(2)", "SO(3)"]
KERNELS += ["SO(4)", "SE(3)", "Stiefel(5, 2)", "Hyperboloid(3)", "PSD(3)", "FixedTracePSD(3)", "BoxMinusBalls, overlapping"]
KERNELS += ["SphereMinusCaps, overlapping", "Product, set", "CappedSimplex", "Ellipsoid", "Polytope, equalities"]
EXPORTED = [n for n in KERNELS if "overlapping" not in n] + ["CappedSimplex and Halfspace"]
ONNX = ["Sphere(3)", "Box", "Simplex(5)", "SO(3)"]


def cases(names, chosen=tuple(KERNELS)):
    """All of them, those that are not chosen in make test-all only."""
    return [n if n in chosen else pytest.param(n, marks=NIGHTLY) for n in names]


def noise(M, *batch, seed=0):
    return 2 * torch.randn(*batch, *M.shape, generator=torch.Generator().manual_seed(seed))


def gradient(f, x):
    x = x.clone().requires_grad_()
    y = f(x)
    w = torch.linspace(-1, 1, y.numel()).reshape(y.shape)
    return y.detach(), torch.autograd.grad(y, x, w)[0]


def same(a, b):
    torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", cases(SETS))
def test_vmap(name):
    """vmap, vmap of grad, nested vmap, jacobians in both modes."""
    M = SETS[name]()
    x = noise(M, 6)
    same(torch.func.vmap(M)(x), M(x))
    same(torch.func.vmap(torch.func.vmap(M))(x.reshape(2, 3, *M.shape)).reshape(x.shape), M(x))
    w = noise(M, 6, seed=1)
    per_row = torch.func.vmap(torch.func.grad(lambda a, b: (M(a) * b).sum()))(x, w)
    z = x.clone().requires_grad_()
    same(per_row, torch.autograd.grad(M(z), z, w)[0])
    same(torch.func.jacrev(M)(x[0]), torch.func.jacfwd(M)(x[0]))


def check_compiled(name, backend, *wrappers):
    M = SETS[name]()
    x = noise(M, 6)
    expected = gradient(M, x)
    torch._dynamo.reset()
    for f in (M, *(wrap(M) for wrap in wrappers)):
        got = gradient(torch.compile(f, fullgraph=True, backend=backend), x)
        same(got[0], expected[0])
        same(got[1], expected[1])


@pytest.mark.parametrize("name", cases(SETS))
def test_compile_aot_eager(name):
    check_compiled(name, "aot_eager")


@pytest.mark.parametrize("name", cases(SETS, ["Sphere(3)"]))
def test_compile_of_vmap(name):
    check_compiled(name, "aot_eager", torch.func.vmap)


def check_forward_mode(name, second):
    """jvp, and with `second` the gradient of a jvp; at noise, at points of M and, for matrices, at the identity."""
    M = SETS[name]()
    x = noise(M, 4).double()
    x = torch.cat([x, M.project(x), torch.eye(*M.shape, dtype=x.dtype)[None]] if len(M.shape) == 2 else [x, M.project(x)])
    t, w = noise(M, len(x), seed=1).double(), noise(M, len(x), seed=2).double()

    def forward(x, t):
        return torch.func.jvp(M.project, (x,), (t,))

    def bent(x, t, w):
        return torch.func.grad(lambda a: (forward(a, t)[1] * w).sum())(x)

    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(forward, fullgraph=True, backend="aot_eager")(x, t), forward(x, t))
    if second:
        got = torch.compile(bent, fullgraph=True, backend="aot_eager")(x[:4], t[:4], w[:4])
        torch.testing.assert_close(got, bent(x[:4], t[:4], w[:4]))


@pytest.mark.parametrize("name", ["Sphere(3)", "SO(3)"])
def test_forward_mode_under_compile(name):
    check_forward_mode(name, second=False)


@pytest.mark.parametrize("name", ["Sphere(3)", "SO(4)", "Stiefel(5, 2)", "PSD(3)", "FixedTracePSD(3)"])
def test_forward_mode_of_a_single_point_under_dynamo(name):
    """In float32, where torch 2.13 gives 0.5 times a number a float64 tangent; also at the identity, where eigenvalues repeat."""
    M = SETS[name]()
    x = noise(M, 1)[0]
    t = noise(M, 1, seed=1)[0]
    torch._dynamo.reset()
    forward = torch.compile(lambda x, t: torch.func.jvp(M.project, (x,), (t,)), fullgraph=True, backend="eager")
    for point in (x, torch.eye(*M.shape)) if len(M.shape) == 2 else (x,):
        got, want = forward(point, t), torch.func.jvp(M.project, (point,), (t,))
        assert all(g.dtype == torch.float32 for g in got)
        torch.testing.assert_close(got, want)


@pytest.mark.inductor_all
@pytest.mark.parametrize(
    "name", ["Sphere(3)", "SO(3)", "SO(4)", "SE(3)", "Stiefel(5, 2)", "PSD(3)", "FixedTracePSD(3)", "Simplex(5)"]
)
def test_forward_mode_under_compile_all(name):
    check_forward_mode(name, second=name != "PSD(3)")  # there torch 2.13 refuses the gradient of a jvp, with an error


TWO_STEPS = {"SE(3)": lambda: ib.GroupExponential(ib.SE(3)), "SO(3)": lambda: ib.Projection(ib.SO(3))}


@pytest.mark.parametrize(
    ("name", "backend"),
    [("SE(3)", "eager"), *(pytest.param(n, "aot_eager", marks=NIGHTLY) for n in TWO_STEPS)],  # Dynamo alone; with its backward
)
def test_dynamic_shapes(name, backend):
    """Two layers compiled once for every batch size."""
    step = TWO_STEPS[name]()
    M = step.M
    net = ib.IAA([ib.MLPBlock(M.shape, step.size) for _ in range(2)], step)
    torch._dynamo.reset()
    f = torch.compile(net, dynamic=True, fullgraph=True, backend=backend)
    for n in (6, 9):
        x = M.sample(n, generator=torch.Generator().manual_seed(n))
        same(f(x), net(x))
        f(x).sum().backward()


@pytest.mark.parametrize("name", cases(FAST, []))
def test_compile_inductor(name):
    check_compiled_feasible(name, parts=3)


@pytest.mark.inductor_all
@pytest.mark.parametrize("name", SETS)
def test_compile_inductor_all(name):
    check_compiled(name, "inductor", torch.func.vmap)
    check_compiled_feasible(name, parts=25)


def check_compiled_feasible(name, parts):
    """The feasibility contract and finite gradients on 40,000 hard points a part, compiled; values as in eager mode.

    Polyhedra, which a solver projects on, get 400.
    """
    M = SETS[name]()
    torch._dynamo.reset()
    f = torch.compile(M.project, fullgraph=True)
    count = 40_000 if name in FORMULAS else 400
    for part in range(parts):
        x = hard_points(M, count, torch.float32, seed=part).requires_grad_()
        y = f(x)
        (g,) = torch.autograd.grad(y, x, noise(M, len(x), seed=part))
        assert torch.isfinite(y).all() and torch.isfinite(g).all()
        assert_feasible(M, y.detach())
    z = x.detach().requires_grad_()
    (expected,) = torch.autograd.grad(M.project(z), z, noise(M, len(x), seed=part))
    first = count // 8  # the first rows are noise
    ordinary = M.uniqueness_margin(x.detach())[:first] > 0.05
    same(y.detach()[:first][ordinary], M.project(x.detach())[:first][ordinary])
    same(g[:first][ordinary], expected[:first][ordinary])


@pytest.mark.parametrize("name", cases(SETS, EXPORTED))
def test_export(name):
    M = SETS[name]()
    x = noise(M, 6)
    batch = torch.export.Dim("batch", min=2, max=4096)
    program = torch.export.export(nn.Sequential(M), (x,), dynamic_shapes=[{0: batch}])
    more = noise(M, 11, seed=1)
    same(program.module()(more), M(more))


@pytest.mark.parametrize("name", cases(CLOSED_FORM, ONNX))
def test_onnx(name, tmp_path):
    """Exported to ONNX and run by onnxruntime on points it has not seen, hard ones among them."""
    import onnxruntime

    M = SETS[name]()
    path = tmp_path / "set.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        batch = torch.export.Dim("batch", min=2, max=65536)
        torch.onnx.export(nn.Sequential(M), (noise(M, 6),), path, dynamo=True, dynamic_shapes=[{0: batch}], verbose=False)
    run = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    x = torch.cat([noise(M, 500, seed=1), M.sample(100, generator=torch.Generator().manual_seed(0)), torch.zeros(2, *M.shape)])
    y = torch.from_numpy(run.run(None, {run.get_inputs()[0].name: x.numpy()})[0])
    same(y[:600], M.project(x)[:600])
    assert_feasible(M, y)


def messages(error):
    """What an error says, and the errors that it came from: exporters wrap them."""
    said = ""
    while error is not None:
        said, error = f"{said}\n{error}", error.__cause__ or error.__context__
    return said


@pytest.mark.parametrize("name", ["Polytope", pytest.param("Box and Affine", marks=NIGHTLY)])
def test_polyhedra_have_no_onnx_and_say_why(name, tmp_path):
    M = SETS[name]()
    with warnings.catch_warnings(), pytest.raises(Exception) as caught:
        warnings.simplefilter("ignore")  # the exporter's own
        torch.onnx.export(nn.Sequential(M), (noise(M, 6),), tmp_path / "set.onnx", dynamo=True, verbose=False)
    said = messages(caught.value)
    assert "ONNX has no operator" in said and "torch.export.export" in said and "CappedSimplex" in said


@pytest.mark.parametrize("name", CURVED)
def test_curved_sets_refuse_transforms_and_name_the_way_out(name):
    """Never a wrong number: each transform ends in an error that says what was asked and what to write instead."""
    M = CURVED[name]()
    x = noise(M, 3)
    torch._dynamo.reset()
    for transformed in (
        lambda: torch.func.vmap(M)(x),
        lambda: torch.compile(M, fullgraph=True, backend="eager")(x),
        lambda: torch.export.export(nn.Sequential(M), (x,)),
    ):
        with pytest.raises(Exception) as caught:
            transformed()
        said = messages(caught.value)
        assert "cannot be projected on inside torch.compile(fullgraph=True), vmap, export or ONNX" in said
        assert "Call it outside of them" in said


def test_a_set_built_inside_a_compiled_function():
    """Constraints that depend on the input: the constructor runs in the graph."""

    def f(x, r):
        return ib.Ball(3, radius=r).project(x)

    x, r = torch.randn(5, 3), torch.rand(5) + 0.1
    same(torch.compile(f, backend="aot_eager")(x, r), f(x, r))
    same(torch.func.vmap(f)(x, r), f(x, r))


@pytest.mark.parametrize("name", ["Sphere(3)", "SO(3)", "SE(3)", "SO(4)", "PSD(3)", "Simplex(5)"])
def test_batched_gradients(name):
    """Many vectors against one Jacobian, by autograd's own batching."""
    M = SETS[name]()
    x = noise(M, 3).requires_grad_()
    y, w = M.project(x), noise(M, 4, 3, seed=1)
    together = torch.autograd.grad(y, x, w, is_grads_batched=True, retain_graph=True)[0]
    same(together, torch.stack([torch.autograd.grad(y, x, e, retain_graph=True)[0] for e in w]))


def test_bad_rows_under_transforms():
    """Compiled and vmapped code cannot raise: a bad row becomes NaN, the others stay."""
    x = torch.randn(5, 3)
    x[2, 1] = math.inf
    for f in (torch.func.vmap(ib.Sphere(3)), torch.compile(ib.Sphere(3), backend="aot_eager"), ib.Sphere(3).project):
        y = f(x)
        assert y[2].isnan().all()
        assert torch.isfinite(y[[0, 1, 3, 4]]).all()


@NIGHTLY
@pytest.mark.parametrize("make", [ib.Projection, ib.Exponential, ib.GroupExponential])
def test_networks_compile_and_export(make):
    step = make(ib.SO(3))
    net = ib.IAA([ib.MLPBlock((3, 3), step.size) for _ in range(2)], step)
    x = noise(ib.SO(3), 6)
    torch._dynamo.reset()
    same(torch.compile(net, fullgraph=True, backend="aot_eager")(x), net(x))
    program = torch.export.export(net, (x,), dynamic_shapes=[{0: torch.export.Dim("batch", min=2, max=64)}])
    same(program.module()(x[:4]), net(x[:4]))


def test_eager_guard_is_torchs_own_name():
    """The one private name of torch the library uses."""
    from inbounds.core import eager

    seen = []
    assert eager()
    torch.func.vmap(lambda x: seen.append(eager()) or x)(torch.zeros(2))
    assert seen == [False]
