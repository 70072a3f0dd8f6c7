"""README's first run and the demo converge, and end in the verdict that twice the rounds give."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fedakd.compare.results import read
from fedakd.verdict import verdict_class

ROOT = Path(__file__).parent.parent
FIRST = re.search(r"^fedakd run --dataset digits .*$", (ROOT / "README.md").read_text(), re.MULTILINE)[0]


def fedakd(*words: str) -> None:
    program = [sys.executable, "-c", "from fedakd.cli import main; main()"]
    subprocess.run([*program, *words], check=True, capture_output=True)


def classes(folder: Path) -> dict[str, str]:
    """The verdict's class of each method's judged model, or that a run has not converged."""
    rows = [row for row in read(folder).settings[0].rows if row.judged and row.method != "standalone"]
    return {row.method: "not converged" if row.unconverged else verdict_class(row.per_seed) for row in rows}


def plan_of(folder: Path) -> dict[str, object]:
    return dict(json.loads((folder / "plan.json").read_text())["plan"])


@pytest.mark.long
def test_the_first_run_and_the_demo_end_in_the_class_that_twice_the_rounds_give(tmp_path):
    fedakd(*shlex.split(FIRST)[1:], "--out", str(tmp_path / "run"))
    fedakd("demo", "--out", str(tmp_path / "demo"))
    assert plan_of(tmp_path / "demo") == plan_of(tmp_path / "run")
    first = classes(tmp_path / "run")
    assert set(first) == {"fedavg", "fedakd"}
    assert set(first.values()) <= {"pays", "costs", "unclear"}, "all converged by the rule"
    fedakd("run", "--resume", str(tmp_path / "run"), "--rounds", "40")
    assert classes(tmp_path / "run") == first


@pytest.mark.slow
def test_the_first_run_cut_to_five_rounds_has_not_converged(tmp_path):
    words = shlex.split(FIRST)[2:]
    seeds = [k for k, word in enumerate(words) if word == "--seed"][1:]
    fewer = [word for k, word in enumerate(words) if k not in seeds and k - 1 not in seeds]
    fedakd("run", *fewer, "--rounds", "5", "--out", str(tmp_path / "run"))
    assert set(classes(tmp_path / "run").values()) == {"not converged"}
