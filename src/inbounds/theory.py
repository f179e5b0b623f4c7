"""The paper's approximation bounds, corrected and sharpened, as functions of numbers a user can measure.

Theorem 2.2 (projected ODEs): `flow_bound`, `flow_bound_young`. Theorems 3.1, 3.2 (projected outputs): `output_bound`,
`output_bound_l2`. Theorem 3.3 (exponential outputs): `exponential_bound`. A bound that says nothing is inf.
"""

from __future__ import annotations

import math


def growth_rate(lipschitz: float, speed: float = math.inf, reach: float = math.inf) -> float:
    """L + U / reach: the largest rate at which two solutions of x' = P_{T_x M} F(x) in M can separate.

    Normals v of M at x obey <v, y - x> <= |v| / (2 reach) |y - x|^2 for y in M, and the part of F that the cone removes is
    no longer than U. Attained on spheres and on SO(3) by a constant F.
    """
    lipschitz = _number("lipschitz", lipschitz, -math.inf)
    speed, reach = _number("speed", speed), _number("reach", reach)
    if lipschitz == -math.inf:
        raise ValueError("growth_rate asked for a finite one-sided constant or inf, got lipschitz=-inf.")
    if speed == 0 or reach == math.inf:  # nothing for the cone to remove, or a convex set, where removing only helps
        return lipschitz
    return lipschitz + (speed / reach if reach else math.inf)


def flow_bound(delta: float, horizon: float, lipschitz: float, speed: float = math.inf, reach: float = math.inf) -> float:
    """sup |Phi_F - Phi_f| <= delta (e^{bT} - 1) / b with b = L + U / reach, and delta T for b = 0.

    For x' = P_{T_x M} F(t, x) and y' = P_{T_y M} f(t, y) from the same start in M on [0, T], where |F - f| <= delta, |F| and
    |f| <= U = speed on M, and F is L-Lipschitz there; <F(x) - F(y), x - y> <= L |x - y|^2 suffices, so L may be negative.
    Proof: d|e|/dt <= b |e| + delta. The best constant: spheres and SO(3) attain it as delta -> 0. Theorem 2.2 goes through
    Young's inequality and loses at least a factor 1 / sqrt(1 - e^{-T}): `flow_bound_young`.
    """
    delta, horizon, rate = _flow(delta, horizon, lipschitz, speed, reach)
    return _times(delta, _growth(rate, horizon), rate)


def flow_bound_young(delta: float, horizon: float, lipschitz: float, speed: float = math.inf, reach: float = math.inf) -> float:
    """sup |Phi_F - Phi_f| <= delta sqrt((e^{aT} - 1) / a) with a = 2 L + 2 U / reach + 1: Theorem 2.2, corrected.

    Hypotheses of `flow_bound`, which is never larger. The paper prints U^2 / reach and exp(aT - 1), and is false with either.
    """
    delta, horizon, rate = _flow(delta, horizon, lipschitz, speed, reach)
    return _times(delta, math.sqrt(_growth(2 * rate + 1, horizon)), rate)


def output_bound(eps: float, reach: float = 0.0) -> float:
    """|F - P_M(f)| <= 2 eps for F in M, |F - f| <= eps (Theorem 3.1); <= 2 reach sin(asin(eps / reach) / 2) for eps < reach.

    2 eps holds for every closed M and every choice of nearest point. Inside the reach the constant falls from 2 to at most
    sqrt 2, and to 1 for convex M: with z = f, d = |z - P z|, D = |F - P z|, the reach inequality for z - P z gives
    eps^2 >= d^2 + D^2 (1 - d / reach), which is least favourable at d = reach - sqrt(reach^2 - eps^2). Spheres attain it.
    """
    eps, reach = _number("eps", eps), _number("reach", reach)
    if eps >= reach:
        return 2 * eps
    return eps if reach == math.inf else 2 * reach * math.sin(0.5 * math.asin(eps / reach))


