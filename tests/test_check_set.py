"""Prove that the contract can fail: wrong sets, each rejected by the law it breaks."""

import math

import pytest
import torch
from catalogue import SETS

import inbounds as ib
from inbounds.sets.solved import SolvedSet
from inbounds.testing import Case, LawError, overrides_hooks_only
from inbounds.testing.values import nothing_is_nearer


class WrongDim(ib.Sphere):
    def _project(self, x):
        return x / x.norm(dim=0, keepdim=True).clamp(min=1e-12)


class NoDeterminantFix(ib.SO):
    def _project(self, x):
        U, _, Vh = torch.linalg.svd(torch.nan_to_num(x))
        return U @ Vh


class RawSVD(ib.SO):
    def _project(self, x):
        finite = torch.where(torch.isfinite(x), x, 0.0)
        U, _, Vh = torch.linalg.svd(finite)
        last = torch.ones_like(U[..., :1, :])
        last[..., -1] = torch.det(U @ Vh).detach()[..., None]
        return (U * last) @ Vh


class NotTotal(ib.Sphere):
    def _project(self, x):
        return x / x.norm(dim=-1, keepdim=True)


class SpaceInsteadOfCone(ib.Ball):
    def _tangent(self, x, v):
        boundary = x.norm(dim=-1, keepdim=True) > 1 - 1e-5
        return torch.where(boundary, v - x * (x * v).sum(-1, keepdim=True), v)


class WholeSpaceTangent(ib.Box):
    def _tangent(self, x, v):
        return v


class ViolationThroughProject(ib.Sphere):
    def _violation(self, x):
        return (x - self._project(x)).norm(dim=-1)


class NotIdempotent(ib.Ball):
    def _project(self, x):
        return 0.9 * super()._project(x)


class WrongDtype(ib.Ball):
    def _project(self, x):
        return super()._project(x).float()


class NotNearest(ib.Box):
    """Shrinks towards the centre instead of clamping."""

    def _project(self, x):
        worst = torch.maximum(x.abs().amax(-1, keepdim=True), torch.ones_like(x[..., :1]))
        return (x / worst).clamp(-1, 1)


class NoGradient(ib.Sphere):
    def _project(self, x):
        return super()._project(x).detach()


class WrongGradient(ib.Sphere):
    def _project(self, x):
        return super()._project(x).detach() + (x - x.detach())


class OnTheEdge(ib.Ball):
    """Lands on the boundary up to rounding, on either side of it."""

    def _project(self, x):
        return x / x.norm(dim=-1, keepdim=True).clamp(min=1)


class SwallowsNaN(ib.Ball):
    """Claims that its formula keeps NaN, which it does not."""

    spreads_nan = True

    def _project(self, x):
        return super()._project(torch.nan_to_num(x))


class GroupExpAsExp(ib.SE):
    """The group exponential in place of the geodesic."""

    def _exp(self, x, v):
        return self._compose(self._group_exp(self.vee(v @ self._inverse(x))), x)


class TooMuchReach(ib.Sphere):
    reach = 3.0


class Overwrites(ib.Ball):
    def _project(self, x):
        return x.copy_(super()._project(x)) if not x.requires_grad else super()._project(x)


class ReturnsItsInput(ib.Box):
    """A view of x, not x itself, which the contract would copy."""

    def _project(self, x):
        return x.view_as(x) if bool(self.contains(x).all()) else super()._project(x)


class WrongFarAway(ib.Ball):
    """Right up to 50, and the centre beyond."""

    def _project(self, x):
        return torch.where(x.norm(dim=-1, keepdim=True) > 50, 0 * x, super()._project(x))


class TooMuchMargin(ib.Sphere):
    def _uniqueness_margin(self, x):
        return super()._uniqueness_margin(x) + 0.3


class WrongDimension(ib.Sphere):
    def __init__(self, n):
        super().__init__(n)
        self.dim = n


class NoSecondDerivative(ib.Sphere):
    def _project(self, x):
        """The first derivative is right, and constant."""
        y = super()._project(x).detach()
        d = x - x.detach()
        return y + (d - y * (y * d).sum(-1, keepdim=True)) / x.detach().norm(dim=-1, keepdim=True).clamp(min=1e-30)


class WrongInLargeBatches(ib.Ball):
    def _project(self, x):
        y = super()._project(x)
        return torch.cat([y[:100], 0.5 * y[100:]]) if x.dim() == 2 else y


class SamplesHalf(ib.Sphere):
    def _sample(self, batch, **how):
        y = super()._sample(batch, **how)
        return torch.cat([y[..., :1].abs(), y[..., 1:]], -1)


class WrongOnTheBoundary(ib.PSD):
    """Divides rounding by rounding on the null space."""

    def _project(self, x):
        y = super()._project(x)
        d = x - x.detach()
        singular = torch.linalg.eigvalsh(y.detach())[..., :1, None] < 1e-9
        return y + torch.where(singular, 0.1 * (d - d.mT + 2 * d) / 2, 0 * d)


class EuclideanGradient(ib.Hyperboloid):
    def _gradient(self, x, g):
        return self._tangent(x, g)


class TransportByProjection(ib.Sphere):
    def _transport(self, x, y, v):
        return self._tangent(y, v)


class NoVolume(ib.Sphere):
    def _log_volume(self, x, v):
        return 0 * v.sum(-1)


class LongNoise(ib.Hyperboloid):
    """Noise that is standard in the ambient metric, not in its own."""

    def _random_tangent(self, x, noise):
        return self._tangent(x, noise)


