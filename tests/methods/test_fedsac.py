"""FedSAC's laws (algorithms 2.8): each with sizes that differ between clients."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

import toys
from fedakd import activations, trees, wire
from fedakd.errors import PlanError
from fedakd.examples import Examples
from fedakd.method import Client
from fedakd.methods.fedavg import FedAvg
from fedakd.methods.fedsac import FedSAC
from fedakd.models import factory
from fedakd.models.mlp import MLP
from fedakd.training import Recipe, Task, loaded
from fedakd.trees import Params, Tree

SHARP = FedSAC(beta=8.0, refresh=1)  # masks that differ, anew after each round
SHARPEST = replace(SHARP, order="descending")
ORDERS = pytest.mark.parametrize("order", ["ascending", "descending"])
CLIENTS = pytest.mark.parametrize("sizes", [(23, 5), toys.TEN], ids=len)


def state_of(spec: toys.Spec, **changes: object) -> Tree:
    """A server's state after a round at which everyone was there, with changes."""
    return {**toys.play(spec, rounds=1).states[0], **changes}


def some_mask(module: torch.nn.Module) -> torch.Tensor:
    """About half of the units."""
    count = sum(layer.units for layer in activations.hidden(module))
    return (torch.arange(count) % 3 > 0).float()


# reduction to FedAvg


@CLIENTS
@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_without_beta_it_is_uniform_fedavg_bit_for_bit(sizes, net, optimizer):
    recipe = Recipe(batch_size=4, lr=0.05, optimizer=optimizer)
    method = FedSAC(beta=0.0, refresh=2, alone_epochs=1)
    ours, average = (toys.play(toys.spec(m, sizes, net, recipe)) for m in (method, FedAvg("uniform")))
    for mine, theirs in zip(ours.states, average.states, strict=True):
        assert trees.equal(mine["model"], theirs["model"])
    assert all(message["mask"].all() for message in ours.messages)


def test_a_model_without_hidden_units_goes_to_all():
    ours, average = (toys.play(toys.spec(m, net="linear")) for m in (SHARP, FedAvg("uniform")))
    assert trees.equal(ours.states[-1]["model"], average.states[-1]["model"])
    assert trees.equal(wire.loads(wire.dumps(ours.states[-1])), ours.states[-1])


# local training


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_a_submodel_is_training_a_network_that_has_only_its_units(optimizer):
    recipe = Recipe(batch_size=4, lr=0.05, optimizer=optimizer, epochs=2, weight_decay=0.01)
    spec = toys.spec(SHARP, net="mlp64", recipe=recipe)
    own = toys.client(spec)
    mask = some_mask(own.module)
    first, second = (part.nonzero().squeeze(1) for part in mask.split([64, 32]))
    owners, start = activations.owners(own.module), own.init(1)
    masked = activations.masked(start, owners, mask)
    _, update = SHARP.client_update(own, {"model": masked, "mask": mask})
    task = Task(partial(toys.double, partial(MLP, 64, 4, (len(first), len(second)))))
    small = Client(task, recipe, own.stream, id=0, data=own.data)
    expected = small.fit(cut(start, first, second), own.data)
    found = cut(update["model"], first, second)
    assert all(torch.allclose(found[name], expected[name], rtol=0, atol=1e-9) for name in expected)
    assert not torch.allclose(found["body.1.weight"], masked["body.1.weight"][first], atol=1e-3)


def cut(params: Params, first: torch.Tensor, second: torch.Tensor) -> Params:
    """The tensors of an MLP without the units that are not named."""
    return {
        "body.1.weight": params["body.1.weight"][first],
        "body.1.bias": params["body.1.bias"][first],
        "body.3.weight": params["body.3.weight"][second][:, first],
        "body.3.bias": params["body.3.bias"][second],
        "head.weight": params["head.weight"][:, second],
        "head.bias": params["head.bias"],
    }


@pytest.mark.parametrize("net", ["mlp", "cnn", "cnn2"])  # relu, batch norm and relu, tanh
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_what_stands_in_the_place_of_dropped_units_does_not_matter(net, optimizer):
    recipe = Recipe(batch_size=4, lr=0.05, optimizer=optimizer, weight_decay=0.01)
    own = toys.client(replace(toys.spec(SHARP, recipe=recipe), task=Task(factory(net, (1, 8, 8), 4))))
    mask, owners, full = some_mask(own.module), activations.owners(own.module), own.init(1)
    states = ({"model": model, "mask": mask} for model in (full, activations.masked(full, owners, mask)))
    (_, loud), (_, quiet) = (SHARP.client_update(own, state) for state in states)
    assert all(torch.allclose(loud["model"][n], quiet["model"][n], rtol=0, atol=1e-6) for n in full)
    assert not any(quiet["model"][name][mask[owner] == 0].any() for name, owner in owners.items())


