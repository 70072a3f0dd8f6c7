"""Datasets by name: found on disk or downloaded, verified, and given as one kind of object.

Importing this module reads no data and loads no numerical library, so listing the names is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedakd.data.cifar10 import Cifar10
from fedakd.data.digits import Digits
from fedakd.data.fashion_mnist import FashionMnist
from fedakd.data.source import Progress, Source, Verdict
from fedakd.data.store import check_roots
from fedakd.errors import DataError, unknown

if TYPE_CHECKING:
    from fedakd.data.images import ImageDataset

__all__ = ["DATASETS", "Progress", "Source", "Verdict", "load", "source"]

DATASETS: dict[str, Source] = {
    "digits": Digits(),
    "fashion-mnist": FashionMnist(),
    "cifar10": Cifar10(),
}


def load(
    name: str, data_dir: Path | None = None, download: bool = True, progress: Progress | None = None
) -> ImageDataset:
    """The dataset of that name, every byte checked; it is downloaded if it is nowhere on this machine.

    A `data_dir`, or a folder in $FEDAKD_DATA, that does not exist is an error.

    >>> load("digits").shape
    (1, 8, 8)
    """
    wanted = source(name)
    check_roots(data_dir)
    return wanted.load(data_dir, download, progress)


def source(name: str) -> Source:
    """Where the dataset of that name comes from; its quick facts need no data on disk."""
    if name not in DATASETS:
        raise DataError(unknown("dataset", name, DATASETS))
    return DATASETS[name]
