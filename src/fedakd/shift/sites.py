"""Whose rows are compared with which: the clients of a federation, or a folder with one file a site."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedakd.errors import DataError
from fedakd.federation import Dataset, Federation
from fedakd.partition import Rows


@dataclass(frozen=True, eq=False)
class Sites:
    """Rows of each site, the pool they are compared with, and rows for what must be fitted."""

    dataset: Dataset
    names: tuple[str, ...]
    parts: tuple[Rows, ...]  # an index may repeat
    pool: Rows  # base rows, each once
    fitting: Rows  # what feature maps are fitted to
    validation: Rows  # where their fitting stops


def of_federation(federation: Federation) -> Sites:
    """The clients' training rows beside the pool they were drawn from; test rows stay out.

    The published protocol validates on train and test rows and leaves official test rows alone: there a
    feature map is stopped by training rows that it is not fitted to.
    """
    dataset, given = federation.dataset, np.concatenate(federation.train)
    count = getattr(dataset, "official_train", len(dataset.y)) if federation.leaky else len(dataset.y)
    held = np.setdiff1d(np.concatenate([federation.validation, federation.global_test]), given)
    pool = np.setdiff1d(np.arange(count), held)
    validation = np.setdiff1d(federation.validation, federation.global_test)
    names = tuple(str(client) for client in range(federation.clients))
    return Sites(dataset, names, federation.train, pool, np.setdiff1d(pool, validation), validation)


def of_groups(dataset: Dataset, groups: Sequence[str], rng: np.random.Generator) -> Sites:
    """Every group a site, the pool all rows; a tenth of them stops the fitting of feature maps."""
    names, which = np.unique(np.asarray(groups), return_inverse=True)
    if len(names) < 2:
        raise DataError(f"{dataset.name}: at least two sites are needed to compare them, got {len(names)}")
    parts = tuple(np.flatnonzero(which == site) for site in range(len(names)))
    shuffled = rng.permutation(len(which))
    cut = max(1, len(which) // 10)
    fitting, validation = np.sort(shuffled[cut:]), np.sort(shuffled[:cut])
    return Sites(dataset, tuple(map(str, names)), parts, np.arange(len(which)), fitting, validation)
