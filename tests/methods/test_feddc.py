"""FedDC's laws (algorithms 2.10): each with sizes that differ between clients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import toys
from attendance import assert_leaves_alone, attend
from fedakd import trees
from fedakd.errors import PlanError
from fedakd.examples import Examples
from fedakd.method import Client
from fedakd.methods.fedavg import FedAvg
from fedakd.methods.feddc import FedDC
from fedakd.methods.scaffold import SCAFFOLD
from fedakd.training import Batch, Recipe, loaded
from fedakd.trees import Params, Tree

SIZES = [(9, 4), toys.TEN]
RECIPE = Recipe(batch_size=4, lr=0.05, epochs=2)
FULL_BATCH = Recipe(batch_size=64, lr=0.1)
OFF = FedDC(alpha=0.0, drift=False, correct=False)


def near(a: Params, b: Params, atol: float = 1e-12) -> bool:
    return a.keys() == b.keys() and all(torch.allclose(a[n], b[n], rtol=0, atol=atol) for n in a)


def attendances(clients: int) -> list[range]:
    """Everybody, all but the first, the first alone, everybody."""
    return [range(clients), range(1, clients), range(1), range(clients)]


def nus(method: FedDC, sizes: tuple[int, ...]) -> list[float]:
    told = method.scaled and method.weigh_by == "uniform"
    return [len(sizes) * n / sum(sizes) if told else 1.0 for n in sizes]


def gradient(client: Client, w: Params, batch: Batch) -> Params:
    module = loaded(client.module, w).train()
    client.loss(module, batch).backward()  # type: ignore[no-untyped-call]
    found = {name: part.grad.clone() for name, part in module.named_parameters()}  # type: ignore[union-attr]
    module.zero_grad()
    return found


def by_hand(client: Client, state: Tree, method: FedDC, nu: float) -> tuple[Params, Params, Params]:
    """(w, h_k, g_k) after a round at a client, written from the formulas; what is switched off is 0."""
    w_g, nothing = state["model"], trees.zeros(state["model"])
    h, g_k, g = (state[name] or nothing for name in ("drift", "g_k", "g"))
    w, steps = w_g, 0
    for batch in client.batches(client.data):
        slope = gradient(client, w, batch)
        for name in w:
            slope[name] += method.alpha / nu * (w[name] + h[name] - w_g[name]) + g[name] / nu - g_k[name]
        w, steps = trees.add(w, slope, -client.recipe.lr), steps + 1
    delta = trees.sub(w, w_g)
    g_k = {n: g_k[n] - g[n] / nu - delta[n] / (steps * client.recipe.lr) for n in w}
    return w, trees.add(h, delta), g_k


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(
    "method",
    [FedDC(), FedDC(alpha=1.0, scaled=False), FedDC(drift=False), FedDC(correct=False), FedDC("size")],
    ids=repr,
)
def test_clients_follow_the_formulas(sizes, method):
    spec, nu = toys.spec(method, sizes, "mlp64", RECIPE), nus(method, sizes)
    turns = attend(spec, attendances(len(sizes)))
    before = {
        k: method.client_init(toys.client(spec, k), turns[0].messages[0]["model"]) for k in range(len(sizes))
    }
    for number, turn in enumerate(turns, 1):
        for k, message in turn.messages.items():
            w, h, g_k = by_hand(toys.client(spec, k, number), {**before[k], **message}, method, nu[k])
            assert message["nu"] == pytest.approx(nu[k])
            assert near(turn.updates[k]["model"], w)
            assert near(turn.kept[k]["drift"], h if method.drift else {})
            assert near(turn.kept[k]["g_k"], g_k if method.correct else {})
        before = turn.kept


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("by", ["uniform", "size"])
@pytest.mark.parametrize("scaled", [True, False])
def test_the_model_is_the_mean_of_who_is_there_and_the_mean_drift_of_all(sizes, by, scaled):
    method = FedDC(by, scaled=scaled)
    nu, weights = nus(method, sizes), [float(n) if by == "size" else 1.0 for n in sizes]
    for turn in attend(toys.spec(method, sizes, "mlp64", RECIPE), attendances(len(sizes))):
        present = trees.mean((u["model"] for u in turn.updates.values()), [weights[k] for k in turn.updates])
        drift = trees.mean((turn.kept[k]["drift"] for k in range(len(sizes))), weights)
        g = trees.mean((trees.scale(turn.kept[k]["g_k"], nu[k]) for k in range(len(sizes))), weights)
        assert near(turn.state["model"], trees.add(present, drift))
        assert near(turn.state["drift"], drift)
        assert near(turn.state["g"], g)
        assert min(trees.norm(drift), trees.norm(g)) > 0.01


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize("by", ["uniform", "size"])
def test_with_all_of_it_off_it_is_fedavg_bit_for_bit(sizes, net, by):
    recipe = replace(RECIPE, weight_decay=0.1)
    ours, average = (
        toys.play(toys.spec(method, sizes, net, recipe), rounds=2)
        for method in (replace(OFF, weigh_by=by), FedAvg(by))
    )
    assert trees.equal(ours.states[-1]["model"], average.states[-1]["model"])


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("net", ["mlp64", "cnn"])
def test_alpha_0_is_not_fedavg_the_drift_doubles_the_first_step(sizes, net):
    method = FedDC(alpha=0.0, correct=False)
    ours, average = (
        toys.play(toys.spec(m, sizes, net, RECIPE), rounds=1) for m in (method, FedAvg("uniform"))
    )
    client, w = toys.client(toys.spec(OFF, net=net)), ours.messages[0]["model"]
    once = trees.sub(average.states[0]["model"], w)
    twice = trees.add(w, client.parameters(once) | trees.zeros(client.buffers(w)), 2.0)
    atol = 1e-12 if net == "mlp64" else 1e-6
    assert near(client.parameters(ours.states[0]["model"]), client.parameters(twice), atol)
    sent = [update["model"] for update in ours.updates]
    for name, value in client.buffers(ours.states[0]["model"]).items():
        assert torch.allclose(value, torch.stack([model[name] for model in sent]).mean(0), atol=1e-6)


@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize(
    ("method", "scaffold", "sizes"),
    [
        (FedDC(alpha=0.0, drift=False), SCAFFOLD(), (6,) * 2),
        (FedDC(alpha=0.0, drift=False), SCAFFOLD(), (6,) * 10),
        (FedDC(alpha=0.0, drift=False, scaled=False), SCAFFOLD(), toys.TEN),
        (FedDC("size", alpha=0.0, drift=False), SCAFFOLD("size"), toys.TEN),
    ],
    ids=str,
)
def test_corrected_gradients_alone_are_scaffold_bit_for_bit(net, method, scaffold, sizes):
    ours, theirs = (toys.play(toys.spec(m, sizes, net, RECIPE), rounds=2) for m in (method, scaffold))
    assert trees.equal(ours.states[-1]["model"], theirs.states[-1]["model"])
    assert trees.equal(ours.states[-1]["g"], theirs.states[-1]["c"])
    assert all(trees.equal(ours.kept[-1][k]["g_k"], theirs.kept[-1][k]["c_k"]) for k in range(len(sizes)))


def test_with_sizes_that_differ_it_is_not_scaffold():
    ours, theirs = (toys.play(toys.spec(m), rounds=2) for m in (FedDC(alpha=0.0, drift=False), SCAFFOLD()))
    assert trees.equal(ours.states[0]["model"], theirs.states[0]["model"])
    assert not trees.equal(ours.states[1]["model"], theirs.states[1]["model"])


class Overheard(Client):
    """A client that remembers which loss it was told to fit."""

    def fit(self, params: Params, data: Examples, **options) -> Params:  # type: ignore[no-untyped-def, override]
        self.told = options["loss"]
        return super().fit(params, data, **options)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_the_penalty_at_the_first_step_is_that_of_the_drift(sizes, net):
    method, rng = FedDC(alpha=0.3), torch.Generator().manual_seed(0)
    spec = toys.spec(method, sizes, net)
    for k, nu in enumerate(nus(method, sizes)):
        client = Overheard(spec.task, spec.recipe, (0, 1, k + 1), id=k, data=spec.clients[k].train)
        w_g = client.init(0)
        nothing = trees.zeros(client.parameters(w_g))
        h = {n: torch.randn(part.shape, generator=rng) for n, part in nothing.items()}
        method.client_update(client, {"model": w_g, "drift": h, "g": nothing, "g_k": nothing, "nu": nu})
        module, batch = loaded(client.module, w_g), next(client.batches(client.data))
        expected = client.loss(module, batch).item() + 0.3 / nu / 2 * trees.norm(h) ** 2
        assert client.told(module, batch).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_the_first_step_of_the_first_round_feels_no_penalty_that_of_the_second_does(sizes, net):
    with_, without = (
        toys.play(toys.spec(FedDC(alpha=a), sizes, net, FULL_BATCH), rounds=2) for a in (1.0, 0.0)
    )
    assert trees.equal(with_.states[0], without.states[0])
    assert not trees.equal(with_.states[1], without.states[1])


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("alpha", [1e4, 1e6])
def test_an_endless_pull_leaves_the_gradient_over_alpha_in_the_first_round(sizes, alpha):
    """A client's move tends to -nu_k / alpha times its gradient, and the server's to twice their mean."""
    nu = nus(FedDC(), sizes)
    method = FedDC(alpha=alpha, correct=False, lr=0.9 * min(nu) / alpha)  # lr alpha / nu < 1 for everybody
    spec = toys.spec(method, sizes, "mlp64", Recipe(batch_size=64, epochs=150))
    turn = attend(spec, [range(len(sizes))])[-1]
    w_g, moves = turn.messages[0]["model"], []
    for k, update in turn.updates.items():
        client = toys.client(spec, k)
        slope = gradient(client, w_g, next(client.batches(client.data)))
        moves.append(trees.scale(trees.sub(update["model"], w_g), alpha / nu[k]))
        assert trees.norm(trees.add(moves[-1], slope)) < 100 / alpha * trees.norm(slope)
    mean = trees.mean((trees.scale(move, nu[k]) for k, move in enumerate(moves)), [1.0] * len(sizes))
    step = trees.scale(trees.sub(turn.state["model"], w_g), alpha)
    assert trees.norm(trees.sub(step, trees.scale(mean, 2.0))) < 1e-6 * trees.norm(step)


def test_drifts_and_gradient_states_have_no_running_statistics_and_statistics_no_drift():
    spec = toys.spec(FedDC(), net="cnn")
    turn = attend(spec, [range(3)] * 2)[-1]
    client = toys.client(spec)
    own = (
        turn.state["g"],
        turn.state["drift"],
        turn.kept[0]["drift"],
        turn.kept[0]["g_k"],
        turn.updates[0]["delta_g"],
    )
    assert all(set(tree) == set(client.trainable) for tree in own)
    mean = trees.mean((update["model"] for update in turn.updates.values()), [1.0] * 3)
    assert trees.equal(client.buffers(turn.state["model"]), client.buffers(mean))
    assert not torch.equal(mean["body.0.norm.running_var"], torch.ones(32))


def test_what_is_off_is_neither_kept_nor_sent():
    turn = attend(toys.spec(OFF), [range(3)])[-1]
    assert turn.messages[0]["g"] == turn.updates[0]["delta_g"] == turn.state["drift"] == {}
    assert turn.kept[0]["drift"] == turn.kept[0]["g_k"] == {}


def test_who_is_absent_keeps_everything():
    spec = toys.spec(FedDC(), recipe=RECIPE)
    first, second = attend(spec, [range(3), range(1, 3)])
    assert trees.equal(first.kept[0], second.kept[0])


@pytest.mark.parametrize("method", [FedDC(), FedDC("size")], ids=repr)
def test_nobody_there_keeps_everything(method):
    server = toys.server(toys.spec(method))
    state = method.server_init(server, server.init(0))
    assert trees.equal(method.server_update(server, state, {}), state)


def test_a_client_without_rows_keeps_its_drift_and_harms_nobody():
    spec = toys.spec(FedDC(), data={1: toys.rows(0, 0)})
    first, second = attend(spec, [range(3)] * 2)
    assert all(not part.any() for name in ("drift", "g_k") for part in second.kept[1][name].values())
    assert trees.equal(second.updates[1]["model"], first.state["model"])
    assert all(torch.isfinite(part).all() for part in second.state["model"].values())


@pytest.mark.parametrize(("lr", "expected"), [(None, 0.1), (0.03, 0.03)])
def test_a_recipe_with_adam_becomes_plain_sgd(lr, expected):
    adam = Recipe(batch_size=4, lr=0.001, optimizer="adam")
    ours = toys.play(toys.spec(FedDC(lr=lr), recipe=adam), rounds=2)
    plain = toys.play(toys.spec(FedDC(), recipe=Recipe(batch_size=4, lr=expected)), rounds=2)
    assert trees.equal(ours.states[-1], plain.states[-1])


@pytest.mark.parametrize("method", [FedDC(), OFF], ids=repr)
@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_going_over_the_wire_changes_nothing(method, net):
    spec = toys.spec(method, net=net)
    assert trees.equal(attend(spec, [range(3)] * 3)[-1].state, toys.play(spec).states[-1])


def test_it_changes_nothing_it_is_given_and_counts_its_gradients():
    spec = toys.spec(FedDC(), net="cnn", recipe=RECIPE)
    client = assert_leaves_alone(spec, attend(spec, [range(3)])[-1], k=1, round=2)
    assert client.gradients == 2 * client.n


def test_a_pull_that_overshoots_at_the_smallest_client_is_refused():
    spec = toys.spec(FedDC(alpha=5.0))  # sizes 23, 11, 5: the smallest has nu = 5 / 13
    with pytest.raises(PlanError, match=r"feddc: lr \* alpha / nu must be below 2, is 2.6 for the smallest"):
        toys.play(replace(spec, recipe=Recipe(lr=0.2)), rounds=1)
    toys.play(replace(spec, method=FedDC(alpha=5.0, scaled=False), recipe=Recipe(lr=0.2)), rounds=1)


@pytest.mark.parametrize(
    ("fields", "message"), [({"alpha": -1.0}, "alpha must be 0 or"), ({"lr": 0.0}, "lr must be")]
)
def test_nonsense_is_refused(fields, message):
    with pytest.raises(PlanError, match=f"feddc: {message}"):
        FedDC(**fields)


@pytest.mark.parametrize("drift", [True, False])
def test_statistics_sent_are_those_of_the_model_the_server_averages(drift):
    """w_g is the mean of w + h_k; the statistics of w alone are those of another model."""
    spec = toys.spec(FedDC(drift=drift), net="cnn")
    played = toys.play(spec, rounds=2)
    for k in range(3):
        client, kept = toys.client(spec, k, round=2), played.kept[-1][k]
        update = played.updates[k - 3]["model"]
        moved = client.update_bn(trees.move(kept["trained"], kept["drift"]), client.data)
        expected = client.buffers(moved if drift else kept["trained"])
        assert all(torch.equal(update[name], value) for name, value in expected.items())
        assert trees.equal(client.parameters(update), client.parameters(kept["trained"]))
        assert trees.equal(client.buffers(moved), client.buffers(kept["trained"])) is False
