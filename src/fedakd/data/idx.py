"""Files in the IDX format of MNIST and FashionMNIST, gzipped or plain."""

from __future__ import annotations

import gzip
import hashlib
import struct
import zlib
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedakd.errors import DataError

REFETCH = "delete the file and fetch it again with fedakd data get"
UNSIGNED_BYTES = 0x08  # the IDX code of the only element type these datasets use


def read(path: Path, shape: tuple[int, ...], sha256: str) -> NDArray[np.uint8]:
    """The array in the file, once its content has that sha256, the IDX header and that shape."""
    return array(verified(path, sha256), shape, str(path))


def verified(path: Path, sha256: str) -> bytes:
    """The file's decompressed content, refused unless it has that sha256.

    The content is what counts: two gzip files of the same content differ if one keeps a name or a date.
    """
    data = content(path)
    got = hashlib.sha256(data).hexdigest()
    if got != sha256:
        raise DataError(
            f"{path}: the content's sha256 must be {sha256}, got {got} ({len(data)} bytes); {REFETCH}"
        )
    return data


def content(path: Path) -> bytes:
    """The file's bytes, unpacked if they are gzipped, whatever the file is called."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except (EOFError, zlib.error, OSError) as error:
        size = path.stat().st_size if path.exists() else 0
        raise DataError(
            f"{path}: must be a whole gzip file, got {size} bytes that break off or are damaged "
            f"({error}); {REFETCH}"
        ) from error


def array(data: bytes, shape: tuple[int, ...], where: str) -> NDArray[np.uint8]:
    """IDX bytes as an array, refused if the magic number, the sizes or the length are not those of `shape`.

    >>> array(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), (2,), "labels")
    array([7, 9], dtype=uint8)
    """
    header = struct.pack(f">HBB{len(shape)}I", 0, UNSIGNED_BYTES, len(shape), *shape)
    if data[: len(header)] != header:
        raise DataError(
            f"{where}: must begin with the IDX header {header.hex()} (bytes of shape {shape}), "
            f"got {data[: len(header)].hex()}; {REFETCH}"
        )
    if len(data) != len(header) + prod(shape):
        raise DataError(f"{where}: must be {len(header) + prod(shape)} bytes, got {len(data)}; {REFETCH}")
    return np.frombuffer(data, np.uint8, offset=len(header)).reshape(shape)
