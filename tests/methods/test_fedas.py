"""FedAS's laws (algorithms 2.11): each with sizes that differ between clients."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

import toys
from fedakd import trees, wire
from fedakd.errors import FedakdError, PlanError
from fedakd.examples import Examples
from fedakd.method import Client
from fedakd.methods.fedas import FedAS, fisher
from fedakd.training import Recipe, Task
from fedakd.trees import Params, Tree

SIZES = [(9, 4), toys.TEN]
HEAD = ("head.weight", "head.bias")


def base(client: Client) -> list[str]:
    return [name for name in client.trainable if name not in HEAD]


def arrival(client: Client) -> tuple[Tree, Params, Params]:
    """The state of a client with a past on arrival of a new model, its own model, and what it aligns."""
    own, received = client.fit(client.init(1), client.data), client.init(2)
    return {"personal": own, "model": received}, own, {**own, **trees.pick(received, base(client))}


def fedper(spec: toys.Spec, rounds: int) -> tuple[list[Params], Params]:
    """A shared base, averaged uniformly; private heads and running statistics."""
    clients = [toys.client(spec, k) for k in range(len(spec.clients))]
    own = [client.init(spec.seed) for client in clients]
    names = base(clients[0])
    shared = {name: own[0][name] for name in names}
    for round in range(1, rounds + 1):
        for k, client in enumerate(clients):
            client.stream = (spec.seed, round, k + 1)
            own[k] = client.fit({**own[k], **shared}, client.data)
        sums = {name: torch.zeros_like(shared[name], dtype=torch.float64) for name in names}
        for model in own:
            sums = {name: sums[name] + model[name] for name in names}
        shared = {name: (sums[name] / len(own)).to(shared[name].dtype) for name in names}
    return own, shared


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_without_alignment_and_with_equal_weights_it_is_fedper_bit_for_bit(sizes, net, optimizer):
    recipe = Recipe(batch_size=4, lr=0.05, optimizer=optimizer)
    spec = toys.spec(FedAS(align=False, weigh_by="uniform"), sizes, net, recipe)
    played = toys.play(spec, rounds=2)
    own, shared = fedper(spec, rounds=2)
    assert all(trees.equal(played.kept[-1][k]["personal"], model) for k, model in enumerate(own))
    assert trees.equal(trees.pick(played.states[-1]["model"], shared), shared)
    heads = [model["head.weight"] for model in own]
    assert not any(torch.equal(heads[0], head) for head in heads[1:])


def aligned_by_hand(method: FedAS, client: Client, start: Params, own: Params) -> Params:
    """Class by class, from the formula, by plain gradient descent on the base; no batch norm."""
    y = client.data.y

    def body(params: Params, x: Tensor) -> Tensor:
        inside = {n.removeprefix("body."): w for n, w in params.items() if n.startswith("body.")}
        return functional_call(client.module.eval().body, inside, (x,))

    prototypes = {c: body(own, client.data.x[y == c]).mean(0).detach() for c in y.unique().tolist()}
    moving = {n: start[n].clone().requires_grad_() for n in base(client)}
    recipe = Recipe(epochs=method.align_epochs, batch_size=method.align_batch)
    for batch in client.batches(client.data, recipe, "align"):
        features = body(moving, batch.x)
        classes = batch.y.unique().tolist()
        loss = sum((features[batch.y == c] - prototypes[c]).square().mean() for c in classes)
        for w, g in zip(moving.values(), torch.autograd.grad(loss, list(moving.values())), strict=True):
            w.data -= method.align_lr * g
    return {**start, **{n: w.detach() for n, w in moving.items()}}


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_alignment_is_what_the_formula_says_whatever_the_recipe(optimizer):
    method = FedAS(align_lr=0.3, align_epochs=2, align_batch=5)
    recipe = Recipe(batch_size=8, lr=0.1, optimizer=optimizer, weight_decay=0.5, epochs=3)
    client = toys.client(toys.spec(method, net="mlp64", recipe=recipe))
    _, own, start = arrival(client)
    ours, expected = method.aligned(client, start, own), aligned_by_hand(method, client, start, own)
    assert all(torch.allclose(ours[n], expected[n], rtol=0, atol=1e-12) for n in start)
    assert not trees.equal(ours, start)


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_alignment_touches_neither_head_nor_running_statistics(net):
    method = FedAS(align_lr=1.0)
    client = toys.client(toys.spec(method, net=net))
    _, own, start = arrival(client)
    ours = method.aligned(client, start, own)
    fixed = [name for name in start if name not in base(client)]
    assert trees.equal(trees.pick(ours, fixed), trees.pick(own, fixed))
    assert not any(torch.equal(ours[n], start[n]) for n in base(client))


@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize(("lr", "by"), [(0.0, 0.0), (1e-9, 1e-6)])
def test_alignment_at_a_rate_near_zero_leaves_the_base(net, lr, by):
    client = toys.client(toys.spec(FedAS(), net=net))
    _, own, start = arrival(client)
    ours = FedAS(align_lr=lr).aligned(client, start, own)
    assert all(torch.allclose(ours[n], start[n], rtol=0, atol=by) for n in start)


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_alignment_brings_the_features_nearer_to_those_of_the_own_model(net):
    client = toys.client(toys.spec(FedAS(), sizes=(40,), net=net))
    _, own, start = arrival(client)
    ours = FedAS(align_epochs=20, align_lr=0.1).aligned(client, start, own)
    target = client.features(own, client.data)
    gaps = [F.mse_loss(client.features(w, client.data), target).item() for w in (start, ours)]
    assert gaps[1] < 0.9 * gaps[0]


def test_a_class_with_one_row_is_its_own_prototype():
    data = Examples(toys.rows(6, 0).x, torch.tensor([0, 0, 0, 0, 0, 3]))
    spec = toys.spec(FedAS(align_lr=0.5), sizes=(6,), net="mlp64", data={0: data})
    client = toys.client(spec)
    own = client.init(1)
    last = replace(client, data=client.data[torch.tensor([5])])
    assert trees.equal(spec.method.aligned(last, own, own), own)  # nothing to move
    ours = spec.method.aligned(client, client.init(2), own)
    expected = aligned_by_hand(spec.method, client, client.init(2), own)
    assert all(torch.allclose(ours[n], expected[n], rtol=0, atol=1e-12) for n in own)


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_training_starts_from_the_aligned_base_and_the_clients_own_head_and_statistics(net, monkeypatch):
    """A law on training alone: which statistics a model is judged with is not the method's business."""
    method = FedAS(align_lr=0.1)
    client = toys.client(toys.spec(method, net=net))
    state, personal, start = arrival(client)
    aligned = method.aligned(client, start, personal)
    starts: dict[str, Params] = {}
    fit = Client.fit

    def watched(self, params, data, *, purpose="fit", **rest):
        starts[purpose] = params
        return fit(self, params, data, purpose=purpose, **rest)

    monkeypatch.setattr(Client, "fit", watched)
    kept, update = method.client_update(client, state)
    assert trees.equal(starts["align"], start)
    assert trees.equal(starts["fit"], aligned)
    unchanged = [name for name in start if name not in base(client)]
    assert trees.equal(trees.pick(starts["fit"], unchanged), trees.pick(personal, unchanged))
    trained = fit(client, aligned, client.data)
    assert trees.equal(client.parameters(kept["personal"]), client.parameters(trained))
    assert trees.equal(update["model"], kept["personal"])
    assert update.keys() == {"model", "fisher", "n"}
    assert update["fisher"] == fisher(client, trained)
    assert update["n"] == client.n


