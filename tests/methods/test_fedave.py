"""FedAVE's laws (algorithms 2.7): each with sizes that differ between clients.

Profiles are of batches of 4 rows here, so that few rows are enough for several.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

import toys
from attendance import attend, evaluated
from fedakd import trees
from fedakd.errors import PlanError
from fedakd.examples import Examples
from fedakd.method import Server
from fedakd.methods import profiles
from fedakd.methods.cgsv import CGSV
from fedakd.methods.fedave import FedAVE
from fedakd.methods.profiles import Heard
from fedakd.trees import Tree

SIZES = [(25, 18), (33, 9, 14)]


def fedave(**fields) -> FedAVE:
    return FedAVE(**{"batch": 4, **fields})


METHODS = [fedave(), fedave(alpha=0.5, beta=5.0, power=1.0), fedave(**FedAVE.presets["paper"])]


def state_of(sizes, **known) -> Tree:
    n = torch.tensor(sizes, dtype=torch.float64)
    state = {"models": {}, "batch": 4.0, "sizes": n, "reputation": 0 * n, "quota": 0 * n, "round": 0.0}
    return state | {k: torch.tensor(v, dtype=torch.float64) if k != "round" else v for k, v in known.items()}


def heard(accuracies, kappas) -> dict[int, Heard]:
    return {k: Heard(a, d, {}) for k, (a, d) in enumerate(zip(accuracies, kappas, strict=True))}


def by_hand(method: FedAVE, server: Server, spec, before: Tree, updates: dict[int, Tree]):
    """u, r and q of a round in which everybody is there, written from the formulas on plain rows."""
    w = [trees.vector(server.parameters(before["models"][str(k)])) for k in updates]
    theta = [trees.vector(server.parameters(update["model"])) for update in updates.values()]
    delta = [b - a for a, b in zip(w, theta, strict=True)]
    n = before["sizes"] / before["sizes"].sum()
    unit = [method.gamma * d / (d.norm() + 1e-7) if method.normalise else d for d in delta]
    u = sum(p * d for p, d in zip(n, unit, strict=True))
    d = torch.ones(len(w), dtype=torch.float64)
    if method.profile:
        kappas = [spread(server, before, k, updates[k]["losses"]) for k in updates]
        known = sorted(one for one in kappas if not math.isnan(one))
        middle = known[(len(known) - 1) // 2]  # what a client of whom nothing is known gets
        d = torch.tensor([known[0] / (middle if math.isnan(one) else one) for one in kappas]).double()
    a = torch.tensor([server.accuracy(one["model"], server.validation) for one in updates.values()]).double()
    rho = a * d**method.power
    r = rho if before["round"] == 0 else method.alpha * before["reputation"] + (1 - method.alpha) * rho
    r = r.clamp(min=1e-3) / r.clamp(min=1e-3).sum()
    strength = torch.tanh(method.beta * r)
    q = strength / strength.max() * d if method.quota == "relative" else 0.3 + 0.7 * strength
    return u, r, q


def spread(server: Server, before: Tree, k: int, losses) -> float:
    """KL between the client's losses and those on validation rows in the server's order of the round."""
    order = torch.randperm(len(server.validation), generator=server.generator("profile"))
    shuffled = server.validation[order]
    batches = zip(
        server.logits(before["models"][str(k)], shuffled).split(4), shuffled.y.split(4), strict=True
    )
    theirs = [F.cross_entropy(z, y).item() for z, y in batches]
    pairs = list(zip(losses.tolist(), theirs, strict=False))
    if len(pairs) == 1:  # says nothing
        return math.nan
    p, q = ([pair[i] / sum(one[i] for one in pairs) for pair in pairs] for i in (0, 1))
    return max(sum(x * math.log(x / y) for x, y in zip(p, q, strict=True)), 1e-8)


@pytest.mark.parametrize("sizes", [*SIZES, toys.TEN])
@pytest.mark.parametrize("method", [*METHODS, fedave(**FedAVE.presets["released"])], ids=repr)
def test_the_server_follows_the_formulas_round_by_round(sizes, method):
    spec = toys.spec(method, sizes, net="mlp64")
    server = toys.server(spec)
    before = method.server_init(server, server.init(spec.seed))
    for number, turn in enumerate(attend(spec, [range(len(sizes))] * 3, server), 1):
        server.stream = (spec.seed, number, 0)
        u, r, q = by_hand(method, server, spec, before, turn.updates)
        assert torch.allclose(turn.state["reputation"], r, rtol=1e-6)
        assert torch.allclose(turn.state["quota"], q, rtol=1e-6)
        for k in range(len(sizes)):
            w, moved = before["models"][str(k)], turn.state["models"][str(k)]
            reward = trees.top_each(trees.unvector(u, w), float(q[k])) if number > 1 else trees.zeros(w)
            assert all(torch.allclose(moved[n], w[n] + reward[n], atol=1e-12) for n in w)
        before = turn.state


@pytest.mark.parametrize("sizes", [*SIZES, toys.TEN])
@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_the_first_round_leaves_every_parameter_and_renews_every_statistic(sizes, net):
    spec = toys.spec(fedave(), sizes, net)
    client = toys.client(spec)
    w = client.init(spec.seed)
    first, second = attend(spec, [range(len(sizes))] * 2)
    for k in range(len(sizes)):
        model = evaluated(spec, first, k)
        assert trees.equal(client.parameters(model), client.parameters(w))
        assert trees.equal(client.buffers(model), client.buffers(first.updates[k]["model"]))
        later = evaluated(spec, second, k)
        assert trees.equal(client.buffers(later), client.buffers(second.updates[k]["model"]))
        assert not trees.equal(client.parameters(later), client.parameters(w))
        assert trees.equal(second.messages[k]["model"], model)


@pytest.mark.parametrize("sizes", [(25, 18), toys.TEN])
def test_statistics_are_no_part_of_the_common_update(sizes):
    spec = toys.spec(fedave(profile=False), sizes, net="cnn")
    server = toys.server(spec)
    turns = attend(spec, [range(len(sizes))] * 2, server)
    spoilt = {
        k: {**one, "model": {n: p if n in server.trainable else p + 100.0 for n, p in one["model"].items()}}
        for k, one in turns[1].updates.items()
    }
    found: dict[int, Heard] = {}
    clean = list(spec.method.directions(server, turns[0].state, turns[1].updates, {}))
    same = list(spec.method.directions(server, turns[0].state, spoilt, found))
    assert all(trees.equal(a, b) for a, b in zip(clean, same, strict=True))
    assert set(clean[0]) == set(server.trainable)
    assert set(found[0].buffers) == set(server.buffers(server.init(0)))


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("sizes", [*SIZES, toys.TEN])
def test_reputations_sum_to_one_and_quotas_are_shares(method, sizes):
    for turn in attend(toys.spec(method, sizes), [range(len(sizes))] * 3):
        assert turn.state["reputation"].sum().item() == pytest.approx(1)
        assert (turn.state["reputation"] > 0).all()
        assert ((turn.state["quota"] > 0) & (turn.state["quota"] <= 1)).all()


@pytest.mark.parametrize("sizes", [(9, 4), toys.TEN])
def test_nobody_is_sure_of_everything(sizes):
    rest = len(sizes) - 2
    both = fedave().judged(state_of(sizes), heard([0.5] * len(sizes), [0.1, 0.2] + [0.3] * rest))[1]
    assert both[0] == 1
    apart = heard([0.2, 0.8] + [0.5] * rest, [0.1, 0.2] + [0.4] * rest)  # the best is not the likest
    assert (fedave(power=0.0).judged(state_of(sizes), apart)[1] < 1).all()


@pytest.mark.parametrize("sizes", [(9, 14), tuple(range(5, 25, 2))])
def test_with_full_memory_reputations_stay_those_of_the_first_round(sizes):
    turns = attend(toys.spec(fedave(alpha=1.0), sizes), [range(len(sizes))] * 3)
    assert torch.allclose(turns[0].state["reputation"], turns[2].state["reputation"])
    assert turns[0].state["reputation"].std() > 0


@pytest.mark.parametrize("clients", [2, 10])
@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_equal_clients_with_equal_streams_earn_the_same(clients, net):
    method = fedave()
    spec = toys.spec(method, (14,) * clients, net)
    spec = replace(spec, clients=tuple(replace(c, train=spec.clients[0].train) for c in spec.clients))
    server = toys.server(spec)
    state = method.server_init(server, server.init(0))
    for number in (1, 2):
        server.stream = (0, number, 0)
        one = method.client_update(toys.client(spec, 0, number), method.send(state, 0))[1]
        state = method.server_update(server, state, {k: one for k in range(clients)})
        assert state["reputation"].tolist() == pytest.approx([1 / clients] * clients)
        assert state["quota"].tolist() == pytest.approx([1] * clients)


@pytest.mark.parametrize("sizes", [(9, 4), toys.TEN])
@pytest.mark.parametrize("beta", [1.0, 5.0])
def test_without_profiles_the_allocation_is_that_of_cgsv(beta, sizes):
    scores = [0.2 + 0.05 * k for k in range(len(sizes))]
    r, q = fedave(beta=beta, profile=False).judged(state_of(sizes), heard(scores, [1.0] * len(sizes)))
    nothing = {k: {"update": {"w": torch.zeros(2)}} for k in range(len(sizes))}
    start = {"reputation": r, "sizes": torch.tensor(sizes), "owed": {}, "gradient": {}, "quota": r}
    assert torch.allclose(q, CGSV(beta=beta).server_update(None, start, nothing)["quota"])
    assert q.max() == 1
    assert q.min() < 1


# what clients send


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_profiles_are_of_the_model_before_training_in_evaluation_mode(net):
    spec = toys.spec(fedave(), net=net)
    turns = attend(spec, [range(3)] * 2)
    for k, n in enumerate(toys.SIZES):
        client = toys.client(spec, k, 2)
        rows = client.data[torch.randperm(n, generator=client.generator("profile"))]
        losses = turns[1].updates[k]["losses"]
        assert len(losses) == math.ceil(n / 4)
        z = client.logits(turns[1].messages[k]["model"], rows)
        assert losses[0].item() == pytest.approx(F.cross_entropy(z[:4], rows.y[:4]).item(), rel=1e-5)
        assert losses[-1].item() == pytest.approx(
            F.cross_entropy(z[4 * (len(losses) - 1) :], rows.y[4 * (len(losses) - 1) :]).item(), rel=1e-5
        )
        trained = client.fit(turns[1].messages[k]["model"], client.data)
        assert trees.equal(turns[1].updates[k]["model"], trained)
        assert turns[1].updates[k]["n"] == n


def test_without_profiles_none_are_made_or_sent():
    spec = toys.spec(fedave(profile=False))
    assert all(set(one) == {"model", "n"} for one in attend(spec, [range(3)])[0].updates.values())


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_part_of_an_update_is_its_largest_entries_on_top_of_the_model_received(net):
    spec = toys.spec(fedave(upload=0.3, profile=False), net=net)
    turn = attend(spec, [range(3)])[0]
    client = toys.client(spec)
    w, sent = client.init(spec.seed), turn.updates[0]["model"]
    trained = client.fit(w, client.data)
    whole = trees.vector(trees.sub(client.parameters(trained), w))
    part = trees.vector(trees.sub(client.parameters(sent), w))
    assert part.count_nonzero() == math.floor(0.3 * len(whole))
    assert torch.allclose(part[part != 0], whole[part != 0], atol=1e-6)
    assert whole[part != 0].abs().min() >= whole[part == 0].abs().max()
    assert trees.equal(client.buffers(sent), client.buffers(trained))


# profiles


def test_a_client_of_one_batch_takes_nothing_from_the_others():
    heard = {
        0: Heard(0.5, 0.1, {}),
        1: Heard(0.5, math.nan, {}),
        2: Heard(0.5, 0.3, {}),
        3: Heard(0.5, 0.2, {}),
    }
    server = toys.server(toys.spec(fedave(), (9, 4, 5, 7)))
    state = fedave().server_init(server, server.init(0))
    r, q = fedave().judged(state, heard)
    assert r[1] == r[3]  # it is held to be as like as the middle one
    assert q[0] == 1.0
    assert (q > 0.05).all()
    alone, _ = fedave().judged(state, {k: Heard(0.5, math.nan, {}) for k in range(4)})
    assert alone.tolist() == pytest.approx([0.25] * 4)


def test_closeness_is_relative_to_the_closest_and_counts_by_its_power():
    r, _ = fedave().judged(state_of((5, 5)), heard([0.8, 0.8], [0.1, 0.2]))
    assert r.tolist() == pytest.approx([0.8, 0.2])
    r, _ = fedave(power=1.0).judged(state_of((5, 5)), heard([0.8, 0.8], [0.1, 0.2]))
    assert r.tolist() == pytest.approx([2 / 3, 1 / 3])


# absent clients and the rest


@pytest.mark.parametrize("first", [True, False])
def test_the_absent_keep_their_model_and_but_for_normalisation_their_reputation(first):
    method = fedave(alpha=0.5)
    spec = toys.spec(method, (25, 18, 9), net="cnn")
    there = [range(3), range(3), [0, 2]] if not first else [[0, 2]]
    turns = attend(spec, there)
    if first:
        server = toys.server(spec)
        before = method.server_init(server, server.init(spec.seed))
    else:
        before = turns[-2].state
    last = turns[-1].state
    assert trees.equal(method.send(last, 1), method.send(before, 1))
    assert last["quota"][1] == before["quota"][1]
    assert last["reputation"].sum().item() == pytest.approx(1)
    found = heard([0.5, 0.9], [1.0, 1.0])
    known = state_of((5, 5, 5), reputation=[0.5, 0.3, 0.2], round=3.0)
    r, _ = method.judged(known, {0: found[0], 2: found[1]})
    assert r.tolist() == pytest.approx([x / 1.35 for x in (0.5, 0.3, 0.55)])


def test_a_client_that_comes_late_starts_from_the_common_model():
    spec = toys.spec(fedave(), SIZES[0])
    turns = attend(spec, [[0], [0], [0, 1]])
    assert trees.equal(turns[2].messages[1]["model"], toys.client(spec).init(spec.seed))
    assert not trees.equal(evaluated(spec, turns[2], 1), turns[2].messages[1]["model"])


def test_one_class_clients_work():
    data = toys.rows(18, 7)
    single = Examples(data.x, torch.zeros_like(data.y))
    turn = attend(toys.spec(fedave(), SIZES[0], net="cnn", data={1: single}), [range(2)] * 3)[-1]
    assert all(torch.isfinite(p).all() for p in turn.state["models"]["1"].values())


def test_presets_are_settings_and_nonsense_is_refused():
    assert all(FedAVE(**fields) != FedAVE() for fields in FedAVE.presets.values())
    assert profiles.Profiling.__dataclass_fields__.keys() < FedAVE.__dataclass_fields__.keys()
    wrong = {"alpha": -0.1, "beta": 0.0, "gamma": 0.0, "power": -1.0, "upload": 0.0, "base": 1.5}
    wrong["batch"] = 0
    for name, value in wrong.items():
        with pytest.raises(PlanError, match=f"fedave: {name} must be"):
            fedave(**{name: value})
