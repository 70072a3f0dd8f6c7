"""Masks of hidden units: whose a tensor's rows are, and arithmetic with them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedakd import activations, trees
from fedakd.activations import changed, hidden
from fedakd.errors import PlanError
from fedakd.training import Bench, loaded, snapshot
from fedakd.trees import Params
from nets import (
    DIVISIBLE,
    NETS,
    SCALES,
    Net,
    bench,
    half,
    heard,
    hooks,
    images,
    rows,
    units,
    used,
)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


# whose a tensor's rows are


@pytest.mark.parametrize("net", NETS)
def test_owned_are_the_floating_tensors_of_the_incoming_modules_row_by_row(net):
    module = NETS[net]()
    params, owners, first = snapshot(module), activations.owners(module), 0
    for layer in hidden(module):
        own = [n for n in owners if n.rpartition(".")[0] in layer.incoming]
        assert set(own) == {n for n in params if n.rpartition(".")[0] in layer.incoming}
        for name in own:
            assert owners[name].tolist() == list(range(first, first + layer.units))
            assert len(params[name]) == layer.units
        first += layer.units
    assert not any(name.startswith("head") for name in owners)


@pytest.mark.parametrize("net", DIVISIBLE)
@pytest.mark.parametrize("scale", SCALES)
def test_masked_parameters_alone_silence_in_evaluation_mode(net, scale):
    module = used(net)
    params, owners = snapshot(module), activations.owners(module)
    mask = half(sum(units(module)))
    parts = mask.split(units(module))
    loaded(module, activations.masked(params, owners, mask)).eval()
    for output, part in zip(heard(module, (images() * scale)), parts, strict=True):
        assert (output[:, part == 0] == 0).all()
    assert trees.equal(params, snapshot(loaded(module, params)))  # what was masked is as it was


@pytest.mark.parametrize("net", DIVISIBLE)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_in_silence_leaves_masked_parameters_zero(net, optimizer):
    module = used(net)
    own, owners = bench(module, optimizer=optimizer, weight_decay=0.1, lr=1e-3), activations.owners(module)
    mask = half(sum(units(module)))
    start = activations.masked(snapshot(module), owners, mask)
    with changed(module, activations.silencing(module, mask)):
        end = own.fit(start, rows())
    assert trees.equal(end, activations.masked(end, owners, mask))
    assert not trees.equal(end, start)


# arithmetic with masks


TWO_LAYERS: Params = {"a.weight": torch.arange(3), "a.bias": torch.arange(3), "b.weight": torch.arange(3, 5)}


@pytest.mark.parametrize(
    ("enough", "descending", "expected"),
    [
        (25, False, [0, 1, 0, 0, 1]),  # 10 15 | 20 25 30
        (26, False, [0, 1, 1, 0, 1]),
        (101, False, [1, 1, 1, 1, 1]),
        (55, True, [1, 0, 0, 1, 0]),  # 30 25 | 20 15 10
        (56, True, [1, 0, 1, 1, 0]),
    ],
)
def test_a_prefix_is_as_short_as_can_be(enough, descending, expected):
    shares = torch.tensor([30.0, 15.0, 20.0, 25.0, 10.0])
    assert activations.prefix(shares, enough, TWO_LAYERS, descending).tolist() == expected


def test_a_prefix_has_the_first_unit_of_every_layer():
    shares = torch.tensor([20.0, 5.0, 15.0, 35.0, 25.0])
    assert activations.prefix(shares, 1.0, TWO_LAYERS).tolist() == [0, 1, 0, 0, 1]
    assert activations.prefix(shares, 1.0, TWO_LAYERS, descending=True).tolist() == [1, 0, 0, 1, 0]


class Residual(nn.Module):
    """What comes out of its last activation is not its last layer's alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.relu = nn.Linear(64, 5), nn.ReLU()
        self.second, self.last = nn.Linear(5, 5), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        early: Tensor = self.relu(self.first(x.flatten(1)))
        return self.last(early + self.second(early))  # type: ignore[no-any-return]