def test_a_base_without_parameters_needs_no_alignment():
    on, off = (toys.play(toys.spec(FedAS(align=a), net="linear")).states[-1] for a in (True, False))
    assert trees.equal(on, off)


@pytest.mark.parametrize("sizes", [(9, 4), toys.TEN])
@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_the_server_and_the_clients_past_stay_as_they_are(net, sizes):
    method, spec = FedAS(align_lr=1.0), toys.spec(FedAS(), sizes, net)
    server = toys.server(spec)
    state = method.server_init(server, toys.client(spec).init(2))
    past = {"personal": toys.client(spec).init(1)}
    before = trees.transform({"state": state, "past": past}, torch.clone)
    for k in range(len(sizes)):
        _, update = method.client_update(toys.client(spec, k), method.receive(past, method.send(state, k)))
        assert trees.equal({"state": state, "past": past}, before)
    sent = trees.transform(update, torch.clone)
    method.server_update(server, state, {len(sizes) - 1: update})
    assert trees.equal({"state": state, "past": past}, before)
    assert trees.equal(update, sent)


@pytest.mark.parametrize(("sizes", "share"), [((9, 4), 0.5), (toys.TEN, 0.3)])
@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_messages_never_change_the_model_of_a_client(net, sizes, share):
    played = toys.play(toys.spec(FedAS(), sizes, net), rounds=5, participation=share)
    before = {k: {"personal": toys.client(toys.spec(FedAS(), net=net)).init(0)} for k in range(len(sizes))}
    for record, kept, state in zip(played.result.rounds, played.kept, played.states, strict=True):
        for k in range(len(sizes)):
            changed = not trees.equal(kept[k], before[k])
            assert changed == (k in record.participants)
            views = FedAS().models(FedAS().receive(kept[k], FedAS().send(state, k)))
            assert list(views) == ["personal", "global"]
            assert trees.equal(views["personal"], kept[k]["personal"])
            assert trees.equal(views["global"], state["model"])
        before = kept


