"""What a check has to say: which law is broken, where, what was expected and what came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedakd.errors import FedakdError

SHOWN = 3  # violations of one law that are told in full
ENOUGH = 20  # of which no more are looked for


class Violation(NamedTuple):
    """One place where a law does not hold."""

    where: str  # the federation, the client, the round, the leaf
    expected: str
    came: str
    error: BaseException | None = None  # where an error is what came

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, got {self.came}"


class ConformanceError(FedakdError, AssertionError):
    """A method breaks laws of the protocol; `broken` holds the violations by the name of the law."""

    def __init__(self, message: str, broken: Mapping[str, list[Violation]] | None = None) -> None:
        super().__init__(message)
        self.broken = dict(broken or {})
        told = (one.error for found in self.broken.values() for one in found if one.error)
        self.__cause__ = next(told, None)


def raised(where: str, error: BaseException, expected: str = "no error") -> Violation:
    """The violation that an error is."""
    return Violation(where, expected, f"{type(error).__name__}: {error}", error)


def account(law: str, violations: list[Violation]) -> str:
    """A law and where it is broken, for the reader of an error."""
    rest = len(violations) - SHOWN
    count = f"{rest} more" if len(violations) < ENOUGH else "many more"
    more = [f"  and in {count} places"] if rest > 0 else []
    return "\n".join([law, *(f"  {violation}" for violation in violations[:SHOWN]), *more])


def differences(where: str, expected: Mapping[str, Any], came: Mapping[str, Any]) -> Iterator[Violation]:
    """The leaves, by path, in which two trees that should be the same are not.

    >>> [str(one) for one in differences("round 1", {"n": 2.0}, {"n": 2.0, "m": 1.0})]
    ['round 1, m: expected nothing of this name, got 1.0']
    """
    for path in sorted(expected.keys() | came.keys(), key=str):
        place = f"{where}, {path}" if where else path
        if path not in came:
            yield Violation(place, spoken(expected[path]), "nothing of this name")
        elif path not in expected:
            yield Violation(place, "nothing of this name", spoken(came[path]))
        elif (contrast := told_apart(expected[path], came[path])) is not None:
            yield Violation(place, *contrast)


def told_apart(a: Any, b: Any) -> tuple[str, str] | None:
    """How two leaves differ, if they do; nan is the same as nan here."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        same = type(a) is type(b) and _equal(a, b)
        return None if same else (_with_type(a, b), _with_type(b, a))
    if a.dtype != b.dtype or a.shape != b.shape:
        return spoken(a), spoken(b)
    if torch.equal(a, b):
        return None
    other = ((a != b) & ~((a != a) & (b != b))).reshape(-1).nonzero()
    if not len(other):  # they differ in nothing but nan
        return None
    first, count = int(other[0]), f"entry {int(other[0])}; {len(other)} of {a.numel()} differ"
    return f"{a.reshape(-1)[first].item()!r}", f"{b.reshape(-1)[first].item()!r} ({count})"


def spoken(leaf: Any) -> str:
    """A leaf in few words.

    >>> spoken(torch.zeros(2, 3)), spoken(1.5), spoken([1])
    ('a float32 tensor of shape (2, 3)', '1.5', 'the list [1]')
    """
    if isinstance(leaf, Tensor):
        return f"a {str(leaf.dtype).removeprefix('torch.')} tensor of shape {tuple(leaf.shape)}"
    return repr(leaf) if isinstance(leaf, float | str) else f"the {type(leaf).__name__} {leaf!r:.60}"


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b) or bool(a != a and b != b)
    except Exception:  # arrays, say, whose comparison is not one answer
        return repr(a) == repr(b)


def _with_type(leaf: Any, other: Any) -> str:
    return spoken(leaf) if type(leaf) is type(other) else f"{spoken(leaf)} ({type(leaf).__name__})"


def not_finite(where: str, leaves: Mapping[str, Any]) -> Iterator[Violation]:
    """The leaves that hold an entry that is infinite or not a number."""
    for path, leaf in leaves.items():
        value = leaf if isinstance(leaf, Tensor) else torch.tensor(float(leaf))
        bad = (~torch.isfinite(value)).reshape(-1).nonzero()
        if len(bad):
            came = value.reshape(-1)[int(bad[0])].item()
            yield Violation(f"{where}, {path}", "finite values", f"{came} at entry {int(bad[0])}")
