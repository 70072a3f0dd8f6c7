"""Laws of the one training loop: pure, seeded, and the loop anyone would write by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import toys
from fedakd import training, trees
from fedakd.errors import FedakdError
from fedakd.examples import Examples
from fedakd.models import factory
from fedakd.models.mlp import MLP
from fedakd.seeds import derived_seed
from fedakd.training import Batch, Bench, Diverged, Recipe, Task, batch_sizes

CLASSES = 4


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5)
        )
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, CLASSES), nn.Linear(2, CLASSES)

    def forward(self, x: dict[str, Tensor]) -> Tensor:
        return self.a(x["a"]) + self.b(x["b"])  # type: ignore[no-any-return]


MAKERS: dict[str, Callable[[], nn.Module]] = {
    "cnn": factory("cnn", (1, 8, 8), CLASSES),
    "mlp": factory("mlp", (1, 8, 8), CLASSES),
    "dropping": Dropping,
}


def bench(model: str = "mlp", stream: tuple[int, ...] = (0, 1, 2), **recipe: object) -> Bench:
    return Bench(Task(MAKERS[model]), Recipe(**{"batch_size": 8, **recipe}), stream)  # type: ignore[arg-type]


def rows(n: int = 30, seed: int = 0) -> Examples:
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 1, 8, 8, generator=rng).contiguous(memory_format=torch.channels_last)
    return Examples(x, torch.randint(0, CLASSES, (n,), generator=rng))


# Batches


@given(st.integers(0, 500), st.integers(2, 70))
def test_batches_cover_the_rows_and_none_has_one_row(n: int, size: int) -> None:
    sizes = batch_sizes(n, size)
    assert sum(sizes) == n
    assert sizes == [1] if n == 1 else 1 not in sizes
    assert max(sizes, default=0) <= size + 1
    assert all(one == size for one in sizes[:-1])


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 30])
def test_an_epoch_sees_every_row_once_with_its_label(n: int) -> None:
    one, data = bench(), rows(n)
    thrice = replace(one.recipe, epochs=3)
    batches = list(one.batches(data, thrice))
    assert len(batches) == one.steps(data, thrice)
    for epoch in range(3):
        seen = [i for b in batches[epoch * one.steps(data) :][: one.steps(data)] for i in b.rows.tolist()]
        assert sorted(seen) == list(range(n))
    for batch in batches:
        assert torch.equal(batch.x, data.x[batch.rows])  # type: ignore[index, arg-type]
        assert torch.equal(batch.y, data.y[batch.rows])


def test_the_order_depends_on_stream_purpose_and_epoch_alone() -> None:
    def order(stream: tuple[int, ...], purpose: str = "fit", epochs: int = 1) -> list[int]:
        one = bench(stream=stream, epochs=epochs)
        return [i for b in one.batches(rows(), purpose=purpose) for i in b.rows.tolist()]

    assert order((0, 1, 2)) == order((0, 1, 2)) == order((0, 1, 2), epochs=2)[:30]
    streams = [(0, 1, 2), (5, 1, 2), (0, 5, 2), (0, 1, 5), (0, 2, 1)]
    orders = [order(stream) for stream in streams] + [
        order((0, 1, 2), "other"),
        order((0, 1, 2), epochs=2)[30:],
    ]
    assert len({tuple(one) for one in orders}) == len(orders)


def test_seeds_depend_on_every_part() -> None:
    streams = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1), (2**40, 0, 0)]
    parts = [
        (*stream, *words) for stream in streams for words in (["fit"], ["fit", "layers"], ["layers", "fit"])
    ]
    assert len({derived_seed(*part) for part in parts}) == len(parts)
    assert derived_seed(3, "fit") == derived_seed(3, "fit")
    assert all(0 <= derived_seed(*part) < 2**63 for part in parts)


# Fitting


def by_hand(
    model: nn.Module, params: trees.Params, batches: list[Batch], recipe: Recipe
) -> dict[str, Tensor]:
    model.load_state_dict(params, strict=False)
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[recipe.optimizer]
    stepper = kind(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    for batch in batches:
        stepper.zero_grad()
        F.cross_entropy(model.train()(batch.x), batch.y).backward()
        stepper.step()
    return {name: value for name, value in model.state_dict().items() if value.is_floating_point()}


@pytest.mark.parametrize("model", ["cnn", "mlp"])
@pytest.mark.parametrize(
    "recipe", [Recipe(2, 8, 0.1), Recipe(3, 8, 0.01, "adam", 0.1), Recipe(1, 16, 0.1, "sgd", 0.5)]
)
def test_fitting_is_the_loop_written_by_hand(model: str, recipe: Recipe) -> None:
    one = Bench(Task(lambda: MAKERS[model]().double()), recipe, (0, 1))
    data = Examples(rows(33).x.double(), rows(33).y)  # type: ignore[union-attr]
    params = one.init(0)
    expected = by_hand(one.task.model(), params, list(one.batches(data)), recipe)
    fitted = one.fit(params, data)
    assert list(fitted) == list(expected)
    torch.testing.assert_close(fitted, expected, rtol=1e-8, atol=1e-8)
    assert not trees.equal(fitted, params)


@pytest.mark.parametrize("model", MAKERS)
@pytest.mark.parametrize("n", [0, 1, 2, 30])
def test_fitting_changes_nothing_it_is_given(model: str, n: int) -> None:
    one, data = bench(model, lr=0.5), rows(n)
    params = one.init(0)
    state = torch.get_rng_state()
    fitted = one.fit(params, data)
    assert torch.equal(torch.get_rng_state(), state)
    assert trees.equal(params, bench(model).init(0))
    assert trees.equal({"x": data.x, "y": data.y}, {"x": rows(n).x, "y": rows(n).y})
    assert trees.equal(fitted, params) == (n == 0)
    trees.transform(fitted, Tensor.zero_)
    assert trees.equal(one.fit(params, data), bench(model, lr=0.5).fit(params, data))
    assert all(p.grad is None and p.requires_grad for p in one.module.parameters())


@pytest.mark.parametrize("model", MAKERS)
def test_fits_agree_for_equal_streams_and_differ_for_others(model: str) -> None:
    params, data = bench(model).init(0), rows()
    fits = [
        bench(model, stream).fit(params, data)
        for stream in [(0, 1, 2), (0, 1, 2), (9, 1, 2), (0, 9, 2), (0, 1, 9)]
    ]
    assert trees.equal(fits[0], fits[1])
    assert not any(trees.equal(fits[0], other) for other in fits[2:])


def test_one_bench_after_another_fits_as_if_alone() -> None:
    first, second = bench("cnn", (0, 1)), bench("cnn", (0, 2))
    shared = Bench(second.task, second.recipe, second.stream, module=first.module)
    params = first.init(0)
    first.fit(params, rows(seed=5))
    first.logits(params, rows())
    assert trees.equal(shared.fit(params, rows()), second.fit(params, rows()))


def test_counters_of_batches_do_not_pass_from_one_fit_to_the_next() -> None:
    """With momentum=None they are part of batch norm's running statistics."""
    layers = (lambda: nn.Flatten(), lambda: nn.Linear(64, 6), lambda: nn.BatchNorm1d(6, momentum=None))
    own = Bench(Task(lambda: nn.Sequential(*(make() for make in layers), nn.Linear(6, 4))), Recipe())
    w = own.init(0)
    first, second = (own.fit(w, toys.rows(50, 1)) for _ in range(2))
    assert trees.equal(first, second)
    assert not torch.equal(first["2.running_mean"], w["2.running_mean"])


