"""A federation on one machine: from rows and a method to a result in one call."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from fedakd.engine.base import Engine, Progress, Rows, Spec
from fedakd.engine.processes import Processes, Workers
from fedakd.engine.serial import Serial
from fedakd.errors import FedakdError
from fedakd.federation import Federation
from fedakd.method import ClientInfo, Method, Server
from fedakd.rounds import Budget, Result, Round, nobody_left, run
from fedakd.training import Recipe, Task
from fedakd.trees import Tree


def simulate(
    method: Method,
    federation: Federation,
    task: Task,
    recipe: Recipe,
    *,
    rounds: int,
    seed: int = 0,
    workers: int | None = None,
    participation: float = 1.0,
    budget: Budget | None = None,
    on_round: Callable[[Round, Tree], None] | None = None,
) -> Result:
    """Runs the method on the federation; `workers` as in `engine_for`, results do not depend on it.

    If every client fails to train, there is no result but an error with the first reason.
    """
    engine = engine_for(spec_of(method, federation, task, recipe, seed), workers)
    options: dict[str, Any] = {"participation": participation, "budget": budget, "on_round": on_round}
    try:
        server = server_of(federation, task, recipe)
        result = run(method, engine, server, rounds=rounds, seed=seed, **options)
    finally:
        engine.close()
    if why := nobody_left(result.rounds, federation.clients):
        raise FedakdError(
            f"{type(method).__name__}, round {len(result.rounds)}: {why}; a lower learning rate or inputs "
            "of mean 0 and spread 1 help where the loss is not finite"
        )
    return result


def engine_for(spec: Spec, workers: int | Workers | None = None, progress: Progress | None = None) -> Engine:
    """0: this process alone; a number: that many worker processes; None: one for each core."""
    workers = cores() if workers is None else workers
    return Serial(spec, progress) if workers == 0 else Processes(spec, workers, progress)


def spec_of(method: Method, federation: Federation, task: Task, recipe: Recipe, seed: int) -> Spec:
    examples = federation.dataset.examples
    judged = [federation.test_rows(client) for client in range(federation.clients)]
    # Clients judged on the same array share one object: copies would outweigh their training rows.
    shared = {id(rows): examples(rows) for rows in {id(rows): rows for rows in judged}.values()}
    weights = [federation.test_weights(client) for client in range(federation.clients)]
    clients = tuple(
        Rows(k, examples(train), shared[id(rows)], None if share is None else torch.from_numpy(share))
        for k, (train, rows, share) in enumerate(zip(federation.train, judged, weights, strict=True))
    )
    return Spec(method, task, recipe, seed, clients)


def server_of(federation: Federation, task: Task, recipe: Recipe, threads: int | None = None) -> Server:
    infos = [ClientInfo(k, len(rows)) for k, rows in enumerate(federation.train)]
    validation = federation.dataset.examples(federation.validation) if len(federation.validation) else None
    threads = cores() if threads is None else threads  # everybody else waits for the server
    return Server(task, recipe, threads=threads, clients=infos, validation=validation)


def cores() -> int:
    """The cores this process may use."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, available)
