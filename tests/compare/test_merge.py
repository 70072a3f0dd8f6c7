"""Parts of a comparison are put together only if they are parts of one, and do not contradict."""

from __future__ import annotations

import json

import pytest
from small_plans import bytes_of, small, worked
from typer.testing import CliRunner

from fedakd.cli import app
from fedakd.compare import Store, jobs_of
from fedakd.compare.merge import merge
from fedakd.compare.results import Recorded, read, record, recorded
from fedakd.errors import PlanError
from fedakd.plan import fingerprint

runner = CliRunner()
FEW = {"methods": ["fedavg"], "partitions": ["pow"], "seeds": 2}


def part(path, seeds, **changes):
    asked = small(**{**FEW, **changes})
    worked(path, [job for job in jobs_of(asked) if job.seed in seeds])
    record(path, Recorded(asked, Store(path), "fedakd compare plan.toml", {}))
    return path


def test_parts_make_a_whole(tmp_path):
    parts = [part(tmp_path / str(seed), [seed]) for seed in (0, 1)]
    found = merge(parts, Store(tmp_path / "whole"))
    assert (found.copied, found.present, found.missing) == (4, 0, 0)
    worked(tmp_path / "alone", **FEW)
    assert bytes_of(tmp_path / "whole") == bytes_of(tmp_path / "alone")


def test_parts_of_a_paper_table_are_laid_out_as_they_were(tmp_path):
    """So that the command with the new folder finds their cells and goes on with what is missing."""
    part(tmp_path / "a" / "store", [0])
    told = Recorded(
        small(**FEW), Store(tmp_path / "a" / "store"), "fedakd paper table1 --out a", {}, "table1"
    )
    record(tmp_path / "a" / "table1", told)
    assert (
        runner.invoke(
            app, ["merge", str(tmp_path / "a/table1"), "--out", str(tmp_path / "b/table1")]
        ).exit_code
        == 0
    )
    found = recorded(tmp_path / "b" / "table1")
    assert found.store.path.resolve() == tmp_path / "b" / "store"
    assert found.command == f"fedakd paper table1 --out {tmp_path / 'b'}"
    assert len(list((tmp_path / "b" / "store" / "cells").iterdir())) == 2


def test_what_nobody_has_is_missing(tmp_path):
    found = merge([part(tmp_path / "0", [0])], Store(tmp_path / "whole"))
    assert (found.copied, found.missing) == (2, 2)


def test_another_comparison_is_refused(tmp_path):
    parts = [part(tmp_path / "a", [0]), part(tmp_path / "b", [1], lr=0.5)]
    with pytest.raises(PlanError, match="b holds another comparison than"):
        merge(parts, Store(tmp_path / "whole"))
    assert not (tmp_path / "whole").exists()


def test_a_contradiction_is_refused(tmp_path):
    parts = [part(tmp_path / name, [0]) for name in ("a", "b")]
    assert merge(parts, Store(tmp_path / "fine")).copied == 2
    cell = next((tmp_path / "b").glob("cells/*"))
    fields = json.loads((cell / "cell.json").read_text())
    (cell / "cell.json").write_text(json.dumps({**fields, "data": "other rows"}))
    done = json.loads((cell / "done.json").read_text())
    done["identity"] = fingerprint({**fields, "data": "other rows"})
    (cell / "done.json").write_text(json.dumps(done))
    with pytest.raises(PlanError, match="was computed twice with different results"):
        merge(parts, Store(tmp_path / "whole"))


def test_a_folder_without_a_comparison_is_refused(tmp_path):
    with pytest.raises(PlanError, match=r"holds no comparison: expected a comparison\.json"):
        merge([tmp_path], Store(tmp_path / "whole"))
    with pytest.raises(
        PlanError, match=r"holds no run and no comparison: expected a plan\.json or a comparison"
    ):
        read(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(PlanError, match="out is a file, or lies in one; results need a folder"):
        record(tmp_path / "file" / "out", Recorded(small(), Store(tmp_path), "", {}))


def test_cells_of_one_seed_on_different_rows_are_not_compared(tmp_path):
    path = part(tmp_path / "a", [0])
    cell = next(one for one in path.glob("cells/*") if "FedAvg" in (one / "cell.json").read_text())
    fields = {**json.loads((cell / "cell.json").read_text()), "data": "other rows"}
    done = {**json.loads((cell / "done.json").read_text()), "identity": fingerprint(fields)}
    (cell / "cell.json").write_text(json.dumps(fields))
    (cell / "done.json").write_text(json.dumps(done))
    with pytest.raises(PlanError, match="were computed on different rows and cannot be compared"):
        read(path)


def test_a_folder_others_work_in_is_not_merged_into(tmp_path):
    source, into = part(tmp_path / "a", [0]), Store(tmp_path / "whole")
    name = jobs_of(small(**FEW))[1].name
    with into.claim(name), pytest.raises(PlanError, match="another process computes digits pow"):
        merge([source], into)


def test_what_is_half_done_is_kept_aside_when_a_finished_cell_comes(tmp_path):
    source, into = part(tmp_path / "a", [0]), Store(tmp_path / "whole")
    name = jobs_of(small(**FEW))[1].name
    begun = into.path / "cells" / name
    (begun / "checkpoints" / "round-00001").mkdir(parents=True)
    (begun / "cell.json").write_text(json.dumps({"half": "done"}))
    assert merge([source], into).copied == 2
    assert into.done(name)
    assert (into.path / "replaced" / f"{name}-0" / "cell.json").exists()


def test_reading_writes_nothing(tmp_path):
    path = part(tmp_path / "a", [])
    before = sorted(tmp_path.rglob("*"))
    read(path)
    assert sorted(tmp_path.rglob("*")) == before
