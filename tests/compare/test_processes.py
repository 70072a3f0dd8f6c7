"""Comparisons as people run them: killed, started twice, split over machines."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedakd.methods import of_the_paper

FEDAKD = [sys.executable, "-c", "from fedakd.cli import main; main()"]
TABLE = ["paper", "table1", "--dataset", "digits", "--scale", "1", "--rounds", "3", "--seeds", "2"]
TABLE += [word for name in ("pow", "bcs(0.5)", "ics(0.5)", "ics(1)") for word in ("--partition", name)]
TABLE += [word for name in of_the_paper() for word in ("--method", name)]
PLAN = """
title = "small"
datasets = ["digits"]
partitions = ["pow", "ics(2)"]
methods = ["fedavg", "fedprox", "fedakd"]
seeds = 3
clients = 4
rounds = 4
scale = 0.3
"""


def fedakd(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*FEDAKD, *words], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def summaries(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("summary.json", "summary.md", "scores.csv")}


def children(pid: int) -> set[int]:
    """The processes whose parent is this one."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        found |= {int(stat.parent.name)} if parent == pid else set()
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def ended(pids: set[int], within: float = 120.0) -> bool:
    until = time.monotonic() + within
    while time.monotonic() < until and any(map(alive, pids)):
        time.sleep(0.1)
    return not any(map(alive, pids))


def described(pids: set[int]) -> dict[int, list[str]]:
    """State, place in the kernel and command of those that should be gone."""
    names = ("status", "wchan", "cmdline")
    return {
        pid: [Path(f"/proc/{pid}/{name}").read_text()[:300] for name in names] for pid in filter(alive, pids)
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_table1_killed_five_times_ends_with_the_same_summaries(tmp_path):
    began = time.monotonic()
    told = fedakd(*TABLE, "--out", "whole", cwd=tmp_path)
    took = time.monotonic() - began
    assert all(f"Table 1: covariate shift, {name}" in told.stdout for name in ("max", "average", "CF"))
    assert re.search(r"104 cells, 0 of them stored; about .* on \d+ cores, by one short cell", told.stderr)
    moments = random.Random()  # another each time: it must hold for all
    for _ in range(5):
        wait = moments.uniform(0.05, 0.3) * took
        process = subprocess.Popen(
            [*FEDAKD, *TABLE, "--out", "killed"], cwd=tmp_path, stderr=subprocess.DEVNULL
        )
        time.sleep(wait)
        own = children(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert ended(own), f"after {wait:.1f} s: {described(own)}"
    again = fedakd(*TABLE, "--out", "killed", cwd=tmp_path)
    assert not re.search(r"104 cells, (0|104) of them stored", again.stderr), "it was killed on its way"
    whole, killed = (summaries(tmp_path / name / "table1") for name in ("whole", "killed"))
    assert whole == killed


@pytest.mark.slow
def test_two_processes_on_one_folder_compute_no_cell_twice(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    command = [*FEDAKD, "compare", "plan.toml", "--out", "both", "--parallel", "cells", "--workers", "2"]
    both = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [process.communicate(timeout=500) for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    computed = [re.findall(r"^\[\d+/24\] (.*): \d+ s", err, re.MULTILINE) for _, err in told]
    assert len(computed[0]) + len(computed[1]) == 24, computed
    assert not set(computed[0]) & set(computed[1])
    assert all(computed), "both had their share"
    assert told[0][0] == told[1][0], "and both end with the same tables"


@pytest.mark.slow
def test_shards_merged_are_the_whole(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    for k in (1, 2):
        fedakd("compare", "plan.toml", "--out", f"part{k}", "--shard", f"{k}/2", cwd=tmp_path)
    part = (tmp_path / "part1" / "summary.md").read_text()
    assert "12 of 24 cells have not been computed yet" in part
    told = fedakd("merge", "part1", "part2", "--out", "merged", cwd=tmp_path)
    assert "24 cells copied, 0 were there, 0 are missing" in told.stderr
    fedakd("compare", "plan.toml", "--out", "whole", cwd=tmp_path)
    assert summaries(tmp_path / "merged") == summaries(tmp_path / "whole")
    again = fedakd("merge", "part1", "part2", "--out", "merged", cwd=tmp_path)
    assert "0 cells copied, 24 were there" in again.stderr


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on_and_leaves_nobody_behind(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN.replace("rounds = 4", "rounds = 400"))
    command = [*FEDAKD, "compare", "plan.toml", "--out", "stopped"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while not [*tmp_path.glob("stopped/cells/*/rounds.jsonl")] and time.monotonic() < until:
        time.sleep(0.2)
    own = children(process.pid)
    process.send_signal(signal.SIGTERM)  # the same handler; a test in the background ignores Ctrl-C
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Continue with:\nfedakd compare plan.toml --out stopped" in told
    assert ended(own)
