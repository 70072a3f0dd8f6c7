"""A run on disk survives whatever happens to its process, and refuses what it did not write."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from fedakd import wire
from fedakd.errors import PartitionError, PlanError
from fedakd.experiment import carry_out
from fedakd.plan import Plan, resolve
from fedakd.runfolder import RunFolder


class Silent:
    """An observer that only remembers notices."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def fetching(self, file, done, total): ...
    def federated(self, found): ...
    def began(self, method, seed, rounds, done, clients): ...
    def progressed(self, stage, client): ...
    def judged(self, record): ...
    def ended(self, cell): ...

    def noticed(self, notice: str) -> None:
        self.notices.append(notice)


def small(**choices: object) -> Plan:
    said = {"clients": 3, "rounds": 3, "fraction": 0.3, "model": "linear", "methods": ("fedakd",)}
    return resolve("tuned", **{**said, **choices})


def fresh(path: Path, plan: Plan | None = None) -> RunFolder:
    return RunFolder.create(path, plan or small(), {})


def numbers(path: Path) -> dict[str, bytes]:
    """Every file of a finished run that holds results."""
    names = [*path.glob("cells/*/rounds.jsonl"), *path.glob("cells/*/checkpoints/*/*"), *path.glob("audit*")]
    return {str(name.relative_to(path)): name.read_bytes() for name in names}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run nobody disturbed."""
    path = tmp_path_factory.mktemp("whole") / "run"
    carry_out(small(), fresh(path), Silent(), workers=0)
    return path


class Killed(BaseException):
    """Ends the run where it stands, like a signal nobody can catch."""


def writes_of_a_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    count, sync, folder = 0, os.fsync, fresh(path)

    def counting(descriptor: int) -> None:
        nonlocal count
        count += 1
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", counting)
        carry_out(small(), folder, Silent(), workers=0)
    return count


@pytest.mark.slow
def test_a_run_killed_at_any_write_ends_with_the_same_bytes(whole, tmp_path, monkeypatch):
    total = writes_of_a_run(tmp_path / "counted", monkeypatch)
    assert total > 30
    for fatal in range(1, total + 1):
        path = tmp_path / f"killed-{fatal}"
        folder, count, sync = fresh(path), 0, os.fsync

        def fsync(descriptor: int, fatal: int = fatal, sync=sync) -> None:  # type: ignore[no-untyped-def]
            nonlocal count
            count += 1
            if count == fatal:
                raise Killed
            sync(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", fsync)
            with pytest.raises(Killed):
                carry_out(small(), folder, Silent(), workers=0)
        again, plan = RunFolder.open(path)
        carry_out(plan, again, Silent(), workers=0)
        assert numbers(path) == numbers(whole)
        shutil.rmtree(path)


def test_a_finished_run_is_not_computed_again(whole, monkeypatch):
    folder, plan = RunFolder.open(whole)
    monkeypatch.setattr("fedakd.experiment.engine_for", lambda *_: pytest.fail("nothing is left to compute"))
    cells = carry_out(plan, folder, Silent(), workers=0)
    assert [len(cell.rounds) for cell in cells] == [3, 3]


def unfinished(whole: Path, path: Path) -> Path:
    """The run as it was before its last cell was declared done."""
    shutil.copytree(whole, path)
    (path / "cells/fedakd-seed0/done.json").unlink()
    return path / "cells/fedakd-seed0/checkpoints"


def resumed(path: Path) -> list[str]:
    folder, plan = RunFolder.open(path)
    observer = Silent()
    carry_out(plan, folder, observer, workers=0)
    return observer.notices


@pytest.mark.parametrize("name", ["server.safetensors", "clients-0.safetensors"])
def test_a_truncated_checkpoint_is_refused_and_the_one_before_is_used(name, whole, tmp_path):
    checkpoints = unfinished(whole, tmp_path / "run")
    damaged = checkpoints / "round-00003" / name
    size = damaged.stat().st_size
    damaged.write_bytes(damaged.read_bytes()[:-7])
    (notice,) = resumed(tmp_path / "run")
    assert "round-00003 refused" in notice
    assert f"{name} is damaged: expected {size} bytes" in notice
    assert f"found {size - 7} bytes" in notice
    assert numbers(tmp_path / "run") == numbers(whole)


def test_a_flipped_bit_is_noticed(whole, tmp_path):
    checkpoints = unfinished(whole, tmp_path / "run")
    damaged = checkpoints / "round-00003" / "server.safetensors"
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    (notice,) = resumed(tmp_path / "run")
    assert "server.safetensors is damaged" in notice
    assert numbers(tmp_path / "run") == numbers(whole)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"round": 3'])
def test_a_checkpoint_without_a_readable_manifest_is_refused(content, whole, tmp_path):
    checkpoints = unfinished(whole, tmp_path / "run")
    (checkpoints / "round-00003" / "manifest.json").write_text(content)
    (notice,) = resumed(tmp_path / "run")
    assert "manifest.json cannot be read" in notice
    assert numbers(tmp_path / "run") == numbers(whole)


def test_a_missing_file_is_named(whole, tmp_path):
    checkpoints = unfinished(whole, tmp_path / "run")
    (checkpoints / "round-00003" / "clients-0.safetensors").unlink()
    assert "clients-0.safetensors is missing" in resumed(tmp_path / "run")[0]


def test_checkpoints_of_another_plan_are_refused_and_the_cell_starts_anew(whole, tmp_path):
    unfinished(whole, tmp_path / "run")
    plan = json.loads((tmp_path / "run/plan.json").read_text())
    plan["plan"]["lr"] = 0.5
    (tmp_path / "run/plan.json").write_text(json.dumps(plan))
    before = numbers(tmp_path / "run")
    notices = resumed(tmp_path / "run")
    assert (
        sum("was made for plan" in notice for notice in notices) == 4
    )  # two checkpoints of each of two cells
    assert sum("starts anew; what was there is kept in" in notice for notice in notices) == 2
    for name in ("standalone-seed0-0", "fedakd-seed0-0"):
        kept = (tmp_path / "run/replaced" / name / "rounds.jsonl").read_bytes()
        assert kept == before[f"cells/{name[:-2]}/rounds.jsonl"]
    fresh_run = tmp_path / "fresh"
    carry_out(small(lr=0.5), fresh(fresh_run, small(lr=0.5)), Silent(), workers=0)
    assert numbers(tmp_path / "run") == numbers(fresh_run)


def test_the_last_two_checkpoints_are_kept(whole):
    kept = sorted(path.name for path in (whole / "cells/fedakd-seed0/checkpoints").iterdir())
    assert kept == ["round-00002", "round-00003"]


def test_checkpoints_hold_the_server_and_every_client(whole):
    folder = whole / "cells/fedakd-seed0/checkpoints/round-00003"
    assert set(wire.load(folder / "server.safetensors")) == {"model", "sizes"}
    clients = wire.load(folder / "clients-0.safetensors")
    assert set(clients) == {"0", "1", "2"}
    assert set(clients["0"]) == {"local", "moments", "rounds"}


def test_a_folder_that_holds_a_run_is_not_overwritten(whole):
    with pytest.raises(PlanError, match=r"already holds a run; continue it with --resume"):
        fresh(whole)


def test_a_plan_that_cannot_begin_leaves_nothing_but_what_was_there(tmp_path):
    impossible = small(clients=5000)
    (tmp_path / "diary.txt").write_text("mine")
    for path in (tmp_path, tmp_path / "new"):
        folder = fresh(path, impossible)
        with pytest.raises(PartitionError, match="5000"):
            carry_out(impossible, folder, Silent(), workers=0)
        folder.discard_if_unused()
    assert [path.name for path in tmp_path.iterdir()] == ["diary.txt"]


def test_a_folder_without_a_run_cannot_be_resumed(tmp_path):
    with pytest.raises(PlanError, match=r"holds no run: expected a plan\.json"):
        RunFolder.open(tmp_path)
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(PlanError, match=r"plan\.json is damaged"):
        RunFolder.open(tmp_path)
    (tmp_path / "plan.json").write_text('{"plan": [1]}')
    with pytest.raises(PlanError, match=r"plan\.json is damaged"):
        RunFolder.open(tmp_path)
    (tmp_path / "plan.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(PlanError, match=r"plan\.json is damaged"):
        RunFolder.open(tmp_path)


def test_two_processes_cannot_work_in_one_folder(whole):
    folder, plan = RunFolder.open(whole)
    with folder.locked(), pytest.raises(PlanError, match="another process is at work"):
        carry_out(plan, folder, Silent(), workers=0)


def test_a_half_written_line_is_dropped(whole, tmp_path):
    unfinished(whole, tmp_path / "run")
    lines = tmp_path / "run/cells/fedakd-seed0/rounds.jsonl"
    lines.write_text(lines.read_text()[:-40])
    notices = resumed(tmp_path / "run")
    assert "rounds.jsonl has only 2 of its 3 rounds" in notices[0]
    assert numbers(tmp_path / "run") == numbers(whole)
