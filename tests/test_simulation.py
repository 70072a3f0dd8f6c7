"""One call from a federation and a method to a result."""

from __future__ import annotations

from dataclasses import replace

import pytest

import fedakd
from fedakd import trees
from fedakd.data import load
from fedakd.federation import Federation, federate
from fedakd.method import Client
from fedakd.methods.fedakd import FedAKD
from fedakd.methods.fedavg import FedAvg
from fedakd.models import factory
from fedakd.rounds import Budget
from fedakd.simulation import cores, server_of, simulate, spec_of
from fedakd.training import Recipe, Task

RECIPE = Recipe(lr=0.01, optimizer="adam")


@pytest.fixture(scope="module")
def federation() -> Federation:
    return federate(load("digits"), "ics(2)", 4, fraction=0.3, seed=0)


def task() -> Task:
    return Task(factory("linear", (1, 8, 8), 10))


def test_simulate_gives_the_same_for_any_workers(federation):
    results = [
        fedakd.simulate(FedAKD(), federation, task(), RECIPE, rounds=2, seed=3, workers=workers)
        for workers in (0, 2)
    ]
    assert trees.equal(results[0].state, results[1].state)
    rounds = [[replace(record, seconds=0) for record in result.rounds] for result in results]
    assert rounds[0] == rounds[1]


def test_simulate_hands_on_its_options(federation):
    seen = []
    result = fedakd.simulate(
        FedAKD(),
        federation,
        task(),
        RECIPE,
        rounds=9,
        workers=0,
        participation=0.5,
        budget=Budget(gradients=1),
        on_round=lambda record, state: seen.append(record.number),
    )
    assert seen == [1]
    assert "sample-gradients" in result.stopped
    assert result.rounds[0].bytes_down == 2 * trees.nbytes({"model": result.state["model"]})


def test_clients_get_their_train_rows_and_sites_the_test_rows(federation):
    spec = spec_of(FedAKD(), federation, task(), RECIPE, 0)
    for k, rows in enumerate(spec.clients):
        assert rows.train.y.tolist() == federation.dataset.y[federation.train[k]].tolist()
        assert rows.test.y.tolist() == federation.dataset.y[federation.test_rows(k)].tolist()
    server = server_of(federation, task(), RECIPE)
    assert [info.n for info in server.clients] == [len(rows) for rows in federation.train]
    assert server.validation.y.tolist() == federation.dataset.y[federation.validation].tolist()


def test_clients_judged_on_the_same_rows_share_one_copy_of_them(federation):
    tests = [rows.test for rows in spec_of(FedAvg(), federation, task(), RECIPE, 0).clients]
    assert all(test is tests[0] for test in tests)
    sized = federate(load("digits"), "pow", 4, fraction=0.3)
    assert len({id(rows.test) for rows in spec_of(FedAvg(), sized, task(), RECIPE, 0).clients}) == 4


def test_there_is_at_least_one_core():
    assert cores() >= 1


def test_a_model_that_all_share_is_judged_once_on_rows_that_all_share(monkeypatch):
    """One global model on one common test set; not what clients trained, nor what own rows judge."""
    counts = []
    logits = Client.logits

    def counted(client, params, data):
        counts.append(1)
        return logits(client, params, data)

    monkeypatch.setattr(Client, "logits", counted)
    found = {}
    for evaluation in ("global", "local"):
        federation = replace(federate(load("digits"), "pow", 9, fraction=0.3), evaluation=evaluation)
        counts.clear()
        result = simulate(FedAvg(), federation, task(), RECIPE, rounds=1, workers=0)
        found[evaluation] = len(counts)
        shared = set(result.rounds[0].scores["global/accuracy"].values())
        assert (len(shared) == 1) == (evaluation == "global")
    assert found == {"global": 1 + 9, "local": 9 + 9}