def test_layers_that_draw_numbers_draw_them_from_stream_and_purpose() -> None:
    def drawn(stream: tuple[int, ...], purpose: str = "fit") -> tuple[float, ...]:
        one, numbers = bench(stream=stream), []

        def loss(module: nn.Module, batch: Batch) -> Tensor:
            numbers.append(float(torch.rand(())))  # as dropout would
            return one.loss(module, batch)

        one.fit(one.init(0), rows(), loss=loss, purpose=purpose)
        return tuple(numbers)

    assert drawn((0, 1)) == drawn((0, 1))
    assert len({drawn((0, 1)), drawn((0, 2)), drawn((9, 1)), drawn((0, 1), "other")}) == 4
    assert len(set(drawn((0, 1)))) == bench().steps(rows())


@pytest.mark.parametrize("model", MAKERS)
def test_initial_values_depend_on_the_seed_alone(model: str) -> None:
    one, other = bench(model, (0, 0)), bench(model, (8, 9))
    state = torch.get_rng_state()
    assert trees.equal(one.init(3), other.init(3))
    assert not trees.equal(one.init(3), one.init(4))
    assert torch.equal(torch.get_rng_state(), state)
    assert set(one.trainable) == {name for name in one.init(3) if "running" not in name}


def test_steps_and_sample_gradients_are_counted() -> None:
    one, data, calls = bench(epochs=2), rows(33), []

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        calls.append(len(batch.y))
        return one.loss(module, batch)

    one.fit(one.init(0), data, loss=loss)
    assert len(calls) == one.steps(data) == 2 * 4
    assert one.gradients == sum(calls) == 66
    longer = replace(one.recipe, epochs=5)
    one.fit(one.init(0), data, loss=loss, recipe=longer)
    assert len(calls) == one.steps(data) + one.steps(data, longer)
    assert one.gradients == 66 + 165


# Options of a fit


@pytest.mark.parametrize("model", ["cnn", "mlp"])
def test_the_hook_rewrites_gradients_before_the_step(model: str) -> None:
    one, data = bench(model, lr=0.1), rows(8)
    params, c = one.init(0), {name: 0.3 for name in one.trainable}
    plain = one.fit(params, data)
    moved = one.fit(params, data, grad=lambda name, g: g + c[name])
    weights = [name for name in one.trainable if "conv.bias" not in name]  # batch norm cancels these biases
    for name in weights:
        torch.testing.assert_close(moved[name], plain[name] - 0.1 * 0.3, rtol=1e-5, atol=1e-6)
    still = one.fit(params, data, grad=lambda _, g: torch.zeros_like(g))
    assert trees.equal(trees.pick(still, one.trainable), trees.pick(params, one.trainable))


