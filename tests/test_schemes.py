"""Every scheme against the formula that defines it, on small sets that depend on the input."""

import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import inbounds as ib
from inbounds import schemes
from inbounds.problems.solvers import quadratic_program
from inbounds.schemes.base import Memo, excess
from inbounds.schemes.linear import completion, nullspace

N, EQUATIONS, FACES = 5, 2, 3


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


E, A = draw(EQUATIONS, N, seed=1), draw(FACES, N, seed=2)
B = torch.full((FACES,), 0.4, dtype=torch.float64)
X = 0.1 * draw(6, EQUATIONS, seed=3)


class Sides(nn.Module):
    """x -> {y : E y = x, A y <= b}."""

    shape = (N,)

    def forward(self, x):
        return ib.Polytope(A=A, b=B, E=E, f=x)


class Caps(nn.Module):
    """x -> {y : 0 <= y <= 1, sum y = |x|}."""

    shape = (N,)

    def forward(self, x):
        return ib.CappedSimplex(N, 1.0, 1 + x[..., 0].tanh())


M, BUDGET = ib.Depends(Sides()), ib.Depends(Caps())


def center(x):
    return x @ torch.linalg.pinv(E).mT


MAKERS = {
    "projected": lambda net: schemes.Projected(net, M),
    "optnet": lambda net: schemes.OptNet(net, M),
    "dc3": lambda net: schemes.DC3(net, M),
    "hardnet": lambda net: schemes.HardNet(net, M),
    "rayen": lambda net: schemes.Rayen(net, M, center),
    "gauge": lambda net: schemes.GaugeMap(net, ib.Depends(Tight()), center),
    "scaled": lambda net: schemes.Scaled(net, M, center),
    "mixture": lambda net: schemes.Mixture(net, M, center),
    "splitting": lambda net: schemes.Splitting(net, M),
    "penalty": lambda net: schemes.Penalty(net, M),
    "repair": lambda net: schemes.Repair(net, BUDGET),
}


class Tight(nn.Module):
    """The same set in a box, so that it is bounded."""

    shape = (N,)

    def forward(self, x):
        return ib.Polytope(A=A, b=B, E=E, f=x, low=torch.full((N,), -3.0), high=torch.full((N,), 3.0))


def with_output(name, u):
    """A scheme whose backbone gives u, whatever the input."""

    class Fixed(nn.Module):
        def forward(self, x):
            return u

    return MAKERS[name](Fixed())


def built(name, seed=0):
    size = MAKERS[name](nn.Identity()).size(MAKERS[name](nn.Identity()).at(X))
    torch.manual_seed(seed)
    return MAKERS[name](nn.Sequential(nn.Linear(EQUATIONS, 8), nn.Tanh(), nn.Linear(8, size)).double())


@pytest.mark.parametrize("name", MAKERS)
def test_outputs_are_in_the_set_of_their_input_and_gradients_reach_every_weight(name):
    scheme = built(name)
    for batch in ((), (6,), (2, 3)):
        x = X.reshape(2, 3, EQUATIONS) if len(batch) == 2 else X[0] if not batch else X
        with torch.no_grad():
            scheme.net[-1].weight *= 3
        y = scheme(x)
        assert y.shape == (*batch, N) and y.dtype == torch.float64
        eq, ineq = scheme.at(x).residuals(y)
        if scheme.exact:
            assert eq.abs().max() < 1e-13 and ineq.max() < 1e-13
    scheme.loss(X, lambda x, y: (y * torch.arange(1.0, N + 1)).sum(-1)).backward()
    grads = [p.grad for p in scheme.parameters()]
    assert all(g is not None and torch.isfinite(g).all() for g in grads) and grads[0].abs().max() > 0


