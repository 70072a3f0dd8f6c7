"""Labelled images in memory, the same for every image dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedakd.errors import DataError

if TYPE_CHECKING:
    from fedakd.examples import Examples


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """Images as bytes, 0 black and 255 white, with their labels: the official training rows first.

    `official_train` is how many leading rows the authors published for training, `origin` says where the
    bytes came from and whether they are known to be the official ones.
    """

    name: str
    classes: int
    x: NDArray[np.uint8]  # (N, C, H, W)
    y: NDArray[np.int64]  # (N,)
    shape: tuple[int, int, int]
    official_train: int
    origin: str

    def __post_init__(self) -> None:
        if self.x.shape != (len(self.y), *self.shape):
            raise DataError(
                f"{self.name}: {len(self.y)} labels and images of {self.shape} need an array of "
                f"{(len(self.y), *self.shape)}, got {self.x.shape}"
            )

    def __len__(self) -> int:
        return len(self.y)

    def examples(self, rows: NDArray[np.int64]) -> Examples:
        """The given rows as tensors: images float32 in [0, 1] and channels_last, labels int64."""
        # torch takes a second to import and is not needed to look at the data.
        import torch

        from fedakd.examples import Examples, images

        return Examples(images(torch.from_numpy(self.x[rows])), torch.from_numpy(self.y[rows]))


def labels(values: NDArray[np.uint8] | list[int], classes: int, where: str) -> NDArray[np.int64]:
    """The values as class numbers, refused if one is not below `classes`.

    >>> labels([3, 0], 10, "test_batch")
    array([3, 0])
    """
    y = np.asarray(values, dtype=np.int64)
    wrong = np.flatnonzero((y < 0) | (y >= classes))
    if len(wrong):
        raise DataError(
            f"{where}: labels must be 0 to {classes - 1}, got {y[wrong[0]]} in row {wrong[0]}; "
            "the file is damaged, delete it and fetch it again with fedakd data get"
        )
    return y
