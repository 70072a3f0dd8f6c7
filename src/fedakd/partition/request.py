"""Checks at the edge: a request the data cannot serve is refused before anything is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedakd.errors import PartitionError
from fedakd.partition.contract import Labels, Rows, Weights

CHUNK = 1024  # rows that are searched at a time
LARGEST = float(np.finfo(np.float32).max)


def check_numbers(clients: int, ratio: Sequence[float], fraction: float, scale: float, seed: int) -> None:
    """Numbers that no dataset could serve."""
    if clients < 1:
        raise PartitionError(f"clients must be at least 1, got {clients}")
    for name, value in (("fraction", fraction), ("scale", scale)):
        if not 0 < value <= 1:
            raise PartitionError(f"{name} must be above 0 and at most 1, got {value}")
    if seed < 0:
        raise PartitionError(f"seed must be 0 or more, got {seed}")
    if len(ratio) != 3 or not all(0 <= part < math.inf for part in ratio) or not (ratio[0] and ratio[2]):
        raise PartitionError(
            "ratio must be three numbers, train : validation : test, of which only validation may be 0; "
            f"got {tuple(ratio)}"
        )


def check_rows(name: str, x: NDArray[Any], y: Labels, classes: int) -> None:
    """Inputs without labels, labels that are no class, or inputs that are no numbers."""
    if len(x) != len(y):
        raise PartitionError(
            f"{name}: one label per input is needed; got {len(x)} inputs and {len(y)} labels"
        )
    if len(y) and not 0 <= y.min() <= y.max() < classes:
        raise PartitionError(f"{name}: labels must be 0 to {classes - 1}, got {y.min()} to {y.max()}")
    check_finite(name, x)


def check_finite(name: str, x: NDArray[Any]) -> None:
    """Inputs that are nan, infinite or too large for the 32-bit numbers that models compute with.

    Integers are not searched. Rows are taken in chunks, so that no copy of all inputs is made.
    """
    if not np.issubdtype(x.dtype, np.floating) or not x.size:
        return
    for start in range(0, len(x), CHUNK):
        chunk = x[start : start + CHUNK]
        if chunk.min() >= -LARGEST and chunk.max() <= LARGEST:  # both are nan if a value is
            continue
        wrong = np.argwhere(~(np.abs(chunk) <= LARGEST))
        row, *place = (int(number) for number in wrong[0])
        column = place[0] if len(place) == 1 else tuple(place)
        where = f"row {start + row}" + (f", column {column}" if place else "")
        raise PartitionError(
            f"{name}: inputs must be finite numbers of at most {LARGEST:.1e}, got {chunk[tuple(wrong[0])]} "
            f"in {where} (counted from 0); fill in or leave out what is missing"
        )


def check_room(rows: int, clients: int, ratio: Sequence[float], fraction: float, scale: float) -> None:
    """Every client needs a row to train on and a row to be judged on."""
    parts = ((ratio[0], fraction * scale), (ratio[2], fraction))
    room = min(share(own, math.floor(pool / sum(ratio) * rows)) for pool, own in parts)
    if room < clients:
        asked = f"fraction {fraction:g}" + (f" at scale {scale:g}" if scale < 1 else "")
        hint = f"{room} clients would do" if room else "more rows or a larger fraction are needed"
        raise PartitionError(
            f"each of {clients} clients needs a row to train on and a row to be tested on, but {asked} "
            f"of the smaller of both pools is {room} of {rows} rows; {hint}"
        )


def check_parts(pool: str, parts: Sequence[Rows], clients: int) -> None:
    """What a plan drew, in case it was not one of ours."""
    if len(parts) != clients:
        raise PartitionError(f"a plan must draw one {pool} part per client; got {len(parts)} for {clients}")
    empty = [k for k, part in enumerate(parts) if len(part) == 0]
    if empty:
        raise PartitionError(
            f"each client needs at least one {pool} row; the plan left client {empty[0]} none"
        )


def check_weights(weights: Sequence[Weights], rows: int, clients: int) -> None:
    """The weights of test rows, in case the plan was not one of ours."""
    if len(weights) != clients or any(own.shape != (rows,) for own in weights):
        shapes = [own.shape for own in weights]
        raise PartitionError(
            f"a plan must weigh all {rows} test rows for each of {clients} clients; got {shapes}"
        )
    for client, own in enumerate(weights):
        if not (own >= 0).all() or abs(own.sum() - 1) > 1e-6:
            least, total = own.min(), own.sum()
            raise PartitionError(
                f"weights of test rows must be 0 or more and sum to 1; client {client}'s have sum {total:g} "
                f"and the smallest is {least:g}"
            )


def share(fraction: float, rows: int) -> int:
    """floor(fraction * rows), spared the rounding that makes 0.29 * 100 less than 29.

    >>> share(0.29, 100)
    29
    """
    return math.floor(fraction * rows + 1e-9)