@pytest.mark.parametrize("name", ["dc3", "splitting", "penalty"])
def test_schemes_that_promise_less_say_so(name):
    """Their outputs can leave the set, and the violation is in the loss where training has to help."""
    u = 20 * draw(6, MAKERS[name](nn.Identity()).size(M.given(X)), seed=4)
    scheme = with_output(name, u)
    scheme.steps = 2
    assert not scheme.exact and scheme.at(X).residuals(scheme(X))[1].max() > 1e-3
    if name != "splitting":
        expected = scheme.weight * excess(scheme.at(X), scheme(X)).mean()
        assert torch.allclose(scheme.loss(X, lambda x, y: 0 * y.sum(-1)), expected) and expected > 0


def test_excess_is_the_mean_of_two_norms():
    y = draw(6, N, seed=5)
    expected = 0.5 * ((y @ E.mT - X).norm(dim=-1) + (y @ A.mT - B).clamp(min=0).norm(dim=-1))
    assert torch.allclose(excess(M.given(X), y), expected)


def test_projected_is_the_projection():
    u = 2 * draw(6, N, seed=6)
    assert torch.equal(with_output("projected", u)(X), M.given(X).project(u))


def test_optnet_solves_its_quadratic_program():
    scheme = with_output("optnet", draw(6, N, seed=7))
    with torch.no_grad():
        scheme.triangle += 0.5 * draw(N, N, seed=8)
    W, u, y = scheme.weight_matrix().detach(), scheme.net(X), scheme(X)
    for k in range(6):
        assert torch.allclose(y[k], quadratic_program(W, u[k], A, B, E, X[k]), atol=1e-6)
    (y * draw(6, N, seed=9)).sum().backward()
    assert scheme.triangle.grad is not None and scheme.triangle.grad.abs().max() > 0


def test_dc3_completes_and_descends():
    z = draw(6, N - EQUATIONS, seed=10)
    plain, once = with_output("dc3", z), with_output("dc3", z)
    plain.steps, once.steps, once.rate = 0, 1, 0.01
    y = plain(X)
    assert torch.allclose(y @ E.mT, X, atol=1e-13)
    kept = [j for j in range(N) if (y[:, j, None] == z).all(0).any()]
    assert len(kept) == N - EQUATIONS  # the backbone's numbers are variables as they are

    others = [j for j in range(N) if j not in kept]
    free = y[:, kept].clone().requires_grad_()

    def complete(free):
        rest = torch.linalg.solve(E[:, others], (X - free @ E[:, kept].mT).mT).mT
        return torch.cat([free, rest], 1)[:, torch.tensor([*kept, *others]).argsort()]

    (slope,) = torch.autograd.grad((complete(free) @ A.mT - B).clamp(min=0).square().sum(), free)
    assert torch.allclose(once(X), complete(free - 0.01 * slope), atol=1e-12)
    far = with_output("dc3", z)
    far.steps = 3_000
    assert M.given(X).residuals(y)[1].max() > 0.1 and M.given(X).residuals(far(X))[1].max() < 1e-4


def test_hardnet_completes_clips_every_row_and_moves_along_the_rows_alone():
    z = 2 * draw(6, N - EQUATIONS, seed=11)
    S, L = completion(E)
    start, y = X @ S.mT + z @ L.mT, with_output("hardnet", z)(X)
    assert (start @ A.mT > B).any() and torch.allclose(y @ A.mT, (start @ A.mT).clamp(max=B), atol=1e-12)
    assert torch.allclose(y @ E.mT, X, atol=1e-12)
    one = ib.Polytope(A=A[:1], b=B[:1], E=E, f=X)  # fewer rows than free variables: the rest of z stays
    moved = (schemes.HardNet(nn.Identity(), one)(z) - X @ S.mT) @ torch.linalg.pinv(L).mT - z
    assert moved.abs().max() > 0.01 and (moved @ nullspace(A[:1] @ L)).abs().max() < 1e-12
    u, low, high = 2 * draw(6, N, seed=24), torch.zeros(N).double(), torch.ones(N).double()
    assert torch.allclose(schemes.HardNet(nn.Identity(), ib.Box(low, high))(u), u.clamp(0, 1))