class ForgetsItsMetric(ib.Hyperboloid):
    """Says that its geodesics are those of the ambient metric."""

    metric = "ambient"


class WrongSideOfTheCone(ib.Ball):
    def _gradient(self, x, g):
        return self._tangent(x, g)


WRONG = [
    (WrongDim(3), "rows are independent"),
    (NoDeterminantFix(3), "total|lands in M"),
    (RawSVD(3), "gradients are finite"),
    (NotTotal(3), "total"),
    (SpaceInsteadOfCone(2), "one-sided derivative"),
    (WholeSpaceTangent([-1.0] * 2, [1.0] * 2), r"tangent\(p, x - p\) = 0"),
    (ViolationThroughProject(3), "violation does not go through project"),
    (NotIdempotent(2), "idempotent"),
    (WrongDtype(2), "keeps the dtype"),
    (NotNearest([-1.0] * 2, [1.0] * 2), "nearest"),
    (NoGradient(3), "gradients are finite"),
    (WrongGradient(3), "gradient = derivative"),
    (OnTheEdge(2), "inequalities hold including rounding"),
    (SwallowsNaN(2), "NaN row"),
    (GroupExpAsExp(3), "third order|velocity"),
    (TooMuchReach(3), "reach"),
    (Overwrites(2), "leaves its input alone"),
    (ReturnsItsInput([-9.0] * 2, [9.0] * 2), "leaves its input alone"),
    (WrongFarAway(2), "nearest"),
    (TooMuchMargin(3), "unique within the margin|1-Lipschitz"),
    (WrongDimension(3), "dimension"),
    (NoSecondDerivative(3), "second derivative"),
    (WrongInLargeBatches(2), "rows are independent"),
    (SamplesHalf(3), "samples cover"),
    (WrongOnTheBoundary(3), "gradient = derivative|keeps tangent directions"),
    (EuclideanGradient(3), r"inner\(x, gradient"),
    (TransportByProjection(3), "transport keeps inner products"),
    (NoVolume(3), "log_volume"),
    (LongNoise(3), "standard normal"),
    (ForgetsItsMetric(3), "third order|gradient = -tangent"),
    (WrongSideOfTheCone(2), "gradient = -tangent"),
]


@pytest.mark.parametrize("M, law", WRONG, ids=[type(M).__name__ for M, _ in WRONG])
def test_wrong_sets_are_rejected_by_name(M, law):
    with pytest.raises(AssertionError, match=law):
        ib.check_set(M)


class Ring(ib.ConstraintSet):
    """A user's own set, three hooks: 1 <= |x| <= 2 in the plane."""

    shape, reach = (2,), 1.0

    def _project(self, x):
        u = torch.where((x == 0).all(-1, keepdim=True), torch.tensor([1.0, 0.0], dtype=x.dtype), x)
        m = u.detach().abs().amax(-1, keepdim=True)
        u = u / m
        length = u.norm(dim=-1, keepdim=True)
        slack = 16 * torch.finfo(x.dtype).eps
        big, small = length * m > 2 - slack, length * m < 1 + slack
        return torch.where(big, (2 - 2 * slack) * u / length, torch.where(small, (1 + 2 * slack) * u / length, x))

    def _violation(self, x):
        r = torch.hypot(x[..., 0], x[..., 1])
        return (r - 2).clamp(min=0) + (1 - r).clamp(min=0)

    def _tangent(self, x, v):
        r = x.norm(dim=-1, keepdim=True)
        u, tol = x / r, 64 * torch.finfo(x.dtype).eps
        out = (u * v).sum(-1, keepdim=True)
        drop = torch.where(r > 2 - tol, out.clamp(min=0), torch.where(r < 1 + tol, out.clamp(max=0), torch.zeros_like(out)))
        return v - drop * u


def test_a_users_own_set_passes_and_works_in_a_network():
    ib.check_set(Ring())
    net = ib.FAA(torch.nn.Linear(5, 2), ib.Projection(Ring()))
    assert Ring().contains(net(torch.randn(100, 5))).all()
    assert math.isclose(Ring().reach, 1.0)


def test_it_asks_for_a_set():
    with pytest.raises(TypeError, match="ConstraintSet"):
        ib.check_set(torch.nn.Linear(2, 2))


class OwnContains(ib.Ball):
    def contains(self, x, tol=None, context=None):
        return torch.ones(x.shape[:-1], dtype=torch.bool)


def test_a_set_that_replaces_a_public_method_is_told_which_hook_to_write():
    with pytest.raises(LawError, match=r"OwnContains defines contains\. Write the hook _contains instead"):
        ib.check_set(OwnContains(2))


def test_no_set_of_the_library_replaces_a_public_method():
    for make in SETS.values():
        overrides_hooks_only(make())


class FarSide(SolvedSet):
    """A circle whose solver stops at the farthest point, which is stationary too."""

    shape = (2,)

    def _nearest(self, x):
        return -x / x.norm(dim=-1, keepdim=True), torch.zeros(x.shape[:-1], dtype=torch.long)

    def _solve(self, x):
        raise NotImplementedError

    def _residuals(self, x):
        return x.norm(dim=-1, keepdim=True) - 1, x[..., :0]


def test_a_solver_on_a_set_that_is_not_convex_must_still_beat_the_neighbours_of_its_answer():
    with pytest.raises(LawError, match="'nearest'"):
        nothing_is_nearer(Case.of(FarSide(), torch.float64, seed=0, points=8))
