"""What holds for every method alike, each row of the cross-method matrix that is not one method's own law."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import toys
from fedakd import trees
from fedakd.examples import Examples
from fedakd.experiment import Cell
from fedakd.federation import federate
from fedakd.method import Client, Method
from fedakd.models import factory
from fedakd.simulation import simulate
from fedakd.summary import judged_view
from fedakd.training import Bench, Recipe, Task
from fedakd.trees import Tree
from presets import METHODS, PRESETS

VECTORS = {  # in updates, and in messages
    "cffl": (("uploaded",), ("reward",)),
    "cgsv": (("update",), ("reward",)),
    "scaffold": (("delta_c",), ("c",)),
    "feddc": (("delta_g",), ("g",)),
}
VARIANTS = {**METHODS, **PRESETS}
CONTRIBUTING = {"fedavg", "cffl", "cgsv", "fedave", "fedsac"}
JUDGED = {  # the model each client is judged by: on its own test rows, and on common ones
    **{name: ("global", "trained") for name in ("fedavg", "fedprox", "scaffold", "feddc", "fedmpr")},
    **{
        name: ("personal", "personal")
        for name in ("standalone", "converged", "cffl", "cgsv", "fedave", "fedsac", "pfedck")
    },
    **{name: ("personal", "personal") for name in ("fedas", *(one for one in METHODS if "fedakd" in one))},
}


@dataclass(frozen=True, eq=False)
class Numbered:
    """Images whose first pixel is the number of their row, so that a row is known wherever it turns up."""

    name: str = "numbered"
    classes: int = 4
    rows: int = 400

    @property
    def y(self) -> np.ndarray:
        return np.arange(self.rows) % self.classes

    @property
    def x(self) -> np.ndarray:
        images = np.random.default_rng(0).random((self.rows, 1, 8, 8)).astype(np.float32)
        images[np.arange(self.rows), 0, 4, self.y] += 1
        images[:, 0, 0, 0] = np.arange(self.rows) / self.rows
        return images

    def examples(self, rows: np.ndarray) -> Examples:
        return Examples(torch.from_numpy(self.x[rows]), torch.from_numpy(self.y[rows]))


@pytest.mark.parametrize(("partition", "clients"), [("ics(1)", 2), ("ics(1)", 10), ("cla", 4)])
@pytest.mark.parametrize("name", METHODS)
def test_no_test_or_validation_row_ever_enters_a_training_batch(name, partition, clients, monkeypatch):
    federation = federate(Numbered(), partition, clients, seed=1)
    seen: dict[int, set[int]] = {}
    whole = Bench.batches

    def listening(self, *args, **options):
        for batch in whole(self, *args, **options):
            rows = (batch.x[:, 0, 0, 0] * 400).round().int().tolist()
            seen.setdefault(self.id, set()).update(rows)
            yield batch

    monkeypatch.setattr(Bench, "batches", listening)
    task = Task(factory("mlp", (1, 8, 8), 4))
    simulate(METHODS[name], federation, task, Recipe(batch_size=8, lr=0.1), rounds=2, workers=0)
    assert sorted(seen) == list(range(clients))
    for client, rows in seen.items():
        assert rows == set(federation.train[client].tolist())
    kept_away = {*federation.validation, *federation.global_test, *np.concatenate(federation.test)}
    assert kept_away.isdisjoint(set().union(*seen.values()))


@pytest.mark.parametrize("sizes", [(9, 4), toys.TEN])
@pytest.mark.parametrize(("name", "groups"), VECTORS.items())
def test_vectors_have_the_length_of_the_parameters_and_no_running_statistics(name, groups, sizes):
    spec = toys.spec(METHODS[name], sizes, net="cnn")
    client = toys.client(spec)
    played = toys.play(spec, rounds=3)
    up, down = groups
    messages = [message for message in played.messages if message.keys() >= set(down)]
    assert len(messages) >= len(sizes)  # the first of a method may be empty
    for vector in (
        *(update[group] for update in played.updates for group in up),
        *(message[group] for message in messages for group in down),
    ):
        assert_about_parameters(vector, client)


def assert_about_parameters(vector: Tree, client: Client) -> None:
    """In the long form with its names, or in a short one, which says where."""
    length = sum(client.init(0)[one].numel() for one in client.trainable)
    if "all" in vector:
        assert vector["all"].numel() == length
    elif "where" in vector:
        assert all(0 <= where < length for where in vector["where"].tolist())
    else:
        assert sorted(vector) == sorted(client.trainable)


@pytest.mark.parametrize("sizes", [(9, 4), toys.TEN])
@pytest.mark.parametrize("method", VARIANTS.values(), ids=VARIANTS)
def test_every_judged_batch_norm_model_has_seen_its_rows(method, sizes):
    """A model whose running statistics are those of an untrained one would score by chance (trap 4)."""
    spec = toys.spec(method, sizes, net="cnn")
    played = toys.play(spec, rounds=2)  # 2: in the published order FedAKD's local model begins then
    for k, kept in played.kept[1].items():
        for params in method.models(method.receive(kept, method.send(played.states[1], k))).values():
            spread = [part for n, part in params.items() if n.endswith("running_var")]
            assert spread
            assert not any(torch.equal(part, torch.ones_like(part)) for part in spread)


@pytest.mark.parametrize("sizes", [(9, 4), toys.TEN])
@pytest.mark.parametrize("method", VARIANTS.values(), ids=VARIANTS)
def test_equal_seeds_give_equal_numbers_and_other_seeds_others(method, sizes):
    runs = [toys.play(toys.spec(method, sizes, seed=seed), rounds=2) for seed in (4, 4, 5)]
    first, again, other = ([r.scores for r in run.result.rounds] for run in runs)
    assert first == again
    assert first != other
    assert trees.equal(runs[0].kept[-1][0], runs[1].kept[-1][0])


@pytest.mark.parametrize("name", METHODS)
def test_the_methods_that_say_who_contributes_are_those_that_know(name):
    played = toys.play(toys.spec(METHODS[name]), rounds=1)
    told = played.result.rounds[0].contributions
    assert (told is not None) == (name in CONTRIBUTING)
    assert told is None or len(told) == 3


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_judged_by_the_models_of_the_specification(name):
    rounds = toys.play(toys.spec(METHODS[name]), rounds=1).result.rounds
    cells = [Cell(name, 0, rounds, 39, (12,) * 3, evaluation=mode) for mode in ("local", "global")]
    assert tuple(judged_view(cell, "tuned") for cell in cells) == JUDGED[name]
    published = "global" if name.startswith("fedakd") else JUDGED[name][0]
    assert judged_view(cells[0], "released") == published


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_methods_file_names_its_source_its_confidence_and_its_deviations(method: Method):
    text = sys.modules[type(method).__module__].__doc__ or ""
    assert f"Confidence: {method.confidence}" in text
    assert "\nDeviations:\n- " in text
    assert method.citation
    assert method.summary
