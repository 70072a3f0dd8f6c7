"""Laws of the arithmetic on named tensors: plain tensor arithmetic name by name, means that lose nothing."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Iterator

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from fedakd import trees
from fedakd.trees import Params

WEIGHTS = st.floats(1e-3, 1e6) | st.integers(1, 10**6)
SINGLES = st.floats(width=32, allow_nan=False)


def tree(seed: int = 0) -> Params:
    rng = torch.Generator().manual_seed(seed)
    return {
        "w": torch.randn(3, 4, generator=rng),
        "b": torch.randn(4, generator=rng),
        "t": torch.randn((), generator=rng),
    }


def bits(a: Tensor) -> list[int]:
    return a.contiguous().view({4: torch.int32, 8: torch.int64}[a.element_size()]).flatten().tolist()


# Arithmetic


def test_arithmetic_is_tensor_arithmetic_name_by_name() -> None:
    a, b = tree(0), tree(1)
    for name in a:
        assert torch.equal(trees.add(a, b)[name], a[name] + b[name])
        torch.testing.assert_close(trees.add(a, b, by=-0.3)[name], a[name] - 0.3 * b[name])
        assert torch.equal(trees.sub(a, b)[name], a[name] - b[name])
        assert torch.equal(trees.mul(a, b)[name], a[name] * b[name])
        assert torch.equal(trees.scale(a, 0.7)[name], a[name] * 0.7)
        assert torch.equal(trees.zeros(a)[name], a[name] * 0)


def test_arithmetic_changes_nothing_it_is_given() -> None:
    a, b = tree(0), tree(1)
    trees.add(a, b, 2.0), trees.sub(a, b), trees.mul(a, b), trees.scale(a, 3.0), trees.zeros(a)
    trees.move(a, b), trees.clip(a, 0.1), trees.top(a, 0.5), trees.mean([a, b], [1.0, 2.0])
    trees.mean([a], [1.0])["w"].zero_()
    assert trees.equal(a, tree(0))
    assert trees.equal(b, tree(1))


def test_names_of_the_first_tree_decide() -> None:
    a, b = tree(0), tree(1)
    few = trees.pick(a, ["b"])
    assert list(few) == ["b"]
    assert few["b"] is a["b"]
    assert list(trees.add(few, b)) == list(trees.sub(few, b)) == list(trees.mul(few, b)) == ["b"]
    with pytest.raises(KeyError):
        trees.add(a, few)


def test_move_moves_the_names_of_the_delta_and_no_other() -> None:
    params, delta = tree(0), {"b": torch.ones(4)}
    moved = trees.move(params, delta, by=0.5)
    assert list(moved) == list(params)
    assert torch.equal(moved["b"], params["b"] + 0.5)
    assert torch.equal(moved["w"], params["w"])
    assert torch.equal(moved["t"], params["t"])


def test_split_undoes_join_even_where_names_repeat() -> None:
    a, b = tree(0), {"w": torch.ones(2), "b:w": torch.zeros(1)}
    both = trees.join(model=a, mo=b)
    assert len(both) == len(a) + len(b)
    assert trees.equal(trees.split(both, "model"), a)
    assert trees.equal(trees.split(both, "mo"), b)
    assert trees.split(both, "m") == {}


# The mean


@given(st.lists(SINGLES, min_size=1, max_size=6), st.lists(WEIGHTS, min_size=1, max_size=6))
def test_the_mean_of_equal_trees_is_that_tree_to_the_bit(values: list[float], weights: list[float]) -> None:
    one = torch.tensor(values) + 0.0  # a zero loses its sign
    mean = trees.mean([{"w": one}] * len(weights), weights)["w"]
    assert mean.dtype == torch.float32
    assert bits(mean) == bits(one)


@given(st.lists(st.tuples(st.floats(-10, 10), WEIGHTS), min_size=1, max_size=6))
def test_the_mean_is_the_weighted_sum_over_the_sum_of_weights(pairs: list[tuple[float, float]]) -> None:
    mean = trees.mean([{"w": torch.tensor(x, dtype=torch.float64)} for x, _ in pairs], [w for _, w in pairs])
    exact = math.fsum(x * w for x, w in pairs) / math.fsum(w for _, w in pairs)
    assert float(mean["w"]) == pytest.approx(exact, rel=1e-12, abs=1e-12)


@given(st.lists(WEIGHTS, min_size=3, max_size=3), st.floats(-3, 3))
def test_the_mean_is_linear(weights: list[float], by: float) -> None:
    wide = [trees.scale(trees.transform(tree(i), Tensor.double), 1.0) for i in range(6)]
    together = trees.mean([trees.add(a, b, by) for a, b in zip(wide[:3], wide[3:], strict=True)], weights)
    apart = trees.add(trees.mean(wide[:3], weights), trees.mean(wide[3:], weights), by)
    torch.testing.assert_close(together, apart, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("weight", [1, 3, 7, 49, 10**6])
def test_the_mean_of_one_tree_is_that_tree(weight: int) -> None:
    assert trees.equal(trees.mean([tree()], [weight]), tree())


@pytest.mark.parametrize("position", [0, 1])
def test_a_weight_of_zero_means_absent(position: int) -> None:
    broken = trees.transform(tree(), lambda part: part * math.nan)
    several, weights = [tree(0), tree(1)], [2.0, 1.0]
    several.insert(position, broken)
    weights.insert(position, 0.0)
    assert trees.equal(trees.mean(several, weights), trees.mean([tree(0), tree(1)], [2.0, 1.0]))


def test_the_mean_keeps_the_types_of_the_tensors() -> None:
    mixed = {
        "w": torch.ones(2),
        "d": torch.ones(2, dtype=torch.float64),
        "h": torch.ones(2, dtype=torch.float16),
    }
    assert trees.equal(trees.mean([mixed, mixed], [1, 2]), mixed)


def test_the_mean_holds_one_tree_at_a_time() -> None:
    references: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def made() -> Iterator[Params]:
        for i in range(12):
            gc.collect()
            alive.append(sum(reference() is not None for reference in references))
            one = torch.full((5,), float(i))
            references.append(weakref.ref(one))
            leaf = {"w": one}
            del one
            yield leaf
            del leaf

    assert torch.equal(trees.mean(made(), [1.0] * 12)["w"], torch.full((5,), 5.5))
    assert max(alive) <= 1


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -0.5], [math.nan, 1.0], [-1.0, 3.0]])
def test_weights_without_a_meaning_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="at least 0 with a positive sum, got"):
        trees.mean([tree()] * len(weights), weights)


def test_as_many_weights_as_trees() -> None:
    with pytest.raises(ValueError, match="zip"):
        trees.mean([tree(), tree()], [1.0])


# Vectors


def test_unvector_undoes_vector() -> None:
    a = tree()
    row = trees.vector(a)
    assert row.shape == (17,)
    assert torch.equal(row[-12:].view(3, 4), a["w"])
    assert torch.equal(trees.vector(dict(reversed(a.items()))), row)  # whatever order the names came in
    assert trees.equal(trees.unvector(row, a), a)
    with pytest.raises(RuntimeError):
        trees.unvector(row[:-1], a)


def test_vector_reads_images_in_order_whatever_their_layout() -> None:
    image = torch.randn(2, 3, 4, 5)
    turned = image.contiguous(memory_format=torch.channels_last)
    assert torch.equal(trees.vector({"w": turned}), image.flatten())
    assert trees.equal(trees.unvector(image.flatten(), {"w": turned}), {"w": image})


def test_norm_is_euclidean_over_all_names() -> None:
    assert trees.norm({"a": torch.tensor([3.0]), "b": torch.tensor([[4.0], [12.0]])}) == pytest.approx(13.0)


@given(st.floats(0.01, 100))
def test_clip_shortens_what_is_too_long_and_only_that(limit: float) -> None:
    a = tree()
    clipped = trees.clip(a, limit)
    if trees.norm(a) <= limit:
        assert trees.equal(clipped, a)
    else:
        assert trees.norm(clipped) == pytest.approx(limit, rel=1e-5)
        cosine = torch.cosine_similarity(trees.vector(clipped), trees.vector(a), dim=0)
        assert float(cosine) == pytest.approx(1.0, abs=1e-5)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60), st.data())
def test_top_keeps_the_largest_and_of_equals_the_first(values: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(values)))
    row = torch.tensor(values, dtype=torch.float32)
    kept = trees.top({"a": row[:1], "b": row[1:]}, count / len(values))
    order = sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))
    expected = [value if i in order[:count] else 0 for i, value in enumerate(values)]
    assert trees.vector(kept).tolist() == expected


@example(100, 29)  # 0.29 * 100 is 28.999999999999996
@given(st.integers(1, 400), st.integers(0, 100))
def test_top_counts_floor_of_the_fraction(size: int, percent: int) -> None:
    kept = trees.top({"w": torch.ones(size)}, percent / 100)
    assert int(kept["w"].count_nonzero()) == percent * size // 100


def test_top_of_everything_and_of_nothing() -> None:
    assert trees.equal(trees.top(tree(), 1.0), tree())
    assert trees.equal(trees.top(tree(), 0.0), trees.zeros(tree()))


# Trees of trees

NESTED = {"n": 3.0, "a": {"x": torch.ones(2), "empty": {}, "b": {"y": torch.zeros(3, dtype=torch.float64)}}}


def test_leaves_come_with_their_paths_and_empty_subtrees_count() -> None:
    assert [path for path, _ in trees.leaves(NESTED)] == ["n", "a/x", "a/empty", "a/b/y"]
    assert dict(trees.leaves(NESTED))["a/empty"] == {}
    assert list(trees.leaves({})) == []


def test_nbytes_is_the_memory_of_the_tensors_and_eight_a_number() -> None:
    assert (
        trees.nbytes({"n": 3.0, "a": {"x": torch.ones(2), "y": torch.zeros(3, dtype=torch.float64)}})
        == 8 + 8 + 24
    )
    assert trees.nbytes({"m": {"i": torch.zeros(5, dtype=torch.uint8)}}) == 5
    assert trees.nbytes({}) == 0


def test_transform_changes_every_tensor_and_nothing_else() -> None:
    changed = trees.transform(NESTED, lambda part: part + 1)
    wanted = {"n": 3.0, "a": {"x": torch.full((2,), 2.0), "empty": {}, "b": {"y": torch.ones(3).double()}}}
    assert trees.equal(changed, wanted)
    assert torch.equal(NESTED["a"]["x"], torch.ones(2))  # type: ignore[index]


@pytest.mark.parametrize(
    "other",
    [
        {"w": torch.ones(2, dtype=torch.float64)},
        {"w": torch.ones(2, 1)},
        {"w": torch.ones(1)},
        {"w": torch.tensor([1.0, 1.0 + 2**-23])},
        {"v": torch.ones(2)},
        {"w": torch.ones(2), "v": 1.0},
        {"w": 1.0},
        {"w": {"w": torch.ones(2)}},
        {"w": torch.ones(2), "empty": {}},
        {},
    ],
)
def test_trees_differ_by_type_shape_value_or_name(other: trees.Tree) -> None:
    one = {"w": torch.ones(2)}
    assert trees.equal(one, {"w": torch.ones(2)})
    assert not trees.equal(one, other)
    assert not trees.equal(other, one)


def test_trees_differ_by_their_numbers() -> None:
    assert trees.equal({"n": 1.0, "m": 2.0}, {"m": 2.0, "n": 1.0})
    assert not trees.equal({"n": 1.0}, {"n": 2.0})
    assert not trees.equal({"n": 1.0}, {"n": True})


def test_equality_of_values_is_that_of_numbers() -> None:
    assert trees.equal({"w": torch.tensor([0.0])}, {"w": torch.tensor([-0.0])})
    assert not trees.equal({"w": torch.tensor([math.nan])}, {"w": torch.tensor([math.nan])})
