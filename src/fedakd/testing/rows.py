"""Laws about rows: test rows are never seen, validation rows only where asked for, and none is sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from fedakd.engine.serial import Serial
from fedakd.errors import FedakdError
from fedakd.examples import Examples
from fedakd.testing.cases import NORMED, PARTIAL, PLAIN, Case
from fedakd.testing.check import law
from fedakd.testing.purity import same_twice
from fedakd.testing.report import Violation, differences
from fedakd.testing.subject import Played, Subject, rounds_of
from fedakd.testing.values import Values
from fedakd.testing.watching import Event
from fedakd.trees import leaves

SHORT = replace(PLAIN, rounds=2)


@law("no message, update or state holds a row of anybody's data; a client may keep its own training rows")
def rows_stay(subject: Subject) -> Iterator[Violation]:
    for case in (PLAIN, NORMED, *PARTIAL):
        names, rows = rows_of(case)
        known: dict[int, list[str]] = {}  # by the leaf's identity: most leaves are sent and kept many times
        for event in subject.played(case).log.of("state", "message", "update", "kept"):
            for path, leaf in leaves(event.what):
                if id(leaf) not in known:
                    known[id(leaf)] = found_in(leaf, names, rows)
                for name in known[id(leaf)]:
                    if not allowed(event, name):
                        yield Violation(f"{case}, {event.place}, {path}", "no row of anybody's data", name)


def rows_of(case: Case) -> tuple[list[str], Tensor]:
    """What each row of a federation is, and its values."""
    sets: dict[str, Examples] = {}
    for one in case.spec(None).clients:  # type: ignore[arg-type]
        sets |= {f"test row of client {one.id}": one.test, f"training row of client {one.id}": one.train}
    if held := case.server().validation:
        sets["validation row"] = held
    names = [f"{name} (number {row})" for name, rows in sets.items() for row in range(len(rows))]
    return names, torch.cat([rows.x.flatten(1) for rows in sets.values()])  # type: ignore[union-attr]


def found_in(leaf: object, names: list[str], rows: Tensor) -> list[str]:
    if not isinstance(leaf, Tensor) or leaf.numel() < rows.shape[1]:
        return []
    values = Values([leaf])
    near = values.hold(rows[:, 0]).nonzero().squeeze(1)  # few: the rest of a row is looked for in these only
    return [names[int(row)] for row in near[values.hold(rows[near]).all(1)]]


def allowed(event: Event, name: str) -> bool:
    return event.kind == "kept" and name.startswith(f"training row of client {event.client} ")


@law("other test rows change nothing but scores", needs=[same_twice])
def never_sees_test_rows(subject: Subject) -> Iterator[Violation]:
    ours, theirs = subject.played(SHORT), subject.played(replace(SHORT, tests=1))
    yield from theirs.crash()
    yield from unlike("other test rows", ours, theirs)


@law("a method that does not say needs_validation does not look at validation rows", needs=[same_twice])
def validation_rows_are_declared(subject: Subject) -> Iterator[Violation]:
    if subject.method.needs_validation:
        yield from unasked(subject)
        return
    for name, choice in (("other validation rows", 1), ("no validation rows", None)):
        other = subject.played(replace(SHORT, validation=choice))
        yield from other.crash()
        yield from unlike(name, subject.played(SHORT), other)


def unasked(subject: Subject) -> Iterator[Violation]:
    """A method that needs validation rows must say so where there are none."""
    bare = replace(SHORT, validation=None)
    try:
        rounds_of(subject.method, bare, Serial(bare.spec(subject.method)))
    except FedakdError as error:
        if "validation" in str(error):
            return
    yield Violation(str(bare), "a FedakdError that asks for validation rows", "none")


def unlike(where: str, ours: Played, theirs: Played) -> Iterator[Violation]:
    """In what two runs differ that should send and keep the same."""
    pairs = zip(
        ours.log.of("state", "message", "update", "kept"),
        theirs.log.of("state", "message", "update", "kept"),
        strict=False,
    )
    for a, b in pairs:
        yield from differences(f"{where}, {a.place}", dict(leaves(a.what)), dict(leaves(b.what)))
