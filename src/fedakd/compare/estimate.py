"""How long a comparison will take here, from one short cell."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from fedakd.compare.jobs import Job
from fedakd.compare.schema import canonical
from fedakd.data import load
from fedakd.data.images import ImageDataset
from fedakd.engine.serial import Serial
from fedakd.federation import federate
from fedakd.methods import METHODS
from fedakd.models import factory
from fedakd.partition import GaussianShift, parse
from fedakd.rounds import Messages, begin, is_judged
from fedakd.simulation import server_of, spec_of
from fedakd.training import Task

SAMPLE = 1500  # training rows of the short cell
CLIENTS = 2
# Seconds of a round against FedAvg's, without what the server judges; `benchmarks/rounds.py --method all`.
RELATIVE = {"fedakd": 1.3, "fedmpr": 1.9, "fedprox": 1.1, "cgsv": 1.1}
JUDGING = ("cffl", "fedave")  # every round the server judges each client's model on its validation rows
ROUND, START = 0.05, 5.0  # seconds for a round's files, and for processes to begin
VIEWS = 2  # models of a method that are judged, at most
POOLS = (0.7, 0.1, 0.2)


@dataclass(frozen=True)
class Pace:
    """Seconds on one core for one row."""

    rows: int  # of the dataset
    trained: float
    judged: float

    def seconds(self, job: Job) -> float:
        """What a job will take, roughly."""
        plan, name = job.plan, job.method.split("(")[0]
        train, held_back, test = (share * self.rows * plan.fraction for share in POOLS)
        rounds = plan.rounds if plan.equal_time else plan.rounds_of(job.method)
        learned = rounds * train * plan.scale * plan.epochs * RELATIVE.get(name.split("-")[0], 1.0)
        common = plan.evaluation == "global" or evaluated_together(plan.partition)
        if plan.preset != "released" and isinstance(parse(canonical(plan.partition)), GaussianShift):
            common, test = True, POOLS[2] * self.rows  # all clients are judged on the whole test pool
        judgements = sum(is_judged(number, rounds, plan.judge_every) for number in range(1, rounds + 1))
        looked = judgements * test * VIEWS * (plan.clients if common else 1)
        looked += rounds * held_back / max(plan.fraction, 1e-9) * plan.clients if name in JUDGING else 0
        return learned * self.trained + looked * self.judged + rounds * ROUND


def evaluated_together(partition: str) -> bool:
    return getattr(parse(canonical(partition)), "evaluation", "local") == "global"


def expected(jobs: list[Job], processes: int, data_dir: Path | None = None) -> float:
    """Seconds for all jobs on so many cores; one short cell is measured for each dataset and net."""
    paces: dict[tuple[str, str], Pace] = {}
    total = 0.0
    for job in jobs:
        key = (job.plan.dataset, job.plan.model)
        if key not in paces:
            paces[key] = measured(job, load(job.plan.dataset, data_dir))
        total += paces[key].seconds(job)
    return START + total / max(1, min(processes, len(jobs)))


def measured(job: Job, dataset: ImageDataset) -> Pace:
    """The pace of one round of FedAvg with two clients and few rows."""
    rows = min(SAMPLE, len(dataset.y) // 2)
    federation = federate(dataset, "iid", CLIENTS, fraction=rows / len(dataset.y), seed=0)
    task = Task(factory(job.plan.model, dataset.shape, dataset.classes))
    method, recipe = METHODS["fedavg"], replace(job.plan.recipe, epochs=1)
    engine = Serial(spec_of(method, federation, task, recipe, 0))
    start = begin(method, engine, server_of(federation, task, recipe, 1), seed=0)
    messages = Messages(method, start.state, list(range(CLIENTS)))
    engine.train(1, messages)  # the first steps of a process are slower
    trained = timed(lambda: engine.train(1, messages)) / sum(map(len, federation.train))
    judged = timed(lambda: engine.evaluate(1, messages)) / (VIEWS * sum(map(len, federation.test)))
    return Pace(len(dataset.y), trained, judged)


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
