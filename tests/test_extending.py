"""A run that gets more rounds ends as one that had them from the start, without computing anything twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedakd.cli import app
from fedakd.compare.results import read
from fedakd.errors import FedakdError, PlanError
from fedakd.experiment import carry_out
from fedakd.plan import Plan, resolve
from fedakd.rounds import play
from fedakd.runfolder import RunFolder
from test_runfolder import Silent, fresh, numbers, small, whole

__all__ = ["whole"]  # the fixture: 3 rounds


def computed(path: Path, plan: Plan) -> Path:
    carry_out(plan, fresh(path, plan), Silent(), workers=0)
    return path


def extended(path: Path, rounds: int) -> list[str]:
    """What is noticed while a folder's run goes on up to this round."""
    folder, plan = RunFolder.open(path)
    observer = Silent()
    carry_out(folder.extend(plan, rounds), folder, observer, workers=0)
    return observer.notices


def played(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the rounds that are trained from now on."""
    trained: list[int] = []

    def watched(method, engine, server, state, number, chosen):  # type: ignore[no-untyped-def]
        trained.append(number)
        return play(method, engine, server, state, number, chosen)

    monkeypatch.setattr("fedakd.rounds.play", watched)
    return trained


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return computed(tmp_path_factory.mktemp("longer") / "run", small(rounds=6))


def test_more_rounds_give_the_bits_of_a_run_that_had_them_from_the_start(
    whole, longer, tmp_path, monkeypatch
):
    path = Path(shutil.copytree(whole, tmp_path / "run"))
    trained = played(monkeypatch)
    assert extended(path, 6) == []
    assert numbers(path) == numbers(longer)
    assert trained == [4, 5, 6] * 2, "nothing is computed twice"
    stored = [json.loads((one / "plan.json").read_text()) for one in (path, longer)]
    assert stored[0] == stored[1]
    for cell in ("standalone-seed0", "fedakd-seed0"):
        fields = [json.loads((one / "cells" / cell / "cell.json").read_text()) for one in (path, longer)]
        assert fields[0] == fields[1]


def test_an_unfinished_run_can_get_more_rounds_too(whole, longer, tmp_path):
    path = Path(shutil.copytree(whole, tmp_path / "run"))
    shutil.rmtree(path / "cells/fedakd-seed0")
    (path / "cells/standalone-seed0/done.json").unlink()
    shutil.rmtree(path / "cells/standalone-seed0/checkpoints/round-00003")
    assert extended(path, 6) == []
    assert numbers(path) == numbers(longer)


def test_an_extension_that_was_stopped_goes_on_by_the_same_command(whole, longer, tmp_path):
    path = Path(shutil.copytree(whole, tmp_path / "run"))
    folder, plan = RunFolder.open(path)
    folder.extend(plan, 6)  # and stopped before the first round
    assert [cell for setting in read(path).settings for cell in setting.cells] == [], "none has 6 rounds"
    extended(path, 6)
    assert numbers(path) == numbers(longer)


def test_the_plan_alone_written_is_no_complete_run(whole, longer, tmp_path, monkeypatch):
    path = Path(shutil.copytree(whole, tmp_path / "run"))
    folder, plan = RunFolder.open(path)
    with monkeypatch.context() as patch:
        patch.setattr("fedakd.cellfolder.CellFolder.extend", lambda *_: None)
        folder.extend(plan, 6)
    extended(path, 6)
    assert numbers(path) == numbers(longer)


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_fewer_rounds_than_there_are_is_an_error(rounds, whole, tmp_path):
    path = Path(shutil.copytree(whole, tmp_path / "run"))
    before = {file: file.read_bytes() for file in path.rglob("*.json*")}
    with pytest.raises(PlanError, match=f"plan of 3 rounds already, --rounds {rounds} adds none.*--rounds 6"):
        extended(path, rounds)
    assert {file: file.read_bytes() for file in path.rglob("*.json*")} == before


def test_a_number_that_is_none_is_refused_and_changes_nothing(whole):
    before = (whole / "plan.json").read_bytes()
    with pytest.raises(FedakdError, match="rounds: Input should be greater than or equal to 1"):
        extended(whole, 0)
    assert (whole / "plan.json").read_bytes() == before


def test_a_run_at_work_is_not_changed(whole):
    folder, plan = RunFolder.open(whole)
    before = (whole / "plan.json").read_bytes()
    with folder.locked(), pytest.raises(PlanError, match="another process is at work"):
        folder.extend(plan, 6)
    assert (whole / "plan.json").read_bytes() == before


def test_a_plan_with_fewer_rounds_than_a_checkpoint_does_not_take_it(whole, tmp_path):
    """A plan that was edited by hand."""
    path = Path(shutil.copytree(whole, tmp_path / "run"))
    stored = json.loads((path / "plan.json").read_text())
    stored["plan"]["rounds"] = 2
    (path / "plan.json").write_text(json.dumps(stored))
    folder, plan = RunFolder.open(path)
    observer = Silent()
    cells = carry_out(plan, folder, observer, workers=0)
    assert [len(cell.rounds) for cell in cells] == [2, 2]
    assert sum("it is of round 3, the plan ends with round 2" in notice for notice in observer.notices) == 2


def test_published_rounds_grow_with_the_plan(tmp_path):
    """The published code gives FedAKD half as many rounds again as the others."""
    said = small().model_dump() | {"preset": "released"}
    path = computed(tmp_path / "run", resolve(**{**said, "rounds": 2}))
    extended(path, 4)
    expected = computed(tmp_path / "expected", resolve(**{**said, "rounds": 4}))
    assert numbers(path) == numbers(expected)
    assert len((path / "cells/fedakd-seed0/rounds.jsonl").read_text().splitlines()) == 6


def test_training_does_not_depend_on_which_rounds_were_judged(tmp_path):
    """The shorter run judged its own last rounds; all that the longer one judges is the same."""
    path = computed(tmp_path / "run", small(judge_every=3, rounds=5))
    extended(path, 12)
    expected = computed(tmp_path / "expected", small(judge_every=3, rounds=12))
    for cell in ("standalone-seed0", "fedakd-seed0"):
        ours, theirs = (
            [json.loads(line) for line in (one / "cells" / cell / "rounds.jsonl").read_text().splitlines()]
            for one in (path, expected)
        )
        judged = [line.pop("scores") for line in theirs]
        scores = [line.pop("scores") for line in ours]
        assert ours == theirs
        assert all(own == other for own, other in zip(scores, judged, strict=True) if other)
        assert [number for number, own in enumerate(scores, 1) if own and not judged[number - 1]] == [2, 4, 5]


def test_the_command_goes_on_and_replaces_the_summary(whole, tmp_path):
    path = Path(shutil.copytree(whole, tmp_path / "run"))
    (path / "summary.json").write_text("of the shorter run")
    words = ["run", "--resume", str(path), "--rounds", "4", "--workers", "0", "--json", "--quiet"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    summary = json.loads((path / "summary.json").read_text())
    assert summary["plan"]["rounds"] == 4
    assert all(row["rounds"] == [4] for row in summary["rows"])
    with pytest.raises(PlanError, match="adds none"):
        CliRunner().invoke(app, words, catch_exceptions=False)
