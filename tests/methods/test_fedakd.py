"""FedAKD's laws (algorithms 2.13): each with sizes that differ between clients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import toys
from fedakd import trees
from fedakd.distillation import distil
from fedakd.examples import Examples
from fedakd.method import Client
from fedakd.methods import METHODS
from fedakd.methods.fedakd import FedAKD
from fedakd.methods.fedavg import FedAvg
from fedakd.methods.standalone import Standalone
from fedakd.training import Recipe
from fedakd.trees import Params, Tree

TEN = tuple(range(3, 23, 2))
UNDISTILLED = FedAKD(alpha=0.0, beta=0.0, select="all")


@pytest.mark.parametrize("sizes", [(9, 4), toys.SIZES, TEN])
@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_without_distillation_on_all_data_it_is_fedavg_and_standalone_bit_for_bit(sizes, net, optimizer):
    recipe = Recipe(batch_size=4, lr=0.05, optimizer=optimizer, epochs=2)
    ours, average, alone = (
        toys.play(toys.spec(method, sizes, net, recipe)) for method in (UNDISTILLED, FedAvg(), Standalone())
    )
    for mine, theirs in zip(ours.states, average.states, strict=True):
        assert trees.equal(mine["model"], theirs["model"])
    for mine, theirs in zip(ours.kept, alone.kept, strict=True):
        assert all(trees.equal(mine[k]["local"], theirs[k]["model"]) for k in range(len(sizes)))


@pytest.mark.parametrize("beta", [0.0, 1.0])
@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_without_a_teacher_the_local_model_is_standalone_with_its_optimiser_kept(net, beta):
    """Whatever the global model does; with a new optimiser every round it is neither of them."""
    recipe = Recipe(batch_size=4, lr=0.01, optimizer="adam")
    methods = (FedAKD(alpha=0.0, beta=beta), Standalone(), Standalone(restart=True))
    ours, alone, restarted = (toys.play(toys.spec(m, toys.SIZES, net, recipe)).kept[-1] for m in methods)
    for k in range(len(toys.SIZES)):
        assert trees.equal(ours[k]["local"], alone[k]["model"])
        assert trees.equal(ours[k]["moments"], alone[k]["moments"])
        assert not trees.equal(ours[k]["local"], restarted[k]["model"])


@pytest.mark.parametrize("method", [m for m in METHODS.values() if isinstance(m, FedAKD)], ids=repr)
@pytest.mark.parametrize("sizes", [(9, 4), TEN])
@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_teachers_stay_as_they_are(method, net, sizes):
    spec = toys.spec(method, sizes, net)
    for k in range(len(sizes)):
        client = toys.client(spec, k)
        state = method.client_init(client, client.init(0)) | {"model": client.init(1)}
        before = trees.transform(state, torch.clone)
        method.client_update(client, state)
        assert trees.equal(state, before)


def test_a_model_learns_nothing_from_itself():
    spec = toys.spec(FedAKD(), recipe=Recipe(batch_size=64, lr=1.0))
    client = toys.client(spec)
    w = client.init(0)
    teacher = client.logits(w, client.data)
    silent = client.fit(w, client.data, loss=distil(teacher, 5.0, 2.0, lambda z, y: z.sum() * 0))
    assert all(torch.allclose(silent[n], w[n], atol=1e-6) for n in w)


def test_the_first_step_of_round_one_is_that_of_plain_training_without_batch_norm():
    spec = toys.spec(FedAKD(), recipe=Recipe(batch_size=64, lr=0.5))
    distilled, plain = (
        toys.play(replace(spec, method=FedAKD(alpha=alpha)), rounds=1).kept[0] for alpha in (1.0, 0.0)
    )
    for k in range(len(toys.SIZES)):
        a, b = distilled[k]["local"], plain[k]["local"]
        assert all(torch.allclose(a[n], b[n], atol=1e-6) for n in a)


class Listening(Client):
    """A client that remembers what it was fitted to, and what came of it."""

    def fit_from(self, params: Params, moments: Tree, data: Examples, **options) -> tuple[Params, Tree]:  # type: ignore[no-untyped-def, override]
        found, after = super().fit_from(params, moments, data, **options)
        self.fitted = [*getattr(self, "fitted", []), (params, data, trees.transform(found, torch.clone))]
        return found, after


@pytest.mark.parametrize("sizes", [(40, 31), tuple(range(24, 44, 2))])
@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_the_global_copy_learns_from_the_rows_the_local_model_gets_right(net, sizes):
    spec = toys.spec(FedAKD(), sizes, net)
    for k, n in enumerate(sizes):
        client = Listening(spec.task, spec.recipe, (0, 1, k + 1), id=k, data=spec.clients[k].train)
        w = client.init(0)
        kept, update = FedAKD().client_update(client, {**FedAKD().client_init(client, w), "model": w})
        (_, first, local), (start, chosen, taught) = client.fitted
        right = client.logits(kept["local"], client.data).argmax(1) == client.data.y
        assert first is client.data
        assert trees.equal(start, w)
        assert 0 < len(chosen) < n
        assert torch.equal(chosen.x, client.data[right].x)
        assert torch.equal(chosen.y, client.data.y[right])
        assert (update["correct"], update["n"]) == (len(chosen), n)
        assert trees.equal(kept["local"], local)  # a teacher stays as it is, running statistics too
        assert trees.equal(update["model"], taught)


def labelled_wrong_but(net: str, right: int) -> tuple[Examples, toys.Spec]:
    """Rows that the untrained model gets wrong, but for the first few."""
    spec = toys.spec(FedAKD(), net=net, recipe=Recipe(batch_size=8, lr=1e-12))
    client = toys.client(spec)
    predicted = client.logits(client.init(0), client.data).argmax(1)
    wrong = (predicted + 1) % 4
    wrong[:right] = predicted[:right]
    return Examples(client.data.x, wrong), spec


@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize("right", [0, 1])
def test_no_row_or_one_row_right(net, right):
    data, _ = labelled_wrong_but(net, right)
    client = toys.client(toys.spec(FedAKD(), net=net, data={0: data}))
    w = client.init(0)
    rows, z_k = FedAKD().selected(client, w, first=False)
    assert rows is not None
    assert len(rows) == right
    sent = FedAKD().teaching(client, w, rows, z_k)
    assert trees.equal(sent, w) == (right == 0)
    assert all(torch.isfinite(part).all() for part in sent.values())


@pytest.mark.parametrize("others", [(4,), TEN[:9]])
def test_a_client_without_right_rows_contributes_the_model_it_received(others):
    data, still = labelled_wrong_but("mlp", 0)  # with a rate at which its local model learns nothing
    sizes, method = (len(data), *others), FedAKD()
    spec = toys.spec(method, sizes, data={0: data})
    clients = [
        toys.client(replace(spec, recipe=still.recipe)),
        *(toys.client(spec, k) for k in range(1, len(sizes))),
    ]
    server = toys.server(spec)
    w = server.init(0)
    sent = [method.client_update(one, {**method.client_init(one, w), "model": w})[1] for one in clients]
    assert (sent[0]["correct"], clients[0].gradients) == (0.0, len(data))  # no second pass
    assert trees.equal(sent[0]["model"], w)
    assert any(not trees.equal(update["model"], w) for update in sent[1:])
    after = method.server_update(server, method.server_init(server, w), dict(enumerate(sent)))
    assert trees.equal(after["model"], trees.mean([w, *(update["model"] for update in sent[1:])], sizes))


@pytest.mark.parametrize("sizes", [(9, 4), TEN])
def test_alpha_and_beta_are_not_the_same_thing(sizes):
    def played(alpha: float, beta: float, rounds: int) -> toys.Played:
        return toys.play(toys.spec(FedAKD(alpha=alpha, beta=beta), sizes), rounds=rounds)

    models = [played(*pair, 2).states[-1]["model"] for pair in [(0.2, 2.0), (2.0, 0.2)]]
    assert not trees.equal(models[0], models[1])
    locals_ = [played(1.0, beta, 1).kept[0] for beta in (0.0, 3.0)]
    assert trees.equal(locals_[0][0], locals_[1][0])  # beta teaches the global copy alone


@pytest.mark.parametrize("sizes", [(9, 4), TEN])
def test_the_local_model_never_travels(sizes):
    played = toys.play(toys.spec(FedAKD(), sizes), rounds=3)
    private = {
        part.numpy().tobytes()
        for kept in played.kept  # of every round
        for tree in kept.values()
        for part in tree["local"].values()
    }
    travelled = {
        leaf.numpy().tobytes()
        for tree in (*played.messages, *played.updates)
        for _, leaf in trees.leaves(tree)
        if isinstance(leaf, torch.Tensor)
    }
    assert travelled.isdisjoint(private)
    assert {name for tree in played.updates for name in tree} == {"model", "n", "correct"}


def test_one_class_clients_work():
    data = toys.rows(9, 7)
    single = Examples(data.x, torch.zeros_like(data.y))
    played = toys.play(toys.spec(FedAKD(), net="cnn", data={1: single}), rounds=2)
    assert all(torch.isfinite(p).all() for p in played.states[-1]["model"].values())


# ablations (2.14)


@pytest.mark.parametrize("sizes", [(9, 4), TEN])
def test_all_data_is_full_fedakd_where_everything_is_right(sizes):
    blank = toys.spec(FedAKD(), sizes)
    start = toys.client(blank)
    data = {k: rows.train for k, rows in enumerate(blank.clients)}
    labels = {k: start.logits(start.init(0), own).argmax(1) for k, own in data.items()}
    data = {k: Examples(own.x, labels[k]) for k, own in data.items()}  # what an untrained model says is right
    recipe = Recipe(batch_size=8, lr=0.05)
    full, every = (
        toys.play(toys.spec(FedAKD(select=select), sizes, recipe=recipe, data=data), rounds=1)
        for select in ("correct", "all")
    )
    assert [update["correct"] for update in full.updates] == [float(n) for n in sizes]
    for ours, theirs in zip(full.updates, every.updates, strict=True):
        assert trees.equal(ours["model"], theirs["model"])
        assert not trees.equal(ours["model"], full.messages[0]["model"])


@pytest.mark.parametrize("sizes", [(9, 4), TEN])
def test_all_data_without_beta_sends_what_fedavg_sends(sizes):
    ours, average = (toys.play(toys.spec(m, sizes)) for m in (FedAKD(select="all", beta=0.0), FedAvg()))
    assert trees.equal(ours.states[-1]["model"], average.states[-1]["model"])


@pytest.mark.parametrize("sizes", [(9, 4), TEN])
def test_single_dist_on_all_data_without_beta_is_fedavg(sizes):
    method = FedAKD(local_update="overwrite", select="all", beta=0.0)
    ours, average = (toys.play(toys.spec(m, sizes)) for m in (method, FedAvg()))
    assert trees.equal(ours.states[-1]["model"], average.states[-1]["model"])


@pytest.mark.parametrize("sizes", [(9, 4), TEN])
def test_single_dist_starts_from_the_broadcast_and_from_all_rows(sizes):
    method = FedAKD(local_update="overwrite")
    spec = toys.spec(method, sizes)
    for k in range(len(sizes)):
        client = toys.client(spec, k)
        state = {**method.client_init(client, client.init(0)), "model": client.init(1)}
        assert method.taught(client, state, first=True) == (state["model"], {})  # nothing to keep
        assert method.selected(client, state["model"], first=True)[0] is None
        rows, _ = method.selected(client, state["model"], first=False)
        predicted = client.logits(state["model"], client.data).argmax(1)
        assert set(client.data.y[rows].tolist()) <= set(predicted.tolist())


@pytest.mark.parametrize("sizes", [(9, 4), TEN])
def test_correct_agg_weighs_by_right_rows(sizes):
    method, alone = FedAKD(weigh_by="correct"), len(sizes) - 1
    updates: dict[int, Tree] = {k: {"correct": float(k), "n": float(n)} for k, n in enumerate(sizes)}
    weights = method.weights({"sizes": torch.tensor(sizes)}, updates)
    assert weights == [float(k) for k in range(len(sizes))]
    assert method.weights({"sizes": torch.tensor(sizes)}, {alone: updates[alone]}) == [float(alone)]


@pytest.mark.parametrize("sizes", [(9, 4), TEN])
def test_correct_agg_is_full_fedakd_when_right_rows_are_proportional_to_rows(sizes):
    client = toys.client(toys.spec(FedAKD()))
    state = {"model": client.init(0), "sizes": torch.tensor(sizes, dtype=torch.float64)}
    updates: dict[int, Tree] = {
        k: {"model": client.init(k + 1), "correct": float(2 * n)} for k, n in enumerate(sizes)
    }
    by_size, by_right = (FedAKD(weigh_by=w).server_update(None, state, updates) for w in ("size", "correct"))
    pairs = [(by_size["model"][name], part) for name, part in by_right["model"].items()]
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in pairs)


def test_correct_agg_keeps_the_model_when_nothing_is_right():
    state = {"model": {"w": torch.ones(2)}, "sizes": torch.tensor([1.0])}
    after = FedAKD(weigh_by="correct").server_update(
        None, state, {0: {"model": {"w": torch.zeros(2)}, "correct": 0.0}}
    )
    assert trees.equal(after, state)


@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_released_order_is_the_published_sequence(net, optimizer):
    """Written from the published loop: teach the global copy, aggregate, teach the local model, select."""
    method = FedAKD(order="released")
    spec = toys.spec(method, net=net, recipe=Recipe(batch_size=8, lr=0.05, optimizer=optimizer))
    moments: dict[int, Tree] = {k: {} for k in range(3)}
    played = toys.play(spec, rounds=3)
    w_g = toys.client(spec).init(spec.seed)
    local = {k: w_g for k in range(3)}
    chosen = {k: torch.arange(n) for k, n in enumerate(toys.SIZES)}
    for round in (1, 2, 3):
        clients = {k: toys.client(spec, k, round) for k in range(3)}
        sent = []
        for k, client in clients.items():
            z = client.logits(local[k], client.data)[chosen[k]]
            loss = distil(z, 1.0, 1.0, client.task.loss)
            sent.append(client.fit(w_g, client.data[chosen[k]], loss=loss))
        w_g = trees.mean(sent, toys.SIZES)
        assert trees.equal(played.states[round - 1]["model"], w_g)
        for k, client in clients.items():
            client.stream = (spec.seed, round + 1, k + 1)  # our step 1 belongs to the next round
            teacher = client.logits(w_g, client.data)
            loss = distil(teacher, 1.0, 1.0, client.task.loss)
            local[k], moments[k] = client.fit_from(local[k], moments[k], client.data, loss=loss)
            right = client.logits(local[k], client.data).argmax(1) == client.data.y
            chosen[k] = right.nonzero().squeeze(1)
