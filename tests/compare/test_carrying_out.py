"""What a comparison does before its first cell and after its last."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_plans import SAID, small, worked
from typer.testing import CliRunner

from fedakd.cli import app
from fedakd.cli.artefacts import plan_of
from fedakd.compare import Store, jobs_of, read
from fedakd.compare.results import Recorded, record
from fedakd.errors import DataError, PlanError
from fedakd.outcome import write_outcome
from fedakd.paper import drawing
from fedakd.tables import cost_lines, costs

FEW = {**SAID, "methods": ["fedavg"], "partitions": ["pow"], "seeds": 1}


def written(path: Path, **changes: object) -> Path:
    lines = [f"{key} = {json.dumps(value)}" for key, value in {**FEW, **changes}.items()]
    path.write_text("\n".join(lines))
    return path


def compare(*words: str | Path) -> object:
    return CliRunner().invoke(app, ["compare", *map(str, words), "--workers", "0"])


def test_a_dataset_that_cannot_be_had_ends_it_before_any_cell(tmp_path, monkeypatch):
    asked = []

    def nowhere(name, *_, **__):
        asked.append(name)
        raise DataError(f"{name} is not on this machine")

    monkeypatch.setattr("fedakd.data.load", nowhere)
    result = compare(written(tmp_path / "plan.toml"), "--out", tmp_path / "out")
    assert isinstance(result.exception, DataError)
    assert asked == ["digits"], "not once for each cell"
    assert not (tmp_path / "out" / "cells").exists()


def test_a_store_that_is_a_file_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "file").write_text("mine")
    result = compare(written(tmp_path / "plan.toml"), "--out", tmp_path / "out", "--store", tmp_path / "file")
    assert isinstance(result.exception, PlanError)
    assert "cells need a folder" in str(result.exception)
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "file").read_text() == "mine"


def test_tables_of_another_comparison_are_set_aside_and_other_files_left_alone(tmp_path):
    out = tmp_path / "out"
    assert compare(written(tmp_path / "a.toml"), "--out", out).exit_code == 0
    before = (out / "summary.json").read_bytes()
    (out / "notes.txt").write_text("mine")
    (out / "report.html").write_text("of the first")
    assert compare(written(tmp_path / "b.toml", rounds=1), "--out", out).exit_code == 0
    aside = out / "replaced" / "tables-0"
    assert (aside / "summary.json").read_bytes() == before != (out / "summary.json").read_bytes()
    assert {path.name for path in aside.iterdir()} >= {"comparison.json", "report.html", "tables.csv"}
    assert not (out / "report.html").exists()
    assert (out / "notes.txt").read_text() == "mine"
    assert len(list((out / "cells").iterdir())) == 4


def test_the_same_comparison_again_sets_nothing_aside(tmp_path):
    for _ in range(2):
        assert compare(written(tmp_path / "a.toml"), "--out", tmp_path / "out").exit_code == 0
    assert not (tmp_path / "out" / "replaced").exists()


def test_a_lost_audit_is_there_again_after_the_same_command(tmp_path):
    plan, out = written(tmp_path / "a.toml"), tmp_path / "out"
    compare(plan, "--out", out)
    (audit,) = (out / "federations").glob("*.json")
    before = audit.read_bytes()
    audit.unlink()
    assert compare(plan, "--out", out).exit_code == 0
    assert audit.read_bytes() == before


def test_what_could_not_be_drawn_is_refused_before_it_is_computed():
    with pytest.raises(PlanError, match="figure1 needs a method that says what clients contributed"):
        plan_of("figure1", methods=["fedprox"])
    assert plan_of("figure1", methods=["cgsv(beta=2)"]).methods == ("cgsv(beta=2)",)


def test_figure_3_is_drawn_without_the_methods_of_the_paper_too(tmp_path):
    asked = small(methods=["fedprox"], partitions=["pow"], seeds=1)
    worked(tmp_path, jobs_of(asked))
    record(tmp_path, Recorded(asked, Store(tmp_path), "", {}, "figure3"))
    assert drawing.draw(read(tmp_path)) == "figure3a, figure3b"
    assert "fedprox" in (tmp_path / "figure3b.csv").read_text()
    record(tmp_path, Recorded(asked, Store(tmp_path), "", {}, "table1"))
    assert drawing.draw(read(tmp_path)) == ""


def test_seconds_that_were_lost_are_unknown_and_not_nothing(tmp_path):
    asked = small(methods=["fedavg"], partitions=["pow"], seeds=2)
    worked(tmp_path, jobs_of(asked))
    record(tmp_path, Recorded(asked, Store(tmp_path), "", {}))
    times = sorted(tmp_path.glob("cells/*/timings.jsonl"))
    whole = costs(read(tmp_path).settings[0].cells)
    assert all(own["seconds"] > 0 for own in whole.values())
    for path in times:
        path.write_text(path.read_text().splitlines(keepends=True)[0])
    found = read(tmp_path)
    assert {own["seconds"] for own in costs(found.settings[0].cells).values()} == {None}
    assert {line[-1] for line in cost_lines(found.settings[0].cells)} == {"unknown"}
    write_outcome(found)
    stored = json.loads((tmp_path / "costs.json").read_text())
    assert [own["seconds"] for one in stored.values() for own in one.values()] == [None, None]
