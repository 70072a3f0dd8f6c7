"""The round loop: who takes part, when it ends, what it records."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest

import toys
from fedakd import trees
from fedakd.engine.serial import Serial
from fedakd.errors import FedakdError
from fedakd.method import Method
from fedakd.methods.fedakd import FedAKD
from fedakd.methods.fedavg import FedAvg
from fedakd.methods.standalone import Standalone
from fedakd.rounds import Budget, Messages, Start, begin, is_judged, participants, run


def test_participation_takes_a_fresh_choice_each_round():
    choices = [participants(10, 0.3, 0, number) for number in range(20)]
    assert all(len(chosen) == 3 and chosen == sorted(set(chosen)) for chosen in choices)
    assert len({tuple(chosen) for chosen in choices}) > 5
    assert set().union(*choices) == set(range(10))
    assert choices == [participants(10, 0.3, 0, number) for number in range(20)]
    assert participants(10, 0.001, 0, 1) != []


def test_clients_that_do_not_take_part_neither_train_nor_count():
    spec = toys.spec(FedAKD(), sizes=(5, 6, 7, 8))
    played = toys.play(spec, rounds=1, participation=0.5)
    chosen = participants(4, 0.5, 0, 1)
    assert [k for k in range(4) if played.kept[0][k]["rounds"] == 1] == chosen
    assert len(played.updates) == 2
    expected = trees.mean([u["model"] for u in played.updates], [u["n"] for u in played.updates])
    assert trees.equal(played.states[0]["model"], expected)
    assert set(played.result.rounds[0].scores["personal/accuracy"]) == {0, 1, 2, 3}


def test_a_budget_of_gradients_ends_the_run_with_the_round_that_uses_it_up():
    spec = toys.spec(FedAvg())
    budget = Budget(gradients=2 * sum(toys.SIZES))
    result = run(spec.method, Serial(spec), toys.server(spec), rounds=9, budget=budget)
    assert [record.gradients for record in result.rounds] == [sum(toys.SIZES)] * 2
    assert "78 sample-gradients" in result.stopped
    assert "round 2" in result.stopped


def test_a_budget_of_seconds_ends_the_run():
    spec = toys.spec(FedAvg())
    result = run(spec.method, Serial(spec), toys.server(spec), rounds=99, budget=Budget(seconds=1e-9))
    assert len(result.rounds) == 1
    assert "seconds" in result.stopped


def judged_in(rounds: int, judge_every: int, budget: Budget | None = None):
    spec = toys.spec(FedAvg())
    options = {"rounds": rounds, "judge_every": judge_every, "budget": budget}
    return run(spec.method, Serial(spec), toys.server(spec), **options).rounds


def test_models_are_judged_every_few_rounds_and_after_the_last():
    often, rarely = judged_in(9, 1), judged_in(9, 3)
    assert [record.number for record in rarely if record.scores] == [3, 6, 7, 8, 9]
    same = [replace(record, seconds=0, scores={}) for record in often]
    assert [replace(record, seconds=0, scores={}) for record in rarely] == same, "training does not see it"
    assert all(record.scores == often[record.number - 1].scores for record in rarely if record.scores)


@pytest.mark.parametrize("rounds", [1, 3, 4, 7, 10, 16, 20, 41])
@pytest.mark.parametrize("judge_every", [1, 2, 5, 100])
def test_the_last_quarter_of_the_rounds_is_judged_whole(rounds, judge_every):
    judged = {number for number in range(1, rounds + 1) if is_judged(number, rounds, judge_every)}
    assert {rounds} <= judged
    assert set(range(judge_every, rounds + 1, judge_every)) <= judged
    assert set(range(math.ceil(3 / 4 * rounds) + 1, rounds + 1)) <= judged
    assert len(judged) >= min(rounds, 4) or rounds < 4


def test_the_round_that_ends_a_run_early_is_judged():
    by_gradients = judged_in(99, 50, Budget(gradients=3 * sum(toys.SIZES)))
    assert [bool(record.scores) for record in by_gradients] == [False, False, True]
    by_seconds = judged_in(99, 50, Budget(seconds=1e-9))
    assert [bool(record.scores) for record in by_seconds] == [True]


def test_seconds_do_not_count_the_judging(monkeypatch):
    spec = toys.spec(FedAvg())
    engine = Serial(spec)
    judge = engine.evaluate
    monkeypatch.setattr(engine, "evaluate", lambda *given: (time.sleep(0.5), judge(*given))[1])
    began = time.perf_counter()
    result = run(spec.method, engine, toys.server(spec), rounds=2)
    assert time.perf_counter() - began - sum(record.seconds for record in result.rounds) >= 1.0


def test_fedakd_counts_up_to_two_passes_a_round():
    counts = [r.gradients for r in toys.play(toys.spec(FedAKD()), rounds=4).result.rounds]
    total = sum(toys.SIZES)
    assert all(total <= count <= 2 * total for count in counts)
    every = toys.play(toys.spec(FedAKD(select="all")), rounds=1).result.rounds[0]
    assert every.gradients == 2 * total


def test_both_views_of_fedakd_are_recorded_and_the_personal_one_is_first():
    scores = toys.play(toys.spec(FedAKD()), rounds=1).result.rounds[0].scores
    assert list(scores) == ["personal/accuracy", "personal/loss", "global/accuracy", "global/loss"]


def test_scores_are_those_of_the_models_on_the_test_rows():
    spec = toys.spec(FedAKD(), net="cnn")
    played = toys.play(spec, rounds=2)
    for k in range(3):
        client, test = toys.client(spec, k), spec.clients[k].test
        for view, params in (
            ("personal", played.kept[-1][k]["local"]),
            ("global", played.states[-1]["model"]),
        ):
            scores = played.result.rounds[-1].scores
            if view == "personal":  # with batch-norm statistics of its own training rows
                client.stream = (spec.seed, 2, k + 1)
                params = client.update_bn(params, client.data)
            assert scores[f"{view}/accuracy"][k] == client.accuracy(params, test)
            outcomes = played.result.rounds[-1].outcomes[view][k]
            assert (outcomes == (client.logits(params, test).argmax(1) == test.y).numpy()).all()
            assert scores[f"{view}/loss"][k] == pytest.approx(client.risk(params, test))


def test_bytes_are_counted_both_ways():
    spec = toys.spec(FedAvg())
    record = toys.play(spec, rounds=1).result.rounds[0]
    model = sum(part.nbytes for part in toys.client(spec).init(0).values())
    assert record.bytes_down == 3 * model
    assert record.bytes_up == 3 * (model + 8)


def test_a_run_continues_from_where_it_stands():
    spec = toys.spec(FedAKD())
    whole = run(spec.method, Serial(spec), toys.server(spec), rounds=4)
    engine = Serial(spec)
    half = run(spec.method, engine, toys.server(spec), rounds=2)
    rest = run(spec.method, engine, toys.server(spec), rounds=4, start=Start(half.state, half.rounds))
    assert trees.equal(whole.state, rest.state)
    assert [replace(r, seconds=0) for r in whole.rounds] == [replace(r, seconds=0) for r in rest.rounds]


def test_same_seed_same_scores_other_seed_other_scores():
    losses = [
        toys.play(toys.spec(FedAKD(), seed=seed), rounds=1).result.rounds[0].scores["global/loss"]
        for seed in (0, 0, 1)
    ]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_all_methods_start_from_the_same_parameters():
    states = []
    for method in (FedAvg(), FedAKD(), Standalone()):
        engine = Serial(toys.spec(method))
        start = begin(method, engine, toys.server(toys.spec(method)), seed=3)
        kept = engine.sites[0].kept
        states.append(start.state.get("model") or kept["model"])
    assert all(trees.equal(states[0], other) for other in states[1:])


def test_messages_are_made_when_they_are_asked_for():
    made: list[int] = []

    class Counting(FedAvg):
        def send(self, state, client):  # type: ignore[no-untyped-def]
            made.append(client)
            return super().send(state, client)

    messages = Messages(Counting(), {"model": {}}, [4, 7])
    assert list(messages) == [4, 7]
    assert not made
    assert messages[7] == {"model": {}}
    assert made == [7]


def test_a_method_that_needs_validation_rows_says_so():
    class Needy(FedAvg):
        needs_validation = True

    spec = toys.spec(Needy())
    server = replace(toys.server(spec), validation=None)
    with pytest.raises(FedakdError, match="Needy needs validation rows on the server"):
        run(spec.method, Serial(spec), server, rounds=1)


def test_the_hooks_of_a_method_are_eight():
    hooks = [name for name, value in vars(Method).items() if callable(value) and not name.startswith("_")]
    client_side = ["client_init", "receive", "client_update", "models"]
    server_side = ["server_init", "send", "server_update", "contributions"]
    saying = ["recipe", "remarks"]  # these say something, and do nothing
    assert sorted(hooks) == sorted([*server_side, *client_side, *saying])


def test_nothing_is_spent_before_the_first_round():
    assert Budget(seconds=math.inf).spent([]) is None
