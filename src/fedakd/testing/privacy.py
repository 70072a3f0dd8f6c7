"""The law about models that a method promises to keep to the client."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fedakd.testing.bearing import runs
from fedakd.testing.cases import LATE, NORMED, PARTIAL, Case
from fedakd.testing.check import law
from fedakd.testing.report import Violation
from fedakd.testing.subject import Played, Subject
from fedakd.testing.values import Values
from fedakd.trees import leaves

CASES = [case for case in (NORMED, *PARTIAL, *LATE) if case.net == NORMED.net]  # those with SGD: a first step
# of Adam is the rate in one direction or the other, so that models can agree in a leaf by accident
RECOGNISED = 8  # so many values of a leaf, all found among what was sent, are no accident


@law(
    "what a client keeps under a name of `private` is, value by value, in no message and no update",
    needs=[runs],
)
def private_stays(subject: Subject) -> Iterator[Violation]:
    # what is sent in another form, as a difference from what everybody knows say, is not recognised
    promised = subject.method.private
    for case in CASES if promised else ():
        played = subject.played(case)
        yield from unkept(promised, played)
        sent = Sent(played)
        for event in played.log.of("kept"):
            for path, leaf in leaves({name: event.what[name] for name in promised if name in event.what}):
                if isinstance(leaf, Tensor) and (place := sent.place_of(leaf)):
                    where = f"{case}, {event.place}, {path}"
                    yield Violation(where, "a leaf that never leaves its client", f"its values in {place}")


def unkept(promised: tuple[str, ...], played: Played) -> Iterator[Violation]:
    """Names that are promised and that nobody keeps: a slip of the pen would make the promise empty."""
    kept = {name for event in played.log.of("kept") for name in event.what}
    for name in promised:
        if name not in kept:
            expected = f"clients that keep {name!r}, which `private` names"
            yield Violation(str(played.case), expected, f"clients that keep {sorted(kept)}")


class Sent:
    """Everything that was on its way in a run, in a form in which values can be looked up."""

    def __init__(self, played: Played) -> None:
        self.start = Values([*first_model(played.case), torch.tensor([0.0, 1.0])])  # known to all
        self.leaves: dict[int, tuple[str, Tensor]] = {}  # by identity: most are sent many times
        for event in played.log.of("message", "update"):
            for path, leaf in leaves(event.what):
                if isinstance(leaf, Tensor):
                    self.leaves.setdefault(id(leaf), (f"{event.place}, {path}", leaf))
        self.values = Values(leaf for _, leaf in self.leaves.values())

    def place_of(self, leaf: Tensor) -> str | None:
        """Where a leaf was sent, whole or among others; None if it was not, or says nothing new."""
        if leaf.numel() < 2 or not leaf.is_floating_point():
            return None
        new = torch.unique(leaf[~self.start.hold(leaf)])
        if not len(new) or not self.values.hold(new).all():
            return None
        for place, other in self.leaves.values():
            if Values([other]).hold(new).all() and (len(new) >= RECOGNISED or alike(leaf, other)):
                return place
        return "several messages and updates together" if len(new) >= RECOGNISED else None


def first_model(case: Case) -> list[Tensor]:
    return list(case.server().init(case.seed).values())


def alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool((a == b).all())
