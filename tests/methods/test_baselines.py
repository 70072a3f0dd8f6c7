"""Standalone and FedAvg (algorithms 2.1 and 2.2)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import toys
from fedakd import trees
from fedakd.engine.serial import Serial
from fedakd.methods import canonical
from fedakd.methods.fedavg import FedAvg
from fedakd.methods.feddc import FedDC
from fedakd.methods.scaffold import SCAFFOLD
from fedakd.methods.standalone import Standalone
from fedakd.plan import resolve
from fedakd.training import Recipe

TEN = tuple(range(3, 23, 2))


ADAM = Recipe(batch_size=4, lr=0.01, optimizer="adam")


@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize("recipe", [Recipe(batch_size=8, lr=0.1), ADAM], ids=["sgd", "adam"])
def test_standalone_that_restarts_its_optimiser_is_fedavg_of_one_client(net, recipe):
    alone = toys.play(toys.spec(Standalone(restart=True), (13,), net, recipe))
    average = toys.play(toys.spec(FedAvg(), (13,), net, recipe))
    assert trees.equal(alone.kept[-1][0]["model"], average.states[-1]["model"])


@pytest.mark.parametrize("epochs", [1, 2])
def test_standalone_is_one_torch_optimiser_for_the_whole_run(epochs):
    spec = toys.spec(Standalone(), (13,), "mlp64", replace(ADAM, epochs=epochs))
    played, client = toys.play(spec, rounds=3), toys.client(spec)
    module: nn.Module = spec.task.model()
    module.load_state_dict(client.init(0))
    stepper = torch.optim.Adam(module.parameters(), lr=0.01)
    for number in (1, 2, 3):
        for batch in toys.client(spec, 0, number).batches(client.data):
            stepper.zero_grad()
            F.cross_entropy(module(batch.x), batch.y).backward()
            stepper.step()
    for name, part in module.state_dict().items():
        torch.testing.assert_close(played.kept[-1][0]["model"][name], part, rtol=0, atol=1e-12)


def test_standalone_keeps_the_optimisers_state_unless_told_to_restart():
    kept, restarted = (
        toys.play(toys.spec(m, (13,), recipe=ADAM)).kept for m in (Standalone(), Standalone(restart=True))
    )
    steps = [state["steps"].item() for state in kept[-1][0]["moments"].values()]
    assert set(steps) == {3 * 3}  # rounds times batches: the single row joins its neighbours
    assert restarted[-1][0]["moments"] == {}
    assert trees.equal(kept[0][0]["model"], restarted[0][0]["model"])  # the first round is the same
    assert not trees.equal(kept[1][0]["model"], restarted[1][0]["model"])


def test_standalone_with_sgd_trains_as_scaffold_and_feddc_do():
    method = Standalone(sgd=True)
    assert method.recipe(ADAM) == SCAFFOLD().recipe(ADAM) == FedDC().recipe(ADAM)
    ours = toys.play(toys.spec(method, (13,), recipe=ADAM)).kept[-1][0]
    theirs = toys.play(toys.spec(Standalone(), (13,), recipe=ADAM.as_sgd())).kept[-1][0]
    assert trees.equal(ours, theirs)
    assert ours["moments"] == {}  # SGD has none


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("standalone", Standalone()),
        ("standalone(restart=true)", Standalone(restart=True)),
        ("standalone(sgd=true)", Standalone(sgd=True)),
        ("standalone(restart=true, sgd=true)", Standalone(restart=True, sgd=True)),
    ],
)
@pytest.mark.parametrize("preset", ["tuned", "paper", "released"])
def test_a_plan_has_the_plain_standalone_first_and_its_variants_where_they_are_named(text, method, preset):
    plan = resolve(preset, methods=("fedavg", text))
    assert plan.methods == tuple(dict.fromkeys(["standalone", "fedavg", text]))
    assert plan.method(text) == method
    assert plan.method("standalone") == Standalone()
    assert canonical(text) == text


@pytest.mark.parametrize("sizes", [(9, 4), TEN])
def test_standalone_clients_do_not_depend_on_each_other_or_on_their_order(sizes):
    spec = toys.spec(Standalone(), sizes, net="cnn")
    straight, turned = Serial(spec), Serial(spec)
    for engine, order in ((straight, range(len(sizes))), (turned, reversed(range(len(sizes))))):
        engine.start(toys.client(spec).init(0))
        clients = list(order)
        for number in (1, 2):
            for k in clients:
                engine.sites[k].train(number, {})
    assert all(trees.equal(site.kept, turned.sites[k].kept) for k, site in straight.sites.items())
    alone = toys.play(toys.spec(Standalone(), sizes[:1], net="cnn"), rounds=2)
    assert trees.equal(straight.sites[0].kept, alone.kept[-1][0])


def test_standalone_sends_nothing():
    played = toys.play(toys.spec(Standalone()))
    assert all(tree == {} for tree in (*played.messages, *played.updates, *played.states))
    assert played.result.rounds[0].bytes_up == played.result.rounds[0].bytes_down == 0


@pytest.mark.parametrize("sizes", [(9, 4), TEN])
def test_fedavg_is_the_weighted_mean_of_what_was_sent(sizes):
    played = toys.play(toys.spec(FedAvg(), sizes, net="cnn"), rounds=2)
    sent = [update["model"] for update in played.updates[-len(sizes) :]]
    for name, part in played.states[-1]["model"].items():
        stacked = torch.stack([model[name] for model in sent]).double()
        shares = torch.tensor(sizes, dtype=torch.float64) / sum(sizes)
        expected = torch.tensordot(shares, stacked, dims=1).to(part.dtype)
        assert torch.allclose(part, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("sizes", [(9, 4), TEN])
def test_running_statistics_of_the_mean_lie_between_those_of_the_clients(sizes):
    played = toys.play(toys.spec(FedAvg(), sizes, net="cnn"), rounds=1)
    name = "body.0.norm.running_mean"
    sent = torch.stack([update["model"][name] for update in played.updates])
    mean = played.states[0]["model"][name]
    assert ((mean >= sent.amin(0) - 1e-6) & (mean <= sent.amax(0) + 1e-6)).all()
    assert not torch.equal(played.states[0]["model"]["body.0.norm.running_var"], torch.ones(32))


@pytest.mark.parametrize("clients", [2, 10])
def test_fedavg_of_clients_with_equal_rows_and_streams_is_any_of_them(clients):
    spec = toys.spec(FedAvg(), sizes=(9,) * clients)
    rows = spec.clients[0].train
    spec = replace(spec, clients=tuple(replace(c, train=rows) for c in spec.clients))
    own = toys.client(spec)
    w = own.init(0)
    sent = {}
    for k in range(clients):
        client = toys.client(spec, k)
        client.stream = own.stream
        sent[k] = FedAvg().client_update(client, {"model": w})[1]
    server = toys.server(spec)
    state = FedAvg().server_update(server, FedAvg().server_init(server, w), sent)
    assert trees.equal(state["model"], sent[0]["model"])


@pytest.mark.parametrize("sizes", [(9, 4), TEN])
def test_a_client_shows_the_model_it_trained_last_beside_the_shared_one(sizes):
    played = toys.play(toys.spec(FedAvg(), sizes, net="cnn"), rounds=2)
    for k, update in enumerate(played.updates[-len(sizes) :]):
        state = FedAvg().receive(played.kept[-1][k], FedAvg().send(played.states[-1], k))
        views = FedAvg().models(state)
        assert list(views) == ["global", "trained"]
        assert trees.equal(views["trained"], update["model"])
        assert trees.equal(views["global"], played.states[-1]["model"])


@pytest.mark.parametrize("sizes", [(9, 4), TEN])
def test_uniform_weights_give_the_plain_mean(sizes):
    played = toys.play(toys.spec(FedAvg(weigh_by="uniform"), sizes, net="mlp64"), rounds=2)
    sent = [update["model"] for update in played.updates[-len(sizes) :]]
    for name, part in played.states[-1]["model"].items():
        assert torch.allclose(part, torch.stack([model[name] for model in sent]).mean(0), atol=1e-14, rtol=0)


def test_a_missing_client_does_not_count():
    spec = toys.spec(FedAvg())
    server = toys.server(spec)
    state = FedAvg().server_init(server, {"w": torch.zeros(1)})
    updates = {k: {"model": {"w": torch.tensor([float(k)])}} for k in (0, 2)}
    after = FedAvg().server_update(server, state, updates)
    assert after["model"]["w"].item() == pytest.approx(2 * 5 / (23 + 5))


def test_nobody_there_keeps_the_model():
    server = toys.server(toys.spec(FedAvg()))
    state = FedAvg().server_init(server, {"w": torch.zeros(1)})
    assert trees.equal(FedAvg().server_update(server, state, {}), state)


def test_contributions_of_fedavg_are_data_shares():
    state = FedAvg().server_init(toys.server(toys.spec(FedAvg())), {})
    assert FedAvg().contributions(state).tolist() == pytest.approx([23 / 39, 11 / 39, 5 / 39])


def test_standalone_clients_with_equal_rows_and_streams_end_alike():
    spec = toys.spec(Standalone(), sizes=(9, 9))
    ends = []
    for k in range(2):
        client = toys.client(spec, k)
        client.stream, client.data = (0, 1, 1), spec.clients[0].train
        ends.append(Standalone().client_update(client, Standalone().client_init(client, client.init(0)))[0])
    assert trees.equal(*ends)


@pytest.mark.parametrize("clients", [2, 10])
def test_a_client_with_nearly_all_rows_decides(clients):
    server = toys.server(toys.spec(FedAvg(), sizes=TEN[:clients]))
    state = FedAvg().server_init(server, {"w": torch.zeros(1)})
    state["sizes"] = torch.tensor([1e12, *TEN[1:clients]], dtype=torch.float64)
    updates = {k: {"model": {"w": torch.tensor([float(k + 1)])}} for k in range(clients)}
    assert FedAvg().server_update(server, state, updates)["model"]["w"].item() == pytest.approx(1.0)


@pytest.mark.parametrize("sizes", [(9, 4), TEN])
def test_the_mean_of_equal_models_is_that_model_whatever_the_sizes(sizes):
    spec = toys.spec(FedAvg(), sizes, net="cnn")
    server, model = toys.server(spec), toys.client(spec).init(3)
    state = FedAvg().server_init(server, server.init(0))
    after = FedAvg().server_update(server, state, {k: {"model": model} for k in range(len(sizes))})
    assert trees.equal(after["model"], model)
    assert not trees.equal(state["model"], model)
