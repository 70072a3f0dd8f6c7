"""The round loop, the same for every method and every engine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedakd.convergence import last_rounds
from fedakd.engine.base import Engine, Report
from fedakd.errors import FedakdError
from fedakd.method import Method, Server
from fedakd.seeds import derived_seed
from fedakd.threads import one_thread
from fedakd.trees import Params, Tree

Outcomes = dict[str, dict[int, NDArray[np.bool_]]]  # view -> client -> which test rows it gets right


@dataclass(frozen=True)
class Round:
    """What is known after a round."""

    number: int
    participants: list[int]
    scores: dict[str, dict[int, float]]  # "personal/accuracy" -> client -> value; none if not judged
    contributions: list[float] | None
    gradients: int  # sample-gradients of all clients
    bytes_up: int
    bytes_down: int
    failures: dict[int, str]
    seconds: float  # of training and aggregation: what a method costs, however often it is judged
    outcomes: Outcomes = field(default_factory=dict, compare=False, repr=False)  # kept beside, not in JSON


@dataclass(frozen=True)
class Result:
    rounds: list[Round]
    state: Tree  # the server's, after the last round
    stopped: str | None = None  # why it ended before the last round, if it did


@dataclass(frozen=True)
class Budget:
    """A run ends with the round that uses up either of these."""

    seconds: float = math.inf
    gradients: float = math.inf

    def spent(self, rounds: list[Round]) -> str | None:
        seconds = sum(r.seconds for r in rounds if not math.isnan(r.seconds))  # nan: lost by an earlier run
        gradients = sum(r.gradients for r in rounds)
        if seconds >= self.seconds:
            return f"the budget of {self.seconds:g} seconds was used up after round {len(rounds)}"
        if gradients >= self.gradients:
            return f"the budget of {self.gradients:g} sample-gradients was used up after round {len(rounds)}"
        return None


@dataclass(frozen=True)
class Start:
    """Where a run stands: the beginning, or what a checkpoint says."""

    state: Tree
    rounds: list[Round] = field(default_factory=list)


def begin(method: Method, engine: Engine, server: Server, *, seed: int) -> Start:
    """The state before the first round; the engine's clients are set up with the same parameters."""
    state, params = opened(method, server, seed)
    engine.start(params)
    return Start(state)


def opened(method: Method, server: Server, seed: int) -> tuple[Tree, Params]:
    """The server's state before the first round, and the first parameters; an error if it cannot begin."""
    check(method, server)
    params = server.init(seed)
    with one_thread():
        return method.server_init(server, params), params


def run(
    method: Method,
    engine: Engine,
    server: Server,
    *,
    rounds: int,
    seed: int = 0,
    participation: float = 1.0,
    budget: Budget | None = None,
    judge_every: int = 1,
    start: Start | None = None,
    on_round: Callable[[Round, Tree], None] | None = None,
) -> Result:
    """Rounds until the last or the end of the budget; `on_round` gets each and the server state after it.

    Models are judged in the rounds `is_judged` names, and after the round that ends the budget.
    """
    at = begin(method, engine, server, seed=seed) if start is None else start
    state, history = at.state, list(at.rounds)
    budget = budget or Budget()
    for number in range(len(history) + 1, rounds + 1):
        stopped = budget.spent(history) or nobody_left(history, len(server.clients))
        if stopped and history[-1].scores:  # or another round: a result nobody judged is none
            return Result(history, state, stopped)
        chosen = participants(len(server.clients), participation, seed, number)
        server.stream = (seed, number, 0)
        state, record = play(method, engine, server, state, number, chosen)
        due = is_judged(number, rounds, judge_every)
        if due or budget.spent([*history, record]) or nobody_left([*history, record], len(server.clients)):
            record = judged(record, method, engine, server, state, failing([*history, record]))
        history.append(record)
        if on_round:
            on_round(record, state)
    return Result(history, state, nobody_left(history, len(server.clients)))


def is_judged(number: int, rounds: int, judge_every: int) -> bool:
    """Every `judge_every`-th round, the last, and all of the last quarter, at least four.

    The last quarter shows whether a run has converged (see `fedakd.convergence`).

    >>> [number for number in range(1, 21) if is_judged(number, 20, judge_every=5)]
    [5, 10, 15, 16, 17, 18, 19, 20]
    """
    return number % judge_every == 0 or number > rounds - max(1, last_rounds(rounds))


