"""Whom CFFL expels, and what becomes of those who miss a round (algorithms 2.5)."""

from __future__ import annotations

import math

import pytest
import torch

import toys
from attendance import attend
from fedakd import trees
from fedakd.methods.cffl import CFFL
from scored import LIKE, PAPER, Scoring, after, start, uploads


@pytest.mark.parametrize(
    ("method", "scores", "expelled"),
    [
        (CFFL(), [0.9, 0.8, 0.2], [2]),  # x = 0.105: below a third of a third
        (CFFL(expel=0.2), [0.9, 0.8, 0.2], []),
        (CFFL(expel=0.09, expel_by="constant"), [0.9, 0.8, 0.2], []),
        (CFFL(expel=0.11, expel_by="constant"), [0.9, 0.8, 0.2], [2]),
        (PAPER, [0.9] * 9 + [0.01], []),  # from 0.1 to 0.05 in the first round
    ],
)
def test_thresholds(method, scores, expelled):
    state = after(method, start(method, [5] * len(scores)), scores)
    assert [k for k, r in enumerate(state["reputable"].tolist()) if not r] == expelled


def test_the_threshold_follows_the_number_of_the_reputable():
    method = CFFL(memory=0.0, alpha=1e-3)  # reputations are shares of accuracy
    for fourth in (0.0, 1.0):  # a third of 1/3, or of 1/4
        before = start(method, [5] * 4, reputable=[1.0, 1.0, 1.0, fourth], reputation=[0.4, 0.4, 0.2, 0.0])
        state = after(method, before, [0.45, 0.45, 0.1, 0.0], present=[0, 1, 2])
        assert state["reputable"].tolist() == [1, 1, fourth, fourth]


@pytest.mark.parametrize("method", [CFFL(), PAPER], ids=["orig", "paper"])
def test_reputations_start_at_nothing_or_alike(method):
    server = toys.server(toys.spec(method))
    state = method.server_init(server, server.init(0))
    assert state["reputation"].tolist() == ([0, 0, 0] if method.sharpen == "after" else [1 / 3] * 3)
    assert state["reputable"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("method", [CFFL(), PAPER], ids=["orig", "paper"])
@pytest.mark.parametrize("sizes", [(9, 2), (9, 4, 2), toys.TEN])
def test_expulsion_is_for_good(method, sizes):
    state, good = start(method, sizes), len(sizes) - 1
    for _ in range(4):
        state = after(method, state, [0.8] * good + [0.0])
    assert state["reputable"].tolist() == [1] * good + [0]
    server = Scoring([0.5] * good + [1.0])
    state = method.server_update(server, {**state, "model": LIKE}, uploads(len(sizes)))
    assert len(server.seen) == good  # nobody looks at its upload any more
    assert state["reputation"][good] == state["reputable"][good] == 0
    assert method.send(state, good) == {}


@pytest.mark.parametrize("sizes", [(9, 4), toys.TEN])
def test_an_expelled_client_trains_on_alone(sizes):
    method, last = CFFL(clip=0.004, expel=0.0), len(sizes) - 1
    spec = toys.spec(method, sizes, net="cnn")
    server, everyone = toys.server(spec), range(len(sizes))
    turn = attend(spec, [everyone], server)[0]
    state, kept = {**turn.state, "reputable": torch.ones(len(sizes), dtype=torch.float64)}, turn.kept
    state["reputable"][last] = 0
    alone = kept[last]
    for number in (2, 3, 4):
        updates = {}
        for k in everyone:
            received = method.receive(kept[k], method.send(state, k))
            assert (received is kept[k]) == (k == last)
            own, updates[k] = method.client_update(toys.client(spec, k, number), received)
            kept = {**kept, k: own}
        state = method.server_update(server, state, updates)
        client = toys.client(spec, last, number)
        trained = client.fit({**alone["model"], **alone["buffers"]}, client.data)
        change = trees.sub(client.parameters(trained), alone["model"])
        clipped = {n: part.clamp(-0.004, 0.004) for n, part in change.items()}
        alone = {"model": trees.add(alone["model"], clipped), "buffers": client.buffers(trained)}
        assert trees.equal(kept[last]["model"], alone["model"])
        assert trees.equal(kept[last]["buffers"], alone["buffers"])
    assert state["reputable"][last] == 0


def test_nobody_reputable_means_no_aggregation_and_everybody_alone():
    method = CFFL(expel=0.9, expel_by="constant")
    state = after(method, start(method, (9, 4, 2)), [0.5, 0.5, 0.5])
    assert not state["reputable"].any()
    assert not state["reputation"].any()
    state = after(method, state, [0.5, 0.5, 0.5])
    assert not trees.vector(state["gradient"]).any()
    assert all(method.send(state, k) == {} for k in range(3))


def test_scores_of_nothing_leave_reputations_as_they_were():
    fresh = after(CFFL(), start(CFFL(), (9, 4)), [0.0, 0.0])
    assert fresh["reputable"].tolist() == [1, 1]
    assert fresh["quota"].tolist() == pytest.approx([1, 4 / 9])
    known = after(CFFL(), start(CFFL(), (9, 4), reputation=[0.6, 0.4]), [0.0, 0.0])
    assert known["reputation"].tolist() == [0.6, 0.4]
    assert trees.vector(known["gradient"]).any()


# absent clients


@pytest.mark.parametrize("sharpen", ["after", "before"])
def test_the_absent_keep_their_reputation_until_the_common_sharpening(sharpen):
    method = CFFL(sharpen=sharpen, growing=False, aggregate="sum")
    before = start(method, (9, 4, 2), reputation=[0.5, 0.3, 0.2])
    state = after(method, before, [0.6, 0.0, 0.4], present=[0, 2])
    c = [0.8 * 0.5 + 0.2 * 0.6, 0.3, 0.8 * 0.2 + 0.2 * 0.4]
    if sharpen == "before":
        y = [math.sinh(5 * 0.6), math.sinh(5 * 0.4)]
        c = [0.4 + 0.2 * y[0] / sum(y), 0.3, 0.16 + 0.2 * y[1] / sum(y)]
    else:
        c = [math.sinh(5 * share) for share in c]
    assert state["reputation"].tolist() == pytest.approx([share / sum(c) for share in c])
    rows = [trees.vector(trees.unpack(u["uploaded"], LIKE)) for u in uploads(3).values()]
    assert torch.allclose(trees.vector(state["gradient"]), rows[0] + rows[2])


def test_the_absent_are_not_expelled_and_missing_a_round_expels_nobody():
    low = start(CFFL(), (9, 4, 2), reputation=[0.55, 0.4, 0.05])
    assert after(CFFL(), low, [0.5, 0.5, 0.0], present=[0, 1])["reputable"].tolist() == [1, 1, 1]
    assert after(CFFL(), low, [0.5, 0.5, 0.1])["reputable"].tolist() == [1, 1, 0]
    for missed in range(3):  # equally good clients, of whom the last misses one round
        state = start(CFFL(), (5, 5, 5))
        for number in range(4):
            state = after(CFFL(), state, [0.5, 0.5, 0.5], present=[0, 1] if number == missed else [0, 1, 2])
        assert state["reputable"].tolist() == [1, 1, 1]
