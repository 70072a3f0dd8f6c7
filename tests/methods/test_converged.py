"""Converged: early stopping on rows of the client's own, which are then given back."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import toys
from fedakd import trees
from fedakd.errors import PlanError
from fedakd.examples import Examples
from fedakd.method import Client
from fedakd.methods import METHODS, of_the_paper, parse
from fedakd.methods.converged import Converged
from fedakd.training import Recipe
from fedakd.trees import Params, Tree

ADAM = Recipe(batch_size=4, lr=0.01, optimizer="adam", epochs=3)  # epochs of a round mean nothing here
SHORT = Converged(held_out=0.25, patience=3, limit=12)


class Listening(Client):
    """A client that remembers what it was fitted to: the rows, the epochs and the optimiser's state."""

    def fit_from(self, params: Params, moments: Tree, data: Examples, **options) -> tuple[Params, Tree]:  # type: ignore[no-untyped-def, override]
        found, after = super().fit_from(params, moments, data, **options)
        epochs = options["recipe"].epochs
        self.fits = [*getattr(self, "fits", []), (params, moments, data, epochs, found)]
        return found, after


def client(n: int, net: str = "mlp", recipe: Recipe = ADAM, round: int = 1, k: int = 0) -> Listening:
    spec = toys.spec(Converged(), (n,), net, recipe)
    return Listening(spec.task, recipe, (0, round, k + 1), id=k, data=spec.clients[0].train)


def by_hand(own: Client, start: Params, data: Examples, purposes: list[str]) -> list[Params]:
    """The parameters after each epoch of one torch optimiser; each purpose is an order of the rows."""
    module: nn.Module = own.task.model()
    module.load_state_dict(start)
    stepper = torch.optim.Adam(module.parameters(), lr=own.recipe.lr)
    epochs = []
    for purpose in purposes:
        for batch in own.batches(data, replace(own.recipe, epochs=1), purpose):
            stepper.zero_grad()
            F.cross_entropy(module(batch.x), batch.y).backward()
            stepper.step()
        epochs.append({name: part.clone() for name, part in module.state_dict().items()})
    return epochs


@pytest.mark.parametrize("method", [SHORT, replace(SHORT, limit=2), replace(SHORT, patience=1)], ids=repr)
def test_the_number_of_epochs_is_that_of_early_stopping_written_by_hand(method):
    own = client(23, "mlp64")
    start = own.init(0)
    rest, held = method.parted(own)
    purposes = [f"epoch {number}" for number in range(1, method.limit + 1)]
    scores = [own.risk(w, held) for w in [start, *by_hand(own, start, rest, purposes)]]
    best = last = 0
    while last < method.limit and last - best < method.patience:
        last += 1
        best = last if scores[last] < scores[best] else best
    kept, update = method.client_update(own, method.client_init(own, start))
    assert kept["epochs"] == update["epochs"] == max(best, 1)
    assert kept["limited"] == update["limited"] == (last - best < method.patience)


@pytest.mark.parametrize("n", [2, 3, 23])
def test_it_trains_again_on_all_rows_from_the_start_for_as_many_epochs(n):
    own = client(n, "mlp64")
    start = own.init(0)
    kept, _ = SHORT.client_update(own, SHORT.client_init(own, start))
    first, _, data, epochs, found = own.fits[-1]
    assert first is start
    assert data is own.data
    assert epochs == kept["epochs"]
    assert trees.equal(kept["model"], found)
    assert own.gradients == sum(epochs * len(data) for _, _, data, epochs, _ in own.fits)  # the search's too
    once = own.fit(start, own.data, recipe=replace(ADAM, epochs=int(kept["epochs"])))
    assert trees.equal(kept["model"], once)  # one fit is one optimiser


