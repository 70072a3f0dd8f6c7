"""FedProx's laws (algorithms 2.3): each with sizes that differ between clients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import toys
from attendance import attend
from fedakd import trees
from fedakd.errors import PlanError
from fedakd.method import Client
from fedakd.methods.fedavg import FedAvg
from fedakd.methods.fedprox import FedProx
from fedakd.optimizers import optimizer
from fedakd.training import Recipe, Task, loaded, snapshot
from fedakd.trees import Params

SIZES = [(9, 4), toys.TEN]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("by", ["size", "uniform"])
def test_without_a_penalty_it_is_fedavg_bit_for_bit(sizes, net, optimizer, by):
    recipe = Recipe(batch_size=4, lr=0.05, optimizer=optimizer, epochs=2)
    ours, average = (
        toys.play(toys.spec(method, sizes, net, recipe), rounds=2)
        for method in (FedProx(by, mu=0.0), FedAvg(by))
    )
    assert trees.equal(ours.states[-1], average.states[-1])


def test_a_vanishing_penalty_is_nearly_none():
    recipe = Recipe(batch_size=4, lr=0.05, epochs=2)
    ours, average = (
        toys.play(toys.spec(m, net="mlp64", recipe=recipe)) for m in (FedProx(mu=1e-12), FedAvg())
    )
    apart = trees.sub(ours.states[-1]["model"], average.states[-1]["model"])
    assert 0 < trees.norm(apart) < 1e-10


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_first_step_of_every_round_feels_no_penalty(sizes, net, optimizer):
    recipe = Recipe(batch_size=64, lr=0.01, optimizer=optimizer)  # one step a round
    ours, average = (
        toys.play(toys.spec(method, sizes, net, recipe), rounds=2) for method in (FedProx(mu=100.0), FedAvg())
    )
    assert trees.equal(ours.states[-1], average.states[-1])


def by_hand(client: Client, w_g: Params, mu: float) -> Params:
    """Steps along the gradient of the loss plus mu (w - w_g), given to the optimiser as one."""
    module = loaded(client.module, w_g).train()
    named = dict(module.named_parameters())
    stepper = optimizer(client.recipe.optimizer, named, client.recipe.lr, 0.0)
    for batch in client.batches(client.data):
        client.loss(module, batch).backward()  # type: ignore[no-untyped-call]
        for name, w in named.items():
            w.grad = w.grad + mu * (w.detach() - w_g[name])  # type: ignore[operator]
        stepper.step()
    return snapshot(module)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_every_step_is_pulled_towards_the_model_received(sizes, kind):
    spec = toys.spec(FedProx(mu=0.7), sizes, "mlp64", Recipe(batch_size=4, lr=0.02, optimizer=kind, epochs=2))
    for number, turn in enumerate(attend(spec, [range(len(sizes))] * 2), 1):
        for k, update in turn.updates.items():
            expected = by_hand(toys.client(spec, k, number), turn.messages[k]["model"], 0.7)
            for name, part in update["model"].items():
                assert torch.allclose(part, expected[name], rtol=0, atol=1e-9)


def test_running_statistics_are_not_pulled():
    """They are those of the models met: with a pull this strong the model never leaves its place."""
    spec = toys.spec(FedProx(mu=1e3), net="cnn", recipe=Recipe(batch_size=4, lr=1e-3, epochs=5))
    client = toys.client(spec)
    w_g = client.init(0)
    sent = FedProx(mu=1e3).fitted(client, w_g)
    moved = trees.norm(trees.sub(client.parameters(sent), w_g)) / trees.norm(client.parameters(w_g))
    assert moved < 1e-2
    for name, part in client.buffers(sent).items():
        assert (part - w_g[name]).abs().max() > 0.01, name


def half_squares(z: Tensor, y: Tensor) -> Tensor:
    return (z - F.one_hot(y, 4)).square().sum(1).mean() / 2


def quadratic(recipe: Recipe, sizes: tuple[int, ...]) -> toys.Spec:
    spec = toys.spec(FedProx(), sizes, "linear64", recipe)
    return replace(spec, task=Task(spec.task.model, half_squares))


def moves(spec: toys.Spec, k: int, mu: float) -> Params:
    """How far client k goes from the model it receives."""
    client = toys.client(spec, k)
    w_g = client.init(0)
    return trees.sub(FedProx(mu=mu).fitted(client, w_g), w_g)


@pytest.mark.parametrize("sizes", SIZES)
def test_a_stronger_pull_never_lets_a_client_go_further_on_a_quadratic(sizes):
    spec = quadratic(Recipe(batch_size=64, lr=0.02, epochs=10), sizes)
    for k in range(len(sizes)):
        lengths = [trees.norm(moves(spec, k, mu)) for mu in (0.0, 0.01, 0.1, 1.0, 10.0, 25.0)]
        assert lengths == sorted(lengths, reverse=True)
        assert len(set(lengths)) == len(lengths)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("mu", [1e4, 1e6])
def test_an_endless_pull_leaves_the_gradient_over_mu(sizes, mu):
    spec = quadratic(Recipe(batch_size=64, lr=0.5 / mu, epochs=60), sizes)  # lr * mu < 1
    for k in range(len(sizes)):
        client = toys.client(replace(spec, recipe=Recipe(batch_size=64, lr=1.0)), k)
        w_g = client.init(0)
        gradient = trees.sub(w_g, client.fit(w_g, client.data))  # a step of length 1
        left = trees.add(trees.scale(moves(spec, k, mu), mu), gradient)
        assert trees.norm(left) < 100 / mu * trees.norm(gradient)


@pytest.mark.parametrize("sizes", SIZES)
def test_clients_that_miss_a_round_do_not_count_and_come_back(sizes):
    everyone = range(len(sizes))
    spec = toys.spec(FedProx(mu=0.5), sizes, "cnn")
    first, second, _ = attend(spec, [everyone, everyone[1:], everyone])
    weights = [float(n) for n in sizes[1:]]
    assert trees.equal(
        second.state["model"], trees.mean((u["model"] for u in second.updates.values()), weights)
    )
    assert trees.equal(second.kept[0], first.kept[0])


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_going_over_the_wire_changes_nothing(net):
    spec = toys.spec(FedProx(mu=0.5), net=net)
    assert trees.equal(attend(spec, [range(3)] * 3)[-1].state, toys.play(spec).states[-1])


def test_it_changes_nothing_it_is_given_and_counts_its_gradients():
    method = FedProx(mu=0.5)
    client = toys.client(toys.spec(method, net="cnn"))
    state = {"model": client.init(0)}
    before = trees.transform(state, torch.clone)
    method.client_update(client, state)
    assert trees.equal(state, before)
    assert client.gradients == client.n


def test_the_released_code_weighs_clients_alike():
    method = replace(FedProx(), **FedProx.presets["released"])
    played = toys.play(toys.spec(method), rounds=1)
    sent = [update["model"] for update in played.updates]
    assert trees.equal(played.states[0]["model"], trees.mean(sent, [1.0] * 3))


def test_a_negative_mu_is_refused():
    with pytest.raises(PlanError, match="fedprox: mu must be 0 or above, got -1"):
        FedProx(mu=-1.0)
