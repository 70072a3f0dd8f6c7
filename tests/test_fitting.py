"""Early stopping keeps the best epoch, stops in time, and loses nothing to an interruption."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import toys
from fedakd.errors import PlanError
from fedakd.fitting import Course, Epoch, Training, early_stopped, mean_loss, trained
from fedakd.training import Bench, Recipe, Task
from fedakd.trees import Params

TRAIN, VALIDATION = toys.rows(40, 1), toys.rows(24, 2)


def bench(seed: int = 0, net: str = "mlp") -> Bench:
    return Bench(Task(toys.NETS[net]), Recipe(batch_size=8, lr=0.1), (seed,))


def same(a: Params, b: Params) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def scripted(scores: list[float], seen: list[Params]) -> Callable[[Params], float]:
    """A score that says what it was told to, and remembers what it was asked about."""
    lines: Iterator[float] = iter(scores)

    def score(params: Params) -> float:
        seen.append(params)
        return next(lines)

    return score


@pytest.mark.parametrize(
    ("scores", "patience", "last", "best"),
    [
        ([9, 8, 7, 6, 5], 2, 4, 4),  # gains to the end
        ([9, 8, 8.5, 8.2, 1], 2, 3, 1),  # two in vain: the 1 is never seen
        ([9, 8, 8.5, 7, 7.5], 2, 4, 3),  # a gain in time makes patience begin anew
        ([9, 8, 8, 8, 8], 3, 4, 1),  # of equals the first, and an equal is no gain
        ([1, 2, 3, 4, 5], 1, 1, 0),  # no epoch is better than the start
        ([9, math.nan, 8, math.nan, math.nan], 2, 4, 2),
        ([math.nan, 3, math.inf, 4, 5], 2, 3, 1),
    ],
)
def test_the_best_epoch_is_kept_and_patience_ends_it(scores, patience, last, best):
    seen: list[Params] = []
    own = bench()
    course = early_stopped(own, own.init(0), TRAIN, scripted(scores, seen), epochs=4, patience=patience)
    assert [epoch.number for epoch in course.history] == list(range(last + 1))
    assert course.best_epoch.number == best
    assert same(course.best, seen[best])
    assert same(course.now, seen[last])


def test_an_epoch_is_one_fit_of_one_epoch_in_an_order_of_its_own():
    own, seen = bench(), []
    own.recipe = replace(own.recipe, epochs=3)  # means nothing here
    start = own.init(0)
    course = early_stopped(own, start, TRAIN, scripted([3, 2, 1], seen), epochs=2, patience=2)
    expected = start
    for number in (1, 2):
        once = replace(own.recipe, epochs=1)
        expected = own.fit(expected, TRAIN, recipe=once, purpose=f"epoch {number}")
        assert same(seen[number], expected)
    orders = [torch.cat([b.rows for b in own.batches(TRAIN, purpose=f"epoch {n}")]) for n in (1, 2)]
    assert not torch.equal(*orders)
    assert same(course.best, expected)


def test_the_train_loss_is_the_mean_over_rows_on_the_way():
    own = Bench(Task(toys.NETS["mlp"]), Recipe(batch_size=32, lr=0.0), (0,))  # 40 rows: batches of 32 and 8
    start = own.init(0)
    (first, epoch) = early_stopped(own, start, TRAIN, lambda _: 0.0, epochs=1, patience=1).history
    assert math.isnan(first.train)
    assert epoch.train == pytest.approx(own.risk(start, TRAIN), rel=1e-6)


def test_progress_is_told_each_epoch_when_it_is_over():
    told: list[Epoch] = []
    own = bench()
    course = early_stopped(own, own.init(0), TRAIN, lambda _: 0.5, epochs=9, patience=3, progress=told.append)
    assert told == list(course.history[1:])
    assert [epoch.number for epoch in told] == [1, 2, 3]


@pytest.mark.parametrize("net", ["mlp", "cnn"])
def test_the_mean_loss_is_that_of_all_rows_at_once(net):
    own = bench(net=net)
    params = own.fit(own.init(0), TRAIN)
    expected = float(F.cross_entropy(own.logits(params, VALIDATION), VALIDATION.y))
    assert mean_loss(own, params, VALIDATION) == pytest.approx(expected, rel=1e-5)


def test_judging_draws_the_same_numbers_each_time_and_leaves_torchs_stream_alone():
    own = bench()
    params = own.init(0)

    def noisy(module, batch):
        return own.loss(module, batch) + torch.randn(())

    before = torch.get_rng_state()
    first, second = (mean_loss(own, params, VALIDATION, noisy) for _ in range(2))
    assert first == second != mean_loss(own, params, VALIDATION)
    assert torch.equal(torch.get_rng_state(), before)


# The cache


def course(cache: Path | None = None, progress=None, seed: int = 0, train=TRAIN, **how: int) -> Course:
    own = bench(seed)
    limits = {"epochs": 5, "patience": 5, **how}
    return trained(
        "toy", own, own.init(seed), train, VALIDATION, Training(**limits, progress=progress, cache=cache)
    )


def stop_after(number: int) -> Callable[[Epoch], None]:
    def progress(epoch: Epoch) -> None:
        if epoch.number == number:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("number", [1, 3])
def test_an_interrupted_training_goes_on_and_ends_as_it_would_have(tmp_path, number):
    with pytest.raises(KeyboardInterrupt):
        course(tmp_path, stop_after(number))
    told: list[Epoch] = []
    resumed, whole = course(tmp_path, told.append), course()
    assert [epoch.number for epoch in told] == list(range(number + 1, 6))
    assert same(resumed.best, whole.best)
    assert same(resumed.now, whole.now)
    assert resumed.history[1:] == whole.history[1:]


def test_it_goes_on_from_the_last_epoch_and_not_from_the_best(tmp_path):
    own, path = bench(), tmp_path / "course"
    scores = [5.0, 1.0, 2.0, 3.0, 0.5]
    fit = partial(early_stopped, own, own.init(0), TRAIN, patience=5)
    whole = fit(scripted(scores, []), epochs=4)
    fit(scripted(scores, []), epochs=2, store=path)
    resumed = fit(scripted(scores[3:], []), epochs=4, store=path)
    assert same(resumed.now, whole.now)
    assert resumed.history[1:] == whole.history[1:]


def test_what_is_done_is_not_done_again(tmp_path):
    first = course(tmp_path / "new" / "folder")
    told: list[Epoch] = []
    again = course(tmp_path / "new" / "folder", told.append)
    assert told == []
    assert same(again.best, first.best)


def test_other_rows_or_settings_are_another_training(tmp_path):
    course(tmp_path)
    other = toys.rows(40, 1)
    other.x[0, 0, 0, 0] += 0.01  # type: ignore[index]
    flipped = toys.rows(40, 1)
    flipped.y[0] = (flipped.y[0] + 1) % 4
    for change in ({"seed": 1}, {"epochs": 4}, {"patience": 4}, {"train": other}, {"train": flipped}):
        told: list[Epoch] = []
        course(tmp_path, told.append, **change)  # type: ignore[arg-type]
        assert told, change
    assert len(list(tmp_path.glob("toy-*.safetensors"))) == 6


def test_a_damaged_file_is_named_with_what_to_do(tmp_path):
    course(tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"nonsense")
    with pytest.raises(PlanError, match=rf"{path.name}.*delete the file"):
        course(tmp_path)


@pytest.mark.parametrize("limit", ["epochs", "patience"])
def test_there_must_be_something_to_train_with(limit):
    with pytest.raises(PlanError, match=f"{limit} must be at least 1, got 0"):
        course(**{limit: 0})
    with pytest.raises(PlanError, match="train rows must be at least 1, got 0"):
        course(train=TRAIN[torch.arange(0)])
