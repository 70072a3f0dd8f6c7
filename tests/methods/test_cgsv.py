"""CGSV's laws (algorithms 2.6): each with sizes that differ between clients."""

from __future__ import annotations

import math

import pytest
import torch

import toys
from attendance import attend, evaluated
from fedakd import trees
from fedakd.errors import PlanError
from fedakd.methods.cgsv import CGSV
from fedakd.trees import Params, Tree

SIZES = [(9, 4), toys.TEN]
LIKE: Params = {"a": torch.zeros(3, 2, dtype=torch.float64), "b": torch.zeros(4, dtype=torch.float64)}


def uploads(clients: int, seed: int = 0) -> dict[int, Tree]:
    """Updates of a shape of their own, each with some of a common direction and some of its own."""
    rng = torch.Generator().manual_seed(seed)
    common, *own = torch.randn(clients + 1, 10, generator=rng, dtype=torch.float64)
    return {k: {"update": trees.unvector(common + (1 + k) * part / 2, LIKE)} for k, part in enumerate(own)}


def start(sizes, r=None) -> Tree:
    """A server's state that knows nothing but sizes, and reputations if given."""
    n = torch.tensor(sizes, dtype=torch.float64)
    r = torch.zeros_like(n) if r is None else torch.tensor(r, dtype=torch.float64)
    return {
        "gradient": trees.zeros(LIKE),
        "quota": torch.zeros_like(n),
        "owed": {},
        "sizes": n,
        "reputation": r,
    }


