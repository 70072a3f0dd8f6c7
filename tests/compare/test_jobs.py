"""A cell is known by what determines its numbers, and by nothing else."""

from __future__ import annotations

import pytest
from small_plans import small

from fedakd.compare import jobs_of, sharded
from fedakd.errors import PlanError


def names(**changes: object) -> set[str]:
    return {job.name for job in jobs_of(small(**changes))}


def test_there_is_one_job_for_each_setting_method_and_seed():
    jobs = jobs_of(small())
    assert len(jobs) == 2 * 3 * 2, "Standalone is among the methods"
    assert len({job.label for job in jobs}) == len(jobs)


def test_standalone_is_one_job_for_each_federation_whoever_asks():
    alone = {job.name for job in jobs_of(small()) if job.method == "standalone"}
    assert len(alone) == 4
    assert alone <= names(methods=["cffl"])


def test_comparisons_share_the_cells_they_have_in_common():
    assert names(methods=["fedavg"]) < names()
    assert names(seeds=[1]) < names()
    assert names(partitions=["pow"]) < names()
    assert names(title="another", about="name") == names()


@pytest.mark.parametrize(
    "change",
    [
        {"lr": 0.5}, {"rounds": 3}, {"scale": 0.3}, {"fraction": 0.9}, {"clients": 4}, {"model": "mlp"},
        {"preset": "paper"}, {"judge_every": 2}, {"max_gradients": 9.0}, {"epochs": 2},
    ],
)  # fmt: skip
def test_every_choice_that_changes_numbers_changes_the_cell(change):
    assert not names(**change) & names()


def test_a_new_version_of_results_has_new_cells(monkeypatch):
    before = names()
    monkeypatch.setattr("fedakd.plan.RESULTS", 10**6)
    assert not names() & before


def test_whole_seeds_come_before_the_next():
    seeds = [job.seed for job in jobs_of(small(seeds=3))]
    assert seeds == sorted(seeds)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_are_a_partition_of_the_jobs_that_splits_no_federation(count):
    jobs = jobs_of(small())
    parts = [sharded(jobs, f"{k}/{count}") for k in range(1, count + 1)]
    assert sorted(job.name for part in parts for job in part) == sorted(job.name for job in jobs)
    owners = {(job.federation, k) for k, part in enumerate(parts) for job in part}
    assert len(owners) == len({federation for federation, _ in owners})


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/0", "-1/2"])
def test_a_shard_that_is_none_is_refused(text):
    with pytest.raises(PlanError, match=r"--shard must be like 1/4"):
        sharded(jobs_of(small()), text)


def test_where_times_are_equal_all_but_the_reference_wait_for_the_one_that_sets_it():
    jobs = jobs_of(small(methods=["fedavg", "fedakd"], equal_time="fedakd"))
    waits = {job.method: job.after.method if job.after else None for job in jobs}
    assert waits == {"standalone": None, "fedakd": None, "fedavg": "fedakd"}
    assert [job.method for job in jobs[:3]] == ["standalone", "fedakd", "fedavg"]


def test_where_gradients_are_equal_the_reference_waits_too():
    jobs = jobs_of(small(methods=["fedavg", "fedakd"], equal_gradients="fedakd"))
    waits = {job.method: job.after.method if job.after else None for job in jobs}
    assert waits == {"standalone": "fedakd", "fedakd": None, "fedavg": "fedakd"}


def test_what_does_not_change_a_cells_numbers_does_not_change_its_name():
    usual = {job.method: job.name for job in jobs_of(small())}
    same = small(equal_gradients="fedakd", method_rounds={"fedavg": 9})
    names = {job.method: job.name for job in jobs_of(same)}
    assert names["fedakd"] == usual["fedakd"]
    assert names["fedavg"] != usual["fedavg"]
    longer = {job.method: job.name for job in jobs_of(small(rounds=9))}
    assert {job.method: job.name for job in jobs_of(small(method_rounds={"fedavg": 9}))} == usual | {
        "fedavg": longer["fedavg"]
    }


@pytest.mark.parametrize("pacing", ["equal_gradients", "equal_time"])
def test_cells_that_end_with_another_method_are_named_by_its_cell(pacing):
    """Other rounds of FedAKD are another budget for everybody else."""
    plans = [small(**{pacing: "fedakd"}), small(**{pacing: "fedakd"}, method_rounds={"fedakd": 1})]
    names = [{job.method: job.name for job in jobs_of(plan)} for plan in plans]
    assert names[0]["fedavg"] != names[1]["fedavg"]
