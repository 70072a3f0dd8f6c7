"""What a comparison has to compute: one job for each method and seed of each setting."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from fedakd.compare.schema import Comparison
from fedakd.drawn import asked
from fedakd.errors import PlanError
from fedakd.plan import Plan, fingerprint


@dataclass(frozen=True)
class Job:
    """One cell to be computed."""

    plan: Plan
    method: str
    seed: int

    @cached_property
    def name(self) -> str:
        """Of its folder: equal for equal fields, whatever comparison asks for it."""
        return fingerprint(self.plan.cell(self.method, self.seed))

    @property
    def label(self) -> str:
        return f"{self.plan.dataset} {self.plan.partition} {self.method} seed {self.seed}"

    @property
    def after(self) -> Job | None:
        """The job whose time or sample-gradients this one gets, where these are to be equal."""
        pacing = self.plan.paced_by(self.method)
        return None if pacing is None else self._of(pacing)

    def _of(self, method: str) -> Job:
        return Job(self.plan, method, self.seed)

    @cached_property
    def federation(self) -> str:
        """The name of the rows it stands on, with those of the leaking methods beside it."""
        return asked(self.plan, self.seed, leak=False)


def jobs_of(comparison: Comparison) -> list[Job]:
    """Each once. Seed by seed, so that a comparison that was stopped has whole tables of fewer seeds."""
    settings = comparison.settings
    seeds = dict.fromkeys(seed for plan in settings for seed in plan.seeds)
    found = (
        Job(plan, method, seed)
        for dataset in comparison.datasets
        for seed in seeds
        for plan in settings
        if plan.dataset == dataset and seed in plan.seeds
        for method in plan.methods
    )
    return list({job.name: job for job in found}.values())


def sharded(jobs: list[Job], shard: str | None) -> list[Job]:
    """The jobs of one machine of several, as `2/4`; a federation is never split.

    Another processor rounds otherwise and would draw a few other rows for the same seed.
    """
    if shard is None:
        return jobs
    match = re.fullmatch(r"(\d+)/(\d+)", shard.strip())
    number, count = (int(part) for part in match.groups()) if match else (0, 0)
    if not 1 <= number <= count:
        raise PlanError(f"--shard must be like 1/4, the first of four parts; got {shard}")
    federations = list(dict.fromkeys(job.federation for job in jobs))
    own = set(federations[number - 1 :: count])
    return [job for job in jobs if job.federation in own]
