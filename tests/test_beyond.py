"""Hyperbolic space, and the page docs/beyond.md."""

import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import inbounds as ib

D = torch.float64
PAGE = (Path(__file__).parents[1] / "docs" / "beyond.md").read_text()
NAMES = {"torch": torch, "nn": nn, "ib": ib}  # shared: later snippets of the page use what earlier ones define
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.mark.parametrize("code", SNIPPETS, ids=range(len(SNIPPETS)))
def test_snippet(code):
    torch.manual_seed(0)
    exec(code, NAMES)


def test_the_page_names_every_distribution_and_example():
    for name in ("UniformOn", "VonMisesFisher", "ProjectedNormal", "WrappedNormal", "IsotropicSO3"):
        assert f"| `{name}(" in PAGE and name in ib.distributions.__all__
    named = re.findall(r"`(examples/\w+\.py)`", PAGE)
    assert len(named) == 8 and all((Path(__file__).parents[1] / file).is_file() for file in named)


def lorentz(a, b):
    return (a[..., 1:] * b[..., 1:]).sum(-1) - a[..., 0] * b[..., 0]


def test_it_is_the_textbook_hyperboloid():
    """Near the origin, in float64: d = acosh(-<x, y>), exp = cosh x + sinh v/|v|, <u, v> of Lorentz, curvature -1."""
    M, g = ib.Hyperboloid(4), torch.Generator().manual_seed(0)
    x, y = M.sample(9, generator=g, dtype=D), M.sample(9, generator=g, dtype=D)
    torch.testing.assert_close(M.geodesic_distance(x, y), torch.acosh(-lorentz(x, y)))
    u, v = M.log(x, y), M.random_tangent(x, generator=g)
    torch.testing.assert_close(M.inner(x, u, v), lorentz(u, v))
    t = lorentz(v, v).sqrt()[:, None]
    torch.testing.assert_close(M.exp(x, v), t.cosh() * x + t.sinh() / t * v)
    assert lorentz(x, v).abs().max() <= 1e-9 and M.metric == "hyperbolic"


def test_float32_distances_are_right_at_the_distance_ten():
    M, g = ib.Hyperboloid(3), torch.Generator().manual_seed(0)
    o = M.origin(torch.zeros(1, dtype=D)).expand(40, 3)
    v = M.random_tangent(o, generator=g)
    x = M.exp(o, 10 * v / M.inner(o, v, v).sqrt()[:, None]).float()
    near = M.exp(x, 0.1 * M.random_tangent(x, generator=g))
    for y in (x.roll(1, 0), near, o.float(), x):
        exact = M.geodesic_distance(M.refine(x.double()), M.refine(y.double()))
        gap = (M.geodesic_distance(x, y) - exact).abs().max()
        assert gap <= 1e-5
    naive = torch.acosh((-lorentz(x, near)).clamp(min=1))
    assert (naive - M.geodesic_distance(x, near)).abs().max() > 1
    back = M.exp(x, M.log(x, near))
    assert M.geodesic_distance(back, near).max() <= 1e-3  # what float32 knows about a point there


def test_hundreds_of_float32_steps_at_the_distance_ten_stay_on_the_sheet():
    """A random walk of steps of length 0.01: the point stays where a walk of that length can be, and exactly on the sheet."""
    M, g = ib.Hyperboloid(3), torch.Generator().manual_seed(0)
    o = M.origin(torch.zeros(1))
    x = M.exp(o, torch.tensor([0.0, 6.0, 8.0]))
    for _ in range(200):
        x = M.exp(x, 0.01 * M.random_tangent(x, generator=g))
    assert M.violation(x) <= 1e-6 * x[0] and abs(float(M.geodesic_distance(o, x)) - 10) <= 0.6


def test_on_the_medial_axis_it_takes_a_nearest_point_with_a_finite_gradient():
    M = ib.Hyperboloid(3)
    x = torch.tensor([[5.0, 0.0, 0.0], [2.0, 0.0, 0.0], [5.0, 1e-12, 0.0], [-3.0, 0.0, 0.0]], dtype=D, requires_grad=True)
    y = M.project(x)
    torch.testing.assert_close(y[0], torch.tensor([2.5, math.sqrt(2.5**2 - 1), 0.0], dtype=D))
    torch.testing.assert_close(y[1:2].detach(), M.origin(x)[None], atol=1e-4, rtol=0)
    (g,) = torch.autograd.grad(y[:, 2].sum(), x)
    assert torch.isfinite(g).all() and g[0].abs().max() == 0


