"""The results that come with the project are what their cells say, each with the command that made it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from fedakd.cli import app
from fedakd.cli.artefacts import plan_of
from fedakd.compare.results import read, recorded
from fedakd.outcome import write_outcome

ROOT = Path(__file__).parent.parent
FOLDERS = sorted(path.parent for path in ROOT.glob("results/*/*/comparison.json"))
FILES = ("summary.json", "summary.md", "scores.csv", "tables.csv")


def named(folder: Path) -> str:
    return f"{folder.parent.name}-{folder.name}"


def test_what_the_document_speaks_of_is_there_and_complete():
    """FashionMNIST and CIFAR10 without leaks, and the published protocol with and without its own."""
    ours = {f"fashion-mnist-{one}" for one in ("table1", "table4", "table5", "figure1")}
    assert {*map(named, FOLDERS)} == {*ours, "cifar10-table1", "released-table1", "unleaked-table1"}
    assert not [folder for folder in FOLDERS for setting in read(folder).settings if setting.missing]


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_the_tables_follow_from_the_cells(folder, tmp_path):
    write_outcome(replace(read(folder), folder=tmp_path))
    for name in FILES:
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes(), name


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_results_of_an_earlier_version_are_marked_and_no_others(folder):
    marked = "SUPERSEDED" in (folder / "summary.md").read_text()
    assert marked == any(setting.superseded for setting in read(folder).settings)
    assert marked == ("SUPERSEDED" in (folder / "report.html").read_text())


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_no_client_is_judged_on_fewer_effective_rows_than_the_rule_asks(folder):
    """Of cells of the present version; a request that was forced is marked in its audit."""
    for setting in read(folder).settings:
        for audit in setting.audits.values() if not setting.superseded else ():
            for client in audit["clients"]:
                shift = client["shift"]
                needed = min(100, shift["test_size"] / 2) if shift else 0
                assert client["effective_test_rows"] >= needed or client["few_test_rows"]


def test_the_command_beside_results_of_the_present_version_asks_for_them():
    for folder in FOLDERS:
        if not any(setting.superseded for setting in read(folder).settings):
            check_command(folder)


def check_command(folder: Path) -> None:
    told = recorded(folder)
    program, group, name, *words = shlex.split(told.command)
    assert (program, group, name) == ("fedakd", "paper", folder.name)
    command = typer.main.get_command(app).commands["paper"].commands[name]  # type: ignore[attr-defined]
    said = command.make_context(name, words).params
    axes = {"datasets": said["dataset"], "partitions": said["partition"], "methods": said["method"]}
    others = ("scale", "rounds", "seeds", "preset", "clients", "judge_every", "leak")
    asked = plan_of(
        name, **{key: value or None for key, value in axes.items()}, **{key: said[key] for key in others}
    )
    assert asked == told.comparison
    assert said["out"] == folder.parent.relative_to(ROOT)


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_the_document_about_them_names_the_command(folder):
    assert f"`{recorded(folder).command}`" in (ROOT / "docs" / "reproduction.md").read_text()


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_no_row_was_shared_unless_that_is_the_point(folder):
    for setting in read(folder).settings:
        for audit in setting.audits.values():
            assert not any(audit["shared"].values()) or setting.plan.preset == "released"
