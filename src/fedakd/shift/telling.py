"""Can a classifier tell from a row's features which site it comes from? If not, there is little shift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedakd.shift.sites import Sites

FOLDS = 3
MOST = 20_000  # rows looked at
STEPS = 200  # of the classifier's optimiser


@dataclass(frozen=True)
class Told:
    """What a classifier of sites gets right on rows it was not fitted to."""

    accuracy: float
    majority: float  # what always naming the largest site gets right
    of_each: tuple[float, ...]  # of each site's rows, by a classifier that gives all sites the same weight


def tell_apart(
    sites: Sites, features: Callable[[NDArray[np.int64]], NDArray[np.float64]], rng: np.random.Generator
) -> Told:
    """Logistic regression of the site on standardised features, each base row in one fold only.

    Where rows were drawn with replacement the same row stands in many places: folds go by base rows, or the
    classifier would be asked about rows it has learned by heart.
    """
    rows = np.concatenate(sites.parts)
    labels = np.repeat(np.arange(len(sites.parts)), [len(part) for part in sites.parts])
    chosen = _chosen(labels, rng)
    rows, labels = rows[chosen], labels[chosen]
    x = features(rows)
    right = _guesses(x, labels, rows, rng, balanced=False) == labels
    fair = _guesses(x, labels, rows, rng, balanced=True) == labels
    each = tuple(float(fair[labels == site].mean()) for site in range(len(sites.parts)))
    return Told(float(right.mean()), float(np.bincount(labels).max() / len(labels)), each)


def _chosen(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """At most MOST rows in all, of every site its share, and at least one."""
    order = rng.permutation(len(labels))
    if len(labels) <= MOST:
        return order
    quotas = np.maximum(1, np.bincount(labels) * MOST // len(labels))
    own = [order[labels[order] == site][:quota] for site, quota in enumerate(quotas)]
    return np.concatenate(own)


def _guesses(
    x: NDArray[np.float64],
    labels: NDArray[np.int64],
    rows: NDArray[np.int64],
    rng: np.random.Generator,
    balanced: bool,
) -> NDArray[np.int64]:
    """For each row the site it is taken for, by a classifier that has not seen this base row."""
    base, which = np.unique(rows, return_inverse=True)
    fold = rng.integers(FOLDS, size=len(base))[which]
    guesses = np.full(len(labels), -1)
    for held in range(FOLDS):
        seen, unseen = fold != held, fold == held
        if unseen.any() and seen.any():
            guesses[unseen] = _classified(x[seen], labels[seen], x[unseen], balanced)
    return guesses


def _classified(
    x: NDArray[np.float64], labels: NDArray[np.int64], new: NDArray[np.float64], balanced: bool
) -> NDArray[np.int64]:
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(labels)) == 1:
        return np.full(len(new), labels[0])
    mean, scale = x.mean(axis=0), x.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # nearly there is good enough to tell sites apart
        model = LogisticRegression(max_iter=STEPS, class_weight="balanced" if balanced else None)
        model.fit((x - mean) / scale, labels)
    return np.asarray(model.predict((new - mean) / scale))
