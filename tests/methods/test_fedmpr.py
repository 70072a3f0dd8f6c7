"""FedMPR's laws (algorithms 2.12): each with sizes that differ between clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import toys
from attendance import attend
from fedakd import trees
from fedakd.engine.serial import Serial
from fedakd.errors import PlanError
from fedakd.examples import Examples
from fedakd.method import Client
from fedakd.methods.fedavg import FedAvg
from fedakd.methods.fedmpr import FedMPR
from fedakd.training import Diverged, Recipe, Task
from fedakd.trees import Params

SIZES = [(9, 4), toys.TEN]
NOTHING = FedMPR(prune=0.0, dropout=0.0, noise=0.0)
RECIPE = Recipe(batch_size=4, lr=0.05)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize(("optimizer", "by"), [("sgd", "size"), ("adam", "uniform")])
def test_with_all_of_it_off_it_is_fedavg_bit_for_bit(sizes, net, optimizer, by):
    recipe = replace(RECIPE, optimizer=optimizer, weight_decay=0.01)
    ours, average = (
        toys.play(toys.spec(method, sizes, net, recipe), rounds=2)
        for method in (replace(NOTHING, weigh_by=by), FedAvg(by))
    )
    assert trees.equal(ours.states[-1], average.states[-1])


def in_scope(scope: str, model: Params, client: Client) -> Params:
    return {n: part for n, part in client.parameters(model).items() if scope == "all" or part.dim() > 1}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize("scope", ["weights", "all"])
@pytest.mark.parametrize("hundredths", [10, 29])
def test_exactly_the_smallest_entries_of_the_scope_are_zero_in_what_is_sent(sizes, net, scope, hundredths):
    method = FedMPR(prune=hundredths / 100, dropout=0.0, noise=0.0, scope=scope)
    pruning, plain = (
        attend(toys.spec(m, sizes, net), [range(len(sizes))])[0].updates for m in (method, FedAvg())
    )
    client = toys.client(toys.spec(method, net=net))
    for k, update in pruning.items():
        trained, sent = (in_scope(scope, tree["model"], client) for tree in (plain[k], update))
        row, left = trees.vector(trained), trees.vector(sent)
        count = len(row) * hundredths // 100
        assert int((left == 0).sum()) == max(count, int((row == 0).sum()))
        assert torch.equal(left[left != 0], row[left != 0])
        assert row[left != 0].abs().min() >= row[left == 0].abs().max()
        others = set(update["model"]) - set(sent)  # running statistics, and vectors outside the scope
        assert trees.equal(trees.pick(update["model"], others), trees.pick(plain[k]["model"], others))


@pytest.mark.parametrize("scope", ["weights", "all"])
@pytest.mark.parametrize("prune", [0.0, 0.1, 0.5])
def test_pruning_twice_is_pruning_once(scope, prune):
    client = toys.client(toys.spec(NOTHING, net="cnn"))
    method = replace(NOTHING, prune=prune, scope=scope)
    once = method.pruned(client.parameters(client.init(0)))
    assert trees.equal(method.pruned(once), once)
    assert {part.dim() for part in once.values()} == ({1, 2, 4} if scope == "all" else {2, 4})


def test_ties_and_zeros_are_pruned_by_count():
    method = replace(NOTHING, prune=0.5)
    pruned = method.pruned(
        {"w": torch.tensor([[0.0, 0.0, 0.0, 2.0], [1.0, -1.0, 1.0, 3.0]]), "b": torch.ones(9)}
    )
    assert pruned["w"].tolist() == [[0, 0, 0, 2], [1, -1, 0, 3]]
    assert list(pruned) == ["w"]
    hundred = {"w": torch.arange(1.0, 101.0).view(10, 10)}
    assert int((replace(NOTHING, prune=0.29).pruned(hundred)["w"] == 0).sum()) == 29  # 0.29 * 100 < 29


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_the_model_of_one_client_is_its_pruned_model(net):
    turn = attend(toys.spec(FedMPR(prune=0.5), (13,), net), [range(1)])[-1]
    assert trees.equal(turn.state["model"], turn.updates[0]["model"])
    assert (trees.vector(turn.state["model"]) == 0).float().mean() > 0.4


def test_pruned_entries_may_grow_again_and_the_mean_is_denser_than_its_parts():
    spec = toys.spec(FedMPR(prune=0.5), recipe=Recipe(batch_size=4, lr=0.3, epochs=5))
    first, second = attend(spec, [range(3)] * 2)
    zeros = [int((trees.vector(u["model"]) == 0).sum()) for u in first.updates.values()]
    assert int((trees.vector(first.state["model"]) == 0).sum()) < min(zeros)
    gone = trees.vector(first.updates[0]["model"]) == 0
    assert (trees.vector(second.updates[0]["model"])[gone] != 0).any()


# dropout and noise


@contextmanager
def listening(module: nn.Module, names: list[str], into: dict[str, list[Tensor]]) -> Iterator[None]:
    """What these submodules are given, and what they say before anything is done to it."""

    def heard(name: str, tensor: Tensor) -> None:
        into.setdefault(name, []).append(tensor.detach().clone())

    handles = []
    for name in names:
        part = module.get_submodule(name)
        handles.append(part.register_forward_pre_hook(lambda _, x, name=name: heard(f"into {name}", x[0])))
        handles.append(part.register_forward_hook(lambda _, x, out, name=name: heard(f"out of {name}", out)))
    yield
    for handle in handles:
        handle.remove()


def heard_in_training(method: FedMPR, net: str, names: list[str]) -> dict[str, Tensor]:
    spec = toys.spec(method, sizes=(400,), net=net, recipe=Recipe(batch_size=50, lr=0.01))
    client, found = toys.client(spec), {}  # type: ignore[var-annotated]
    with listening(client.module, names, found):
        method.fitted(client, client.init(0))
    return {name: torch.cat(parts) for name, parts in found.items()}


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_the_head_gets_what_the_body_says_with_some_of_it_dropped(net):
    heard = heard_in_training(replace(NOTHING, dropout=0.2), net, ["body", "head"])
    said, got = heard["out of body"], heard["into head"]
    dropped = (got == 0) & (said != 0)
    assert torch.allclose(got[~dropped], said[~dropped] / 0.8)
    assert float(dropped.sum() / (said != 0).sum()) == pytest.approx(0.2, abs=0.02)
    assert not torch.equal(dropped[:50], dropped[50:100])


@pytest.mark.parametrize(
    ("net", "speaker", "listener"),
    [
        ("mlp", "body.2", "body.3"),
        ("mlp", "body.4", "head"),
        ("cnn", "body.0", "body.1"),
        ("cnn", "body.1", "body.2"),
    ],
)
def test_every_hidden_layer_is_heard_through_noise(net, speaker, listener):
    heard = heard_in_training(replace(NOTHING, noise=0.3), net, [speaker, listener])
    noise = (heard[f"into {listener}"] - heard[f"out of {speaker}"]).double()
    assert float(noise.std()) == pytest.approx(0.3, rel=0.03)
    assert float(noise.mean()) == pytest.approx(0.0, abs=0.01)
    assert float((noise.abs() < 0.3).double().mean()) == pytest.approx(0.6827, abs=0.02)  # Gaussian
    assert abs(float((noise[:50] * noise[50:100]).mean())) < 0.01  # fresh in every batch


@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize("method", [replace(NOTHING, dropout=0.5), replace(NOTHING, noise=0.5)], ids=repr)
def test_dropout_and_noise_train_otherwise_but_judge_alike(net, method):
    client = toys.client(toys.spec(method, net=net))
    w = client.init(0)
    before = client.logits(w, client.data)
    ours, again = method.fitted(client, w), method.fitted(client, w)
    assert trees.equal(ours, again)
    assert not trees.equal(ours, FedAvg().fitted(client, w))
    client.stream = (0, 2, 1)
    assert not trees.equal(ours, method.fitted(client, w))
    assert torch.equal(client.logits(w, client.data), before)


def test_a_client_that_diverges_leaves_no_dropout_behind_for_the_others():
    method = FedMPR(dropout=0.9, noise=1.0)
    bad = Examples(torch.full((6, 1, 8, 8), float("inf")), torch.zeros(6, dtype=torch.long))
    engine = Serial(toys.spec(method, data={0: bad}))
    client, other = engine.sites[0].client, engine.sites[1].client
    w = other.init(0)
    before = other.logits(w, other.data)
    with pytest.raises(Diverged):
        method.fitted(client, w)
    assert torch.equal(other.logits(w, other.data), before)
    assert not client.module._modules["body"]._forward_hooks  # type: ignore[union-attr]


def bodiless() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 4))


def test_a_model_without_a_body_is_pruned_and_no_more():
    method, pruning_alone = FedMPR(), FedMPR(dropout=0.0, noise=0.0)
    ours, plain = (
        toys.play(replace(toys.spec(m), task=Task(bodiless)), rounds=2) for m in (method, pruning_alone)
    )
    assert trees.equal(ours.states[-1], plain.states[-1])


def test_a_linear_model_drops_inputs_and_has_no_hidden_layer_to_disturb():
    quiet, noisy, dropping = (
        toys.play(toys.spec(m, net="linear"), rounds=1).states[-1]
        for m in (NOTHING, replace(NOTHING, noise=1.0), replace(NOTHING, dropout=0.5))
    )
    assert trees.equal(quiet, noisy)
    assert not trees.equal(quiet, dropping)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_decay_is_the_weight_decay_of_local_training(optimizer):
    recipe = Recipe(batch_size=4, optimizer=optimizer, weight_decay=0.5)
    ours = toys.play(toys.spec(replace(NOTHING, decay=0.1), recipe=recipe), rounds=2)
    average = toys.play(toys.spec(FedAvg(), recipe=replace(recipe, weight_decay=0.1)), rounds=2)
    assert trees.equal(ours.states[-1], average.states[-1])


def test_the_released_code_prunes_everything_and_regularises_by_decay_alone():
    method = replace(FedMPR(), **FedMPR.presets["released"])
    turn = attend(toys.spec(method, net="cnn"), [range(3)])[-1]
    assert method.changes(toys.client(toys.spec(method)).module) == {}
    sent = [update["model"] for update in turn.updates.values()]
    assert trees.equal(turn.state["model"], trees.mean(sent, [1.0] * 3))
    assert any((model["body.0.norm.bias"] == 0).any() for model in sent)


def test_running_statistics_are_averaged_and_clients_that_miss_a_round_do_not_count():
    spec = toys.spec(FedMPR(), net="cnn")
    _, second, third = attend(spec, [range(3), range(1, 3), range(3)])
    sent = [update["model"] for update in second.updates.values()]
    assert trees.equal(second.state["model"], trees.mean(sent, [11.0, 5.0]))
    assert not torch.equal(third.state["model"]["body.0.norm.running_var"], torch.ones(32))


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_going_over_the_wire_changes_nothing(net):
    spec = toys.spec(FedMPR(), net=net)
    assert trees.equal(attend(spec, [range(3)] * 3)[-1].state, toys.play(spec).states[-1])


def test_it_changes_nothing_it_is_given_and_counts_its_gradients():
    client = toys.client(toys.spec(FedMPR(), net="cnn"))
    state = {"model": client.init(0)}
    before = trees.transform(state, torch.clone)
    FedMPR().client_update(client, state)
    assert trees.equal(state, before)
    assert client.gradients == client.n


@pytest.mark.parametrize(
    ("field", "value", "range_"),
    [
        ("prune", 1.0, "at least 0 and below 1"),
        ("prune", -0.1, "at least 0 and below 1"),
        ("dropout", 1.0, "at least 0 and below 1"),
        ("noise", -0.1, "0 or above"),
        ("decay", float("nan"), "0 or above"),
    ],
)
def test_nonsense_is_refused(field, value, range_):
    with pytest.raises(PlanError, match=f"fedmpr: {field} must be {range_}, got {value}"):
        FedMPR(**{field: value})
