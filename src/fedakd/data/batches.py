"""Batches of CIFAR10 as its authors publish them: raw records, or pickles of Python 2."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedakd.data.images import labels
from fedakd.errors import DataError

Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images (rows, C, H, W), labels (rows,)
REFETCH = "delete the folder it lies in and fetch the dataset again with fedakd data get"


def digest(path: Path, algorithm: str) -> str:
    """The file's checksum in hexadecimal, by an algorithm of hashlib."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def expect(path: Path, algorithm: str, wanted: str) -> None:
    """Refuse a file that has another checksum than the wanted one."""
    got = digest(path, algorithm)
    if got != wanted:
        raise DataError(f"{path}: the {algorithm} must be {wanted}, got {got}; {REFETCH}")


def binary(path: Path, rows: int, shape: tuple[int, int, int], classes: int) -> Batch:
    """A batch of records of one label byte and the image's bytes, channel by channel."""
    width = 1 + int(np.prod(shape))
    size = path.stat().st_size
    if size != rows * width:
        raise DataError(f"{path}: must be {rows * width} bytes ({rows} records), got {size}; {REFETCH}")
    records = np.fromfile(path, np.uint8).reshape(rows, width)
    return records[:, 1:].reshape(rows, *shape), labels(records[:, 0], classes, str(path))


def pickled(path: Path, md5: str, rows: int, shape: tuple[int, int, int], classes: int) -> Batch:
    """A batch of the Python version; its md5 is compared before a single byte is unpickled."""
    expect(path, "md5", md5)
    batch = _Arrays(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    x, y = batch[b"data"], labels(batch[b"labels"], classes, str(path))
    if x.dtype != np.uint8 or x.shape != (rows, np.prod(shape)) or len(y) != rows:
        raise DataError(
            f"{path}: must hold {rows} rows of {np.prod(shape)} bytes and as many labels, "
            f"got {x.dtype} {x.shape} and {len(y)} labels; {REFETCH}"
        )
    return x.reshape(rows, *shape), y


class _Arrays(pickle.Unpickler):
    """Unpickles plain values and numpy arrays, nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        rebuild = cast(Callable[..., Any], np.empty(0).__reduce__()[0])
        allowed: dict[tuple[str, str], Callable[..., Any]] = {
            ("numpy.core.multiarray", "_reconstruct"): rebuild,  # its address before numpy 2
            ("numpy._core.multiarray", "_reconstruct"): rebuild,
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): _dtype,
        }
        if (module, name) not in allowed:
            raise DataError(
                f"a pickle of arrays was expected, got one that asks for {module}.{name}; refused"
            )
        return allowed[module, name]


def _dtype(code: bytes | str, align: int = 0, copy: int = 0) -> np.dtype[Any]:
    # Old pickles give the flags as 0 and 1, which numpy 2.4.0 to 2.4.4 warn about.
    return np.dtype(code.decode() if isinstance(code, bytes) else code, align=bool(align), copy=bool(copy))
