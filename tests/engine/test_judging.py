"""How models are judged: by weighted rows, with statistics of their own, and not where training failed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

import toys
from fedakd.cellfolder import CellFolder, packed, unpacked
from fedakd.engine.base import Rows, Spec
from fedakd.method import Client
from fedakd.methods.fedakd import FedAKD
from fedakd.methods.fedas import FedAS
from fedakd.methods.fedavg import FedAvg
from fedakd.methods.standalone import Standalone
from fedakd.rounds import Round
from fedakd.training import Diverged
from fedakd.trees import Tree


def weighted(spec: Spec, weights: list[torch.Tensor]) -> Spec:
    """All clients judged on the same rows, each with weights of its own."""
    common = toys.rows(12, 999)
    clients = [Rows(rows.id, rows.train, common, w) for rows, w in zip(spec.clients, weights, strict=True)]
    return replace(spec, clients=tuple(clients))


def some_weights(count: int = 3) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    drawn = [torch.rand(12, generator=rng, dtype=torch.float64) for _ in range(count)]
    return [part / part.sum() for part in drawn]


@pytest.mark.parametrize("method", [FedAvg(), FedAKD()])
def test_scores_are_weighted_means_over_the_rows(method):
    weights = some_weights()
    spec = weighted(toys.spec(method), weights)
    record = toys.play(spec, rounds=1).result.rounds[-1]
    state = toys.play(spec, rounds=1).states[-1]
    for k, share in enumerate(weights):
        client, test = toys.client(spec, k), spec.clients[k].test
        logits = client.logits(state["model"], test)
        right = (logits.argmax(1) == test.y).double()
        losses = torch.nn.functional.cross_entropy(logits, test.y, reduction="none").double()
        assert record.scores["global/accuracy"][k] == pytest.approx(float((right * share).sum()))
        assert record.scores["global/loss"][k] == pytest.approx(float((losses * share).sum()))
    assert len(set(record.scores["global/accuracy"].values())) > 1, "one model, other weights"


def test_weights_on_copies_of_a_row_are_the_same_as_repeating_it():
    spec = toys.spec(Standalone())
    counts = torch.tensor([3, 1, 0, 2, 1, 1, 0, 0, 1, 1, 1, 1])
    test = spec.clients[0].test
    repeated = test[torch.repeat_interleave(torch.arange(12), counts)]
    by_weight = [replace(rows, test=test, weights=counts / counts.sum()) for rows in spec.clients]
    by_copies = [replace(rows, test=repeated) for rows in spec.clients]
    results = [
        toys.play(replace(spec, clients=tuple(clients)), rounds=1).result.rounds[-1].scores
        for clients in (by_weight, by_copies)
    ]
    for name in ("personal/accuracy", "personal/loss"):
        assert results[0][name] == pytest.approx(results[1][name])


def test_a_clients_own_model_is_judged_with_statistics_of_its_training_rows():
    """Those that FedAS keeps lag behind its parameters; the shared model keeps the clients' mean."""
    spec = toys.spec(FedAS(), net="cnn")
    played = toys.play(spec, rounds=1)
    scores = played.result.rounds[-1].scores
    for k in range(3):
        client, test, kept = toys.client(spec, k), spec.clients[k].test, played.kept[-1][k]["personal"]
        current = client.update_bn(kept, client.data)
        assert scores["personal/loss"][k] == pytest.approx(client.risk(current, test))
        assert scores["personal/loss"][k] != pytest.approx(client.risk(kept, test))
        assert scores["global/loss"][k] == pytest.approx(client.risk(played.states[-1]["model"], test))


@dataclass(frozen=True)
class Failing(FedAKD):
    """Training fails at some clients."""

    at: tuple[int, ...] = ()

    def client_update(self, client: Client, state: Tree) -> tuple[Tree, Tree]:
        if client.id in self.at:
            raise Diverged("step 1: the loss is nan")
        return super().client_update(client, state)


def last_round(at: tuple[int, ...]) -> Round:
    return toys.play(toys.spec(Failing(at=at)), rounds=1).result.rounds[-1]


def test_a_client_that_failed_has_no_score_but_for_the_model_it_does_not_train():
    record = last_round((1,))
    for measure in ("accuracy", "loss"):
        assert math.isnan(record.scores[f"personal/{measure}"][1])
        assert all(math.isfinite(record.scores[f"personal/{measure}"][k]) for k in (0, 2))
        assert all(map(math.isfinite, record.scores[f"global/{measure}"].values()))
    assert set(record.outcomes["personal"]) == {0, 2}
    assert set(record.outcomes["global"]) == {0, 1, 2}


def test_where_every_client_failed_nothing_has_a_score():
    record = last_round((0, 1, 2))
    assert all(math.isnan(score) for scores in record.scores.values() for score in scores.values())
    assert record.outcomes == {"personal": {}, "global": {}}


@pytest.mark.parametrize("rows", [1, 7, 8, 1001])
def test_outcomes_survive_being_packed(rows):
    rng = np.random.default_rng(rows)
    shared = rng.random(rows) < 0.8
    outcomes = {
        "personal": {k: rng.random(rows + k) < 0.5 for k in (0, 2, 10)},
        "global": dict.fromkeys((0, 2, 10), shared),
        "nobody": {},
    }
    back = unpacked(packed(outcomes))
    assert {view: list(by_client) for view, by_client in back.items()} == {
        view: list(by_client) for view, by_client in outcomes.items()
    }
    for view, by_client in outcomes.items():
        assert all(np.array_equal(back[view][k], bits) for k, bits in by_client.items())
    assert list(packed(outcomes)["bits"]["global"]) == ["all"]


def test_a_cell_keeps_the_outcomes_of_its_last_judged_round(tmp_path):
    cell = CellFolder(tmp_path / "cell", {"method": "fedakd"})
    cell.describe()
    rounds = toys.play(toys.spec(FedAKD()), rounds=3).result.rounds
    for record in rounds:
        cell.append(record)
    kept = cell.outcomes()
    assert all(
        np.array_equal(kept[v][k], bits) for v, by in rounds[-1].outcomes.items() for k, bits in by.items()
    )
    accuracy = {k: float(bits.mean()) for k, bits in kept["personal"].items()}
    assert accuracy == pytest.approx(rounds[-1].scores["personal/accuracy"])
    cell.finish()
    assert cell.finished() is not None
    (cell.path / "outcomes.safetensors").write_bytes(b"damaged")
    assert cell.finished() is None
