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
from fedakd.methods.converged import Converged, chosen
from fedakd.training import Recipe
from fedakd.trees import Params, Tree

ADAM = Recipe(batch_size=4, lr=0.01, optimizer="adam", epochs=3)  # epochs of a round mean nothing here
SHORT = Converged(folds=3, patience=3, limit=12)


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
def test_the_number_of_epochs_is_that_of_cross_validation_written_by_hand(method):
    own = client(23, "mlp64")
    start = own.init(0)
    purposes = [f"epoch {number}" for number in range(1, method.limit + 1)]
    right = torch.zeros(method.limit)
    for rest, held in method.parted(own):
        models = by_hand(own, start, rest, purposes)
        right += torch.tensor([float((own.logits(w, held).argmax(1) == held.y).sum()) for w in models])
    shares = (right / 23).double()
    scores = [float(shares[max(0, t - 4) : t + 1].mean()) for t in range(method.limit)]
    best = last = 0
    while last < method.limit - 1 and last - best < method.patience:
        last += 1
        best = last if scores[last] > scores[best] else best
    error = (scores[best] * (1 - scores[best]) / 23) ** 0.5
    epochs = max(t for t in range(last + 1) if scores[t] >= scores[best] - error) + 1
    kept, update = method.client_update(own, method.client_init(own, start))
    assert kept["epochs"] == update["epochs"] == epochs
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
@pytest.mark.parametrize("folds", [2, 3, 10])
def test_every_row_is_held_out_once_and_never_trained_on_then(n, folds):
    own = client(n)
    parts = Converged(folds=folds).parted(own)
    assert len(parts) == min(folds, n)
    rows = sorted(own.data.x.flatten(1).tolist())
    assert sorted(row for _, held in parts for row in held.x.flatten(1).tolist()) == rows
    for rest, held in parts:
        assert sorted([*rest.x.flatten(1).tolist(), *held.x.flatten(1).tolist()]) == rows
    assert max(len(held) for _, held in parts) - min(len(held) for _, held in parts) <= 1


def test_copies_of_a_row_are_on_one_side():
    own = client(10)
    own.data = own.data[torch.arange(10).repeat_interleave(3)]
    for rest, held in SHORT.parted(own):
        both = {tuple(row) for row in rest.x.flatten(1).tolist()} & {
            tuple(row) for row in held.x.flatten(1).tolist()
        }
        assert not both


def test_a_client_whose_rows_are_all_copies_cannot_hold_any_out():
    own = client(1)
    own.data = own.data[torch.zeros(5, dtype=torch.long)]
    _, update = SHORT.client_update(own, SHORT.client_init(own, own.init(0)))
    assert update == {"epochs": 3.0, "limited": 0.0}


def test_epochs_of_the_search_share_one_optimiser_for_each_fold():
    own = client(23)
    SHORT.client_update(own, SHORT.client_init(own, own.init(0)))
    parts = SHORT.parted(own)
    *search, _ = own.fits
    for number, (_, moments, data, epochs, _) in enumerate(search):
        epoch, fold = divmod(number, 3)
        rest = parts[fold][0]
        assert epochs == 1
        assert torch.equal(data.x, rest.x)
        steps = {state["steps"].item() for state in moments.values()}
        assert steps == ({epoch * own.steps(rest, replace(ADAM, epochs=1))} if epoch else set())


def test_other_rounds_and_clients_have_other_folds():
    parts = [SHORT.parted(client(23, round=r, k=k))[0][1].x for r, k in [(1, 0), (1, 0), (1, 1), (2, 0)]]
    assert torch.equal(parts[0], parts[1])
    assert not any(torch.equal(parts[0], other) for other in parts[2:])


def test_of_epochs_that_are_not_told_apart_it_takes_the_last():
    assert chosen([0.5, 0.9, 0.9, 0.9, 0.9, 0.9, 0.89, 0.88], rows=100) == 8
    assert chosen([0.9] * 5 + [0.1] * 5, rows=100) == 5, "a fall of more than a standard error"


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_a_client_with_one_row_trains_for_as_many_epochs_as_patience_has(net):
    own = client(1, net)
    kept, update = SHORT.client_update(own, SHORT.client_init(own, own.init(0)))
    assert update == {"epochs": 3.0, "limited": 0.0}
    assert own.gradients == 3
    assert not trees.equal(kept["model"], own.init(0))


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


@pytest.mark.parametrize("wrong", [{"folds": 1}, {"folds": 0}, {"patience": 0}, {"limit": 0}])
def test_nonsense_is_refused(wrong):
    with pytest.raises(PlanError, match=next(iter(wrong))):
        Converged(**wrong)
