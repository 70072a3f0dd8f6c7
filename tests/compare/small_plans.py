"""Comparisons that take seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedakd.compare import Comparison, Job, Store, comparison, jobs_of
from fedakd.compare.work import Hand
from test_runfolder import Silent

SAID = {
    "title": "small",
    "datasets": ["digits"],
    "partitions": ["pow", "ics(2)"],
    "methods": ["fedavg", "fedakd"],
    "seeds": 2,
    "clients": 3,
    "rounds": 2,
    "scale": 0.2,
    "model": "linear",
}


def small(**changes: object) -> Comparison:
    return comparison({**SAID, **changes}, "small.toml")


class Clerk:
    """A foreman that remembers who did what."""

    def __init__(self) -> None:
        self.watching = Silent()
        self.events: list[tuple[str, str]] = []
        self.reasons: dict[str, str] = {}

    def named(self, kind: str) -> list[str]:
        return [label for one, label in self.events if one == kind]

    def took(self, job: Job) -> None:
        self.events.append(("took", job.label))

    def advanced(self, job: Job, done: int, rounds: int) -> None: ...

    def finished(self, job: Job, seconds: float) -> None:
        self.events.append(("finished", job.label))

    def found(self, job: Job) -> None:
        self.events.append(("found", job.label))

    def failed(self, job: Job, why: str) -> None:
        self.events.append(("failed", job.label))
        self.reasons[job.label] = why

    def waiting(self, jobs: int) -> None:
        self.events.append(("waiting", str(jobs)))


def worked(path: Path, jobs: Sequence[Job] | None = None, **changes: object) -> Clerk:
    clerk = Clerk()
    Hand(Store(path), clerk).work(list(jobs or jobs_of(small(**changes))))
    return clerk


def bytes_of(path: Path) -> dict[str, bytes]:
    """Every file with numbers in it, by its name within the store."""
    names = [*path.glob("cells/*/rounds.jsonl"), *path.glob("cells/*/done.json"), *path.glob("federations/*")]
    return {str(name.relative_to(path)): name.read_bytes() for name in names}