@pytest.mark.parametrize("n", [2, 3, 6, 23, 100])
@pytest.mark.parametrize("held_out", [0.001, 0.15, 0.5, 0.999])
def test_no_row_is_in_both_parts_and_every_row_is_in_one(n, held_out):
    own = client(n)
    rest, held = Converged(held_out=held_out).parted(own)
    assert len(rest) >= 1
    assert len(held) == min(max(round(held_out * n), 1), n - 1)
    rows = torch.cat([rest.x, held.x]).flatten(1)
    assert sorted(rows.tolist()) == sorted(own.data.x.flatten(1).tolist())
    assert len(torch.unique(rows, dim=0)) == n


def test_epochs_of_the_search_share_one_optimiser_and_see_no_row_held_out():
    own = client(23)
    SHORT.client_update(own, SHORT.client_init(own, own.init(0)))
    rest, _ = SHORT.parted(own)
    *search, _ = own.fits
    for number, (_, moments, data, epochs, _) in enumerate(search):
        assert epochs == 1
        assert torch.equal(data.x, rest.x)
        steps = {state["steps"].item() for state in moments.values()}
        assert steps == ({number * own.steps(rest, replace(ADAM, epochs=1))} if number else set())


def test_other_rounds_and_clients_hold_out_other_rows():
    parts = [SHORT.parted(client(23, round=r, k=k))[1].x for r, k in [(1, 0), (1, 0), (1, 1), (2, 0)]]
    assert torch.equal(parts[0], parts[1])
    assert not any(torch.equal(parts[0], other) for other in parts[2:])


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_a_client_with_one_row_trains_for_as_many_epochs_as_patience_has(net):
    own = client(1, net)
    kept, update = SHORT.client_update(own, SHORT.client_init(own, own.init(0)))
    assert update == {"epochs": 3.0, "limited": 0.0}
    assert own.gradients == 3
    assert not trees.equal(kept["model"], own.init(0))


def test_where_no_epoch_helps_one_is_trained():
    own = client(23, recipe=replace(ADAM, lr=100.0))  # every step makes the loss larger
    kept, update = SHORT.client_update(own, SHORT.client_init(own, own.init(0)))
    assert update == {"epochs": 1.0, "limited": 0.0}
    assert trees.equal(kept["model"], own.fit(own.init(0), own.data, recipe=replace(own.recipe, epochs=1)))


@pytest.mark.parametrize(("limit", "limited"), [(2, 1.0), (400, 0.0)])
def test_the_limit_is_told_only_where_it_ended_the_training(limit, limited):
    played = toys.play(toys.spec(Converged(limit=limit), recipe=ADAM), rounds=1)
    state = played.states[-1]
    assert state["limited"].tolist() == [limited] * 3
    assert state["epochs"].tolist() == [kept["epochs"] for kept in played.kept[-1].values()]
    assert state["epochs"].max() < limit or limited


def test_later_rounds_change_nothing_and_cost_nothing():
    played = toys.play(toys.spec(SHORT, net="cnn"), rounds=3)
    assert [record.gradients > 0 for record in played.result.rounds] == [True, False, False]
    assert all(trees.equal(played.kept[0][k], played.kept[2][k]) for k in range(3))
    assert trees.equal(played.states[0], played.states[2])
    assert all(message == {} for message in played.messages)


def test_a_client_that_comes_late_trains_then_and_is_known_by_its_zero_before():
    played = toys.play(toys.spec(SHORT, toys.TEN), rounds=4, participation=0.3)
    trained: set[int] = set()
    for record, state in zip(played.result.rounds, played.states, strict=True):
        trained |= set(record.participants)
        assert {k for k, epochs in enumerate(state["epochs"].tolist()) if epochs} == trained
    assert 3 < len(trained) < 10


def test_it_is_no_method_of_the_paper():
    assert len(of_the_paper()) == 13
    assert "converged" in METHODS
    assert "converged" not in of_the_paper()
    assert parse("converged(limit=30)") == Converged(limit=30)


@pytest.mark.parametrize(
    "wrong", [{"held_out": 0.0}, {"held_out": 1.0}, {"patience": 0}, {"limit": 0}, {"held_out": float("nan")}]
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(PlanError, match=next(iter(wrong))):
        Converged(**wrong)
