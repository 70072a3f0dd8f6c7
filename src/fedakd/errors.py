"""Errors meant for the person at the keyboard: what was expected, what came, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class FedakdError(Exception):
    """Base of every error this package raises on purpose; the command line prints it without a traceback."""


class DataError(FedakdError):
    """A dataset is absent, damaged or not what it claims to be."""


class PartitionError(FedakdError):
    """A federation was requested that the data cannot give."""


class PlanError(FedakdError):
    """A plan, a checkpoint or a run folder does not fit what was asked."""


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """The message for a name that is not among the known ones, nearest first.

    >>> unknown("method", "fedavk", ["standalone", "fedavg", "fedakd"])
    "unknown method 'fedavk'; did you mean 'fedavg' or 'fedakd'? Known: standalone, fedavg, fedakd"
    """
    names = list(known)
    near = get_close_matches(str(name).lower(), names, n=2, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    return f"unknown {kind} {name!r}{hint} Known: {', '.join(names)}"
