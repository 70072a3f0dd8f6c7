"""Hidden units: where they come out, and what silences them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedakd import activations
from fedakd.activations import Layer, changed, hidden, silenced
from nets import (
    DIVISIBLE,
    NETS,
    SCALES,
    Net,
    half,
    heard,
    hooks,
    images,
    normed,
    normed_behind,
    rows,
    units,
    used,
)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


# where units come out


@pytest.mark.parametrize(
    ("net", "expected"),
    [
        ("cnn", [("body.0", 32), ("body.1", 64)]),
        ("cnn2", [("body.3", 64), ("body.6", 16), ("body.9", 200)]),
        ("cnn3", [("body.3", 32), ("body.6", 64), ("body.8", 64), ("body.11", 64)]),
        ("mlp", [("body.2", 64), ("body.4", 32)]),
        ("linear", []),
        ("normed", [("body.3", 6)]),
        ("normed behind", [("body.3", 6)]),
        ("mixed", [("body.0.3", 3), ("body.1", 5), ("body.4", 7)]),
        ("skipping", [("body.tanh", 5), ("body.elu", 5)]),
        ("prepared", [("body.2", 6)]),
    ],
)
def test_hidden_units_come_out_after_batch_norm_and_activation(net, expected):
    assert [(layer.out, layer.units) for layer in hidden(NETS[net]())] == expected


@pytest.mark.parametrize("net", NETS)
def test_units_are_dimension_one_of_what_comes_out(net):
    module = NETS[net]()
    shapes = [tuple(output.shape[:2]) for output in heard(module, images())]
    assert shapes == [(9, layer.units) for layer in hidden(module)]


def test_a_layer_knows_its_batch_norm():
    assert hidden(normed()) == [Layer("body.3", 6, ("body.1", "body.2"))]
    assert hidden(normed_behind()) == [Layer("body.3", 6, ("body.1", "body.3"))]
    assert hidden(NETS["cnn"]())[0] == Layer("body.0", 32, ("body.0.conv", "body.0.norm"))


@pytest.mark.parametrize(
    "body",
    [
        nn.Sequential(nn.Linear(64, 6)),  # no activation
        nn.Sequential(nn.Linear(64, 6), nn.Sigmoid()),  # says 0.5 when it hears nothing
        nn.Sequential(nn.ReLU(), nn.BatchNorm1d(64)),  # units of the layer before, if of any
        nn.Sequential(nn.Conv2d(1, 6, 3), nn.Flatten(), nn.ReLU()),  # dimension 1 no longer counts filters
        nn.Sequential(nn.Linear(64, 6), nn.LayerNorm(6), nn.ReLU()),  # mixes units
        nn.Sequential(*[nn.Linear(6, 6)] * 2, nn.ReLU()),  # the same rows twice
        nn.Sequential(nn.GRU(64, 6)),
        nn.Linear(64, 6),
        nn.Identity(),
    ],
    ids=str,
)
def test_what_cannot_be_silenced_by_zeros_is_passed_over(body):
    assert hidden(Net(body, 6)) == []


def test_an_activation_that_occurs_twice_is_passed_over():
    relu = nn.ReLU()
    body = nn.Sequential(nn.Linear(64, 6), relu, nn.Linear(6, 5), relu, nn.Linear(5, 4), nn.ReLU())
    assert hidden(Net(body, 4)) == [Layer("body.5", 4, ("body.4",))]


def test_a_model_without_a_body_has_no_hidden_units():
    module = nn.Sequential(nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 4))
    assert hidden(module) == []
    assert activations.owners(module) == {}
    assert activations.silencing(module, torch.ones(0)) == {}
    module.body = None  # type: ignore[assignment]
    assert hidden(module) == []


# changes on the way


def test_outputs_are_changed_while_it_lasts_and_then_no_more():
    module, x = used("cnn").eval(), images()
    before = module(x)
    with changed(module, {"body.1": lambda output: output * 2}) as same:
        assert same is module
        doubled = module(x)
    bias = module.head.bias
    assert torch.allclose(doubled - bias, 2 * (before - bias), rtol=1e-4, atol=1e-4)
    assert torch.equal(module(x), before)


def test_hooks_are_removed_after_an_exception():
    module = used("mlp")
    with pytest.raises(RuntimeError), changed(module, {"body.2": torch.clone, "body.4": torch.clone}):
        module(torch.rand(9, 3))  # as many columns as nobody expects
    assert hooks(module) == 0


def test_hooks_are_removed_when_a_later_name_is_unknown():
    module = used("mlp")
    with pytest.raises(AttributeError), changed(module, {"body.2": torch.clone, "body.99": torch.clone}):
        pass
    assert hooks(module) == 0


# silence


@pytest.mark.parametrize("net", DIVISIBLE)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("scale", SCALES)
def test_a_silenced_unit_says_exactly_zero_and_others_what_they_said(net, training, scale):
    module, x = used(net).train(training), (images() * scale)
    for index, layer in enumerate(hidden(module)):
        mask = half(layer.units)
        torch.manual_seed(1)  # dropout
        loud = heard(module, x)[index]
        with changed(module, {layer.out: silenced(mask)}):
            torch.manual_seed(1)
            quiet = heard(module, x)[index]
        assert (quiet[:, mask == 0] == 0).all()
        assert loud[:, mask == 1].ne(0).any() or scale == 0
        if not training:  # in training the statistics have moved on meanwhile
            assert torch.equal(quiet[:, mask == 1], loud[:, mask == 1])


def test_infinity_is_silenced_too():
    output = torch.tensor([[float("inf"), float("nan"), -1.0]])
    assert silenced(torch.tensor([0.0, 0.0, 1.0]))(output).tolist() == [[0.0, 0.0, -1.0]]


def test_silence_keeps_the_layout_of_images():
    images = torch.rand(9, 6, 4, 4).contiguous(memory_format=torch.channels_last)
    assert silenced(half(6))(images).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("training", [True, False])
def test_zeroing_a_filter_does_not_silence_its_channel_under_batch_norm(training):
    module, x = used("cnn").train(training), images()
    with torch.no_grad():
        for name in ("weight", "bias"):
            getattr(module.body[0].conv, name).zero_()
        module.body[0].norm.bias.abs_()
        module.body[0].norm.running_mean.zero_()
    assert (heard(module, x)[0] > 0).all()  # relu(shift), for any image
    with changed(module, {"body.0": silenced(torch.zeros(32))}):
        assert (heard(module, x)[0] == 0).all()


@pytest.mark.parametrize("net", DIVISIBLE)
def test_the_parameters_of_a_silenced_unit_have_no_gradient(net):
    module, data = used(net).train(), rows()
    owners = activations.owners(module)
    mask = half(sum(units(module)))
    with changed(module, activations.silencing(module, mask)):
        nn.functional.cross_entropy(module(data.x), data.y).backward()
    moved = 0
    for name, parameter in module.named_parameters():
        if name in owners and parameter.grad is not None:
            assert (parameter.grad[mask[owners[name]] == 0] == 0).all()
            moved += int(parameter.grad.ne(0).sum())
    assert moved > 0


def test_layers_that_keep_all_units_are_left_alone():
    module, mask = used("mlp"), torch.ones(96)
    assert activations.silencing(module, mask) == {}
    mask[70] = 0
    assert set(activations.silencing(module, mask)) == {"body.4"}
