"""What rows are described by when shift is measured: as they are, by PCA, a model's encoder or a VAE.

A feature map is fitted on train rows; where something is trained, validation rows say when to stop. No other
row of the dataset is looked at until the map is asked about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedakd.errors import DataError, PlanError, unknown
from fedakd.examples import Examples
from fedakd.fitting import Progress, Training, trained
from fedakd.models import factory
from fedakd.models.vae import TRAINING, train_vae, vae_bench
from fedakd.partition import whitening
from fedakd.partition.contract import Features, Rows
from fedakd.seeds import derived_seed
from fedakd.threads import one_blas_thread, one_thread
from fedakd.training import Bench, Recipe, Task
from fedakd.trees import Params

FeatureMap = Callable[[Rows], Features]  # (len(rows), M)
Model = str | Callable[[], nn.Module]  # a name, or a maker of something with a .body

KINDS = {
    "raw": "all features that vary, as they are",
    "pca": "principal components, each with the variance it has",
    "encoder": "what the body of a trained model makes of a row, by principal components",
    "vae": "the latent mean of a variational autoencoder",
}
TRAINED = ("encoder", "vae")
RECIPE = Recipe(batch_size=64, lr=1e-3, optimizer="adam")  # of an encoder
BLOCK = 4096  # rows turned into tensors at a time


class Source(Protocol):
    """What is needed of a dataset: its rows, and the tensors a model sees of them."""

    @property
    def classes(self) -> int: ...
    @property
    def x(self) -> NDArray[Any]: ...
    def examples(self, rows: Rows) -> Examples: ...


@dataclass(frozen=True)
class Pools:
    """The rows a map may be fitted to and chosen by."""

    dataset: Source
    train: Rows
    validation: Rows

    def examples(self) -> tuple[Examples, Examples]:
        return self.dataset.examples(self.train), self.dataset.examples(self.validation)


def fitted(
    kind: str,
    dataset: Source,
    train: Rows,
    validation: Rows,
    *,
    dims: int = 100,
    seed: int = 0,
    progress: Progress | None = None,
    model: Model = "cnn",
    params: Params | None = None,
    epochs: int = TRAINING.epochs,
    patience: int = TRAINING.patience,
    cache: Path | None = None,
) -> FeatureMap:
    """The map of that kind; PCA gives fewer than `dims` features where fewer vary, "raw" all that vary.

    "encoder" trains `model` on the labels, unless `params` are its trained parameters. What is trained is
    kept in the folder `cache` after each epoch, and used again for the same rows and settings.
    """
    _check(kind, train, validation, dims)
    pools, how = Pools(dataset, train, validation), Training(epochs, patience, progress, cache)
    makers: dict[str, Callable[[], FeatureMap]] = {
        "raw": lambda: _raw(pools),
        "pca": lambda: _pca(pools, dims, seed),
        "encoder": lambda: _encoder(pools, dims, seed, how, model, params),
        "vae": lambda: _vae(pools, dims, seed, how),
    }
    return partial(_finite, makers[kind](), kind)


def _raw(pools: Pools) -> FeatureMap:
    x = pools.dataset.x
    rows = x[pools.train].reshape(len(pools.train), -1)
    varying = np.flatnonzero(rows.min(axis=0) != rows.max(axis=0))
    if not len(varying):
        raise DataError("no feature varies on the train rows: all of them are equal")
    return lambda rows: x[rows].reshape(len(rows), -1)[:, varying].astype(np.float64)


def _pca(pools: Pools, dims: int, seed: int) -> FeatureMap:
    components = _components(pools.dataset.x, pools.train, dims, seed)
    return lambda rows: _projected(components, pools.dataset.x, rows)


def _vae(pools: Pools, dims: int, seed: int, how: Training) -> FeatureMap:
    params, _ = train_vae(*pools.examples(), dims=dims, seed=seed, how=how)
    bench = vae_bench(pools.dataset.examples(pools.train[:1]), dims)
    outputs = partial(_outputs, bench.logits, params, pools.dataset)
    return lambda rows: np.concatenate([block.astype(np.float64) for block in outputs(rows)])


def _encoder(
    pools: Pools, dims: int, seed: int, how: Training, model: Model, params: Params | None
) -> FeatureMap:
    bench = Bench(Task(_maker(pools, model)), RECIPE, (seed,))
    if params is None:
        params = trained("encoder", bench, bench.init(seed), *pools.examples(), how).best
    outputs = partial(_outputs, bench.features, _fitting(params, bench, model), pools.dataset)
    bodies = np.concatenate(list(outputs(pools.train)))  # (rows, width)
    components = _components(bodies, np.arange(len(bodies)), dims, seed)
    return lambda rows: np.concatenate([_projected(components, block) for block in outputs(rows)])


def _maker(pools: Pools, model: Model) -> Callable[[], nn.Module]:
    if not isinstance(model, str):
        return model
    x = pools.dataset.examples(pools.train[:1]).x
    if isinstance(x, dict):
        raise DataError(f"model {model!r} needs rows that are one tensor, got {len(x)} by name; give a maker")
    return factory(model, tuple(x.shape[1:]), pools.dataset.classes)


def _fitting(params: Params, bench: Bench, model: Model) -> Params:
    expected = {name: tuple(part.shape) for name, part in bench.init(0).items()}
    wrong = [name for name, shape in expected.items() if name not in params or params[name].shape != shape]
    if wrong:
        raise PlanError(
            f"these are not parameters of the model {model!r}: {wrong[0]} is missing or misshapen"
        )
    return params


def _components(x: NDArray[Any], rows: Rows, dims: int, seed: int) -> whitening.Whitening:
    with one_blas_thread():
        return whitening.fit(x, rows, dims, np.random.default_rng(derived_seed(seed, "pca"))).unscaled()


def _projected(components: whitening.Whitening, x: NDArray[Any], rows: Rows | None = None) -> Features:
    with one_blas_thread():
        return components.features(x, rows)


def _outputs(
    forward: Callable[[Params, Examples], Any], params: Params, dataset: Source, rows: Rows
) -> Iterator[NDArray[np.float32]]:
    """What a bench's network makes of the rows, a block at a time: images and wide layers are large."""
    for start in range(0, len(rows), BLOCK):
        with one_thread():
            yield forward(params, dataset.examples(rows[start : start + BLOCK])).numpy()


def _finite(features: FeatureMap, kind: str, rows: Rows) -> Features:
    if not len(rows):
        raise DataError("features were asked of no row; give at least one")
    found = features(rows)
    if not np.isfinite(found).all():
        row = rows[np.flatnonzero(~np.isfinite(found).all(axis=1))[0]]
        raise DataError(
            f"features must be finite, got nan or inf for row {row} ({kind}); mend or drop the row"
        )
    return found


def _check(kind: str, train: Rows, validation: Rows, dims: int) -> None:
    if kind not in KINDS:
        raise PlanError(unknown("kind of features", kind, KINDS))
    if dims != int(dims) or dims < 1:
        raise PlanError(f"dims, the number of features, must be a whole number from 1 on, got {dims}")
    if not len(train):
        raise DataError("features are fitted on train rows, got none")
    if kind in TRAINED and not len(validation):
        raise DataError(
            f"features of kind {kind!r} need validation rows to know when to stop; "
            "federate(..., ratio=(7, 1, 2)) sets them aside"
        )
