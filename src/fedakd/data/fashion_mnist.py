"""FashionMNIST: 70 000 grey images of clothes, 28 x 28, in ten classes (Xiao, Rasul and Vollgraf, 2017).

The checksums are of the decompressed IDX files. Debian's package and the authors' download differ only in
the name and date inside the gzip header, so one checksum serves both, and unpacked files as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING

from fedakd.data.source import Patience, Progress, Verdict, judge
from fedakd.data.store import Advice, absent, alone, candidates, writable
from fedakd.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedakd.data.images import ImageDataset


@dataclass(frozen=True)
class IdxFile:
    """One IDX file: its name, the array in it, and the sha256 of its decompressed content."""

    name: str
    shape: tuple[int, ...]
    sha256: str


FILES = (
    IdxFile(
        "train-images-idx3-ubyte",
        (60000, 28, 28),
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    ),
    IdxFile(
        "train-labels-idx1-ubyte",
        (60000,),
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    IdxFile(
        "t10k-images-idx3-ubyte",
        (10000, 28, 28),
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    IdxFile(
        "t10k-labels-idx1-ubyte",
        (10000,),
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)
MIRRORS = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
)


@dataclass(frozen=True)
class FashionMnist:
    """Four IDX files: training images and labels, then those for testing."""

    name: str = "fashion-mnist"
    summary: str = "clothes, 28 x 28 grey, 60 000 for training and 10 000 for testing"
    classes: int = 10
    files: tuple[IdxFile, ...] = FILES
    mirrors: tuple[str, ...] = MIRRORS
    page: str = "https://github.com/zalandoresearch/fashion-mnist"
    patience: Patience = field(default_factory=Patience)

    @property
    def rows(self) -> int:
        return self.files[1].shape[0] + self.files[3].shape[0]

    @property
    def shape(self) -> tuple[int, int, int]:
        _, height, width = self.files[0].shape
        return 1, height, width

    @property
    def advice(self) -> Advice:
        names = ", ".join(f"{file.name}.gz" for file in self.files)
        return Advice(self.page, names, f"dataset-{self.name}")

    def where(self, root: Path | None = None) -> str | None:
        found = self._find(root)
        return str(found[0].parent) if found else None

    def load(
        self, root: Path | None = None, download: bool = True, progress: Progress | None = None
    ) -> ImageDataset:
        """All images, the training rows first; every file's content is the official one, or it is refused."""
        from fedakd.data.images import ImageDataset

        paths = self._find(root)
        if paths is None:
            paths = self._get(root, progress) if download else self._absent(root)
        x, y = self._read(paths)
        origin = f"{paths[0].parent}, the official content by its sha256"
        return ImageDataset(self.name, self.classes, x, y, self.shape, self.files[1].shape[0], origin)

    def check(self, root: Path | None = None) -> list[Verdict]:
        """The verdict on each of the four files: checksum, header, length and labels."""
        found = self._find(root) or self._absent(root)
        return [
            judge(str(path), partial(self._verify, path, file))
            for path, file in zip(found, self.files, strict=True)
        ]

    def _find(self, root: Path | None) -> list[Path] | None:
        """The four files, in order, from the first folder that has all of them, gzipped or plain."""
        for folder in candidates(self.name, root):
            paths = [_either(folder, file) for file in self.files]
            found = [path for path in paths if path is not None]
            if len(found) == len(self.files):
                return found
        return None

    def _get(self, root: Path | None, progress: Progress | None) -> list[Path]:
        """The four files, downloaded where they are missing."""
        try:
            folder = writable(self.name, root)
            with alone(folder):
                return [_either(folder, file) or self._fetch(file, folder, progress) for file in self.files]
        except DataError as error:
            raise absent(self.name, root, self.advice, str(error)) from error

    def _fetch(self, file: IdxFile, folder: Path, progress: Progress | None) -> Path:
        from fedakd.data.download import fetch
        from fedakd.data.idx import verified

        target = folder / f"{file.name}.gz"
        urls = [mirror + target.name for mirror in self.mirrors]
        return fetch(urls, target, partial(verified, sha256=file.sha256), progress, self.patience)

    def _absent(self, root: Path | None) -> list[Path]:
        raise absent(self.name, root, self.advice)

    def _read(self, paths: list[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Images (N, 1, H, W) and labels (N,), training rows first."""
        import numpy as np

        arrays = [self._array(path, file) for path, file in zip(paths, self.files, strict=True)]
        return np.concatenate(arrays[::2])[:, None], np.concatenate(arrays[1::2]).astype(np.int64)

    def _array(self, path: Path, file: IdxFile) -> NDArray[np.uint8]:
        from fedakd.data import idx
        from fedakd.data.images import labels

        array = idx.read(path, file.shape, file.sha256)
        if array.ndim == 1:
            labels(array, self.classes, str(path))
        return array

    def _verify(self, path: Path, file: IdxFile) -> str:
        rows = len(self._array(path, file))
        return f"{rows} {'labels' if len(file.shape) == 1 else 'images'}, the official content by its sha256"


def _either(folder: Path, file: IdxFile) -> Path | None:
    """The file in that folder, gzipped or plain."""
    return next((p for p in (folder / f"{file.name}.gz", folder / file.name) if isfile(p)), None)
