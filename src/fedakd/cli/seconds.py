"""How long the paper's figures about shift will take here: a little is measured, and the rest by rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from fedakd.cli.seeds import Ground
    from fedakd.partition.contract import Rows
    from fedakd.shift import Sites

SHORT = 2000  # rows of the epoch that is measured
LOOKED = 500  # rows a model is measured on that looks at them
TENTH = SHORT // 10  # rows that epoch is judged on


def announce_rounds(asked: Ground, workers: int | None, dims: int, repeats: int) -> None:
    """Of Figure 2: FedAvg's rounds by one short cell, the rest by some of one client's rows."""
    seeds = len(asked.plan.seeds)
    each = of_rounds(asked, workers) + of_looking(asked, dims) + of_partings(asked, dims, repeats)
    _announce(f"about {_duration(each * seeds)} for {_seeds(seeds)}, by one short cell")


def announce_fitting(asked: Ground, sites: Sites, kind: str, dims: int | None) -> None:
    """Of features that are trained; the others take seconds."""
    from fedakd.features import TRAINED

    if kind in TRAINED:
        seeds = len(asked.plan.seeds)
        most = _duration(of_fitting(sites, kind, dims) * seeds)
        told = f"at most about {most} of training for {_seeds(seeds)}, by one short epoch"
        _announce(f"{told}; what an earlier call has trained is not trained again")


def of_rounds(asked: Ground, workers: int | None) -> float:
    """Seconds of one seed's rounds: a round lasts as long as its busiest process."""
    from fedakd.compare import Job
    from fedakd.compare.estimate import VIEWS, measured
    from fedakd.simulation import cores

    plan, federation = asked.plan, asked.first
    pace = measured(Job(plan, "fedavg", federation.seed), asked.dataset)
    judged = [VIEWS * len(federation.test_rows(client)) for client in range(federation.clients)]
    pairs = zip(federation.train, judged, strict=True)
    work = [len(rows) * pace.trained + looked * pace.judged for rows, looked in pairs]
    processes = max(1, cores() if workers is None else workers)
    return plan.rounds * max(sum(work) / processes, max(work))


def of_looking(asked: Ground, dims: int) -> float:
    """Seconds in which one seed's trained model looks at all rows, by few rows and a model that is not."""
    from fedakd.compare.estimate import timed
    from fedakd.shift.halves import seen_by, task_of
    from fedakd.training import Bench

    rows = _distinct(asked)
    bench = Bench(task_of(asked.first, asked.plan.model), asked.plan.recipe)
    few = asked.dataset.examples(max(rows, key=len)[:LOOKED])
    spent = timed(lambda: seen_by(bench.init(0), bench, [few], dims, 0))
    return spent * sum(map(len, rows)) / len(few)


def of_partings(asked: Ground, dims: int, repeats: int) -> float:
    """Seconds of one seed's random partings, by one of the largest client's rows; values do not matter."""
    import numpy as np

    from fedakd.compare.estimate import timed
    from fedakd.shift.wrong import divergences

    rows = [len(own) for own in _distinct(asked)]
    rng = np.random.default_rng(0)
    z, right = rng.normal(size=(max(rows), dims)), rng.random(max(rows)) < 0.8
    divergences([z], [right])  # the first call imports
    return repeats * timed(lambda: divergences([z], [right])) * sum(rows) / max(rows)


def of_fitting(sites: Sites, kind: str, dims: int | None) -> float:
    """Seconds of all epochs, were none spared by stopping early."""
    from fedakd.compare.estimate import timed
    from fedakd.models.vae import TRAINING
    from fedakd.shift import feature_map

    short = replace(sites, fitting=sites.fitting[:SHORT], validation=sites.validation[:TENTH])
    spent = timed(lambda: feature_map(short, kind, dims, seed=0, epochs=1))
    return TRAINING.epochs * spent * len(sites.fitting) / len(short.fitting)


def _distinct(asked: Ground) -> list[Rows]:
    """Every client's different rows: copies are not parted."""
    import numpy as np

    return [np.unique(own) for own in asked.first.train]


def _duration(seconds: float) -> str:
    from fedakd.cli.board import duration

    return duration(max(seconds, 1))


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _announce(what: str) -> None:
    typer.echo(what, err=True)