def play(
    method: Method, engine: Engine, server: Server, state: Tree, number: int, chosen: list[int]
) -> tuple[Tree, Round]:
    """One round: send, train, aggregate."""
    began = time.perf_counter()
    updates, reports = engine.train(number, Messages(method, state, chosen))
    failures = {client: report.failure for client, report in reports.items() if report.failure}
    with one_thread():
        state = method.server_update(server, state, updates) if updates else state
        contributions = method.contributions(state)
    shares = None if contributions is None else [float(share) for share in contributions]
    seconds = time.perf_counter() - began
    return state, Round(number, chosen, {}, shares, *totals(reports), failures, seconds)


def judged(
    record: Round, method: Method, engine: Engine, server: Server, state: Tree, failed: Mapping[int, str]
) -> Round:
    """The round with the scores of every client's models after it.

    A client whose last training failed has no score: nan. It can still deploy a model that it does not train,
    the global one, unless training failed everywhere.
    """
    everyone = [client.id for client in server.clients]
    results = engine.evaluate(record.number, Messages(method, state, everyone))
    nobody_trained = len(failed) == len(everyone)

    def lost(client: int, view: str) -> bool:
        return client in failed and (view != "global" or nobody_trained)

    scores = {
        client: {n: math.nan if lost(client, n.split("/")[0]) else v for n, v in result.scores.items()}
        for client, result in results.items()
    }
    views = dict.fromkeys(view for result in results.values() for view in result.outcomes)
    outcomes = {
        view: {
            client: result.outcomes[view]
            for client, result in results.items()
            if view in result.outcomes and not lost(client, view)
        }
        for view in views
    }
    return replace(record, scores=by_measure(scores), outcomes=outcomes)


def failing(history: list[Round]) -> dict[int, str]:
    """The clients whose last attempt to train failed, and why."""
    last: dict[int, str | None] = {}
    for record in history:
        last |= {client: record.failures.get(client) for client in record.participants}
    return {client: why for client, why in last.items() if why}


def nobody_left(history: list[Round], clients: int) -> str | None:
    """Why there is no point in another round: the last attempt of every single client failed."""
    broken = failing(history)
    if len(broken) < clients:
        return None
    first = next(iter(broken.values()))
    return f"every client failed; the first: {first}"


class Messages(Mapping[int, Tree]):
    """The messages of a round, each made when it is asked for, so that they never all exist at once."""

    def __init__(self, method: Method, state: Tree, clients: list[int]) -> None:
        self.method, self.state, self.clients = method, state, clients

    def __getitem__(self, client: int) -> Tree:
        return self.method.send(self.state, client)

    def __iter__(self) -> Iterator[int]:
        return iter(self.clients)

    def __len__(self) -> int:
        return len(self.clients)


def participants(clients: int, participation: float, seed: int, number: int) -> list[int]:
    """Who takes part in this round: a fresh choice each round, at least one client.

    >>> participants(4, 1.0, 0, 1), len(participants(10, 0.25, 0, 1))
    ([0, 1, 2, 3], 3)
    """
    count = max(1, math.ceil(participation * clients - 1e-9))
    rng = np.random.default_rng(derived_seed(seed, number, "participants"))
    return sorted(int(client) for client in rng.permutation(clients)[:count])


def by_measure(scores: dict[int, dict[str, float]]) -> dict[str, dict[int, float]]:
    measures = {measure: None for own in scores.values() for measure in own}
    return {m: {client: own[m] for client, own in scores.items() if m in own} for m in measures}


def totals(reports: dict[int, Report]) -> tuple[int, int, int]:
    """Sample-gradients, bytes up and bytes down."""
    return (
        sum(report.gradients for report in reports.values()),
        sum(report.bytes_up for report in reports.values()),
        sum(report.bytes_down for report in reports.values()),
    )


def check(method: Method, server: Server) -> None:
    if method.needs_validation and server.validation is None:
        name = type(method).__name__
        raise FedakdError(
            f"{name} needs validation rows on the server; federate(..., ratio=(7, 1, 2)) sets them aside"
        )
    if empty := [client.id for client in server.clients if client.n == 0]:
        raise FedakdError(f"every client needs rows to train on, client {empty[0]} has none; leave it out")
