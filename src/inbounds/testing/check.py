"""`check_set`, and the laws in the order in which it asks for them."""

from __future__ import annotations

import torch

from ..core import ConstraintSet, LieGroup, Manifold
from .case import Case, LawError
from .derivatives import (
    dimension_is_the_rank_of_the_tangent,
    gradient_is_the_derivative,
    gradient_keeps_tangent_directions,
    second_derivative_is_the_derivative,
    tangent_is_the_one_sided_derivative,
)
from .metric import (
    distance_is_the_length_of_the_log,
    exp_is_a_geodesic,
    gradient_is_the_steepest_ascent,
    group_laws,
    log_inverts_exp,
    log_volume_is_the_determinant,
    random_tangents_are_standard_normal,
    transport_keeps_lengths,
)
from .values import (
    gradients_are_finite,
    is_idempotent,
    is_total,
    keeps_bad_rows_apart,
    keeps_dtype,
    lands_in_the_set,
    leaves_its_input_alone,
    margin_is_a_margin,
    nothing_is_nearer,
    reach_inequality,
    rows_are_independent,
    samples_cover_the_set,
    tangent_kills_the_normal,
    violation_is_independent,
)


def check_set(M: ConstraintSet, seed: int = 0, points: int = 64) -> None:
    """Check the laws of the contract on M, in float32 and float64; raise LawError at the first that fails.

    Points of M come from M.sample, or from projected noise where M does not sample. Laws of first derivatives are checked in
    float64; they may fail on one row in fifty, since a random row can sit on a kink.
    """
    if not isinstance(M, ConstraintSet):
        raise TypeError(f"check_set asked for a ConstraintSet, got {type(M).__name__}. Write check_set(MySet()).")
    overrides_hooks_only(M)
    for dtype in (torch.float32, torch.float64):
        case = Case.of(M, dtype, seed, points)
        for law in LAWS:
            law(case)
        if dtype == torch.float64:
            for kind, laws in SMOOTH_LAWS:
                for law in laws if isinstance(M, kind) else ():
                    law(case)


def overrides_hooks_only(M: ConstraintSet) -> None:
    """The public methods of the contract check their input; a set that replaces one of them loses these checks."""
    for base in (ConstraintSet, Manifold, LieGroup):
        for name, method in vars(base).items() if isinstance(M, base) else ():
            public = callable(method) and not name.startswith("_") and not getattr(method, "__isabstractmethod__", False)
            if public and getattr(type(M), name) is not method:
                raise LawError(
                    f"{M!r} breaks a law: public methods are the contract's own, but {type(M).__name__} defines {name}. "
                    f"Write the hook _{name} instead, which is called with checked input."
                )


LAWS = (
    leaves_its_input_alone,
    keeps_dtype,
    rows_are_independent,
    is_total,
    lands_in_the_set,
    is_idempotent,
    violation_is_independent,
    keeps_bad_rows_apart,
    gradients_are_finite,
    nothing_is_nearer,
    samples_cover_the_set,
    tangent_kills_the_normal,
    reach_inequality,
    margin_is_a_margin,
)
SMOOTH_LAWS = (
    (
        ConstraintSet,
        (
            tangent_is_the_one_sided_derivative,
            gradient_is_the_derivative,
            gradient_keeps_tangent_directions,
            second_derivative_is_the_derivative,
            gradient_is_the_steepest_ascent,
        ),
    ),
    (
        Manifold,
        (
            dimension_is_the_rank_of_the_tangent,
            exp_is_a_geodesic,
            log_inverts_exp,
            transport_keeps_lengths,
            distance_is_the_length_of_the_log,
            log_volume_is_the_determinant,
            random_tangents_are_standard_normal,
        ),
    ),
    (LieGroup, (group_laws,)),
)
