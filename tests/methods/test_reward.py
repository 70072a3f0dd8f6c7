"""What CFFL, CGSV and FedAVE have in common: who is owed what, and what travels (algorithms 1.5, 1.7, 5)."""

from __future__ import annotations

import pytest
import torch

import toys
from attendance import attend, evaluated
from fedakd import trees
from fedakd.methods.cffl import CFFL
from fedakd.methods.cgsv import CGSV
from fedakd.methods.fedave import FedAVE
from fedakd.methods.reward import relative, rescaled, settled
from fedakd.trees import Tree

REWARDING = [CFFL(expel=0.0, clip=1.0, aggregate="sum"), CFFL(expel=0.0, upload=0.5), CGSV()]
EVERY = [*REWARDING, FedAVE()]
SIZES = [(9, 4), toys.TEN]


def everybody(sizes):
    return range(len(sizes))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("method", REWARDING, ids=repr)
def test_who_misses_rounds_is_still_owed_the_last_reward_and_gets_it_once(method, sizes):
    spec = toys.spec(method, sizes)
    all_ = everybody(sizes)
    turns = attend(spec, [all_, all_, all_[1:], all_[1:], all_, all_])
    after = [method.send(turn.state, 0) for turn in turns]
    assert not trees.equal(after[0], after[1])
    assert trees.equal(after[1], after[2])
    assert trees.equal(after[1], after[3])
    assert trees.equal(after[1], turns[4].messages[0])
    assert not trees.equal(after[4], after[1])
    assert all(
        turn.state["owed"].keys() == (set() if n not in (2, 3) else {"0"}) for n, turn in enumerate(turns)
    )
    judged = [evaluated(spec, turn, 0) for turn in turns]
    assert trees.equal(judged[1], judged[2])
    assert trees.equal(judged[1], judged[3])


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("method", REWARDING, ids=repr)
def test_who_fails_alone_in_the_first_round_starts_from_the_beginning(method, sizes):
    spec = toys.spec(method, sizes)
    all_ = everybody(sizes)
    turns = attend(spec, [all_[1:], all_, all_])
    w = toys.client(spec).init(spec.seed)
    assert trees.equal(evaluated(spec, turns[0], 0), w)
    first = spec.method.client_init(toys.client(spec), w)
    alone, _ = method.client_update(toys.client(spec, 0, 2), first)
    assert trees.equal(turns[1].kept[0], alone)
    assert not trees.equal(evaluated(spec, turns[1], 0), evaluated(spec, turns[0], 0))


@pytest.mark.parametrize("method", EVERY, ids=repr)
def test_hooks_change_nothing_they_are_given(method):
    spec = toys.spec(method, net="cnn")
    server = toys.server(spec)
    state = method.server_init(server, server.init(0))
    kept = {k: method.client_init(toys.client(spec, k), server.init(0)) for k in range(3)}
    for _ in range(2):
        messages = {k: method.send(state, k) for k in range(3)}
        received = {str(k): method.receive(kept[k], messages[k]) for k in range(3)}
        given: Tree = {"state": state, "kept": dict(zip("abc", kept.values(), strict=True)), **received}
        before = trees.transform(given, torch.clone)
        done = {k: method.client_update(toys.client(spec, k), received[str(k)]) for k in range(3)}
        updates = {k: update for k, (_, update) in done.items()}
        sent = trees.transform({str(k): update for k, update in updates.items()}, torch.clone)
        after = method.server_update(server, state, updates)
        assert trees.equal(given, before)
        assert trees.equal({str(k): update for k, update in updates.items()}, sent)
        kept, state = {k: own for k, (own, _) in done.items()}, after


@pytest.mark.parametrize("method", EVERY, ids=repr)
def test_nobody_there_changes_nothing(method):
    spec = toys.spec(method)
    state = attend(spec, [range(3)])[0].state
    assert trees.equal(method.server_update(toys.server(spec), state, {}), state)


@pytest.mark.parametrize("method", EVERY, ids=repr)
def test_the_state_does_not_grow(method):
    turns = attend(toys.spec(method), [range(3), [0], [1], [2], [0, 1], [1], range(3)])
    assert {name for name in turns[0].state} == {name for name in turns[-1].state}
    assert trees.nbytes(turns[-1].state) <= trees.nbytes(turns[0].state)
    dense = trees.nbytes(turns[0].state["models" if isinstance(method, FedAVE) else "gradient"])
    assert trees.nbytes(turns[5].state) <= trees.nbytes(turns[0].state) + 3 * dense


def vectors(tree: Tree) -> int:
    """How many numbers a message holds, running statistics and sizes apart."""
    parts = {k: v for k, v in tree.items() if k in ("reward", "update", "uploaded")}
    return sum(leaf.numel() for name, leaf in trees.leaves(parts) if not name.endswith("where"))


