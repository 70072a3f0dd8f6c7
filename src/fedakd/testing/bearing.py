"""Laws about what a method must bear: clients that are missing, late, tiny, alone or of no use."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch import Tensor

from fedakd.rounds import failing
from fedakd.testing.cases import (
    FAILED,
    LATE,
    NORMED,
    NOTHING,
    NUMBERS,
    ONE_CLASS,
    ONE_ROW,
    PARTIAL,
    PLAIN,
    Case,
)
from fedakd.testing.check import law
from fedakd.testing.report import Violation, not_finite
from fedakd.testing.subject import Played, Subject
from fedakd.trees import leaves


def sound(subject: Subject, *cases: Case) -> Iterator[Violation]:
    """Where a run does not come to its end, or something in it is not finite."""
    for case in cases:
        played = subject.played(case)
        yield from unfinished(played)
        for event in played.log.of("views", "message", "update", "kept", "state"):
            found = dict(leaves(event.what))
            if event.kind != "views":  # infinite may be meant: the best loss so far, say; not a number never
                found = {path: leaf for path, leaf in found.items() if _has_nan(leaf)}
            yield from not_finite(f"{case}, {event.place}", found)


def unfinished(played: Played) -> Iterator[Violation]:
    """A crash, or a client whose training failed though nobody made it fail."""
    yield from played.crash()
    for record in played.rounds:
        failed = failing(played.rounds[: record.number])  # they have no score of their own
        for measure, scores in record.scores.items():
            for client, score in scores.items():
                if not math.isfinite(score) and client not in failed:
                    where = f"{played.case}, client {client}, round {record.number}, {measure}"
                    yield Violation(where, "a finite number", str(score))
        for client, why in record.failures.items():
            if (client, record.number) not in played.case.absent:
                yield Violation(f"{played.case}, client {client}", "training that succeeds", why)


def _has_nan(leaf: object) -> bool:
    return bool(leaf.isnan().any()) if isinstance(leaf, Tensor) else isinstance(leaf, float) and leaf != leaf


@law("it runs, and all its models are finite")
def runs(subject: Subject) -> Iterator[Violation]:
    yield from sound(subject, PLAIN)


@law("it runs with a net that has batch norm", needs=[runs])
def runs_with_batch_norm(subject: Subject) -> Iterator[Violation]:
    yield from sound(subject, NORMED)


BOTH = [runs, runs_with_batch_norm]


@law("it runs where only some clients take part in a round", needs=BOTH)
def bears_partial_participation(subject: Subject) -> Iterator[Violation]:
    yield from sound(subject, *PARTIAL)


@law("it runs where a client's training fails", needs=BOTH)
def bears_a_failed_client(subject: Subject) -> Iterator[Violation]:
    yield from sound(subject, *FAILED)


@law("it runs where a client comes later than the others", needs=BOTH)
def bears_a_late_client(subject: Subject) -> Iterator[Violation]:
    yield from sound(subject, *LATE)


@law("it runs with clients of one row", needs=BOTH)
def bears_one_row(subject: Subject) -> Iterator[Violation]:
    yield from sound(subject, *ONE_ROW)


@law("it runs with clients whose rows are all of one class", needs=BOTH)
def bears_one_class(subject: Subject) -> Iterator[Violation]:
    yield from sound(subject, *ONE_CLASS)


@law("it runs with clients that have nothing to contribute", needs=BOTH)
def bears_no_contribution(subject: Subject) -> Iterator[Violation]:
    yield from sound(subject, *NOTHING)


@law("it runs with one client, with two and with ten", needs=BOTH)
def bears_any_number_of_clients(subject: Subject) -> Iterator[Violation]:
    yield from sound(subject, *NUMBERS)
