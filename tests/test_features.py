"""Feature maps: fitted on train rows alone, the same for a seed, and what their names say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

from fedakd import data
from fedakd.errors import DataError, FedakdError, PlanError
from fedakd.examples import Examples
from fedakd.features import KINDS, FeatureMap, fitted
from fedakd.fitting import Epoch
from fedakd.models import factory
from fedakd.models.mlp import MLP
from fedakd.training import Bench, Recipe, Task

pytestmark = pytest.mark.slow  # together they train for more than a few seconds

DIGITS = data.load("digits")
TRAIN, VALIDATION, TEST = np.arange(0, 900), np.arange(900, 1100), np.arange(1100, 1797)
SHORT: dict[str, Any] = {"dims": 8, "epochs": 2, "model": "mlp"}


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of numbers, as a dataset of one's own may be."""

    x: NDArray[Any]
    y: NDArray[np.int64]
    name: str = "table"
    classes: int = 2

    def examples(self, rows: NDArray[np.int64]) -> Examples:
        return Examples(torch.from_numpy(self.x[rows]).float(), torch.from_numpy(self.y[rows]))


def table(rows: int = 300, seed: int = 0) -> Table:
    """Two classes apart along a slant, a column that never varies and one in other units."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, rows)
    x = rng.standard_normal((rows, 5)) + y[:, None] * [2.0, 1.0, 0.0, 0.0, 0.0]
    x[:, 2] = 4.5
    x[:, 3] *= 1000
    return Table(x, y)


def split(dataset: Table) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    return tuple(np.split(np.arange(len(dataset.y)), [200, 250]))  # type: ignore[return-value]


@cache
def digits_map(kind: str, seed: int = 0) -> FeatureMap:
    return fitted(kind, DIGITS, TRAIN, VALIDATION, seed=seed, **SHORT)


# All kinds


@pytest.mark.parametrize("kind", KINDS)
def test_a_map_gives_one_line_of_finite_numbers_for_each_row_in_any_order(kind):
    found = digits_map(kind)(TEST)
    assert found.dtype == np.float64
    assert found.shape == (len(TEST), 8) if kind != "raw" else found.ndim == 2
    some = TEST[[30, 3, 3, 500]]
    assert np.allclose(digits_map(kind)(some), found[[30, 3, 3, 500]], atol=1e-4)
    assert len(np.unique(found, axis=0)) > 600


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_bits_whatever_torchs_stream_and_threads(kind):
    torch.manual_seed(77)
    torch.set_num_threads(2)
    again = fitted(kind, DIGITS, TRAIN, VALIDATION, seed=0, **SHORT)
    assert np.array_equal(again(TEST), digits_map(kind)(TEST))


@pytest.mark.parametrize("kind", ["encoder", "vae"])
def test_another_seed_gives_other_features(kind):
    assert not np.allclose(digits_map(kind, seed=1)(TEST), digits_map(kind)(TEST), atol=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_neither_train_nor_validation_have_no_influence(kind):
    x = DIGITS.x.copy()
    x[TEST] = 255 - x[TEST]
    y = DIGITS.y.copy()
    y[TEST] = 0
    changed = fitted(kind, replace(DIGITS, x=x, y=y), TRAIN, VALIDATION, seed=0, **SHORT)
    known = np.concatenate([TRAIN, VALIDATION])
    assert np.array_equal(changed(known), digits_map(kind)(known))
    assert not np.allclose(changed(TEST), digits_map(kind)(TEST))


@pytest.mark.parametrize("kind", KINDS)
def test_train_rows_have_influence_and_validation_rows_only_choose(kind):
    x = DIGITS.x.copy()
    x[VALIDATION] = 255 - x[VALIDATION]
    changed = fitted(kind, replace(DIGITS, x=x), TRAIN, VALIDATION, seed=0, **SHORT)
    if kind in ("raw", "pca"):
        assert np.array_equal(changed(TEST), digits_map(kind)(TEST))
    fewer = fitted(kind, DIGITS, TRAIN[:40], VALIDATION, seed=0, **SHORT)
    assert fewer(TEST).shape != digits_map(kind)(TEST).shape or not np.allclose(
        fewer(TEST), digits_map(kind)(TEST)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_numbers_have_features_too(kind):
    dataset = table()
    train, validation, test = split(dataset)
    found = fitted(kind, dataset, train, validation, dims=2, epochs=2, model="mlp")(test)
    assert found.shape == (50, 4 if kind == "raw" else 2)


# Raw


def test_raw_drops_what_is_constant_on_train_rows_and_keeps_the_order():
    dataset = table()
    train, validation, test = split(dataset)
    dataset.x[test, 2] = 9.0  # varies, but not on train rows
    found = fitted("raw", dataset, train, validation)(test)
    assert np.array_equal(found, dataset.x[test][:, [0, 1, 3, 4]])


def test_raw_pixels_are_those_of_the_images():
    varying = DIGITS.x[TRAIN].reshape(len(TRAIN), 64).std(axis=0) > 0
    assert 50 < varying.sum() < 64
    assert np.array_equal(digits_map("raw")(TEST), DIGITS.x[TEST].reshape(len(TEST), 64)[:, varying])


# PCA


@pytest.mark.parametrize("dims", [1, 8, 40, 60])
def test_pca_is_that_of_sklearn_up_to_sign(dims):
    ours = fitted("pca", DIGITS, TRAIN, VALIDATION, dims=dims)(TEST)
    x = DIGITS.x.reshape(-1, 64).astype(np.float64)
    exact = PCA(dims, svd_solver="full").fit(x[TRAIN]).transform(x[TEST])
    signs = np.sign((ours * exact).sum(axis=0))
    spread = exact[:, 0].std()
    assert np.allclose(ours * signs, exact, atol=1e-3 * spread)


def test_pca_gives_no_more_features_than_vary():
    found = fitted("pca", DIGITS, TRAIN, VALIDATION, dims=100)(TRAIN)
    assert found.shape[1] <= digits_map("raw")(TRAIN).shape[1]
    total = DIGITS.x[TRAIN].reshape(len(TRAIN), 64).var(axis=0).sum()
    assert found.var(axis=0).sum() == pytest.approx(total, rel=1e-4)  # nothing is lost


# Encoder


def probe(features: FeatureMap) -> float:
    """The accuracy of a linear classifier on test rows."""
    a, b = features(TRAIN), features(TEST)
    scale = a.std(axis=0)
    model = LogisticRegression(max_iter=1000).fit(a / scale, DIGITS.y[TRAIN])
    return float(model.score(b / scale, DIGITS.y[TEST]))


def test_a_trained_encoder_tells_classes_apart_better_than_an_untrained_one_and_chance():
    trained = fitted("encoder", DIGITS, TRAIN, VALIDATION, dims=3, epochs=8, model="cnn")
    start = Bench(Task(factory("cnn", (1, 8, 8), 10)), Recipe()).init(0)
    untrained = fitted("encoder", DIGITS, TRAIN, VALIDATION, dims=3, model="cnn", params=start)
    assert probe(trained) > probe(untrained) + 0.05
    assert probe(trained) > 0.6


def test_the_latent_of_a_vae_tells_classes_apart():
    assert probe(digits_map("vae")) > 0.5


def test_given_parameters_are_taken_as_they_are_and_nothing_is_trained():
    bench = Bench(Task(factory("mlp", (1, 8, 8), 10)), Recipe())
    params = bench.fit(bench.init(5), DIGITS.examples(TRAIN))
    told: list[Epoch] = []
    features = fitted(
        "encoder", DIGITS, TRAIN, VALIDATION, dims=4, model="mlp", params=params, progress=told.append
    )
    bodies = bench.features(params, DIGITS.examples(np.arange(len(DIGITS)))).double().numpy()
    exact = PCA(4).fit(bodies[TRAIN]).transform(bodies[TEST])
    ours = features(TEST)
    assert np.allclose(ours * np.sign((ours * exact).sum(axis=0)), exact, atol=1e-3 * exact[:, 0].std())
    assert told == []


def test_a_model_of_ones_own_can_be_the_encoder():
    make = partial(MLP, 64, 10, (6,))
    features = fitted("encoder", DIGITS, TRAIN, VALIDATION, dims=100, epochs=1, model=make)
    assert features(TEST).shape[1] <= 6


# Progress, cache, refusals


@pytest.mark.parametrize("kind", ["encoder", "vae"])
def test_training_tells_its_progress_and_is_cached(kind, tmp_path):
    told: list[Epoch] = []
    options = {**SHORT, "cache": tmp_path, "progress": told.append}
    first = fitted(kind, DIGITS, TRAIN, VALIDATION, **options)
    assert [epoch.number for epoch in told] == [1, 2]
    again = fitted(kind, DIGITS, TRAIN, VALIDATION, **options)
    assert len(told) == 2
    assert np.array_equal(first(TEST), again(TEST))
    assert np.array_equal(first(TEST), digits_map(kind)(TEST))
    fitted(kind, DIGITS, TRAIN[1:], VALIDATION, **options)
    assert len(told) == 4


@pytest.mark.parametrize("kind", ["encoder", "vae"])
def test_ctrl_c_loses_no_epoch_that_was_done(kind, tmp_path):
    def stop(epoch: Epoch) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(kind, DIGITS, TRAIN, VALIDATION, **SHORT, cache=tmp_path, progress=stop)
    told: list[Epoch] = []
    resumed = fitted(kind, DIGITS, TRAIN, VALIDATION, **SHORT, cache=tmp_path, progress=told.append)
    assert [epoch.number for epoch in told] == [2]
    assert np.array_equal(resumed(TEST), digits_map(kind)(TEST))


def test_an_unknown_kind_is_named_with_its_neighbours():
    with pytest.raises(PlanError, match=r"unknown kind of features 'pac'; did you mean 'pca'.*Known: raw"):
        fitted("pac", DIGITS, TRAIN, VALIDATION)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", [0, -3, 2.5])
def test_dims_must_be_a_number_of_features(kind, dims):
    with pytest.raises(PlanError, match=f"whole number from 1 on, got {dims}"):
        fitted(kind, DIGITS, TRAIN, VALIDATION, dims=dims)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_needed_to_fit_to_and_to_choose_by(kind):
    none = TRAIN[:0]
    with pytest.raises(DataError, match="fitted on train rows, got none"):
        fitted(kind, DIGITS, none, VALIDATION)
    if kind in ("encoder", "vae"):
        with pytest.raises(DataError, match=r"need validation rows.*ratio=\(7, 1, 2\)"):
            fitted(kind, DIGITS, TRAIN, none)
    else:
        fitted(kind, DIGITS, TRAIN, none)
    with pytest.raises(DataError, match="asked of no row"):
        digits_map(kind)(none)


@pytest.mark.parametrize("kind", ["raw", "pca"])
def test_features_that_do_not_vary_are_no_features(kind):
    flat = Table(np.ones((300, 4)), np.zeros(300, dtype=np.int64))
    train, validation, _ = split(flat)
    with pytest.raises(FedakdError, match=r"vary|varies"):
        fitted(kind, flat, train, validation)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_with_a_hole_is_named(kind):
    dataset = table()
    train, validation, test = split(dataset)
    features = fitted(kind, dataset, train, validation, dims=2, epochs=1, model="mlp")
    dataset.x[test[7], 1] = np.nan
    with pytest.raises(DataError, match=f"nan or inf for row {test[7]} .*mend or drop"):
        features(test)


def test_parameters_of_another_model_are_refused():
    other = Bench(Task(factory("linear", (1, 8, 8), 10)), Recipe()).init(0)
    with pytest.raises(PlanError, match="not parameters of the model 'mlp'"):
        fitted("encoder", DIGITS, TRAIN, VALIDATION, model="mlp", params=other)
