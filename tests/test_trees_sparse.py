"""Laws of the largest entries: exact counts, ties, each tensor by itself, and their shorter form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedakd import trees, wire
from fedakd.trees import Params

VALUES = st.lists(st.integers(-4, 4), min_size=1, max_size=30)


def two(values: list[int]) -> Params:
    """The values in two tensors, whose names are not in the order of their entries."""
    half = len(values) // 2
    row = torch.tensor(values, dtype=torch.float32)
    return {"b": row[:half], "a": row[half:]}


@given(VALUES, st.integers(-3, 40))
def test_the_largest_are_counted_exactly_and_ties_go_to_the_lower_index(values, count):
    tree = two(values)
    row = trees.vector(tree).numpy()
    first = np.lexsort((np.arange(len(row)), -np.abs(row)))[: max(count, 0)]
    expected = np.zeros_like(row)
    expected[first] = row[first]
    assert trees.vector(trees.largest(tree, count)).tolist() == expected.tolist()


@given(VALUES, st.integers(0, 100))
def test_each_tensor_keeps_its_own_share_rounded_up(values, percent):
    kept = trees.top_each(two(values), percent / 100)
    for name, part in two(values).items():
        count = math.ceil(percent * part.numel() / 100 - 1e-6)
        assert torch.equal(kept[name], trees.largest({"w": part}, count)["w"])


def test_the_whole_is_everything_and_a_single_entry_is_kept():
    tree = {"w": torch.tensor([[0.1, -0.2]]), "t": torch.tensor(0.3)}
    assert trees.equal(trees.top_each(tree, 1.0), tree)
    assert trees.top_each(tree, 0.01)["t"].item() == pytest.approx(0.3)
    assert trees.equal(trees.top_each(tree, 0.0), trees.zeros(tree))


@given(VALUES)
def test_unpacking_gives_back_what_was_packed_and_packing_is_never_longer(values):
    tree = two(values)
    packed = trees.pack(tree)
    assert trees.equal(trees.unpack(wire.loads(wire.dumps(packed)), trees.zeros(tree)), tree)
    assert trees.nbytes(packed) <= trees.nbytes(tree)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_tenth_of_the_entries_takes_about_a_fifth_of_the_bytes(dtype):
    tree = {"w": torch.randn(40, 50, dtype=dtype)}
    few = trees.top(tree, 0.1)
    each = torch.tensor([], dtype=dtype).element_size()
    assert trees.nbytes(trees.pack(few)) == 200 * (4 + each)
    assert trees.equal(trees.unpack(trees.pack(few), tree), few)


def test_the_cosine_is_that_of_the_vectors():
    a, b = ({"v": torch.randn(3, 4), "w": torch.randn(5)} for _ in range(2))
    x, y = (trees.vector(one).double().numpy() for one in (a, b))
    assert trees.cosine(a, b) == pytest.approx(x @ y / np.linalg.norm(x) / np.linalg.norm(y), abs=1e-12)
    assert trees.cosine(a, trees.scale(a, 3.0)) == pytest.approx(1.0)
    assert trees.cosine(a, trees.scale(a, -0.5)) == pytest.approx(-1.0)
    assert trees.cosine(a, trees.zeros(a)) == 0.0
    tiny = trees.scale(a, 1e-30)
    assert trees.cosine(tiny, tiny) >= 0  # too small to have a direction, and no division by zero
