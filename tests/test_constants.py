"""The sweep over constants changes a number everywhere where it is used, and puts it back."""

import importlib
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
constants = importlib.import_module("constants")


def test_a_constant_is_changed_where_it_was_imported_too():
    from inbounds.planning import around, contacts, path, planners, shortest, ways
    from inbounds.planning.worlds import base

    for constant, holders in (
        (constants.Constant("planning/contacts.py", "CLOSED"), (contacts, planners, shortest)),
        (constants.Constant("planning/worlds/base.py", "MARGIN"), (base, around)),
        (constants.Constant("planning/ways.py", "STEP"), (ways, around)),
    ):
        own = constant.value
        constant.set(7 * own)
        assert all(getattr(m, constant.name) == 7 * own for m in holders)
        constant.set(own)
        assert all(getattr(m, constant.name) == own for m in holders)
    most = constants.Constant("planning/path.py", "MOST")
    most.set(1)  # another constant of that name stays
    assert around.MOST == 16 and path.MOST == 1
    most.set(16)


def test_the_sweep_tells_what_matters_from_what_does_not():
    tight = constants.Constant("planning/path.py", "MOST")

    def counts():
        from inbounds.planning import path

        return path.MOST // 16, torch.ones(2)

    found = constants.row(tight, counts)
    assert found["matters"] and found["failures"] == 1 and found["doubled"]["failures"] == 2 and tight.value == 16
    names = {(c.file, c.name) for c in constants.constants()}
    assert len(names) > 100 and {("planning/ways.py", "STEP"), ("solvers/newton.py", "STEPS")} <= names
    assert constants.scaled((2, 0.5), 2.0) == (4, 1.0) and constants.scaled(1, 0.5) == 1 and constants.scaled(("a",), 2.0) is None
