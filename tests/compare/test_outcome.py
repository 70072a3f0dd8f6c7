"""What a comparison leaves behind are the stored numbers, and nothing that changes from run to run."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest
from small_plans import small, worked

from fedakd import outcome
from fedakd.compare import Store, jobs_of, read
from fedakd.compare.results import Recorded, record

CHANGES = {"methods": ["fedavg", "fedakd"], "partitions": ["pow", "ics(2)"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("outcome")
    asked = small(**CHANGES)
    last = jobs_of(asked)[-1]
    worked(path, [job for job in jobs_of(asked) if job.name != last.name])
    record(path, Recorded(asked, Store(path), "fedakd compare plan.toml", {"fedakd": "0"}))
    outcome.write_outcome(read(path))
    return path


def test_the_scores_are_those_of_the_rounds_on_disk(folder):
    lines = list(csv.DictReader(io.StringIO((folder / "scores.csv").read_text())))
    setting = read(folder).settings[0]
    cell = next(one for one in setting.cells if (one.method, one.seed) == ("fedakd", 1))
    scores = cell.rounds[-1].scores["personal/accuracy"].values()
    line = next(
        one
        for one in lines
        if (one["partition"], one["method"], one["view"], one["seed"])
        == ("pow(1)", "fedakd", "personal", "1")
    )
    assert float(line["average"]) == pytest.approx(sum(scores) / len(scores))
    assert float(line["maximum"]) == max(scores)
    assert line["judged"] == "True"
    assert int(line["gradients"]) == sum(one.gradients for one in cell.rounds)


def test_what_is_undefined_is_empty_and_never_a_word(folder):
    text = (folder / "scores.csv").read_text()
    assert "nan" not in text
    alone = next(one for one in csv.DictReader(io.StringIO(text)) if one["method"] == "standalone")
    assert math.isclose(float(alone["mean_gain"]), 0.0, abs_tol=1e-12)


def test_a_missing_cell_is_told(folder):
    told = (folder / "summary.md").read_text()
    assert "1 of 12 cells have not been computed yet" in told
    stored = json.loads((folder / "summary.json").read_text())
    assert [len(one["missing"]) for one in stored["settings"]] == [0, 1]


def test_no_time_is_in_the_summaries(folder):
    texts = [(folder / name).read_text() for name in ("summary.json", "summary.md", "scores.csv")]
    before = texts
    for cell in folder.glob("cells/*/timings.jsonl"):
        lines = [json.loads(line) for line in cell.read_text().splitlines()]
        cell.write_text("".join(json.dumps({**line, "seconds": 1e6}) + "\n" for line in lines))
    outcome.write_outcome(read(folder))
    assert [(folder / name).read_text() for name in ("summary.json", "summary.md", "scores.csv")] == before
    assert "1000000" in (folder / "costs.json").read_text()


@pytest.mark.parametrize("leak", [True, False])
def test_leaks_are_told_before_any_number_and_on_each_line(tmp_path, leak):
    asked = small(methods=["fedakd"], partitions=["pow"], seeds=1, preset="released", leak=leak)
    worked(tmp_path, jobs_of(asked))
    record(tmp_path, Recorded(asked, Store(tmp_path), "", {}))
    outcome.write_outcome(read(tmp_path))
    told = (tmp_path / "summary.md").read_text()
    assert ("LEAKY BY DESIGN: trained on their own test rows: fedakd" in told[: told.index("|")]) == leak
    lines = csv.DictReader(io.StringIO((tmp_path / "scores.csv").read_text()))
    assert {(one["method"], one["leaky"]) for one in lines} == {
        ("standalone", "False"),
        ("fedakd", str(leak)),
    }