class Tokens(nn.Module):
    """Its units are in the last dimension; as many of them as there are tokens, or not."""

    def __init__(self, units: int, tokens: int) -> None:
        super().__init__()
        self.first, self.relu, self.tokens = nn.Linear(8, units), nn.ReLU(), tokens

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.first(x[:, 0, : self.tokens])).mean(1)  # type: ignore[no-any-return]


def deaf(body: nn.Module, units: int) -> nn.Module:
    """A model whose head does not listen yet."""
    module = Net(body, units)
    nn.init.zeros_(module.head.weight)
    return module


@pytest.mark.parametrize(
    ("module", "place"),
    [
        (lambda: Net(Residual(), 5), "body.last"),
        (lambda: deaf(Residual(), 5), "body.last"),
        (lambda: Net(Tokens(5, 8), 5), "body.relu"),
        (lambda: Net(Tokens(8, 8), 8), "body.relu"),
        (lambda: Net(Tokens(5, 1), 5), "body.relu"),
    ],
)
def test_a_model_whose_units_do_not_go_with_their_parameters_is_refused(module, place):
    own = bench(module())
    with pytest.raises(PlanError, match=f"fedsac: the units of {place} cannot be taken out of the model"):
        activations.check(own, snapshot(own.module), rows())
    assert hooks(own.module) == 0


@pytest.mark.parametrize("net", NETS)
def test_models_whose_units_do_are_not(net):
    own = bench(used(net))
    before = snapshot(own.module)
    activations.check(own, before, rows())
    assert hooks(own.module) == 0


def test_the_mean_of_holders():
    owners = {"w": torch.tensor([0, 1, 2])}
    old = {"w": torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]), "head": torch.tensor([9.0])}
    ours = {"w": torch.tensor([[4.0, 5.0], [6.0, 7.0], [0.0, 0.0]]), "head": torch.tensor([1.0])}
    theirs = {"w": torch.tensor([[8.0, 9.0], [0.0, 0.0], [0.0, 0.0]]), "head": torch.tensor([2.0])}
    held = [(ours, torch.tensor([1.0, 1.0, 0.0])), (theirs, torch.tensor([1.0, 0.0, 0.0]))]
    mean = activations.mean_of_holders(iter(held), owners, old)
    expected = {"w": torch.tensor([[6.0, 7.0], [6.0, 7.0], [3.0, 3.0]]), "head": torch.tensor([1.5])}
    assert trees.equal(mean, expected)


@pytest.mark.parametrize("net", NETS)
def test_losses_without_a_unit_are_those_of_the_model_with_its_parameters_masked(net):
    module, data = used(net), rows(66 if net in ("cnn", "mlp") else 6)  # 66 are more than one chunk
    own, params, owners = bench(module), snapshot(module), activations.owners(module)
    body = module.body
    count = sum(units(module))
    losses = activations.losses_without(own, params, data)
    assert losses.shape == (count,)
    for unit in range(0, count, 5):
        mask = torch.ones(count)
        mask[unit] = 0
        expected = own.risk(activations.masked(params, owners, mask), data)
        assert losses[unit].item() == pytest.approx(expected, rel=1e-5)
    assert module.body is body
    assert hooks(module) == 0


def test_losses_do_not_depend_on_how_many_chunks_are_judged_at_a_time():
    module, data = used("mlp"), rows(650)
    own = bench(module)
    alone = activations.losses_without(own, snapshot(module), data)
    own.threads = 3
    assert torch.equal(activations.losses_without(own, snapshot(module), data), alone)


def test_the_body_is_whole_again_after_an_exception(monkeypatch):
    module = used("mlp")
    own, body, risk = bench(module), module.body, Bench.risk

    def failing(self, *asked):  # type: ignore[no-untyped-def]
        return risk(self, *asked) if module.body is body else 1 / 0

    monkeypatch.setattr(Bench, "risk", failing)
    with pytest.raises(ZeroDivisionError):
        activations.losses_without(own, snapshot(module), rows())
    assert module.body is body