@pytest.mark.parametrize("method", REWARDING, ids=repr)
def test_vectors_hold_parameters_and_no_running_statistics(method):
    spec = toys.spec(method, net="cnn")
    client = toys.client(spec)
    count = sum(p.numel() for p in client.module.parameters())
    turns = attend(spec, [range(3)] * 3)
    for tree in (t for turn in turns for t in (*turn.messages.values(), *turn.updates.values())):
        assert vectors(tree) <= count
        where = [leaf for name, leaf in trees.leaves(tree) if name.endswith("where")]
        assert all(len(rows) == 0 or int(rows.max()) < count for rows in where)
    sent = turns[-1].updates[0]
    assert "buffers" not in sent
    assert set(turns[-1].state["gradient"]) == set(client.trainable)
    assert all(set(kept["model"]) == set(client.trainable) for kept in turns[-1].kept.values())


@pytest.mark.parametrize("method", EVERY, ids=repr)
@pytest.mark.parametrize("sizes", SIZES)
def test_every_judged_model_has_learned_its_running_statistics(method, sizes):
    spec = toys.spec(method, sizes, net="cnn")
    for turn in attend(spec, [everybody(sizes)] * 2):
        for k in everybody(sizes):
            for name in ("body.0.norm.running_var", "body.1.norm.running_var"):
                assert not (evaluated(spec, turn, k)[name] == 1).all()
    own = [evaluated(spec, turn, k)["body.0.norm.running_var"] for k in (0, 1)]
    assert not torch.equal(*own)  # each client has its own


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_sparse_messages_are_smaller_than_dense_ones(net):
    for method in (CFFL(), CFFL(upload=0.3), CGSV(beta=0.5)):
        turns = attend(toys.spec(method, toys.TEN, net=net), [range(10)] * 2)
        dense = trees.nbytes(turns[0].state["gradient"])
        assert all(0 < trees.nbytes(m["reward"]) <= dense for m in turns[1].messages.values() if m)
        sizes = [trees.nbytes(m["reward"]) for m in turns[1].messages.values() if m]
        assert min(sizes) < dense
        if isinstance(method, CFFL):
            count = dense // 4
            uploads = [trees.nbytes(u["uploaded"]) for u in turns[1].updates.values()]
            assert max(uploads) <= 8 * int(method.upload * count + 1e-9)


@pytest.mark.parametrize("method", EVERY, ids=repr)
def test_runs_repeat_themselves_and_follow_the_seed(method):
    runs = [toys.play(toys.spec(method, net="cnn", seed=seed), rounds=2) for seed in (0, 0, 1)]
    assert trees.equal(runs[0].states[-1], runs[1].states[-1])
    assert runs[0].result.rounds[-1].scores == runs[1].result.rounds[-1].scores
    assert not trees.equal(runs[0].states[-1], runs[2].states[-1])
    shares = runs[0].result.rounds[-1].contributions
    assert shares == runs[0].states[-1]["reputation"].tolist()


@pytest.mark.parametrize("method", EVERY, ids=repr)
def test_partial_participation_runs(method):
    played = toys.play(toys.spec(method, toys.TEN), rounds=4, participation=0.4)
    assert sum(played.result.rounds[-1].contributions) == pytest.approx(1)
    assert all(
        torch.isfinite(leaf).all() for _, leaf in trees.leaves(played.states[-1]) if torch.is_tensor(leaf)
    )


def test_rescaling_gives_the_length_and_leaves_nothing_alone():
    delta = {"a": torch.tensor([3.0, 0.0]), "b": torch.tensor([[4.0]])}
    assert trees.norm(rescaled(delta, 0.5)) == pytest.approx(0.5)
    assert rescaled(delta, 0.5)["a"].tolist() == pytest.approx([0.3, 0.0])
    assert trees.equal(rescaled(trees.zeros(delta), 0.5), trees.zeros(delta))


def test_reputations_settle_above_the_floor_and_sum_to_one():
    r = settled(torch.tensor([0.5, -0.2, 0.0], dtype=torch.float64))
    assert r.tolist() == pytest.approx([0.5 / 0.502, 0.001 / 0.502, 0.001 / 0.502])


def test_quotas_are_relative_to_the_highest():
    r = torch.tensor([0.1, 0.6, 0.3], dtype=torch.float64)
    expected = [torch.tanh(2 * x).item() / torch.tanh(2 * r[1]).item() for x in r]
    assert relative(r, 2.0).tolist() == pytest.approx(expected)
    assert relative(torch.zeros(2), 2.0).tolist() == [0, 0]
