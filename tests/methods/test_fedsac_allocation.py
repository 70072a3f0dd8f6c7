"""FedSAC's allocation (algorithms 2.8): who gets which units, and what they are worth."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import toys
from fedakd import activations, trees
from fedakd.methods.fedsac import FedSAC
from fedakd.trees import Params, Tree

SHARP = FedSAC(beta=8.0, refresh=1)  # masks that differ, anew after each round
SHARPEST = replace(SHARP, order="descending")
LAYERS: Params = {"a.weight": torch.arange(4), "b.weight": torch.arange(4, 6), "b.bias": torch.arange(4, 6)}


def allocation(importance: list[float], worth: list[float]) -> Tree:
    """The part of a server's state that masks depend on: six units in two layers."""
    return {
        "importance": torch.tensor(importance, dtype=torch.float64),
        "worth": torch.tensor(worth, dtype=torch.float64),
        "owners": LAYERS,
    }


def masks(method: FedSAC, state: Tree) -> list[list[float]]:
    return [method.mask(state, k).tolist() for k in range(len(state["worth"]))]


# allocation


@pytest.mark.parametrize("order", ["ascending", "descending"])
@pytest.mark.parametrize("sizes", [(23, 5), toys.TEN], ids=len)
@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_the_best_client_gets_all_and_others_get_less(order, sizes, net):
    method = replace(SHARP, order=order)
    state = toys.play(toys.spec(method, sizes, net), rounds=1).states[0]
    state["worth"] = torch.linspace(0.1, 0.9, len(sizes))
    best, *others = (method.send(state, k) for k in reversed(range(len(sizes))))
    assert best["mask"].all()
    assert trees.equal(best["model"], state["model"])
    assert all(0 < other["mask"].sum() < len(other["mask"]) for other in others)
    assert all((worse["mask"] <= better["mask"]).all() for better, worse in pairwise([best, *others]))


shares = st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0, 40.0]), min_size=6, max_size=6).filter(any)
worths = st.lists(st.sampled_from([0.0, 0.2, 0.3, 0.55, 0.9, 1.0]), min_size=2, max_size=10)


@given(shares, worths, st.sampled_from(["ascending", "descending"]), st.sampled_from([0.1, 1.0, 3.0, 800.0]))
def test_masks_are_nested_and_those_of_equals_are_equal(raw, worth, order, beta):
    method, state = FedSAC(beta=beta, order=order), allocation([100 * x / sum(raw) for x in raw], worth)
    ranked = sorted(zip(worth, masks(method, state), strict=True))
    for (low, smaller), (high, larger) in pairwise(ranked):
        assert all(a <= b for a, b in zip(smaller, larger, strict=True))
        assert smaller == larger or low < high
        assert any(smaller[:4])
        assert any(smaller[4:])
    assert ranked[-1][1] == [1.0] * 6


@given(shares, st.floats(0.0, 1.0), st.sampled_from(["ascending", "descending"]))
def test_a_mask_is_the_shortest_prefix_that_reaches_the_reputation(raw, worth, order):
    importance = [100 * x / sum(raw) for x in raw]
    mask = FedSAC(order=order).mask(allocation(importance, [worth, 1.0]), 0)
    reputation = 100 * torch.exp(torch.tensor(3 * (worth - 1), dtype=torch.float64)).item()
    ranked = sorted(range(6), key=lambda unit: importance[unit] * (1 if order == "ascending" else -1))
    taken: list[int] = []
    while len(taken) < 6 and (worth == 1.0 or sum(importance[unit] for unit in taken) < reputation):
        taken.append(ranked[len(taken)])
    first = [next(unit for unit in ranked if unit in layer) for layer in (range(4), range(4, 6))]
    assert mask.nonzero().squeeze(1).tolist() == sorted({*taken, *first})


def test_by_hand():
    state = allocation([10, 30, 5, 20, 25, 10], [1.0, 1.0 + torch.tensor(0.4).log().item() / 2])
    full = [1.0] * 6
    # ascending 5 10 10 20 | 25 30 passes 40 with the fourth, descending 30 25 | 20 10 10 5 with the second
    assert masks(FedSAC(beta=2.0), state) == [full, [1, 0, 1, 1, 0, 1]]
    assert masks(FedSAC(beta=2.0, order="descending"), state) == [full, [0, 1, 0, 0, 1, 0]]


