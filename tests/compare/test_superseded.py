"""Results of an earlier version are still read and reported, and marked as superseded."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_plans import small, worked

from fedakd import plan as plans
from fedakd.compare import Results, Store, jobs_of, read
from fedakd.compare.results import Recorded, record
from fedakd.outcome import remarks, write_outcome
from fedakd.report.page import html

FEW = {"methods": ["fedavg"], "partitions": ["pow"], "seeds": 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    worked(tmp_path, **FEW)
    record(tmp_path, Recorded(small(**FEW), Store(tmp_path), "fedakd compare plan.toml", {}))
    return tmp_path


def numbers(results: Results) -> list[object]:
    return [cell.rounds for setting in results.settings for cell in setting.cells]


def test_results_of_the_present_version_are_not_marked(folder: Path) -> None:
    results = read(folder)
    assert not any(setting.superseded for setting in results.settings)
    assert not any("SUPERSEDED" in remark for remark in remarks(results))


def test_earlier_results_are_found_by_their_recorded_names_and_marked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, names = read(folder), {job.name for job in jobs_of(small(**FEW))}
    monkeypatch.setattr(plans, "RESULTS", plans.RESULTS + 1)
    assert names.isdisjoint(job.name for job in jobs_of(small(**FEW)))
    after = read(folder)
    assert numbers(after) == numbers(before)
    assert after.settings[0].audits == before.settings[0].audits != {}
    assert all(setting.superseded and not setting.missing for setting in after.settings)
    assert "SUPERSEDED" in remarks(after)[0]
    assert "SUPERSEDED" in html(after)
    write_outcome(after)
    assert "SUPERSEDED" in (folder / "summary.md").read_text()


def test_the_command_given_again_computes_superseded_cells_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "RESULTS", plans.RESULTS + 1)
    assert len(worked(folder, **FEW).named("finished")) == 2
    record(folder, Recorded(small(**FEW), Store(folder), "fedakd compare plan.toml", {}))
    assert not any(setting.superseded for setting in read(folder).settings)