def test_running_statistics_are_learned():
    played = toys.play(toys.spec(FedAS(), net="cnn"), rounds=1)
    models = [played.states[0]["model"], *(own["personal"] for own in played.kept[0].values())]
    assert not any((model["body.1.norm.running_var"] == 1).all() for model in models)


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_the_trace_is_the_sum_of_squared_gradients_of_the_batches(net):
    recipe = Recipe(batch_size=4, lr=0.1, weight_decay=0.3, epochs=3)
    client = toys.client(toys.spec(FedAS(), net=net, recipe=recipe))
    w = client.fit(client.init(0), client.data)
    before = client.gradients
    trace = fisher(client, w)
    assert client.gradients - before == client.n
    leaf = {n: p.clone().requires_grad_(n in client.trainable) for n, p in w.items()}
    expected = 0.0
    for batch in client.batches(client.data, replace(recipe, epochs=1), "fisher"):
        z = functional_call(client.module.eval(), leaf, (batch.x,))
        nll = -F.log_softmax(z, 1)[torch.arange(len(batch.y)), batch.y].mean()
        gradients = torch.autograd.grad(nll, [leaf[n] for n in client.trainable])
        expected += sum(g.double().square().sum().item() for g in gradients)
    assert trace == pytest.approx(expected, rel=1e-5)


def test_rows_that_come_twice_double_the_trace_in_batches_of_their_own_and_not_in_one(monkeypatch):
    monkeypatch.setattr(torch, "randperm", lambda n, generator: torch.arange(n))
    data = toys.rows(12, 0)
    twice = data[torch.arange(12).repeat(2)]

    def trace(rows: Examples, batch: int) -> float:
        client = toys.client(toys.spec(FedAS(), (12,), "mlp64", Recipe(batch_size=batch), data={0: rows}))
        return fisher(client, client.init(0))

    assert trace(twice, 4) == pytest.approx(2 * trace(data, 4), rel=1e-12)
    assert trace(twice, 12) == pytest.approx(2 * trace(data, 12), rel=1e-12)
    assert trace(twice, 24) == pytest.approx(trace(data, 12), rel=1e-12)


