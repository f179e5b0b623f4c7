"""The examples run, and what they promise holds."""

import importlib.util
from pathlib import Path

import torch

FOLDER = Path(__file__).parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_arm_with_limits_and_an_obstacle():
    arm = load("arm")
    _, goals, _, s = arm.main()
    ok = s.status == 0
    assert ok.double().mean() >= 0.8
    for q, goal in zip(s.point[ok].double(), goals[ok].double(), strict=True):
        assert (arm.joints(q)[-1] - goal).abs().max() <= 1e-5 and (arm.allowed(q, goal) <= 0).all()


def test_portfolio_with_caps_and_sectors():
    portfolio = load("portfolio")
    _, w, gains = portfolio.main()
    exact = w.double()
    assert (exact >= 0).all() and (exact <= torch.tensor(portfolio.CAP).double()).all()
    assert ((exact @ portfolio.SECTORS.T.double()) <= torch.tensor(portfolio.LIMIT).double()).all()
    assert (exact.sum(-1) - 1).abs().max() <= 1e-6 and gains[-1] > gains[0]


def test_power_balance_from_the_input():
    M, _, z, x, costs = load("power_balance").main(steps=30)
    own = M.given(z)
    eq, ineq = own.residuals(x)
    assert (ineq <= 0).all() and eq.abs().max() <= 1e-5 and costs[-1] < costs[0]


def test_a_correlation_matrix_as_a_head():
    y, losses = load("correlation_head").main(steps=15)
    assert (y.diagonal(dim1=1, dim2=2) == 1).all() and torch.linalg.eigvalsh(y.double()).min() >= 0
    assert losses[-1] < losses[0]


def test_a_geometric_network_from_rotations_to_unit_vectors():
    M, y, error, losses = load("geometric_network").main(steps=60)
    assert M.contains(y).all() and float(error.mean()) <= 0.5 and losses[-1] < 0.2 * losses[0]


def test_a_tree_fits_into_the_hyperbolic_plane():
    bent, plain, violation = load("tree_embedding").main(steps=20)
    assert bent <= 0.06 and plain >= 2 * bent and violation.max() <= 1e-6


def test_an_autoencoder_with_a_spherical_latent_variable():
    import inbounds as ib

    z, error, losses = load("sphere_vae").main(steps=80)
    assert ib.Sphere(3).contains(z).all() and error <= 0.3 and losses[-1] < 0.5 * losses[0]


def test_an_autoencoder_whose_latent_variable_is_a_rotation():
    import inbounds as ib

    R, error, losses = load("rotation_vae").main(steps=60)
    assert ib.SO(3).contains(R).all() and error <= 0.3 and losses[-1] < 0.5 * losses[0]


def test_a_residual_network_on_the_hyperbolic_plane():
    miss, worst, losses = load("hyperbolic_resnet").main(steps=40)
    assert worst <= 1e-6 and miss**2 <= 0.2 * losses[0]


def test_flow_matching_learns_two_modes_on_the_sphere():
    M, y, learned, uniform, gain = load("flow_matching").main()
    assert M.contains(y).all() and learned <= 0.02 and uniform >= 10 * learned and gain >= 0.7


def test_a_neural_ode_on_the_sphere_as_a_density_model():
    M, y, found, best, flat = load("density_ode").main(steps=12)
    assert M.contains(y).all() and flat + 0.5 * (best - flat) <= found <= best + 0.1
