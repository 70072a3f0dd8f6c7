"""The 8 x 8 handwritten digits that come with scikit-learn: small, offline, for first steps and tests."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from fedakd.data.source import Progress, Verdict, judge
from fedakd.errors import DataError

if TYPE_CHECKING:
    from fedakd.data.images import ImageDataset


@dataclass(frozen=True)
class Digits:
    """Digits out of scikit-learn; there is nothing to find or to download."""

    name: str = "digits"
    summary: str = "handwritten digits, 8 x 8 grey, shipped with scikit-learn"
    rows: int = 1797
    shape: tuple[int, int, int] = (1, 8, 8)
    classes: int = 10

    def where(self, root: Path | None = None) -> str:
        return f"scikit-learn {version('scikit-learn')}"

    def load(
        self, root: Path | None = None, download: bool = True, progress: Progress | None = None
    ) -> ImageDataset:
        """All 1797 images; there is no official test split, so every row counts as training."""
        import numpy as np
        from sklearn.datasets import load_digits

        from fedakd.data.images import ImageDataset, labels

        bunch = load_digits()
        # The values are 0 to 16. Bytes from 0 to 255 keep one meaning of x for all datasets, within 1/510.
        x = np.rint(bunch.images * (255 / 16)).astype(np.uint8).reshape(-1, *self.shape)
        y = labels(bunch.target, self.classes, "scikit-learn's digits")
        origin = f"the copy shipped with {self.where()}, values 0 to 16 stretched to 0 to 255"
        return ImageDataset(self.name, self.classes, x, y, self.shape, len(y), origin)

    def check(self, root: Path | None = None) -> list[Verdict]:
        """One verdict, on scikit-learn's own file."""
        return [judge("scikit-learn/digits.csv.gz", self._read)]

    def _read(self) -> str:
        rows = len(self.load())
        if rows != self.rows:
            raise DataError(f"scikit-learn's digits must have {self.rows} rows, got {rows}; reinstall it")
        return f"{rows} images of {self.shape}, labels 0 to {self.classes - 1}"