def kinked(z: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(z, y) + (z - z).sum().sqrt()  # worth 0, and its gradient is not a number


def test_a_trace_that_is_not_finite_is_sent_and_has_no_weight():
    spec = toys.spec(FedAS())
    client = toys.client(replace(spec, task=Task(spec.task.model, kinked)))
    trace = fisher(client, client.init(0))
    assert not math.isfinite(trace)
    assert not math.isfinite(wire.loads(wire.dumps({"fisher": trace}))["fisher"])
    server = toys.server(spec)
    state = FedAS().server_init(server, {"w": torch.tensor([7.0])})
    for odd in (trace, math.inf):
        updates = traced({0: odd, 1: 1.0, 2: 3.0})
        assert FedAS().weights(state, updates) == [0.0, 0.25, 0.75]
        assert FedAS().server_update(server, state, updates)["model"]["w"].item() == 1.75
        assert FedAS().weights(state, traced({0: odd, 1: 0.0, 2: 0.0})) == [0.0, 11.0, 5.0]
        assert trees.equal(FedAS().server_update(server, state, traced({0: odd})), state)


def traced(traces: dict[int, float]) -> dict[int, Tree]:
    """Updates of one number, the client's own."""
    return {k: {"model": {"w": torch.tensor([float(k)])}, "fisher": f, "n": 1.0} for k, f in traces.items()}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_the_global_model_is_the_mean_by_traces_running_statistics_too(sizes, net):
    played = toys.play(toys.spec(FedAS(), sizes, net), rounds=2)
    updates = dict(enumerate(played.updates[-len(sizes) :]))
    shares = FedAS().weights(played.states[-1], updates)
    assert sum(shares) == pytest.approx(1)
    total = sum(update["fisher"] for update in updates.values())
    assert shares == pytest.approx([update["fisher"] / total for update in updates.values()])
    assert all(0 < share < 1 for share in shares)
    assert len(set(shares)) == len(sizes)
    for name, part in played.states[-1]["model"].items():
        expected = sum(s * updates[k]["model"][name].double() for k, s in enumerate(shares))
        assert torch.allclose(part, expected.float(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("sizes", SIZES)
def test_equal_traces_are_the_plain_mean(sizes):
    server = toys.server(toys.spec(FedAS(), sizes))
    state = FedAS().server_init(server, {"w": torch.zeros(1)})
    after = FedAS().server_update(server, state, traced({k: 0.2 for k in range(len(sizes))}))
    assert after["model"]["w"].item() == pytest.approx((len(sizes) - 1) / 2)


def test_without_traces_the_mean_is_by_rows_and_other_weights_do_not_look_at_them():
    server = toys.server(toys.spec(FedAS()))
    state = FedAS().server_init(server, {"w": torch.zeros(1)})

    def mean(method: FedAS, traces: dict[int, float]) -> float:
        return method.server_update(server, state, traced(traces))["model"]["w"].item()

    assert mean(FedAS(), {0: 0.0, 1: 0.0, 2: 0.0}) == pytest.approx((11 + 2 * 5) / 39)
    assert mean(FedAS(), {1: 3.0, 2: 1.0}) == pytest.approx(1.25)  # a missing client does not count
    assert mean(FedAS(weigh_by="size"), {0: 9.0, 1: 1.0, 2: 1.0}) == pytest.approx((11 + 2 * 5) / 39)
    assert mean(FedAS(weigh_by="uniform"), {0: 9.0, 1: 1.0, 2: 1.0}) == pytest.approx(1)
    assert FedAS().server_update(server, state, {}) is state
    assert FedAS().contributions(state) is FedAS(weigh_by="size").contributions(state) is None


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_clients_with_one_row_or_one_class_work(net):
    single = Examples(toys.rows(7, 7).x, torch.full((7,), 2))
    played = toys.play(toys.spec(FedAS(align_batch=1), (1, 7, 5), net, data={1: single}), rounds=3)
    assert not played.result.rounds[-1].failures
    assert all(torch.isfinite(part).all() for part in played.states[-1]["model"].values())


def test_all_gradients_count():
    spec = toys.spec(FedAS(align_epochs=2), recipe=Recipe(epochs=3, batch_size=8))
    assert toys.play(spec, rounds=1).result.rounds[0].gradients == (2 + 3 + 1) * sum(toys.SIZES)


class Net(nn.Linear):
    pass


def test_a_model_without_body_and_head_is_refused():
    spec = toys.spec(FedAS())
    client = toys.client(replace(spec, task=Task(lambda: Net(64, 4))))
    with pytest.raises(FedakdError, match=r"FedAS needs a model with \.body and \.head, got Net"):
        FedAS().client_init(client, client.init(0))


@pytest.mark.parametrize("wrong", [{"align_lr": -1.0}, {"align_epochs": 0}, {"align_batch": 0}])
def test_nonsense_is_refused(wrong):
    with pytest.raises(PlanError, match=next(iter(wrong))):
        FedAS(**wrong)