@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_dropped_parameters_and_statistics_are_zero_before_and_after_training(net, optimizer):
    recipe = Recipe(batch_size=4, lr=0.05, optimizer=optimizer, weight_decay=0.01)
    played = toys.play(toys.spec(SHARP, net=net, recipe=recipe), rounds=3)
    owners = played.states[0]["owners"]
    partial_ones = [tree for tree in (*played.messages, *played.updates) if not tree["mask"].all()]
    assert partial_ones
    for tree in partial_ones:
        for name, owner in owners.items():
            rows = tree["mask"][owner] == 0
            assert not tree["model"][name][rows].any()
    pairs = zip(played.messages, played.updates, strict=True)
    assert not any(trees.equal(message["model"], update["model"]) for message, update in pairs)


@ORDERS
@pytest.mark.parametrize("sizes", [(23, 5), toys.TEN])
@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_units_a_client_lacks_say_exactly_zero_when_it_is_judged(order, net, sizes):
    method = replace(SHARP, order=order)
    spec = toys.spec(method, sizes, net=net)
    played = toys.play(spec, rounds=2)
    module, lacking = toys.client(spec).module, 0
    for k, kept in played.kept[-1].items():
        message = method.send(played.states[-1], k)
        views = method.models(method.receive(kept, message))
        assert list(views) == ["personal"]
        loaded(module, views["personal"]).eval()
        parts = message["mask"].split([layer.units for layer in activations.hidden(module)])
        for layer, part in zip(activations.hidden(module), parts, strict=True):
            steps = int(layer.out.removeprefix("body.")) + 1
            output = module.body[:steps](torch.randn(7, 1, 8, 8) * 100)
            assert (output[:, part == 0] == 0).all()
            lacking += int((part == 0).sum())
    assert lacking > 0


# aggregation


@ORDERS
@CLIENTS
@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_every_entry_is_the_mean_over_those_that_hold_it(order, sizes, net):
    method = replace(SHARP, order=order)
    played = toys.play(toys.spec(method, sizes, net), rounds=3)
    before, after = (state["model"] for state in played.states[-2:])
    updates, owners = played.updates[-len(sizes) :], played.states[0]["owners"]
    assert not all(update["mask"].all() for update in updates)
    for name, part in after.items():
        for row in range(len(part)):
            holders = [u for u in updates if name not in owners or u["mask"][owners[name][row]] == 1]
            held = [u["model"][name][row].double() for u in holders] or [before[name][row].double()]
            expected = torch.stack(held).mean(0).to(part.dtype)
            exact = len(held) == 1  # the client's own value, to the bit
            assert torch.allclose(part[row], expected, rtol=0, atol=0 if exact else 1e-7)


def test_what_nobody_holds_stays_as_it_was():
    spec = toys.spec(SHARP, net="cnn")
    state = state_of(spec)
    module, server = toys.client(spec).module, toys.server(spec)
    mask = some_mask(module)
    sent = toys.client(spec).init(5)
    updates = {k: {"model": activations.masked(sent, state["owners"], mask), "mask": mask} for k in (0, 2)}
    model = SHARP.server_update(server, state, updates)["model"]
    for name, part in model.items():
        held = mask[state["owners"][name]] == 1 if name in state["owners"] else slice(None)
        assert torch.equal(part[held], sent[name][held])
        if name in state["owners"]:
            assert torch.equal(part[~held], state["model"][name][~held])


# worth


@CLIENTS
@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_worth_is_the_validation_accuracy_of_a_model_trained_alone(sizes, net):
    method = FedSAC(alone_epochs=3)
    spec = toys.spec(method, sizes, net)
    played, server = toys.play(spec, rounds=2), toys.server(spec)
    worth = []
    for k in range(len(sizes)):
        client = toys.client(spec, k)
        alone = client.fit(
            client.init(0), client.data, recipe=replace(spec.recipe, epochs=3), purpose="alone"
        )
        assert trees.equal(played.updates[k]["alone"], alone)
        worth.append(server.accuracy(alone, server.validation))
    assert played.states[0]["worth"].tolist() == played.states[1]["worth"].tolist() == worth
    assert played.result.rounds[0].contributions == worth
    assert not any("alone" in update for update in played.updates[len(sizes) :])
    assert all(kept == {} for kept in played.kept[0].values())
    assert [r.gradients for r in played.result.rounds] == [sum(sizes) * 4, sum(sizes)]


