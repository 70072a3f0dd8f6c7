"""pFedCK's laws (algorithms 2.9): each with sizes that differ between clients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

import toys
from fedakd import trees, wire
from fedakd.errors import PlanError
from fedakd.methods.fedavg import FedAvg
from fedakd.methods.pfedck import PFedCK
from fedakd.methods.standalone import Standalone
from fedakd.training import Recipe
from fedakd.trees import Params, Tree

SILENT = PFedCK(soft=0.0, features=0.0)
SIZES = [(9, 4), toys.TEN]


class Body(nn.Module):
    """Any layer between the first and the head."""

    def __init__(self, layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), layer(), nn.ReLU())
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


OWN = {
    "cnn64": partial(toys.double, toys.NETS["cnn"]),
    "dropout": partial(Body, nn.Dropout),
    "norm": partial(Body, partial(nn.BatchNorm1d, 12)),
    "bare": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 4)),
}


@pytest.fixture(autouse=True)
def _own_nets(monkeypatch):
    for name, net in OWN.items():
        monkeypatch.setitem(toys.NETS, name, net)


def close(a: Params, b: Params, by: float = 1e-10) -> bool:
    return a.keys() == b.keys() and all(torch.allclose(a[n], b[n], rtol=0, atol=by) for n in a)


def shared(method: PFedCK, state: Tree, kept: Tree, k: int) -> Params:
    """The interactive model client k is judged by."""
    return method.models(method.receive(kept, method.send(state, k)))["shared"]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("net", ["mlp", "cnn", "dropout"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_without_teaching_the_personal_models_are_standalone_bit_for_bit(sizes, net, optimizer):
    recipe = Recipe(batch_size=4, lr=0.05, optimizer=optimizer)
    ours, alone = (toys.play(toys.spec(m, sizes, net, recipe), rounds=3) for m in (SILENT, Standalone()))
    for mine, theirs in zip(ours.kept, alone.kept, strict=True):
        for k in range(len(sizes)):
            assert trees.equal(mine[k]["personal"], theirs[k]["model"])
            assert trees.equal(mine[k]["moments"], theirs[k]["moments"])  # those of P alone


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("net", ["mlp", "cnn", "dropout"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_without_teaching_one_cluster_is_fedavg_bit_for_bit(sizes, net, optimizer):
    """Its optimiser is made anew every round, though that of the personal model beside it is kept."""
    recipe = Recipe(batch_size=4, lr=0.05, optimizer=optimizer)
    method = PFedCK(soft=0.0, features=0.0, clusters=1)
    ours, average = (toys.play(toys.spec(m, sizes, net, recipe), rounds=3) for m in (method, FedAvg()))
    for state, kept, theirs in zip(ours.states, ours.kept, average.states, strict=True):
        assert all(trees.equal(shared(method, state, kept[k], k), theirs["model"]) for k in range(len(sizes)))


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_members_of_a_cluster_have_one_model_wherever_they_come_from(participation):
    """Clients that were apart and are clustered together meet: changes alone would keep them apart."""
    method, spec = PFedCK(clusters=3), toys.spec(PFedCK(clusters=3), toys.TEN)
    played = toys.play(spec, rounds=6, participation=participation)
    before = [0] * len(toys.TEN)
    met = 0
    for record, state, kept in zip(played.result.rounds, played.states, played.kept, strict=True):
        labels = state["cluster"].tolist()
        for i, j in combinations(record.participants, 2):
            a, b = (shared(method, state, kept[k], k) for k in (i, j))
            assert trees.equal(a, b) == (labels[i] == labels[j])
            met += labels[i] == labels[j] and before[i] != before[j]
        before = labels
    assert met  # some pairs were in different clusters before


def by_hand(method: PFedCK, client, w_p: Params, w_i: Params) -> tuple[Params, Params]:
    """One epoch of the two formulas by plain gradient descent."""
    both = [{n: w.clone().requires_grad_() for n, w in own.items()} for own in (w_p, w_i)]
    t = method.temperature
    for batch in client.batches(client.data):
        outs = []
        for own in both:
            body = {n.removeprefix("body."): w for n, w in own.items() if n.startswith("body.")}
            f = functional_call(client.module.body, body, (batch.x,))
            outs.append((f @ own["head.weight"].T + own["head.bias"], f))
        for own, (z, f), (other_z, other_f) in zip(both, outs, outs[::-1], strict=True):
            p, q = F.softmax(other_z.detach() / t, 1), F.softmax(z / t, 1)
            kl = (p * (p.log() - q.log())).sum(1).mean()
            gap = (f - other_f.detach()).square().mean()
            loss = F.cross_entropy(z, batch.y) + method.soft * t**2 * kl + method.features * gap
            for w, g in zip(own.values(), torch.autograd.grad(loss, list(own.values())), strict=True):
                w.data -= client.recipe.lr * g
    return tuple({n: w.detach() for n, w in own.items()} for own in both)


@pytest.mark.parametrize("terms", [(0.7, 0.0), (0.0, 0.3), (0.7, 0.3)])
def test_a_round_is_what_the_formulas_say(terms):
    method = PFedCK(*terms, temperature=2.0)
    client = toys.client(toys.spec(method, net="mlp64"))
    w_p, w_i = client.init(0), client.init(1)
    state = {"personal": w_p, "moments": {}, "shared": w_i}
    kept, update = method.client_update(client, state)
    p, i = by_hand(method, client, w_p, w_i)
    assert close(kept["personal"], p, 1e-12)
    assert close(update["shared"], i, 1e-12)


@pytest.mark.parametrize("net", ["mlp64", "cnn64", "dropout"])
def test_equal_models_teach_each_other_nothing(net):
    spec = toys.spec(SILENT, net=net)
    client = toys.client(spec)
    state = {**SILENT.client_init(client, client.init(0)), "shared": client.init(0)}
    loud, quiet = (m.client_update(client, state) for m in (PFedCK(soft=9.0, features=9.0), SILENT))
    tolerance = 1e-5 if net == "dropout" else 1e-10
    assert close(loud[0]["personal"], quiet[0]["personal"], tolerance)
    assert close(loud[1]["shared"], quiet[1]["shared"], tolerance)
    assert close(loud[1]["shared"], loud[0]["personal"], tolerance)


def test_a_model_without_a_body_is_taught_by_predictions_alone():
    runs = {
        terms: toys.play(toys.spec(PFedCK(*terms, clusters=1), net="bare")).kept[-1][0]["personal"]
        for terms in [(0.0, 0.0), (0.0, 5.0), (1.0, 5.0)]
    }
    assert trees.equal(runs[0.0, 0.0], runs[0.0, 5.0])
    assert not trees.equal(runs[0.0, 5.0], runs[1.0, 5.0])


@pytest.mark.parametrize("net", ["mlp", "cnn", "norm"])
def test_clients_with_one_row_work(net):
    played = toys.play(toys.spec(PFedCK(), (1, 6, 1), net), rounds=3)
    assert not played.result.rounds[-1].failures
    leaves = [leaf for kept in played.kept[-1].values() for _, leaf in trees.leaves(kept)]
    assert all(torch.isfinite(leaf).all() for leaf in leaves if isinstance(leaf, Tensor))


def test_both_models_gradients_count():
    ours, alone = (toys.play(toys.spec(m)).result.rounds[-1].gradients for m in (PFedCK(), Standalone()))
    assert ours == 2 * alone


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("net", "clusters"), [("mlp", 1), ("mlp", 2), ("cnn", 2), ("cnn", 99)])
def test_clusters_are_a_partition_and_get_their_weighted_mean(sizes, net, clusters):
    played = toys.play(toys.spec(PFedCK(clusters=clusters), sizes, net), rounds=2)
    updates, state = played.updates[-len(sizes) :], played.states[-1]
    labels = state["cluster"].tolist()
    assert {str(int(label)) for label in labels} == set(state["models"])
    assert len(state["models"]) == min(clusters, len(sizes))  # 99: nobody cooperates
    for k, label in enumerate(labels):
        own = [j for j, other in enumerate(labels) if other == label]
        shares = [sizes[j] / sum(sizes[i] for i in own) for j in own]
        terms = [trees.scale(updates[j]["shared"], share) for j, share in zip(own, shares, strict=True)]
        expected = {name: sum(term[name] for term in terms) for name in updates[k]["shared"]}
        assert close(PFedCK().send(state, k)["shared"], expected, 1e-6)


@pytest.mark.parametrize("clusters", [1, 3, 12])
@pytest.mark.parametrize("others", [(), tuple(range(3, 11))])
@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_twins_stay_together_and_equal(clusters, net, others):
    method, clients = PFedCK(clusters=clusters), 2 + len(others)
    spec = toys.spec(method, (9, 9, *others), net, data={1: toys.rows(9, 100)})
    server = toys.server(spec)
    kept = {k: method.client_init(toys.client(spec, k), toys.client(spec, k).init(0)) for k in range(clients)}
    state = method.server_init(server, toys.client(spec).init(0))
    for round in (1, 2, 3):
        updates = {}
        for k in range(clients):
            client = toys.client(spec, k, round)
            client.stream = (0, round, max(k, 1))
            kept[k], updates[k] = method.client_update(client, method.receive(kept[k], method.send(state, k)))
        state = method.server_update(server, state, updates)
        assert state["cluster"][0] == state["cluster"][1]
        assert trees.equal(shared(method, state, kept[0], 0), shared(method, state, kept[1], 1))
        assert trees.equal(kept[0], kept[1])


@pytest.mark.parametrize(("sizes", "clusters"), [((9, 4), 1), (toys.TEN, 3)])  # who is alone has P = I
@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_the_personal_model_never_travels(net, sizes, clusters):
    played = toys.play(toys.spec(PFedCK(clusters=clusters), sizes, net), rounds=3)
    trained = set(toys.client(toys.spec(PFedCK(), net=net)).trainable)
    later = [own["personal"] for kept in played.kept[1:] for own in kept.values()]  # P = I in the first
    known = {part.numpy().tobytes() for part in toys.client(toys.spec(PFedCK(), net=net)).init(0).values()}
    private = {own[name].numpy().tobytes() for own in later for name in trained} - known
    seen = (*played.messages, *played.updates, *played.states)
    leaves = [leaf for tree in seen for _, leaf in trees.leaves(tree) if isinstance(leaf, Tensor)]
    assert private.isdisjoint(leaf.numpy().tobytes() for leaf in leaves)
    assert {name for tree in played.updates for name in tree} == {"shared", "n"}


def test_running_statistics_are_learned_in_both_views():
    played = toys.play(toys.spec(PFedCK(), net="cnn"), rounds=1)
    for k in range(3):
        views = PFedCK().models(PFedCK().receive(played.kept[0][k], PFedCK().send(played.states[0], k)))
        assert list(views) == ["personal", "shared"]
        assert not any((own["body.1.norm.running_var"] == 1).all() for own in views.values())


def test_hooks_change_nothing_they_are_given():
    method, spec = PFedCK(), toys.spec(PFedCK(), net="cnn")
    client, server = toys.client(spec), toys.server(spec)
    kept = {**method.client_init(client, client.init(0)), "shared": client.init(1)}
    _, update = method.client_update(client, given := trees.transform(kept, torch.clone))
    state = method.server_update(server, method.server_init(server, client.init(0)), {0: update, 2: update})
    before = trees.transform(state, torch.clone)
    method.server_update(server, state, {1: update})
    method.receive(given, method.send(state, 0))
    assert trees.equal(given, kept)
    assert trees.equal(state, before)
    assert method.server_update(server, state, {}) is state


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_a_late_client_gets_the_model_of_its_last_cluster(net):
    method, spec = PFedCK(), toys.spec(PFedCK(), net=net)
    server, client = toys.server(spec), toys.client(spec)
    start = client.init(0)
    state = method.server_init(server, start)
    trained = {"shared": client.fit(start, client.data)}
    state = method.server_update(server, state, {0: trained, 1: trained})
    assert trees.equal(method.send(state, 2)["shared"], start)  # it has not trained yet
    for number in range(3):  # client 1 misses three rounds, client 2 all of them
        state = wire.loads(wire.dumps(state))
        other = {"shared": trees.scale(trained["shared"], -2.0 - number)}
        state = method.server_update(server, state, {0: other})
        assert trees.equal(method.send(state, 0), other)
        assert trees.equal(method.send(state, 1), trained)
        assert trees.equal(method.send(state, 2)["shared"], start)
        assert len(state["models"]) == 3


def test_with_half_of_the_clients_nobody_loses_what_it_is_owed_and_no_model_is_kept_in_vain():
    method = PFedCK()
    played = toys.play(toys.spec(method, toys.TEN), rounds=6, participation=0.5)
    owed = {k: toys.client(toys.spec(method)).init(0) for k in range(10)}
    for record, state in zip(played.result.rounds, played.states, strict=True):
        present = set(record.participants)
        for k in range(10):
            model = method.send(state, k)["shared"]
            assert trees.equal(model, owed[k]) == (k not in present)
            owed[k] = model
        assert {str(int(label)) for label in state["cluster"]} == set(state["models"])
        assert len({int(state["cluster"][k]) for k in present}) == method.clusters


@pytest.mark.parametrize("wrong", [{"soft": -1.0}, {"features": -0.1}, {"temperature": 0.0}, {"clusters": 0}])
def test_nonsense_is_refused(wrong):
    with pytest.raises(PlanError, match=next(iter(wrong))):
        PFedCK(**wrong)
