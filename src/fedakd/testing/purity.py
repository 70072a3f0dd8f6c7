"""Laws about side effects, and that a run gives the same whenever and wherever it is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor

from fedakd import wire
from fedakd.testing.bearing import runs, runs_with_batch_norm
from fedakd.testing.cases import EVERY, NORMED, PARTIAL, PLAIN, Case
from fedakd.testing.check import law
from fedakd.testing.form import importable
from fedakd.testing.report import Violation, differences, raised
from fedakd.testing.subject import COUNTS, Outcome, Subject, contrasts
from fedakd.trees import Tree, leaves


@law("hooks change nothing they are given: trees, rows, benches and the method itself")
def changes_nothing_given(subject: Subject) -> Iterator[Violation]:
    for case in EVERY:
        for found in subject.played(case).log.changed:
            yield found._replace(where=f"{case}, {found.where}")


@law("hooks leave alone what all code shares: global random numbers, threads and modes")
def leaves_the_process_alone(subject: Subject) -> Iterator[Violation]:
    for case in EVERY:
        for found in subject.played(case).log.disturbed:
            yield found._replace(where=f"{case}, {found.where}")


@law("what is sent and kept is made of tensors, floats and dicts by name, and survives the wire")
def survives_the_wire(subject: Subject) -> Iterator[Violation]:
    for case in EVERY:
        seen: set[tuple[tuple[str, int], ...]] = set()  # by identity: most trees are sent and kept many times
        for event in subject.played(case).log.of("state", "message", "kept", "update"):
            tree = tuple((path, id(leaf)) for path, leaf in leaves(event.what))
            if tree not in seen:
                seen.add(tree)
                yield from lost(f"{case}, {event.place}", event.what)


def lost(where: str, tree: Tree) -> Iterator[Violation]:
    """What of a tree does not arrive as it was sent."""
    try:
        back = wire.loads(wire.dumps(tree))
    except Exception as error:  # whatever a method put into a tree may raise anything when it is written
        yield raised(where, error, "a tree that can be sent")
        return
    yield from differences(where, dict(leaves(tree)), dict(leaves(back)))
    for path, leaf in leaves(tree):
        if isinstance(leaf, Tensor) and leaf.requires_grad:
            yield Violation(
                f"{where}, {path}", "a tensor without gradient", "one that requires it: detach it"
            )


PURE = [runs, runs_with_batch_norm, changes_nothing_given, leaves_the_process_alone]


@law("the same run made twice gives the same", needs=PURE)
def same_twice(subject: Subject) -> Iterator[Violation]:
    for case in (PLAIN, NORMED):
        yield from contrasts(f"{case}, second time", subject.played(case), subject.again(case))


@law(
    "a run gives the same in this process and on any number of workers",
    needs=[same_twice, survives_the_wire, importable],
    parallel=True,
)
def same_in_workers(subject: Subject) -> Iterator[Violation]:
    for count in range(1, 1 + min(max(COUNTS), len(subject.workers or ()))):
        for case in finished(subject, NORMED, PARTIAL[0]):  # everybody there, or one by one; SGD, or Adam
            came = subject.in_workers(case, count)
            yield from contrasts(f"{case}, {count} workers", subject.played(case), came)


@law(
    "a run continues bit for bit from what was saved",
    needs=[same_twice, survives_the_wire, same_in_workers],
)
def resumes(subject: Subject) -> Iterator[Violation]:
    for case in finished(subject, NORMED, PARTIAL[0]):
        came = subject.resumed(case, stop=2)
        yield from contrasts(f"{case}, resumed after round 2", subject.played(case), came)


def finished(subject: Subject, *cases: Case) -> list[Case]:
    """Those that come to their end; that the others do not is for another law to say."""
    return [case for case in cases if subject.played(case).error is None]


@law("another seed gives another run", needs=[same_twice])
def depends_on_the_seed(subject: Subject) -> Iterator[Violation]:
    case = replace(PLAIN, rounds=1)
    ours, theirs = subject.again(case), subject.again(replace(case, seed=1))
    if has_values(ours) and not list(contrasts("", ours, theirs)):
        expected = "another outcome with seed 1 than with seed 0"
        yield Violation(str(case), expected, "the same: random numbers are not drawn from the bench's stream")


def has_values(outcome: Outcome) -> bool:
    trees: list[Any] = [*outcome.states, *outcome.kept.values()]
    return any(isinstance(leaf, Tensor) for tree in trees for _, leaf in leaves(tree))