def test_the_curvature_is_learnable():
    x, y = (3 * torch.randn(3, 4, dtype=D, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    k = torch.tensor([-0.5, -1.0, -4.0], dtype=D, requires_grad=True)

    def words(k):
        M = ib.Hyperboloid(4, curvature=k)
        p, q = M.project(x), M.project(y)
        return p, M.geodesic_distance(p, q), M.log(p, q), M.exp(p, 0.3 * M.log(p, q)), M.transport(p, q, M.log(p, q))

    torch.autograd.gradcheck(words, k)
    one = ib.Hyperboloid(4)
    scaled = ib.Hyperboloid(4, curvature=-4.0)  # the same space, half as large
    p, q = one.project(x), one.project(y)
    torch.testing.assert_close(scaled.geodesic_distance(p / 2, q / 2), one.geodesic_distance(p, q) / 2)


def test_metrics_of_products_are_those_of_their_parts():
    assert ib.Product(ib.Sphere(3), ib.SO(2)).metric == "ambient"
    assert ib.Product(ib.Hyperboloid(3), ib.Sphere(3)).metric == "hyperbolic x ambient"
    assert ib.Product(ib.Hyperboloid(3), ib.Hyperboloid(4)).metric == "hyperbolic"


def test_wrong_use_names_the_fix():
    with pytest.raises(ValueError, match=r"curvature < 0, got 1\.0\. Positive curvature is Sphere"):
        ib.Hyperboloid(3, curvature=1.0)
    with pytest.raises(ValueError, match=r"The hyperbolic plane is Hyperboloid\(3\)"):
        ib.Hyperboloid(1)
    assert repr(ib.Hyperboloid(3)) == "Hyperboloid(3)" and repr(ib.Hyperboloid(3, curvature=-2)) == "Hyperboloid(3, curvature=-2)"


def test_transport_without_a_log_agrees_to_first_order():
    """On a Stiefel manifold, halving the step divides the change of length by four."""
    M, g = ib.Stiefel(5, 2), torch.Generator().manual_seed(0)
    x = M.sample(generator=g, dtype=D)
    v, u = M.random_tangent(x, generator=g), M.random_tangent(x, generator=g)

    def change(t):
        y = M.exp(x, t * u)
        w = M.transport(x, y, v)
        return (M.inner(y, w, w) - M.inner(x, v, v)).abs()

    assert change(0.02) / change(0.01) >= 3.5


@pytest.mark.parametrize("radius", [1.0, 10.0, 17.0, 39.0])
def test_transport_far_out_is_as_good_as_the_vectors_it_gets(radius):
    """In float32 a unit vector at the distance a is known to eps cosh a. Carried in float64 from the same numbers, the result
    is the same up to that; lengths are kept as long as float64 can tell; and nothing is NaN, even between equal points."""
    M, g = ib.Hyperboloid(3), torch.Generator().manual_seed(0)
    turn = torch.tensor([0.0, 0.3, 2.0, 3.1], dtype=D)
    o, ray = M.origin(turn).expand(4, 3), torch.stack([0 * turn, turn.cos(), turn.sin()], -1)
    x = M.exp(o, radius * ray).float()
    for y in (x.roll(1, 0), x, M.exp(x, 0.1 * M.random_tangent(x, generator=g))):
        v = M.random_tangent(x, generator=g)
        w = M.transport(x, y, v)
        assert torch.isfinite(w).all()
        exact = M.transport(M.refine(x.double()), M.refine(y.double()), v.double())
        assert (w.double() - exact).abs().max() <= 4 * torch.finfo(torch.float32).eps * exact.abs().max()
        if radius <= 17:
            kept = M.inner(y.double(), exact, exact) / M.inner(x.double(), v.double(), v.double())
            torch.testing.assert_close(kept, torch.ones_like(kept), atol=1e-6, rtol=0)
