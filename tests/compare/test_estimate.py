"""The time a comparison will take is measured on one short cell and follows from what there is to do."""

from __future__ import annotations

import pytest
from small_plans import small

from fedakd.compare import Job, jobs_of
from fedakd.compare.estimate import Pace, expected, measured
from fedakd.data import load

PACE = Pace(rows=1000, trained=1.0, judged=0.0)
LOOK = Pace(rows=1000, trained=0.0, judged=1.0)


def job(method: str = "fedavg", **changes: object) -> Job:
    asked = small(**{"methods": [method], "partitions": ["pow"], "scale": 1.0, "rounds": 10, **changes})
    return next(one for one in jobs_of(asked) if one.method.startswith(method))


def test_training_grows_with_rounds_rows_and_epochs():
    assert PACE.seconds(job()) == pytest.approx(10 * 700)
    assert PACE.seconds(job(rounds=20, epochs=3)) == pytest.approx(6 * 10 * 700)
    assert PACE.seconds(job(scale=0.1)) == pytest.approx(0.1 * 10 * 700)
    assert PACE.seconds(job("fedakd")) > PACE.seconds(job("fedprox")) > PACE.seconds(job())


def test_judging_does_not_shrink_with_scale_but_with_how_often_it_is_done():
    assert LOOK.seconds(job(scale=0.1)) == LOOK.seconds(job())
    assert LOOK.seconds(job(judge_every=5)) == pytest.approx(LOOK.seconds(job()) / 5)
    assert LOOK.seconds(job(partitions=["dir(1)"])) == 3 * LOOK.seconds(job()), "all on one common test set"
    assert LOOK.seconds(job("cffl")) > LOOK.seconds(job()), "its server judges too"


def test_processes_share_the_work(monkeypatch):
    monkeypatch.setattr("fedakd.compare.estimate.measured", lambda *_: PACE)
    jobs = jobs_of(small())
    alone, four, more = (expected(jobs, processes) for processes in (1, 4, 400))
    assert alone == pytest.approx(4 * four) == pytest.approx(len(jobs) * more), "no more than there are cells"


def test_a_pace_is_of_this_machine_and_net():
    paces = [measured(job(model=name), load("digits")) for name in ("linear", "cnn3")]
    assert all(one.rows == 1797 and one.trained > 0 and one.judged > 0 for one in paces)
    assert paces[1].trained > paces[0].trained