def test_units_of_no_importance_go_to_the_best_client_in_either_order():
    state = allocation([0, 0, 60, 0, 40, 0], [0.5, 0.5, 0.1])
    assert masks(SHARPEST, state)[:2] == [[1.0] * 6] * 2
    assert masks(SHARPEST, state)[2] == [0, 0, 1, 0, 1, 0]
    assert masks(SHARP, state)[2] == [1, 1, 0, 1, 1, 1]


def test_clients_of_unknown_worth_and_all_before_the_first_measurement_get_everything():
    measured = allocation([10, 30, 5, 20, 25, 10], [0.9, -1.0, 0.1])
    assert [all(mask) for mask in masks(SHARP, measured)] == [True, True, False]
    unmeasured = allocation([0.0] * 6, [0.9, 0.2, 0.1])
    assert all(all(mask) for mask in masks(SHARP, unmeasured))
    played = toys.play(toys.spec(SHARP, net="cnn"), rounds=1)
    start = toys.client(toys.spec(SHARP, net="cnn")).init(0)
    assert all(trees.equal(message["model"], start) for message in played.messages)
    assert all(message["mask"].all() for message in played.messages)


# importance


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_importance_is_the_growth_of_the_loss_without_the_unit(net):
    spec = toys.spec(SHARP, net=net)
    played, server = toys.play(spec, rounds=1), toys.server(spec)
    state = played.states[0]
    importance, model = state["importance"], state["model"]
    whole = server.risk(model, server.validation)
    growth = []
    for unit in range(len(importance)):
        mask = torch.ones(len(importance))
        mask[unit] = 0
        without = activations.masked(model, state["owners"], mask)
        growth.append(max(0.0, server.risk(without, server.validation) - whole))
    assert torch.allclose(importance, 100 * torch.tensor(growth).double() / sum(growth), atol=0.1)
    assert importance.sum().item() == pytest.approx(100)
    assert (importance >= 0).all()
    assert (importance > 1).any()


def test_importance_is_uniform_where_no_unit_matters():
    server = toys.server(toys.spec(SHARP, net="cnn"))
    deaf = {n: p * 0 if n == "head.weight" else p for n, p in server.init(0).items()}
    importance = SHARP.importance(server, deaf, server.validation)
    assert importance.tolist() == pytest.approx([100 / 96] * 96)


def test_importance_is_measured_after_round_one_and_then_every_so_often():
    played = toys.play(toys.spec(replace(SHARP, refresh=2)), rounds=5)
    values = [torch.zeros(96).double(), *(state["importance"] for state in played.states)]
    anew = [not torch.equal(a, b) for a, b in pairwise(values)]
    assert anew == [True, False, True, False, True]


@pytest.mark.parametrize(("first", "refresh", "expected"), [(3, 0, [3]), (2, 2, [2, 4]), (4, 1, [4, 5])])
def test_importance_can_be_measured_late_and_once(first, refresh, expected):
    method = replace(SHARP, first=first, refresh=refresh)
    played = toys.play(toys.spec(method), rounds=5)
    values = [torch.zeros(96).double(), *(state["importance"] for state in played.states)]
    assert [n for n, (a, b) in enumerate(pairwise(values), 1) if not torch.equal(a, b)] == expected
    full = [all(message["mask"].all() for message in played.messages[3 * n : 3 * n + 3]) for n in range(5)]
    assert full == [n < first for n in range(5)]  # everybody has all until then


def test_the_paper_and_its_code_measure_once():
    chosen = {name: (fields["first"], fields["refresh"]) for name, fields in FedSAC.presets.items()}
    assert chosen == {"paper": (15, 0), "released": (10, 0)}


def test_only_the_probe_rows_are_asked():
    spec = toys.spec(SHARP, net="cnn")
    server, few = toys.server(spec), replace(SHARP, probe=6)
    rows, model = server.validation, toys.play(spec, rounds=1).states[0]["model"]
    server.stream = (0, 1, 0)
    chosen = rows[torch.randperm(20, generator=server.generator("probe"))[:6]]
    all_rows, six = (SHARP.importance(server, model, asked) for asked in (rows, chosen))
    assert torch.allclose(few.importance(server, model, rows), six, atol=0.1)
    assert not torch.allclose(all_rows, six, atol=0.1)
