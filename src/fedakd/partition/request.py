"""Checks at the edge: a request the data cannot serve is refused before anything is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from fedakd.errors import PartitionError
from fedakd.partition.contract import Labels, Rows


def check_numbers(clients: int, ratio: Sequence[float], fraction: float, seed: int) -> None:
    """Numbers that no dataset could serve."""
    if clients < 1:
        raise PartitionError(f"clients must be at least 1, got {clients}")
    if not 0 < fraction <= 1:
        raise PartitionError(f"fraction must be above 0 and at most 1, got {fraction}")
    if seed < 0:
        raise PartitionError(f"seed must be 0 or more, got {seed}")
    if len(ratio) != 3 or not all(0 <= part < math.inf for part in ratio) or not (ratio[0] and ratio[2]):
        raise PartitionError(
            "ratio must be three numbers, train : validation : test, of which only validation may be 0; "
            f"got {tuple(ratio)}"
        )


def check_rows(name: str, x: NDArray[Any], y: Labels, classes: int) -> None:
    """Inputs without labels, or labels that are no class."""
    if len(x) != len(y):
        raise PartitionError(
            f"{name}: one label per input is needed; got {len(x)} inputs and {len(y)} labels"
        )
    if len(y) and not 0 <= y.min() <= y.max() < classes:
        raise PartitionError(f"{name}: labels must be 0 to {classes - 1}, got {y.min()} to {y.max()}")


def check_room(rows: int, clients: int, ratio: Sequence[float], fraction: float) -> None:
    """Every client needs a row to train on and a row to be judged on."""
    least = min(ratio[0], ratio[2]) / sum(ratio)
    room = share(fraction, math.floor(least * rows))
    if room < clients:
        hint = f"{room} clients would do" if room else "more rows or a larger fraction are needed"
        raise PartitionError(
            f"each of {clients} clients needs a row to train on and a row to be tested on, but fraction "
            f"{fraction:g} of the smaller of both pools is {room} of {rows} rows; {hint}"
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


def share(fraction: float, rows: int) -> int:
    """floor(fraction * rows), spared the rounding that makes 0.29 * 100 less than 29.

    >>> share(0.29, 100)
    29
    """
    return math.floor(fraction * rows + 1e-9)
