"""What every source of a dataset offers, and the verdict on one of its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fedakd.errors import DataError

if TYPE_CHECKING:
    from fedakd.data.images import ImageDataset

# Told the file's name, the bytes there are so far, and how many there will be if the server says so.
Progress = Callable[[str, int, int | None], None]


class Source(Protocol):
    """A dataset that can be found, fetched, checked and loaded."""

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def rows(self) -> int: ...

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""

    @property
    def classes(self) -> int: ...

    def where(self, root: Path | None = None) -> str | None:
        """The place the dataset would be loaded from, without opening a file; None if it is nowhere."""

    def load(
        self, root: Path | None = None, download: bool = True, progress: Progress | None = None
    ) -> ImageDataset: ...

    def check(self, root: Path | None = None) -> list[Verdict]:
        """One verdict for each file; DataError if the dataset is not on this machine."""


@dataclass(frozen=True)
class Patience:
    """How often a download tries each address, and the seconds it waits for bytes and between tries."""

    tries: int = 3
    timeout: float = 30.0
    pause: float = 1.0


@dataclass(frozen=True)
class Verdict:
    """What a full check of one file found."""

    file: str
    ok: bool
    said: str


def judge(file: str, read: Callable[[], str]) -> Verdict:
    """The verdict of a reader that returns what it verified, or raises DataError.

    >>> judge("a.bin", lambda: "10000 rows")
    Verdict(file='a.bin', ok=True, said='10000 rows')
    """
    try:
        return Verdict(file, True, read())
    except DataError as error:
        return Verdict(file, False, str(error))