def output_bound_l2(eps: float, shift: float = 0.0, mass: float = 1.0) -> float:
    """|F - P_M(f + v)| <= 2 eps + 2 |v| sqrt(mass) in L^2(mu), for |F - f| <= eps in L^2(mu), |v| = shift, mass = mu(Omega).

    For every closed M and every choice of nearest point; for almost every v there is no choice to make (Theorem 3.2).
    """
    eps, shift, mass = _number("eps", eps), _number("shift", shift), _number("mass", mass)
    return 2 * eps + (2 * shift * math.sqrt(mass) if shift and mass else 0.0)


def largest_shift(eta: float, mass: float = 1.0) -> float:
    """eta / (2 sqrt(mass)): every v up to this length keeps Theorem 3.2's 2 eps + eta; |v| < eta alone does not."""
    eta, mass = _number("eta", eta), _number("mass", mass)
    return eta / (2 * math.sqrt(mass)) if mass else math.inf


def projection_lipschitz(distance: float, reach: float) -> float:
    """|P x - P y| <= reach / (reach - d) |x - y| for x, y at most d < reach away from M; inf beyond, where P jumps."""
    distance, reach = _number("distance", distance), _number("reach", reach)
    if distance >= reach:
        return math.inf
    return 1.0 if reach == math.inf else reach / (reach - distance)


def exponential_bound(delta: float, lipschitz: float = 1.0) -> float:
    """dist(F, exp_p(g)) <= L delta in L^2, for F = exp_p(f), |f - g| <= delta in L^2 and exp_p L-Lipschitz (Theorem 3.3).

    L = 1 on spheres and on SO(n) for tangent vectors and distances both in the ambient (Frobenius) norm: `exp_lipschitz`.
    A rotation vector w is sqrt 2 shorter than the tangent vector hat(w), so in those coordinates L = sqrt 2.
    """
    return _times(_number("delta", delta), _number("lipschitz", lipschitz))


def exp_lipschitz(curvature: float, radius: float = math.inf) -> float:
    """A Lipschitz constant of exp_p on |v| <= radius, where sectional curvatures are >= curvature (Rauch).

    1 for curvature >= 0, else sinh(s) / s with s = sqrt(-curvature) radius. Holds up to the first conjugate point; on symmetric
    spaces (spheres, SO(n) with the Frobenius metric, flat spaces) at every radius.
    """
    curvature, radius = _number("curvature", curvature, -math.inf), _number("radius", radius)
    s = math.sqrt(max(-curvature, 0.0)) * radius if curvature < 0 and radius else 0.0
    if s == 0:
        return 1.0
    return math.sinh(s) / s if s < 700 else math.inf


def _flow(delta, horizon, lipschitz, speed, reach) -> tuple[float, float, float]:
    return _number("delta", delta), _number("horizon", horizon), growth_rate(lipschitz, speed, reach)


def _growth(rate: float, horizon: float) -> float:
    """(e^{rate horizon} - 1) / rate, horizon at rate 0; inf where it overflows."""
    if horizon == 0 or rate == 0:
        return horizon
    if rate * horizon > 700:
        return math.inf
    return horizon if rate * horizon == 0 else math.expm1(rate * horizon) / rate


def _times(small: float, factor: float, rate: float = 0.0) -> float:
    """small * factor, where 0 * inf is 0; but at an infinite rate solutions need not be unique, and nothing is known."""
    if rate == math.inf and factor > 0:
        return math.inf
    return small * factor if small and factor else 0.0


def _number(name: str, value: float, low: float = 0.0) -> float:
    """value as a float; raise unless it is a number >= low."""
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: a tensor of several numbers
        raise TypeError(f"A bound asked for {name} as one number, got {value!r}. Write {name}=float(...).") from error
    if math.isnan(number) or number < low:
        raise ValueError(f"A bound asked for a number {name} >= {low:g}, got {number:g}. Where nothing is known, write math.inf.")
    return number
