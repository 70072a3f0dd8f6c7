"""The places a dataset may lie in, and what to say when it is in none of them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from fedakd.errors import DataError

DEBIAN = Path("/usr/share/datasets")  # where Debian's dataset-* packages put their files
VARIABLE = "FEDAKD_DATA"


@dataclass(frozen=True)
class Advice:
    """How a person gets a dataset: by hand from `url`, as `files`, or as the Debian package `apt`."""

    url: str
    files: str
    apt: str | None = None


def roots(data_dir: Path | None) -> dict[str, Path]:
    """The folders that are searched, in order, by the name a person knows them by."""
    given = os.environ.get(VARIABLE)
    places = {
        "--data-dir": data_dir,
        f"${VARIABLE}": Path(given) if given else None,
        "the cache": cache(),
        "Debian's folder": DEBIAN,
    }
    return {why: root.expanduser() for why, root in places.items() if root is not None}


def check_roots(data_dir: Path | None) -> None:
    """A folder that a person named and that is not there is an error, not passed over."""
    for why, root in roots(data_dir).items():
        if why in ("--data-dir", f"${VARIABLE}") and not root.is_dir():
            what = "is a file" if root.exists() else "does not exist"
            raise DataError(f"{why}: expected a folder, {root} {what}; create it, or leave {why} out")


def cache() -> Path:
    """The folder the platform keeps for what can be fetched again."""
    return Path(platformdirs.user_cache_dir("fedakd"))


def candidates(name: str, data_dir: Path | None) -> list[Path]:
    """The folders whose files may be the dataset: in each root the one of its name, then the root itself."""
    return [folder for root in roots(data_dir).values() for folder in (root / name, root)]


def writable(name: str, data_dir: Path | None) -> Path:
    """The dataset's own folder in the first root that can be written to, made if need be."""
    refused = []
    for why, root in roots(data_dir).items():
        if root == DEBIAN:  # belongs to the package manager
            continue
        try:
            (root / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            refused.append(f"{root} ({why}): {error.strerror}")
            continue
        if os.access(root / name, os.W_OK):
            return root / name
        refused.append(f"{root / name} ({why}): not writable")
    raise DataError(f"no folder to put {name} in: {'; '.join(refused)}; choose one with --data-dir FOLDER")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Several processes may want the same files: one gets them, the others wait and then look again."""
    place = os.open(folder, os.O_RDONLY)  # a lock on the folder leaves no file, and ends with its process
    try:
        with suppress(OSError):  # of a file system that knows no locks
            fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


def absent(name: str, data_dir: Path | None, advice: Advice, reason: str = "") -> DataError:
    """The error for a dataset that is nowhere: every place searched, and every way out."""
    places = [f"  {root / name} and {root} ({why})" for why, root in roots(data_dir).items()]
    ways = [
        f"  fedakd data get {name}",
        *([f"  apt-get install {advice.apt}   (on Debian)"] if advice.apt else []),
        f"  --data-dir FOLDER or {VARIABLE}=FOLDER   (a folder with {advice.files})",
        f"  by hand: {advice.url}",
    ]
    tried = [f"Downloading it failed: {reason}"] if reason else []
    head = f"{name} is not on this machine. Searched:"
    return DataError("\n".join([head, *places, *tried, "What helps, any one of:", *ways]))