def test_completion_keeps_the_free_variables_as_they_are():
    S, L = completion(E)
    assert torch.allclose(E @ S, torch.eye(EQUATIONS).double(), atol=1e-13) and (E @ L).abs().max() < 1e-13
    assert sorted((L == 1).sum(0).tolist()) == [1] * (N - EQUATIONS) and L.norm() < 5  # the choice of variables is tame


def test_hardnet_takes_rows_that_depend_on_the_input():
    normals, u = draw(6, 1, N, seed=12), 3 * draw(6, N, seed=13)
    y = schemes.HardNet(nn.Identity(), ib.Polytope(A=normals, b=torch.zeros(6, 1).double()))(u)
    assert torch.allclose(y, ib.Polytope(A=normals, b=torch.zeros(6, 1).double()).project(u), atol=1e-9)  # one row: the nearest


def test_repair_moves_everything_by_one_share():
    u = 2 * draw(6, N, seed=14)
    y, start, total = with_output("repair", u)(X), u.sigmoid(), 1 + X[:, 0].tanh()
    assert torch.allclose(y.sum(-1), total, atol=1e-14)
    up = (start.sum(-1) < total)[:, None]
    share = torch.where(up, (y - start) / (1 - start), (start - y) / start)
    assert torch.allclose(share, share[:, :1].expand_as(share)) and bool((share >= 0).all() & (share <= 1).all())
    box = ib.Box(torch.full((N,), -1.0).double(), torch.full((N,), 3.0).double())
    assert torch.allclose(schemes.Repair(nn.Identity(), box)(u), -1 + 4 * u.sigmoid())


def boundary(M, y):
    """How far the nearest face is from being reached."""
    return M.residuals(y)[1].amax(-1)


def test_rayen_leaves_the_inside_alone_and_stops_rays_at_the_boundary():
    basis = nullspace(E)
    small, large = 1e-3 * draw(6, N - EQUATIONS, seed=15), 50 * draw(6, N - EQUATIONS, seed=16)
    assert torch.allclose(with_output("rayen", small)(X), center(X) + small @ basis.mT, atol=1e-14)
    y, far = with_output("rayen", large)(X), center(X) + large @ basis.mT
    out = boundary(M.given(X), far) > 0
    assert out.any() and boundary(M.given(X), y)[out].abs().max() < 1e-12
    assert (nn.functional.cosine_similarity(y - center(X), far - center(X)) > 1 - 1e-12).all()


def test_the_gauge_map_takes_spheres_of_the_cube_to_scaled_copies_of_the_boundary():
    u = draw(6, N - EQUATIONS, seed=17)
    scheme, c = with_output("gauge", u), center(X)
    size = u.tanh().abs().amax(-1, keepdim=True)
    assert boundary(scheme.at(X), c + (scheme(X) - c) / size).abs().max() < 1e-12


def test_scaled_is_ray_scaling():
    u = 4 * draw(6, N, seed=18)
    y = with_output("scaled", u)(X)
    assert torch.equal(y, ib.RayScaling(M.given(X), center=center(X))(None, u))


def test_a_mixture_of_one_anchor_is_that_anchor():
    k = N - EQUATIONS
    c, basis = center(X), nullspace(E)
    for j in range(2 * k):
        u = torch.zeros(6, 2 * k, dtype=torch.float64)
        u[:, j] = 1e3
        y = with_output("mixture", u)(X)
        ray = (y - c) @ basis
        away = torch.tensor([i != j % k for i in range(k)])
        assert ray[:, away].abs().max() < 1e-10 and (ray[:, j % k] * (1 if j < k else -1) > 0).all()
        far = ray.norm(dim=-1) > schemes.Mixture.far - 1e-6
        assert (boundary(M.given(X), y).abs()[~far] < 1e-10).all()


