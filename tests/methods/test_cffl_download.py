"""Which entries of the common update CFFL's clients receive (algorithms 2.5, step 6)."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

import toys
from fedakd import trees, wire
from fedakd.methods.cffl import CFFL
from scored import LIKE, Scoring, after, permutation, start, uploads

PAIRS = [("sum", "auto"), ("sum", "random"), ("mean", "random")]


def received(method, state, k) -> torch.Tensor:
    return trees.vector(trees.unpack(method.send(state, k)["reward"], LIKE))


@pytest.mark.parametrize(("aggregate", "download"), PAIRS)
@pytest.mark.parametrize("sizes", [(9, 4), toys.TEN])
def test_random_downloads_are_nested_and_have_exactly_the_entries_earned(aggregate, download, sizes):
    method = CFFL(aggregate=aggregate, download=download, expel=0.0)
    state = after(method, start(method, sizes), [0.5] * len(sizes))
    g = trees.vector(state["gradient"])
    earned = [received(method, state, k) for k in range(len(sizes))]
    assert g.all()  # so that an entry given out is never 0
    for n, reward in zip(sizes, earned, strict=True):
        assert reward.count_nonzero() == math.floor(n / max(sizes) * len(g) + 1e-9)
        assert torch.equal(reward[reward != 0], g[reward != 0])
        assert torch.equal(reward, torch.zeros_like(g).index_copy_(0, *picked(state, g, n / max(sizes))))
    by_size = [earned[k] != 0 for k in sorted(range(len(sizes)), key=lambda k: sizes[k])]
    assert all((larger | ~smaller).all() for smaller, larger in pairwise(by_size))
    assert torch.equal(earned[sizes.index(max(sizes))], g)


def picked(state, g, share) -> tuple[torch.Tensor, torch.Tensor]:
    where = permutation(state, len(g))[: math.floor(share * len(g) + 1e-9)]
    return where, g[where]


def test_each_round_and_seed_draws_other_entries_and_size_does_not_matter():
    """Half of 10 entries at random: each is drawn half of the time, the largest no more than the smallest."""
    method = CFFL(aggregate="sum", expel=0.0)
    state, rows, server = start(method, (10, 5)), [], Scoring([0.5, 0.5])
    for number in range(400):
        server.stream = (3, number, 0)
        state = method.server_update(server, {**state, "model": LIKE}, uploads(2))
        rows.append(received(method, state, 1) != 0)
    shares = torch.stack(rows).double().mean(0)
    assert (shares - 0.5).abs().max() < 0.125  # five standard deviations of 0.025
    server.stream = (4, 0, 0)
    other = method.server_update(server, {**state, "model": LIKE}, uploads(2))
    assert other["draw"] not in (state["draw"], 0.0)
    assert wire.loads(wire.dumps(other))["draw"] == int(other["draw"]) < 2**53


@pytest.mark.parametrize(("aggregate", "download"), [("mean", "auto"), ("mean", "top"), ("sum", "top")])
def test_other_downloads_are_the_largest_entries(aggregate, download):
    method, sizes = CFFL(aggregate=aggregate, download=download, expel=0.0), toys.TEN
    state = after(method, start(method, sizes), [0.5] * len(sizes))
    g = trees.vector(state["gradient"]).abs()
    for k, n in enumerate(sizes):
        given = received(method, state, k) != 0
        assert given.sum() == math.floor(n / max(sizes) * len(g) + 1e-9)
        assert given.all() or not given.any() or g[given].min() >= g[~given].max()


def test_the_default_is_the_pair_that_works_with_batch_norm():
    assert (CFFL().aggregate, CFFL().download) == ("mean", "auto")
    assert all(CFFL(**fields).aggregate == "mean" for fields in CFFL.presets.values())
