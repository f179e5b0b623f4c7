"""What an object prints says what it is: sets print the constructor that makes them, paths a summary and a picture."""

import math
import xml.etree.ElementTree as ElementTree

import pytest
import torch
from catalogue import OVERLAP, PLANE, SETS

import inbounds as ib
from inbounds import planning as pl

MADE = {
    "Box([0, 0], [4, 3])": lambda: ib.Box([0, 0], [4, 3]),
    "Box([0, -inf], [1, inf])": lambda: ib.Box([0, -math.inf], [1, math.inf]),
    "Ball(2, radius=0.5, center=[1, 2])": lambda: ib.Ball(2, radius=0.5, center=[1, 2]),
    "Halfspace([1, 0, 0], b=0.5)": lambda: ib.Halfspace([1, 0, 0], 0.5),
    "Affine([[1, 1, 1]], [1])": lambda: ib.Affine([[1, 1, 1]], [1]),
    "Ellipsoid([1, 2], center=[0, 1])": lambda: ib.Ellipsoid([1, 2], center=[0, 1]),
    "CappedSimplex(3, cap=[0.5, 0.5, 0.4])": lambda: ib.CappedSimplex(3, cap=[0.5, 0.5, 0.4]),
    "BoxMinusBalls([0, 0], [4, 3], [[1.2, 1.9], [1.7, 1.1], [3, 0.45]], [0.6, 0.55, 0.6])": lambda: ib.BoxMinusBalls(
        *PLANE, *OVERLAP
    ),
    "Box(<20>, <20>)": lambda: ib.Box([0.0] * 20, [1.0] * 20),
    "Ball(2, radius=<32>)": lambda: ib.Ball(2, radius=torch.ones(32)),
    "Projection(Box([0], [1]))": lambda: ib.Projection(ib.Box([0], [1])),
}


@pytest.mark.parametrize("text", MADE)
def test_a_set_shows_its_parameters_and_shortens_long_ones(text):
    assert repr(MADE[text]()) == text


@pytest.mark.parametrize("name", SETS)
def test_what_a_set_prints_makes_it_again(name):
    M = SETS[name]()
    again = eval(repr(M), {**vars(ib), "inf": math.inf})
    assert type(again) is type(M) and repr(again) == repr(M)
    for (key, a), (other, b) in zip(M.named_buffers(), again.named_buffers(), strict=True):
        assert key == other
        torch.testing.assert_close(a, b, rtol=1e-5, atol=0)  # six digits are printed


def test_without_values_the_shape_is_shown():
    assert "<2>" in repr(ib.Ball(2, center=torch.zeros(2, device="meta")))


@pytest.fixture(scope="module")
def path():
    torch.manual_seed(0)
    world = pl.load_world("rect-overlap")
    return pl.Exact(world).plan(world.sample(5), world.sample(5))


def polylines(page, color):
    picture = ElementTree.fromstring(page.split("<pre>")[0])
    return [e for e in picture.iter() if e.tag.endswith("polyline") and e.get("stroke") == color]


def test_a_path_prints_a_summary(path):
    said = repr(path)
    assert said.startswith("Path(5 paths of at most") and ", 5 certified;" in said and len(said) < 200
    assert f"least clearance {float(path.clearance.min()):.3g})" in said
    assert repr(path[0]).startswith("Path(1 path ") and repr(path[:0]).startswith("Path(0 paths")


def test_a_path_is_a_picture_in_a_notebook(path):
    page = path._repr_html_()
    circles = [e for e in ElementTree.fromstring(page.split("<pre>")[0]).iter() if e.tag.endswith("circle")]
    assert len(circles) == 3 + 5  # obstacles and starts
    moves = int((path.points[:, 1:] != path.points[:, :-1]).any(-1).sum())
    assert len(polylines(page, "#1f6f8b")) == moves and not polylines(page, "#c1272d")


def test_a_segment_that_collides_is_red():
    world = pl.BoxWorld([0, 0], [4, 3], [[2.0, 1.5]], [0.5])
    through = pl.Path.of(world, torch.tensor([[[0.5, 1.5], [3.5, 1.5]]]), torch.tensor([True]))
    assert ", 0 certified, 1 colliding;" in repr(through)
    assert len(polylines(through._repr_html_(), "#c1272d")) == 1


def test_pictures_of_spheres_batches_of_worlds_and_spaces():
    torch.manual_seed(0)
    globe = pl.load_world("sphere")
    assert polylines(pl.Exact(globe).plan(globe.sample(2), globe.sample(2))._repr_html_(), "#1f6f8b")
    worlds = pl.random_worlds(3, seed=0)
    x = torch.stack([worlds[i].sample() for i in range(3)])
    rows = pl.Path.of(worlds, torch.stack([x, x], 1), torch.ones(3, dtype=torch.bool))
    assert "<svg" in rows._repr_html_() and "<svg" in rows[1:]._repr_html_()
    space = pl.BoxWorld([0.0] * 3, [1.0] * 3, [[0.5, 0.5, 0.5]], [0.2])
    straight = pl.Path.of(space, torch.tensor([[[0.1, 0.1, 0.1], [0.9, 0.1, 0.1]]]), torch.tensor([True]))
    assert "<svg" not in straight._repr_html_() and "1 certified" in straight._repr_html_()


@pytest.mark.parametrize(
    "M", [ib.Ball(2, 0.5), ib.Box([0, 0], [4, 3]), ib.Sphere(2), ib.Simplex(3), ib.Halfspace([1, 1], 0.5)], ids=repr
)
def test_a_set_of_two_or_three_dimensions_is_a_picture(M, tmp_path):
    x = torch.cat([M.sample(7), torch.full((1, *M.shape), 50.0)])
    picture = M.plot(x)
    marks = [e.get("fill") or e.get("stroke") for e in ElementTree.fromstring(picture.svg).iter()]
    assert marks.count("#d55e00") == 7 and "<svg" in M._repr_html_() and picture.title == repr(M)
    picture.save(tmp_path / "set.svg")
    with pytest.raises(ValueError, match=r"ends with \.svg"):
        picture.save(tmp_path / "set.png")


@pytest.mark.parametrize("M", [ib.SO(3), ib.Ball(2, radius=torch.ones(32))], ids=repr)
def test_a_set_without_a_picture_shows_its_constructor(M):
    assert M._repr_html_() == f"<pre>{M!r}</pre>".replace("<32>", "&lt;32&gt;")
    with pytest.raises(ValueError, match="plot asked for"):
        M.plot()