def test_optnet_has_the_gradients_of_its_quadratic_program():
    """The same as of a Polytope whose weight has a gradient, which knows nothing of the linear term's detour."""
    u = draw(6, N, seed=7).requires_grad_()
    scheme = with_output("optnet", u)
    with torch.no_grad():
        scheme.triangle += 0.2 * draw(N, N, seed=8)
    g = draw(6, N, seed=9)
    mine = torch.autograd.grad((scheme(X[:6]) * g).sum(), [u, scheme.triangle])
    W, P = scheme.weight_matrix(), M.given(X[:6])
    plain = ib.Polytope(A=P.A, b=P.b, E=P.E, f=P.f, weight=W).project(-torch.linalg.solve(W, u.mT).mT)
    for a, b in zip(mine, torch.autograd.grad((plain * g).sum(), [u, scheme.triangle]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad((scheme(X[:6]) * g).sum(), u, create_graph=True)


def test_splitting_takes_the_steps_of_its_formulas():
    """In all variables (y, s) and with a dense matrix, as its docstring has them."""
    u = draw(6, N, seed=7)
    P, scheme = M.given(X[:6]), with_output("splitting", u)
    length = P.A.norm(dim=-1)
    A, b = P.A / length[:, None], P.b / length
    K = torch.cat([torch.cat([P.E, P.E.new_zeros(len(P.E), len(A))], 1), torch.cat([A, -torch.eye(len(A)).double()], 1)])
    g = torch.cat([P.f, P.f.new_zeros(6, len(A))], 1)
    inverse = torch.linalg.pinv(K)
    z = torch.cat([u, u @ A.mT], 1)
    for _ in range(scheme.steps + 1):
        w = z - (z @ K.mT - g) @ inverse.mT
        r = 2 * w - z
        z = z + scheme.omega * (torch.cat([(r[:, :N] + scheme.sigma * u) / (1 + scheme.sigma), r[:, N:].minimum(b)], 1) - w)
    torch.testing.assert_close(scheme.train()(X[:6]), w[:, :N], rtol=1e-10, atol=1e-10)


def test_splitting_tends_to_the_projection():
    u = 2 * draw(6, N, seed=19)
    scheme, goal = with_output("splitting", u), M.given(X).project(u)
    scheme.steps = 10
    rough = scheme(X)
    scheme.steps = 3_000
    assert (rough - goal).norm() > 1e-6 > (scheme(X) - goal).norm()
    assert (rough @ E.mT - X).abs().max() < 1e-12
    scheme.test_steps = 10
    assert torch.equal(scheme.eval()(X), rough)  # out of training it takes test_steps


@pytest.mark.parametrize("name", ["dc3", "hardnet", "rayen", "gauge", "mixture", "splitting", "repair"])
def test_gradients_are_derivatives(name):
    scheme = MAKERS[name](nn.Identity())
    u = draw(2, scheme.size(scheme.at(X)), seed=20).requires_grad_()
    assert torch.autograd.gradcheck(lambda u: scheme.enforce(scheme.at(X[:2]), u, X[:2]), (u,))


def test_a_memo_follows_its_matrix():
    calls = []
    memo = Memo(lambda C: calls.append(1) or C.sum())
    a, b = draw(2, 2, seed=21), draw(2, 2, seed=22)
    assert memo(a) == a.sum() and memo(a.clone()) == a.sum() and len(calls) == 1
    assert memo(b) == b.sum() and len(calls) == 2
    b += 1
    assert memo(b) == b.sum() and len(calls) == 3
    learnt = a.clone().requires_grad_()
    assert memo(learnt).requires_grad and memo(b) == b.sum()


def test_the_snippet_of_the_page_runs():
    page = (Path(__file__).parents[1] / "docs" / "compare.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.S)
    scope = {}
    exec(snippet, scope)
    assert scope["net"].weight.grad.abs().max() > 0
    named = set(re.findall(r"^\| `(\w+)\(net", page, re.M))
    assert named == set(schemes.__all__) - {"Scheme"}  # every scheme has its line


def test_wrong_use_is_refused_with_the_fix():
    net, box = nn.Linear(2, N).double(), ib.Box(torch.zeros(N), torch.ones(N))
    with pytest.raises(TypeError, match="bare function would train nothing"):
        schemes.Projected(lambda x: x, box)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"needs a set, got Linear. Write DC3\(net"):
        schemes.DC3(net, net)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"asked for 3 numbers per point .*, got 5. Give the backbone an output of size 3"):
        schemes.DC3(net, M)(X)
    with pytest.raises(TypeError, match=r"HardNet needs linear constraints, got Ball\(5\).*Projected"):
        schemes.HardNet(net, ib.Ball(N))(X)
    with pytest.raises(TypeError, match=r"linearly independent constraints, got 5 rows of 4 free variables.*Projected"):
        schemes.HardNet(nn.Linear(2, N - 1).double(), BUDGET)(X)
    with pytest.raises(TypeError, match=r"at most the equation sum y = total, got .*Projected"):
        schemes.Repair(net, M)(X)
    with pytest.raises(TypeError, match=r"Rayen asked for center\(x\)"):
        schemes.Rayen(net, M, torch.zeros(N))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="strictly inside"):
        with_far = schemes.Rayen(nn.Linear(2, N - EQUATIONS).double(), M, lambda x: center(x) + 10 * A[0] / A[0].norm())
        with_far(X)
    with pytest.raises(ValueError, match=r"GaugeMap asked for a bounded set.*Rayen"):
        half = ib.Halfspaces(A[:1], B[:1])
        schemes.GaugeMap(nn.Identity(), half, lambda x: torch.zeros(N).double())(-A[:1])
    batched = ib.Polytope(E=draw(6, 1, N, seed=23), f=torch.zeros(6, 1).double(), A=A, b=B)
    with pytest.raises(TypeError, match=r"matrix E is the same for all inputs, got E of shape \(6, 1, 5\)"):
        schemes.DC3(nn.Linear(2, N - 1).double(), batched)(X)
    with pytest.raises(ValueError, match="2 independent equations, got 1"):
        schemes.DC3(nn.Linear(2, N - 2).double(), ib.Polytope(E=E[[0, 0]], f=torch.zeros(2).double(), A=A, b=B))(X)
    with pytest.raises(ValueError, match="weight > 0, got 0"):
        schemes.Penalty(net, M, weight=0)
    with pytest.raises(ValueError, match="steps >= 0, got -1"):
        schemes.DC3(net, M, steps=-1)
    with pytest.raises(ValueError, match="test_steps >= 1, got 0"):
        schemes.Splitting(net, M, test_steps=0)
    with pytest.raises(TypeError, match=r"OptNet needs a set of vectors, got SO\(3\)"):
        schemes.OptNet(net, ib.SO(3))
    with pytest.raises(ValueError, match="finite"):
        schemes.Projected(net, box)(torch.full((1, 2), math.nan).double())


def test_a_pull_brings_raw_outputs_to_the_set_and_moves_no_output():
    """The slope of pull |u - P(u)|^2 is 2 pull (u - P(u)), beside that of the objective through the projection."""
    u = torch.nn.Parameter(torch.tensor([[3.0, 4.0]], dtype=torch.float64))

    class Raw(torch.nn.Module):
        def forward(self, x):
            return u

    x, cost = torch.zeros(1, 1, dtype=torch.float64), lambda x, y: y[..., 0]
    plain, pulled = (schemes.Projected(Raw(), ib.Ball(2), pull) for pull in (0.0, 0.5))
    (a,) = torch.autograd.grad(plain.loss(x, cost), u)
    loss = pulled.loss(x, cost)
    (b,) = torch.autograd.grad(loss, u)
    assert loss.item() == pytest.approx(0.6 + 0.5 * 16) and torch.equal(plain(x), pulled(x))
    torch.testing.assert_close(b - a, u.detach() * 0.8)
    with pytest.raises(ValueError, match="pull >= 0, got -1"):
        schemes.Projected(Raw(), ib.Ball(2), -1)
