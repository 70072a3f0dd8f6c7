"""A fit that goes on with the state of an optimiser is the loop of one torch optimiser, cut into pieces."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import toys
from fedakd import trees, wire
from fedakd.examples import Examples
from fedakd.training import Bench, Recipe, Task
from fedakd.trees import Params, Tree

Kind = Literal["sgd", "adam"]
DATA = toys.rows(33, 1)


def bench(net: str = "mlp", kind: Kind = "adam", lr: float = 0.01, epochs: int = 1) -> Bench:
    return Bench(Task(toys.NETS[net]), Recipe(epochs, 8, lr, kind, 0.01), (0, 1))


def rounds(own: Bench, params: Params, data: Examples, count: int, keep: bool) -> tuple[Params, Tree]:
    """Several fits, each of a round of its own, that keep the state or forget it."""
    moments: Tree = {}
    for number in range(count):
        own.stream = (0, number)
        params, moments = own.fit_from(params, moments if keep else {}, data)
    return params, moments


@pytest.mark.parametrize("net", ["mlp64", "linear64"])
@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("epochs", [1, 2])
def test_rounds_that_keep_the_state_are_one_torch_optimiser(net: str, kind: Kind, epochs: int) -> None:
    own, data = bench(net, kind, epochs=epochs), toys.fitting(DATA, net)
    start = own.init(0)
    fitted, _ = rounds(own, start, data, 3, keep=True)
    module: nn.Module = own.task.model()
    module.load_state_dict(start)
    stepper = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[kind](
        module.parameters(), lr=0.01, weight_decay=0.01
    )
    for number in range(3):
        own.stream = (0, number)
        for batch in own.batches(data):
            stepper.zero_grad()
            F.cross_entropy(module(batch.x), batch.y).backward()
            stepper.step()
    for name, value in module.state_dict().items():
        torch.testing.assert_close(fitted[name], value, rtol=0, atol=1e-12)
    restarted, _ = rounds(own, start, data, 3, keep=False)
    assert trees.equal(restarted, fitted) == (kind == "sgd")


@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_an_empty_state_is_a_new_optimiser(net: str, kind: Kind) -> None:
    own = bench(net, kind)
    fitted, moments = own.fit_from(own.init(0), {}, DATA)
    assert trees.equal(fitted, own.fit(own.init(0), DATA))
    if kind == "sgd":
        assert moments == {}
        return
    assert list(moments) == own.trainable
    for name, state in moments.items():
        assert state["first"].shape == state["second"].shape == fitted[name].shape
        moved = not name.endswith("conv.bias")  # batch norm takes it off again: it has no gradient
        assert state["steps"].item() == (own.steps(DATA) if moved else 0)


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_the_state_is_changed_by_nobody_and_survives_the_wire(net: str) -> None:
    own = bench(net)
    params, moments = own.fit_from(own.init(0), {}, DATA)
    before = trees.transform(moments, torch.clone)
    direct = own.fit_from(params, moments, DATA)
    assert trees.equal(moments, before)
    sent = own.fit_from(params, wire.loads(wire.dumps(moments)), DATA)
    assert trees.equal(dict(zip("ab", direct, strict=True)), dict(zip("ab", sent, strict=True)))
    trees.transform(direct[1], Tensor.zero_)
    assert trees.equal(sent[1], own.fit_from(params, moments, DATA)[1])


def test_parameters_that_the_state_does_not_name_start_as_in_a_new_optimiser() -> None:
    own = Bench(Task(toys.NETS["mlp"]), Recipe(1, 64, 0.01, "adam"), (0, 1))  # one step a fit
    params, moments = own.fit_from(own.init(0), {}, DATA)
    head = {name: state for name, state in moments.items() if name.startswith("head")}
    partly, whole, fresh = (own.fit_from(params, given, DATA)[0] for given in (head, moments, {}))
    for name in own.trainable:
        assert torch.equal(partly[name], (whole if name in head else fresh)[name])
        assert not torch.equal(whole[name], fresh[name])


def test_the_state_of_parameters_that_may_not_move_stays() -> None:
    own = bench()
    params, moments = own.fit_from(own.init(0), {}, DATA)
    _, after = own.fit_from(params, moments, DATA, only=lambda name: name.startswith("head"))
    for name in own.trainable:
        assert trees.equal(after[name], moments[name]) == (not name.startswith("head"))
