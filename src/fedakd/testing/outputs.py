"""Laws about what hooks give: views, running statistics, contributions, and states that do not grow."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from torch import Tensor

from fedakd.testing.bearing import runs, runs_with_batch_norm
from fedakd.testing.cases import EVERY, NORMED, PARTIAL, PLAIN, Case
from fedakd.testing.check import law
from fedakd.testing.report import Violation, differences, not_finite, spoken
from fedakd.testing.subject import Subject
from fedakd.testing.watching import Event
from fedakd.trees import Tree, equal, leaves, nbytes


@law("`models` gives views with the names, shapes and types of the model's own values")
def views_are_models(subject: Subject) -> Iterator[Violation]:
    for case in EVERY:
        server = case.server()
        own = {name: spoken(part) for name, part in server.init(case.seed).items()}
        for event in subject.played(case).log.of("views"):
            where = f"{case}, {event.place}"
            if not event.what:
                yield Violation(where, "at least one view", "none")
            for view, params in event.what.items():
                came = {name: spoken(part) for name, part in _named(params).items()}
                yield from differences(f"{where}, view {view}", own, came)


def _named(params: Any) -> Tree:
    return params if isinstance(params, dict) else {"(the view itself)": params}


@law("every client shows the same views in every round, in the same order")
def views_stay(subject: Subject) -> Iterator[Violation]:
    first: list[str] | None = None
    for case in EVERY:
        for event in subject.played(case).log.of("views"):
            names = list(event.what)
            first = names if first is None else first
            if names != first:
                yield Violation(f"{case}, {event.place}", f"the views {first}", f"{names}")


@law(
    "models that are judged have running statistics of training; in round 1 one may be untrained as a whole",
    needs=[runs_with_batch_norm],
)
def statistics_run(subject: Subject) -> Iterator[Violation]:
    first = NORMED.server().init(NORMED.seed)
    for event in subject.played(NORMED).log.of("views"):
        for view, params in event.what.items():
            if event.round > 1 or not equal(first, params):
                where = f"{NORMED}, {event.place}, view {view}"
                for name in _blank(_named(params)):
                    yield Violation(f"{where}, {name}", "the variance seen in training", "1 everywhere")
                for name in _negative(_named(params)):
                    yield Violation(f"{where}, {name}", "a variance, 0 or above", "less")


def _negative(params: Tree) -> list[str]:
    return [n for n, part in params.items() if n.endswith("running_var") and bool((part < 0).any())]


def _blank(params: Tree) -> list[str]:
    return [n for n, part in params.items() if n.endswith("running_var") and bool((part == 1).all())]


@law("`contributions` gives None or one finite number for each client, before the first round too")
def contributions_are_one_each(subject: Subject) -> Iterator[Violation]:
    for case in EVERY:
        for event in subject.played(case).log.of("contributions"):
            yield from miscounted(f"{case}, {event.place}", event.what, len(case.sizes))
    for event in at_start(subject, PLAIN):
        came = subject.method.contributions(event.what)
        yield from miscounted(f"{PLAIN}, contributions before round 1", came, len(PLAIN.sizes))


def at_start(subject: Subject, case: Case) -> Iterator[Event]:
    return (event for event in subject.played(case).log.of("state") if event.round == 0)


def miscounted(where: str, came: Any, clients: int) -> Iterator[Violation]:
    if came is None:
        return
    expected = f"None or a tensor of shape ({clients},)"
    if not isinstance(came, Tensor) or came.shape != (clients,):
        yield Violation(where, expected, spoken(came))
        return
    yield from not_finite(where, {f"client {k}": share for k, share in enumerate(came)})


@law("`server_update` without updates leaves the state as it was", needs=[runs])
def empty_round_changes_nothing(subject: Subject) -> Iterator[Violation]:
    for case in (PLAIN, NORMED, PARTIAL[0]):
        for event in at_start(subject, case):
            yield from moved(subject, case, "before round 1", event.what)
        for state in subject.played(case).states[-1:]:
            yield from moved(subject, case, "after the last round", state)


def moved(subject: Subject, case: Case, when: str, state: Tree) -> Iterator[Violation]:
    """What the server changes in a round from which nobody returns."""
    server = case.server()
    server.stream = (case.seed, case.rounds + 1, 0)
    came = subject.method.server_update(server, deepcopy(state), {})
    where = f"{case}, server_update of {{}} {when}"
    yield from differences(where, dict(leaves(state)), dict(leaves(came)))


@law("the server's state does not grow from round to round", needs=[runs])
def state_does_not_grow(subject: Subject) -> Iterator[Violation]:
    thirds = [len(subject.played(PLAIN).states) * third // 3 for third in (1, 2, 3)]
    states = [subject.played(PLAIN).states[number - 1] for number in thirds]
    for what, count in {"values": lambda state: len(list(leaves(state))), "bytes": nbytes}.items():
        early, later, last = map(count, states)
        if early < later < last:  # one that grows once, or varies, has its reasons
            expected = f"no more {what} than after round {thirds[0]}, {early}; {later} after {thirds[1]}"
            yield Violation(f"{PLAIN}, state after round {thirds[2]}", expected, str(last))