def by_hand(
    method: CGSV, state: Tree, sent: dict[int, Tree]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """u, r and q of a round in which everybody is there, written from the formulas on plain rows."""
    u_k = torch.stack([trees.vector(update["update"]) for update in sent.values()])
    r = state["reputation"]
    weights = state["sizes"] if (r == 0).all() else r
    u = (weights / weights.sum()) @ u_k
    phi = (u_k @ u) / (u_k.norm(dim=1) * u.norm())
    r = torch.clamp(method.alpha * r + (1 - method.alpha) * phi, min=1e-3)
    r = r / r.sum()
    return u, r, torch.tanh(method.beta * r) / torch.tanh(method.beta * r).max()


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("method", [CGSV(), CGSV(alpha=0.5, beta=3.0)], ids=repr)
def test_the_server_follows_the_formulas_round_by_round(sizes, method):
    state = start(sizes)
    for number in range(3):
        sent = uploads(len(sizes), number)
        u, r, q = by_hand(method, state, sent)
        state = method.server_update(None, state, sent)
        assert torch.allclose(trees.vector(state["gradient"]), u, rtol=1e-12)
        assert torch.allclose(state["reputation"], r, rtol=1e-12)
        assert torch.allclose(state["quota"], q, rtol=1e-12)
        assert r.std() > 0


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("net", ["mlp", "cnn"])
@pytest.mark.parametrize("gamma", [0.5, 0.15])
def test_updates_have_the_length_gamma_and_the_direction_of_training(sizes, net, gamma):
    spec = toys.spec(CGSV(gamma=gamma), sizes, net)
    first = attend(spec, [range(len(sizes))])[0]
    for k, update in first.updates.items():
        assert trees.norm(update["update"]) == pytest.approx(gamma, rel=1e-5)
        client = toys.client(spec, k)
        w = client.init(spec.seed)
        change = trees.sub(client.parameters(client.fit(w, client.data)), w)
        assert trees.cosine(change, update["update"]) == pytest.approx(1)


def test_raw_updates_are_what_training_changes():
    spec = toys.spec(CGSV(normalise=False), net="cnn")
    update = attend(spec, [range(3)])[0].updates[0]["update"]
    client = toys.client(spec)
    w = client.init(spec.seed)
    assert trees.equal(update, trees.sub(client.parameters(client.fit(w, client.data)), w))


def test_a_client_keeps_the_parameters_it_received_and_the_statistics_it_learned():
    spec = toys.spec(CGSV(), net="cnn")
    turns = attend(spec, [range(3)] * 2)
    for k in range(3):
        received = spec.method.receive(turns[0].kept[k], turns[1].messages[k])
        assert trees.equal(turns[1].kept[k]["model"], received["model"])
        client = toys.client(spec, k, 2)
        learned = client.buffers(client.fit({**received["model"], **received["buffers"]}, client.data))
        assert trees.equal(turns[1].kept[k]["buffers"], learned)
        assert not trees.equal(learned, received["buffers"])


@pytest.mark.parametrize("sizes", SIZES)
def test_reputations_are_positive_and_sum_to_one(sizes):
    for turn in attend(toys.spec(CGSV(), sizes), [range(len(sizes))] * 3):
        r = turn.state["reputation"]
        assert r.sum().item() == pytest.approx(1)
        assert (r > 0).all()


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("method", [CGSV(), CGSV(layers="all")], ids=repr)
def test_the_client_of_highest_reputation_receives_the_complete_update(sizes, method):
    spec = toys.spec(method, sizes, net="mlp64")
    for turn in attend(spec, [range(len(sizes))] * 3):
        best = int(turn.state["reputation"].argmax())
        assert turn.state["quota"][best] == 1
        before = turn.kept[best]["model"]
        after = toys.client(spec).parameters(evaluated(spec, turn, best))
        assert trees.equal(after, trees.add(before, turn.state["gradient"]))
        worst = int(turn.state["reputation"].argmin())
        received = trees.unpack(method.send(turn.state, worst)["reward"], before)
        assert trees.vector(received).count_nonzero() < trees.vector(turn.state["gradient"]).count_nonzero()


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("layers", ["each", "all"])
def test_infinite_altruism_keeps_all_clients_at_the_servers_model(sizes, layers):
    spec = toys.spec(CGSV(beta=1e7, layers=layers), sizes)
    client = toys.client(spec)
    w_g = client.parameters(client.init(spec.seed))
    for turn in attend(spec, [range(len(sizes))] * 3):
        w_g = trees.add(w_g, turn.state["gradient"])
        assert all(trees.equal(evaluated(spec, turn, k), w_g) for k in range(len(sizes)))


@pytest.mark.parametrize("sizes", SIZES)
def test_equal_uploads_earn_equal_reputations_and_everything(sizes):
    one = uploads(1)[0]
    state = CGSV().server_update(None, start(sizes), {k: one for k in range(len(sizes))})
    assert state["reputation"].tolist() == pytest.approx([1 / len(sizes)] * len(sizes))
    assert state["quota"].tolist() == pytest.approx([1] * len(sizes))
    assert trees.vector(state["gradient"]).tolist() == pytest.approx(trees.vector(one["update"]).tolist())


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("layers", ["each", "all"])
def test_rewards_are_the_largest_entries_counted_exactly_and_nested(sizes, layers):
    method = CGSV(layers=layers, alpha=0.99)
    reputations = [k + 1.0 for k in range(len(sizes))]
    state = method.server_update(None, start(sizes, reputations), uploads(len(sizes)))
    order = state["reputation"].argsort().tolist()
    smaller = torch.zeros(10, dtype=torch.bool)
    for k in order:
        reward = trees.unpack(method.send(state, k)["reward"], LIKE)
        q = state["quota"][k].item()
        pairs = [(reward, state["gradient"])] if layers == "all" else []
        pairs += [({n: reward[n]}, {n: state["gradient"][n]}) for n in LIKE if layers == "each"]
        for got, whole in pairs:
            v, u = trees.vector(got), trees.vector(whole)
            count = math.floor(q * len(u) + 1e-9) if layers == "all" else math.ceil(q * len(u) - 1e-9)
            assert v.count_nonzero() == count
            assert torch.equal(v[v != 0], u[v != 0])
            assert count in (0, len(u)) or u[v != 0].abs().min() >= u[v == 0].abs().max()
        chosen = trees.vector(reward) != 0
        assert (chosen | ~smaller).all()
        assert chosen.sum() < 10 or k != order[0]
        smaller = chosen
    assert smaller.all()


@pytest.mark.parametrize("sizes", SIZES)
def test_permuting_clients_permutes_reputations_and_rewards_and_nothing_else(sizes):
    order = torch.randperm(len(sizes), generator=torch.Generator().manual_seed(1)).tolist()
    straight, permuted = start(sizes), start([sizes[k] for k in order])
    for number in range(2):
        sent = uploads(len(sizes), number)
        straight = CGSV().server_update(None, straight, sent)
        permuted = CGSV().server_update(None, permuted, {i: sent[k] for i, k in enumerate(order)})
    assert torch.allclose(permuted["reputation"], straight["reputation"][order])
    assert torch.allclose(trees.vector(permuted["gradient"]), trees.vector(straight["gradient"]))
    for i, k in enumerate(order):
        mine, theirs = (
            trees.vector(trees.unpack(CGSV().send(s, c)["reward"], LIKE))
            for s, c in ((permuted, i), (straight, k))
        )
        assert torch.allclose(mine, theirs)


def opposite() -> dict[int, Tree]:
    """Two clients of whom the second points against the mean."""
    return {
        k: {"update": trees.scale(trees.add(LIKE, {n: p + 1 for n, p in LIKE.items()}), by)}
        for k, by in enumerate((3.0, -1.0))
    }


def test_negative_cosines_enter_the_average_unless_clamped_before():
    r = {
        c: CGSV(alpha=0.5, clamp=c).server_update(None, start((1, 1), (0.5, 0.5)), opposite())["reputation"]
        for c in ("after", "before")
    }
    assert r["after"].tolist() == pytest.approx(
        [0.75 / 0.751, 0.001 / 0.751]
    )  # 0.25 - 0.5 is below the floor
    assert r["before"].tolist() == pytest.approx([0.75, 0.25])


def test_uniform_weights_ignore_sizes_and_reputations():
    state = CGSV(weigh_by="uniform").server_update(None, start((9, 1), (0.9, 0.1)), opposite())
    assert trees.vector(state["gradient"]).tolist() == pytest.approx([1.0] * 10)


@pytest.mark.parametrize("r", [None, (0.7, 0.3)])
def test_an_update_that_points_nowhere_says_nothing(r):
    nothing = {k: {"update": trees.zeros(LIKE)} for k in range(2)}
    before = start((9, 4), r)
    after = CGSV().server_update(None, before, nothing)
    assert torch.equal(after["reputation"], before["reputation"])
    assert not trees.vector(trees.unpack(CGSV().send(after, 0)["reward"], LIKE)).any()


def test_a_client_that_learned_nothing_agrees_with_nobody():
    sent = uploads(2) | {1: {"update": trees.zeros(LIKE)}}
    after = CGSV(alpha=0.5).server_update(None, start((9, 4), (0.4, 0.6)), sent)
    assert after["reputation"].tolist() == pytest.approx([0.7, 0.3])  # 0.2 + 0.5 and 0.3 + 0


def test_the_absent_neither_weigh_nor_change_but_for_floor_and_normalisation():
    method, sent = CGSV(alpha=0.5), uploads(3)
    before = start((9, 4, 2), (0.5, 0.2, 0.3))
    after = method.server_update(None, before, {k: sent[k] for k in (0, 2)})
    u = (0.5 * trees.vector(sent[0]["update"]) + 0.3 * trees.vector(sent[2]["update"])) / 0.8
    assert torch.allclose(trees.vector(after["gradient"]), u)
    phi = {k: torch.cosine_similarity(trees.vector(sent[k]["update"]), u, dim=0).item() for k in (0, 2)}
    r = torch.tensor([0.25 + 0.5 * phi[0], 0.2, 0.15 + 0.5 * phi[2]], dtype=torch.float64)
    assert torch.allclose(after["reputation"], r / r.sum())
    first = method.server_update(None, start((9, 4, 2)), {k: sent[k] for k in (0, 2)})
    u = (9 * trees.vector(sent[0]["update"]) + 2 * trees.vector(sent[2]["update"])) / 11
    assert torch.allclose(trees.vector(first["gradient"]), u)
    assert first["reputation"][1] > 0


def test_presets_are_settings_and_nonsense_is_refused():
    assert all(CGSV(**fields) != CGSV() for fields in CGSV.presets.values())
    assert CGSV(**CGSV.presets["released"]) == CGSV(0.9, 1.0, 0.5, "all", "before", "uniform", False)
    for wrong in ({"alpha": 1.5}, {"beta": 0.0}, {"gamma": -1.0}, {"alpha": float("nan")}):
        with pytest.raises(PlanError, match="cgsv: "):
            CGSV(**wrong)
