"""A method on trial: the runs that checks share, each made once, and the workers they run on."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedakd import wire
from fedakd.engine.base import ClientError, Engine, read_kept
from fedakd.engine.processes import Processes, Workers
from fedakd.engine.serial import Serial
from fedakd.errors import FedakdError
from fedakd.method import Method
from fedakd.rounds import Result, Round, Start, run
from fedakd.testing.cases import Case
from fedakd.testing.report import Violation, differences, raised
from fedakd.testing.watching import Log, Watched
from fedakd.trees import Tree, leaves

COUNTS = (1, 2, 3)  # of workers


@dataclass
class Outcome:
    """What a run must give again whenever, wherever and however often it is made."""

    states: list[Tree]
    kept: dict[int, Tree]
    rounds: list[Round]  # their seconds set to 0


@dataclass
class Played(Outcome):
    """A run in this process of which everything was seen."""

    case: Case
    log: Log = field(default_factory=Log)
    error: Exception | None = None

    def crash(self) -> Iterator[Violation]:
        """Why it did not come to its end, if so."""
        if self.error is not None and self.log.failed:
            inner = self.error.__cause__ if isinstance(self.error, ClientError) else None
            yield raised(f"{self.case}, {self.log.failed}", inner or self.error)
        elif self.error is not None:
            yield raised(str(self.case), self.error)


class Subject:
    """A method, and what is known of it so far."""

    def __init__(self, method: Method, workers: bool | Workers = True) -> None:
        if isinstance(method, type):
            raise FedakdError(f"expected a method such as {method.__name__}(), got the class itself")
        if not isinstance(method, Method):
            raise FedakdError(f"expected an instance of a subclass of fedakd.Method, got {method!r}")
        self.method = method
        self.owned = workers is True
        self.workers = started(max(COUNTS)) if workers is True else workers or None
        self.verdicts: dict[str, Any] = {}
        self._played: dict[Case, Played] = {}

    def close(self) -> None:
        if self.owned and self.workers:
            self.workers.close()
        self.workers = None

    def played(self, case: Case) -> Played:
        if case not in self._played:
            self._played[case] = watched_run(self.method, case)
        return self._played[case]

    def again(self, case: Case) -> Outcome:
        """The same run, nobody watching."""
        return outcome(self.method, case, Serial(case.spec(self.method)))

    def in_workers(self, case: Case, count: int) -> Outcome:
        with self.crew(count) as workers:
            return outcome(self.method, case, Processes(case.spec(self.method), workers))

    def resumed(self, case: Case, stop: int) -> Outcome:
        """The run stopped after some rounds, and finished from files by another engine."""
        with tempfile.TemporaryDirectory(prefix="fedakd-") as folder:
            first = Serial(case.spec(self.method))
            half = rounds_of(self.method, replace(case, rounds=stop), first)
            first.save(Path(folder))
            start = Start(wire.loads(wire.dumps(half.state)), half.rounds)
            self.again(replace(case, seed=case.seed + 1, rounds=1))  # so that no memory but the files is left
            with self.crew(2) as workers:
                spec = case.spec(self.method)
                second: Engine = Processes(spec, workers) if workers else Serial(spec)
                second.load(Path(folder))
                return outcome(self.method, case, second, start)

    @contextmanager
    def crew(self, count: int) -> Iterator[Any]:
        """The first so many of the workers; nobody, where there are none."""
        if self.workers is None:
            yield None
            return
        pool, processes, pipes = self.workers, self.workers.processes, self.workers.pipes
        pool.processes, pool.pipes = processes[:count], pipes[:count]
        try:
            yield pool
        finally:  # one that died has been replaced in the shorter lists
            pool.processes = pool.processes + processes[count:]
            pool.pipes = pool.pipes + pipes[count:]


def started(count: int) -> Workers:
    """New workers; where they cannot start, as in a script without a guard, nothing is left behind."""
    spool = Path(tempfile.mkdtemp(prefix="fedakd-"))
    try:
        return Workers(count, spool)
    except BaseException:  # Ctrl-C too: the folder goes, the error stays
        shutil.rmtree(spool, ignore_errors=True)
        raise


def watched_run(method: Method, case: Case) -> Played:
    """The case in this process, with the method of the server and of every site under observation."""
    played = Played([], {}, [], case)
    engine, server = Serial(case.spec(method)), case.server()
    for client, site in engine.sites.items():
        site.method = Watched(method, played.log, site.client, client, case.absent)

    def on_round(record: Round, state: Tree) -> None:
        played.rounds.append(replace(record, seconds=0.0))
        played.states.append(state)

    try:
        watched = Watched(method, played.log, server)
        rounds_of(watched, case, engine, server=server, on_round=on_round)
    except Exception as error:  # a method is anybody's code and may raise anything
        played.error = error
    played.kept = {client: site.kept for client, site in engine.sites.items()}
    return played


def outcome(method: Method, case: Case, engine: Engine, start: Start | None = None) -> Outcome:
    states: list[Tree] = []
    result = rounds_of(method, case, engine, start=start, on_round=lambda _, state: states.append(state))
    if isinstance(engine, Serial):
        kept = {client: site.kept for client, site in engine.sites.items()}
    else:
        kept = saved(engine)
    return Outcome(states, kept, [replace(record, seconds=0.0) for record in result.rounds])


def rounds_of(
    method: Method,
    case: Case,
    engine: Engine,
    *,
    server: Any = None,
    start: Start | None = None,
    on_round: Callable[[Round, Tree], None] | None = None,
) -> Result:
    options: dict[str, Any] = {"rounds": case.rounds, "seed": case.seed, "participation": case.participation}
    return run(method, engine, server or case.server(), start=start, on_round=on_round, **options)


def saved(engine: Engine) -> dict[int, Tree]:
    with tempfile.TemporaryDirectory(prefix="fedakd-") as folder:
        engine.save(Path(folder))
        return read_kept(Path(folder))


def contrasts(where: str, expected: Outcome, came: Outcome) -> Iterator[Violation]:
    """In what two outcomes differ: states first, for what is kept and scored follows from them."""
    for number, (a, b) in enumerate(zip(expected.states[::-1], came.states[::-1], strict=False)):
        place = f"{where}, state after round {len(expected.states) - number}"
        yield from differences(place, dict(leaves(a)), dict(leaves(b)))
    for client in sorted(expected.kept):
        place = f"{where}, kept by client {client}"
        yield from differences(place, dict(leaves(expected.kept[client])), dict(leaves(came.kept[client])))
    if len(came.rounds) != len(expected.rounds):
        yield Violation(where, f"{len(expected.rounds)} rounds", f"{len(came.rounds)}")
    for ours, theirs in zip(expected.rounds, came.rounds, strict=False):
        yield from differences(f"{where}, round {ours.number}", record(ours), record(theirs))


def record(one: Round) -> Mapping[str, Any]:
    """A round as leaves by path."""
    scores = {f"score {m} of client {k}": v for m, own in one.scores.items() for k, v in own.items()}
    counts = {"gradients": one.gradients, "bytes up": one.bytes_up, "bytes down": one.bytes_down}
    rest = {"participants": one.participants, "contributions": one.contributions, "failures": one.failures}
    return {**scores, **counts, **rest}
