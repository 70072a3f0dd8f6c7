"""Resuming a run whose folder, plan or machine is not what it was."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from fedakd import wire
from fedakd.drawn import SEAL, federation_of
from fedakd.errors import PartitionError, PlanError
from fedakd.experiment import carry_out
from fedakd.runfolder import RunFolder
from test_runfolder import Silent, fresh, numbers, resumed, small, unfinished, whole

__all__ = ["whole"]  # the fixture


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[1]\n",
        lambda text: '{"number": "x"}\n',
    ],
)
def test_a_finished_cell_whose_rounds_are_damaged_is_computed_again(damage, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    lines = tmp_path / "run/cells/fedakd-seed0/rounds.jsonl"
    lines.write_text(damage(lines.read_text()))
    assert any("refused" in notice for notice in resumed(tmp_path / "run"))
    assert numbers(tmp_path / "run") == numbers(whole)


@pytest.mark.parametrize("content", ["", "[]", "{}", "not json"])
def test_a_damaged_mark_of_completion_does_not_count(content, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run/cells/fedakd-seed0/done.json").write_text(content)
    assert resumed(tmp_path / "run") == []
    assert numbers(tmp_path / "run") == numbers(whole)


def test_resuming_never_discards_a_run(tmp_path):
    fresh(tmp_path / "run")
    folder, plan = RunFolder.open(tmp_path / "run")
    with folder.locked(), pytest.raises(PlanError, match="another process"):
        carry_out(plan, folder, Silent(), workers=0)
    folder.discard_if_unused()
    assert (tmp_path / "run/plan.json").exists()


def test_rows_are_drawn_once_and_kept_with_the_run(whole, tmp_path, monkeypatch):
    """A machine that would draw others continues with the rows the run began with."""
    unfinished(whole, tmp_path / "run")
    draw = federation_of

    def otherwise(plan, dataset, seed, leak):
        federation = draw(plan, dataset, seed, leak)
        return replace(federation, train=tuple(np.roll(rows, 1) for rows in federation.train))

    monkeypatch.setattr("fedakd.experiment.federation_of", otherwise)
    assert resumed(tmp_path / "run") == []
    assert numbers(tmp_path / "run") == numbers(whole)


def test_a_stored_leak_fails_the_run(whole, tmp_path):
    unfinished(whole, tmp_path / "run")
    (path,) = (tmp_path / "run").glob("federation-seed0-*.safetensors")
    rows = wire.loads(path.read_bytes()[:-SEAL])
    rows["global_test"][0] = rows["train"]["0"][0]
    data = wire.dumps(rows)
    path.write_bytes(data + hashlib.sha256(data).digest())
    with pytest.raises(PartitionError, match="share"):
        resumed(tmp_path / "run")


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: data[:-70] + b"x" + data[-69:], lambda _: b""]
)
def test_stored_rows_that_are_damaged_are_refused_by_name(damage, whole, tmp_path):
    unfinished(whole, tmp_path / "run")
    (path,) = (tmp_path / "run").glob("federation-seed0-*.safetensors")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(PlanError, match=r"federation-seed0-\w+\.safetensors is damaged"):
        resumed(tmp_path / "run")


def test_another_partition_draws_other_rows(whole, tmp_path):
    unfinished(whole, tmp_path / "run")
    plan = json.loads((tmp_path / "run/plan.json").read_text())
    plan["plan"]["partition"] = "pow"
    (tmp_path / "run/plan.json").write_text(json.dumps(plan))
    resumed(tmp_path / "run")
    carry_out(small(partition="pow"), fresh(tmp_path / "fresh", small(partition="pow")), Silent(), workers=0)
    assert numbers(tmp_path / "run") == numbers(tmp_path / "fresh")


def test_rounds_that_were_altered_are_not_believed(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    lines = tmp_path / "run/cells/fedakd-seed0/rounds.jsonl"
    told = [json.loads(line) for line in lines.read_text().splitlines()]
    told[1]["scores"]["global/accuracy"]["0"] = 0.99
    lines.write_text("".join(json.dumps(line) + "\n" for line in told))
    notices = resumed(tmp_path / "run")
    assert any("not those written before it" in notice for notice in notices)
    assert numbers(tmp_path / "run") == numbers(whole)


def test_an_engine_that_fails_to_load_says_nothing_against_the_checkpoint(whole, tmp_path, monkeypatch):
    checkpoints = unfinished(whole, tmp_path / "run")

    def failing(self, folder):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("fedakd.engine.serial.Serial.load", failing)
        with pytest.raises(OSError, match="no space left"):
            resumed(tmp_path / "run")
    assert len(list(checkpoints.iterdir())) == 2
    assert resumed(tmp_path / "run") == []
    assert numbers(tmp_path / "run") == numbers(whole)


def test_a_run_killed_in_its_first_round_just_begins_again(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/cells/fedakd-seed0")
    (tmp_path / "run/cells/fedakd-seed0/checkpoints").mkdir(parents=True)
    (tmp_path / "run/cells/fedakd-seed0/rounds.jsonl").touch()
    assert resumed(tmp_path / "run") == []
    assert not (tmp_path / "run/replaced").exists()
    assert numbers(tmp_path / "run") == numbers(whole)
