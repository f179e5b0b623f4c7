"""Weights that are loaded into another set say so; everything else about state_dicts is as torch has it."""

import copy
import io
import warnings
from collections import OrderedDict

import pytest
import torch
from catalogue import SETS
from torch import nn

import inbounds as ib


def model(M, step=ib.Projection, width=4):
    return ib.IAA([ib.MLPBlock(M.shape, step(M).size, width=width) for _ in range(2)], step(M))


SMALL, LARGE = (lambda: ib.Box([0.0, 0.0], [1.0, 1.0])), (lambda: ib.Box([0.0, 0.0], [1.0, 2.0]))
OTHERS = {
    "a bound": (SMALL, LARGE, r"high was \[1\.0, 1\.0\], is \[1\.0, 2\.0\]"),
    "a radius": (lambda: ib.Sphere(3), lambda: ib.Sphere(3, radius=2), r"radius was 1\.0, is 2\.0"),
    "the kind": (lambda: ib.Ball(2), lambda: ib.Halfspace([1.0, 0.0], 1.0), "kind was Ball, is Halfspace"),
    "a part": (
        lambda: ib.Product(ib.Sphere(3), ib.Ball(2)),
        lambda: ib.Product(ib.Sphere(3), ib.Ball(2, radius=0.5)),
        r"radius was 1\.0, is 0\.5",
    ),
    "many numbers": (
        lambda: ib.BoxMinusBalls([0.0, 0.0], [4.0, 3.0], [[1.0, 1], [2, 2], [3, 1], [1, 2], [3, 2.5]], [0.2] * 5),
        lambda: ib.BoxMinusBalls([0.0, 0.0], [4.0, 3.0], [[1.0, 1], [2, 2], [3, 1], [1, 2], [3, 2.4]], [0.2] * 5),
        "centers was <5x2> [0-9a-f]{12}, is <5x2> [0-9a-f]{12}",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_weights_loaded_into_another_set_warn_and_load(name):
    first, second, words = OTHERS[name]
    a, b = model(first()), model(second())
    with pytest.warns(UserWarning, match=words):
        b.load_state_dict(a.state_dict())
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("name", SETS)
def test_weights_loaded_into_the_same_set_are_silent(name):
    a, b = nn.Sequential(nn.Linear(2, 2), SETS[name]()), nn.Sequential(nn.Linear(2, 2), SETS[name]())
    b.load_state_dict(a.state_dict())
    b.double().load_state_dict(a.state_dict())
    a.bfloat16().load_state_dict(b.state_dict())
    assert list(a.state_dict()) == ["0.weight", "0.bias"]  # no entries of its own


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("way", [lambda s: s, copy.deepcopy, through_a_file], ids=["as it is", "copy", "file"])
def test_the_note_travels(way):
    a, b = model(SMALL()), model(LARGE())
    with pytest.warns(UserWarning, match=r"another set at step\.M "):
        b.load_state_dict(way(a.state_dict()))
    model(SMALL()).load_state_dict(way(a.state_dict()))


def test_state_dicts_of_earlier_versions_and_bare_tensors_load_strictly_and_silently():
    a, b = model(SMALL()), model(LARGE())
    bare = dict(a.state_dict())  # as from safetensors
    b.load_state_dict(bare, strict=True)
    earlier = OrderedDict(a.state_dict())
    earlier._metadata = OrderedDict((k, {"version": 1}) for k in a.state_dict()._metadata)
    b.load_state_dict(earlier, strict=True)
    assert all(isinstance(v, torch.Tensor) for v in a.state_dict().values())


def test_safetensors_keep_the_weights(tmp_path):
    from safetensors.torch import load_file, load_model, save_file, save_model

    a, b = model(SMALL()), model(SMALL())
    save_file(a.state_dict(), tmp_path / "w.safetensors")
    b.load_state_dict(load_file(tmp_path / "w.safetensors"))
    save_model(a, str(tmp_path / "m.safetensors"))
    load_model(b, str(tmp_path / "m.safetensors"))
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


def test_learnable_constants_travel_with_the_weights():
    def ball(r):
        return model(ib.Ball(2, radius=nn.Parameter(torch.tensor(r))))

    a, b = ball(1.0), ball(2.0)
    b.load_state_dict(a.state_dict())
    assert b.step.M.radius.item() == 1.0


def test_a_constant_is_the_same_in_float32_and_float64():
    a, b = model(ib.Sphere(3, radius=0.1)), model(ib.Sphere(3, radius=torch.tensor(0.1)))
    b.load_state_dict(a.state_dict())


def test_stacks_transforms_and_placeholders_are_left_alone():
    nets = [model(SMALL()) for _ in range(3)]
    params, buffers = torch.func.stack_module_state(nets)
    skeleton = copy.deepcopy(nets[0]).to("meta")
    skeleton.load_state_dict(nets[0].state_dict(), assign=True)  # no values, nothing to compare

    def call(p, b, x):
        return torch.func.functional_call(nets[0], (p, b), (x,))

    x = torch.randn(5, 2)
    y = torch.vmap(call, in_dims=(0, 0, None))(params, buffers, x)
    assert torch.allclose(y, torch.stack([net(x) for net in nets]))
    exported = torch.export.export(nets[0], (x,))
    assert torch.allclose(exported.module()(x), nets[0](x))
    nets[1].load_state_dict(exported.state_dict, strict=False)


def test_the_warning_points_to_the_caller():
    a, b = model(SMALL()), model(LARGE())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        b.load_state_dict(a.state_dict())
    assert [w.filename for w in caught] == [__file__]
