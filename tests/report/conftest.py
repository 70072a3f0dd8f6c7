"""Small real results, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedakd.compare.results import Results, read
from fedakd.experiment import carry_out, versions
from fedakd.plan import resolve
from fedakd.runfolder import RunFolder
from test_runfolder import Silent

METHODS = ("fedavg", "fedakd", "cffl", "scaffold")


def carried_out(path: Path, preset: str | None = None, **choices) -> Path:
    usual = {"dataset": "digits", "model": "linear", "rounds": 3, "seeds": (0, 1), "clients": 6, "lr": 0.01}
    plan = resolve(preset, **{**usual, "methods": METHODS, **choices})
    carry_out(plan, RunFolder.create(path, plan, versions()), Silent(), workers=0)
    return path


@pytest.fixture(scope="session")
def shifted(tmp_path_factory) -> Path:
    """Judged after rounds 2 and 3 only."""
    return carried_out(tmp_path_factory.mktemp("runs") / "shifted", partition="ics(2)", judge_every=2)


@pytest.fixture(scope="session")
def sized(tmp_path_factory) -> Path:
    return carried_out(tmp_path_factory.mktemp("runs") / "sized", partition="pow")


@pytest.fixture(scope="session")
def leaky(tmp_path_factory) -> Path:
    choices = {"partition": "ics(5)", "methods": ("fedavg", "fedakd"), "seeds": (0,), "rounds": 2}
    return carried_out(tmp_path_factory.mktemp("runs") / "leaky", "released", **choices)


@pytest.fixture(scope="session")
def results(shifted, sized) -> Results:
    """Two settings, five methods, two seeds."""
    settings = (*read(shifted).settings, *read(sized).settings)
    command = "fedakd compare study.toml --out study"
    return Results("Two partitions of digits", settings, Path("study"), command)