def test_only_the_named_parameters_move() -> None:
    one, data = bench("cnn", lr=0.1, epochs=2), rows()
    params = one.init(0)
    fitted = one.fit(params, data, only=lambda name: name.startswith("head"))
    moved = {name for name in one.trainable if not torch.equal(fitted[name], params[name])}
    assert moved == {"head.weight", "head.bias"}
    assert all(p.requires_grad and p.grad is None for p in one.module.parameters())
    assert trees.equal(one.fit(params, data), bench("cnn", lr=0.1, epochs=2).fit(params, data))


@pytest.mark.parametrize(
    "change", [{"epochs": 3}, {"weight_decay": 0.2}, {"lr": 0.3}, {"batch_size": 5}, {"optimizer": "adam"}]
)
def test_one_fit_can_have_a_recipe_of_its_own(change: dict[str, Any]) -> None:
    params, data = bench().init(0), rows()
    changed = bench().fit(params, data, recipe=replace(bench().recipe, **change))
    assert trees.equal(changed, bench(**change).fit(params, data))
    assert not trees.equal(changed, bench().fit(params, data))


def test_parameters_and_buffers_are_apart() -> None:
    one = bench("cnn")
    params = one.init(0)
    trained, rest = one.parameters(params), one.buffers(params)
    assert list(trained) == one.trainable
    assert {name.rpartition(".")[2] for name in rest} == {"running_mean", "running_var"}
    assert trees.equal({**trained, **rest}, params)


def test_another_module_can_be_fitted() -> None:
    one, data, linear = bench(lr=0.1), rows(), MLP(64, CLASSES, ())
    params = training.snapshot(linear)
    own = trees.transform(training.snapshot(one.module), Tensor.clone)
    fitted = one.fit(params, data, module=linear)
    expected = by_hand(MLP(64, CLASSES, ()), params, list(one.batches(data)), one.recipe)
    torch.testing.assert_close(fitted, expected)
    assert trees.equal(training.snapshot(one.module), own)


def test_inputs_by_name_can_be_fitted() -> None:
    one = Bench(Task(Named), Recipe(5, 8, 0.5))
    y = torch.arange(20) % CLASSES
    data = Examples({"a": torch.randn(20, 3), "b": F.one_hot(y % 2).float()}, y)
    params = one.init(0)
    assert one.risk(one.fit(params, data), data) < one.risk(params, data)


@pytest.mark.parametrize(("bad", "word"), [(math.nan, "nan"), (math.inf, "nan|inf")])
def test_a_loss_that_is_no_number_names_its_step(bad: float, word: str) -> None:
    one, data = bench(), rows()
    third = list(one.batches(data))[2].rows[0]
    data.x[third] = bad  # type: ignore[index]
    params = one.init(0)
    with pytest.raises(Diverged, match=rf"^step 3: the loss is ({word})$"):
        one.fit(params, data)
    assert all(p.grad is None and p.requires_grad for p in one.module.parameters())
    assert trees.equal(one.fit(params, rows()), bench().fit(params, rows()))


def test_an_infinite_loss_is_no_number_either() -> None:
    one = bench()
    with pytest.raises(Diverged, match="step 1: the loss is inf"):
        one.fit(one.init(0), rows(), loss=lambda module, batch: one.loss(module, batch) * math.inf)


def test_a_fit_that_fails_leaves_no_gradients_behind() -> None:
    one = bench()
    with pytest.raises(ZeroDivisionError):
        one.fit(one.init(0), rows(), grad=lambda _, g: g * (1 / 0), only=lambda name: "bias" in name)
    assert all(p.grad is None and p.requires_grad for p in one.module.parameters())


@pytest.mark.parametrize("name", ["lr", "weight_decay"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1])
def test_a_rate_that_is_no_finite_number_is_refused(name: str, value: float) -> None:
    with pytest.raises(
        FedakdError, match=f"Recipe: {name} must be a finite number of 0 or more, got {value}"
    ):
        Recipe(**{name: value})
    with pytest.raises(FedakdError, match=name):
        replace(Recipe(), **{name: value})


@pytest.mark.parametrize("name", ["epochs", "batch_size"])
@pytest.mark.parametrize("value", [0, -3])
def test_no_epoch_and_no_row_a_step_are_refused(name: str, value: int) -> None:
    with pytest.raises(FedakdError, match=f"Recipe: {name} must be 1 or more, got {value}"):
        Recipe(**{name: value})


def test_a_rate_of_zero_is_allowed() -> None:
    assert Recipe(lr=0.0).as_sgd(0.0).lr == 0.0
