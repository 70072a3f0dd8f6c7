"""SCAFFOLD's laws (algorithms 2.4): each with sizes that differ between clients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import toys
from attendance import assert_leaves_alone, attend
from fedakd import trees
from fedakd.errors import PlanError
from fedakd.examples import Examples
from fedakd.method import Client
from fedakd.methods.fedavg import FedAvg
from fedakd.methods.scaffold import SCAFFOLD
from fedakd.training import Recipe, loaded
from fedakd.trees import Params

SIZES = [(9, 4), toys.TEN]
RECIPE = Recipe(batch_size=4, lr=0.05, epochs=2)  # 3 rows: one batch; 5: one too, of 5; 21: five, of 4 and 5
ABSENCES = ["everyone", "all but the first", "the first", "everyone"]


def near(a: Params, b: Params, atol: float = 1e-12) -> bool:
    return a.keys() == b.keys() and all(torch.allclose(a[n], b[n], rtol=0, atol=atol) for n in a)


def attendances(clients: int) -> list[range]:
    who = {"everyone": range(clients), "all but the first": range(1, clients), "the first": range(1)}
    return [who[one] for one in ABSENCES]


def raw_gradient(client: Client, w: Params, data: Examples) -> Params:
    """The gradient of the loss on these rows as one batch."""
    module = loaded(client.module, w).train()
    client.task.loss(module(data.x), data.y).backward()  # type: ignore[no-untyped-call]
    found = {name: part.grad.clone() for name, part in module.named_parameters()}  # type: ignore[union-attr]
    module.zero_grad()
    return found


def walked(
    client: Client, w_g: Params, c: Params, c_k: Params, recipe: Recipe
) -> tuple[Params, list[Params]]:
    """The local steps written from the formula, and the uncorrected gradients they met."""
    y, met = w_g, []
    for batch in client.batches(client.data, recipe):
        decayed = trees.add(raw_gradient(client, y, Examples(batch.x, batch.y)), y, recipe.weight_decay)
        met.append(decayed)
        y = {name: y[name] - recipe.lr * (decayed[name] - c_k[name] + c[name]) for name in y}
    return y, met


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_steps_are_corrected_and_c_k_is_the_mean_of_the_gradients_met(sizes, decay):
    recipe = replace(RECIPE, weight_decay=decay)
    spec = toys.spec(SCAFFOLD(), sizes, "mlp64", recipe)
    turns = attend(spec, attendances(len(sizes)))
    before = {k: trees.zeros(turns[0].messages[0]["c"]) for k in range(len(sizes))}
    for number, turn in enumerate(turns, 1):
        for k, message in turn.messages.items():
            client = toys.client(spec, k, number)
            y, met = walked(client, message["model"], message["c"], before[k], recipe)
            assert near(turn.updates[k]["model"], y)
            assert near(turn.kept[k]["c_k"], trees.mean(met, [1.0] * len(met)))
            assert near(turn.updates[k]["delta_c"], trees.sub(turn.kept[k]["c_k"], before[k]))
        before = {k: turn.kept[k]["c_k"] for k in before}


class Listening(Client):
    """A client that remembers the gradients of its steps before they are corrected."""

    def fit(self, params: Params, data: Examples, *, grad, **options) -> Params:  # type: ignore[no-untyped-def, override]
        self.met: dict[str, list[Tensor]] = {}

        def heard(name: str, gradient: Tensor) -> Tensor:
            self.met.setdefault(name, []).append(gradient.clone())
            return grad(name, gradient)  # type: ignore[no-any-return]

        return super().fit(params, data, grad=heard, **options)


def test_c_k_is_the_mean_of_the_gradients_met_with_batch_norm_too():
    spec = toys.spec(SCAFFOLD(), sizes=(23,), net="cnn", recipe=RECIPE)
    client = Listening(spec.task, spec.recipe, (0, 1, 1), data=spec.clients[0].train)
    rng = torch.Generator().manual_seed(0)
    w_g = client.init(0)
    c, c_k = (
        {n: 0.1 * torch.randn(part.shape, generator=rng) for n, part in client.parameters(w_g).items()}
        for _ in range(2)
    )
    kept, _ = SCAFFOLD().client_update(client, {"model": w_g, "c": c, "c_k": c_k})
    for name, met in client.met.items():
        assert len(met) == 2 * 6
        assert torch.allclose(kept["c_k"][name], torch.stack(met).mean(0), rtol=0, atol=2e-5)
    silent = set(client.trainable) - set(client.met)
    assert silent == {"body.0.conv.bias", "body.1.conv.bias"}  # batch norm takes their gradients away


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("by", ["uniform", "size"])
def test_c_is_the_mean_of_all_c_k_after_every_round_whoever_was_there(sizes, by):
    spec = toys.spec(SCAFFOLD(by), sizes, "mlp64", RECIPE)
    weights = [float(n) if by == "size" else 1.0 for n in sizes]
    for turn in attend(spec, attendances(len(sizes))):
        assert trees.norm(turn.state["c"]) > 0.01
        assert near(turn.state["c"], trees.mean((turn.kept[k]["c_k"] for k in range(len(sizes))), weights))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize("by", ["uniform", "size"])
def test_the_first_round_is_that_of_fedavg_bit_for_bit_and_the_second_is_not(sizes, net, by):
    ours, average = (
        toys.play(toys.spec(method, sizes, net, RECIPE), rounds=2) for method in (SCAFFOLD(by), FedAvg(by))
    )
    assert trees.equal(ours.states[0]["model"], average.states[0]["model"])
    assert not trees.equal(ours.states[1]["model"], average.states[1]["model"])


@pytest.mark.parametrize(("lr", "expected"), [(None, 0.1), (0.03, 0.03)])
def test_a_recipe_with_adam_becomes_plain_sgd(lr, expected):
    adam = Recipe(batch_size=4, lr=0.001, optimizer="adam")
    ours = toys.play(toys.spec(SCAFFOLD(lr=lr), recipe=adam), rounds=2)
    plain = toys.play(toys.spec(SCAFFOLD(), recipe=Recipe(batch_size=4, lr=expected)), rounds=2)
    assert trees.equal(ours.states[-1], plain.states[-1])


@pytest.mark.parametrize("sizes", SIZES)
def test_after_one_full_batch_step_c_k_is_the_gradient_at_the_global_model(sizes):
    spec = toys.spec(SCAFFOLD(), sizes, "mlp64", Recipe(batch_size=64, lr=0.5))
    for turn in attend(spec, [range(len(sizes))] * 3):
        for k, message in turn.messages.items():
            client = toys.client(spec, k)
            assert near(turn.kept[k]["c_k"], raw_gradient(client, message["model"], client.data))


@pytest.mark.parametrize("clients", [2, 10])
def test_clients_with_the_same_rows_need_no_correction(clients):
    data = {k: toys.rows(9, 1) for k in range(clients)}
    recipe = Recipe(batch_size=64, lr=0.3, epochs=3)
    ours, average = (
        toys.play(toys.spec(m, (9,) * clients, "mlp64", recipe, data=data)) for m in (SCAFFOLD(), FedAvg())
    )
    assert near(ours.states[-1]["model"], average.states[-1]["model"])
    assert all(near(kept["c_k"], ours.states[-1]["c"]) for kept in ours.kept[-1].values())


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("by", "server_lr"), [("uniform", 0.25), ("size", 1.5)])
def test_the_server_steps_towards_the_mean_and_takes_its_running_statistics(sizes, by, server_lr):
    spec = toys.spec(SCAFFOLD(by, server_lr), sizes, "cnn", RECIPE)
    client = toys.client(spec)
    for turn in attend(spec, attendances(len(sizes))):
        weights = [float(sizes[k]) if by == "size" else 1.0 for k in turn.updates]
        mean = trees.mean((update["model"] for update in turn.updates.values()), weights)
        w_g, model = turn.messages[0 if 0 in turn.messages else 1]["model"], turn.state["model"]
        stepped = trees.add(w_g, trees.sub(mean, w_g), server_lr)
        assert near(client.parameters(model), client.parameters(stepped), atol=1e-6)
        assert trees.equal(client.buffers(model), client.buffers(mean))
        assert not torch.equal(model["body.0.norm.running_var"], torch.ones(32))


def test_control_variates_have_no_running_statistics():
    spec = toys.spec(SCAFFOLD(), net="cnn")
    turn = attend(spec, [range(3)])[-1]
    trainable = set(toys.client(spec).trainable)
    for tree in (turn.state["c"], turn.messages[0]["c"], turn.kept[0]["c_k"], turn.updates[0]["delta_c"]):
        assert set(tree) == trainable
    assert set(turn.state["model"]) > trainable
    assert (set(turn.messages[0]), set(turn.updates[0])) == ({"model", "c"}, {"model", "delta_c", "n"})


def test_who_is_absent_keeps_its_control_variate_and_is_judged_by_the_new_model():
    spec = toys.spec(SCAFFOLD(), net="cnn", recipe=RECIPE)
    first, second = attend(spec, [range(3), range(1, 3)])
    assert trees.equal(first.kept[0], second.kept[0])
    views = spec.method.models(spec.method.receive(second.kept[0], spec.method.send(second.state, 0)))
    assert list(views) == ["global", "trained"]
    assert trees.equal(views["global"], second.state["model"])
    assert trees.equal(views["trained"], first.updates[0]["model"])


def test_a_client_without_rows_changes_no_control_variate():
    spec = toys.spec(SCAFFOLD(), data={1: toys.rows(0, 0)})
    first, second = attend(spec, [range(3)] * 2)
    assert all(not part.any() for part in second.kept[1]["c_k"].values())
    assert trees.equal(second.updates[1]["model"], first.state["model"])
    others = trees.add(second.kept[0]["c_k"], second.kept[2]["c_k"])
    assert near(second.state["c"], trees.scale(others, 1 / 3), atol=1e-6)


@pytest.mark.parametrize("method", [SCAFFOLD(), SCAFFOLD("size")], ids=repr)
def test_nobody_there_keeps_everything(method):
    server = toys.server(toys.spec(method))
    state = method.server_init(server, server.init(0))
    assert trees.equal(method.server_update(server, state, {}), state)


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_going_over_the_wire_changes_nothing(net):
    spec = toys.spec(SCAFFOLD(server_lr=0.5), net=net)
    assert trees.equal(attend(spec, [range(3)] * 3)[-1].state, toys.play(spec).states[-1])


def test_it_changes_nothing_it_is_given_and_counts_its_gradients():
    spec = toys.spec(SCAFFOLD(), net="cnn", recipe=RECIPE)
    client = assert_leaves_alone(spec, attend(spec, [range(3)])[-1], k=1, round=2)
    assert client.gradients == 2 * client.n


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"server_lr": 0.0}, "scaffold: server_lr must be above 0, got 0"),
        ({"server_lr": float("nan")}, "scaffold: server_lr must be above 0, got nan"),
        ({"lr": -0.1}, "scaffold: lr must be above 0, got -0.1"),
    ],
)
def test_nonsense_is_refused(fields, message):
    with pytest.raises(PlanError, match=message):
        SCAFFOLD(**fields)
