"""The time a comparison will take is measured on one short cell and follows from what there is to do."""

from __future__ import annotations

import pytest
from small_plans import small

from fedakd.compare import Job, jobs_of
from fedakd.compare.estimate import ROUND, START, Pace, expected, measured
from fedakd.data import load

PACE = Pace(rows=1000, trained=1.0, judged=0.0)
LOOK = Pace(rows=1000, trained=0.0, judged=1.0)


def job(method: str = "fedavg", **changes: object) -> Job:
    asked = small(**{"methods": [method], "partitions": ["pow"], "scale": 1.0, "rounds": 10, **changes})
    return next(one for one in jobs_of(asked) if one.method.startswith(method))


def learning(one: Job) -> float:
    """Without what each round takes however little there is to learn."""
    return PACE.seconds(one) - ROUND * one.plan.rounds


def looking(one: Job) -> float:
    return LOOK.seconds(one) - ROUND * one.plan.rounds


def test_training_grows_with_rounds_rows_and_epochs():
    assert learning(job()) == pytest.approx(10 * 700)
    assert learning(job(rounds=20, epochs=3)) == pytest.approx(6 * 10 * 700)
    assert learning(job(scale=0.1)) == pytest.approx(0.1 * 10 * 700)
    assert learning(job("fedakd")) > learning(job("fedprox")) > learning(job())


def test_judging_does_not_shrink_with_scale_but_with_how_often_it_is_done():
    assert looking(job(scale=0.1)) == pytest.approx(looking(job()))
    assert looking(job(judge_every=5, rounds=40)) == pytest.approx(looking(job(rounds=40)) * 16 / 40)
    assert looking(job(partitions=["dir(1)"])) == pytest.approx(3 * looking(job())), (
        "all on one common test set"
    )
    whole_pool = looking(job(partitions=["ics(1)"], fraction=0.5))
    assert whole_pool == pytest.approx(3 * looking(job())), (
        "all on the whole test pool, whatever the fraction"
    )
    assert looking(job("cffl")) > looking(job()), "its server judges too"


def test_processes_share_the_work(monkeypatch):
    monkeypatch.setattr("fedakd.compare.estimate.measured", lambda *_: PACE)
    jobs = jobs_of(small())
    alone, four, more = (expected(jobs, processes) - START for processes in (1, 4, 400))
    assert alone == pytest.approx(4 * four) == pytest.approx(len(jobs) * more), "no more than there are cells"


def test_a_pace_is_of_this_machine_and_net():
    paces = [measured(job(model=name), load("digits")) for name in ("linear", "cnn3")]
    assert all(one.rows == 1797 and one.trained > 0 and one.judged > 0 for one in paces)
    assert paces[1].trained > paces[0].trained
