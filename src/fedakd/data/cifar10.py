"""CIFAR10: 60 000 colour images, 32 x 32, in ten classes (Krizhevsky, 2009), binary or Python version.

The authors publish an md5 of each archive, and the Python version's batches have well known md5s of their
own. The binary batches have none: those this package unpacks are recorded in `checksums.json` and held to
it, others are accepted by their structure and their `origin` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING

from fedakd.data.source import Patience, Progress, Verdict, judge
from fedakd.data.store import Advice, absent, alone, candidates, writable
from fedakd.errors import DataError

if TYPE_CHECKING:
    from fedakd.data.batches import Batch
    from fedakd.data.images import ImageDataset

BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")
PICKLES = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}


@dataclass(frozen=True)
class Cifar10:
    """Five training batches and one for testing, all of the same length."""

    name: str = "cifar10"
    summary: str = "animals and vehicles, 32 x 32 colour, 50 000 for training and 10 000 for testing"
    classes: int = 10
    shape: tuple[int, int, int] = (3, 32, 32)
    batch_rows: int = 10000
    urls: tuple[str, ...] = ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",)
    archive_md5: str = "c32a1d4ab5d03f1284b67883e8d87530"
    pickles: Mapping[str, str] = field(default_factory=PICKLES.copy)
    patience: Patience = field(default_factory=Patience)

    @property
    def rows(self) -> int:
        return self.batch_rows * len(BATCHES)

    @property
    def advice(self) -> Advice:
        return Advice(f"{self.urls[0]}, unpacked in that folder", f"{BINARY} or {PYTHON} in it")

    def where(self, root: Path | None = None) -> str | None:
        found = self._find(root)
        return str(found[0].parent) if found else None

    def load(
        self, root: Path | None = None, download: bool = True, progress: Progress | None = None
    ) -> ImageDataset:
        """All images, the training batches first."""
        import numpy as np

        from fedakd.data.images import ImageDataset

        paths = self._find(root)
        if paths is None:
            paths = self._get(root, progress) if download else self._absent(root)
        batches = [self._read(path) for path in paths]
        x, y = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        origin = f"{paths[0].parent}, {_trust(paths[0])}"
        return ImageDataset(self.name, self.classes, x, y, self.shape, len(y) - self.batch_rows, origin)

    def check(self, root: Path | None = None) -> list[Verdict]:
        """The verdict on each of the six batches."""
        found = self._find(root) or self._absent(root)
        return [judge(str(path), partial(self._verify, path)) for path in found]

    def _find(self, root: Path | None) -> list[Path] | None:
        """The six batches, in order, from the first folder that has all; checkable ones are preferred."""
        for folder in candidates(self.name, root):
            for place in (folder / PYTHON, folder / BINARY, folder):
                for suffix in ("", ".bin"):
                    paths = [place / f"{batch}{suffix}" for batch in BATCHES]
                    if all(map(isfile, paths)):
                        return paths
        return None

    def _absent(self, root: Path | None) -> list[Path]:
        raise absent(self.name, root, self.advice)

    def _get(self, root: Path | None, progress: Progress | None) -> list[Path]:
        """The six batches, downloaded and unpacked, unless somebody else has just done so."""
        try:
            folder = writable(self.name, root)
        except DataError as error:
            raise absent(self.name, root, self.advice, str(error)) from error
        with alone(folder):
            return self._find(root) or self._fetch(root, folder, progress)

    def _fetch(self, root: Path | None, folder: Path, progress: Progress | None) -> list[Path]:
        from fedakd.data.archive import unpack
        from fedakd.data.batches import expect
        from fedakd.data.download import fetch

        try:
            verify = partial(expect, algorithm="md5", wanted=self.archive_md5)
            archive = fetch(self.urls, folder / "cifar-10-binary.tar.gz", verify, progress, self.patience)
        except DataError as error:
            raise absent(self.name, root, self.advice, str(error)) from error
        unpack(archive, [f"{BINARY}/{batch}.bin" for batch in BATCHES], folder / BINARY)
        archive.unlink()
        return [folder / BINARY / f"{batch}.bin" for batch in BATCHES]

    def _read(self, path: Path) -> Batch:
        from fedakd.data import batches
        from fedakd.data.archive import recorded

        form = self.batch_rows, self.shape, self.classes
        if path.suffix != ".bin":
            return batches.pickled(path, self.pickles[path.name], *form)
        sums = recorded(path.parent)
        if sums is not None:
            batches.expect(path, "sha256", sums.get(path.name, "recorded in checksums.json, where it is not"))
        return batches.binary(path, *form)

    def _verify(self, path: Path) -> str:
        return f"{len(self._read(path)[1])} images and labels, {_trust(path)}"


def _trust(path: Path) -> str:
    """How far a batch that could be read is known to be the official one."""
    from fedakd.data.archive import MANIFEST

    if path.suffix != ".bin":
        return "the official bytes by their published md5"
    if (path.parent / MANIFEST).is_file():
        return "the official bytes by the sha256 recorded when the official archive was unpacked"
    return "sound in structure, but there was nothing to check the bytes against the official ones with"
