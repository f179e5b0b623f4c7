"""The ways of docs/architecture.md, walked: every hop is a function, and the calls of a real run meet the hops in this order."""

import importlib
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import inbounds as ib
from inbounds import cli
from inbounds import planning as pl

ROOT = Path(ib.__file__).parent
PAGE = ROOT.parents[1] / "docs" / "architecture.md"
HOP = re.compile(r"^\d+\. `(?P<file>[\w/]+\.py)`, `(?P<name>[\w.]+)`: \S", re.M)


def hops() -> dict[str, list[tuple[str, str]]]:
    """Heading -> (file, function) of its numbered lines."""
    parts = re.split(r"^## ", PAGE.read_text(), flags=re.M)[1:]
    return {part.splitlines()[0]: HOP.findall(part) for part in parts if re.search(r"^1\. ", part, re.M)}


def point(folder):
    ib.FAA(nn.Linear(2, 3), ib.Projection(ib.Sphere(3)))(torch.randn(4, 2))


def cloud(folder):
    samples = nn.functional.normalize(torch.randn(300, 2, generator=torch.Generator().manual_seed(0)), dim=1)
    ib.fit(samples).save(folder / "circle.safetensors")


def cell(folder):
    small = ["--depths", "2", "--seeds", "1", "--epochs", "1", "--executor", "here", "--out", str(folder)]
    assert cli.main(["table", "--datasets", "sphere", "--models", "proj-faa", *small]) == 0


def query(folder):
    world = pl.load_world("rect")
    path = pl.Around(world, pl.load_sides()).plan(torch.tensor([0.2, 1.0]), torch.tensor([3.9, 1.0]))
    assert path.certified.all()


WAYS = {
    "One point through `FAA`": point,
    "One sample cloud through `fit`": cloud,
    "One cell through `inbounds table`": cell,
    "One query through a planner": query,
}


def calls(run, folder, wanted) -> list[tuple[str, str]]:
    """The calls of these functions of the package during a run, in their order."""
    seen, inside = [], f"{ROOT}/"

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(inside):
            call = code.co_filename.removeprefix(inside), code.co_qualname
            if call in wanted:
                seen.append(call)

    sys.setprofile(note)
    try:
        run(folder)
    finally:
        sys.setprofile(None)
    return seen


def is_met(way, seen) -> bool:
    """Whether the hops occur among the calls one after the other."""
    left = iter(seen)
    return all(hop in left for hop in way)


def test_every_numbered_line_of_the_page_is_a_hop():
    assert hops().keys() == WAYS.keys() and all(len(way) >= 5 for way in hops().values())
    assert len(re.findall(r"^\d+\. .*$", PAGE.read_text(), re.M)) == sum(map(len, hops().values()))


@pytest.mark.parametrize("way", WAYS)
def test_every_hop_is_there(way):
    for file, name in hops()[way]:
        assert (ROOT / file).is_file(), file
        item = importlib.import_module("inbounds." + file.removesuffix(".py").replace("/", "."))
        for part in name.split("."):
            assert hasattr(item, part), f"{file} has no {name}"
            item = getattr(item, part)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_goes_this_way(way, tmp_path):
    expected = hops()[way]
    seen = calls(WAYS[way], tmp_path, set(expected))
    assert is_met(expected, seen), list(dict.fromkeys(seen))


def test_a_way_in_another_order_is_not_met():
    assert is_met("abc", "aabac") and not is_met("abc", "acb") and not is_met("abc", "ab")
