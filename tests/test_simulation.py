"""One call from a federation and a method to a result."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import fedakd
from fedakd import trees
from fedakd.data import load
from fedakd.data.images import ImageDataset
from fedakd.errors import FedakdError
from fedakd.examples import Examples
from fedakd.federation import Federation, federate
from fedakd.method import Client
from fedakd.methods.fedakd import FedAKD
from fedakd.methods.fedavg import FedAvg
from fedakd.models import factory
from fedakd.partition.contract import Rows
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


def test_a_run_in_which_every_client_fails_is_an_error_with_the_reason(federation):
    """Its scores would be those of models that never trained."""
    everything = Spoiled(federation.dataset, frozenset(range(2000)))
    spoiled = replace(federation, dataset=everything)
    said = r"FedAvg, round 1: every client failed; the first: .*step 1: the loss is nan"
    with pytest.raises(FedakdError, match=said):
        simulate(FedAvg(), spoiled, task(), RECIPE, rounds=3, workers=0)


def test_a_run_in_which_some_clients_fail_has_a_result(federation):
    rows = federation.train[0]
    dataset = Spoiled(federation.dataset, frozenset(rows.tolist()))
    result = simulate(FedAvg(), replace(federation, dataset=dataset), task(), RECIPE, rounds=2, workers=0)
    assert result.rounds[-1].failures.keys() == {0}
    assert result.stopped is None


class Spoiled:
    """A dataset whose tensors of some rows are nan."""

    def __init__(self, dataset: ImageDataset, rows: frozenset[int]) -> None:
        self.dataset, self.rows = dataset, rows

    def examples(self, rows: Rows) -> Examples:
        examples = self.dataset.examples(rows)
        if not self.rows.issuperset(rows.tolist()):
            return examples
        return Examples(torch.full_like(examples.x, math.nan), examples.y)