def test_test_rows_decide_nothing():
    spec = toys.spec(SHARP)
    other = tuple(replace(own, test=toys.rows(12, 900 + own.id)) for own in spec.clients)
    states = [toys.play(s, rounds=2).states[-1] for s in (spec, replace(spec, clients=other))]
    assert trees.equal(*states)


@pytest.mark.parametrize("sizes", [toys.SIZES, toys.TEN], ids=len)
def test_a_late_client_gets_everything_until_its_worth_is_known(sizes):
    spec = toys.spec(SHARP, sizes, net="cnn")
    played = toys.play(spec, rounds=5, participation=0.4)
    records, updates, five = played.result.rounds, iter(played.updates), replace(spec.recipe, epochs=5)
    known: set[int] = set()
    for record, state in zip(records, played.states, strict=True):
        for k in record.participants:
            update, client = next(updates), toys.client(spec, k, record.number)
            assert ("alone" in update) == (k not in known)
            if k not in known:  # from the first parameters, however late
                alone = client.fit(client.init(0), client.data, recipe=five, purpose="alone")
                assert trees.equal(update["alone"], alone)
        known |= set(record.participants)
        for k in range(len(sizes)):
            assert (state["worth"][k] >= 0) == (k in known)
            assert k in known or SHARP.mask(state, k).all()
        worth = [state["worth"][k].item() for k in sorted(known)]
        mean = sum(worth) / len(worth)
        told = [state["worth"][k].item() if k in known else mean for k in range(len(sizes))]
        assert record.contributions == pytest.approx(told)
    assert len(set(records[0].participants)) < len(sizes)
    assert not all(message["mask"].all() for message in played.messages)


# the rules of the house


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_hooks_change_nothing_and_all_survives_the_wire(net):
    spec = toys.spec(SHARPEST, net=net)
    server, own = toys.server(spec), toys.client(spec, 1, round=2)
    state = state_of(spec, worth=torch.tensor([0.9, 0.4, 0.5], dtype=torch.float64))
    message = SHARPEST.send(state, 1)
    arrived = {**SHARPEST.client_init(own, own.init(0)), **message}
    before = trees.transform({"state": state, "arrived": arrived}, torch.clone)
    _, update = SHARPEST.client_update(own, arrived)
    after = SHARPEST.server_update(server, state, {1: update})
    assert trees.equal({"state": state, "arrived": arrived}, before)
    for tree in (state, message, update, after):
        assert trees.equal(wire.loads(wire.dumps(tree)), tree)
    again = SHARPEST.server_update(server, wire.loads(wire.dumps(state)), {1: wire.loads(wire.dumps(update))})
    assert trees.equal(again, after)
    assert trees.nbytes(after) == trees.nbytes(state)


def test_contributions_are_not_said_before_anybody_is_known():
    server = toys.server(toys.spec(SHARP))
    assert SHARP.contributions(SHARP.server_init(server, server.init(0))) is None


def test_without_updates_the_state_stays():
    spec = toys.spec(SHARP)
    state = state_of(spec)
    assert trees.equal(SHARP.server_update(toys.server(spec), state, {}), state)


def test_one_class_and_one_row_clients_work():
    data = toys.rows(9, 7)
    odd = {1: Examples(data.x, torch.zeros_like(data.y)), 2: toys.rows(1, 8)}
    played = toys.play(toys.spec(SHARP, net="cnn", data=odd), rounds=3)
    assert all(torch.isfinite(part).all() for part in played.states[-1]["model"].values())
    assert not torch.allclose(played.states[0]["model"]["body.0.norm.running_var"], torch.ones(32))


@pytest.mark.parametrize(
    "wrong",
    [
        {"beta": -1.0},
        {"beta": float("inf")},
        {"first": 0},
        {"refresh": -1},
        {"alone_epochs": 0},
        {"probe": 0},
    ],
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(PlanError, match=f"fedsac: {next(iter(wrong))} must be"):
        FedSAC(**wrong)
