"""A check: one law by name, judged on a method on trial."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple
from unittest import SkipTest

from fedakd.engine.processes import Workers
from fedakd.method import Method
from fedakd.testing.report import ENOUGH, ConformanceError, Violation, account, differences, raised
from fedakd.testing.subject import Subject
from fedakd.testing.watching import own
from fedakd.threads import one_thread

Judge = Callable[[Subject], Iterable[Violation]]


class Verdict(NamedTuple):
    violations: list[Violation]
    unchecked: str | None = None  # why nothing can be said

    @property
    def holds(self) -> bool:
        return not self.violations and self.unchecked is None


@dataclass(frozen=True)
class Check:
    """A law; call it with a method and it raises ConformanceError where the law is broken."""

    name: str
    law: str
    judge: Judge
    needs: tuple[Check, ...] = ()  # laws without which this one cannot be judged
    parallel: bool = False

    @property
    def __name__(self) -> str:  # what pytest shows
        return self.name

    def __str__(self) -> str:
        return f"{self.name}: {self.law}"

    def __call__(self, method: Method, workers: bool | Workers = True) -> None:
        """Raises SkipTest, which pytest knows, where a law this one rests on is broken already."""
        __tracebackhide__ = True
        verdict = self.verdict(on_trial(method, workers))
        if verdict.unchecked is not None:
            raise SkipTest(verdict.unchecked)
        if verdict.violations:
            message = account(f"{type(method).__name__} breaks {self}", verdict.violations)
            raise ConformanceError(message, {self.name: verdict.violations})

    def verdict(self, subject: Subject) -> Verdict:
        if self.name not in subject.verdicts:
            subject.verdicts[self.name] = self._judged(subject)
        found: Verdict = subject.verdicts[self.name]
        return found

    def _judged(self, subject: Subject) -> Verdict:
        if self.parallel and subject.workers is None:
            return Verdict([], "it needs worker processes, and there are none")
        for other in self.needs:
            if not other.verdict(subject).holds and (subject.workers or not other.parallel):
                return Verdict([], f"it rests on {other.name}")
        try:
            with one_thread():  # as engines do; and threads that wait for each other slow tiny tensors down
                return Verdict(list(islice(self.judge(subject), ENOUGH)))
        except Exception as error:  # of the method: it is anybody's code and may raise anything
            return Verdict([raised(type(subject.method).__name__, error)])


def law(text: str, *, needs: Iterable[Check] = (), parallel: bool = False) -> Callable[[Judge], Check]:
    """Makes a check of a function that yields the violations of the law."""
    return lambda judge: Check(getattr(judge, "__name__", ""), text, judge, tuple(needs), parallel)


_latest: list[tuple[Subject, bool | Workers]] = []  # one at most: checks called one by one share its runs


def on_trial(method: Method, workers: bool | Workers) -> Subject:
    """The subject of the last call, if it is about an equal method."""
    if _latest and not (_same(_latest[0][0].method, method) and _latest[0][1] is workers):
        forget()
    if not _latest:
        _latest.append((Subject(method, workers), workers))
    return _latest[0][0]


@atexit.register
def forget() -> None:
    """Ends the workers that checks called one by one have started."""
    while _latest:
        _latest.pop()[0].close()


def _same(a: Method, b: Method) -> bool:
    """Of one class and with the same fields; a method's own equality is on trial itself."""
    return a is b or (type(a) is type(b) and not any(differences("", own(a), own(b))))
